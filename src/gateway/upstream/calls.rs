//! Small calls that make no image: a prompt is judged, a token fetched, an account looked at or asked for its models.
//!
//! Decides how much of an answer is read, and what in it is a judgement. Refuses to know what follows from it.
//! Rules: one request, at most one answer, no redirect, nothing sent twice; at most so many bytes and so long, whatever
//! the other side does; what is displayed names no host, and no credential goes anywhere but into its header or body.

use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::Upstream;
use super::transport::{Kind, RequestBody, ResponseBody, SendError, Transport};
use crate::gateway::accounts::{Address, TokenAnswer, TokenEndpoint, TokenRequest, Unreachable};
use crate::gateway::config::Moderation;

/// A judgement or a token is a fraction of this.
const ANSWER_MAX: usize = 64 * 1024;
/// A list of models is long where each is described.
const MODELS_MAX: usize = 2 * 1024 * 1024;
/// A token endpoint or an upstream that is looked at may take so long (ours).
const PATIENCE: Duration = Duration::from_secs(15);
/// A list of models may take so long (ours): it comes out of memory.
const LISTING: Duration = Duration::from_secs(10);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// There was no answer that could be used. Why is logged where it is known; this is safe to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallFailed {
    /// Nobody answered, or not in HTTP.
    #[error("the service could not be reached")]
    Unreachable,
    /// Not in time.
    #[error("the service did not answer in time")]
    Timeout,
    /// It does not do what it was asked for.
    #[error("the service answered with status {0}")]
    Status(u16),
    /// Not what was asked for, or too much of it.
    #[error("the service gave an answer that cannot be used")]
    Unusable,
}

// === impl Upstream ===

impl Upstream {
    /// Asks the service of a group whether a prompt is to be refused.
    ///
    /// # Errors
    ///
    /// Where it gave no judgement; what then becomes of the prompt is the operator's choice.
    pub(crate) async fn moderate(&self, service: &Moderation, prompt: &str) -> Result<bool, CallFailed> {
        let body = json!({"model": service.model, "input": prompt}).to_string();
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, JSON)]);
        headers.extend(service.api_key.as_ref().map(|key| (AUTHORIZATION, bearer(key.expose()))));
        let call = Call { what: "moderation", method: Method::POST, headers, body, most: ANSWER_MAX };
        let url = format!("{}/moderations", service.base_url.to_string().trim_end_matches('/'));
        let (status, answer) = call.make(&self.transport, &url, Instant::now() + service.timeout).await?;
        if status != 200 {
            tracing::warn!(status, "the moderation service gave no judgement");
            return Err(CallFailed::Status(status));
        }
        flagged(&answer).ok_or(CallFailed::Unusable)
    }

    /// Posts a form to a token endpoint; whatever status comes back is an answer.
    async fn post_form(
        &self,
        url: &Uri,
        form: String,
        authorization: Option<HeaderValue>,
    ) -> Result<(u16, Bytes), CallFailed> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, FORM)]);
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let call = Call { what: "token", method: Method::POST, headers, body: form, most: ANSWER_MAX };
        call.make(&self.transport, &url.to_string(), Instant::now() + PATIENCE).await
    }

    /// Looks whether an account is let in, without making anything: the status of its list of models.
    ///
    /// # Errors
    ///
    /// Where there was no answer.
    pub(crate) async fn probe(
        &self,
        address: &Address,
        authorization: Option<&HeaderValue>,
    ) -> Result<u16, CallFailed> {
        let mut headers = address.headers().clone();
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        self.look(&address.join("/models"), headers).await
    }

    /// The list of models of an account, as it came.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub(crate) async fn list_models(
        &self,
        address: &Address,
        authorization: Option<&HeaderValue>,
    ) -> Result<Bytes, CallFailed> {
        let mut headers = address.headers().clone();
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        self.listing(&address.join("/models"), headers).await
    }

    async fn listing(&self, url: &str, headers: HeaderMap) -> Result<Bytes, CallFailed> {
        let call = Call { what: "models", method: Method::GET, headers, body: String::new(), most: MODELS_MAX };
        let (status, answer) = call.make(&self.transport, url, Instant::now() + LISTING).await?;
        if status == 200 { Ok(answer) } else { Err(CallFailed::Status(status)) }
    }

    /// The list itself may be of any length; the status is what counts.
    async fn look(&self, url: &str, headers: HeaderMap) -> Result<u16, CallFailed> {
        let call = Call { what: "probe", method: Method::GET, headers, body: String::new(), most: ANSWER_MAX };
        let response = call.send(&self.transport, url, Instant::now() + PATIENCE).await?;
        Ok(response.status().as_u16())
    }
}

#[async_trait]
impl TokenEndpoint for Upstream {
    async fn exchange(&self, request: TokenRequest<'_>) -> Result<TokenAnswer, Unreachable> {
        let TokenRequest { url, form, authorization } = request;
        let (status, body) = self.post_form(url, form, authorization).await.map_err(|_| Unreachable)?;
        Ok(TokenAnswer { status, body })
    }

    async fn probe(&self, address: &Address, authorization: Option<&HeaderValue>) -> Result<u16, Unreachable> {
        Self::probe(self, address, authorization).await.map_err(|_| Unreachable)
    }
}

/// One small call.
struct Call {
    /// For the log.
    what: &'static str,
    method: Method,
    headers: HeaderMap,
    body: String,
    /// So much of an answer is read.
    most: usize,
}

// === impl Call ===

impl Call {
    /// Makes the call and reads the whole answer.
    async fn make(self, transport: &Transport, url: &str, until: Instant) -> Result<(u16, Bytes), CallFailed> {
        let (what, most) = (self.what, self.most);
        let response = self.send(transport, url, until).await?;
        let (head, body) = response.into_parts();
        if head.headers.get_all(CONTENT_ENCODING).iter().any(|coding| coding != "identity") {
            tracing::warn!(what, "a service compressed an answer although it was asked not to");
            return Err(CallFailed::Unusable);
        }
        let read = timeout_at(until, whole(body, most)).await.unwrap_or(Err(CallFailed::Timeout));
        let answer =
            read.inspect_err(|failed| tracing::warn!(what, %failed, "a service's answer could not be read"))?;
        Ok((head.status.as_u16(), answer))
    }

    async fn send(
        self,
        transport: &Transport,
        url: &str,
        until: Instant,
    ) -> Result<Response<ResponseBody>, CallFailed> {
        let what = self.what;
        let request = self.request(url).map_err(|error| {
            tracing::error!(what, %error, "a request to a service could not be made");
            CallFailed::Unreachable
        })?;
        transport.send(request, until).await.map_err(|error| not_sent(what, &error))
    }

    fn request(self, url: &str) -> Result<Request<RequestBody>, http::Error> {
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

fn not_sent(what: &str, error: &SendError) -> CallFailed {
    tracing::warn!(what, error = error as &dyn std::error::Error, "a service could not be asked");
    if error.kind == Kind::Timeout { CallFailed::Timeout } else { CallFailed::Unreachable }
}

/// All of a body that is not too large.
async fn whole(mut body: ResponseBody, most: usize) -> Result<Bytes, CallFailed> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| CallFailed::Unreachable)?.into_data() else { continue };
        if read.len() + data.len() > most {
            return Err(CallFailed::Unusable);
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

/// Whether any result is flagged; nothing where it is no judgement of all of them.
fn flagged(answer: &[u8]) -> Option<bool> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let results = answer.get("results")?.as_array().filter(|results| !results.is_empty())?;
    results.iter().try_fold(false, |any, result| Some(any | result.get("flagged")?.as_bool()?))
}

/// The configuration has checked that the key fits into a header.
fn bearer(key: &str) -> HeaderValue {
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).unwrap_or(HeaderValue::from_static("Bearer"));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests;
