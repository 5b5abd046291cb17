//! The content of a response, as far as it has arrived: its image, the members that describe it, and the members that
//! came instead of an image.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::gateway::relay::answer_members::{self, AnswerUsage};
use crate::gateway::relay::image_relay::AnswerWithoutImage;
use crate::gateway::relay::lexer::{AnswerSink, AnswerSyntaxError, check_base64, unescaped_base64};
use crate::stream::json::{JsonPosition, JsonVisitor, ValueInterest};

/// The most items without an image that are kept (our choice): they may state why there is no image.
const ITEMS_WITHOUT_IMAGE_MAX: usize = 16;
/// The members of an item that are read.
const ITEM_MEMBERS: [&str; 9] =
    ["background", "content", "error", "output_format", "quality", "revised_prompt", "size", "status", "type"];
/// Members of items that do not describe an image and are never passed on. A member in neither list may be of a later
/// API version and is passed on.
const SKIPPED_ITEM_MEMBERS: [&str; 12] = [
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
/// The most bytes of undocumented members that are kept for an item (our choice).
const OTHER_MEMBERS_MAX: usize = 64 * 1024;
/// The length in bytes from which on the name of an undocumented member is too long to be kept (our choice).
const OTHER_NAME_MAX: usize = 64;
/// The members of an event that are read.
const EVENT_MEMBERS: [&str; 9] =
    ["background", "code", "error", "message", "output_format", "param", "quality", "size", "type"];
/// The members of the response itself that are read.
const RESPONSE_MEMBERS: [&str; 6] = ["created_at", "error", "incomplete_details", "status", "tool_usage", "usage"];
/// The paths of the models in the response: the text model, and the model of its only tool.
const HOST_MODEL: &str = "model";
const TOOL_MODEL: &str = "tools[].model";
/// The members that describe an image.
const IMAGE_MEMBERS: [&str; 5] = ["background", "output_format", "quality", "revised_prompt", "size"];

/// The type of an item with an image.
const IMAGE_CALL_TYPE: &str = "image_generation_call";
/// The prefix of the fields of the image tool in the error messages of an upstream.
const TOOL_PREFIX: &str = "tools[0].";
/// The paths of images.
const PARTIAL_IMAGE_PATH: &str = "partial_image_b64";
const ITEM_IMAGE_PATH: &str = "item.result";
const OUTPUT_IMAGE_PATH: &str = "response.output[].result";

/// The content that has been found so far.
#[derive(Debug, Default)]
pub(super) struct ImageToolContent {
    /// Members of the current event, of the current item, and of the response itself.
    event: Map<String, Value>,
    item: Map<String, Value>,
    response: Map<String, Value>,
    /// Undocumented members of the current item, and their length in bytes.
    other_members: Map<String, Value>,
    other_members_bytes: usize,
    /// The number of base64 bytes of the current image that have been checked.
    base64_seen: usize,
    partial: PartialImageState,
    image: FinalImageState,
    /// Items without an image.
    items_without_image: Vec<Value>,
    failure: Option<Map<String, Value>>,
    is_over: bool,
    /// True if an image was not base64.
    has_invalid_image: bool,
}

/// The state of the intermediate images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PartialImageState {
    #[default]
    None,
    /// The current event has an intermediate image.
    Current,
    /// An earlier event had an intermediate image, so the image may have been charged.
    Past,
}

/// The state of the final image.
#[derive(Debug, Default)]
enum FinalImageState {
    #[default]
    None,
    /// Its base64 is being read.
    Receiving,
    /// Its base64 is complete. The members of its item are `Some` once the item is complete.
    Complete(Option<Map<String, Value>>),
    /// All of its members have been passed on.
    Relayed,
}

/// The visitor for the values in one piece.
pub(super) struct ImageToolVisitor<'a, S> {
    content: &'a mut ImageToolContent,
    piece: &'a Bytes,
    sink: &'a mut S,
}

// === impl ImageToolContent ===

impl ImageToolContent {
    /// Returns the visitor that reads values in this piece.
    pub(super) const fn visitor<'a, S>(&'a mut self, piece: &'a Bytes, sink: &'a mut S) -> ImageToolVisitor<'a, S> {
        ImageToolVisitor { content: self, piece, sink }
    }

    /// True if the upstream has sent its final event or response.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// True while an image is being sent. After a complete image the model may continue with a text, with pauses.
    pub(super) const fn is_in_image(&self) -> bool {
        matches!(self.partial, PartialImageState::Current) || matches!(self.image, FinalImageState::Receiving)
    }

    pub(super) fn usage(&self) -> Option<AnswerUsage> {
        answer_members::usage_from_response(&self.response)
    }

    pub(super) fn host_model(&self) -> Option<String> {
        answer_members::model_name(&self.response, HOST_MODEL).map(str::to_owned)
    }

    /// Ends the current event, whose data is complete.
    pub(super) fn end_event(&mut self, sink: &mut impl AnswerSink) {
        let event = std::mem::take(&mut self.event);
        if self.partial == PartialImageState::Current {
            self.partial = PartialImageState::Past;
            send_members(sink, &event, |name| IMAGE_MEMBERS.contains(&name));
            sink.item_end();
        }
        match event.get("type").and_then(Value::as_str) {
            Some("response.output_item.done") => self.end_item(),
            Some("response.completed" | "response.incomplete" | "response.cancelled") => self.end_response(sink),
            Some("response.failed" | "error") => self.record_failure(event, sink),
            None if event.get("error").is_some_and(Value::is_object) => self.record_failure(event, sink),
            _ => {}
        }
        self.clear_item();
    }

    /// Ends the response.
    pub(super) fn end_response(&mut self, sink: &mut impl AnswerSink) {
        if self.response.get("error").is_some_and(Value::is_object) {
            return self.record_failure(Map::new(), sink);
        }
        self.is_over = true;
        self.finish_image(sink);
    }

    /// Ends the answer: passes on the members of a complete image, as far as they are known. An image that is not
    /// base64 does not count.
    pub(super) fn finish_image(&mut self, sink: &mut impl AnswerSink) {
        if self.has_invalid_image {
            return;
        }
        let FinalImageState::Complete(members) = &mut self.image else { return };
        // If the answer broke off after the image, its item is still open.
        let members = members.take().unwrap_or_else(|| take_item(&mut self.item, &mut self.other_members));
        self.image = FinalImageState::Relayed;
        send_members(sink, &members, |name| IMAGE_MEMBERS.contains(&name) || !ITEM_MEMBERS.contains(&name));
        let created = self.response.get("created_at").cloned();
        created.into_iter().for_each(|created| sink.item_member("created".to_owned(), created));
        let model = self.response.get(TOOL_MODEL).cloned();
        model.into_iter().for_each(|model| sink.item_member("model".to_owned(), model));
        let usage = answer_members::image_usage_for_caller(&self.response);
        usage.into_iter().for_each(|usage| sink.item_member("usage".to_owned(), usage));
        sink.item_end();
    }

    /// Returns the content of a complete answer without an image, in the form that the failure classification reads.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        if !self.is_over {
            return None;
        }
        let mut members: Map<String, Value> = RESPONSE_MEMBERS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.response.get(*name).filter(|value| !value.is_null())?)))
            .map(|(name, value)| (name, value.clone()))
            .collect();
        members.insert("output".to_owned(), self.items_without_image.clone().into());
        if let Some(failure) = &self.failure {
            members.insert("error".to_owned(), Value::Object(failure.clone()));
        }
        let is_completed_call = |item: &Value| item["type"] == IMAGE_CALL_TYPE && item["status"] == "completed";
        let has_image_substitute =
            self.partial != PartialImageState::None || self.items_without_image.iter().any(is_completed_call);
        Some(AnswerWithoutImage { members, has_image_substitute, usage: self.usage() })
    }

    /// Ends an item.
    fn end_item(&mut self) {
        match &mut self.image {
            FinalImageState::Complete(members @ None) => {
                *members = Some(take_item(&mut self.item, &mut self.other_members));
            }
            FinalImageState::None
                if !self.item.is_empty() && self.items_without_image.len() < ITEMS_WITHOUT_IMAGE_MAX =>
            {
                self.items_without_image.push(std::mem::take(&mut self.item).into());
            }
            _ => {}
        }
        self.clear_item();
    }

    fn clear_item(&mut self) {
        self.item.clear();
        self.other_members.clear();
        self.other_members_bytes = 0;
    }

    /// True if this undocumented member is kept: only for the image that is relayed.
    fn wants_other_member(&self, member: &str) -> bool {
        let is_open =
            matches!(self.image, FinalImageState::None | FinalImageState::Receiving | FinalImageState::Complete(None));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        is_open
            && member.len() < OTHER_NAME_MAX
            && member.bytes().all(is_name)
            && !SKIPPED_ITEM_MEMBERS.contains(&member)
    }

    fn store_other_member(&mut self, member: &str, value: Value) {
        let length = member.len() + value.to_string().len();
        if self.other_members_bytes + length <= OTHER_MEMBERS_MAX {
            self.other_members_bytes += length;
            self.other_members.insert(member.to_owned(), value);
        }
    }

    /// Records a failure that the upstream states. An image that is already complete still counts.
    fn record_failure(&mut self, mut event: Map<String, Value>, sink: &mut impl AnswerSink) {
        self.is_over = true;
        let stated_error =
            [event.get("error"), self.response.get("error")].into_iter().flatten().find_map(Value::as_object);
        let mut failure = stated_error.cloned().unwrap_or_else(|| std::mem::take(&mut event));
        // An error about a field of the tool is about a field of the caller's request. The field `model` is left out:
        // the gateway chose the model of the call.
        let param = failure.remove("param");
        let param = param.as_ref().and_then(Value::as_str).filter(|param| *param != "model");
        let param = param.map(|param| param.strip_prefix(TOOL_PREFIX).unwrap_or(param));
        failure.extend(param.map(|param| ("param".to_owned(), param.into())));
        self.failure = Some(failure);
        self.finish_image(sink);
    }

    /// True if the image of an item is wanted: only the first image, and only if its item does not state another type.
    fn wants_image(&self) -> bool {
        let kind = self.item.get("type").and_then(Value::as_str);
        let is_open = self.partial != PartialImageState::Current
            && matches!(self.image, FinalImageState::None | FinalImageState::Receiving);
        is_open && kind.is_none_or(|kind| kind == IMAGE_CALL_TYPE)
    }

    /// True if an intermediate image is wanted: not after the final image has begun. The final image ends only when the
    /// response ends, and no other image may be sent before that.
    const fn wants_partial(&self) -> bool {
        matches!(self.image, FinalImageState::None)
    }
}

/// Passes on the members of an image, without the image.
fn send_members(sink: &mut impl AnswerSink, members: &Map<String, Value>, is_sent: impl Fn(&str) -> bool) {
    for (name, value) in members.iter().filter(|(name, _)| is_sent(name)) {
        sink.item_member(name.clone(), value.clone());
    }
}

/// Returns all members of an item that were read.
fn take_item(item: &mut Map<String, Value>, other_members: &mut Map<String, Value>) -> Map<String, Value> {
    let mut members = std::mem::take(item);
    members.append(other_members);
    members
}

/// Returns the name of the member, if the path is that of a member of an item, in an event or in the response.
fn item_member_name(path: &str) -> Option<&str> {
    path.strip_prefix("item.").or_else(|| path.strip_prefix("response.output[]."))
}

impl<S: AnswerSink> ImageToolVisitor<'_, S> {
    /// Begins to pass on an image, unless it has begun.
    fn begin_image(&mut self, path: &str) {
        let kind = if path == PARTIAL_IMAGE_PATH {
            let before = std::mem::replace(&mut self.content.partial, PartialImageState::Current);
            (before != PartialImageState::Current).then_some("partial_image")
        } else {
            let before = std::mem::replace(&mut self.content.image, FinalImageState::Receiving);
            (!matches!(before, FinalImageState::Receiving)).then_some("completed")
        };
        if let Some(kind) = kind {
            self.content.base64_seen = 0;
            self.sink.announce_event(Some(kind.to_owned()));
            self.sink.item_start();
        }
    }

    /// Passes on the next part of an image. An image that is not base64 does not count.
    fn pass_on(&mut self, base64: Result<Bytes, AnswerSyntaxError>) -> Result<(), AnswerSyntaxError> {
        self.content.has_invalid_image |= base64.is_err();
        self.sink.image(base64?);
        Ok(())
    }
}

impl<S: AnswerSink> JsonVisitor for ImageToolVisitor<'_, S> {
    type Error = AnswerSyntaxError;

    fn start(&mut self, at: JsonPosition<'_>, _: u8) -> Result<ValueInterest, AnswerSyntaxError> {
        let value_if = |is_wanted: bool| if is_wanted { ValueInterest::Value } else { ValueInterest::Skip };
        Ok(match at.path {
            PARTIAL_IMAGE_PATH if self.content.wants_partial() => ValueInterest::Text,
            ITEM_IMAGE_PATH | OUTPUT_IMAGE_PATH if self.content.wants_image() => ValueInterest::Text,
            path => match (item_member_name(path), path.strip_prefix("response.")) {
                (Some(member), _) if ITEM_MEMBERS.contains(&member) => ValueInterest::Value,
                (Some(member), _) if self.content.wants_other_member(member) => ValueInterest::Optional,
                (Some(_), _) => ValueInterest::Skip,
                (None, Some(HOST_MODEL | TOOL_MODEL)) => ValueInterest::Value,
                (None, Some(member)) => value_if(RESPONSE_MEMBERS.contains(&member)),
                (None, None) => value_if(EVENT_MEMBERS.contains(&path)),
            },
        })
    }

    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), AnswerSyntaxError> {
        let Some(value) = value else { return Ok(()) };
        let (members, name) = match (item_member_name(at.path), at.path.strip_prefix("response.")) {
            (Some(member), _) if !ITEM_MEMBERS.contains(&member) => {
                self.content.store_other_member(member, value);
                return Ok(());
            }
            (Some(member), _) => (&mut self.content.item, member),
            (None, Some(member)) => (&mut self.content.response, member),
            (None, None) => (&mut self.content.event, at.path),
        };
        members.insert(name.to_owned(), value);
        Ok(())
    }

    fn text(&mut self, at: JsonPosition<'_>, base64: &[u8]) -> Result<(), AnswerSyntaxError> {
        self.begin_image(at.path);
        let checked = check_base64(&mut self.content.base64_seen, base64);
        self.pass_on(checked.map(|()| self.piece.slice_ref(base64)))
    }

    fn escaped(&mut self, at: JsonPosition<'_>, unit: u16) -> Result<(), AnswerSyntaxError> {
        self.begin_image(at.path);
        self.pass_on(unescaped_base64(unit))
    }

    fn text_end(&mut self, at: JsonPosition<'_>) -> Result<(), AnswerSyntaxError> {
        if at.path == PARTIAL_IMAGE_PATH && self.content.partial == PartialImageState::Current {
            self.sink.image_end();
        } else if at.path != PARTIAL_IMAGE_PATH && matches!(self.content.image, FinalImageState::Receiving) {
            self.content.image = FinalImageState::Complete(None);
            self.sink.image_end();
        }
        Ok(())
    }

    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), AnswerSyntaxError> {
        if at.path == "response.output[]" {
            self.content.end_item();
        }
        Ok(())
    }
}
