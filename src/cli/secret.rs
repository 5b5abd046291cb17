//! Secrets for a command: from the environment, a file or standard input, and never from an argument, which everybody on
//! the machine can read.

use std::io::Read as _;
use std::path::Path;

use super::failure::Failure;
use crate::gateway::config::{Machine, Surroundings as _};

/// The path that stands for standard input.
pub(super) const STDIN: &str = "-";

/// A secret from where it is kept, if anywhere. No message repeats anything of it, nor the name that was given for its
/// place: that may be the secret itself.
pub(super) fn fetch(what: &str, variable: Option<&str>, file: Option<&Path>) -> Result<Option<String>, Failure> {
    let text = match (variable, file) {
        (None, None) => return Ok(None),
        (Some(name), _) => {
            let text = Machine.variable(name).and_then(|value| value.into_string().ok());
            text.ok_or_else(|| Failure::Usage(format!("the environment variable for {what} is not set, or no text")))?
        }
        (None, Some(path)) if path == Path::new(STDIN) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        (None, Some(path)) => {
            let text = Machine.read(path);
            text.map_err(|error| Failure::Usage(format!("the file for {what} cannot be read: {error}")))?
        }
    };
    // Editors and `echo` end a text with a line end that belongs to nobody.
    Ok(Some(text.trim().to_owned()))
}
