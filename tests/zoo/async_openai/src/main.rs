//! The crate async-openai.

use std::env;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::types::images::{
    CreateImageEditRequestArgs, CreateImageRequestArgs, Image, ImageInput, ImageModel, ImageSize, ImagesResponse,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const PROMPT: &str = "a lighthouse on a cliff at dusk";

#[tokio::main]
async fn main() -> Fallible<()> {
    let config = OpenAIConfig::new().with_api_base(env::var("ZOO_BASE_URL")?).with_api_key(env::var("ZOO_API_KEY")?);
    let client = Client::with_config(config);
    report("generation", generate(&client, PROMPT.to_owned()).await)?;
    report("edit", edit(&client).await)?;
    let refused = generate(&client, "a cube ".repeat(8000)).await;
    report("error", shown(refused, "Invalid 'prompt'"))?;
    let prompt = format!("{PROMPT}, {}", env::var("ZOO_RETRY_WORD")?);
    report("retry", generate(&client, prompt).await)?;
    Ok(())
}

async fn generate(client: &Client<OpenAIConfig>, prompt: String) -> Fallible<String> {
    let request = CreateImageRequestArgs::default()
        .model(ImageModel::GptImage2)
        .prompt(prompt)
        .size(ImageSize::S1536x1024)
        .build()?;
    size(&client.images().generate(request).await?)
}

async fn edit(client: &Client<OpenAIConfig>) -> Fallible<String> {
    let bytes = std::fs::read(format!("{}/picture.png", env::var("ZOO_PICTURES")?))?;
    let image = ImageInput::from_vec_u8("picture.png".to_owned(), bytes);
    let request = CreateImageEditRequestArgs::default()
        .model(ImageModel::GptImage2)
        .prompt("add a boat")
        .size(ImageSize::S1024x1024)
        .image(image)
        .build()?;
    size(&client.images().edit(request).await?)
}

/// The size of the only image of an answer.
fn size(answer: &ImagesResponse) -> Fallible<String> {
    match answer.data.first().map(|image| &**image) {
        Some(Image::B64Json { b64_json, .. }) => png(&STANDARD.decode(b64_json.as_bytes())?),
        other => Err(format!("no image: {other:?}").into()),
    }
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
    let client = env::var("ZOO_CLIENT")?;
    println!("{}", serde_json::json!({"client": client, "feature": feature, "verdict": verdict, "detail": detail}));
    Ok(())
}
