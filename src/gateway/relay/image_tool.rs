//! Picks the image out of a response that was requested for one image: turns the content of the response into that of
//! an event of the image endpoints.
//!
//! In events, the image comes twice: in the event of its item, and in the response at the end. The copy in the response
//! is skipped. The token counts come last, so the end of the image is reported only after them. A complete image counts
//! even if the rest of the response breaks off.

use serde_json::{Map, Value};

use super::answer_charges::ToolCallCounter;
use super::answer_members;
use super::answer_usage::{self, AnswerUsage};
use super::event::{AnswerWithoutImage, FrameContent, ImagePlace, MemberScope, RelayEvent, RelayEventSink};
use crate::gateway::upstream::is_image_parameter;
use crate::stream::json::ValueInterest;

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
/// The longest name, in bytes, of an undocumented member that is kept (our choice).
const OTHER_NAME_MAX: usize = 63;
/// The members of an event that are read.
const EVENT_MEMBERS: [&str; 9] =
    ["background", "code", "error", "message", "output_format", "param", "quality", "size", "type"];
/// The members of the response itself that state its result.
const RESPONSE_MEMBERS: [&str; 8] =
    ["created_at", "error", "incomplete_details", "service_tier", "status", "svg_usage", "tool_usage", "usage"];
/// The members of another answer in place of a response, such as a task or a chat, which may state why there is no image.
const FOREIGN_MEMBERS: [&str; 6] = ["choices", "data", "id", "message", "task_id", "task_status"];
/// The member with a model: in the response that of the text model, in its only tool that of the image model.
const MODEL: &str = "model";
/// The members that describe an image.
const IMAGE_MEMBERS: [&str; 5] = ["background", "output_format", "quality", "revised_prompt", "size"];

/// The type of an item with an image.
const IMAGE_CALL_TYPE: &str = "image_generation_call";
/// The prefix of the fields of the image tool in the error messages of an upstream.
const TOOL_PREFIX: &str = "tools[0].";

/// The content of the response that has been found so far.
#[derive(Debug, Default)]
pub(super) struct ImageToolContent {
    /// Members of the current event, of the current item, and of the response itself.
    event: Map<String, Value>,
    item: Map<String, Value>,
    response: Map<String, Value>,
    image_model: Option<Value>,
    /// Undocumented members of the current item, and their length in bytes.
    other_members: Map<String, Value>,
    other_members_bytes: usize,
    partial: PartialImageState,
    image: FinalImageState,
    /// Items without an image.
    items_without_image: Vec<Value>,
    failure: Option<Map<String, Value>>,
    is_over: bool,
    tool_calls: ToolCallCounter,
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

// === impl ImageToolContent ===

impl ImageToolContent {
    /// True if the upstream has sent its final event or its whole response, whether it succeeded or failed.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// True while an image is being sent. After a complete image the model may continue with a text, with pauses.
    pub(super) const fn is_in_image(&self) -> bool {
        matches!(self.partial, PartialImageState::Current) || matches!(self.image, FinalImageState::Receiving)
    }

    /// Returns all tokens of the call, including those of the text model.
    pub(super) fn usage(&self) -> Option<AnswerUsage> {
        answer_usage::usage_from_response(&self.response, &self.tool_calls)
    }

    /// Returns the text model, as the upstream names it.
    pub(super) fn host_model(&self) -> Option<String> {
        answer_members::model_name(&self.response).map(str::to_owned)
    }

    /// True if an image is wanted. An intermediate image is wanted only before the final image, because the event of the
    /// final image ends only with the response. Of the final images only the first is wanted, and only if its item does not
    /// state another type.
    pub(super) fn wants_image(&self, place: ImagePlace) -> bool {
        let is_image_call = || {
            let kind = self.item.get("type").and_then(Value::as_str);
            kind.is_none_or(|kind| kind == IMAGE_CALL_TYPE)
        };
        match (place, &self.image) {
            (ImagePlace::Partial, image) => matches!(image, FinalImageState::None),
            (_, FinalImageState::None | FinalImageState::Receiving) => {
                self.partial != PartialImageState::Current && is_image_call()
            }
            (_, FinalImageState::Complete(_) | FinalImageState::Relayed) => false,
        }
    }

    /// True if an image at another place than those of the contract is wanted: only the first, and none in the event of an
    /// intermediate image, or of another tool.
    pub(super) fn wants_found_image(&self) -> bool {
        let kind = self.item.get("type").and_then(Value::as_str).unwrap_or(IMAGE_CALL_TYPE);
        let is_other_tool = kind != IMAGE_CALL_TYPE && (kind.ends_with("_call") || kind.ends_with("_output"));
        matches!(self.image, FinalImageState::None) && self.partial != PartialImageState::Current && !is_other_tool
    }

    /// Returns the part of a member that is wanted.
    pub(super) fn interest(&self, scope: MemberScope, name: &str) -> ValueInterest {
        let is_read = match scope {
            MemberScope::Item if !ITEM_MEMBERS.contains(&name) => {
                let is_wanted = self.wants_other_member(name);
                return if is_wanted { ValueInterest::Optional } else { ValueInterest::Skip };
            }
            MemberScope::Item => true,
            MemberScope::Answer => name == MODEL || RESPONSE_MEMBERS.contains(&name) || FOREIGN_MEMBERS.contains(&name),
            MemberScope::Tool => name == MODEL,
            MemberScope::Event => EVENT_MEMBERS.contains(&name),
        };
        if is_read { ValueInterest::Value } else { ValueInterest::Skip }
    }

    /// Takes the next step of the response, and pushes what it means for the image.
    pub(super) fn push(&mut self, event: RelayEvent<'_>, sink: &mut dyn RelayEventSink) {
        match event {
            RelayEvent::Member { scope, name, value } => self.add_member(scope, name, value),
            RelayEvent::ImageBytes { place, base64 } => {
                self.begin_image(place, sink);
                // For the receiver, every image is in an item of the image endpoints.
                sink.push(RelayEvent::ImageBytes { place: ImagePlace::Item, base64 });
            }
            RelayEvent::ImageEnded { place } => self.end_image(place, sink),
            RelayEvent::Ended { scope: MemberScope::Item } => {
                self.tool_calls.add_list_item(&self.item);
                self.end_item();
            }
            RelayEvent::MemberDropped { scope: MemberScope::Answer, name } => self.tool_calls.note_unread_member(name),
            RelayEvent::FrameEnded { content: FrameContent::Object, .. } => self.end_event(sink),
            RelayEvent::AnswerEnded => self.end_response(sink),
            RelayEvent::ItemBegun { .. }
            | RelayEvent::ElementBegun
            | RelayEvent::UnfinishedStatus { .. }
            | RelayEvent::PaddingAbsent { .. }
            | RelayEvent::MemberDropped { .. }
            | RelayEvent::Ended { .. }
            | RelayEvent::FrameEnded { .. } => {}
        }
    }

    /// Ends the answer: passes on the members of a complete image, as far as they are known.
    pub(super) fn finish_image(&mut self, sink: &mut dyn RelayEventSink) {
        let FinalImageState::Complete(members) = &mut self.image else { return };
        // If the answer broke off after the image, its item is still open.
        let members = members.take().unwrap_or_else(|| take_item(&mut self.item, &mut self.other_members));
        self.image = FinalImageState::Relayed;
        push_members(sink, &members, |name| IMAGE_MEMBERS.contains(&name) || !ITEM_MEMBERS.contains(&name));
        let more = [
            ("created", self.response.get("created_at").cloned()),
            ("model", self.image_model.clone()),
            ("usage", answer_usage::image_usage_for_caller(&self.response)),
        ];
        let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        push_members(sink, &more, |_| true);
        sink.push(RelayEvent::Ended { scope: MemberScope::Item });
    }

    /// Returns the content of a complete answer without an image, in the form that the failure classification reads.
    pub(super) fn without_image(&self) -> Option<AnswerWithoutImage> {
        if !self.is_over {
            return None;
        }
        // In a response that has failed, only what the contract states counts.
        let foreign = FOREIGN_MEMBERS.iter().filter(|_| self.failure.is_none());
        let mut members: Map<String, Value> = RESPONSE_MEMBERS
            .iter()
            .chain(foreign)
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
        Some(AnswerWithoutImage { members, has_image_substitute, usage: self.usage(), addresses: Vec::new() })
    }

    fn add_member(&mut self, scope: MemberScope, name: &str, value: Value) {
        let members = match scope {
            MemberScope::Answer => &mut self.response,
            MemberScope::Tool => return self.image_model = Some(value),
            MemberScope::Event => &mut self.event,
            MemberScope::Item if ITEM_MEMBERS.contains(&name) => &mut self.item,
            MemberScope::Item => {
                let length = self.other_members_bytes + name.len() + value.to_string().len();
                if length > OTHER_MEMBERS_MAX {
                    return;
                }
                self.other_members_bytes = length;
                &mut self.other_members
            }
        };
        members.insert(name.to_owned(), value);
    }

    /// Begins to pass on an image, unless it has begun.
    fn begin_image(&mut self, place: ImagePlace, sink: &mut dyn RelayEventSink) {
        let kind = if place == ImagePlace::Partial {
            let before = std::mem::replace(&mut self.partial, PartialImageState::Current);
            (before != PartialImageState::Current).then_some("partial_image")
        } else {
            let before = std::mem::replace(&mut self.image, FinalImageState::Receiving);
            (!matches!(before, FinalImageState::Receiving)).then_some("completed")
        };
        if let Some(kind) = kind {
            sink.push(RelayEvent::ItemBegun { event: Some(kind.to_owned()) });
        }
    }

    fn end_image(&mut self, place: ImagePlace, sink: &mut dyn RelayEventSink) {
        match (place, &self.image) {
            (ImagePlace::Partial, _) if self.partial == PartialImageState::Current => {}
            (ImagePlace::Item | ImagePlace::Repeated, FinalImageState::Receiving) => {
                self.image = FinalImageState::Complete(None);
            }
            _ => return,
        }
        sink.push(RelayEvent::ImageEnded { place });
    }

    /// Ends the current event, whose data is complete.
    fn end_event(&mut self, sink: &mut dyn RelayEventSink) {
        let event = std::mem::take(&mut self.event);
        if self.partial == PartialImageState::Current {
            self.partial = PartialImageState::Past;
            push_members(sink, &event, |name| IMAGE_MEMBERS.contains(&name));
            sink.push(RelayEvent::Ended { scope: MemberScope::Item });
        }
        match event.get("type").and_then(Value::as_str) {
            Some("response.output_item.done") => {
                self.tool_calls.add_event_item(&self.item);
                self.end_item();
            }
            Some("response.completed" | "response.incomplete" | "response.cancelled") => self.end_response(sink),
            Some("response.failed" | "error") => self.record_failure(event, sink),
            None if event.get("error").is_some_and(Value::is_object) => self.record_failure(event, sink),
            _ => {}
        }
        self.tool_calls.end_event();
        self.clear_item();
    }

    /// Ends the response.
    fn end_response(&mut self, sink: &mut dyn RelayEventSink) {
        if self.response.get("error").is_some_and(Value::is_object) {
            return self.record_failure(Map::new(), sink);
        }
        self.is_over = true;
        self.finish_image(sink);
    }

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
    fn wants_other_member(&self, name: &str) -> bool {
        let is_open =
            matches!(self.image, FinalImageState::None | FinalImageState::Receiving | FinalImageState::Complete(None));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        is_open && name.len() <= OTHER_NAME_MAX && name.bytes().all(is_name) && !SKIPPED_ITEM_MEMBERS.contains(&name)
    }

    /// Records a failure that the upstream states. An image that is already complete still counts.
    fn record_failure(&mut self, mut event: Map<String, Value>, sink: &mut dyn RelayEventSink) {
        self.is_over = true;
        let stated_error =
            [event.get("error"), self.response.get("error")].into_iter().flatten().find_map(Value::as_object);
        let mut failure = stated_error.cloned().unwrap_or_else(|| std::mem::take(&mut event));
        // An error about a field of the tool is about a field of the caller's request.
        let param = failure.remove("param");
        let field =
            |param: &str| param.strip_prefix(TOOL_PREFIX).filter(|field| is_image_parameter(field)).map(str::to_owned);
        let param =
            param.as_ref().and_then(Value::as_str).map(|param| field(param).unwrap_or_else(|| param.to_owned()));
        failure.extend(param.map(|param| ("param".to_owned(), param.into())));
        self.failure = Some(failure);
        self.finish_image(sink);
    }
}

/// Returns all members of an item that were read.
fn take_item(item: &mut Map<String, Value>, other_members: &mut Map<String, Value>) -> Map<String, Value> {
    let mut members = std::mem::take(item);
    members.append(other_members);
    members
}

/// Passes on the members of an image, without the image.
fn push_members(sink: &mut dyn RelayEventSink, members: &Map<String, Value>, is_pushed: impl Fn(&str) -> bool) {
    for (name, value) in members.iter().filter(|(name, _)| is_pushed(name)) {
        sink.push(RelayEvent::Member { scope: MemberScope::Item, name, value: value.clone() });
    }
}

#[cfg(test)]
mod tests;
