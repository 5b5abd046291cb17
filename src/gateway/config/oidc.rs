//! The usable settings of the OpenID Connect provider.

use http::Uri;

use super::address::is_loopback;
use super::secret::ConfigSecret;

/// A provider of OpenID Connect with which users sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OidcConfig {
    /// The issuer, exactly as the provider states it.
    pub(crate) issuer: String,
    /// The id of the gateway at the provider.
    pub(crate) client_id: String,
    /// The secret of the gateway at the provider; `None` for a public client.
    pub(crate) client_secret: Option<ConfigSecret>,
    /// The name of the provider on the pages.
    pub(crate) label: String,
    /// The scopes that are asked for.
    pub(crate) scopes: Vec<String>,
    /// The claim with the name of a user that is created.
    pub(crate) name_claim: String,
    /// True if people who sign in for the first time become users.
    pub(crate) create_users: bool,
    /// The name and the value of the claim that everybody must have.
    pub(crate) required_claim: Option<(String, String)>,
    /// True if plain `http` is allowed on other machines.
    pub(crate) allow_http: bool,
    /// True if link-local addresses are allowed.
    pub(crate) allow_link_local: bool,
}

// === impl OidcConfig ===

impl OidcConfig {
    /// Reads an address that the provider states for itself. Returns `None` if it is not one, or if secrets would be
    /// sent to it unencrypted.
    pub(crate) fn parse_endpoint(&self, text: &str) -> Option<Uri> {
        let uri: Uri = text.parse().ok()?;
        let is_safe = match uri.scheme_str()? {
            "https" => true,
            "http" => self.allow_http || is_loopback(uri.host()?),
            _ => false,
        };
        is_safe.then_some(uri)
    }
}
