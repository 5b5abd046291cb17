//! A response: its known members, and the whole response as received.

#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::image::ResponseImage;
use super::item::OutputItem;
use crate::client::raw_json::{Json, UnreadableText, lossy_text};
use crate::client::session::Session;
use crate::client::{AnswerMetadata, Error};
use crate::wire::types::{ImageUsage, ResponseToolUsage, ResponseUsage};

const FAILED: &str = "failed";

/// The output of a model. Serialized with serde, the response is exactly as it was received.
#[derive(Clone, Debug)]
pub struct Response {
    json: Json,
    id: String,
    model: String,
    status: Option<String>,
    output: Vec<OutputItem>,
    usage: Option<ResponseUsage>,
    image_usage: Option<ImageUsage>,
    meta: AnswerMetadata,
}

// === impl Response ===

impl Response {
    /// Reads an answer that is not a stream.
    pub(super) fn parse(body: Vec<u8>, session: &Session) -> Result<Self, Error> {
        let not_a_response = Error::unintelligible("the answer is not a response", session.head());
        let text = String::from_utf8(body).unwrap_or_else(|error| lossy_text(error.as_bytes()));
        match Json::read_object(text, ["output", "error"]) {
            Ok((json, [Some(_), _])) => Ok(Self::new(json, session)),
            Ok((json, [None, Some(error)])) if !error.is_null() => Err(Error::from_answer(&json, session)),
            Ok((json, [None, _])) => Err(not_a_response.with_body(json.text().to_owned(), &session.secrets())),
            Err(UnreadableText { error, text }) => {
                Err(not_a_response.with_source(error).with_body(text, &session.secrets()))
            }
        }
    }

    /// Reads the members. A member that is missing or of an unexpected type does not affect the others.
    pub(super) fn new(json: Json, session: &Session) -> Self {
        let names = ["id", "model", "status", "output", "usage", "tool_usage"];
        let [id, model, status, output, usage, tool_usage] = json.members(names);
        let text = |json: Option<Json>| json.and_then(|json| json.read::<String>());
        let output = output.map(|output| output.elements()).unwrap_or_default();
        Self {
            id: text(id).unwrap_or_default(),
            model: text(model).unwrap_or_default(),
            status: text(status),
            output: output.into_iter().map(OutputItem::new).collect(),
            usage: usage.and_then(|usage| usage.read()),
            image_usage: tool_usage.and_then(|usage| usage.read::<ResponseToolUsage>()?.image_gen),
            meta: session.recorded_head().clone(),
            json,
        }
    }

    /// Returns the id of the response; see
    /// [`ResponseRequest::previous_response`](super::ResponseRequest::previous_response).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the name of the text model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the state of the response, such as `completed`, or `incomplete` if it was cut short.
    #[must_use]
    pub fn status(&self) -> Option<&str> {
        self.status.as_deref()
    }

    /// Returns the output of the model, in order.
    #[must_use]
    pub fn output(&self) -> &[OutputItem] {
        &self.output
    }

    /// Returns the images that were made, in order.
    pub fn images(&self) -> impl Iterator<Item = &ResponseImage> {
        self.output.iter().filter_map(|item| match item {
            OutputItem::Image(call) => call.image(),
            OutputItem::Message(_) | OutputItem::Other(_) => None,
        })
    }

    /// Writes every image to a file of its own and returns the paths, like
    /// [`Images::write_all`](crate::client::Images::write_all): several become `fox-1.png`, `fox-2.png` and so on, and
    /// no file is replaced.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written, or if an image is not base64. The other images are written
    /// nevertheless.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn write_images(&self, path: impl AsRef<Path>) -> Result<Vec<PathBuf>, Error> {
        crate::client::save::save_all(self.images().cloned(), path.as_ref()).await
    }

    /// Returns the whole text of the model.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.output.iter().filter_map(|item| match item {
            OutputItem::Message(message) => Some(message.text()),
            OutputItem::Image(_) | OutputItem::Other(_) => None,
        });
        texts.collect()
    }

    /// Returns the tokens of the text, if the service reports them.
    #[must_use]
    pub const fn usage(&self) -> Option<&ResponseUsage> {
        self.usage.as_ref()
    }

    /// Returns the tokens of the images, if the service reports them. They are not part of [`Response::usage`].
    #[must_use]
    pub const fn image_usage(&self) -> Option<&ImageUsage> {
        self.image_usage.as_ref()
    }

    /// Returns the whole response as it was received, with everything that this version does not know.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }

    /// Returns the metadata of the answer: how often the request was sent, and the limits that are left.
    #[must_use]
    pub fn meta(&self) -> &AnswerMetadata {
        &self.meta
    }

    /// Returns the id of the request, which lets the operator of the service find it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.meta.request_id()
    }

    /// Returns true if the built-in simulator of the gateway answered instead of a model.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.meta.is_simulated()
    }

    /// Returns the error of the response in its place, if it failed.
    pub(super) fn or_failure(self, session: &Session) -> Result<Self, Error> {
        self.failure(session).map_or(Ok(self), Err)
    }

    /// Returns the error of the response, if it failed.
    pub(super) fn failure(&self, session: &Session) -> Option<Error> {
        let has_failed = self.status.as_deref() == Some(FAILED);
        has_failed.then(|| Error::from_stream_event(&self.json, session))
    }
}

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}
