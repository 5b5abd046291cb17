//! Reads, from a response that is passed on, the values for its record and for the events that the gateway adds.

use serde_json::{Map, Value, json};

use crate::gateway::relay::answer_charges::{CHARGE_MEMBERS, ToolCallCounter};
use crate::gateway::relay::answer_members;
use crate::gateway::relay::answer_usage::{self, AnswerUsage};
use crate::gateway::relay::decoder::CIPHERTEXT;
use crate::gateway::relay::event::{AnswerSummary, DeliveredImage, ImagePlace, MemberScope, RelayEvent};
use crate::gateway::relay::image_item::ImageProbe;
use crate::gateway::store::BindingDigest;
use crate::gateway::upstream::is_fault_of_request;
use crate::image::ImageProperties;
use crate::stream::json::ValueInterest;
use crate::wire::escape_line_ends;

/// The most image calls that are tracked at once (our choice). For further calls, no progress events are sent.
const CALLS_MAX: usize = 64;
/// The most images that are recorded (our choice).
const IMAGES_MAX: usize = 256;

/// The most bytes of an id that is recorded (our choice).
const ID_MAX: usize = 256;
/// The most ids and encrypted contents of one response that are recorded (our choice).
const BINDINGS_MAX: usize = 256;

/// The error code for a conversation that is too long for the model.
const CONTEXT_TOO_LONG: &str = "context_length_exceeded";

/// The values that have been observed so far.
#[derive(Debug, Default)]
pub(super) struct ResponseObserver {
    requested: RequestedResponse,
    /// Members of the current event; empty for a plain response.
    event: Map<String, Value>,
    /// Members of the item that is being read.
    item: Map<String, Value>,
    /// Members of the tool that is being read.
    tool: Map<String, Value>,
    /// Members of the response itself.
    response: Map<String, Value>,
    /// The model of the image tool.
    image_model: Option<String>,
    /// The image that is being read.
    image: Option<ImageProbe>,
    begun_image_length: Option<usize>,
    delivered: Vec<DeliveredImage>,
    /// True if the item of the last image is not complete, and may still name its quality.
    is_item_open: bool,
    /// True if an image has begun, even an intermediate image.
    has_image: bool,
    /// The image calls in progress: the output index and the id of each.
    image_calls: Vec<(Value, Value)>,
    /// The ids and encrypted contents that were passed on, which belong to the account.
    bindings: Vec<BindingDigest>,
    /// The sequence number of the next event that the gateway adds.
    next_sequence_number: u64,
    failure: Option<Map<String, Value>>,
    tool_calls: ToolCallCounter,
}

/// The parts of the request that the relay needs, and the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestedResponse {
    /// The model, exactly as requested.
    pub(crate) model: String,
    /// True if the caller wants events.
    pub(crate) stream: bool,
    /// The current time in Unix seconds.
    pub(crate) now: i64,
}

/// The kind of an event, by what it shows about the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseEventKind {
    /// The model has not begun to work.
    Preface,
    /// The model works: output, or progress of it.
    Work,
    /// The answer is complete.
    End,
    /// The upstream states that it failed.
    Failure,
    /// The event has not stated its type.
    Unknown,
}

// === impl ResponseObserver ===

impl ResponseObserver {
    pub(super) fn new(requested: RequestedResponse) -> Self {
        Self { requested, ..Self::default() }
    }

    /// True if the caller wants events.
    pub(super) const fn is_streaming(&self) -> bool {
        self.requested.stream
    }

    /// Returns the part of a member that is wanted.
    pub(super) fn interest(scope: MemberScope, name: &str) -> ValueInterest {
        let names: &[&str] = match scope {
            MemberScope::Event => &["type", "sequence_number", "output_index", "error", "code", "message", "param"],
            MemberScope::Item => &["type", "id", "quality", CIPHERTEXT, "container_id"],
            MemberScope::Tool => &["type", "model"],
            MemberScope::Answer => &[
                "id",
                "created_at",
                "status",
                "error",
                "model",
                "usage",
                "tool_usage",
                "service_tier",
                "svg_usage",
                "conversation",
            ],
        };
        if names.contains(&name) { ValueInterest::Value } else { ValueInterest::Skip }
    }

    /// Takes the next step of the response, except for the ends of its events.
    pub(super) fn push(&mut self, event: RelayEvent<'_>) {
        match event {
            RelayEvent::Member { scope, name, value } => {
                let members = match scope {
                    MemberScope::Event => &mut self.event,
                    MemberScope::Item => &mut self.item,
                    MemberScope::Tool => &mut self.tool,
                    MemberScope::Answer => &mut self.response,
                };
                members.insert(name.to_owned(), value);
            }
            RelayEvent::ImageBytes { place: ImagePlace::Item | ImagePlace::Partial, base64 } => {
                self.has_image = true;
                self.image.get_or_insert_default().add(&base64);
                self.count_image(&base64);
            }
            RelayEvent::ImageEnded { place } => self.end_image(place),
            RelayEvent::Ended { scope: MemberScope::Tool } => {
                let tool = std::mem::take(&mut self.tool);
                if tool.get("type").and_then(Value::as_str) == Some("image_generation") {
                    self.image_model = answer_members::model_name(&tool).map(str::to_owned);
                }
            }
            RelayEvent::Ended { .. } => {
                let item = self.end_item();
                self.tool_calls.add_list_item(&item);
            }
            RelayEvent::MemberDropped { scope: MemberScope::Answer, name } => self.tool_calls.note_unread_member(name),
            RelayEvent::ImageBytes { place: ImagePlace::Repeated, base64 } => self.count_image(&base64),
            RelayEvent::ItemBegun { .. }
            | RelayEvent::ElementBegun
            | RelayEvent::UnfinishedStatus { .. }
            | RelayEvent::PaddingAbsent { .. }
            | RelayEvent::MemberDropped { .. }
            | RelayEvent::FrameEnded { .. }
            | RelayEvent::AnswerEnded => {}
        }
    }

    /// The number of characters of the image that has begun and has not ended, wherever it is.
    pub(super) const fn begun_image_length(&self) -> Option<usize> {
        self.begun_image_length
    }

    fn count_image(&mut self, base64: &[u8]) {
        *self.begun_image_length.get_or_insert_default() += base64.len();
    }

    fn end_image(&mut self, place: ImagePlace) {
        self.begun_image_length = None;
        let Some(mut image) = self.image.take() else { return };
        image.finish();
        if place == ImagePlace::Item && self.delivered.len() < IMAGES_MAX {
            self.delivered.push(DeliveredImage { properties: image.properties, quality: None });
            self.is_item_open = true;
        }
    }

    /// Ends an item, and returns its members. If the item has an image, its quality is that of the item.
    fn end_item(&mut self) -> Map<String, Value> {
        let item = std::mem::take(&mut self.item);
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        let ids = ["id", "container_id"].into_iter().filter_map(text).filter_map(id_digest);
        ids.chain(text(CIPHERTEXT).map(BindingDigest::of_ciphertext)).for_each(|digest| self.bind(digest));
        if std::mem::take(&mut self.is_item_open)
            && let Some(image) = self.delivered.last_mut()
        {
            image.quality = answer_members::quality(&item).map(str::to_owned);
        }
        item
    }

    /// Notes an id or an encrypted content. The end of a stream repeats its items.
    fn bind(&mut self, digest: BindingDigest) {
        if self.bindings.len() < BINDINGS_MAX && !self.bindings.contains(&digest) {
            self.bindings.push(digest);
        }
    }

    /// Returns the kind of the current event, as far as it has been read.
    pub(super) fn event_kind(&self) -> ResponseEventKind {
        match self.event.get("type").and_then(Value::as_str) {
            None if self.event.get("error").is_some_and(Value::is_object) => ResponseEventKind::Failure,
            None => ResponseEventKind::Unknown,
            Some("response.created" | "response.in_progress" | "response.queued" | "keepalive") => {
                ResponseEventKind::Preface
            }
            Some("response.completed" | "response.incomplete" | "response.cancelled") => ResponseEventKind::End,
            Some("response.failed" | "error") => ResponseEventKind::Failure,
            Some(_) => ResponseEventKind::Work,
        }
    }

    /// Ends the current event.
    pub(super) fn end_event(&mut self) -> ResponseEventKind {
        let kind = self.event_kind();
        let event = std::mem::take(&mut self.event);
        let item = self.end_item();
        self.tool_calls.end_event();
        if event.get("type").and_then(Value::as_str) == Some("response.output_item.done") {
            self.tool_calls.add_event_item(&item);
        }
        if let Some(number) = event.get("sequence_number").and_then(Value::as_u64) {
            self.next_sequence_number = self.next_sequence_number.max(number.saturating_add(1));
        }
        if kind == ResponseEventKind::Failure {
            let stated_error = event.get("error").or_else(|| self.response.get("error")).and_then(Value::as_object);
            // Some upstreams state the error in the members of the event itself.
            self.failure = Some(stated_error.cloned().unwrap_or(event));
            return kind;
        }
        let is_call = item.get("type").and_then(Value::as_str) == Some("image_generation_call");
        let output_index = event.get("output_index").filter(|_| is_call);
        match (event.get("type").and_then(Value::as_str), output_index, item.get("id")) {
            (Some("response.output_item.added"), Some(index), Some(id)) if self.image_calls.len() < CALLS_MAX => {
                self.image_calls.push((index.clone(), id.clone()));
            }
            (Some("response.output_item.done"), Some(index), _) => self.image_calls.retain(|(open, _)| open != index),
            _ => {}
        }
        kind
    }

    /// Ends a plain response. Returns true if it states that it failed.
    pub(super) fn end_response(&mut self) -> bool {
        let error = self.response.get("error").and_then(Value::as_object).cloned();
        let has_failed = self.response.get("status").and_then(Value::as_str) == Some("failed");
        if has_failed || error.is_some() {
            self.failure = Some(error.unwrap_or_default());
        }
        self.failure.is_some()
    }

    /// True if an image has begun, even an intermediate image.
    pub(super) const fn has_image(&self) -> bool {
        self.has_image
    }

    /// Returns the properties of the first image, and true if more bytes may still state them.
    pub(super) fn first_image(&self) -> (Option<ImageProperties>, bool) {
        match self.delivered.first() {
            Some(image) => (image.properties, false),
            None => self.image.as_ref().map_or((None, false), |image| (image.properties, image.may_find_properties())),
        }
    }

    pub(super) fn summary(&self) -> AnswerSummary {
        let conversation = self.response.get("conversation");
        let conversation = conversation.and_then(|named| named.get("id").unwrap_or(named).as_str());
        let id = self.response.get("id").and_then(Value::as_str);
        let ids = [id, conversation].into_iter().flatten().filter_map(id_digest);
        AnswerSummary {
            delivered: self.delivered.clone(),
            usage: self.usage(),
            image_model: self.image_model.clone(),
            host_model: answer_members::model_name(&self.response).map(str::to_owned),
            bindings: ids.chain(self.bindings.iter().cloned()).collect(),
            ..AnswerSummary::default()
        }
    }

    /// Returns the token counts, as far as the upstream has reported them.
    pub(super) fn usage(&self) -> Option<AnswerUsage> {
        answer_usage::usage_from_response(&self.response, &self.tool_calls)
    }

    /// Returns the members that the upstream sent instead of an answer, in the form that the failure classification
    /// reads.
    pub(super) fn failure(&self) -> Option<Map<String, Value>> {
        let failure = self.failure.clone()?;
        let mut members = Map::from_iter([("error".to_owned(), Value::Object(failure))]);
        for name in CHARGE_MEMBERS {
            members.extend(self.response.get(name).map(|usage| (name.to_owned(), usage.clone())));
        }
        Some(members)
    }

    /// Returns the event that reports an image in progress, if there is one.
    pub(super) fn generating_event(&mut self) -> Option<String> {
        let (output_index, id) = self.image_calls.last()?;
        let kind = "response.image_generation_call.generating";
        let event = json!({"type": kind, "sequence_number": self.next_sequence_number, "output_index": output_index, "item_id": id});
        self.next_sequence_number += 1;
        Some(format!("event: {kind}\ndata: {}\n\n", escape_line_ends(event.to_string())))
    }

    /// Returns the data of the event `error`: the error with its sequence number.
    pub(super) fn error_event(&mut self, error: &str) -> String {
        let number = self.next_sequence_number;
        self.next_sequence_number += 1;
        match error.strip_prefix(r#"{"type":"error","#) {
            Some(members) => format!(r#"{{"type":"error","sequence_number":{number},{members}"#),
            None => error.to_owned(),
        }
    }

    /// Returns the data of the event `response.failed`, the only failure event that agents read.
    pub(super) fn failed_event(&mut self, error: &str) -> String {
        let message =
            serde_json::from_str::<Value>(error).ok().and_then(|mut error| error.get_mut("message").map(Value::take));
        let member_or = |name: &str, default: Value| self.response.get(name).cloned().unwrap_or(default);
        let response = json!({
            "id": member_or("id", "resp_0".into()), "object": "response",
            "created_at": member_or("created_at", self.requested.now.into()),
            "status": "failed", "error": {"code": self.failure_code(), "message": message},
            "incomplete_details": null, "instructions": null, "metadata": {}, "model": self.requested.model,
            "output": [], "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [],
            "top_p": null, "usage": null,
        });
        let number = self.next_sequence_number;
        self.next_sequence_number += 1;
        escape_line_ends(
            json!({"type": "response.failed", "sequence_number": number, "response": response}).to_string(),
        )
    }

    /// True if the agent can resolve the failure, because it knows the code: it shortens the conversation.
    pub(super) fn is_agent_recoverable(&self) -> bool {
        self.failure_code() == CONTEXT_TOO_LONG
    }

    /// Returns the code by which an agent decides how to continue. The upstream's own code is passed on only if
    /// agents act on it.
    fn failure_code(&self) -> &'static str {
        let text = |key: &str| self.failure.as_ref().and_then(|failure| failure.get(key)).and_then(Value::as_str);
        let code = text("code").or_else(|| text("type")).unwrap_or_default();
        match code {
            CONTEXT_TOO_LONG => CONTEXT_TOO_LONG,
            "server_is_overloaded" => "server_is_overloaded",
            "rate_limit_exceeded" | "rate_limit_error" => "rate_limit_exceeded",
            // Agents stop at this code. After any other code they would send the same request again.
            _ if self.failure.as_ref().is_some_and(is_fault_of_request) => "invalid_prompt",
            _ => "server_error",
        }
    }
}

/// Returns the digest of an id; `None` for a text that is no id.
fn id_digest(id: &str) -> Option<BindingDigest> {
    (!id.is_empty() && id.len() <= ID_MAX).then(|| BindingDigest::of_id(id))
}
