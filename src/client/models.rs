//! The calls about the models that the service knows.

use std::time::Duration;

use progenitor_client::{Error as WireError, ResponseValue};
use serde::Serialize;

use super::metadata::AnswerMetadata;
use super::raw_json::{Json, lossy_text};
#[cfg(feature = "cli")]
use super::retry::Retry;
use super::session::{CallOptions, Session, TimeLimit};
use super::{Client, Error, ImageModel};
use crate::wire::types::ErrorResponse;

/// The time limit of a call (our choice). The service answers from memory, so a longer wait is pointless.
const LIMIT: TimeLimit = TimeLimit::Total(Duration::from_secs(30));

/// Calls about models; from [`Client::models`].
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls<'a> {
    client: &'a Client,
}

/// A model that a service lists.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Model {
    /// The name, for [`ModelName`](super::ModelName).
    pub id: String,
    /// The time at which the model was made, in seconds since 1970-01-01 UTC, if the service states it.
    pub created: Option<i64>,
    /// The owner of the model, if the service states it.
    pub owned_by: Option<String>,
    /// Everything that the service states of the model.
    pub json: Json,
}

// === impl ModelCalls ===

impl<'a> ModelCalls<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Returns the models that the service lists. A service may leave out image models and serve them nevertheless.
    ///
    /// # Errors
    ///
    /// Returns an error if the service cannot be reached, refuses the key, or fails.
    pub async fn list(&self) -> Result<Vec<Model>, Error> {
        let call = self.client.call(CallOptions::new(LIMIT));
        let answer = read_answer(call.list_models().await, &call.inner)?;
        Model::read_list(&answer).ok_or_else(|| unreadable(NO_LIST, &answer, &call.inner))
    }

    /// Returns the image models that the key may use, with their parameters. Of the services with this API, only the
    /// gateway has this call.
    ///
    /// # Errors
    ///
    /// Returns an error if the service cannot be reached, refuses the key, does not have the call, or fails.
    pub async fn list_images(&self) -> Result<Vec<ImageModel>, Error> {
        self.read_images(CallOptions::new(LIMIT)).await
    }

    /// Returns the same models as [`ModelCalls::list_images`], for a program that can do without them: the service is asked
    /// once, and not waited for longer than this.
    #[cfg(feature = "cli")]
    pub(crate) async fn list_images_once(&self, limit: Duration) -> Result<Vec<ImageModel>, Error> {
        self.read_images(CallOptions { retry: Some(Retry::NONE), ..CallOptions::new(TimeLimit::Total(limit)) }).await
    }

    async fn read_images(&self, options: CallOptions) -> Result<Vec<ImageModel>, Error> {
        let call = self.client.call(options);
        let answer = read_answer(call.list_image_models().await, &call.inner)?;
        ImageModel::read_list(&answer).ok_or_else(|| unreadable(NO_LIST, &answer, &call.inner))
    }

    /// Returns the model with this name.
    ///
    /// # Errors
    ///
    /// The errors of [`ModelCalls::list`], and status 404 if there is no such model.
    pub async fn retrieve(&self, id: &str) -> Result<Model, Error> {
        let call = self.client.call(CallOptions::new(LIMIT));
        let answer = read_answer(call.retrieve_model(id).await, &call.inner)?;
        Model::read(answer.clone()).ok_or_else(|| unreadable("the answer has no name of a model", &answer, &call.inner))
    }
}

// === impl Model ===

impl Model {
    /// Reads an object with an `id`.
    fn read(json: Json) -> Option<Self> {
        let [id, created, owned_by] = json.members(["id", "created", "owned_by"]);
        Some(Self {
            id: id?.read()?,
            created: created.and_then(|created| created.read()),
            owned_by: owned_by.and_then(|owner| owner.read()),
            json,
        })
    }

    /// Reads the member `data`. Entries without an `id` are left out.
    fn read_list(answer: &Json) -> Option<Vec<Self>> {
        let data = answer.member("data")?;
        data.text().starts_with('[').then(|| data.elements().into_iter().filter_map(Self::read).collect())
    }
}

const NO_LIST: &str = "the answer has no list of models";

/// Returns the error of an answer of JSON whose content is not understood.
fn unreadable(message: &str, answer: &Json, session: &Session) -> Error {
    Error::unintelligible(message, session.head()).with_body(answer.text().to_owned(), &session.secrets())
}

/// Returns the answer as JSON, also if the document demands members that another service leaves out.
fn read_answer<T: Serialize>(
    result: Result<ResponseValue<T>, WireError<ErrorResponse>>,
    session: &Session,
) -> Result<Json, Error> {
    let not_json = |error| Error::unintelligible("the answer is not JSON", session.head()).with_source(error);
    match result {
        Ok(value) => serde_json::to_string(&value.into_inner()).and_then(Json::read_text).map_err(not_json),
        Err(WireError::InvalidResponsePayload(body, _)) if session.head().is_some_and(AnswerMetadata::is_success) => {
            let text = lossy_text(&body);
            Json::read_text(text.clone()).map_err(|error| not_json(error).with_body(text, &session.secrets()))
        }
        Err(error) => Err(Error::from_call(error, session)),
    }
}
