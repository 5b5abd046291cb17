//! Reads secrets from where they are kept. No message repeats a value, also not one that stands in the wrong place.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::{ADMIN_TOKEN, Desk, MASTER_KEY};
use crate::gateway::config::Secret;
use crate::gateway::config::raw::SecretSource;
use crate::gateway::config::surroundings::shown;

/// Long enough that nobody guesses it (ours): 128 bits in hexadecimal digits.
const SHORTEST_ADMIN_TOKEN: usize = 32;

/// Without these the store cannot be opened.
const OF_STORE: [&str; 2] = ["database_url", "master_key"];

impl Desk<'_> {
    /// The secret of a setting; without one the problem is noted. Where it may be absent, nothing stands in its place.
    pub(super) fn secret(&mut self, setting: &str, source: &SecretSource) -> Option<Secret> {
        let found = self.surroundings.found(source);
        let fault = match self.value(setting, source) {
            // Editors and `echo` end a file with a line end that belongs to nobody.
            Ok(value) if value.trim().is_empty() => format!("is empty ({found})"),
            Ok(value) => return Some(Secret::new(value.trim().to_owned(), found)),
            Err(fault) => fault,
        };
        if self.calls_nobody && !OF_STORE.contains(&setting) {
            self.absent.push(self.problem(setting, &fault));
            return Some(Secret::new(String::new(), found));
        }
        self.wrong(setting, &fault);
        None
    }

    /// The text that the setting names, or the reason why it is not there.
    fn value(&mut self, setting: &str, source: &SecretSource) -> Result<String, String> {
        match source {
            SecretSource::Env(name) => {
                let fault = match self.surroundings.variable(name).map(OsString::into_string) {
                    Some(Ok(value)) => return Ok(value),
                    Some(Err(_)) => "is not UTF-8",
                    None => "is not set",
                };
                Err(format!("names the environment variable {}, which {fault}", shown(name)))
            }
            SecretSource::File(path) => {
                let text = self.surroundings.read(&self.path(setting, path));
                text.map_err(|error| format!("names a file that cannot be read: {error}"))
            }
        }
    }

    /// A secret that is sent in a header.
    pub(super) fn header_secret(&mut self, setting: &str, source: &SecretSource) -> Option<Secret> {
        let secret = self.secret(setting, source)?;
        if secret.expose().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Some(secret);
        }
        self.wrong(setting, &format!("holds a character that cannot stand in a header ({})", secret.found()));
        None
    }

    /// A secret that is sent in a form. What the standard of tokens allows, which catches files with several lines.
    pub(super) fn form_secret(&mut self, setting: &str, source: &SecretSource) -> Option<Secret> {
        let secret = self.secret(setting, source)?;
        if secret.expose().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Some(secret);
        }
        self.wrong(setting, &format!("holds a character that cannot stand in a token request ({})", secret.found()));
        None
    }

    /// The text of a master key: what it is worth is for the vault to say.
    pub(super) fn master_key(&mut self) -> Option<Secret> {
        const SETTING: &str = "master_key";
        let source = self.pick(SETTING, MASTER_KEY, |raw| raw.master_key.as_ref())?;
        let key = self.secret(SETTING, source)?;
        let text = key.expose();
        let hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let base64 = || {
            [&STANDARD, &STANDARD_NO_PAD].iter().any(|engine| engine.decode(text).is_ok_and(|bytes| bytes.len() == 32))
        };
        if !hex && !base64() {
            let found = key.found();
            self.wrong(SETTING, &format!("must hold 64 hexadecimal digits or 32 bytes in base64, as `openssl rand -hex 32` makes them ({found})"));
        }
        Some(key)
    }

    /// What lets an operator in.
    pub(super) fn admin_token(&mut self) -> Option<Secret> {
        const SETTING: &str = "admin_token";
        let source = self.pick(SETTING, ADMIN_TOKEN, |raw| raw.admin_token.as_ref())?;
        let token = self.secret(SETTING, source)?;
        let found = token.found();
        if token.expose().is_empty() {
            return None;
        }
        if token.expose().len() < SHORTEST_ADMIN_TOKEN {
            self.wrong(SETTING, &format!("must have at least {SHORTEST_ADMIN_TOKEN} characters, as `openssl rand -hex 32` makes them ({found})"));
        } else if !token.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
            self.wrong(SETTING, &format!("holds a character that cannot stand in a bearer token ({found})"));
        }
        Some(token)
    }
}
