//! What has been found in a response so far: its image, what is said of it, and what is said instead of it.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::gateway::relay::fill::{self, Usage};
use crate::gateway::relay::lexer::{Malformed, Sink, check_base64};
use crate::gateway::relay::scan::{KEY_MAX, Reader, Scan, Want};
use crate::gateway::relay::tap::Without;

/// So many items that are no image are kept: one of them says why there is none.
const SAID_MAX: usize = 16;
/// What is read of an item.
const OF_ITEM: [&str; 9] =
    ["background", "content", "error", "output_format", "quality", "revised_prompt", "size", "status", "type"];
/// Members of items that say nothing of an image. Every other member of an item may be one of a later version.
const OF_CALLS: [&str; 12] = [
    "action",
    "arguments",
    "call_id",
    "encrypted_content",
    "id",
    "name",
    "namespace",
    "output",
    "result",
    "role",
    "summary",
    "usage",
];
/// The others are small. So many bytes of them are kept of an item.
const OTHERS_MAX: usize = 64 * 1024;
/// What is read of an event.
const OF_EVENT: [&str; 9] =
    ["background", "code", "error", "message", "output_format", "param", "quality", "size", "type"];
/// What is read of the response itself.
const OF_RESPONSE: [&str; 6] = ["created_at", "error", "incomplete_details", "status", "tool_usage", "usage"];
/// The names of the models in the response: the text model, and that of its only tool.
const HOST_MODEL: &str = "model";
const TOOL_MODEL: &str = "tools[].model";
/// What an answer says of an image.
const OF_IMAGE: [&str; 5] = ["background", "output_format", "quality", "revised_prompt", "size"];

/// The type of an item with an image.
const IMAGE_CALL: &str = "image_generation_call";
/// How the upstream names the fields of its tool.
const TOOL: &str = "tools[0].";
/// Where images stand.
const PARTIAL: &str = "partial_image_b64";
const OF_DONE: &str = "item.result";
const OF_OUTPUT: &str = "response.output[].result";

/// What has been found so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Members of the current event, of the current item, and of the response itself.
    event: Map<String, Value>,
    item: Map<String, Value>,
    response: Map<String, Value>,
    /// Members of the current item that no document has, and how many bytes they are.
    others: Map<String, Value>,
    others_length: usize,
    /// How much has been looked at of the base64 that passes by.
    seen: usize,
    partial: Partial,
    image: Image,
    /// Items that are no image.
    said: Vec<Value>,
    failure: Option<Map<String, Value>>,
    over: bool,
    wrong: Option<Malformed>,
}

/// How far the intermediate images are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Partial {
    #[default]
    None,
    /// The current event holds one.
    Current,
    /// There was one: work was done.
    Past,
}

/// How far the final image is.
#[derive(Debug, Default)]
enum Image {
    #[default]
    None,
    /// Its base64 passes by.
    Passing,
    /// Its base64 is complete, and perhaps its item.
    Whole(Option<Map<String, Value>>),
    /// All that is known of it has been told.
    Told,
}

/// Reads one piece.
struct Reading<'a, S> {
    found: &'a mut Found,
    piece: &'a Bytes,
    sink: &'a mut S,
}

// === impl Found ===

impl Found {
    /// Reads on in a value, of which `part` is the next stretch of the piece. Behind it only white space may stand.
    pub(super) fn read_on(
        &mut self,
        scan: &mut Scan,
        piece: &Bytes,
        part: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), Malformed> {
        let read = scan.push(part, &mut Reading { found: self, piece, sink })?;
        let surplus = part[read..].iter().any(|byte| !byte.is_ascii_whitespace());
        self.wrong.or(surplus.then_some(Malformed::Surplus)).map_or(Ok(()), Err)
    }

    /// Whether the upstream has said its last word.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether an image is on its way. Behind a whole one a model may go on with a text, and thinks meanwhile.
    pub(super) const fn in_image(&self) -> bool {
        matches!(self.partial, Partial::Current) || matches!(self.image, Image::Passing)
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        fill::of_response(&self.response)
    }

    pub(super) fn host_model(&self) -> Option<String> {
        fill::name(&self.response, HOST_MODEL).map(str::to_owned)
    }

    /// The current event is over; its data must be whole.
    pub(super) fn end_event(&mut self, data: &Scan, sink: &mut impl Sink) -> Result<(), Malformed> {
        if !data.is_done() {
            return Err(Malformed::Truncated);
        }
        let event = std::mem::take(&mut self.event);
        if self.partial == Partial::Current {
            self.partial = Partial::Past;
            tell(sink, &event, |name| OF_IMAGE.contains(&name));
            sink.item_end();
        }
        match event.get("type").and_then(Value::as_str) {
            Some("response.output_item.done") => self.end_item(),
            Some("response.completed" | "response.incomplete" | "response.cancelled") => self.end_response(sink),
            Some("response.failed" | "error") => self.fail(event, sink),
            None if event.get("error").is_some_and(Value::is_object) => self.fail(event, sink),
            _ => {}
        }
        self.clear_item();
        Ok(())
    }

    /// The response is whole.
    pub(super) fn end_response(&mut self, sink: &mut impl Sink) {
        if self.response.get("error").is_some_and(Value::is_object) {
            return self.fail(Map::new(), sink);
        }
        self.over = true;
        self.settle(sink);
    }

    /// Nothing more comes: what is known of an image that is whole is told. One that is no base64 is none.
    pub(super) fn settle(&mut self, sink: &mut impl Sink) {
        if self.wrong.is_some() {
            return;
        }
        let Image::Whole(members) = &mut self.image else { return };
        // The item of an image may be cut off behind it.
        let members = members.take().unwrap_or_else(|| whole_item(&mut self.item, &mut self.others));
        self.image = Image::Told;
        tell(sink, &members, |name| OF_IMAGE.contains(&name) || !OF_ITEM.contains(&name));
        let created = self.response.get("created_at").cloned();
        created.into_iter().for_each(|created| sink.item_member("created".to_owned(), created));
        let model = self.response.get(TOOL_MODEL).cloned();
        model.into_iter().for_each(|model| sink.item_member("model".to_owned(), model));
        let usage = fill::shown_of_response(&self.response);
        usage.into_iter().for_each(|usage| sink.item_member("usage".to_owned(), usage));
        sink.item_end();
    }

    /// What a whole answer says instead of an image, in the words by which failures are judged.
    pub(super) fn without_image(&self) -> Option<Without> {
        if !self.over {
            return None;
        }
        let mut members: Map<String, Value> = OF_RESPONSE
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.response.get(*name).filter(|value| !value.is_null())?)))
            .map(|(name, value)| (name, value.clone()))
            .collect();
        members.insert("output".to_owned(), self.said.clone().into());
        if let Some(failure) = &self.failure {
            members.insert("error".to_owned(), Value::Object(failure.clone()));
        }
        let drawn = |item: &Value| item["type"] == IMAGE_CALL && item["status"] == "completed";
        let something = self.partial != Partial::None || self.said.iter().any(drawn);
        Some(Without { members, something, usage: self.usage() })
    }

    /// An item is complete.
    fn end_item(&mut self) {
        match &mut self.image {
            Image::Whole(members @ None) => *members = Some(whole_item(&mut self.item, &mut self.others)),
            Image::None if !self.item.is_empty() && self.said.len() < SAID_MAX => {
                self.said.push(std::mem::take(&mut self.item).into());
            }
            _ => {}
        }
        self.clear_item();
    }

    fn clear_item(&mut self) {
        self.item.clear();
        self.others.clear();
        self.others_length = 0;
    }

    /// True if this member of an item is kept, which no document has: only of the image that counts.
    fn wants_other(&self, member: &str) -> bool {
        let is_open = matches!(self.image, Image::None | Image::Passing | Image::Whole(None));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        is_open && member.len() < KEY_MAX && member.bytes().all(is_name) && !OF_CALLS.contains(&member)
    }

    fn keep_other(&mut self, member: &str, value: Value) {
        let length = member.len() + value.to_string().len();
        if self.others_length + length <= OTHERS_MAX {
            self.others_length += length;
            self.others.insert(member.to_owned(), value);
        }
    }

    /// The upstream says that it failed. It cannot take an image back that is there.
    fn fail(&mut self, mut event: Map<String, Value>, sink: &mut impl Sink) {
        self.over = true;
        let stated = [event.get("error"), self.response.get("error")].into_iter().flatten().find_map(Value::as_object);
        let mut failure = stated.cloned().unwrap_or_else(|| std::mem::take(&mut event));
        // What it says of the tool is said of the caller's field; the model of the call is between us and the upstream.
        let param = failure.remove("param");
        let param = param.as_ref().and_then(Value::as_str).filter(|param| *param != "model");
        let param = param.map(|param| param.strip_prefix(TOOL).unwrap_or(param));
        failure.extend(param.map(|param| ("param".to_owned(), param.into())));
        self.failure = Some(failure);
        self.settle(sink);
    }

    /// Whether the image of an item is wanted: only the first, and of nothing that says that it is something else.
    fn wants_image(&self) -> bool {
        let kind = self.item.get("type").and_then(Value::as_str);
        let open = self.partial != Partial::Current && matches!(self.image, Image::None | Image::Passing);
        open && kind.is_none_or(|kind| kind == IMAGE_CALL)
    }

    /// Whether an intermediate image is wanted: none of a later call. The final image is told to its end only when the
    /// response ends, and nothing may come into the middle of it.
    const fn wants_partial(&self) -> bool {
        matches!(self.image, Image::None)
    }
}

/// Everything about an image but the image.
fn tell(sink: &mut impl Sink, members: &Map<String, Value>, is_told: impl Fn(&str) -> bool) {
    for (name, value) in members.iter().filter(|(name, _)| is_told(name)) {
        sink.item_member(name.clone(), value.clone());
    }
}

/// Everything that was read of an item.
fn whole_item(item: &mut Map<String, Value>, others: &mut Map<String, Value>) -> Map<String, Value> {
    let mut whole = std::mem::take(item);
    whole.append(others);
    whole
}

/// The member of an item, whichever way the item came.
fn of_item(path: &str) -> Option<&str> {
    path.strip_prefix("item.").or_else(|| path.strip_prefix("response.output[]."))
}

impl<S: Sink> Reading<'_, S> {
    /// An image begins to pass.
    fn begin(&mut self, kind: &str) {
        self.found.seen = 0;
        self.sink.event(Some(kind.to_owned()));
        self.sink.item_start();
    }
}

impl<S: Sink> Reader for Reading<'_, S> {
    fn wants(&self, path: &str) -> Want {
        let value = |wanted: bool| if wanted { Want::Value } else { Want::Nothing };
        match path {
            PARTIAL if self.found.wants_partial() => Want::Image,
            OF_DONE | OF_OUTPUT if self.found.wants_image() => Want::Image,
            _ => match (of_item(path), path.strip_prefix("response.")) {
                (Some(member), _) if OF_ITEM.contains(&member) => Want::Value,
                (Some(member), _) if self.found.wants_other(member) => Want::Optional,
                (Some(_), _) => Want::Nothing,
                (None, Some(HOST_MODEL | TOOL_MODEL)) => Want::Value,
                (None, Some(member)) => value(OF_RESPONSE.contains(&member)),
                (None, None) => value(OF_EVENT.contains(&path)),
            },
        }
    }

    fn value(&mut self, path: &str, value: Value) {
        let (members, name) = match (of_item(path), path.strip_prefix("response.")) {
            (Some(member), _) if !OF_ITEM.contains(&member) => return self.found.keep_other(member, value),
            (Some(member), _) => (&mut self.found.item, member),
            (None, Some(member)) => (&mut self.found.response, member),
            (None, None) => (&mut self.found.event, path),
        };
        members.insert(name.to_owned(), value);
    }

    fn image(&mut self, path: &str, base64: &[u8]) {
        if path == PARTIAL {
            if self.found.partial != Partial::Current {
                self.found.partial = Partial::Current;
                self.begin("partial_image");
            }
        } else if !matches!(self.found.image, Image::Passing) {
            self.found.image = Image::Passing;
            self.begin("completed");
        }
        if let Err(malformed) = check_base64(&mut self.found.seen, base64) {
            self.found.wrong = Some(malformed);
            return;
        }
        self.sink.image(self.piece.slice_ref(base64));
    }

    fn image_end(&mut self, path: &str) {
        if path == PARTIAL && self.found.partial == Partial::Current {
            self.sink.image_end();
        } else if path != PARTIAL && matches!(self.found.image, Image::Passing) {
            self.found.image = Image::Whole(None);
            self.sink.image_end();
        }
    }

    fn stray(&mut self) {
        self.found.wrong = Some(Malformed::Base64);
    }

    fn close(&mut self, path: &str) {
        if path == "response.output[]" {
            self.found.end_item();
        }
    }
}
