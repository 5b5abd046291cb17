//! Checks the API with the unmodified crate async-openai.
//!
//! The environment variables are those of `openai_tour.py`. This crate does not read `x-should-retry`: it sends a
//! request up to four times if the answer is 429 or 5xx, so the test that starts this program expects four attempts
//! where an official SDK makes one.
//! It prints one line for each check, and exits with 1 if a check failed.

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::{ApiErrorResponse, OpenAIError};
use async_openai::types::images::{
    CreateImageEditRequestArgs, CreateImageRequest, CreateImageRequestArgs, Image, ImageBackground, ImageEditInput,
    ImageGenStreamEvent, ImageInput, ImageModel, ImageModeration, ImageOutputFormat, ImageQuality,
    ImageResponseBackground, ImageSize, ImagesResponse,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// Ends a check with an error message if the condition does not hold.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}

struct CheckLog {
    failed: usize,
}

impl CheckLog {
    fn report(&mut self, name: &str, result: Fallible<()>) {
        match result {
            Ok(()) => println!("ok     {name}"),
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}\n       {error}");
            }
        }
    }
}

fn setting(gateway: &str, name: &str) -> String {
    let variable = format!("{gateway}_{name}");
    env::var(&variable).unwrap_or_else(|_| panic!("{variable} is not set"))
}

fn client(gateway: &str) -> Client<OpenAIConfig> {
    client_for(setting(gateway, "BASE_URL"), setting(gateway, "API_KEY"))
}

/// With `CLIENTS=one` the same client for all calls with this address and key, otherwise a new client for each call.
fn client_for(base: String, key: String) -> Client<OpenAIConfig> {
    static CLIENTS: Mutex<BTreeMap<(String, String), Client<OpenAIConfig>>> = Mutex::new(BTreeMap::new());
    let new_client = || Client::with_config(OpenAIConfig::new().with_api_base(&base).with_api_key(&key));
    if env::var("CLIENTS").as_deref() != Ok("one") {
        return new_client();
    }
    CLIENTS.lock().expect("the clients").entry((base.clone(), key.clone())).or_insert_with(new_client).clone()
}

fn request() -> CreateImageRequestArgs {
    let mut request = CreateImageRequestArgs::default();
    request.model(ImageModel::GptImage2).prompt("a red cube on a table");
    request
}

/// A request whose prompt carries the script that the fake upstream follows.
fn scripted(script: &str, user: &str) -> Fallible<CreateImageRequest> {
    let prompt = if script.is_empty() { "a cube".to_owned() } else { format!("a cube [[{script}]]") };
    Ok(CreateImageRequestArgs::default().model(ImageModel::GptImage2).prompt(prompt).user(user).build()?)
}

fn check_images(answer: &ImagesResponse, size: Option<&str>, magic: &[u8], count: usize) -> Fallible<()> {
    ensure!(answer.data.len() == count, "{} images", answer.data.len());
    for image in &answer.data {
        let Image::B64Json { b64_json, revised_prompt } = &**image else {
            return Err("a URL instead of base64 data".into());
        };
        let file = STANDARD.decode(b64_json.as_bytes())?;
        ensure!(file.starts_with(magic), "the file begins with {:02x?}", &file[..file.len().min(16)]);
        ensure!(revised_prompt.is_some(), "no revised prompt");
    }
    let actual = size_of(answer);
    ensure!(size.is_none_or(|size| actual.as_deref() == Some(size)), "the size is {actual:?}");
    ensure!(answer.background == Some(ImageResponseBackground::Opaque), "the background is {:?}", answer.background);
    let quality = &answer.quality;
    ensure!(
        matches!(quality, Some(ImageQuality::Low | ImageQuality::Medium | ImageQuality::High)),
        "the quality is {quality:?}"
    );
    let usage = answer.usage.as_ref().ok_or("no usage")?;
    ensure!(usage.total_tokens == usage.input_tokens + usage.output_tokens, "{usage:?}");
    ensure!(answer.created > 1_700_000_000, "created {}", answer.created);
    Ok(())
}

/// The size as it is spelled on the wire.
fn size_of(answer: &ImagesResponse) -> Option<String> {
    Some(match answer.size.as_ref()? {
        ImageSize::S1024x1024 => "1024x1024".to_owned(),
        ImageSize::S1536x1024 => "1536x1024".to_owned(),
        ImageSize::Other(size) => size.clone(),
        other => format!("{other:?}"),
    })
}

/// The call must fail with an API error that has this status, code and parameter.
fn check_error<T>(result: Result<T, OpenAIError>, status: u16, code: &str, param: Option<&str>) -> Fallible<()> {
    let error = match result {
        Ok(_) => return Err("the call succeeded".into()),
        Err(OpenAIError::ApiError(error)) => error,
        Err(other) => return Err(format!("another kind of error: {other:?}").into()),
    };
    let ApiErrorResponse { status_code, api_error } = error;
    ensure!(status_code.as_u16() == status, "the status is {status_code}");
    ensure!(!api_error.message.contains("canary"), "the message of the upstream reached the caller: {api_error}");
    if status_code.is_server_error() {
        // The crate does not parse the body of a server error; it returns the body as the message.
        ensure!(api_error.message.contains(&format!("\"code\":\"{code}\"")), "the body is {}", api_error.message);
        return Ok(());
    }
    ensure!(api_error.code.as_deref() == Some(code), "the code is {:?}", api_error.code);
    ensure!(api_error.param.as_deref() == param, "the param is {:?}", api_error.param);
    ensure!(api_error.r#type.is_some() && !api_error.message.is_empty(), "{api_error:?}");
    Ok(())
}

async fn formats() -> Fallible<()> {
    let client = client("SIMULATED");
    for (format, magic) in [
        (ImageOutputFormat::Png, &b"\x89PNG\r\n\x1a\n"[..]),
        (ImageOutputFormat::Jpeg, b"\xff\xd8\xff"),
        (ImageOutputFormat::Webp, b"RIFF"),
    ] {
        let answer = client.images().generate(request().output_format(format.clone()).build()?).await?;
        check_images(&answer, None, magic, 1)?;
        ensure!(answer.output_format == Some(format), "the format is {:?}", answer.output_format);
    }
    Ok(())
}

async fn all_options() -> Fallible<()> {
    let options = request()
        .n(2)
        .size(ImageSize::Other("2048x1152".to_owned()))
        .quality(ImageQuality::Low)
        .background(ImageBackground::Opaque)
        .moderation(ImageModeration::Low)
        .output_format(ImageOutputFormat::Webp)
        .output_compression(60)
        .safety_identifier("tour")
        .build()?;
    check_images(&client("SIMULATED").images().generate(options).await?, Some("2048x1152"), b"RIFF", 2)
}

async fn automatic_values() -> Fallible<()> {
    let options =
        request().size(ImageSize::Auto).quality(ImageQuality::Auto).background(ImageBackground::Auto).build()?;
    let answer = client("SIMULATED").images().generate(options).await?;
    ensure!(answer.size != Some(ImageSize::Auto), "the size is not resolved");
    check_images(&answer, None, b"\x89PNG", 1)
}

async fn models() -> Fallible<()> {
    let client = client("SIMULATED");
    ensure!(!client.models().list().await?.data.is_empty(), "no model");
    for id in ["gpt-image-2", "gpt-image-2-2026-04-21"] {
        ensure!(client.models().retrieve(id).await?.id == id, "the model is not {id}");
    }
    check_error(client.models().retrieve("no-such-model").await, 404, "model_not_found", Some("model"))
}

async fn refused_parameter() -> Fallible<()> {
    let options = request().size(ImageSize::Other("1000x1000".to_owned())).build()?;
    check_error(client("SIMULATED").images().generate(options).await, 400, "invalid_request_error", Some("size"))
}

async fn wrong_key() -> Fallible<()> {
    let client = client_for(setting("SIMULATED", "BASE_URL"), "sk-img-nonsense".to_owned());
    check_error(client.images().generate(request().build()?).await, 401, "INVALID_API_KEY", None)
}

async fn doubled_version() -> Fallible<()> {
    let client = client_for(setting("SIMULATED", "BASE_URL") + "/v1", setting("SIMULATED", "API_KEY"));
    check_error(client.images().generate(request().build()?).await, 404, "unknown_url", None)
}

fn picture(name: &str) -> ImageInput {
    let folder = env::var("PICTURES").expect("PICTURES is not set");
    let bytes = std::fs::read(format!("{folder}/{name}")).expect("a picture");
    ImageInput::from_vec_u8(name.to_owned(), bytes)
}

fn edit_request(image: impl Into<ImageEditInput>) -> CreateImageEditRequestArgs {
    let mut request = CreateImageEditRequestArgs::default();
    request.model(ImageModel::GptImage2).prompt("a hat").size(ImageSize::S1024x1024).image(image);
    request
}

async fn edits() -> Fallible<()> {
    let client = client("SIMULATED");
    let single = edit_request(picture("first.png")).build()?;
    check_images(&client.images().edit(single).await?, Some("1024x1024"), b"\x89PNG", 1)?;
    let several = edit_request(vec![picture("first.png"), picture("second.jpeg")]).n(2).build()?;
    check_images(&client.images().edit(several).await?, Some("1024x1024"), b"\x89PNG", 2)?;
    // This crate sends the compression twice.
    let masked = edit_request(picture("first.png"))
        .mask(picture("mask.png"))
        .output_format(ImageOutputFormat::Jpeg)
        .output_compression(80)
        .build()?;
    check_images(&client.images().edit(masked).await?, Some("1024x1024"), b"\xff\xd8\xff", 1)
}

async fn refused_mask() -> Fallible<()> {
    let options = edit_request(picture("first.png")).mask(picture("opaque.png")).build()?;
    check_error(client("SIMULATED").images().edit(options).await, 400, "invalid_request_error", Some("mask"))
}

async fn streams() -> Fallible<()> {
    let client = client("SIMULATED");
    let options = request().size(ImageSize::S1024x1024).partial_images(2_u8).build()?;
    let mut events = client.images().generate_stream(options).await?;
    let (mut partials, mut completed) = (0, 0);
    while let Some(event) = events.next().await {
        match event? {
            ImageGenStreamEvent::PartialImage(event) => {
                ensure!(event.partial_image_index == partials, "index {}", event.partial_image_index);
                partials += 1;
            }
            ImageGenStreamEvent::Completed(event) => {
                ensure!(STANDARD.decode(event.b64_json.as_bytes())?.starts_with(b"\x89PNG"), "not a PNG");
                completed += 1;
            }
        }
    }
    ensure!(completed == 1 && partials <= 2, "{partials} partial images, {completed} final ones");
    Ok(())
}

async fn broken_stream() -> Fallible<()> {
    let mut options = scripted("events=p,cut", "broken-stream")?;
    options.partial_images = Some(1);
    let mut events = client("SCRIPTED").images().generate_stream(options).await?;
    let mut seen = 0;
    while let Some(event) = events.next().await {
        match event {
            Ok(_) => seen += 1,
            Err(_) if seen == 1 => return Ok(()),
            Err(error) => return Err(format!("after {seen} events: {error}").into()),
        }
    }
    Err(format!("the stream ended without an error after {seen} events").into())
}

/// Checks the error of a call that the fake upstream fails. The crate's own retries stay on.
async fn failed_call(script: &str, user: &str, status: u16, code: &str, param: Option<&str>) -> Fallible<()> {
    // An account in cooldown serves no other call, so these two cases have a gateway of their own.
    let gateway = match user {
        "usage-limit" => "RESTING1",
        "throttled" => "RESTING2",
        _ => "SCRIPTED",
    };
    let started = Instant::now();
    let result = client(gateway).images().generate(scripted(script, user)?).await;
    // The crate sleeps as long as `retry-after` says.
    ensure!(started.elapsed() < Duration::from_secs(60), "the crate slept for {:?}", started.elapsed());
    check_error(result, status, code, param)
}

async fn broken_answer() -> Fallible<()> {
    match client("SCRIPTED").images().generate(scripted("cut=80%", "cut-after-the-image")?).await {
        Err(OpenAIError::Reqwest(_)) => Ok(()),
        other => Err(format!("not an error of the connection: {other:?}").into()),
    }
}

async fn good_answer() -> Fallible<()> {
    let answer = client("SCRIPTED").images().generate(scripted("", "well")?).await?;
    check_images(&answer, Some("1024x1024"), b"\x89PNG", 1)
}

#[tokio::main]
async fn main() {
    let mut log = CheckLog { failed: 0 };
    log.report("generate png, jpeg, webp", formats().await);
    log.report("generate with every option", all_options().await);
    log.report("generate with automatic values", automatic_values().await);
    log.report("models", models().await);
    log.report("400 names the size", refused_parameter().await);
    log.report("401 for an unknown key", wrong_key().await);
    log.report("404 for a base URL with its version twice", doubled_version().await);
    log.report("edits of one and of several images, and with a mask", edits().await);
    log.report("400 names the mask", refused_mask().await);
    log.report("a stream of events", streams().await);
    log.report("a stream that breaks", broken_stream().await);
    for (user, script, status, code, param) in [
        ("parameter", "status=400 body=parameter", 400, "invalid_request_error", Some("quality")),
        (
            "usage-limit",
            "status=429 body=usage-limit resets-in=3600 retry-after=3600",
            429,
            "usage_limit_reached",
            None,
        ),
        ("throttled", "status=429 retry-after=1", 429, "rate_limit_exceeded", None),
        ("refused", "status=400 body=policy", 502, "upstream_error", None),
        ("no-image", "data=empty", 502, "upstream_error", None),
        ("html", "body=html", 502, "upstream_error", None),
        ("cut-before-the-image", "cut=30", 502, "upstream_error", None),
    ] {
        log.report(&format!("{status} {user}"), failed_call(script, user, status, code, param).await);
    }
    log.report("an answer that breaks off after the image began is an error", broken_answer().await);
    log.report("a scripted upstream that answers well", good_answer().await);
    println!("async-openai: {} failed", log.failed);
    std::process::exit(i32::from(log.failed > 0));
}
