//! Resolves the OpenID Connect provider.

use super::ConfigResolver;
use crate::gateway::config::raw::{RawOidc, RawRequiredClaim};
use crate::gateway::config::{OidcConfig, address};
use crate::gateway::names;

/// The scope without which a provider issues no ID token.
const OPENID_SCOPE: &str = "openid";
const DEFAULT_SCOPES: [&str; 3] = [OPENID_SCOPE, "profile", "email"];
const DEFAULT_NAME_CLAIM: &str = "preferred_username";

impl ConfigResolver<'_> {
    /// Resolves the provider. The reader of the file has already reported required settings that are absent.
    pub(super) fn oidc(&mut self) -> Option<OidcConfig> {
        const TABLE: &str = "oidc";
        let raw = self.raw.oidc.as_ref()?;
        let allow_http = raw.allow_http.unwrap_or_default();
        let url = raw.issuer.as_ref().map(|text| address::token_url(text, allow_http));
        let url = url.and_then(|url| self.accept("oidc.issuer", url));
        let host = url.as_ref().and_then(|url| url.host());
        let client_id = self.required_text("oidc.client_id", raw.client_id.as_deref());
        let secret = raw.client_secret.as_ref().map(|source| self.read_secret("oidc.client_secret", source));
        let label = raw.label.as_deref().or(host).map(names::parse_name);
        if label == Some(None) {
            self.report("oidc.label", &names::invalid_name_message("provider"));
        }
        Some(OidcConfig {
            issuer: self.text(TABLE, "issuer", raw.issuer.clone().filter(|_| host.is_some())?),
            client_id: self.text(TABLE, "client_id", client_id?),
            client_secret: match secret {
                None => None,
                Some(secret) => Some(self.secret(TABLE, "client_secret", secret)?),
            },
            label: self.text(TABLE, "label", label??),
            scopes: self.scopes(raw),
            name_claim: self.text(TABLE, "name_claim", raw.name_claim.clone().unwrap_or(DEFAULT_NAME_CLAIM.to_owned())),
            create_users: self.value_or_default(TABLE, "create_users", raw.create_users),
            allow_http: self.value(TABLE, "allow_http", allow_http),
            allow_link_local: self.value_or_default(TABLE, "allow_link_local", raw.allow_link_local),
            required_claim: raw.required_claim.as_ref().and_then(|claim| self.required_claim(claim)),
        })
    }

    fn scopes(&mut self, raw: &RawOidc) -> Vec<String> {
        let scopes = raw.scopes.clone().unwrap_or_else(|| DEFAULT_SCOPES.map(str::to_owned).to_vec());
        // The characters of a scope (RFC 6749, section 3.3).
        let is_scope_byte = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        let is_scope = |scope: &String| !scope.is_empty() && scope.bytes().all(is_scope_byte);
        if !scopes.iter().all(is_scope) || !scopes.iter().any(|scope| scope == OPENID_SCOPE) {
            self.report("oidc.scopes", "must be scopes without spaces, and `openid` must be one of them");
        }
        self.texts("oidc", "scopes", scopes)
    }

    fn required_claim(&mut self, raw: &RawRequiredClaim) -> Option<(String, String)> {
        const TABLE: &str = "oidc.required_claim";
        let name = self.required_text("oidc.required_claim.name", raw.name.as_deref());
        let value = self.required_text("oidc.required_claim.value", raw.value.as_deref());
        Some((self.text(TABLE, "name", name?), self.text(TABLE, "value", value?)))
    }

    fn required_text(&mut self, setting: &str, text: Option<&str>) -> Option<String> {
        let text = text?;
        if text.is_empty() {
            self.report(setting, "must not be empty");
        }
        Some(text.to_owned())
    }
}
