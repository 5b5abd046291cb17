//! The content found in a response so far: its image, the members about it, and the members sent instead of it.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::gateway::relay::fill::{self, AnswerUsage};
use crate::gateway::relay::lexer::{AnswerSink, AnswerSyntaxError, check_base64};
use crate::gateway::relay::scan::{JsonScanner, JsonVisitor, KEY_MAX, ValueInterest};
use crate::gateway::relay::tap::AnswerWithoutImage;

/// The most items without an image that are kept: one of them states why there is none.
const SAID_MAX: usize = 16;
/// The members of an item that are read.
const OF_ITEM: [&str; 9] =
    ["background", "content", "error", "output_format", "quality", "revised_prompt", "size", "status", "type"];
/// Members of items that do not concern an image. Every other member of an item may belong to a later version.
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
/// The most bytes of other members that are kept for an item.
const OTHERS_MAX: usize = 64 * 1024;
/// The members of an event that are read.
const OF_EVENT: [&str; 9] =
    ["background", "code", "error", "message", "output_format", "param", "quality", "size", "type"];
/// The members of the response itself that are read.
const OF_RESPONSE: [&str; 6] = ["created_at", "error", "incomplete_details", "status", "tool_usage", "usage"];
/// The paths of the models in the response: the text model, and that of its only tool.
const HOST_MODEL: &str = "model";
const TOOL_MODEL: &str = "tools[].model";
/// The members of an answer that concern an image.
const OF_IMAGE: [&str; 5] = ["background", "output_format", "quality", "revised_prompt", "size"];

/// The type of an item with an image.
const IMAGE_CALL: &str = "image_generation_call";
/// The prefix of the upstream's names for the fields of its tool.
const TOOL: &str = "tools[0].";
/// The paths of images.
const PARTIAL: &str = "partial_image_b64";
const OF_DONE: &str = "item.result";
const OF_OUTPUT: &str = "response.output[].result";

/// The content that has been found so far.
#[derive(Debug, Default)]
pub(super) struct ImageToolContent {
    /// Members of the current event, of the current item, and of the response itself.
    event: Map<String, Value>,
    item: Map<String, Value>,
    response: Map<String, Value>,
    /// Members of the current item that are not in any document, and their length in bytes.
    others: Map<String, Value>,
    others_length: usize,
    /// The number of base64 bytes of the current image that have been checked.
    seen: usize,
    partial: PartialImageState,
    image: FinalImageState,
    /// Items without an image.
    said: Vec<Value>,
    failure: Option<Map<String, Value>>,
    over: bool,
    wrong: Option<AnswerSyntaxError>,
}

/// The state of the intermediate images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PartialImageState {
    #[default]
    None,
    /// The current event holds one.
    Current,
    /// There was one, so work was done.
    Past,
}

/// The state of the final image.
#[derive(Debug, Default)]
enum FinalImageState {
    #[default]
    None,
    /// Its base64 is being read.
    Passing,
    /// Its base64 is complete, and perhaps its item.
    Whole(Option<Map<String, Value>>),
    /// All of its members have been passed on.
    Told,
}

/// Reads one piece.
struct ImageToolVisitor<'a, S> {
    found: &'a mut ImageToolContent,
    piece: &'a Bytes,
    sink: &'a mut S,
}

// === impl ImageToolContent ===

impl ImageToolContent {
    /// Continues to read a value; `part` is the next stretch of the piece. Only white space may follow the value.
    pub(super) fn read_on(
        &mut self,
        scan: &mut JsonScanner,
        piece: &Bytes,
        part: &[u8],
        sink: &mut impl AnswerSink,
    ) -> Result<(), AnswerSyntaxError> {
        let read = scan.push(part, &mut ImageToolVisitor { found: self, piece, sink })?;
        let surplus = part[read..].iter().any(|byte| !byte.is_ascii_whitespace());
        self.wrong.or(surplus.then_some(AnswerSyntaxError::Surplus)).map_or(Ok(()), Err)
    }

    /// True if the upstream has sent its final event or response.
    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    /// True while an image is being sent. After a whole image a model may go on with a text, and think meanwhile.
    pub(super) const fn in_image(&self) -> bool {
        matches!(self.partial, PartialImageState::Current) || matches!(self.image, FinalImageState::Passing)
    }

    pub(super) fn usage(&self) -> Option<AnswerUsage> {
        fill::of_response(&self.response)
    }

    pub(super) fn host_model(&self) -> Option<String> {
        fill::name(&self.response, HOST_MODEL).map(str::to_owned)
    }

    /// Ends the current event, whose data must be complete.
    pub(super) fn end_event(
        &mut self,
        data: &JsonScanner,
        sink: &mut impl AnswerSink,
    ) -> Result<(), AnswerSyntaxError> {
        if !data.is_done() {
            return Err(AnswerSyntaxError::Truncated);
        }
        let event = std::mem::take(&mut self.event);
        if self.partial == PartialImageState::Current {
            self.partial = PartialImageState::Past;
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

    /// Ends the response.
    pub(super) fn end_response(&mut self, sink: &mut impl AnswerSink) {
        if self.response.get("error").is_some_and(Value::is_object) {
            return self.fail(Map::new(), sink);
        }
        self.over = true;
        self.settle(sink);
    }

    /// Ends the answer: passes on the known members of a complete image. An image that is not base64 does not count.
    pub(super) fn settle(&mut self, sink: &mut impl AnswerSink) {
        if self.wrong.is_some() {
            return;
        }
        let FinalImageState::Whole(members) = &mut self.image else { return };
        // The item of an image may be cut off after the image.
        let members = members.take().unwrap_or_else(|| whole_item(&mut self.item, &mut self.others));
        self.image = FinalImageState::Told;
        tell(sink, &members, |name| OF_IMAGE.contains(&name) || !OF_ITEM.contains(&name));
        let created = self.response.get("created_at").cloned();
        created.into_iter().for_each(|created| sink.item_member("created".to_owned(), created));
        let model = self.response.get(TOOL_MODEL).cloned();
        model.into_iter().for_each(|model| sink.item_member("model".to_owned(), model));
        let usage = fill::shown_of_response(&self.response);
        usage.into_iter().for_each(|usage| sink.item_member("usage".to_owned(), usage));
        sink.item_end();
    }

    /// Returns the content of a complete answer without an image, in the form by which failures are judged.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
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
        let something = self.partial != PartialImageState::None || self.said.iter().any(drawn);
        Some(AnswerWithoutImage { members, something, usage: self.usage() })
    }

    /// Ends an item.
    fn end_item(&mut self) {
        match &mut self.image {
            FinalImageState::Whole(members @ None) => *members = Some(whole_item(&mut self.item, &mut self.others)),
            FinalImageState::None if !self.item.is_empty() && self.said.len() < SAID_MAX => {
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

    /// True if this member, which is not in any document, is kept: only for the image that counts.
    fn wants_other(&self, member: &str) -> bool {
        let is_open =
            matches!(self.image, FinalImageState::None | FinalImageState::Passing | FinalImageState::Whole(None));
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

    /// Notes a failure that the upstream states. It cannot take back an image that is already there.
    fn fail(&mut self, mut event: Map<String, Value>, sink: &mut impl AnswerSink) {
        self.over = true;
        let stated = [event.get("error"), self.response.get("error")].into_iter().flatten().find_map(Value::as_object);
        let mut failure = stated.cloned().unwrap_or_else(|| std::mem::take(&mut event));
        // An error about the tool concerns the caller's field; the model of the call concerns only us and the upstream.
        let param = failure.remove("param");
        let param = param.as_ref().and_then(Value::as_str).filter(|param| *param != "model");
        let param = param.map(|param| param.strip_prefix(TOOL).unwrap_or(param));
        failure.extend(param.map(|param| ("param".to_owned(), param.into())));
        self.failure = Some(failure);
        self.settle(sink);
    }

    /// True if the image of an item is wanted: only the first one, and only if its item does not state another type.
    fn wants_image(&self) -> bool {
        let kind = self.item.get("type").and_then(Value::as_str);
        let open = self.partial != PartialImageState::Current
            && matches!(self.image, FinalImageState::None | FinalImageState::Passing);
        open && kind.is_none_or(|kind| kind == IMAGE_CALL)
    }

    /// True if an intermediate image is wanted: none of a later call. The final image ends only when the response ends,
    /// and no other image may come between.
    const fn wants_partial(&self) -> bool {
        matches!(self.image, FinalImageState::None)
    }
}

/// Passes on the members of an image, without the image.
fn tell(sink: &mut impl AnswerSink, members: &Map<String, Value>, is_told: impl Fn(&str) -> bool) {
    for (name, value) in members.iter().filter(|(name, _)| is_told(name)) {
        sink.item_member(name.clone(), value.clone());
    }
}

/// Returns all members that were read of an item.
fn whole_item(item: &mut Map<String, Value>, others: &mut Map<String, Value>) -> Map<String, Value> {
    let mut whole = std::mem::take(item);
    whole.append(others);
    whole
}

/// Returns the name of an item's member, for an item in an event or in the response.
fn of_item(path: &str) -> Option<&str> {
    path.strip_prefix("item.").or_else(|| path.strip_prefix("response.output[]."))
}

impl<S: AnswerSink> ImageToolVisitor<'_, S> {
    /// Begins to pass on an image.
    fn begin(&mut self, kind: &str) {
        self.found.seen = 0;
        self.sink.event(Some(kind.to_owned()));
        self.sink.item_start();
    }
}

impl<S: AnswerSink> JsonVisitor for ImageToolVisitor<'_, S> {
    fn wants(&self, path: &str) -> ValueInterest {
        let value = |wanted: bool| if wanted { ValueInterest::Value } else { ValueInterest::Nothing };
        match path {
            PARTIAL if self.found.wants_partial() => ValueInterest::Image,
            OF_DONE | OF_OUTPUT if self.found.wants_image() => ValueInterest::Image,
            _ => match (of_item(path), path.strip_prefix("response.")) {
                (Some(member), _) if OF_ITEM.contains(&member) => ValueInterest::Value,
                (Some(member), _) if self.found.wants_other(member) => ValueInterest::Optional,
                (Some(_), _) => ValueInterest::Nothing,
                (None, Some(HOST_MODEL | TOOL_MODEL)) => ValueInterest::Value,
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
            if self.found.partial != PartialImageState::Current {
                self.found.partial = PartialImageState::Current;
                self.begin("partial_image");
            }
        } else if !matches!(self.found.image, FinalImageState::Passing) {
            self.found.image = FinalImageState::Passing;
            self.begin("completed");
        }
        if let Err(malformed) = check_base64(&mut self.found.seen, base64) {
            self.found.wrong = Some(malformed);
            return;
        }
        self.sink.image(self.piece.slice_ref(base64));
    }

    fn image_end(&mut self, path: &str) {
        if path == PARTIAL && self.found.partial == PartialImageState::Current {
            self.sink.image_end();
        } else if path != PARTIAL && matches!(self.found.image, FinalImageState::Passing) {
            self.found.image = FinalImageState::Whole(None);
            self.sink.image_end();
        }
    }

    fn stray(&mut self) {
        self.found.wrong = Some(AnswerSyntaxError::Base64);
    }

    fn close(&mut self, path: &str) {
        if path == "response.output[]" {
            self.found.end_item();
        }
    }
}
