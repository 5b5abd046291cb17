//! Reads secrets from their sources. No message repeats a value, even if the value is in the wrong place.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::Uri;

use super::{ADMIN_TOKEN, ConfigResolver, MASTER_KEY};
use crate::gateway::config::host_environment::variable_label;
use crate::gateway::config::raw::{RawHeader, SecretSource};
use crate::gateway::config::{ConfigSecret, address};
use crate::service_settings::{is_quoted, key_fault, trim_key};

/// The shortest admin token, in bytes (our choice): 128 bits in hexadecimal digits, which cannot be guessed.
const SHORTEST_ADMIN_TOKEN: usize = 32;

/// The secrets without which the store cannot be opened.
const STORE_SECRETS: [&str; 2] = ["database_url", "master_key"];

impl ConfigResolver<'_> {
    /// Returns the secret of a setting. An absent secret is reported as a problem. If absent secrets are allowed, the
    /// value is empty instead, except for a secret of the store.
    pub(super) fn resolve_secret(&mut self, setting: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let source_name = self.host.describe_source(source);
        let fault = match self.read_secret(setting, source) {
            Ok(value) if trim_key(&value).is_empty() => format!("is empty ({source_name})"),
            Ok(value) => return Some(ConfigSecret::new(trim_key(&value).to_owned(), source_name)),
            Err(fault) => fault,
        };
        if self.allows_absent_secrets && !STORE_SECRETS.contains(&setting) {
            self.absent_secrets.push(self.problem(setting, &fault));
            return Some(ConfigSecret::new(String::new(), source_name));
        }
        self.report(setting, &fault);
        None
    }

    /// Returns the text from the source of a setting, or the reason why the text is absent.
    fn read_secret(&mut self, setting: &str, source: &SecretSource) -> Result<String, String> {
        match source {
            SecretSource::Env(name) => {
                let fault = match self.host.variable(name).map(OsString::into_string) {
                    Some(Ok(value)) => return Ok(value),
                    Some(Err(_)) => "is not UTF-8",
                    None => "is not set",
                };
                Err(format!("names the environment variable {}, which {fault}", variable_label(name)))
            }
            SecretSource::File(path) => {
                let text = self.host.read(&self.resolve_path(setting, path));
                text.map_err(|error| format!("names a file that cannot be read: {error}"))
            }
        }
    }

    /// Returns the variables of all secrets that the file names, each with the base URL that its secret is sent to;
    /// `None` if the secret is not sent to a base URL.
    pub(super) fn named_secrets(&self) -> Vec<(String, Option<Uri>)> {
        let raw = &self.layers.file.raw;
        let url = |text: Option<&String>| text.and_then(|text| address::base_url(text, true).ok());
        let mut sources: Vec<_> =
            [&raw.database_url, &raw.master_key, &raw.admin_token].map(|source| (source, None)).into();
        let alerts = raw.alerts.as_ref();
        let webhook = alerts.and_then(|alerts| alerts.webhook.as_ref());
        sources.extend(webhook.map(|webhook| (&webhook.secret, url(webhook.url.as_ref()))));
        sources.extend(alerts.and_then(|alerts| alerts.email.as_ref()).map(|email| (&email.password, None)));
        sources.extend(raw.oidc.as_ref().map(|oidc| (&oidc.client_secret, None)));
        for account in raw.accounts.iter().flatten() {
            sources.push((&account.api_key, url(account.base_url.as_ref())));
            sources.extend([(&account.client_secret, None), (&account.refresh_token, None)]);
        }
        for group in raw.groups.iter().flatten() {
            let service = group.filter.as_ref().and_then(|filter| filter.moderation.as_ref());
            sources.extend(service.map(|service| (&service.api_key, url(service.base_url.as_ref()))));
        }
        let mut secrets: Vec<_> =
            sources.into_iter().filter_map(|(source, url)| Some((source.as_ref()?, url))).collect();
        for account in raw.accounts.iter().flatten() {
            let headers = account.headers.iter().flat_map(|headers| headers.values());
            let header_secrets = headers.filter_map(|header| match header {
                RawHeader::Secret(source) => Some((source, url(account.base_url.as_ref()))),
                RawHeader::Plain(_) => None,
            });
            secrets.extend(header_secrets);
        }
        let variable = |(source, url): (&SecretSource, _)| match source {
            SecretSource::Env(name) => Some((name.clone(), url)),
            SecretSource::File(_) => None,
        };
        secrets.into_iter().filter_map(variable).collect()
    }

    /// Returns a key that the gateway sends as a bearer token.
    pub(super) fn bearer_key(&mut self, setting: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let key = self.resolve_secret(setting, source)?;
        if let Some(fault) = key_fault(key.expose()) {
            self.report(setting, &format!("{fault} ({})", key.source()));
            return None;
        }
        self.check_header_secret(setting, key)
    }

    /// Returns a secret that is sent in a header.
    pub(super) fn header_secret(&mut self, setting: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let secret = self.resolve_secret(setting, source)?;
        self.check_header_secret(setting, secret)
    }

    fn check_header_secret(&mut self, setting: &str, secret: ConfigSecret) -> Option<ConfigSecret> {
        if self.reports_quotes(setting, &secret) {
            return None;
        }
        if secret.expose().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Some(secret);
        }
        self.report(setting, &format!("contains a character that is not allowed in a header ({})", secret.source()));
        None
    }

    /// Reports a secret that stands in quotes, as some programs that read lists of variables leave them.
    fn reports_quotes(&mut self, setting: &str, secret: &ConfigSecret) -> bool {
        let is_quoted = is_quoted(secret.expose());
        if is_quoted {
            self.report(setting, &format!("stands in quotes: write it without them ({})", secret.source()));
        }
        is_quoted
    }

    /// Returns a secret that is sent in a form. Only the characters that the OAuth standard allows are accepted, so a
    /// file with several lines is refused.
    pub(super) fn form_secret(&mut self, setting: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let secret = self.resolve_secret(setting, source)?;
        if self.reports_quotes(setting, &secret) {
            return None;
        }
        if secret.expose().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Some(secret);
        }
        self.report(
            setting,
            &format!("contains a character that is not allowed in a token request ({})", secret.source()),
        );
        None
    }

    /// Returns the text of the master key; the vault decodes it.
    pub(super) fn master_key(&mut self) -> Option<ConfigSecret> {
        const SETTING: &str = "master_key";
        let source = self.winning_value(SETTING, MASTER_KEY, |raw| raw.master_key.as_ref())?;
        let key = self.resolve_secret(SETTING, source)?;
        let text = key.expose();
        let hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let base64 = || {
            [&STANDARD, &STANDARD_NO_PAD].iter().any(|engine| engine.decode(text).is_ok_and(|bytes| bytes.len() == 32))
        };
        if !hex && !base64() {
            let source_name = key.source();
            self.report(SETTING, &format!("must contain 64 hexadecimal digits or 32 bytes in base64, as `openssl rand -hex 32` makes them ({source_name})"));
        }
        Some(key)
    }

    /// Returns the token that authenticates an operator.
    pub(super) fn admin_token(&mut self) -> Option<ConfigSecret> {
        const SETTING: &str = "admin_token";
        let source = self.winning_value(SETTING, ADMIN_TOKEN, |raw| raw.admin_token.as_ref())?;
        let token = self.resolve_secret(SETTING, source)?;
        let source_name = token.source();
        if token.expose().is_empty() {
            return None;
        }
        if self.reports_quotes(SETTING, &token) {
            return None;
        }
        if token.expose().len() < SHORTEST_ADMIN_TOKEN {
            self.report(SETTING, &format!("must have at least {SHORTEST_ADMIN_TOKEN} characters, as `openssl rand -hex 32` makes them ({source_name})"));
        } else if !token.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
            self.report(
                SETTING,
                &format!("contains a character that is not allowed in a bearer token ({source_name})"),
            );
        }
        Some(token)
    }
}
