//! Resolves the OAuth settings of an account, and checks the settings that each grant needs.

use http::Uri;

use super::ConfigResolver;
use crate::gateway::config::raw::{OauthClientAuth, OauthGrant, RawAccount};
use crate::gateway::config::{GrantConfig, OauthConfig, address};

impl ConfigResolver<'_> {
    /// Resolves the OAuth settings; `None` if the token URL or the grant cannot be used.
    pub(super) fn oauth(&mut self, path: &str, account: &RawAccount) -> Option<OauthConfig> {
        let token_url = self.token_url(path, account);
        let grant = self.grant(path, account);
        self.check_client(path, account);
        let client_id = self.parameter(path, "client_id", account.client_id.as_deref());
        let secret = account.client_secret.as_ref();
        let client_secret = secret.and_then(|source| self.form_secret(path, "client_secret", source));
        let mut client_auth = account.client_auth.unwrap_or(OauthClientAuth::Basic);
        if client_secret.is_some() {
            client_auth = self.value(path, "client_auth", client_auth);
        }
        Some(OauthConfig {
            scope: self.parameter(path, "scope", account.scope.as_deref()),
            audience: self.parameter(path, "audience", account.audience.as_deref()),
            token_url: token_url?,
            grant: grant?,
            client_id,
            client_secret,
            client_auth,
        })
    }

    fn token_url(&mut self, path: &str, account: &RawAccount) -> Option<Uri> {
        let Some(text) = &account.token_url else {
            let fault = "is missing; it must be a URL, such as \"https://auth.example.com/oauth/token\"";
            self.report(&format!("{path}.token_url"), fault);
            return None;
        };
        let url = address::token_url(text, account.allow_http.unwrap_or_default());
        self.service_address(path, "token_url", url)
    }

    fn grant(&mut self, path: &str, account: &RawAccount) -> Option<GrantConfig> {
        let setting = format!("{path}.refresh_token");
        let token = account.refresh_token.as_ref();
        match self.value(path, "grant", account.grant) {
            None => {
                self.report(&format!("{path}.grant"), "is missing: \"refresh_token\" or \"client_credentials\"");
                None
            }
            Some(OauthGrant::RefreshToken) => {
                if token.is_none() {
                    self.report(&setting, "is missing; set it, for example to { env = \"REFRESH_TOKEN\" }");
                }
                self.form_secret(path, "refresh_token", token?).map(GrantConfig::RefreshToken)
            }
            Some(OauthGrant::ClientCredentials) => {
                if token.is_some() {
                    self.report(&setting, "has no meaning for the grant \"client_credentials\"");
                }
                Some(GrantConfig::ClientCredentials)
            }
        }
    }

    /// Checks that `client_id`, `client_secret` and `client_auth` are given as the grant requires.
    fn check_client(&mut self, path: &str, account: &RawAccount) {
        let (id, secret) = (account.client_id.is_some(), account.client_secret.is_some());
        let is_client_credentials = account.grant == Some(OauthGrant::ClientCredentials);
        if !id && (secret || is_client_credentials) {
            let reason = if is_client_credentials {
                "for the grant \"client_credentials\""
            } else {
                "although `client_secret` is set"
            };
            self.report(&format!("{path}.client_id"), &format!("is missing {reason}"));
        }
        if !secret && is_client_credentials {
            let fault =
                "is missing for the grant \"client_credentials\"; set it, for example to { env = \"CLIENT_SECRET\" }";
            self.report(&format!("{path}.client_secret"), fault);
        }
        if !secret && !is_client_credentials && account.client_auth.is_some() {
            self.report(&format!("{path}.client_auth"), "has no meaning without `client_secret`");
        }
    }

    /// Reads a text that is sent to a token endpoint.
    fn parameter(&mut self, path: &str, name: &str, text: Option<&str>) -> Option<String> {
        let text = text?;
        if text.trim().is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            let fault = "must consist of visible ASCII characters and spaces, and must not be blank";
            self.report(&format!("{path}.{name}"), fault);
        }
        Some(self.text(path, name, text.to_owned()))
    }
}
