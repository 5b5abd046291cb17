//! The content of an answer, whatever its form: decoders find it, and encoders write it.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::answer_usage::AnswerUsage;
use super::relay_error::RelayError;
use crate::gateway::store::BindingDigest;
use crate::image::{ImageProperties, OtherContent};
use crate::stream::json::ValueInterest;

/// A step in the content of an answer. The order is that of the upstream.
#[derive(Debug)]
pub(super) enum RelayEvent<'a> {
    /// An item of the image endpoints begins. `event` is `None` for an element of `data`; for an event it is the value
    /// of its `event:` line, empty if that line has not come before the data.
    ItemBegun { event: Option<String> },
    /// The next image of an event begins, which has several.
    ElementBegun,
    /// A member other than the image.
    Member { scope: MemberScope, name: &'a str, value: Value },
    /// A member that is too large to hold, or whose value cannot be parsed.
    MemberDropped { scope: MemberScope, name: &'a str },
    /// The status of an item of a response begins like that of an unfinished image, at this place of the piece.
    UnfinishedStatus { offset: usize },
    /// The base64 of an image that is passed on as it is ends at this place of the piece, without its padding.
    PaddingAbsent { offset: usize, padding: &'static [u8] },
    /// The next bytes of an image, at least one.
    ImageBytes { place: ImagePlace, base64: Bytes },
    /// The end of the text of an image, which may have been empty.
    ImageEnded { place: ImagePlace },
    /// The end of an item or of a tool.
    Ended { scope: MemberScope },
    /// The end of a frame of an event stream. Only now is the value of its `event:` line final, because that line may
    /// follow the data.
    FrameEnded { name: String, content: FrameContent },
    /// The end of an answer that is one JSON object.
    AnswerEnded,
}

/// The object to which a member belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberScope {
    /// The answer itself, or the response in an event.
    Answer,
    /// An element of `data`, an event of the image endpoints, or an item of a response.
    Item,
    /// A tool of a response.
    Tool,
    /// An event of a response.
    Event,
}

/// The place of an image in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImagePlace {
    /// In its item.
    Item,
    /// In the event of an intermediate image of a response.
    Partial,
    /// In the response at the end of its events, which repeats the items.
    Repeated,
}

/// The content of a frame of an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameContent {
    /// Nothing but comments.
    Comments,
    /// Fields, but no object in the data.
    Fields,
    /// An object.
    Object,
}

/// The form of the upstream's answer, which its first byte shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// Only white space has come.
    Unknown,
    Json,
    Events,
}

/// The content of an answer, for its record. Models, ids and qualities are those that the upstream named.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerSummary {
    /// Each image that was passed on.
    pub(crate) delivered: Vec<DeliveredImage>,
    /// The content of the first image, if it is in none of the formats that a request can name.
    pub(crate) other_content: Option<OtherContent>,
    /// The token counts, if the upstream reported any that can be read.
    pub(crate) usage: Option<AnswerUsage>,
    /// The model that makes images.
    pub(crate) image_model: Option<String>,
    /// The text model, if one ran the image tool.
    pub(crate) host_model: Option<String>,
    /// The ids and the encrypted contents of the response, which belong to the account.
    pub(crate) bindings: Vec<BindingDigest>,
    /// The members besides the image that the upstream sent, if the answer is to be a single element of `data`.
    pub(crate) element_members: Map<String, Value>,
}

/// An image that was passed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveredImage {
    /// The format and size of the image, if its first bytes stated them.
    pub(crate) properties: Option<ImageProperties>,
    /// The quality that the upstream names.
    pub(crate) quality: Option<String>,
}

/// A complete answer in which no image was found.
#[derive(Debug)]
pub(crate) struct AnswerWithoutImage {
    /// The members of the answer, which may state the reason.
    pub(crate) members: Map<String, Value>,
    /// True if a sign suggests that an image was made and charged, such as a URL in its place.
    pub(crate) has_image_substitute: bool,
    /// The tokens that were charged nevertheless.
    pub(crate) usage: Option<AnswerUsage>,
    /// The web addresses of images that stand in their place.
    pub(crate) addresses: Vec<String>,
}

/// Members that state whether there is an image, of which kind it is, or what it costs. An answer is refused if one of
/// their values cannot be parsed.
const MUST_PARSE_MEMBERS: [&str; 4] = ["data", "error", "type", "usage"];

/// Takes the content of an answer.
pub(super) trait RelayEventSink {
    /// Returns the part of a member that is wanted. An unreadable value must not discard an image that is paid for,
    /// unless the value states whether there is an image or what it costs.
    fn interest(&self, scope: MemberScope, name: &str) -> ValueInterest {
        let _ = scope;
        if MUST_PARSE_MEMBERS.contains(&name) { ValueInterest::Value } else { ValueInterest::Optional }
    }

    /// Takes the next step of the content.
    fn push(&mut self, event: RelayEvent<'_>);
}

/// Writes an answer for the caller.
pub(super) trait AnswerEncoder: RelayEventSink + std::fmt::Debug + Send {
    /// Takes the bytes whose content was pushed last, as the upstream sent them. Returns an error if the answer ends
    /// with them because the upstream failed.
    fn pass_on(&mut self, bytes: Bytes, form: AnswerForm) -> Result<(), RelayError>;

    /// Returns the next piece that can be sent to the caller now.
    fn next_piece(&mut self) -> Option<Bytes>;

    /// True if the answer cannot be refused any more: an image, or other output of a response, has begun.
    fn is_proven(&self) -> bool;

    /// True if everything that was requested is there, so that the rest of the upstream's answer is not needed.
    fn is_complete(&self) -> bool;

    /// True if the upstream has failed, and the caller has to see it in a stream.
    fn has_failed(&self) -> bool {
        false
    }

    /// True while the upstream only has to send an event that it has made. `in_event` is true inside the object of an
    /// event.
    fn is_receiving(&self, in_event: bool) -> bool {
        in_event
    }

    /// Ends the upstream's body, whose JSON is complete. Returns an error if the answer is incomplete or has failed.
    fn finish_body(&mut self, form: AnswerForm) -> Result<(), RelayError>;

    /// Returns the last bytes of a complete answer.
    fn finish(&mut self) -> Bytes;

    /// Returns the bytes that end a stream whose upstream broke off; `None` for a plain answer, whose transfer then
    /// breaks off too. `closing` completes the JSON of the event that broke off, except for its last brace.
    fn finish_with_error(&mut self, error: &str, closing: Option<String>) -> Option<Bytes>;

    /// Returns a heartbeat, if the caller gets events and a heartbeat may be sent at this point.
    fn heartbeat(&mut self, form: AnswerForm) -> Option<Bytes>;

    /// Returns the properties of the first image, and true if more bytes may still state them.
    fn first_image(&self) -> (Option<ImageProperties>, bool);

    /// Returns the content of the first image, if it is in none of the formats that a request can name.
    fn other_content(&self) -> Option<OtherContent> {
        None
    }

    /// Returns the content of the answer so far.
    fn summary(&self) -> AnswerSummary;

    /// Returns the content of an answer that ended without an image.
    fn without_image(&self, form: AnswerForm) -> Option<AnswerWithoutImage>;
}
