//! What the events of a response mean. Whatever they mean, they are kept as they came.

use serde_json::Value;

use super::answer::Response;
use super::image::ResponseImage;
use super::item::OutputItem;
use crate::client::Error;
use crate::client::open::Json;
use crate::client::session::Session;
use crate::client::sse::Event;

const ERROR: &str = "error";

/// Something that happened while a task was run.
#[derive(Clone, Debug)]
pub struct ResponseEvent {
    json: Json,
    kind: String,
    step: ResponseStep,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ResponseStep {
    /// The service has accepted the task.
    #[non_exhaustive]
    Created {
        /// The response as far as it is.
        response: Response,
    },
    /// The service works at it.
    #[non_exhaustive]
    InProgress {
        /// The response as far as it is.
        response: Response,
    },
    /// The model begins to do something.
    #[non_exhaustive]
    ItemAdded {
        /// Its place in the output.
        index: u64,
        /// As far as it is.
        item: OutputItem,
    },
    /// The model has done something. Here is the image that was drawn.
    #[non_exhaustive]
    ItemDone {
        /// Its place in the output.
        index: u64,
        /// All of it.
        item: OutputItem,
    },
    /// A call of the image tool goes on: `in_progress`, `generating`, then `completed`.
    #[non_exhaustive]
    ImageCall {
        /// Its place in the output.
        index: u64,
        /// The id of the item.
        item_id: String,
        /// How far it is.
        status: String,
    },
    /// An intermediate image.
    #[non_exhaustive]
    PartialImage {
        /// Counts the intermediate images of the call from 0.
        index: u64,
        /// The id of the item.
        item_id: String,
        /// The image as far as it is.
        image: ResponseImage,
    },
    /// The model says something.
    #[non_exhaustive]
    TextDelta {
        /// The next letters.
        delta: String,
    },
    /// The model has said something.
    #[non_exhaustive]
    TextDone {
        /// All of it.
        text: String,
    },
    /// All is done; nothing comes after it.
    #[non_exhaustive]
    Completed {
        /// The whole response.
        response: Response,
    },
    /// It was cut short; nothing comes after it.
    #[non_exhaustive]
    Incomplete {
        /// What there is of the response.
        response: Response,
    },
    /// It failed; why is in the error that comes next.
    #[non_exhaustive]
    Failed {
        /// What there is of the response.
        response: Response,
    },
    /// Anything else; see [`ResponseEvent::json`].
    Other,
}

/// What a frame of the stream says.
pub(super) enum Said {
    Event(Box<ResponseEvent>),
    /// It failed.
    Failure(Error),
    /// Nothing: the mark that ends the streams of some services.
    Nothing,
}

// === impl ResponseEvent ===

impl ResponseEvent {
    /// What happened.
    #[must_use]
    pub const fn step(&self) -> &ResponseStep {
        &self.step
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_step(self) -> ResponseStep {
        self.step
    }

    /// The word for it, such as `response.output_text.delta`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The event as it came.
    #[must_use]
    pub const fn json(&self) -> &Json {
        &self.json
    }

    /// A response that came whole where events were asked for.
    pub(super) fn of_response(response: Response) -> Self {
        let kind = "response.completed".to_owned();
        Self { json: response.json().clone(), kind, step: ResponseStep::Completed { response } }
    }

    /// What there is of the response where nothing comes after this.
    pub(super) const fn last(&self) -> Option<&Response> {
        match &self.step {
            ResponseStep::Completed { response }
            | ResponseStep::Incomplete { response }
            | ResponseStep::Failed { response } => Some(response),
            _ => None,
        }
    }
}

/// Reads a frame.
pub(super) fn read(event: Event, session: &Session) -> Result<Said, Error> {
    if event.data == b"[DONE]" || event.data.is_empty() {
        return Ok(Said::Nothing);
    }
    let unread =
        || Error::unintelligible("an event of the stream is not what this version understands", session.head());
    let text = String::from_utf8(event.data).map_err(|error| unread().because(error))?;
    let json = match Json::read_text(text) {
        Ok(json) => json,
        // Whatever it looks like, it says that it failed.
        Err(_) if event.name == ERROR => return Ok(Said::Failure(Error::in_stream(&Value::Null, session))),
        Err(error) => return Err(unread().because(error)),
    };
    let [kind, error] = json.members(["type", "error"]);
    let has_error = kind.is_none() && error.is_some_and(|error| !error.is_null());
    let kind = kind.and_then(|kind| kind.read()).unwrap_or(event.name);
    if kind == ERROR || has_error {
        return Ok(Said::Failure(Error::in_stream(&json.read().unwrap_or_default(), session)));
    }
    let step = step(&kind, &json, session).unwrap_or(ResponseStep::Other);
    Ok(Said::Event(Box::new(ResponseEvent { json, kind, step })))
}

/// Nothing where it is not known, or lacks what it should have.
fn step(kind: &str, json: &Json, session: &Session) -> Option<ResponseStep> {
    let word = kind.strip_prefix("response.")?;
    let response = || json.member("response").map(|response| Response::new(response, session));
    let text = |name: &str| json.member(name).and_then(|text| text.read::<String>());
    let number = |name: &str| json.member(name).and_then(|number| number.read::<u64>());
    let index = || number("output_index").unwrap_or(0);
    let item = || json.member("item").map(OutputItem::new);
    Some(match word {
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
            status: word.strip_prefix("image_generation_call.")?.to_owned(),
            index: index(),
            item_id: text("item_id").unwrap_or_default(),
        },
    })
}
