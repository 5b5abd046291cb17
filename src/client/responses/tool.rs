//! The tools that a model may use.

use serde_json::{Value, json};

use crate::client::raw_json::{Json, RawJsonObject};
use crate::client::{ModelName, OpenWord, Output, PartialImages};
use crate::image::SizeRequest;
use crate::wire::types::{Background, ImageAction, Moderation, Quality};

/// A tool of any kind, as JSON.
#[derive(Clone, Debug)]
pub struct ResponseTool(Json);

/// The image tool, with which a model makes images. The model chooses everything that is not set.
///
/// ```
/// use imagate::client::{Compression, ImageTool, Output};
/// use imagate::types::Quality;
///
/// let tool = ImageTool::new()
///     .size(imagate::size!("1536x1024"))
///     .quality(Quality::Low)
///     .format(Output::Webp { compression: Compression::new(80)? });
/// # Ok::<(), imagate::client::OutOfBounds>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until a request has it, with `ResponseRequest::tool`"]
pub struct ImageTool {
    members: RawJsonObject,
}

// === impl ImageTool ===

impl ImageTool {
    /// Creates a tool with all defaults.
    pub fn new() -> Self {
        Self { members: RawJsonObject::default() }.set("type", "image_generation")
    }

    /// Sets width and height; see [`size!`](crate::size).
    pub fn size(self, size: impl Into<SizeRequest>) -> Self {
        self.set("size", size.into().to_string().as_str())
    }

    /// Sets the quality: the amount of work that goes into the image. A text is a word that only the service knows.
    pub fn quality(self, quality: impl Into<OpenWord<Quality>>) -> Self {
        self.set("quality", quality.into().to_string().as_str())
    }

    /// Sets the file format; a [`Format`](crate::image::Format) alone stands for its best quality.
    pub fn format(self, output: impl Into<Output>) -> Self {
        let output = output.into();
        let tool = self.set("output_format", output.format().as_str());
        match output.compression() {
            Some(compression) => tool.set("output_compression", json!(compression)),
            None => tool,
        }
    }

    /// Sets the background of the image.
    pub fn background(self, background: impl Into<OpenWord<Background>>) -> Self {
        self.set("background", background.into().to_string().as_str())
    }

    /// Sets the strictness of the model's content filter.
    pub fn moderation(self, moderation: impl Into<OpenWord<Moderation>>) -> Self {
        self.set("moderation", moderation.into().to_string().as_str())
    }

    /// Sets the maximum number of intermediate images in a stream. Each is charged for.
    pub fn partial_images(self, count: PartialImages) -> Self {
        self.set("partial_images", json!(count))
    }

    /// Chooses between a new image and a change of one in the conversation.
    pub fn action(self, action: impl Into<OpenWord<ImageAction>>) -> Self {
        self.set("action", action.into().to_string().as_str())
    }

    /// Sets the image model.
    pub fn model(self, model: impl Into<ModelName>) -> Self {
        self.set("model", model.into().as_str())
    }

    /// Sets any member, known or not, and replaces one of the same name.
    pub fn set(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.members.set(name, value.into());
        self
    }
}

impl Default for ImageTool {
    fn default() -> Self {
        Self::new()
    }
}

// === impl ResponseTool ===

impl From<ImageTool> for ResponseTool {
    fn from(tool: ImageTool) -> Self {
        Self((&tool.members).into())
    }
}

impl From<Value> for ResponseTool {
    fn from(tool: Value) -> Self {
        Self(tool.into())
    }
}

impl From<Json> for ResponseTool {
    fn from(tool: Json) -> Self {
        Self(tool)
    }
}

impl From<ResponseTool> for Json {
    fn from(tool: ResponseTool) -> Self {
        tool.0
    }
}
