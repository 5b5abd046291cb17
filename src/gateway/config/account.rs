//! A usable upstream account: the address of its calls, and its credentials.

use std::num::NonZeroU32;

use http::{HeaderMap, Uri};

use super::ConfigSecret;
use super::raw::{AccountImageUrls, AccountKind, AccountProtocol, AccountTier, OauthClientAuth};

/// One upstream account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountConfig {
    /// The unique name.
    pub(crate) name: String,
    /// The upstream that the account belongs to.
    pub(crate) upstream: UpstreamConfig,
    /// The billing tier: paid or free.
    pub(crate) tier: AccountTier,
    /// The groups that the account serves: at least one, and each of them exists.
    pub(crate) groups: Vec<String>,
    /// The priority; the account with the highest one is used first.
    pub(crate) priority: i32,
    /// The number of concurrent standard images.
    pub(crate) concurrency: NonZeroU32,
    /// The number of concurrent large images.
    pub(crate) large_concurrency: NonZeroU32,
    /// True if the account is not configured but was added because no other exists; `serve` reports this.
    pub(crate) implicit: bool,
}

/// The upstream of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there are few accounts, and each is created once")]
pub(crate) enum UpstreamConfig {
    /// The built-in upstream, which draws images itself.
    Simulator,
    /// An API that makes images.
    Api(EndpointConfig),
}

/// An API at an address, and the credentials for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndpointConfig {
    /// The scheme, host, port and path, rebuilt from checked parts. The path does not end in `/`, unless it is `/`.
    pub(crate) base_url: Uri,
    /// The API that the upstream offers.
    pub(crate) protocol: AccountProtocol,
    /// The text model that runs the image tool; only the protocol `responses` uses it.
    pub(crate) host_model: String,
    /// The treatment of the address of an image in place of the image.
    pub(crate) image_urls: AccountImageUrls,
    /// The credentials for a request.
    pub(crate) credentials: AccountCredentials,
    /// Further headers for each request; secret values are marked as sensitive.
    pub(crate) headers: HeaderMap,
    /// The phrases of errors that only this upstream has.
    pub(crate) phrases: FailurePhrases,
}

/// Phrases of the errors and texts of an upstream that operators add to the known ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailurePhrases {
    /// The phrases that refuse content.
    pub(crate) refusals: Vec<String>,
    /// The phrases that state that the usage window is used up.
    pub(crate) limits: Vec<String>,
}

/// The credentials for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there are few accounts, and each is created once")]
pub(crate) enum AccountCredentials {
    /// A fixed key; it fits into a header.
    ApiKey(ConfigSecret),
    /// Access tokens that a token endpoint issues; each expires and is replaced by a new one.
    Oauth(OauthConfig),
}

/// The source of access tokens, and the parameters of a token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OauthConfig {
    /// The token endpoint; never plain http to another machine, unless the account allows it.
    pub(crate) token_url: Uri,
    /// The credential that is exchanged for an access token.
    pub(crate) grant: GrantConfig,
    /// The id of the client; present if the grant or the secret needs it.
    pub(crate) client_id: Option<String>,
    /// The secret of the client; never present without `client_id`.
    pub(crate) client_secret: Option<ConfigSecret>,
    /// The place of the client's credentials in a token request.
    pub(crate) client_auth: OauthClientAuth,
    /// The scope that the token is requested for.
    pub(crate) scope: Option<String>,
    /// The audience that the token is requested for.
    pub(crate) audience: Option<String>,
}

/// The credential that is exchanged for an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GrantConfig {
    /// The initial refresh token; the endpoint may issue others later.
    RefreshToken(ConfigSecret),
    /// The client's own credentials; `client_id` and `client_secret` are then present.
    ClientCredentials,
}

// === impl UpstreamConfig ===

impl UpstreamConfig {
    /// Returns the word for the upstream in the configuration file.
    pub(crate) const fn kind(&self) -> &'static str {
        let kind = match self {
            Self::Simulator => AccountKind::Simulator,
            Self::Api(EndpointConfig { credentials: AccountCredentials::ApiKey(_), .. }) => AccountKind::ApiKey,
            Self::Api(EndpointConfig { credentials: AccountCredentials::Oauth(_), .. }) => AccountKind::Oauth,
        };
        kind.as_str()
    }

    /// The API that the upstream offers; `None` for the simulator.
    pub(crate) const fn protocol(&self) -> Option<AccountProtocol> {
        match self {
            Self::Simulator => None,
            Self::Api(endpoint) => Some(endpoint.protocol),
        }
    }
}
