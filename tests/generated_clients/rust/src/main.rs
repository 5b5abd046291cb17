//! The Rust client that openapi-generator generates.

use std::env;
use std::error::Error;

use openapi::apis::configuration::Configuration;
use openapi::apis::images_api::{CreateImageError, create_image};
use openapi::apis::{Error as CallError, ResponseContent};
use openapi::models::{ErrorDetail, ImageGenerationRequest, ImageModel, ImagesResponse};

type Answer = Result<ImagesResponse, CallError<CreateImageError>>;

async fn send(prompt: &str, key: Option<&str>, idempotency_key: Option<&str>) -> Result<Answer, env::VarError> {
    let token = key.map_or_else(|| env::var("CLIENT_TEST_KEY"), |key| Ok(key.to_owned()))?;
    let base_path = env::var("CLIENT_TEST_ORIGIN")?;
    let configuration = Configuration { base_path, bearer_access_token: Some(token), ..Configuration::new() };
    let mut request = ImageGenerationRequest::new(ImageModel::GptImage2, prompt.to_owned());
    request.n = Some(None);
    Ok(create_image(&configuration, request, idempotency_key, None, None, None, None).await)
}

fn image(answer: &ImagesResponse) -> Result<Vec<u8>, Box<dyn Error>> {
    // The client has decoded it.
    Ok(answer.data.first().ok_or("no image")?.b64_json.clone())
}

/// The status of an error and its typed detail. The generator reads every status as the first one with this schema.
fn failure(answer: Answer) -> (u16, ErrorDetail) {
    match answer {
        Err(CallError::ResponseError(ResponseContent {
            status,
            entity: Some(CreateImageError::Status400(body)),
            ..
        })) => (status.as_u16(), body.error),
        other => panic!("no error of the document: {other:?}"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let word = env::var("CLIENT_TEST_WORD")?;
    let (prompt, name) = (format!("A fox, counted-{word}"), format!("run-{word}"));
    let first = image(&send(&prompt, None, Some(&name)).await??)?;
    assert!(first.starts_with(b"\x89PNG"), "no PNG");
    assert!(image(&send(&prompt, None, Some(&name)).await??)? == first, "another image");
    let other = send("A fox, answers-quality-ultra", None, None).await??;
    assert_eq!(other.quality.as_deref(), Some("ultra"));
    let (status, error) = failure(send("A fox", Some("sk-wrong"), None).await?);
    assert_eq!((status, error.r#type.as_str()), (401, "authentication_error"), "{error:?}");
    let (status, error) = failure(send(&format!("A fox {word}, takes-8-seconds"), None, None).await?);
    assert_eq!((status, error.r#type.as_str()), (409, "server_error"), "{error:?}");
    Ok(())
}
