//! Reads secrets from their sources. No message repeats a value, even if the value is in the wrong place.

use std::ffi::OsString;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::ConfigResolver;
use crate::gateway::config::ConfigSecret;
use crate::gateway::config::config_file::join_path;
use crate::gateway::config::host_environment::variable_label;
use crate::gateway::config::raw::SecretSource;
use crate::service_settings::{is_quoted, key_fault, trim_key};

/// The shortest admin token, in bytes (our choice): 128 bits in hexadecimal digits, which cannot be guessed.
const SHORTEST_ADMIN_TOKEN: usize = 32;

/// The fault of a secret in quotes, as some programs that read lists of variables leave them.
const QUOTED: &str = "stands in quotes: write it without them";

/// The secrets without which the store cannot be opened.
const STORE_SECRETS: [&str; 2] = ["database_url", "master_key"];

impl ConfigResolver<'_> {
    /// Returns the secret of a setting. An absent secret is reported as a problem. If absent secrets are allowed, the
    /// value is empty instead, except for a secret of the store.
    pub(super) fn read_secret(&mut self, setting: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let source_name = self.host.describe_source(source);
        let fault = match self.read_source(setting, source) {
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
    fn read_source(&mut self, setting: &str, source: &SecretSource) -> Result<String, String> {
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

    /// Returns a key that the gateway sends as a bearer token.
    pub(super) fn bearer_key(&mut self, table: &str, name: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let setting = join_path(table, name);
        let key = self.read_secret(&setting, source)?;
        if let Some(fault) = key_fault(key.expose()) {
            self.report(&setting, &format!("{fault} ({})", key.source()));
            return None;
        }
        let key = self.check_secret(&setting, key, "a header");
        self.secret(table, name, key)
    }

    /// Returns a secret that is sent in a header.
    pub(super) fn header_secret(&mut self, setting: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let secret = self.read_secret(setting, source)?;
        self.check_secret(setting, secret, "a header")
    }

    /// Returns a secret that is sent in a form. Only the characters that the OAuth standard allows are accepted, so a
    /// file with several lines is refused.
    pub(super) fn form_secret(&mut self, table: &str, name: &str, source: &SecretSource) -> Option<ConfigSecret> {
        let setting = join_path(table, name);
        let secret = self.read_secret(&setting, source)?;
        let secret = self.check_secret(&setting, secret, "a token request");
        self.secret(table, name, secret)
    }

    /// Checks that a secret fits into its place in a request, and does not stand in quotes.
    fn check_secret(&mut self, setting: &str, secret: ConfigSecret, place: &str) -> Option<ConfigSecret> {
        let fault = if is_quoted(secret.expose()) {
            QUOTED.to_owned()
        } else if !secret.expose().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            format!("contains a character that is not allowed in {place}")
        } else {
            return Some(secret);
        };
        self.report(setting, &format!("{fault} ({})", secret.source()));
        None
    }

    /// Returns the text of the master key; the vault decodes it.
    pub(super) fn master_key(&mut self) -> Option<ConfigSecret> {
        const SETTING: &str = "master_key";
        let key = self.read_secret(SETTING, self.raw.master_key.as_ref()?)?;
        let text = key.expose();
        let hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !hex && !is_base64(text, 32..=32) {
            let source_name = key.source();
            self.report(SETTING, &format!("must contain 64 hexadecimal digits or 32 bytes in base64, as `openssl rand -hex 32` makes them ({source_name})"));
        }
        self.secret("", SETTING, Some(key))
    }

    /// Returns the token that authenticates an operator.
    pub(super) fn admin_token(&mut self) -> Option<ConfigSecret> {
        const SETTING: &str = "admin_token";
        let token = self.read_secret(SETTING, self.raw.admin_token.as_ref()?)?;
        let text = token.expose();
        let fault = if text.is_empty() {
            return None;
        } else if is_quoted(text) {
            QUOTED.to_owned()
        } else if text.len() < SHORTEST_ADMIN_TOKEN {
            format!("must have at least {SHORTEST_ADMIN_TOKEN} characters, as `openssl rand -hex 32` makes them")
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            "contains a character that is not allowed in a bearer token".to_owned()
        } else {
            return self.secret("", SETTING, Some(token));
        };
        self.report(SETTING, &format!("{fault} ({})", token.source()));
        None
    }
}

/// True for a text that is base64, with or without padding, of so many bytes.
pub(super) fn is_base64(text: &str, bytes: RangeInclusive<usize>) -> bool {
    let decoded = [&STANDARD, &STANDARD_NO_PAD].into_iter().find_map(|engine| engine.decode(text).ok());
    decoded.is_some_and(|decoded| bytes.contains(&decoded.len()))
}
