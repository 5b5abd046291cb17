//! Resolves the OAuth settings of an account, and checks the settings that each grant needs.

use http::Uri;

use super::ConfigResolver;
use crate::gateway::config::raw::{OauthClientAuth, OauthGrant, RawAccount, SecretSource};
use crate::gateway::config::{ConfigSecret, GrantConfig, OauthConfig, address};

impl ConfigResolver<'_> {
    /// Resolves the OAuth settings; `None` if the token URL or the grant cannot be used.
    pub(super) fn oauth(&mut self, path: &str, account: &RawAccount) -> Option<OauthConfig> {
        let token_url = self.token_url(&format!("{path}.token_url"), account);
        let grant = self.grant(path, account);
        let client_secret = self.token_secret(path, "client_secret", account.client_secret.as_ref());
        self.check_client(path, account);
        for (field, text) in
            [("client_id", &account.client_id), ("scope", &account.scope), ("audience", &account.audience)]
        {
            self.check_parameter(&format!("{path}.{field}"), text.as_deref());
        }
        Some(OauthConfig {
            token_url: token_url?,
            grant: grant?,
            client_id: account.client_id.clone(),
            client_secret,
            client_auth: account.client_auth.unwrap_or(OauthClientAuth::Basic),
            scope: account.scope.clone(),
            audience: account.audience.clone(),
        })
    }

    fn token_url(&mut self, setting: &str, account: &RawAccount) -> Option<Uri> {
        let Some(text) = &account.token_url else {
            self.report(setting, "is missing; it must be a URL, such as \"https://auth.example.com/oauth/token\"");
            return None;
        };
        let uri = address::token_url(text, account.allow_http.unwrap_or_default());
        let uri = uri.map_err(|fault| self.report(setting, fault)).ok()?;
        self.check_link_local(setting, &uri);
        Some(uri)
    }

    fn grant(&mut self, path: &str, account: &RawAccount) -> Option<GrantConfig> {
        let setting = format!("{path}.refresh_token");
        let token = account.refresh_token.as_ref();
        match account.grant {
            None => {
                self.report(&format!("{path}.grant"), "is missing: \"refresh_token\" or \"client_credentials\"");
                None
            }
            Some(OauthGrant::RefreshToken) => {
                if token.is_none() {
                    self.report(&setting, "is missing; set it, for example to { env = \"REFRESH_TOKEN\" }");
                }
                self.token_secret(path, "refresh_token", token).map(GrantConfig::RefreshToken)
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

    fn token_secret(&mut self, path: &str, field: &str, source: Option<&SecretSource>) -> Option<ConfigSecret> {
        self.form_secret(&format!("{path}.{field}"), source?)
    }

    /// Checks a text that is sent to a token endpoint.
    fn check_parameter(&mut self, setting: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        if text.trim().is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            self.report(setting, "must consist of visible ASCII characters and spaces, and must not be blank");
        }
    }
}
