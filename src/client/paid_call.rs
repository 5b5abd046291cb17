//! A call whose whole answer is paid for, and what happens if that answer is lost.
//!
//! Between the attempts of one request, [`retry`](super::retry) decides. This module decides about an answer that was
//! lost after it may have been paid for: the call is made again with its idempotency key, if the service has shown that
//! it pays for a key once. If that does not give the answer either, the error says that an image may have been paid for.

use std::hash::{Hash as _, Hasher};

use progenitor_client::{Error as WireError, ResponseValue};
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Request, Response};

use super::body_reader::read_body;
use super::form::EditForm;
use super::images::{EVENTS, JSON};
use super::raw_json::JsonRequestBody;
use super::retry::{SendOutcome, is_failure_on_the_way, is_in_progress};
use super::session::{Session, TimeLimit};
use super::timer::{before, within};
use super::transport::TransportError;
use super::unfinished_calls::AutomaticKey;
use super::{Error, ErrorKind};
use crate::wire::client::Client;
use crate::wire::types::{ErrorResponse, ImageGenerationRequest, ResponseRequest};

/// A call whose whole answer is paid for.
pub(super) struct PaidCall {
    pub(super) client: Client,
    pub(super) operation: PaidOperation,
    /// True if the request has an idempotency key of its own, so that the next call with it has the same key.
    pub(super) has_own_key: bool,
    /// The key that the client has given to the call.
    pub(super) automatic_key: Option<AutomaticKey>,
}

/// An operation whose answer is paid for, and its body, which can be sent several times.
pub(super) enum PaidOperation {
    CreateImage(JsonRequestBody<ImageGenerationRequest>),
    CreateResponse(JsonRequestBody<ResponseRequest>),
    EditImage(Box<EditForm>),
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
        let session = self.session();
        loop {
            let mut request = self.operation.request(&self.client).await?;
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
            let Some(result) = self.attempt(request).await else { return Err(Error::timed_out(session)) };
            // The call is sent again only if the service itself allows it: an error page of a proxy does not tell
            // whether an image was made.
            let outcome = SendOutcome::from_result(&result, TransportError::was_never_sent).without_implicit_retry();
            if !session.has_retries_left() || !session.wait_for_retry(&outcome).await {
                return check_response(result, session).await;
            }
        }
    }

    /// Sends the request once; returns `None` if an idle limit passes before the answer begins. A total limit needs no
    /// timer here, because it is set on the request.
    async fn attempt(&self, request: Request) -> Option<Result<Response, TransportError>> {
        let sent = self.session().send_once(&self.client.client, request);
        match self.session().limit() {
            TimeLimit::Total(_) => Some(sent.await),
            TimeLimit::Idle(limit) => within(limit, sent).await,
        }
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

// === impl PaidOperation ===

impl PaidOperation {
    /// Adds to the hash everything that makes two requests equal, including the content of files, which are read for it.
    pub(super) async fn hash<H: Hasher + Send + 'static>(&self, mut hasher: H) -> Result<H, Error> {
        std::mem::discriminant(self).hash(&mut hasher);
        match self {
            Self::CreateImage(body) => body.text().hash(&mut hasher),
            Self::CreateResponse(body) => body.text().hash(&mut hasher),
            Self::EditImage(form) => return form.hash(hasher).await,
        }
        Ok(hasher)
    }

    /// Makes the request for one attempt.
    async fn request(&self, client: &Client) -> Result<Request, Error> {
        let (key, fallback) = (client.inner.idempotency_key(), client.inner.fallback());
        let retry_count = client.inner.retry_count();
        let request = match self {
            Self::CreateImage(body) => client.create_image(key, fallback, retry_count, body).await,
            Self::CreateResponse(body) => client.create_response(key, retry_count, body).await,
            Self::EditImage(_) => client.edit_image(key, fallback, retry_count).await,
        };
        let request = request.map_err(|error| Error::from_call(error, &client.inner))?;
        match self {
            Self::CreateImage(_) | Self::CreateResponse(_) => Ok(request),
            Self::EditImage(form) => {
                form.add_to(request, client).map_err(|error| Error::from_stream(error, &client.inner))
            }
        }
    }
}

/// Returns the answer if its status is a success.
async fn check_response(result: Result<Response, TransportError>, session: &Session) -> Result<Response, Error> {
    let response = result.map_err(|error| Error::from_attempt(error, session))?;
    session.record_head(&response);
    if response.status().is_success() {
        return Ok(response);
    }
    let read = within(session.limit().duration(), ResponseValue::<ErrorResponse>::from_response(response));
    let error = match read.await {
        Some(Ok(value)) => WireError::ErrorResponse(value),
        Some(Err(error)) => error,
        None => return Err(Error::timed_out(session)),
    };
    Err(Error::from_call(error, session))
}

/// Returns true if the answer was or may have been on its way: the connection broke, or a server on the way failed.
fn is_answer_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Broken || error.meta().is_some_and(is_failure_on_the_way)
}
