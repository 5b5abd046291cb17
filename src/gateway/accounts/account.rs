//! One account as configured: where its calls go, whom it serves, and how many calls it takes at once. What changes
//! while it is in use is kept elsewhere.

use std::num::NonZeroU32;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Uri};

use super::keeper::Keeper;
use super::oauth;
use crate::gateway::config::{self, Credentials, Protocol, Tier};

/// An upstream account as usable.
#[derive(Debug)]
pub(crate) struct Account {
    name: String,
    kind: Kind,
    endpoint: Endpoint,
    access: Access,
    paid: bool,
    priority: i32,
    groups: Vec<String>,
    places: Places,
    stand_in: bool,
}

/// Where the calls of an account go.
#[derive(Debug)]
pub(crate) enum Endpoint {
    /// Nowhere: the pictures are drawn here.
    Simulator,
    /// To an upstream that speaks the image endpoints.
    Images(Address),
    /// To an upstream that speaks `/responses` only.
    Responses(Host),
}

/// An upstream whose text model draws with a tool.
#[derive(Debug)]
pub(crate) struct Host {
    address: Address,
    model: String,
}

/// An upstream's address, and what is sent with every call to it. What lets a call in is in the lease.
#[derive(Debug)]
pub(crate) struct Address {
    base: String,
    headers: HeaderMap,
}

/// How a call is let in.
#[derive(Debug)]
pub(super) enum Access {
    Open,
    Key(HeaderValue),
    Token(Arc<Keeper>),
}

/// What kind of account it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A key that does not change.
    ApiKey,
    /// Tokens that are fetched again and again.
    Oauth,
    /// The pictures are drawn here.
    Simulator,
}

/// How many calls an account takes at once; a large one takes one of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) all: usize,
    pub(super) large: usize,
}

/// Whether any call goes out encrypted, to these upstreams or to their token endpoints.
pub(crate) fn need_tls(accounts: &[config::Account]) -> bool {
    let https = |url: &Uri| url.scheme_str() == Some("https");
    accounts.iter().any(|account| match &account.upstream {
        config::Upstream::Simulator => false,
        config::Upstream::Api(config::Endpoint { base_url, credentials, .. }) => {
            https(base_url) || matches!(credentials, Credentials::Oauth(oauth) if https(&oauth.token_url))
        }
    })
}

// === impl Account ===

impl Account {
    pub(super) fn new(written: &config::Account) -> Self {
        Self {
            name: written.name.clone(),
            kind: Kind::of(&written.upstream),
            endpoint: Endpoint::new(&written.upstream),
            access: Access::new(&written.name, &written.upstream),
            paid: written.tier == Tier::Paid,
            priority: written.priority,
            groups: written.groups.clone(),
            places: Places { all: places(written.concurrency), large: places(written.large_concurrency) },
            stand_in: written.implicit,
        }
    }

    /// What logs and records call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its calls go.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) const fn access(&self) -> &Access {
        &self.access
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn serves(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }

    /// Whether it can do what the request speaks.
    pub(super) fn speaks(&self, protocol: Option<Protocol>) -> bool {
        protocol.is_none_or(|protocol| self.endpoint.speaks(protocol))
    }

    /// Whether the request goes there as it is.
    pub(super) fn is_native(&self, protocol: Option<Protocol>) -> bool {
        protocol.is_none_or(|protocol| self.endpoint.is_native(protocol))
    }

    /// Whether it is there only because nothing else is.
    pub(super) const fn is_stand_in(&self) -> bool {
        self.stand_in
    }

    pub(super) const fn paid(&self) -> bool {
        self.paid
    }

    pub(super) const fn priority(&self) -> i32 {
        self.priority
    }

    pub(super) const fn places(&self) -> Places {
        self.places
    }
}

fn places(count: NonZeroU32) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX)
}

// === impl Access ===

impl Access {
    fn new(name: &str, written: &config::Upstream) -> Self {
        let config::Upstream::Api(endpoint) = written else { return Self::Open };
        match &endpoint.credentials {
            // The configuration has checked that the key fits into a header.
            Credentials::ApiKey(key) => {
                Self::Key(oauth::bearer(key.expose()).unwrap_or(HeaderValue::from_static("Bearer")))
            }
            Credentials::Oauth(oauth) => Self::Token(Arc::new(Keeper::new(name, oauth.clone()))),
        }
    }
}

// === impl Kind ===

impl Kind {
    /// The word for it in the file.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::Oauth => "oauth",
            Self::Simulator => "simulator",
        }
    }

    fn of(written: &config::Upstream) -> Self {
        match written {
            config::Upstream::Simulator => Self::Simulator,
            config::Upstream::Api(endpoint) => match endpoint.credentials {
                Credentials::ApiKey(_) => Self::ApiKey,
                Credentials::Oauth(_) => Self::Oauth,
            },
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Whether a request of this kind can be made there. Images can be made everywhere.
    const fn speaks(&self, protocol: Protocol) -> bool {
        matches!((self, protocol), (_, Protocol::Images) | (Self::Simulator | Self::Responses(_), Protocol::Responses))
    }

    /// Whether a request of this kind goes there as it is, and not by way of a text model.
    const fn is_native(&self, protocol: Protocol) -> bool {
        !matches!((self, protocol), (Self::Responses(_), Protocol::Images))
    }

    /// The address of the upstream, where there is one.
    pub(crate) const fn address(&self) -> Option<&Address> {
        match self {
            Self::Simulator => None,
            Self::Images(address) => Some(address),
            Self::Responses(host) => Some(&host.address),
        }
    }

    /// Whether one call makes one image, however many are asked for.
    pub(crate) const fn makes_one(&self) -> bool {
        matches!(self, Self::Responses(_))
    }

    fn new(written: &config::Upstream) -> Self {
        let config::Upstream::Api(endpoint) = written else { return Self::Simulator };
        let address = Address { base: base(&endpoint.base_url), headers: endpoint.headers.clone() };
        match endpoint.protocol {
            Protocol::Images => Self::Images(address),
            Protocol::Responses => Self::Responses(Host { address, model: endpoint.host_model.clone() }),
        }
    }
}

// === impl Host ===

impl Host {
    /// Where its calls go.
    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    /// The text model that runs the image tool.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }
}

/// Without the slash at the end, so that paths can be put behind it.
fn base(url: &Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}

// === impl Address ===

impl Address {
    /// The address of one operation.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Further headers that the operator wants sent.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}
