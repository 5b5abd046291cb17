//! The ticket: a request that passed every rule.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::models;
use crate::gateway::config::ImageModel;
use crate::gateway::spool::Upload;
use crate::image::{Format, Size, SizeRequest};

/// A request that passed every rule. Only this room makes one.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    model: String,
    prompt: String,
    count: u32,
    size: SizeRequest,
    quality: Option<String>,
    format: Format,
    compression: u8,
    stream: bool,
    partials: u32,
    end_user: Option<String>,
    turn: Option<String>,
    received: DateTime<Utc>,
    fields: Map<String, Value>,
    material: Option<Material>,
    rules: Arc<ImageModel>,
}

/// What an edit starts from.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    /// At least one image, each of them checked.
    pub(crate) images: Vec<Upload>,
    /// The mask, checked against the first image.
    pub(crate) mask: Option<Upload>,
}

// === impl Job ===

impl Job {
    /// Of an object that the rules of `model` have passed, and of what of it goes upstream.
    pub(super) fn new(
        model: Arc<ImageModel>,
        object: &Map<String, Value>,
        forward: Map<String, Value>,
        received: DateTime<Utc>,
        material: Option<Material>,
    ) -> Self {
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let number = |key: &str| object.get(key).and_then(Value::as_u64);
        let count = |key: &str| number(key).and_then(|number| u32::try_from(number).ok());
        Self {
            model: text("model").unwrap_or_default().to_owned(),
            prompt: text("prompt").unwrap_or_default().to_owned(),
            count: count("n").unwrap_or(1),
            size: text("size").and_then(|size| size.parse().ok()).unwrap_or_default(),
            quality: text("quality").map(str::to_owned),
            format: text("output_format").and_then(|format| format.parse().ok()).unwrap_or_default(),
            compression: number("output_compression").and_then(|level| u8::try_from(level).ok()).unwrap_or(100),
            stream: object.get("stream") == Some(&Value::Bool(true)),
            partials: count("partial_images").unwrap_or(0),
            end_user: forward.get("user").and_then(Value::as_str).map(str::to_owned),
            turn: None,
            received,
            fields: forward,
            material,
            rules: model,
        }
    }

    /// The same request at another size and quality, where the model allows both.
    pub(crate) fn lowered(&self, size: Size, quality: &str) -> Option<Self> {
        if !models::allows(&self.rules, &size.to_string(), quality) {
            return None;
        }
        let mut lowered = self.clone();
        lowered.size = SizeRequest::from(size);
        lowered.quality = Some(quality.to_owned());
        lowered.fields.insert("size".to_owned(), Value::String(size.to_string()));
        lowered.fields.insert("quality".to_owned(), Value::String(quality.to_owned()));
        Some(lowered)
    }

    /// The same request for one image, as a part of it.
    pub(crate) fn alone(&self) -> Self {
        let mut alone = self.clone();
        alone.count = 1;
        alone.fields.remove("n");
        alone
    }

    /// The same request as a part of this turn of an agent.
    pub(crate) fn within(self, turn: Option<String>) -> Self {
        Self { turn, ..self }
    }

    /// The turn of an agent that this is a part of: the same request in another turn is another request.
    pub(crate) fn turn(&self) -> Option<&str> {
        self.turn.as_deref()
    }

    /// The operation of the document.
    pub(crate) const fn operation(&self) -> &'static str {
        if self.material.is_some() { "edit_image" } else { "create_image" }
    }

    /// What its events are called before the dot.
    pub(crate) const fn events(&self) -> &'static str {
        if self.material.is_some() { "image_edit" } else { "image_generation" }
    }

    /// The model id, verbatim.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// The prompt. It goes upstream and into the answer, never into a log or a record.
    pub(crate) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// Images asked for.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Pixels asked for.
    pub(crate) const fn size(&self) -> SizeRequest {
        self.size
    }

    /// Whether it takes one of the few places for large images.
    pub(crate) fn is_large(&self) -> bool {
        self.size.exact().is_some_and(Size::is_large)
    }

    /// The quality as asked for, where it was.
    pub(crate) fn quality(&self) -> Option<&str> {
        self.quality.as_deref()
    }

    /// File format asked for.
    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// 0 to 100; 100 leaves the most of the picture.
    pub(crate) const fn compression(&self) -> u8 {
        self.compression
    }

    /// Whether events were asked for.
    pub(crate) const fn stream(&self) -> bool {
        self.stream
    }

    /// Intermediate images asked for.
    pub(crate) const fn partials(&self) -> u32 {
        self.partials
    }

    /// The caller's own word for whom this is.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// When the request came.
    pub(crate) const fn received(&self) -> DateTime<Utc> {
        self.received
    }

    /// The fields that go upstream.
    pub(crate) const fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// What an edit starts from; a generation starts from nothing.
    pub(crate) const fn material(&self) -> Option<&Material> {
        self.material.as_ref()
    }
}
