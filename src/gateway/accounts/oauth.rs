//! Builds and reads the messages of OAuth 2.0 (RFC 6749). No I/O.
//!
//! The module must not know how a request is sent ([`CredentialService`] is the interface) or what happens to an account.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Uri};
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::UpstreamAddress;
use crate::gateway::config::{ConfigSecret, GrantConfig, OauthClientAuth, OauthConfig};

/// The lifetime of a token for which the endpoint states none (our choice). It is short, because attempts with an
/// expired token are refused.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The maximum lifetime of a token (our choice); a longer stated lifetime is capped.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum size of an answer in bytes (our choice); a larger answer is not accepted as a token.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The codes of permanent errors: those of RFC 6749 section 5.2, and those of well-known endpoints for spent refresh
/// tokens.
const PERMANENT_ERROR_CODES: &[&str] = &[
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
pub(crate) trait CredentialService: Send + Sync {
    /// Sends one `POST` of a form. An answer with any status is returned.
    async fn exchange(&self, request: TokenRequest<'_>) -> Result<TokenResponse, CredentialServiceError>;

    /// Returns the status of one `GET /models` with the credentials, a call that produces nothing and costs nothing.
    async fn probe(
        &self,
        address: &UpstreamAddress,
        authorization: Option<&HeaderValue>,
    ) -> Result<u16, CredentialServiceError>;
}

/// A request to a token endpoint.
pub(crate) struct TokenRequest<'a> {
    /// The token address that the operator has configured.
    pub(crate) url: &'a Uri,
    /// The body, as `application/x-www-form-urlencoded`.
    pub(crate) form: String,
    /// The client's own credentials, if they are not in the form.
    pub(crate) authorization: Option<HeaderValue>,
}

/// The answer of a token endpoint.
pub(crate) struct TokenResponse {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// No complete answer was received, or there are no usable credentials for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there was no complete answer, or there are no usable credentials for the call")]
pub(crate) struct CredentialServiceError;

/// A token as the endpoint granted it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TokenGrant {
    pub(super) access_token: String,
    /// The next refresh token, if the endpoint rotates them.
    pub(super) refresh_token: Option<String>,
    pub(super) lifetime: Duration,
}

/// The reason why no token was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantRefusal {
    /// The same request would be refused again. The code is one of a fixed list, so it can be shown.
    Permanent(&'static str),
    /// A later request may succeed.
    Transient,
}

/// Builds the request. `refresh` is the newest known refresh token, which takes precedence over the configured one.
pub(super) fn token_request<'a>(oauth: &'a OauthConfig, refresh: Option<&str>) -> TokenRequest<'a> {
    let mut form = form_urlencoded::Serializer::new(String::new());
    match &oauth.grant {
        GrantConfig::RefreshToken(configured) => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", refresh.unwrap_or_else(|| configured.expose()));
        }
        GrantConfig::ClientCredentials => {
            form.append_pair("grant_type", "client_credentials");
        }
    }
    let optional_pair = |name: &'static str, value: Option<&'a str>| value.map(|value| (name, value));
    form.extend_pairs(optional_pair("scope", oauth.scope.as_deref()));
    form.extend_pairs(optional_pair("audience", oauth.audience.as_deref()));
    let secret = oauth.client_secret.as_ref().map(ConfigSecret::expose);
    let id = oauth.client_id.as_deref();
    let authorization = match (oauth.client_auth, id, secret) {
        (OauthClientAuth::Basic, Some(id), Some(secret)) => Some(basic_header(id, secret)),
        // The form holds the credentials, or only the id of a public client, which has no secret.
        (OauthClientAuth::Basic | OauthClientAuth::Body, ..) => {
            form.extend_pairs(optional_pair("client_id", id));
            form.extend_pairs(optional_pair("client_secret", secret));
            None
        }
    };
    TokenRequest { url: &oauth.token_url, form: form.finish(), authorization }
}

/// Reads the grant from an answer.
pub(super) fn parse_response(answer: &TokenResponse) -> Result<TokenGrant, GrantRefusal> {
    if answer.body.len() > MAX_ANSWER_BYTES {
        return Err(GrantRefusal::Transient);
    }
    let body: Value = serde_json::from_slice(&answer.body).map_err(|_| GrantRefusal::Transient)?;
    let members = body.as_object().ok_or(GrantRefusal::Transient)?;
    match answer.status {
        200..300 => parse_grant(members).ok_or(GrantRefusal::Transient),
        400..500 => Err(parse_refusal(members)),
        _ => Err(GrantRefusal::Transient),
    }
}

/// Returns the header value for an access token; `Debug` does not show it.
pub(super) fn bearer_header(access: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {access}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the header value for a key of the settings, which have checked that it is valid in a header.
pub(crate) fn key_header(key: &ConfigSecret) -> HeaderValue {
    bearer_header(key.expose()).unwrap_or(HeaderValue::from_static("Bearer"))
}

fn parse_grant(members: &Map<String, Value>) -> Option<TokenGrant> {
    let text = |name: &str| members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let access = text("access_token").filter(|access| access.bytes().all(|byte| byte.is_ascii_graphic()))?;
    let is_bearer = text("token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    is_bearer.then(|| TokenGrant {
        access_token: access.to_owned(),
        refresh_token: text("refresh_token").map(str::to_owned),
        lifetime: parse_lifetime(members.get("expires_in")),
    })
}

/// Reads a number of seconds, which some endpoints send as text.
fn parse_lifetime(stated: Option<&Value>) -> Duration {
    let seconds = stated.and_then(|value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()));
    let seconds = seconds.filter(|seconds| *seconds >= 1.0).map(|seconds| seconds.min(MAX_LIFETIME.as_secs_f64()));
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(DEFAULT_LIFETIME)
}

/// Reads the error code: `error` is the code itself (RFC 6749), or an object with the code in `code` or `type`.
fn parse_refusal(members: &Map<String, Value>) -> GrantRefusal {
    let error = members.get("error");
    let nested = |name: &str| error.and_then(|error| error.get(name)).and_then(Value::as_str);
    let codes = [error.and_then(Value::as_str), nested("code"), nested("type")];
    let known = codes.iter().flatten().find_map(|code| PERMANENT_ERROR_CODES.iter().find(|known| *known == code));
    known.map_or(GrantRefusal::Transient, |code| GrantRefusal::Permanent(code))
}

/// Returns the header value for HTTP basic authentication. Id and secret are form-encoded before they are joined (RFC
/// 6749 section 2.3.1).
pub(crate) fn basic_header(id: &str, secret: &str) -> HeaderValue {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let text = format!("Basic {}", STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret))));
    // Base64 is always a valid header value.
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

impl fmt::Debug for TokenRequest<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenRequest").field("url", &self.url).finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

impl fmt::Debug for TokenGrant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenGrant").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
