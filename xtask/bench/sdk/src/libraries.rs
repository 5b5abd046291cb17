//! The same calls with each library, with its default settings.

use std::error::Error;
use std::fs;
use std::path::Path;

use async_openai::config::OpenAIConfig;
use async_openai::traits::RequestOptionsBuilder as _;
use async_openai::types::images::{CreateImageRequest, CreateImageRequestArgs, ImageGenStreamEvent, ImageModel};
use futures::StreamExt as _;
use imagate::client::GenerateRequest;
use tokio::runtime::Runtime;

pub type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Servers on the local machine accept every key.
const KEY: &str = "sk-comparison";

/// A library, and the way it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComparedLibrary {
    /// `generate` and `write_to`.
    Imagate,
    /// `generate_to`.
    ImagateSaving,
    AsyncOpenai,
    GptImage,
}

/// A library with its client, ready for calls.
pub enum LibraryClient {
    Imagate {
        runtime: Runtime,
        client: imagate::Client,
        saves_while_reading: bool,
    },
    AsyncOpenai {
        runtime: Runtime,
        client: async_openai::Client<OpenAIConfig>,
    },
    /// Each call builds its own HTTP client.
    GptImage {
        url: String,
    },
}

// === impl ComparedLibrary ===

impl ComparedLibrary {
    pub const ALL: [Self; 4] = [Self::Imagate, Self::ImagateSaving, Self::AsyncOpenai, Self::GptImage];

    pub fn name(self) -> &'static str {
        match self {
            Self::Imagate => "imagate",
            Self::ImagateSaving => "imagate-saving",
            Self::AsyncOpenai => "async-openai",
            Self::GptImage => "gpt-image-2-core",
        }
    }

    pub fn caller(self, url: &str) -> Fallible<LibraryClient> {
        Ok(match self {
            Self::Imagate | Self::ImagateSaving => LibraryClient::Imagate {
                runtime: Runtime::new()?,
                client: imagate::Client::builder().base_url(url).api_key(KEY).build()?,
                saves_while_reading: self == Self::ImagateSaving,
            },
            Self::AsyncOpenai => LibraryClient::AsyncOpenai {
                runtime: Runtime::new()?,
                client: async_openai::Client::with_config(OpenAIConfig::new().with_api_base(url).with_api_key(KEY)),
            },
            Self::GptImage => LibraryClient::GptImage { url: url.to_owned() },
        })
    }
}

// === impl LibraryClient ===

impl LibraryClient {
    /// Receives the completed image of a stream, and returns the number of characters of its text.
    pub fn receive_event(&self) -> Fallible<usize> {
        match self {
            Self::Imagate { runtime, client, .. } => runtime.block_on(async {
                let stream = client.images().generate_stream("an image").await?;
                Ok(stream.collect_image().await?.base64().len())
            }),
            Self::AsyncOpenai { runtime, client } => runtime.block_on(receive_openai_event(client)),
            Self::GptImage { .. } => Err("this library has no streams of the Images API".into()),
        }
    }

    /// Makes an image, and saves it in the folder. If the library can send a key of the program, it sends this one.
    pub fn save_image(&self, prompt: &str, key: Option<&str>, folder: &Path) -> Fallible<()> {
        fs::create_dir_all(folder)?;
        match self {
            Self::Imagate { runtime, client, saves_while_reading } => runtime.block_on(async {
                let target = folder.join("image");
                let mut request = GenerateRequest::new(prompt);
                if let Some(key) = key {
                    request = request.idempotency_key(key);
                }
                if *saves_while_reading {
                    client.images().generate_to(request, &target).await?;
                } else {
                    client.images().generate(request).await?.first().write_to(&target).await?;
                }
                Ok(())
            }),
            Self::AsyncOpenai { runtime, client } => runtime.block_on(async {
                let mut images = client.images();
                if let Some(key) = key {
                    images = images.header("idempotency-key", key)?;
                }
                images.generate(openai_request(prompt)?).await?.save(folder).await?;
                Ok(())
            }),
            Self::GptImage { url } => generate_by_arguments(url, prompt, folder),
        }
    }
}

async fn receive_openai_event(client: &async_openai::Client<OpenAIConfig>) -> Fallible<usize> {
    let mut events = client.images().generate_stream(openai_request("an image")?).await?;
    let mut characters = 0;
    while let Some(event) = events.next().await {
        if let ImageGenStreamEvent::Completed(event) = event? {
            characters = event.b64_json.len();
        }
    }
    Ok(characters)
}

fn openai_request(prompt: &str) -> Fallible<CreateImageRequest> {
    Ok(CreateImageRequestArgs::default().model(ImageModel::GptImage2).prompt(prompt).build()?)
}

/// Calls gpt-image-2-core, whose interface is the argument list of its program.
fn generate_by_arguments(url: &str, prompt: &str, folder: &Path) -> Fallible<()> {
    let file = folder.join("image.png").display().to_string();
    let arguments = [
        ["gpt-image-2-skill", "--provider=openai"],
        ["--api-key", KEY],
        ["--openai-api-base", url],
        ["images", "generate"],
        ["--prompt", prompt],
        ["--out", &file],
    ];
    let arguments: Vec<String> = arguments.concat().into_iter().map(str::to_owned).collect();
    let outcome = gpt_image_2_core::run_json(&arguments);
    if outcome.exit_status == 0 { Ok(()) } else { Err(outcome.payload.to_string().into()) }
}
