//! An upstream account as usable: where its calls go, and what lets them in.

use std::num::NonZeroU32;

use http::{HeaderMap, Uri};

use super::Secret;
use super::raw::{ClientAuth, GrantKind, Kind, Protocol, Tier};

/// One upstream account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Unique.
    pub(crate) name: String,
    /// What it is an account of.
    pub(crate) upstream: Upstream,
    /// Whether it is paid for.
    pub(crate) tier: Tier,
    /// The groups that it serves: at least one, each of which exists.
    pub(crate) groups: Vec<String>,
    /// The highest goes first.
    pub(crate) priority: i32,
    /// Standard images at once.
    pub(crate) concurrency: NonZeroU32,
    /// Large images at once.
    pub(crate) large_concurrency: NonZeroU32,
    /// Nobody configured it: it is there because nothing else is, and `serve` says so.
    pub(crate) implicit: bool,
}

/// What stands behind an account.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there are a handful of accounts, made once")]
pub(crate) enum Upstream {
    /// The built-in upstream, which draws images itself.
    Simulator,
    /// An API that makes images.
    Api(Endpoint),
}

/// An API at an address, and what it needs to let a request in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Scheme, host, port and path, rebuilt from checked parts; the path does not end in `/`, except when it is only that.
    pub(crate) base_url: Uri,
    /// Which API it is.
    pub(crate) protocol: Protocol,
    /// Which text model runs the image tool, where the protocol has one.
    pub(crate) host_model: String,
    /// What lets a request in.
    pub(crate) credentials: Credentials,
    /// Further headers for each request; secret values are marked as sensitive.
    pub(crate) headers: HeaderMap,
}

/// What lets a request in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there are a handful of accounts, made once")]
pub(crate) enum Credentials {
    /// A key that does not change; fits into a header.
    ApiKey(Secret),
    /// A token that a token endpoint issues, again and again.
    Oauth(Oauth),
}

/// Where access tokens come from, and what they are given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Oauth {
    /// The token endpoint; never plain http off this machine, unless the account allows it.
    pub(crate) token_url: Uri,
    /// What is exchanged for an access token.
    pub(crate) grant: Grant,
    /// Who asks; there whenever the grant or the secret needs it.
    pub(crate) client_id: Option<String>,
    /// The proof of who asks; never without `client_id`.
    pub(crate) client_secret: Option<Secret>,
    /// Where the proof stands.
    pub(crate) client_auth: ClientAuth,
    /// What the token is to allow.
    pub(crate) scope: Option<String>,
    /// Whom the token is for.
    pub(crate) audience: Option<String>,
}

/// What is exchanged for an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// A refresh token: the first one, before the endpoint hands out others.
    RefreshToken(Secret),
    /// The client's own credentials; then `client_id` and `client_secret` are there.
    ClientCredentials,
}

// === impl Upstream ===

impl Upstream {
    /// The word for it in the file.
    pub(crate) const fn kind(&self) -> &'static str {
        let kind = match self {
            Self::Simulator => Kind::Simulator,
            Self::Api(Endpoint { credentials: Credentials::ApiKey(_), .. }) => Kind::ApiKey,
            Self::Api(Endpoint { credentials: Credentials::Oauth(_), .. }) => Kind::Oauth,
        };
        kind.as_str()
    }

    /// Which API it speaks, if it is called at all.
    pub(crate) const fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Simulator => None,
            Self::Api(endpoint) => Some(endpoint.protocol),
        }
    }
}

// === impl Grant ===

impl Grant {
    /// The word for it in the file.
    pub(crate) const fn as_str(&self) -> &'static str {
        let kind = match self {
            Self::RefreshToken(_) => GrantKind::RefreshToken,
            Self::ClientCredentials => GrantKind::ClientCredentials,
        };
        kind.as_str()
    }
}
