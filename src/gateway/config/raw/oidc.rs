//! The settings of the OpenID Connect provider as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretSource;

/// A provider of OpenID Connect with which users sign in.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOidc {
    /// The issuer, exactly as the provider states it, such as `https://login.example.com`. The provider's metadata is
    /// read below it, at `/.well-known/openid-configuration`.
    #[schemars(required)]
    pub(crate) issuer: Option<String>,
    /// The id under which the gateway is registered at the provider.
    #[schemars(required)]
    pub(crate) client_id: Option<String>,
    /// The secret of the registration. Default: none; the gateway is then a public client, protected by PKCE alone.
    pub(crate) client_secret: Option<SecretSource>,
    /// The name of the provider on the pages: `Sign in with` and this name. Default: the host of `issuer`.
    pub(crate) label: Option<String>,
    /// The scopes that are asked for; `openid` must be one of them. Default: `["openid", "profile", "email"]`.
    pub(crate) scopes: Option<Vec<String>>,
    /// The claim with the name of a user that is created. Default: `preferred_username`.
    pub(crate) name_claim: Option<String>,
    /// Creates a member for each person who signs in for the first time. Default: `false`; users then connect their
    /// accounts at the provider on their profile. With a provider that is open to everybody, set `required_claim`, too.
    pub(crate) create_users: Option<bool>,
    /// A claim that everybody who signs in must have. Default: none.
    pub(crate) required_claim: Option<RawRequiredClaim>,
    /// Allows a plain `http` `issuer` on another machine: secrets and identities are then sent unencrypted.
    pub(crate) allow_http: Option<bool>,
    /// Allows link-local addresses, at which clouds offer the credentials of a machine. Default: `false`.
    pub(crate) allow_link_local: Option<bool>,
}

/// A claim with a value that it must have, or contain if it is a list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRequiredClaim {
    /// The name of the claim, such as `groups` or `hd`.
    #[schemars(required)]
    pub(crate) name: Option<String>,
    /// The value.
    #[schemars(required)]
    pub(crate) value: Option<String>,
}
