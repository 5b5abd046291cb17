//! Profiles: the addresses and tokens that `imagate login` saves, one file for each, which only its owner can read.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use crate::cli::failure::CommandFailure;
use crate::gateway::config::{HostEnvironment as _, Platform, SystemEnvironment};

/// The longest name of a profile, in bytes (our choice).
const MAX_NAME_BYTES: usize = 64;

/// The name of a profile, which is also that of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct ProfileName(String);

/// A gateway with an admin token for it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct Profile {
    pub(in crate::cli) url: String,
    pub(in crate::cli) token: String,
    /// True if the token may go over plain http to another machine.
    #[serde(default)]
    pub(in crate::cli) allow_http: bool,
}

// === impl ProfileName ===

impl FromStr for ProfileName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.starts_with('.');
        if is_name && text.bytes().all(is_plain) {
            return Ok(Self(text.to_owned()));
        }
        Err("expected a name of at most 64 letters, digits, dots, hyphens and underscores")
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Profile ===

impl Profile {
    /// Reads a profile. Its file must be closed to other users, because it holds a token.
    pub(in crate::cli) fn load(name: &ProfileName) -> Result<Self, CommandFailure> {
        let path = path(name)?;
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let advice = format!("`imagate login URL --profile {name}` saves it");
                return Err(CommandFailure::Advised(anyhow!("there is no profile {name}"), advice));
            }
            text => text.map_err(|error| anyhow!("the profile {} cannot be read: {error}", path.display()))?,
        };
        check_permissions(&path)?;
        // The error of the library is dropped, because it shows the line.
        toml::from_str(&text).map_err(|_| {
            let error = anyhow!("the profile {} is damaged", path.display());
            CommandFailure::Advised(error, format!("save it again: `imagate login URL --profile {name}`"))
        })
    }

    /// Writes a profile in place of the earlier one, and returns the path of its file.
    pub(in crate::cli) fn save(&self, name: &ProfileName) -> Result<PathBuf, CommandFailure> {
        let path = path(name)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        create_private_folder(folder)?;
        let mut file = tempfile::Builder::new().prefix(".profile").tempfile_in(folder)?;
        file.write_all(toml::to_string(self)?.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(path)
    }

    /// Removes a profile; returns false if there is none.
    pub(in crate::cli) fn remove(name: &ProfileName) -> Result<bool, CommandFailure> {
        match fs::remove_file(path(name)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => Ok(removed.map(|()| true)?),
        }
    }
}

fn path(name: &ProfileName) -> Result<PathBuf, CommandFailure> {
    let folder = |variable: &str| SystemEnvironment.variable(variable).map(PathBuf::from);
    let settings = match SystemEnvironment.platform() {
        Platform::Windows => folder("APPDATA"),
        Platform::MacOs => folder("HOME").map(|home| home.join("Library").join("Application Support")),
        // The XDG Base Directory Specification says that a relative path must be ignored.
        Platform::Unix => folder("XDG_CONFIG_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| folder("HOME").map(|home| home.join(".config"))),
    };
    let settings = settings.ok_or_else(|| anyhow!("the environment has no folder for profiles: set HOME"))?;
    Ok(settings.join("imagate").join("profiles").join(format!("{name}.toml")))
}

#[cfg(unix)]
fn check_permissions(path: &Path) -> Result<(), CommandFailure> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let error = anyhow!("the profile {} has a token, and other users can read it (mode {mode:o})", path.display());
    Err(CommandFailure::Advised(error, format!("chmod 600 '{}'", path.display())))
}

#[cfg(not(unix))]
fn check_permissions(_: &Path) -> Result<(), CommandFailure> {
    Ok(())
}

/// Creates a folder that only its owner can read, unless it exists.
#[cfg(unix)]
pub(in crate::cli) fn create_private_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
pub(in crate::cli) fn create_private_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_profile_is_a_plain_file_name() {
        for name in ["default", "a", "studio-2.eu_west"] {
            assert_eq!(name.parse::<ProfileName>().unwrap().to_string(), name);
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a\\b", "größe", "a b", &"a".repeat(65)] {
            assert!(name.parse::<ProfileName>().is_err(), "{name}");
        }
    }
}
