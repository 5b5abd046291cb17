//! The crate rig-core, whose default size is 256x256, and which has only generations.

use std::env;

use rig_core::image_generation::ImageGenerationRequestBuilder;
use rig_core::providers::openai::OpenAIConfig;
use rig_core::providers::openai::image_generation::GPT_IMAGE_2;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const PROMPT: &str = "a lighthouse on a cliff at dusk";

#[tokio::main]
async fn main() -> Fallible<()> {
    report("generation", generate(PROMPT.to_owned()).await)?;
    print("edit", "absent", "the crate has no edits")?;
    report("error", shown(generate("a cube ".repeat(8000)).await, "Invalid 'prompt'"))?;
    report("retry", generate(format!("{PROMPT}, {}", env::var("ZOO_RETRY_WORD")?)).await)?;
    Ok(())
}

async fn generate(prompt: String) -> Fallible<String> {
    let config = OpenAIConfig::new(env::var("ZOO_API_KEY")?).with_base_url(env::var("ZOO_BASE_URL")?);
    let model = config.client().image_generation(GPT_IMAGE_2);
    let answer = model.call(ImageGenerationRequestBuilder::new(prompt).build()).await?;
    png(&answer.image)
}

fn png(data: &[u8]) -> Fallible<String> {
    if data.len() < 24 || !data.starts_with(b"\x89PNG") {
        return Err("not a PNG".into());
    }
    let edge = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    Ok(format!("a PNG of {}x{}", edge(16), edge(20)))
}

/// An error is what the feature asks for, if its text has this word.
fn shown(result: Fallible<String>, word: &str) -> Fallible<String> {
    match result {
        Ok(image) => Err(format!("no error, but {image}").into()),
        Err(error) if error.to_string().contains(word) => Ok(error.to_string()),
        Err(error) => Err(error),
    }
}

fn report(feature: &str, result: Fallible<String>) -> Fallible<()> {
    let (verdict, detail) = match result {
        Ok(detail) => ("pass", detail),
        Err(error) => ("error", error.to_string()),
    };
    print(feature, verdict, &detail)
}

fn print(feature: &str, verdict: &str, detail: &str) -> Fallible<()> {
    let client = env::var("ZOO_CLIENT")?;
    println!("{}", serde_json::json!({"client": client, "feature": feature, "verdict": verdict, "detail": detail}));
    Ok(())
}
