//! The events of a response: their meaning, and each event as received.

use super::image::ResponseImage;
use super::item::OutputItem;
use super::response::Response;
use crate::client::Error;
use crate::client::answer_stream::DecodedEvent;
use crate::client::raw_json::{Json, UnreadableText, lossy_text};
use crate::client::session::Session;
use crate::client::sse::SseEvent;

const ERROR: &str = "error";
/// The types of the events that end the stream, with the whole response.
const FINAL_EVENTS: [&str; 3] = ["response.completed", "response.incomplete", "response.failed"];
const UNREADABLE: &str = "this version does not understand an event of the stream";

/// An event of the stream of a response.
#[derive(Clone, Debug)]
pub struct ResponseEvent {
    json: Json,
    kind: String,
    step: ResponseStep,
}

/// The meaning of an event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ResponseStep {
    /// The service has accepted the request.
    #[non_exhaustive]
    Created {
        /// The response in its current state.
        response: Response,
    },
    /// The service works on the response.
    #[non_exhaustive]
    InProgress {
        /// The response in its current state.
        response: Response,
    },
    /// The model begins an item of its output.
    #[non_exhaustive]
    ItemAdded {
        /// The position of the item in the output.
        index: u64,
        /// The item in its current state.
        item: OutputItem,
    },
    /// The model has finished an item. An image that was drawn is in this event.
    #[non_exhaustive]
    ItemDone {
        /// The position of the item in the output.
        index: u64,
        /// The whole item.
        item: OutputItem,
    },
    /// A call of the image tool progresses: `in_progress`, `generating`, then `completed`.
    #[non_exhaustive]
    ImageCall {
        /// The position of the item in the output.
        index: u64,
        /// The id of the item.
        item_id: String,
        /// The state of the call.
        status: String,
    },
    /// An intermediate image.
    #[non_exhaustive]
    PartialImage {
        /// The number of the intermediate image in the call, counted from 0.
        index: u64,
        /// The id of the item.
        item_id: String,
        /// The image in its current state.
        image: ResponseImage,
    },
    /// The model adds to its text.
    #[non_exhaustive]
    TextDelta {
        /// The next part of the text.
        delta: String,
    },
    /// The model has finished a text.
    #[non_exhaustive]
    TextDone {
        /// The whole text.
        text: String,
    },
    /// The response is complete; nothing comes after it.
    #[non_exhaustive]
    Completed {
        /// The whole response.
        response: Response,
    },
    /// The response was cut short; nothing comes after it.
    #[non_exhaustive]
    Incomplete {
        /// The response as far as it was made.
        response: Response,
    },
    /// The response failed; the error that comes next has the reason.
    #[non_exhaustive]
    Failed {
        /// The response as far as it was made.
        response: Response,
    },
    /// Any other event; see [`ResponseEvent::json`].
    Other,
}

// === impl ResponseEvent ===

impl ResponseEvent {
    /// Returns the meaning of the event.
    #[must_use]
    pub const fn step(&self) -> &ResponseStep {
        &self.step
    }

    /// Like [`ResponseEvent::step`], but returns an owned value.
    #[must_use]
    pub fn into_step(self) -> ResponseStep {
        self.step
    }

    /// Returns the type of the event, such as `response.output_text.delta`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the event as it was received; a JSON string if it is not JSON.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }

    /// Creates the last event of a response that arrived as one JSON object although events were requested:
    /// `response.incomplete` if that is its status, otherwise `response.completed`.
    pub(super) fn from_response(response: Response) -> Self {
        let json = response.json().clone();
        let (kind, step) = if response.status() == Some("incomplete") {
            ("response.incomplete", ResponseStep::Incomplete { response })
        } else {
            ("response.completed", ResponseStep::Completed { response })
        };
        Self { json, kind: kind.to_owned(), step }
    }

    /// True for an event that ends the stream.
    pub(super) const fn is_final(&self) -> bool {
        matches!(
            self.step,
            ResponseStep::Completed { .. } | ResponseStep::Incomplete { .. } | ResponseStep::Failed { .. }
        )
    }
}

/// Reads a server-sent event.
pub(super) fn read_sse_event(event: SseEvent, session: &Session) -> Result<DecodedEvent<ResponseEvent>, Error> {
    if event.data == b"[DONE]" || event.data.is_empty() {
        return Ok(DecodedEvent::Nothing);
    }
    let text = String::from_utf8(event.data).unwrap_or_else(|error| lossy_text(error.as_bytes()));
    let (json, [kind, error]) = match Json::read_object(text, ["type", "error"]) {
        Ok(members) => members,
        Err(unreadable) => return read_opaque_event(event.name, unreadable, session),
    };
    let is_untyped_error = kind.is_none() && error.is_some_and(|error| !error.is_null());
    let has_error_name = event.name == ERROR;
    let kind = kind.and_then(|kind| kind.read()).unwrap_or(event.name);
    // An event such as `response.failed` says more than the name of its frame.
    let is_named_error = has_error_name && !kind.starts_with("response.");
    if is_named_error || kind == ERROR || is_untyped_error {
        return Ok(DecodedEvent::Failure(Error::from_stream_event(&json, session)));
    }
    let step = parse_step(&kind, &json, session).unwrap_or(ResponseStep::Other);
    Ok(DecodedEvent::Event(ResponseEvent { json, kind, step }))
}

/// Reads an event whose data is not a JSON object. Only its name tells its type.
fn read_opaque_event(
    kind: String,
    UnreadableText { error, text }: UnreadableText,
    session: &Session,
) -> Result<DecodedEvent<ResponseEvent>, Error> {
    if FINAL_EVENTS.contains(&&*kind) {
        let error = Error::unintelligible(UNREADABLE, session.head()).with_source(error);
        return Err(error.with_body(text, &session.secrets()));
    }
    let json = Json::from_text_or_string(text);
    if kind == ERROR {
        return Ok(DecodedEvent::Failure(Error::from_stream_event(&json, session)));
    }
    Ok(DecodedEvent::Event(ResponseEvent { json, kind, step: ResponseStep::Other }))
}

/// Returns the meaning of an event. `None` if the type is unknown, or if the content (the response, item, text or
/// image) is missing or unreadable. A missing index or id is replaced by 0 or an empty text.
fn parse_step(kind: &str, json: &Json, session: &Session) -> Option<ResponseStep> {
    let suffix = kind.strip_prefix("response.")?;
    let response = || json.member("response").map(|response| Response::new(response, session));
    let text = |name: &str| json.member(name).and_then(|text| text.read::<String>());
    let number = |name: &str| json.member(name).and_then(|number| number.read::<u64>());
    let index = || number("output_index").unwrap_or(0);
    let item = || json.member("item").map(OutputItem::new);
    Some(match suffix {
        "created" => ResponseStep::Created { response: response()? },
        "in_progress" => ResponseStep::InProgress { response: response()? },
        "completed" => ResponseStep::Completed { response: response()? },
        "incomplete" => ResponseStep::Incomplete { response: response()? },
        "failed" => ResponseStep::Failed { response: response()? },
        "output_item.added" => ResponseStep::ItemAdded { index: index(), item: item()? },
        "output_item.done" => ResponseStep::ItemDone { index: index(), item: item()? },
        "output_text.delta" => ResponseStep::TextDelta { delta: text("delta")? },
        "output_text.done" => ResponseStep::TextDone { text: text("text")? },
        "image_generation_call.partial_image" => ResponseStep::PartialImage {
            index: number("partial_image_index").unwrap_or(0),
            item_id: text("item_id").unwrap_or_default(),
            image: ResponseImage::new(json.member("partial_image_b64")?)?,
        },
        _ => ResponseStep::ImageCall {
            status: suffix.strip_prefix("image_generation_call.")?.to_owned(),
            index: index(),
            item_id: text("item_id").unwrap_or_default(),
        },
    })
}
