//! A task as it is sent: the members that were set, in the order in which they were set.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::item::ResponseItem;
use super::tool::ResponseTool;
use crate::client::raw_json::{self, Json, JsonRequestBody, RawJsonObject};
use crate::client::request::HeaderOptions;
use crate::client::session::{CallOptions, TimeLimit};
use crate::client::{Error, Retry};
use crate::wire::types;

/// A task for a text model.
///
/// Members without a method of their own are set by name; a request that exists as JSON is read with serde, and written
/// again unchanged.
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
    members: RawJsonObject,
    time_limit: Option<Duration>,
    retry: Option<Retry>,
    deadline: Option<Duration>,
    header_options: HeaderOptions,
}

/// The input of the model: a text, or the items of a conversation, oldest first.
#[derive(Clone, Debug)]
pub struct ResponseInput(Json);

// === impl ResponseRequest ===

impl ResponseRequest {
    fn with_members(members: RawJsonObject) -> Self {
        Self { members, time_limit: None, retry: None, deadline: None, header_options: HeaderOptions::default() }
    }

    /// Creates a task for the text model with this name; an image model belongs in an [`ImageTool`](super::ImageTool).
    pub fn new(model: impl Into<String>, input: impl Into<ResponseInput>) -> Self {
        let empty = Self::with_members(RawJsonObject::default());
        empty.set("model", model.into().as_str()).set("input", input.into().0)
    }

    /// Sets a system message that comes before the input.
    pub fn instructions(self, text: impl Into<String>) -> Self {
        self.set("instructions", text.into().as_str())
    }

    /// Adds a tool that the model may use.
    pub fn tool(self, tool: impl Into<ResponseTool>) -> Self {
        let mut tools = self.members.get("tools").map(Json::elements).unwrap_or_default();
        tools.push(tool.into().into());
        let tools = raw_json::json_list(tools.iter());
        self.set("tools", tools)
    }

    /// Forces the model to call the image tool.
    pub fn draw(self) -> Self {
        self.set("tool_choice", json!({"type": "image_generation"}))
    }

    /// Continues an earlier response that the service has stored.
    pub fn previous_response(self, id: impl Into<String>) -> Self {
        self.set("previous_response_id", id.into().as_str())
    }

    /// Sets an identifier of your end user; it is kept with the usage record.
    pub fn user(self, user: impl Into<String>) -> Self {
        self.set("user", user.into().as_str())
    }

    /// Sets any member, known or not, and replaces one of the same name. If the spelling of a number matters, create
    /// the value with [`Json::parse`].
    pub fn set(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.members.set(name, value.into());
        self
    }

    /// Sets the time limit of each attempt, instead of 300 seconds.
    ///
    /// Without a stream the limit applies to the whole answer; with a stream it applies to the time until the service
    /// begins to answer, and to each pause after that.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Sets the limit of the whole call, as [`GenerateRequest::deadline`](crate::client::GenerateRequest::deadline) does.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Adds a header to this request only, as
    /// [`GenerateRequest::header`](crate::client::GenerateRequest::header) does.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.header_options.extra.push(name.into(), value.into());
        self
    }

    /// Sets the policy of retries, instead of that of the client.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Names this request, as [`GenerateRequest::idempotency_key`](crate::client::GenerateRequest::idempotency_key)
    /// does.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.header_options.set_idempotency_key(key.into());
        self
    }

    /// Returns the settings of a call with this limit.
    pub(super) fn call_options(&self, limit: TimeLimit) -> Result<CallOptions, Error> {
        let headers = self.header_options.headers()?;
        Ok(CallOptions { limit, deadline: self.deadline, headers, retry: self.retry })
    }

    pub(super) const fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    /// Returns the body as it is sent. `stream` says whether the answer shall be a stream; it replaces a member `stream`
    /// of the request. Without such a member, `false` is left out.
    pub(super) fn into_body(mut self, stream: bool) -> JsonRequestBody<types::ResponseRequest> {
        if stream || self.members.get("stream").is_some() {
            self.members.set("stream", stream.into());
        }
        self.members.into_body()
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
        let members = RawJsonObject::from_json(&Json::deserialize(deserializer)?);
        let members = members.ok_or_else(|| D::Error::custom("a request is a JSON object"))?;
        Ok(Self::with_members(members))
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
        Self(raw_json::json_list(items.iter().map(ResponseItem::json)))
    }
}
