//! The ticket: a request that passed every rule.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::image::{Format, SizeRequest};
use crate::wire::types::ImageGenerationRequest;

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
    end_user: Option<String>,
    received: DateTime<Utc>,
    forward: Bytes,
}

// === impl Job ===

impl Job {
    pub(super) fn new(request: ImageGenerationRequest, forward: Map<String, Value>, received: DateTime<Utc>) -> Self {
        let text = |key: &str| forward.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            model: request.model.to_string(),
            prompt: request.prompt.to_string(),
            count: request.n.map_or(1, |n| u32::try_from(n.get()).unwrap_or(1)),
            size: request.size.unwrap_or_default(),
            quality: text("quality"),
            format: text("output_format").and_then(|format| format.parse().ok()).unwrap_or_default(),
            compression: request.output_compression.map_or(100, |level| u8::try_from(level.get()).unwrap_or(100)),
            stream: request.stream.unwrap_or(false),
            end_user: text("user"),
            received,
            forward: Bytes::from(Value::Object(forward).to_string()),
        }
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
        self.size.exact().is_some_and(crate::image::Size::is_large)
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

    /// The caller's own word for whom this is.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.end_user.as_deref()
    }

    /// When the request came.
    pub(crate) const fn received(&self) -> DateTime<Utc> {
        self.received
    }

    /// The body that goes upstream.
    pub(crate) const fn forward(&self) -> &Bytes {
        &self.forward
    }
}
