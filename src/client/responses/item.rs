//! The items of a conversation: its input and its output.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::image::ResponseImage;
use crate::client::raw_json::Json;

/// An item of the input, of any kind.
///
/// ```
/// use imagate::client::{ResponseItem, ResponseRequest};
/// use serde_json::json;
///
/// let items = vec![
///     ResponseItem::user("Draw a red fox."),
///     json!({"type": "item_reference", "id": "ig_0123"}).into(),
///     ResponseItem::user("And now at night."),
/// ];
/// let request = ResponseRequest::new("gpt-5.5", items);
/// ```
#[derive(Clone, Debug)]
pub struct ResponseItem(Json);

/// An item of the output. It can be passed as an item of the next request's input, unchanged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OutputItem {
    /// A call of the image tool.
    Image(ImageCall),
    /// A message of the model.
    Message(Message),
    /// Any other item.
    Other(Json),
}

/// A call of the image tool.
#[derive(Clone, Debug)]
pub struct ImageCall {
    json: Json,
    id: Option<String>,
    status: Option<String>,
    image: Option<ResponseImage>,
}

/// A text of the model.
#[derive(Clone, Debug)]
pub struct Message {
    json: Json,
    text: String,
}

/// A part of a message: a text or a refusal. Parts of other types are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MessagePart {
    text: Option<String>,
    refusal: Option<String>,
}

// === impl ResponseItem ===

impl ResponseItem {
    /// Creates a message of the user.
    #[must_use]
    pub fn user(text: &str) -> Self {
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}).into()
    }

    /// Returns the item as JSON.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.0
    }
}

impl From<Value> for ResponseItem {
    fn from(item: Value) -> Self {
        Self(item.into())
    }
}

impl From<Json> for ResponseItem {
    fn from(item: Json) -> Self {
        Self(item)
    }
}

impl From<OutputItem> for ResponseItem {
    fn from(item: OutputItem) -> Self {
        Self(item.json().clone())
    }
}

impl From<&OutputItem> for ResponseItem {
    fn from(item: &OutputItem) -> Self {
        Self(item.json().clone())
    }
}

// === impl OutputItem ===

impl OutputItem {
    pub(super) fn new(json: Json) -> Self {
        let kind: Option<String> = json.member("type").and_then(|kind| kind.read());
        match kind.as_deref() {
            Some("image_generation_call") => Self::Image(ImageCall::new(json)),
            Some("message") => Self::Message(Message::new(json)),
            _ => Self::Other(json),
        }
    }

    /// Returns the item as it was received.
    #[must_use]
    pub const fn json(&self) -> &Json {
        match self {
            Self::Image(call) => &call.json,
            Self::Message(message) => &message.json,
            Self::Other(json) => json,
        }
    }

    /// Returns the type of the item, such as `image_generation_call`.
    #[must_use]
    pub fn kind(&self) -> Option<String> {
        self.json().member("type")?.read()
    }
}

impl Serialize for OutputItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

// === impl ImageCall ===

impl ImageCall {
    fn new(json: Json) -> Self {
        let [id, status, result] = json.members(["id", "status", "result"]);
        let text = |json: Option<Json>| json.and_then(|json| json.read());
        Self { id: text(id), status: text(status), image: result.and_then(ResponseImage::new), json }
    }

    /// Returns the id of the call.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the state of the call, such as `completed`.
    #[must_use]
    pub fn status(&self) -> Option<&str> {
        self.status.as_deref()
    }

    /// Returns the image, once there is one.
    #[must_use]
    pub const fn image(&self) -> Option<&ResponseImage> {
        self.image.as_ref()
    }

    /// Returns the prompt as the model revised it.
    #[must_use]
    pub fn revised_prompt(&self) -> Option<String> {
        self.json.member("revised_prompt")?.read()
    }

    /// Returns the item as it was received, with the actual size, quality and format of the image, and everything else
    /// that the service reported.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }
}

// === impl Message ===

impl Message {
    fn new(json: Json) -> Self {
        let content = json.member("content").map(|content| content.elements()).unwrap_or_default();
        let parts = content.iter().filter_map(|part| part.read::<MessagePart>());
        let text = parts.filter_map(|part| part.text.or(part.refusal)).collect();
        Self { json, text }
    }

    /// Returns the whole text of the message, refusals included.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the item as it was received.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }
}
