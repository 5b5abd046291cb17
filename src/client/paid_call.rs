//! A call whose whole answer is paid for, and what happens if that answer is lost.
//!
//! Between the attempts of one request, [`retry`](super::retry) decides. This module decides about an answer that was
//! lost after it may have been paid for: the call is made again with its idempotency key, if the service has shown that
//! it pays for a key once. If that does not give the answer either, the error says that an image may have been paid for.

use std::hash::{Hash as _, Hasher};

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Response};

use super::body_reader::read_body;
use super::call::{ApiCall, ApiOperation};
use super::form::EditForm;
use super::images::{EVENTS, JSON};
use super::retry::{is_failure_on_the_way, is_in_progress};
use super::session::Session;
use super::timer::before;
use super::unfinished_calls::AutomaticKey;
use super::{Error, ErrorKind};
use crate::wire::client::Client;

/// A call whose whole answer is paid for.
pub(super) struct PaidCall {
    pub(super) client: Client,
    pub(super) operation: ApiOperation,
    pub(super) body: CallBody,
    /// True if the request has an idempotency key of its own, so that the next call with it has the same key.
    pub(super) has_own_key: bool,
    /// The key that the client has given to the call.
    pub(super) automatic_key: Option<AutomaticKey>,
}

/// The body of a request, which can be sent several times.
pub(super) enum CallBody {
    Json(Bytes),
    Form(Box<EditForm>),
}

// === impl PaidCall ===

impl PaidCall {
    /// Makes the call, and returns the whole body of a successful answer.
    pub(super) async fn read_answer(&mut self) -> Result<Vec<u8>, Error> {
        let answer = before(self.session().deadline(), self.read_attempts()).await;
        answer.unwrap_or_else(|| Err(Error::deadline_exceeded(self.session())))
    }

    async fn read_attempts(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            let result = match self.send(JSON).await {
                Ok(response) => read_body(response, self.session()).await,
                Err(error) => Err(error),
            };
            match result {
                Err(error) if self.prepare_repetition(&error).await => {}
                result => return result,
            }
        }
    }

    /// Returns the session, with the metadata of the last answer.
    pub(super) fn session(&self) -> &Session {
        &self.client.inner
    }

    /// Makes the call for an answer that is read as a stream. After this, the call is not made again.
    pub(super) async fn begin_stream(mut self) -> Result<(Response, Session, Option<AutomaticKey>), Error> {
        let begun = before(self.session().deadline(), self.send(EVENTS)).await;
        match begun.unwrap_or_else(|| Err(Error::deadline_exceeded(self.session()))) {
            Ok(response) => Ok((response, self.client.inner, self.automatic_key)),
            Err(error) => self.finish(Err(error)),
        }
    }

    /// Completes the error of a call that is not made again, and records the end of the call.
    pub(super) fn finish<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        let result = result.map_err(|error| {
            let may_be_paid = self.session().may_be_paid() || error.meta().is_some_and(is_in_progress);
            let error = error.of_call(self.session());
            if may_be_paid && !self.has_own_key { error.needing_same_key() } else { error }
        });
        if let Some(key) = &mut self.automatic_key {
            key.record_end(result.as_ref().err());
        }
        result
    }

    /// Sends the request, again as often as the service allows it, and returns a successful answer whose body has not
    /// been read. `accept` is the value of that header.
    pub(super) async fn send(&self, accept: &'static str) -> Result<Response, Error> {
        let call = ApiCall { client: &self.client, operation: self.operation, accept };
        call.send(|request| self.body.add_to(request)).await
    }

    /// Waits before the call is made again; returns false if it must not be made again after this error.
    pub(super) async fn prepare_repetition(&mut self, error: &Error) -> bool {
        let repeats = is_answer_lost(error) && self.session().wait_for_repetition(error).await;
        if repeats {
            self.client.inner = self.session().for_new_answer();
        }
        repeats
    }
}

// === impl CallBody ===

impl CallBody {
    /// Adds everything to the hash that the body says, also the content of files, which are read for that.
    pub(super) async fn hash<H: Hasher + Send + 'static>(&self, mut hasher: H) -> Result<H, Error> {
        match self {
            Self::Json(body) => {
                body.hash(&mut hasher);
                Ok(hasher)
            }
            Self::Form(form) => form.hash(hasher).await,
        }
    }

    fn add_to(&self, request: RequestBuilder) -> reqwest::Result<RequestBuilder> {
        match self {
            Self::Json(body) => Ok(with_json_body(request, body)),
            Self::Form(form) => with_form(request, form),
        }
    }
}

/// Returns true if the answer was or may have been on its way: the connection broke, or a server on the way failed.
fn is_answer_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Broken || error.meta().is_some_and(is_failure_on_the_way)
}

/// Adds a body of JSON.
pub(super) fn with_json_body(request: RequestBuilder, body: &Bytes) -> RequestBuilder {
    request.header(CONTENT_TYPE, JSON).body(body.clone())
}

fn with_form(request: RequestBuilder, form: &EditForm) -> reqwest::Result<RequestBuilder> {
    Ok(request.multipart(form.write()?))
}
