//! Reads secrets for a command from the environment, a file or standard input. They are never taken from an argument,
//! which every user of the machine can read.

use std::io::Read as _;
use std::path::Path;

use super::failure::CommandFailure;
use crate::gateway::config::{HostEnvironment as _, SystemEnvironment};
use crate::service_settings::trim_key;

/// The path that stands for standard input.
pub(super) const STDIN: &str = "-";

/// Reads a secret from an environment variable or a file, or returns `None` if neither is given. `label` names the
/// secret in messages. No message contains any part of the secret or the name of its source, because the secret itself
/// may have been given as that name by mistake.
pub(super) fn read_secret(
    label: &str,
    variable: Option<&str>,
    file: Option<&Path>,
) -> Result<Option<String>, CommandFailure> {
    let text = match (variable, file) {
        (None, None) => return Ok(None),
        (Some(name), _) => {
            let text = SystemEnvironment.variable(name).and_then(|value| value.into_string().ok());
            text.ok_or_else(|| {
                CommandFailure::Usage(format!("the environment variable for {label} is not set or is not valid text"))
            })?
        }
        (None, Some(path)) if path == Path::new(STDIN) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        (None, Some(path)) => {
            let text = SystemEnvironment.read(path);
            text.map_err(|error| CommandFailure::Usage(format!("the file for {label} cannot be read: {error}")))?
        }
    };
    Ok(Some(trim_key(&text).to_owned()))
}
