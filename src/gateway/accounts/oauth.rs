//! The words of OAuth 2.0 (RFC 6749), pure: what is asked of a token endpoint, and what its answer means.
//!
//! Refuses to know how the question travels ([`TokenEndpoint`] is the seam) and what becomes of an account.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Uri};
use serde_json::{Map, Value};

use super::Address;
use crate::gateway::config::{ClientAuth, Grant, Oauth, Secret};

/// The life of a token whose endpoint does not state one (ours): short, because a wrong guess costs refused attempts.
const LIFE_UNSTATED: Duration = Duration::from_secs(300);
/// No token is believed for longer than this (ours).
const LIFE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// An answer larger than this is no token.
const ANSWER_MAX: usize = 64 * 1024;

/// What no repetition mends: the codes of RFC 6749 section 5.2, and what well-known endpoints say of spent refresh tokens.
const PERMANENT: &[&str] = &[
    "invalid_grant",
    "invalid_client",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_request",
    "refresh_token_expired",
    "refresh_token_reused",
    "refresh_token_invalidated",
];

/// The calls that obtain tokens and check credentials. The implementation makes one call, follows no redirect and
/// repeats nothing.
#[async_trait]
pub(crate) trait TokenEndpoint: Send + Sync {
    /// One `POST` of a form; whatever status comes back is an answer.
    async fn exchange(&self, request: TokenRequest<'_>) -> Result<TokenAnswer, Unreachable>;

    /// The status of one `GET /models` with the credentials, a call that produces nothing and costs nothing.
    async fn probe(&self, address: &Address, authorization: Option<&HeaderValue>) -> Result<u16, Unreachable>;
}

/// A question to a token endpoint.
pub(crate) struct TokenRequest<'a> {
    /// The operator's token address.
    pub(crate) url: &'a Uri,
    /// The body, as `application/x-www-form-urlencoded`.
    pub(crate) form: String,
    /// The client's own credentials, where they do not stand in the form.
    pub(crate) authorization: Option<HeaderValue>,
}

/// What a token endpoint said.
pub(crate) struct TokenAnswer {
    /// The status.
    pub(crate) status: u16,
    /// The body, whole.
    pub(crate) body: Bytes,
}

/// There was no whole answer. Why is for the log of the room that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token endpoint could not be asked")]
pub(crate) struct Unreachable;

/// A token as granted.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) access: String,
    /// The next refresh token, where the endpoint rotates them.
    pub(super) refresh: Option<String>,
    pub(super) life: Duration,
}

/// Why nothing was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No repetition helps; the code is one of a fixed list, so that it can be shown.
    Permanent(&'static str),
    /// Later it may work.
    Transient,
}

/// The question: `refresh` is the newest refresh token known, which wins over the configured one.
pub(super) fn request<'a>(oauth: &'a Oauth, refresh: Option<&str>) -> TokenRequest<'a> {
    let mut form = Form::default();
    match &oauth.grant {
        Grant::RefreshToken(configured) => {
            form.add("grant_type", "refresh_token");
            form.add("refresh_token", refresh.unwrap_or_else(|| configured.expose()));
        }
        Grant::ClientCredentials => form.add("grant_type", "client_credentials"),
    }
    for (name, value) in [("scope", &oauth.scope), ("audience", &oauth.audience)] {
        value.iter().for_each(|value| form.add(name, value));
    }
    let secret = oauth.client_secret.as_ref().map(Secret::expose);
    let id = oauth.client_id.as_deref();
    let authorization = match (oauth.client_auth, id, secret) {
        (ClientAuth::Basic, Some(id), Some(secret)) => Some(basic(id, secret)),
        // A public client has nothing but its name.
        (ClientAuth::Basic | ClientAuth::Body, ..) => {
            id.iter().for_each(|id| form.add("client_id", id));
            secret.iter().for_each(|secret| form.add("client_secret", secret));
            None
        }
    };
    TokenRequest { url: &oauth.token_url, form: form.0, authorization }
}

/// What an answer grants.
pub(super) fn read(answer: &TokenAnswer) -> Result<Granted, Refusal> {
    if answer.body.len() > ANSWER_MAX {
        return Err(Refusal::Transient);
    }
    let body: Value = serde_json::from_slice(&answer.body).map_err(|_| Refusal::Transient)?;
    let members = body.as_object().ok_or(Refusal::Transient)?;
    match answer.status {
        200..300 => granted(members).ok_or(Refusal::Transient),
        400..500 => Err(refusal(members)),
        _ => Err(Refusal::Transient),
    }
}

/// How a granted token is shown to the upstream; no `Debug` shows it.
pub(super) fn bearer(access: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {access}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn granted(members: &Map<String, Value>) -> Option<Granted> {
    let text = |name: &str| members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let access = text("access_token").filter(|access| access.bytes().all(|byte| byte.is_ascii_graphic()))?;
    let bearer = text("token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    bearer.then(|| Granted {
        access: access.to_owned(),
        refresh: text("refresh_token").map(str::to_owned),
        life: life(members.get("expires_in")),
    })
}

/// A number of seconds, which some endpoints write as text.
fn life(stated: Option<&Value>) -> Duration {
    let seconds = stated.and_then(|value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()));
    let seconds = seconds.filter(|seconds| *seconds >= 1.0).map(|seconds| seconds.min(LIFE_MAX.as_secs_f64()));
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(LIFE_UNSTATED)
}

/// The code stands in `error` (RFC 6749), or in an object there.
fn refusal(members: &Map<String, Value>) -> Refusal {
    let error = members.get("error");
    let inner = |name: &str| error.and_then(|error| error.get(name)).and_then(Value::as_str);
    let said = [error.and_then(Value::as_str), inner("code"), inner("type")];
    let known = said.iter().flatten().find_map(|word| PERMANENT.iter().find(|code| *code == word));
    known.map_or(Refusal::Transient, |code| Refusal::Permanent(code))
}

/// Name and secret are encoded like a form before they are joined (RFC 6749 section 2.3.1).
fn basic(id: &str, secret: &str) -> HeaderValue {
    let (mut name, mut word) = (String::new(), String::new());
    encode(id, &mut name);
    encode(secret, &mut word);
    let text = format!("Basic {}", STANDARD.encode(format!("{name}:{word}")));
    // Base64 always fits into a header.
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

#[derive(Default)]
struct Form(String);

// === impl Form ===

impl Form {
    fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        encode(name, &mut self.0);
        self.0.push('=');
        encode(value, &mut self.0);
    }
}

fn encode(text: &str, into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'*' | b'-' | b'.' | b'_' => into.push(char::from(byte)),
            b' ' => into.push('+'),
            _ => {
                let digit = |half: u8| char::from(DIGITS[usize::from(half & 15)]);
                into.extend(['%', digit(byte >> 4), digit(byte)]);
            }
        }
    }
}

impl fmt::Debug for TokenRequest<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenRequest").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl fmt::Debug for Granted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Granted").field("life", &self.life).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
