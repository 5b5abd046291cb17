//! Calls with forms and streams, which the generator does not support. They use the hooks of the generated client.

use progenitor_client::{ClientHooks as _, Error as WireError, OperationInfo, ResponseValue};
use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{Request, RequestBuilder, Response};

use super::Error;
use super::retry::SendOutcome;
use super::session::TimeLimit;
use super::timer::within;
use super::transport::TransportError;
use crate::wire::client::Client;
use crate::wire::types::ErrorResponse;

/// A call of one operation, before it is sent.
pub(super) struct ApiCall<'a> {
    pub(super) client: &'a Client,
    pub(super) operation: ApiOperation,
    /// The value of the `accept` header.
    pub(super) accept: &'static str,
}

/// An operation of the API document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApiOperation {
    id: &'static str,
    path: &'static str,
}

// === impl ApiOperation ===

impl ApiOperation {
    pub(super) const CREATE_IMAGE: Self = Self { id: "create_image", path: "/v1/images/generations" };
    pub(super) const ESTIMATE_IMAGE: Self = Self { id: "estimate_image", path: "/v1/images/estimate" };
    pub(super) const EDIT_IMAGE: Self = Self { id: "edit_image", path: "/v1/images/edits" };
    pub(super) const CREATE_RESPONSE: Self = Self { id: "create_response", path: "/v1/responses" };

    pub(super) const fn path(self) -> &'static str {
        self.path
    }
}

// === impl ApiCall ===

impl ApiCall<'_> {
    /// Makes the call, and returns the answer if its status is a success. `add_body` adds the body to the request and
    /// is called for each attempt.
    pub(super) async fn send(
        &self,
        add_body: impl Fn(RequestBuilder) -> reqwest::Result<RequestBuilder>,
    ) -> Result<Response, Error> {
        let session = &self.client.inner;
        loop {
            let mut request = self.request(&add_body).await?;
            session.set_retry_header(&mut request);
            let Some(result) = self.attempt(request).await else { return Err(Error::timed_out(session)) };
            // The call is sent again only if the service itself allows it: an error page of a proxy does not tell
            // whether an image was made.
            let outcome = SendOutcome::from_result(&result, TransportError::was_never_sent).without_implicit_retry();
            if !session.has_retries_left() || !session.wait_for_retry(&outcome).await {
                return self.check_response(result).await;
            }
        }
    }

    async fn request(
        &self,
        add_body: impl Fn(RequestBuilder) -> reqwest::Result<RequestBuilder>,
    ) -> Result<Request, Error> {
        let builder = self.client.client.post(format!("{}{}", self.client.baseurl, self.operation.path));
        let built =
            add_body(builder.header(ACCEPT, HeaderValue::from_static(self.accept))).and_then(RequestBuilder::build);
        let to_error = |error| Error::from_stream(error, &self.client.inner);
        let mut request = built.map_err(to_error)?;
        let hooked = self.client.pre(&mut request, &self.info()).await;
        hooked.map_err(|error: WireError<ErrorResponse>| Error::from_call(error, &self.client.inner))?;
        Ok(request)
    }

    /// Sends the request once; returns `None` if an idle limit passes before the answer begins. A total limit needs no
    /// timer here, because it is set on the request.
    async fn attempt(&self, request: Request) -> Option<Result<Response, TransportError>> {
        let sent = self.client.inner.send_once(&self.client.client, request);
        match self.client.inner.limit() {
            TimeLimit::Total(_) => Some(sent.await),
            TimeLimit::Idle(limit) => within(limit, sent).await,
        }
    }

    async fn check_response(&self, result: Result<Response, TransportError>) -> Result<Response, Error> {
        let session = &self.client.inner;
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

    fn info(&self) -> OperationInfo {
        OperationInfo { operation_id: self.operation.id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::OPERATIONS;

    #[test]
    fn the_operations_match_the_api_document() {
        let streams = [ApiOperation::CREATE_IMAGE, ApiOperation::EDIT_IMAGE, ApiOperation::CREATE_RESPONSE];
        for operation in streams.into_iter().chain([ApiOperation::ESTIMATE_IMAGE]) {
            let row = OPERATIONS.iter().find(|row| row.id == operation.id).unwrap();
            let expected = ("POST", operation.path, streams.contains(&operation));
            assert_eq!((row.method, row.path, row.streams), expected);
        }
    }
}
