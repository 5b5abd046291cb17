//! Reads secrets from where they are kept. No message repeats a value, also not one that stands in the wrong place.

use std::ffi::OsString;

use super::Desk;
use crate::gateway::config::Secret;
use crate::gateway::config::raw::SecretSource;

impl Desk<'_> {
    /// The secret of a setting; without one the problem is noted.
    pub(super) fn secret(&mut self, setting: &str, source: &SecretSource) -> Option<Secret> {
        let (value, found) = match source {
            SecretSource::Env(name) => (self.variable(setting, name)?, format!("environment variable {}", shown(name))),
            SecretSource::File(path) => {
                let path = self.path(setting, path);
                let text = self.surroundings.read(&path);
                let text =
                    text.map_err(|error| self.wrong(setting, &format!("names a file that cannot be read: {error}")));
                (text.ok()?, "file".to_owned())
            }
        };
        // Editors and `echo` end a file with a line end that belongs to nobody.
        let value = value.trim();
        if value.is_empty() {
            self.wrong(setting, &format!("is empty ({found})"));
            return None;
        }
        Some(Secret::new(value.to_owned(), found))
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

    fn variable(&mut self, setting: &str, name: &str) -> Option<String> {
        let fault = match self.surroundings.variable(name).map(OsString::into_string) {
            Some(Ok(value)) => return Some(value),
            Some(Err(_)) => "is not UTF-8",
            None => "is not set",
        };
        self.wrong(setting, &format!("names the environment variable {}, which {fault}", shown(name)));
        None
    }
}

/// The name of a variable, unless it could be a secret that somebody wrote where its name belongs.
fn shown(name: &str) -> String {
    let usual = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if !name.is_empty() && name.bytes().all(usual) { format!("`{name}`") } else { "of that name".to_owned() }
}
