//! Sends the form of the playground as a request for images, and shows its outcome.
//!
//! The nonce of the form is the idempotency key of the request. So a form that is sent twice is one request, also on
//! another node, and the answer is kept for a while: the pictures of a page come from it. The address of that page is known
//! before the form is sent, and is valid in every session of the user.

use std::time::Duration;

use chrono::Utc;
use http::StatusCode;
use http::header::CONTENT_LOCATION;
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::http_messages::{PageBody, PageResponse};
use super::limit_bars::refusal_text;
use super::page_context::PageContext;
use super::page_error::PageError;
use super::playground::{self, NEW_KEY};
use super::playground_key::{chosen_key, created_key};
use super::stored_images::image_response;
use crate::error::Error;
use crate::gateway::admission::CountedJson;
use crate::gateway::flow::{self, GatewayAnswer, RequestOptions};
use crate::gateway::front::json_text_error;
use crate::gateway::replay::AnswerView;
use crate::gateway::spool::EditForm;
use crate::wire::admin::types;

/// The number of intermediate images that the script asks for (our choice), unless the model makes fewer.
const PARTIAL_IMAGES: u32 = 2;
/// The word for a property that the model chooses.
const AUTO: &str = "auto";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";
/// The status and the code of an error that cost nothing.
const UNAVAILABLE: u16 = StatusCode::SERVICE_UNAVAILABLE.as_u16();
const SERVICE_UNAVAILABLE: &str = "service_unavailable";
/// The time after which a browser without a script gets the page of a request that is in progress (our choice): short for
/// a person who waits, and longer than the simulator takes.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A request that was sent, and its outcome.
pub(super) struct PlaygroundRun {
    /// The id of the key, or [`NEW_KEY`].
    pub(super) key: String,
    /// The path of the page that shows the request.
    pub(super) path: String,
    /// True if the request is in progress.
    pub(super) is_running: bool,
    /// The record; `None` if the request ended without cost, or was never sent, or is about to get its record.
    pub(super) record: Option<types::Record>,
    /// The paths of the images that are kept.
    pub(super) images: Vec<String>,
}

/// A property of the images, as it was requested and as it was delivered.
pub(super) struct ComparedProperty {
    /// The key of the text for the property.
    pub(super) label: &'static str,
    pub(super) requested: String,
    pub(super) delivered: String,
    pub(super) is_match: bool,
}

/// Sends the form, and shows its outcome: to a script as the events of the API, and otherwise by a redirect to a page.
pub(super) async fn submit(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let form = context.request.take_image_form().unwrap_or_else(|| EditForm {
        fields: playground::api_fields(&playground::submitted_form(context)),
        images: Vec::new(),
        mask: None,
        ..EditForm::default()
    });
    let nonce = context.request.form_field("nonce").to_owned();
    if !context.is_valid_run_nonce(&nonce) {
        let text = context.texts.get("error.stale");
        return playground::render_refusal(context, StatusCode::UNPROCESSABLE_ENTITY, text).await;
    }
    let key = match chosen_key(context).await? {
        Ok(key) => key,
        Err(error) => return refuse(context, &error).await,
    };
    match begin(context, &key, nonce.clone(), form).await {
        Ok(answer) if answer.head.status == StatusCode::TOO_MANY_REQUESTS.as_u16() => {
            show_too_many_requests(context, answer, &run_path(&key.id, &nonce)).await
        }
        // Only a request whose answer has no disk space gets this before it has a record.
        Ok(answer) if answer.head.status == UNAVAILABLE && !context.request.wants_events => {
            let body = read_error_body(answer).await?;
            match body["error"]["message"].as_str().filter(|_| body["error"]["code"] == SERVICE_UNAVAILABLE) {
                Some(text) => playground::render_refusal(context, StatusCode::SERVICE_UNAVAILABLE, text).await,
                None => Ok(PageResponse::redirect(&run_path(&key.id, &nonce))),
            }
        }
        // The header tells the script where the outcome is shown.
        Ok(answer) if context.request.wants_events => {
            Ok(send_events(answer).with_header(CONTENT_LOCATION, &run_path(&key.id, &nonce)))
        }
        Ok(answer) => {
            // The answer is stored while it is read; the next page shows it.
            if let Err(error) = answer.body.collect().await {
                tracing::warn!(%error, "the answer for a page broke off");
            }
            Ok(PageResponse::redirect(&run_path(&key.id, &nonce)))
        }
        Err(error @ Error::InProgress) => {
            let path = run_path(&key.id, &nonce);
            if context.request.wants_events {
                // The request goes on. The script looks there for its outcome.
                return Ok(refuse(context, &error).await?.with_header(CONTENT_LOCATION, &path));
            }
            Ok(PageResponse::redirect(&path))
        }
        Err(error) => refuse(context, &error).await,
    }
}

/// Shows a request of the user and its outcome.
pub(super) async fn show(context: &PageContext<'_>, key: &str, nonce: &str) -> Result<PageResponse, PageError> {
    let (key, run) = find_run(context, key, nonce).await?;
    let path = run_path(&key, nonce);
    let mut outcome = PlaygroundRun { key, path, is_running: false, record: None, images: Vec::new() };
    if let Some(run) = run {
        outcome.record = match context.console().retrieve_record(context.actor()?, run.id.request_id.as_str()).await {
            Ok(record) => Some(record),
            // The record is opened just after the claim of the request.
            Err(Error::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        // The record is closed before the answer is kept.
        let is_open = outcome.record.as_ref().is_some_and(|record| record.state == types::RecordState::Running);
        outcome.is_running = run.is_running || is_open;
        if run.is_successful() {
            let count = outcome.record.as_ref().map_or(0, |record| record.delivered.len());
            outcome.images = (0..count).map(|index| format!("{}/{index}", outcome.path)).collect();
        }
    }
    playground::render_run(context, outcome).await
}

/// Sends the file of an image of a request of the user.
pub(super) async fn send_image(
    context: &PageContext<'_>,
    key: &str,
    nonce: &str,
    index: &str,
) -> Result<PageResponse, PageError> {
    let index: usize = index.parse().map_err(|_| PageError::NotFound)?;
    let (_, run) = find_run(context, key, nonce).await?;
    let image = flow::open_image(&context.gateway.images.cutoff, run.ok_or(PageError::NotFound)?, index).await;
    Ok(image_response(image.ok_or(PageError::NotFound)?, index))
}

/// Returns the id of the key, and the request of the user that was sent with this key and nonce, if it is known. The first
/// request of a new user makes its key, so its address has [`NEW_KEY`].
async fn find_run(
    context: &PageContext<'_>,
    key: &str,
    nonce: &str,
) -> Result<(String, Option<AnswerView>), PageError> {
    if !context.is_own_run_nonce(nonce) {
        return Err(PageError::NotFound);
    }
    let key = if key == NEW_KEY {
        let Some(key) = created_key(context).await? else { return Ok((NEW_KEY.to_owned(), None)) };
        key
    } else {
        context.console().retrieve_key(context.actor()?, key).await?
    };
    let is_own = context.own_user_id().is_some_and(|user| user.as_str() == key.user);
    let caller = playground::own_caller(context, &key).await.map_err(|error| match error {
        // The key cannot be used any more. The list of recent requests leads to the pictures that it has made.
        Error::InvalidKey if is_own => PageError::Redirect(playground::PATH.to_owned()),
        Error::InvalidKey => PageError::NotFound,
        error => error.into(),
    })?;
    let run = flow::find_image_run(&context.gateway.images.replay, &caller, nonce).await?;
    Ok((key.id, run))
}

/// Sends the request under a key of the user.
async fn begin(
    context: &PageContext<'_>,
    key: &types::Key,
    nonce: String,
    mut form: EditForm,
) -> Result<GatewayAnswer, Error> {
    let services = &context.gateway.images;
    let caller = playground::own_caller(context, key).await?;
    playground::drop_png_compression(&mut form.fields);
    // The API has no events for several images; the script then reads one JSON answer.
    let is_single = form.fields.get("n").and_then(Value::as_u64).is_none_or(|n| n == 1);
    if context.request.wants_events && is_single {
        let model = form.fields.get("model").and_then(Value::as_str);
        let max = services.settings.image_models.all().find(|known| Some(known.id.as_str()) == model);
        form.fields.insert("stream".to_owned(), true.into());
        let count = max.map_or(PARTIAL_IMAGES, |model| model.max_partial_images.min(PARTIAL_IMAGES));
        form.fields.insert("partial_images".to_owned(), count.into());
    }
    services.keys.note_request(&caller);
    let options = RequestOptions::with_idempotency_key(&context.request.request_id, nonce, &context.request.admission);
    // A page without a script, and one that is loaded again, show the images of the stored answer.
    let mut options = options.with_stored_answer();
    if !context.request.wants_events {
        options = options.with_preferred_wait(WAIT_MAX.min(services.settings.config.answer_deadline));
    }
    if form.images.is_empty() {
        let body = Value::Object(form.fields).to_string();
        let body = CountedJson::new(options.admission(), &body).map_err(|error| json_text_error(&error))?;
        Ok(Box::pin(flow::create_image(services, caller, options, &body)).await?.answer)
    } else {
        Ok(Box::pin(flow::edit_image(services, caller, options, form)).await?.answer)
    }
}

/// Answers a request that was refused: to a script with the error of the API.
async fn refuse(context: &PageContext<'_>, error: &Error) -> Result<PageResponse, PageError> {
    if !context.request.wants_events {
        return playground::render_error(context, error).await;
    }
    let status = StatusCode::from_u16(error.code().status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok(PageResponse::new(status, JSON, error.body().to_string().into()))
}

/// Shows an answer that asks for fewer requests: the refusal of a limit in words, and any other as usual. The error is the
/// body of an answer, because it belongs to the nonce of the form like any answer.
async fn show_too_many_requests(
    context: &PageContext<'_>,
    answer: GatewayAnswer,
    path: &str,
) -> Result<PageResponse, PageError> {
    let mut body = read_error_body(answer).await?;
    let text = refusal_text(context.texts, &body["error"], Utc::now());
    let status = StatusCode::TOO_MANY_REQUESTS;
    match text {
        Some(text) if !context.request.wants_events => playground::render_refusal(context, status, &text).await,
        None if !context.request.wants_events => Ok(PageResponse::redirect(path)),
        text => {
            if let Some(text) = text {
                body["error"]["message"] = text.into();
            }
            Ok(PageResponse::new(status, JSON, body.to_string().into()).with_header(CONTENT_LOCATION, path))
        }
    }
}

async fn read_error_body(answer: GatewayAnswer) -> Result<Value, PageError> {
    let body = answer.body.collect().await.map_err(|error| {
        tracing::warn!(%error, "the answer for a page broke off");
        PageError::Unavailable
    })?;
    Ok(serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
}

fn send_events(answer: GatewayAnswer) -> PageResponse {
    let status = StatusCode::from_u16(answer.head.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = if answer.is_stream() { EVENTS } else { JSON };
    PageResponse::with_body(status, content_type, PageBody::Events(answer.body))
}

/// The path of the page that shows a request that was sent.
fn run_path(key: &str, nonce: &str) -> String {
    format!("{}/{key}/{nonce}", playground::PATH)
}

// === impl PlaygroundRun ===

impl PlaygroundRun {
    /// The state as the script reads it: `unknown` if the request ended without cost, or was never sent.
    pub(super) const fn state(&self) -> &'static str {
        match (self.is_running, &self.record) {
            (true, _) => "running",
            (false, Some(_)) => "ended",
            (false, None) => "unknown",
        }
    }

    /// Compares the delivered images with the request. Nothing is compared if no image was delivered.
    pub(super) fn comparison(&self) -> Vec<ComparedProperty> {
        let Some(record) = self.record.as_ref().filter(|record| !record.delivered.is_empty()) else {
            return Vec::new();
        };
        let of = |property: fn(&types::RecordImage) -> Option<&String>| {
            let mut values: Vec<&str> = record.delivered.iter().filter_map(property).map(String::as_str).collect();
            values.dedup();
            values.join(", ")
        };
        let count = record.n.map(|n| n.to_string()).unwrap_or_else(|| "1".to_owned());
        let rows = [
            ("records.size", record.size.clone(), of(|image| image.size.as_ref())),
            ("records.quality", record.quality.clone(), of(|image| image.quality.as_ref())),
            ("records.format", record.output_format.clone(), of(|image| image.output_format.as_ref())),
            ("playground.count", Some(count), record.delivered.len().to_string()),
        ];
        let compared = rows.into_iter().filter(|(_, _, delivered)| !delivered.is_empty());
        compared
            .map(|(label, requested, delivered)| {
                let requested = requested.unwrap_or_else(|| AUTO.to_owned());
                let is_match = requested == AUTO || requested == delivered;
                ComparedProperty { label, requested, delivered, is_match }
            })
            .collect()
    }
}
