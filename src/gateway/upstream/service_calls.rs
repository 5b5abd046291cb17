//! Small calls that make no image: prompt moderation, token fetches, account probes and model lists.
//!
//! The module decides how much of an answer is read, and how a moderation result is found in it. It must not know what
//! follows from an answer. Rules: one request, at most one answer, no redirect, nothing sent twice; bytes and time are
//! limited, whatever the other side does; displayed text names no host, and a credential is only in its header or body.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::UpstreamClient;
use super::transport::{BodyErrorKind, RequestBody, ResponseBody, SendError, SendErrorKind, Transport};
use crate::gateway::accounts::{
    CredentialService, CredentialServiceError, SecretMask, TokenRequest, TokenResponse, UpstreamAddress, key_header,
};
use crate::gateway::config::ModerationConfig;

/// The most bytes of a moderation result or a token answer (our choice). Both are usually much smaller.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The most bytes of a list of models (our choice), which is long if each model is described.
const MAX_MODEL_LIST_BYTES: usize = 2 * 1024 * 1024;
/// The longest wait for a token endpoint or a probed upstream (our choice).
const SERVICE_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait for a list of models (our choice). An upstream needs no time to compute it.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// No usable answer was received. The reason is logged at its source; this error is safe to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServiceCallError {
    /// The service did not answer, or its answer was not HTTP.
    #[error("the service could not be reached")]
    Unreachable,
    /// The service did not answer in time.
    #[error("the service did not answer in time")]
    Timeout,
    /// The service answered with this status, which is not a success.
    #[error("the service answered with status {0}")]
    Status(u16),
    /// The answer has the wrong form, or is too large.
    #[error("the service sent an unusable answer")]
    Unusable,
}

// === impl UpstreamClient ===

impl UpstreamClient {
    /// Returns true if the moderation service of a group flags a prompt.
    ///
    /// # Errors
    ///
    /// Returns an error if the service gave no result. The configuration then decides whether the prompt is accepted.
    pub(crate) async fn moderate(&self, service: &ModerationConfig, prompt: &str) -> Result<bool, ServiceCallError> {
        let body = json!({"model": service.model, "input": prompt}).to_string();
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
        headers.extend(service.api_key.as_ref().map(|key| (AUTHORIZATION, key_header(key))));
        let call =
            ServiceCall { log_name: "moderation", method: Method::POST, headers, body, max_bytes: MAX_ANSWER_BYTES };
        let url = format!("{}/moderations", service.base_url.to_string().trim_end_matches('/'));
        let (status, answer) = call.send_and_read(&self.transport, &url, Instant::now() + service.timeout).await?;
        if status != 200 {
            tracing::warn!(status, "the moderation service sent no result");
            return Err(ServiceCallError::Status(status));
        }
        parse_flagged(&answer).ok_or(ServiceCallError::Unusable)
    }

    /// Posts a form to a token endpoint. Returns the status and the body of the answer, whatever the status is.
    async fn post_form(
        &self,
        url: &Uri,
        form: String,
        authorization: Option<HeaderValue>,
    ) -> Result<(u16, Bytes), ServiceCallError> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, FORM)]);
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let call =
            ServiceCall { log_name: "token", method: Method::POST, headers, body: form, max_bytes: MAX_ANSWER_BYTES };
        call.send_and_read(&self.transport, &url.to_string(), Instant::now() + SERVICE_TIMEOUT).await
    }

    /// Checks the credentials of an account by requesting its list of models. Returns the status of the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if there was no answer.
    pub(crate) async fn probe(
        &self,
        address: &UpstreamAddress,
        authorization: Option<&HeaderValue>,
    ) -> Result<u16, ServiceCallError> {
        let mut headers = address.headers().clone();
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        self.fetch_status(&address.join("/models"), headers).await
    }

    /// Returns the list of models of an account, as it was received.
    ///
    /// # Errors
    ///
    /// Returns an error if no list was received.
    pub(crate) async fn list_models(
        &self,
        address: &UpstreamAddress,
        authorization: Option<&HeaderValue>,
    ) -> Result<Bytes, ServiceCallError> {
        let mut headers = address.headers().clone();
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        let secrets = SecretMask::of_headers(&headers);
        self.fetch_model_list(&address.join("/models"), headers).await.map(|list| secrets.mask_bytes(list))
    }

    /// Sends a request for an image that the upstream is expected to refuse. Returns the status of the answer, and its body
    /// if it is a refusal.
    ///
    /// # Errors
    ///
    /// Returns an error if there was no answer, or if it is too long for a refusal.
    pub(crate) async fn request_refusal(
        &self,
        address: &UpstreamAddress,
        authorization: Option<&HeaderValue>,
        fields: &Map<String, Value>,
    ) -> Result<(u16, Bytes), ServiceCallError> {
        let mut headers = address.headers().clone();
        headers.insert(CONTENT_TYPE, JSON);
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        let secrets = SecretMask::of_headers(&headers);
        let body = serde_json::to_string(fields).map_err(|_| ServiceCallError::Unusable)?;
        let call =
            ServiceCall { log_name: "refusal", method: Method::POST, headers, body, max_bytes: MAX_ANSWER_BYTES };
        let until = Instant::now() + SERVICE_TIMEOUT;
        let response = call.send(&self.transport, &address.join("/images/generations"), until).await?;
        let status = response.status();
        if status.is_success() {
            return Ok((status.as_u16(), Bytes::new()));
        }
        let body = read_whole_body(response.into_body(), MAX_ANSWER_BYTES);
        let body = timeout_at(until, body).await.unwrap_or(Err(ServiceCallError::Timeout))?;
        Ok((status.as_u16(), secrets.mask_bytes(body)))
    }

    async fn fetch_model_list(&self, url: &str, headers: HeaderMap) -> Result<Bytes, ServiceCallError> {
        let call = ServiceCall {
            log_name: "models",
            method: Method::GET,
            headers,
            body: String::new(),
            max_bytes: MAX_MODEL_LIST_BYTES,
        };
        let (status, answer) = call.send_and_read(&self.transport, url, Instant::now() + MODEL_LIST_TIMEOUT).await?;
        if status == 200 { Ok(answer) } else { Err(ServiceCallError::Status(status)) }
    }

    /// Returns only the status, because the list itself may have any length.
    async fn fetch_status(&self, url: &str, headers: HeaderMap) -> Result<u16, ServiceCallError> {
        let call = ServiceCall {
            log_name: "probe",
            method: Method::GET,
            headers,
            body: String::new(),
            max_bytes: MAX_ANSWER_BYTES,
        };
        let response = call.send(&self.transport, url, Instant::now() + SERVICE_TIMEOUT).await?;
        Ok(response.status().as_u16())
    }
}

#[async_trait]
impl CredentialService for UpstreamClient {
    async fn exchange(&self, request: TokenRequest<'_>) -> Result<TokenResponse, CredentialServiceError> {
        let TokenRequest { url, form, authorization } = request;
        let (status, body) = self.post_form(url, form, authorization).await.map_err(|_| CredentialServiceError)?;
        Ok(TokenResponse { status, body })
    }

    async fn probe(
        &self,
        address: &UpstreamAddress,
        authorization: Option<&HeaderValue>,
    ) -> Result<u16, CredentialServiceError> {
        Self::probe(self, address, authorization).await.map_err(|_| CredentialServiceError)
    }
}

/// One small call.
pub(super) struct ServiceCall {
    /// The name of the call in the log.
    pub(super) log_name: &'static str,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    /// The most bytes of an answer that are read.
    pub(super) max_bytes: usize,
}

// === impl ServiceCall ===

impl ServiceCall {
    /// Makes the call and reads the whole answer.
    pub(super) async fn send_and_read(
        self,
        transport: &Transport,
        url: &str,
        until: Instant,
    ) -> Result<(u16, Bytes), ServiceCallError> {
        let (log_name, max_bytes) = (self.log_name, self.max_bytes);
        let response = self.send(transport, url, until).await?;
        let (head, body) = response.into_parts();
        let result =
            timeout_at(until, read_whole_body(body, max_bytes)).await.unwrap_or(Err(ServiceCallError::Timeout));
        let answer = result.inspect_err(
            |error| tracing::warn!(what = log_name, failed = %error, "a service's answer could not be read"),
        )?;
        Ok((head.status.as_u16(), answer))
    }

    /// Makes the call, and returns when the head of the answer has arrived.
    pub(super) async fn send(
        self,
        transport: &Transport,
        url: &str,
        until: Instant,
    ) -> Result<Response<ResponseBody>, ServiceCallError> {
        let log_name = self.log_name;
        let request = self.into_request(url).map_err(|error| {
            tracing::error!(what = log_name, %error, "a request to a service could not be built");
            ServiceCallError::Unreachable
        })?;
        transport.send(request, until).await.map_err(|error| service_send_error(log_name, &error))
    }

    fn into_request(self, url: &str) -> Result<Request<RequestBody>, http::Error> {
        let mut request =
            Request::builder().method(self.method).uri(url).body(RequestBody::from(Bytes::from(self.body)))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("imagate/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT, JSON);
        headers.extend(self.headers);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Ok(request)
    }
}

fn service_send_error(log_name: &str, error: &SendError) -> ServiceCallError {
    tracing::warn!(what = log_name, error = error as &dyn std::error::Error, "a request to a service failed");
    if error.kind == SendErrorKind::Timeout { ServiceCallError::Timeout } else { ServiceCallError::Unreachable }
}

/// Reads a whole body of at most `max_bytes`.
async fn read_whole_body(mut body: ResponseBody, max_bytes: usize) -> Result<Bytes, ServiceCallError> {
    let mut received = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.kind {
            BodyErrorKind::Undecodable => ServiceCallError::Unusable,
            BodyErrorKind::Truncated | BodyErrorKind::Reset | BodyErrorKind::Malformed => ServiceCallError::Unreachable,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if received.len() + data.len() > max_bytes {
            return Err(ServiceCallError::Unusable);
        }
        received.extend_from_slice(&data);
    }
    Ok(received.freeze())
}

/// Returns true if any result is flagged; `None` if the answer has no results, or one without a valid flag.
fn parse_flagged(answer: &[u8]) -> Option<bool> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let results = answer.get("results")?.as_array().filter(|results| !results.is_empty())?;
    results.iter().try_fold(false, |any, result| Some(any | result.get("flagged")?.as_bool()?))
}

#[cfg(test)]
mod tests;
