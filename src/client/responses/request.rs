//! A task as it goes over the wire: the members that were chosen, in the order in which they were.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::item::ResponseItem;
use super::tool::ResponseTool;
use crate::client::open::{self, Json, Members};

/// A task for a text model.
///
/// What has no method of its own is set by its name; a request that exists as JSON is read with serde, and written again
/// as it was.
///
/// ```
/// use imagate::client::{ImageTool, ResponseRequest};
/// use serde_json::json;
///
/// let request = ResponseRequest::new("gpt-5.5", "Draw a red fox.")
///     .instructions("You draw in water colours.")
///     .tool(ImageTool::new())
///     .tool(json!({"type": "web_search"}))
///     .set("reasoning", json!({"effort": "low"}));
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is sent with `client.responses().create(…)`"]
pub struct ResponseRequest {
    members: Members,
    time_limit: Option<Duration>,
}

/// What the model is to work on: a text, or the items of a conversation, oldest first.
#[derive(Clone, Debug)]
pub struct ResponseInput(Json);

// === impl ResponseRequest ===

impl ResponseRequest {
    /// A task for the text model of this name; an image model only has its place in an [`ImageTool`](super::ImageTool).
    pub fn new(model: impl Into<String>, input: impl Into<ResponseInput>) -> Self {
        let empty = Self { members: Members::default(), time_limit: None };
        empty.set("model", model.into().as_str()).set("input", input.into().0)
    }

    /// A system message that stands before the input.
    pub fn instructions(self, text: impl Into<String>) -> Self {
        self.set("instructions", text.into().as_str())
    }

    /// One more tool that the model may use.
    pub fn tool(self, tool: impl Into<ResponseTool>) -> Self {
        let mut tools = self.members.get("tools").map(Json::elements).unwrap_or_default();
        tools.push(tool.into().into());
        let tools = open::list(tools.iter());
        self.set("tools", tools)
    }

    /// Makes the model draw, whatever it would rather do.
    pub fn draw(self) -> Self {
        self.set("tool_choice", json!({"type": "image_generation"}))
    }

    /// Continues an earlier response that the service has kept.
    pub fn previous_response(self, id: impl Into<String>) -> Self {
        self.set("previous_response_id", id.into().as_str())
    }

    /// An identifier of your end user; it is kept with the usage record.
    pub fn user(self, user: impl Into<String>) -> Self {
        self.set("user", user.into().as_str())
    }

    /// Any member, known or not, in the place of one of the same name. A number whose spelling matters comes from
    /// [`Json::parse`].
    pub fn set(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.members.set(name, value.into());
        self
    }

    /// How long each attempt may take instead of 300 seconds.
    ///
    /// Without a stream that is the whole answer; with one it is how long the service may take to begin, and how long it
    /// may then say nothing at all.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    pub(super) const fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// As it is sent. How the answer is to come is said by the call that is made.
    pub(super) fn body(mut self, stream: bool) -> String {
        if stream || self.members.get("stream").is_some() {
            self.members.set("stream", stream.into());
        }
        self.members.text()
    }
}

impl From<&Self> for ResponseRequest {
    fn from(request: &Self) -> Self {
        request.clone()
    }
}

impl Serialize for ResponseRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.members.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResponseRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Members::of(&Json::deserialize(deserializer)?);
        let members = members.ok_or_else(|| D::Error::custom("a request is a JSON object"))?;
        Ok(Self { members, time_limit: None })
    }
}

// === impl ResponseInput ===

impl From<&str> for ResponseInput {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for ResponseInput {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl<T: Into<ResponseItem>> From<Vec<T>> for ResponseInput {
    fn from(items: Vec<T>) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Into<ResponseItem>, const COUNT: usize> From<[T; COUNT]> for ResponseInput {
    fn from(items: [T; COUNT]) -> Self {
        items.into_iter().collect()
    }
}

impl<T: Into<ResponseItem>> FromIterator<T> for ResponseInput {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let items: Vec<ResponseItem> = items.into_iter().map(Into::into).collect();
        Self(open::list(items.iter().map(ResponseItem::json)))
    }
}
