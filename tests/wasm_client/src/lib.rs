//! The calls of the SDK that `run.mjs` makes from WebAssembly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use imagate::Client;
use imagate::client::reqwest::{self, Request};
use imagate::client::{
    Builder, EditRequest, Error, GenerateRequest, Image, ImageEvent, Input, PartialImages, ResponseRequest, Transport,
    TransportFuture,
};
use wasm_bindgen::prelude::wasm_bindgen;

type FileResult = Result<Vec<u8>, String>;

/// Counts the requests that it hands on.
#[derive(Default)]
struct AttemptCounter(AtomicU32);

impl Transport for AttemptCounter {
    fn send<'a>(&'a self, request: Request, http: &'a reqwest::Client) -> TransportFuture<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(http.execute(request).await?) })
    }
}

fn builder(base_url: &str) -> Builder {
    Client::builder().base_url(base_url).api_key("sk-wasm").allow_http(true)
}

fn client(base_url: &str) -> Result<Client, String> {
    builder(base_url).build().map_err(describe)
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

/// Returns the number of requests that a transport has carried for two calls.
#[wasm_bindgen]
pub async fn count_attempts(base_url: String) -> Result<u32, String> {
    let counter = Arc::new(AttemptCounter::default());
    let client = builder(&base_url).transport(Arc::clone(&counter)).build().map_err(describe)?;
    client.models().list().await.map_err(describe)?;
    client.images().generate("a fox").await.map_err(describe)?;
    Ok(counter.0.load(Ordering::Relaxed))
}
