//! What is learnt of a response while it passes: the small things that the record and the caller's headers are made of.

use serde_json::{Map, Value, json};

use crate::error::one_line;
use crate::gateway::relay::fill::{self, Usage};
use crate::gateway::relay::item::Item;
use crate::gateway::relay::rewrite::{DeliveredImage, Summary};
use crate::gateway::relay::scan::{Reader, Want};
use crate::gateway::upstream::is_refusal;
use crate::image::Facts;

/// So many image calls are watched at once; of more only the heartbeat suffers.
const CALLS_MAX: usize = 64;
/// So many images are recorded one by one.
const IMAGES_MAX: usize = 256;

/// An id longer than this is not recorded.
const ID_MAX: usize = 256;

/// The conversation is too long for the model.
const OVERFLOW: &str = "context_length_exceeded";

/// What has been learnt so far.
#[derive(Debug)]
pub(super) struct Notes {
    told: Told,
    /// The response comes in events, which repeat its images at the end.
    events: bool,
    /// Members of the current event; of a plain response nothing.
    event: Map<String, Value>,
    /// Members of the response itself.
    response: Map<String, Value>,
    /// Members of the tool that is being read.
    tool: Map<String, Value>,
    /// The model of the image tool.
    image_model: Option<String>,
    image: Item,
    delivered: Vec<DeliveredImage>,
    /// The item of the last image is not complete, and may still name its quality.
    in_item: bool,
    /// Images that have begun, partial ones too.
    begun: bool,
    /// The image calls at work: the place and the id of each.
    calls: Vec<(Value, Value)>,
    /// The number that the next event of ours has.
    next: u64,
    failure: Option<Map<String, Value>>,
}

/// What is known of a response before any of it has come.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// The model, verbatim.
    pub(crate) model: String,
    /// Whether the caller wants events.
    pub(crate) stream: bool,
    /// Unix seconds now.
    pub(crate) now: i64,
}

/// What an event means for the answer as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing has been done yet.
    Preface,
    /// Part of the answer.
    Work,
    /// The answer is complete.
    End,
    /// The upstream says that it failed.
    Failure,
    /// It has not said what it is.
    Unknown,
}

// === impl Notes ===

impl Notes {
    pub(super) fn new(told: Told) -> Self {
        Self {
            told,
            events: false,
            event: Map::new(),
            response: Map::new(),
            tool: Map::new(),
            image_model: None,
            image: Item::default(),
            delivered: Vec::new(),
            in_item: false,
            begun: false,
            calls: Vec::new(),
            next: 0,
            failure: None,
        }
    }

    /// Whether the caller wants events.
    pub(super) const fn stream(&self) -> bool {
        self.told.stream
    }

    /// The response comes in events.
    pub(super) const fn expect_events(&mut self) {
        self.events = true;
    }

    /// What the current event is, as far as has been read.
    pub(super) fn meaning(&self) -> Meaning {
        match self.event.get("type").and_then(Value::as_str) {
            None if self.event.get("error").is_some_and(Value::is_object) => Meaning::Failure,
            None => Meaning::Unknown,
            Some("response.created" | "response.in_progress" | "response.queued" | "keepalive") => Meaning::Preface,
            Some("response.completed" | "response.incomplete" | "response.cancelled") => Meaning::End,
            Some("response.failed" | "error") => Meaning::Failure,
            Some(_) => Meaning::Work,
        }
    }

    /// The current event is over.
    pub(super) fn end_event(&mut self) -> Meaning {
        let meaning = self.meaning();
        let event = std::mem::take(&mut self.event);
        self.end_item(fill::quality(&event, "item.quality"));
        if let Some(number) = event.get("sequence_number").and_then(Value::as_u64) {
            self.next = self.next.max(number.saturating_add(1));
        }
        if meaning == Meaning::Failure {
            let stated = event.get("error").or_else(|| self.response.get("error")).and_then(Value::as_object);
            // Some say it in the event itself.
            self.failure = Some(stated.cloned().unwrap_or(event));
            return meaning;
        }
        let is_call = event.get("item.type").and_then(Value::as_str) == Some("image_generation_call");
        let place = event.get("output_index").filter(|_| is_call);
        match (event.get("type").and_then(Value::as_str), place, event.get("item.id")) {
            (Some("response.output_item.added"), Some(place), Some(id)) if self.calls.len() < CALLS_MAX => {
                self.calls.push((place.clone(), id.clone()));
            }
            (Some("response.output_item.done"), Some(place), _) => self.calls.retain(|(other, _)| other != place),
            _ => {}
        }
        meaning
    }

    /// A plain response is whole: whether it says that it failed.
    pub(super) fn end_response(&mut self) -> bool {
        let error = self.response.get("error").and_then(Value::as_object).cloned();
        let failed = self.response.get("status").and_then(Value::as_str) == Some("failed");
        if failed || error.is_some() {
            self.failure = Some(error.unwrap_or_default());
        }
        self.failure.is_some()
    }

    /// Whether an image has begun, a partial one perhaps.
    pub(super) const fn has_image(&self) -> bool {
        self.begun
    }

    /// What the first image is, and whether more bytes could still tell.
    pub(super) fn first(&self) -> (Option<Facts>, bool) {
        match self.delivered.first() {
            Some(image) => (image.facts, false),
            None => (self.image.facts, self.image.may_still_tell()),
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let id = self.response.get("id").and_then(Value::as_str).filter(|id| id.len() <= ID_MAX);
        Summary {
            delivered: self.delivered.clone(),
            usage: self.usage(),
            image_model: self.image_model.clone(),
            host_model: fill::name(&self.response, "model").map(str::to_owned),
            response_id: id.map(str::to_owned),
        }
    }

    /// An item is complete: of an image it has said the quality, if it says it at all.
    fn end_item(&mut self, quality: Option<&str>) {
        if std::mem::take(&mut self.in_item)
            && let Some(image) = self.delivered.last_mut()
        {
            image.quality = quality.map(str::to_owned);
        }
    }

    /// The tokens that were charged so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        fill::of_response(&self.response)
    }

    /// What the upstream says instead of an answer, in the words by which failures are judged.
    pub(super) fn failure(&self) -> Option<Map<String, Value>> {
        let failure = self.failure.clone()?;
        let mut members = Map::from_iter([("error".to_owned(), Value::Object(failure))]);
        for name in ["usage", "tool_usage"] {
            members.extend(self.response.get(name).map(|usage| (name.to_owned(), usage.clone())));
        }
        Some(members)
    }

    /// The event that shows that an image is still being made, where one is.
    pub(super) fn still_generating(&mut self) -> Option<String> {
        let (place, id) = self.calls.last()?;
        let kind = "response.image_generation_call.generating";
        let event = json!({"type": kind, "sequence_number": self.next, "output_index": place, "item_id": id});
        self.next += 1;
        Some(format!("event: {kind}\ndata: {}\n\n", one_line(event.to_string())))
    }

    /// The data of the event that every client takes for an error: `error` with its place in the stream.
    pub(super) fn error_event(&mut self, error: &str) -> String {
        let number = self.next;
        self.next += 1;
        match error.strip_prefix(r#"{"type":"error","#) {
            Some(rest) => format!(r#"{{"type":"error","sequence_number":{number},{rest}"#),
            None => error.to_owned(),
        }
    }

    /// The data of the event that ends a response: the only one that agents look at.
    pub(super) fn failed_event(&mut self, error: &str) -> String {
        let message =
            serde_json::from_str::<Value>(error).ok().and_then(|mut error| error.get_mut("message").map(Value::take));
        let known = |name: &str, otherwise: Value| self.response.get(name).cloned().unwrap_or(otherwise);
        let response = json!({
            "id": known("id", "resp_0".into()), "object": "response", "created_at": known("created_at", self.told.now.into()),
            "status": "failed", "error": {"code": self.failure_code(), "message": message},
            "incomplete_details": null, "instructions": null, "metadata": {}, "model": self.told.model,
            "output": [], "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [],
            "top_p": null, "usage": null,
        });
        let number = self.next;
        self.next += 1;
        one_line(json!({"type": "response.failed", "sequence_number": number, "response": response}).to_string())
    }

    /// The upstream says what only the agent can mend, and it knows the word for it: it shortens the conversation.
    pub(super) fn is_for_the_agent(&self) -> bool {
        self.failure_code() == OVERFLOW
    }

    /// The word by which an agent decides what to do. Of the upstream's own words only those go on that say nothing of its
    /// account.
    fn failure_code(&self) -> &'static str {
        let word = |key: &str| self.failure.as_ref().and_then(|failure| failure.get(key)).and_then(Value::as_str);
        let said = word("code").or_else(|| word("type")).unwrap_or_default();
        match said {
            OVERFLOW => OVERFLOW,
            "server_is_overloaded" => "server_is_overloaded",
            "rate_limit_exceeded" | "rate_limit_error" => "rate_limit_exceeded",
            // Agents stop at this word; at any other they would send refused content again.
            _ if self.failure.as_ref().is_some_and(is_refusal) => "invalid_prompt",
            _ => "server_error",
        }
    }
}

impl Reader for Notes {
    fn wants(&self, path: &str) -> Want {
        match path {
            "type"
            | "sequence_number"
            | "output_index"
            | "error"
            | "code"
            | "message"
            | "param"
            | "item.type"
            | "item.id"
            | "item.quality"
            | "response.id"
            | "response.created_at"
            | "response.status"
            | "response.error"
            | "response.model"
            | "response.output[].quality"
            | "response.tools[].model"
            | "response.tools[].type"
            | "response.usage"
            | "response.tool_usage" => Want::Value,
            "item.result" | "partial_image_b64" | "response.output[].result" => Want::Image,
            _ => Want::Nothing,
        }
    }

    fn value(&mut self, path: &str, value: Value) {
        if let Some(name) = path.strip_prefix("response.tools[].") {
            self.tool.insert(name.to_owned(), value);
        } else if let Some(name) = path.strip_prefix("response.") {
            self.response.insert(name.to_owned(), value);
        } else {
            self.event.insert(path.to_owned(), value);
        }
    }

    fn image(&mut self, path: &str, base64: &[u8]) {
        if self.events && path == "response.output[].result" {
            return;
        }
        self.begun = true;
        if !self.image.begun {
            self.image = Item::default();
            self.image.begun = true;
        }
        self.image.look(base64);
    }

    fn image_end(&mut self, path: &str) {
        if !self.image.begun {
            return;
        }
        let mut image = std::mem::take(&mut self.image);
        image.end();
        if path != "partial_image_b64" && self.delivered.len() < IMAGES_MAX {
            self.delivered.push(DeliveredImage { facts: image.facts, quality: None });
            self.in_item = true;
        }
    }

    fn close(&mut self, path: &str) {
        match path {
            "response.tools[]" => {
                let tool = std::mem::take(&mut self.tool);
                if tool.get("type").and_then(Value::as_str) == Some("image_generation") {
                    self.image_model = fill::name(&tool, "model").map(str::to_owned);
                }
            }
            "response.output[]" => {
                let quality = self.response.remove("output[].quality");
                let item = Map::from_iter(quality.map(|quality| ("quality".to_owned(), quality)));
                self.end_item(fill::quality(&item, "quality"));
            }
            _ => {}
        }
    }
}
