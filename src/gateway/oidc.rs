//! Identifies people by a provider of OpenID Connect: the authorization code flow with PKCE.
//!
//! This module decides to which address a browser is sent, how a code is exchanged, and which ID token is accepted. It
//! must not know users, sessions or pages: its result is the [`ProviderIdentity`] of a person. It implements OpenID
//! Connect Core 1.0 (section 3.1) and Discovery 1.0, RFC 7636 (PKCE with S256) and RFC 9207 (the issuer in the
//! response).
//!
//! Rules: nothing that a provider sends is trusted before the signature, issuer, audience, time and nonce of its ID
//! token are checked; a symmetric signature is never accepted; a code is sent once; no secret, code or token is logged.

mod id_token;
mod metadata;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Utc;
use http::HeaderValue;
use serde::Deserialize;
use url::form_urlencoded;

use super::accounts::basic_header;
use super::config::OidcConfig;
use super::people::ProviderIdentity;
use super::upstream::{OidcClient, ServiceCallError, TransportError};
use id_token::SigningKeys;
use metadata::ProviderMetadata;

/// The time for which metadata and keys are used (our choice). A token with an unknown key loads them again.
const LIFETIME: Duration = Duration::from_secs(3600);
/// The shortest time after a failed load, and between two loads because of an unknown key (our choice): visitors cause
/// them.
const LOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The time in seconds after which the provider must ask for the credentials again (our choice): the longest time of a
/// session.
const CREDENTIALS_MAX_AGE: &str = "604800";

/// The difference between the clocks of the provider, of other nodes and of this one that is accepted, in seconds (our
/// choice).
pub(crate) const CLOCK_TOLERANCE: i64 = 60;
/// The error for a code that is wrong, was used, or has expired (RFC 6749, section 5.2).
const WRONG_CODE: &str = "invalid_grant";

/// A provider that is configured.
#[derive(Debug)]
pub(crate) struct OidcProvider {
    config: OidcConfig,
    client: OidcClient,
    /// Makes loads take turns.
    loading: tokio::sync::Mutex<()>,
    state: Mutex<LoadState>,
}

#[derive(Debug, Default)]
struct LoadState {
    loaded: Option<Arc<LoadedProvider>>,
    /// The time of the last load that failed, and its error.
    failed: Option<(Instant, OidcError)>,
    /// The time of the last load because of an unknown key.
    reloaded_at: Option<Instant>,
}

/// The published data of a provider.
#[derive(Debug)]
struct LoadedProvider {
    metadata: ProviderMetadata,
    keys: SigningKeys,
    at: Instant,
}

/// The texts by which a response of the provider is recognized. Each is random, for one browser and one response.
pub(crate) struct AuthorizationRequest<'a> {
    /// The address of the gateway to which the provider sends the browser back.
    pub(crate) redirect_uri: &'a str,
    /// The text that the response repeats.
    pub(crate) state: &'a str,
    /// The text that the ID token repeats.
    pub(crate) nonce: &'a str,
    /// The text whose hash is sent now, and which is sent itself with the code.
    pub(crate) verifier: &'a str,
    /// True if the person must enter their credentials at the provider again.
    pub(crate) requires_login: bool,
}

/// The reason why a person could not be identified. The details are for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OidcError {
    /// The provider could not be asked.
    #[error("the provider could not be asked: {0}")]
    Unreachable(#[from] ServiceCallError),
    /// The metadata or the keys of the provider cannot be used.
    #[error("the provider's metadata cannot be used: {0}")]
    Metadata(&'static str),
    /// The provider does not know the code.
    #[error("the provider does not know the code")]
    WrongCode,
    /// The provider refused the request, for example because the secret of the gateway is wrong.
    #[error("the provider refused the request: {0}")]
    Refused(String),
    /// The ID token cannot be trusted.
    #[error("the ID token is not valid: {0}")]
    Token(&'static str),
    /// The person has not the required claim.
    #[error("the required claim is missing")]
    NotPermitted,
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: Option<String>,
    error: Option<String>,
}

// === impl OidcProvider ===

impl OidcProvider {
    /// Prepares the provider; opens no connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the client cannot be prepared.
    pub(crate) fn new(config: &OidcConfig) -> Result<Self, TransportError> {
        let client = OidcClient::new(config.allow_link_local)?;
        Ok(Self { config: config.clone(), client, loading: tokio::sync::Mutex::default(), state: Mutex::default() })
    }

    /// Returns the provider with these settings: the current one, with the data that it has loaded, if its settings are the
    /// same.
    ///
    /// # Errors
    ///
    /// Returns an error if the client cannot be prepared.
    pub(crate) fn renew(
        current: Option<&Arc<Self>>,
        config: Option<&OidcConfig>,
    ) -> Result<Option<Arc<Self>>, TransportError> {
        match (current, config) {
            (Some(provider), Some(config)) if provider.config == *config => Ok(Some(Arc::clone(provider))),
            (_, config) => Ok(config.map(Self::new).transpose()?.map(Arc::new)),
        }
    }

    /// Returns the settings.
    pub(crate) const fn config(&self) -> &OidcConfig {
        &self.config
    }

    /// Loads the metadata and the keys. Returns true if the provider can state when a person has entered their credentials,
    /// as far as it says.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be loaded or used.
    pub(crate) async fn check(&self) -> Result<bool, OidcError> {
        Ok(self.load().await?.metadata.states_login_time)
    }

    /// Returns the address to which the browser is sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the metadata cannot be loaded.
    pub(crate) async fn authorization_url(&self, request: &AuthorizationRequest<'_>) -> Result<String, OidcError> {
        let provider = self.load().await?;
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, request.verifier.as_bytes()));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", request.redirect_uri)
            .append_pair("scope", &self.config.scopes.join(" "))
            .append_pair("state", request.state)
            .append_pair("nonce", request.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        // With a longest age, the ID token states the time at which the person has entered their credentials.
        if request.requires_login {
            query.append_pair("max_age", "0");
            if provider.metadata.takes_prompt_login {
                query.append_pair("prompt", "login");
            }
        } else {
            query.append_pair("max_age", CREDENTIALS_MAX_AGE);
        }
        let endpoint = &provider.metadata.authorization_endpoint;
        let separator = if endpoint.query().is_some() { '&' } else { '?' };
        Ok(format!("{endpoint}{separator}{}", query.finish()))
    }

    /// Checks the issuer that a response states.
    ///
    /// # Errors
    ///
    /// Returns an error if it is another one, or is absent although the provider states it always.
    pub(crate) async fn check_issuer(&self, stated: Option<&str>) -> Result<(), OidcError> {
        let is_right = match stated {
            Some(stated) => stated == self.config.issuer,
            None => !self.load().await?.metadata.states_issuer,
        };
        if is_right { Ok(()) } else { Err(OidcError::Token("the response is of another issuer")) }
    }

    /// Exchanges a code for an ID token, and returns the identity in it.
    ///
    /// # Errors
    ///
    /// Returns an error if the provider gives no token, or one that cannot be trusted, or if the person has not the
    /// required claim.
    pub(crate) async fn redeem(
        &self,
        code: &str,
        request: &AuthorizationRequest<'_>,
    ) -> Result<ProviderIdentity, OidcError> {
        let mut provider = self.load().await?;
        let token = self.exchange(&provider.metadata, code, request).await?;
        if !provider.keys.has_key_of(&token) {
            self.forget_keys();
            provider = self.load().await?;
        }
        let mut claims = provider.keys.verify(&token, &self.config, request.nonce);
        // A token without the id of a key may be signed with a new one.
        if claims.is_err() && !id_token::names_key(&token) && self.forget_keys() {
            claims = self.load().await?.keys.verify(&token, &self.config, request.nonce);
        }
        let claims = claims?;
        if let Some((name, value)) = &self.config.required_claim
            && !claims.contains(name, value)
        {
            return Err(OidcError::NotPermitted);
        }
        Ok(ProviderIdentity {
            issuer: self.config.issuer.clone(),
            name: claims.text(&self.config.name_claim).map(str::to_owned),
            authenticated_at: claims.auth_time.filter(|at| (0..=unix_seconds() + CLOCK_TOLERANCE).contains(at)),
            subject: claims.sub,
        })
    }

    async fn exchange(
        &self,
        metadata: &ProviderMetadata,
        code: &str,
        request: &AuthorizationRequest<'_>,
    ) -> Result<String, OidcError> {
        let (form, authorization) = self.token_request(metadata, code, request);
        let (status, body) = self.client.post_form(&metadata.token_endpoint, form, authorization).await?;
        let answer = serde_json::from_slice::<TokenAnswer>(&body).ok();
        match (status, answer) {
            (200, Some(TokenAnswer { id_token: Some(token), .. })) => Ok(token),
            (200, _) => Err(OidcError::Token("the provider sent none")),
            (_, Some(TokenAnswer { error: Some(error), .. })) if error == WRONG_CODE => Err(OidcError::WrongCode),
            (_, Some(TokenAnswer { error: Some(error), .. })) => Err(OidcError::Refused(printable(&error))),
            (status, _) => Err(ServiceCallError::Status(status).into()),
        }
    }

    /// Returns the form for the token endpoint, and the header with the credentials of the gateway unless they are in the
    /// form.
    fn token_request(
        &self,
        metadata: &ProviderMetadata,
        code: &str,
        request: &AuthorizationRequest<'_>,
    ) -> (String, Option<HeaderValue>) {
        let OidcConfig { client_id, client_secret, .. } = &self.config;
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", request.redirect_uri)
            .append_pair("code_verifier", request.verifier);
        if let Some(secret) = client_secret.as_ref().filter(|_| metadata.takes_basic_authentication) {
            return (form.finish(), Some(basic_header(client_id, secret.expose())));
        }
        form.append_pair("client_id", client_id);
        if let Some(secret) = client_secret {
            form.append_pair("client_secret", secret.expose());
        }
        (form.finish(), None)
    }

    /// Returns the published data, and loads it if it is not known or old.
    async fn load(&self) -> Result<Arc<LoadedProvider>, OidcError> {
        if let Some(result) = self.known() {
            return result;
        }
        let _turn = self.loading.lock().await;
        if let Some(result) = self.known() {
            return result;
        }
        let result = self.fetch().await.map(Arc::new);
        let mut state = self.state();
        match &result {
            Ok(loaded) => state.loaded = Some(Arc::clone(loaded)),
            Err(error) => state.failed = Some((Instant::now(), error.clone())),
        }
        result
    }

    /// Returns the result of an earlier load, unless there must be another one.
    fn known(&self) -> Option<Result<Arc<LoadedProvider>, OidcError>> {
        let state = self.state();
        if let Some(loaded) = state.loaded.as_ref().filter(|loaded| loaded.at.elapsed() < LIFETIME) {
            return Some(Ok(Arc::clone(loaded)));
        }
        let (at, error) = state.failed.as_ref()?;
        (at.elapsed() < LOAD_INTERVAL).then(|| Err(error.clone()))
    }

    /// Forgets the published data, because the provider has changed its keys. Returns false if that has happened a short
    /// time ago.
    fn forget_keys(&self) -> bool {
        let mut state = self.state();
        if state.reloaded_at.is_some_and(|at| at.elapsed() < LOAD_INTERVAL) {
            return false;
        }
        state.reloaded_at = Some(Instant::now());
        state.loaded = None;
        true
    }

    fn state(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fetch(&self) -> Result<LoadedProvider, OidcError> {
        let url = metadata::url(&self.config.issuer);
        let metadata = ProviderMetadata::parse(&self.client.get(&url).await?, &self.config)?;
        let keys = SigningKeys::parse(&self.client.get(&metadata.jwks_uri.to_string()).await?)?;
        Ok(LoadedProvider { metadata, keys, at: Instant::now() })
    }
}

/// Returns the time in seconds since 1970.
fn unix_seconds() -> i64 {
    Utc::now().timestamp()
}

/// The first 64 visible characters (our choice) of an error code, for the log.
fn printable(code: &str) -> String {
    code.chars().filter(char::is_ascii_graphic).take(64).collect()
}

#[cfg(test)]
mod tests;
