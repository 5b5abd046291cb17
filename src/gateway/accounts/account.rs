//! One account as configured: its endpoint, its groups and its number of slots. State that changes while the account is
//! in use is kept in other modules.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Uri};

use super::cooldown::WorkKind;
use super::oauth;
use super::secret_mask::SecretMask;
use super::token_cache::TokenCache;
use crate::gateway::config::{
    self, AccountCredentials, AccountImageUrls, AccountProtocol, AccountTier, FailurePhrases,
};
use crate::wire::admin::types::AccountKind;

/// An upstream account, ready for use.
#[derive(Debug)]
pub(crate) struct UpstreamAccount {
    name: String,
    kind: AccountKind,
    endpoint: AccountEndpoint,
    auth: AccountAuth,
    /// The secrets that do not change.
    secrets: Arc<SecretMask>,
    paid: bool,
    priority: i32,
    groups: Vec<String>,
    slot_limits: SlotLimits,
    phrases: FailurePhrases,
    implicit: bool,
}

/// The endpoint of an account.
#[derive(Debug)]
pub(crate) enum AccountEndpoint {
    /// No endpoint: the built-in simulator draws the images.
    Simulator,
    /// An upstream that offers the image endpoints.
    Images(UpstreamAddress),
    /// An upstream that offers `/responses` only.
    Responses(ResponsesEndpoint),
}

/// An upstream that offers the Responses API, and the text model that makes images there with the image tool.
#[derive(Debug)]
pub(crate) struct ResponsesEndpoint {
    address: UpstreamAddress,
    model: String,
}

/// The address of an upstream, and the headers that are sent with every call to it. The credentials are in the lease.
#[derive(Debug)]
pub(crate) struct UpstreamAddress {
    base: String,
    headers: HeaderMap,
    fetches_images: bool,
}

/// The way in which a call is authenticated.
#[derive(Debug)]
pub(super) enum AccountAuth {
    Unauthenticated,
    Key(HeaderValue),
    Token(Arc<TokenCache>),
}

/// The maximum number of concurrent calls of an account, and how many of these may be for large images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotLimits {
    pub(super) all: usize,
    pub(super) large: usize,
}

/// True if any call to these upstreams or to their token endpoints uses TLS.
pub(crate) fn need_tls(accounts: &[config::AccountConfig]) -> bool {
    let is_https = |url: &Uri| url.scheme_str() == Some("https");
    accounts.iter().any(|account| match &account.upstream {
        config::UpstreamConfig::Simulator => false,
        config::UpstreamConfig::Api(config::EndpointConfig { base_url, credentials, .. }) => {
            is_https(base_url) || matches!(credentials, AccountCredentials::Oauth(oauth) if is_https(&oauth.token_url))
        }
    })
}

// === impl UpstreamAccount ===

impl UpstreamAccount {
    pub(super) fn new(settings: &config::AccountConfig) -> Self {
        Self {
            name: settings.name.clone(),
            kind: AccountKind::from_upstream(&settings.upstream),
            endpoint: AccountEndpoint::new(&settings.upstream),
            auth: AccountAuth::new(&settings.name, &settings.upstream),
            secrets: Arc::new(secrets_of(&settings.upstream)),
            paid: settings.tier == AccountTier::Paid,
            priority: settings.priority,
            groups: settings.groups.clone(),
            slot_limits: SlotLimits {
                all: slot_count(settings.concurrency),
                large: slot_count(settings.large_concurrency),
            },
            phrases: match &settings.upstream {
                config::UpstreamConfig::Simulator => FailurePhrases::default(),
                config::UpstreamConfig::Api(endpoint) => endpoint.phrases.clone(),
            },
            implicit: settings.implicit,
        }
    }

    /// The name of the account in logs and records.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The endpoint of the account's calls.
    pub(crate) const fn endpoint(&self) -> &AccountEndpoint {
        &self.endpoint
    }

    /// The phrases of errors that the operator has added.
    pub(crate) const fn phrases(&self) -> &FailurePhrases {
        &self.phrases
    }

    pub(super) const fn auth(&self) -> &AccountAuth {
        &self.auth
    }

    /// The secrets of a call with these credentials, and those with which they are fetched.
    pub(super) fn secret_mask(&self, authorization: Option<&HeaderValue>) -> Arc<SecretMask> {
        match (&self.auth, authorization, self.endpoint.address()) {
            (AccountAuth::Token(cache), Some(token), Some(address)) => cache.secret_mask(token, address.headers()),
            _ => Arc::clone(&self.secrets),
        }
    }

    pub(super) const fn kind(&self) -> AccountKind {
        self.kind
    }

    pub(super) fn serves_group(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }

    pub(super) fn serves_only(&self, group: &str) -> bool {
        self.groups.iter().all(|name| name == group)
    }

    /// True if the account can serve this kind of work; `None` stands for a call that any account can serve.
    pub(super) fn supports(&self, work: Option<WorkKind>) -> bool {
        work != Some(WorkKind::Text) || self.endpoint.serves_text()
    }

    /// True if requests of this kind are sent to the account without translation: only a request for images that is sent
    /// to a Responses endpoint is translated, into a request to a text model with the image tool.
    pub(super) fn is_native(&self, work: Option<WorkKind>) -> bool {
        work != Some(WorkKind::Images) || self.endpoint.host_model().is_none()
    }

    /// True if the account exists only because no other is configured.
    pub(super) const fn is_implicit(&self) -> bool {
        self.implicit
    }

    pub(super) const fn is_paid(&self) -> bool {
        self.paid
    }

    pub(super) const fn priority(&self) -> i32 {
        self.priority
    }

    pub(super) const fn slot_limits(&self) -> SlotLimits {
        self.slot_limits
    }
}

/// The secrets of the settings.
fn secrets_of(upstream: &config::UpstreamConfig) -> SecretMask {
    let config::UpstreamConfig::Api(endpoint) = upstream else { return SecretMask::default() };
    let key = match &endpoint.credentials {
        AccountCredentials::ApiKey(key) => Some(key.expose()),
        AccountCredentials::Oauth(_) => None,
    };
    SecretMask::of_call(&endpoint.headers, None, key)
}

fn slot_count(count: NonZeroU32) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX)
}

// === impl AccountAuth ===

impl AccountAuth {
    fn new(name: &str, settings: &config::UpstreamConfig) -> Self {
        let config::UpstreamConfig::Api(endpoint) = settings else { return Self::Unauthenticated };
        match &endpoint.credentials {
            AccountCredentials::ApiKey(key) => Self::Key(oauth::key_header(key)),
            AccountCredentials::Oauth(oauth) => Self::Token(Arc::new(TokenCache::new(name, oauth.clone()))),
        }
    }
}

// === impl AccountKind ===

impl AccountKind {
    fn from_upstream(settings: &config::UpstreamConfig) -> Self {
        match settings {
            config::UpstreamConfig::Simulator => Self::Simulator,
            config::UpstreamConfig::Api(endpoint) => match endpoint.credentials {
                AccountCredentials::ApiKey(_) => Self::ApiKey,
                AccountCredentials::Oauth(_) => Self::Oauth,
            },
        }
    }
}

// === impl AccountEndpoint ===

impl AccountEndpoint {
    /// True if the endpoint can serve responses of text models. Every endpoint can make images.
    const fn serves_text(&self) -> bool {
        matches!(self, Self::Simulator | Self::Responses(_))
    }

    /// The address of the upstream, if there is one.
    pub(crate) const fn address(&self) -> Option<&UpstreamAddress> {
        match self {
            Self::Simulator => None,
            Self::Images(address) => Some(address),
            Self::Responses(endpoint) => Some(&endpoint.address),
        }
    }

    /// The text model that runs the image tool, if images are made with one.
    pub(super) fn host_model(&self) -> Option<&str> {
        match self {
            Self::Simulator | Self::Images(_) => None,
            Self::Responses(endpoint) => Some(endpoint.model()),
        }
    }

    /// True for the built-in simulator.
    pub(crate) const fn is_simulator(&self) -> bool {
        matches!(self, Self::Simulator)
    }

    /// True if one call makes one image, however many are requested.
    pub(crate) const fn makes_single_image(&self) -> bool {
        matches!(self, Self::Responses(_))
    }

    fn new(settings: &config::UpstreamConfig) -> Self {
        let config::UpstreamConfig::Api(endpoint) = settings else { return Self::Simulator };
        let address = UpstreamAddress {
            base: without_trailing_slash(&endpoint.base_url),
            headers: endpoint.headers.clone(),
            fetches_images: endpoint.image_urls == AccountImageUrls::Fetch,
        };
        match endpoint.protocol {
            AccountProtocol::Images => Self::Images(address),
            AccountProtocol::Responses => {
                Self::Responses(ResponsesEndpoint { address, model: endpoint.host_model.clone() })
            }
        }
    }
}

// === impl ResponsesEndpoint ===

impl ResponsesEndpoint {
    /// The address of the upstream.
    pub(crate) const fn address(&self) -> &UpstreamAddress {
        &self.address
    }

    /// The text model that runs the image tool.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }
}

/// Returns the URL without slashes at its end, so that paths, which begin with a slash, can be appended.
fn without_trailing_slash(url: &Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}

// === impl UpstreamAddress ===

impl UpstreamAddress {
    /// Returns the address of one operation; `path` begins with a slash.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// True if the images whose addresses an answer states are fetched.
    pub(crate) const fn fetches_images(&self) -> bool {
        self.fetches_images
    }

    /// Additional headers that the operator has configured.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}
