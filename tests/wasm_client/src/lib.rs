//! The calls of the SDK that `run.mjs` makes from WebAssembly.

use imagate::Client;
use imagate::client::{EditRequest, Error, GenerateRequest, Image, ImageEvent, Input, PartialImages, ResponseRequest};
use wasm_bindgen::prelude::wasm_bindgen;

type FileResult = Result<Vec<u8>, String>;

fn client(base_url: &str) -> Result<Client, String> {
    Client::builder().base_url(base_url).api_key("sk-wasm").allow_http(true).build().map_err(describe)
}

fn describe(error: Error) -> String {
    format!("{:?}: {error}", error.kind())
}

fn file(image: &Image) -> FileResult {
    image.bytes().map_err(describe)
}

/// Makes an image and returns its file.
#[wasm_bindgen]
pub async fn generate(base_url: String, prompt: String) -> FileResult {
    let images = client(&base_url)?.images().generate(prompt).await.map_err(describe)?;
    file(&images.first())
}

/// Changes an image and returns the file of the result.
#[wasm_bindgen]
pub async fn edit(base_url: String, image: Vec<u8>) -> FileResult {
    let request = EditRequest::new("at night").image(Input::from(image));
    let images = client(&base_url)?.images().edit(request).await.map_err(describe)?;
    file(&images.first())
}

/// Reads a stream; returns the number of intermediate images, and then the file of the final one.
#[wasm_bindgen]
pub async fn stream(base_url: String) -> FileResult {
    let request = GenerateRequest::new("a fox").partial_images(PartialImages::MAX);
    let mut stream = client(&base_url)?.images().generate_stream(request).await.map_err(describe)?;
    let (mut partials, mut last) = (0, Vec::new());
    while let Some(event) = stream.next().await {
        match event.map_err(describe)? {
            ImageEvent::PartialImage { .. } => partials += 1,
            ImageEvent::Completed { image, .. } => last = file(&image)?,
            _ => {}
        }
    }
    Ok([vec![partials], last].concat())
}

/// Returns the text of a response.
#[wasm_bindgen]
pub async fn respond(base_url: String) -> Result<String, String> {
    let request = ResponseRequest::new("gpt-5.5", "Say something.");
    let response = client(&base_url)?.responses().create(request).await.map_err(describe)?;
    Ok(response.text())
}

/// Returns the names of the models.
#[wasm_bindgen]
pub async fn models(base_url: String) -> Result<String, String> {
    let models = client(&base_url)?.models().list().await.map_err(describe)?;
    Ok(models.into_iter().map(|model| model.id).collect::<Vec<_>>().join(" "))
}
