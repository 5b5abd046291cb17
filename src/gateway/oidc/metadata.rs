//! The metadata of a provider (OpenID Connect Discovery 1.0, section 3).

use http::Uri;
use serde::Deserialize;

use super::OidcError;
use crate::gateway::config::OidcConfig;

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
const BASIC: &str = "client_secret_basic";
const POST: &str = "client_secret_post";

/// The metadata that the gateway needs.
#[derive(Debug)]
pub(super) struct ProviderMetadata {
    pub(super) authorization_endpoint: Uri,
    pub(super) token_endpoint: Uri,
    pub(super) jwks_uri: Uri,
    /// True if credentials are sent in a header, false if they are sent in the form.
    pub(super) takes_basic_authentication: bool,
    /// False if the provider says that it does not take `prompt=login`.
    pub(super) takes_prompt_login: bool,
    /// False if the provider lists its claims, without the time at which a person has entered their credentials.
    pub(super) states_login_time: bool,
    /// True if each response states its issuer (RFC 9207).
    pub(super) states_issuer: bool,
}

/// The metadata as the provider publishes it.
#[derive(Deserialize)]
struct PublishedMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    prompt_values_supported: Option<Vec<String>>,
    claims_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Returns the address of the metadata of an issuer.
pub(super) fn url(issuer: &str) -> String {
    format!("{}{WELL_KNOWN}", issuer.strip_suffix('/').unwrap_or(issuer))
}

// === impl ProviderMetadata ===

impl ProviderMetadata {
    /// Reads the metadata.
    ///
    /// # Errors
    ///
    /// Returns an error if a required member is absent, if it is the metadata of another issuer, or if an address is
    /// not encrypted.
    pub(super) fn parse(body: &[u8], config: &OidcConfig) -> Result<Self, OidcError> {
        let published: PublishedMetadata =
            serde_json::from_slice(body).map_err(|_| OidcError::Metadata("a required member is absent"))?;
        if published.issuer != config.issuer {
            return Err(OidcError::Metadata("it states another issuer than the settings"));
        }
        let endpoint = |text: &str| {
            config.parse_endpoint(text).ok_or(OidcError::Metadata("an address is not one, or not encrypted"))
        };
        let lists =
            |list: &Option<Vec<String>>, word: &str| list.as_ref().map(|list| list.iter().any(|item| item == word));
        let methods = published.token_endpoint_auth_methods_supported;
        let has = |method: &str| lists(&methods, method) == Some(true);
        Ok(Self {
            authorization_endpoint: endpoint(&published.authorization_endpoint)?,
            token_endpoint: endpoint(&published.token_endpoint)?,
            jwks_uri: endpoint(&published.jwks_uri)?,
            // Without a list, the header is what every provider takes.
            takes_basic_authentication: has(BASIC) || !has(POST),
            takes_prompt_login: lists(&published.prompt_values_supported, "login") != Some(false),
            states_login_time: lists(&published.claims_supported, "auth_time") != Some(false),
            states_issuer: published.authorization_response_iss_parameter_supported,
        })
    }
}
