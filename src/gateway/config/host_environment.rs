//! The host environment: environment variables, files and the platform.
//!
//! Only this module reads the environment. All other code receives a [`HostEnvironment`], so that tests do not depend
//! on the environment of the machine.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::raw::SecretSource;

/// The environment and the files as the settings see them.
pub(crate) trait HostEnvironment {
    /// The value of an environment variable; a variable that is empty counts as not set.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// Returns the error of the file system.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The platform, which decides the default data folder.
    fn platform(&self) -> Platform;

    /// Returns the description of a secret's source for messages.
    fn describe_source(&self, source: &SecretSource) -> String {
        match source {
            SecretSource::Env(name) => format!("environment variable {}", variable_label(name)),
            SecretSource::File(_) => "file".to_owned(),
        }
    }
}

/// Returns the name of a variable for messages. A text that could be a secret, written in place of a name, is not
/// shown.
pub(super) fn variable_label(name: &str) -> String {
    let is_name_byte = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if !name.is_empty() && name.bytes().all(is_name_byte) { format!("`{name}`") } else { "of that name".to_owned() }
}

/// Platforms with their own convention for the data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Unix,
    MacOs,
    Windows,
}

/// The machine itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemEnvironment;

impl HostEnvironment for SystemEnvironment {
    #[expect(clippy::disallowed_methods, reason = "this is the only reader of the environment")]
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        std::fs::read_to_string(path)
    }

    fn platform(&self) -> Platform {
        if cfg!(windows) {
            Platform::Windows
        } else if cfg!(target_os = "macos") {
            Platform::MacOs
        } else {
            Platform::Unix
        }
    }
}

/// Returns the folder for imagate in the platform's data folder; `None` if the environment does not define one.
pub(super) fn default_data_dir(host: &dyn HostEnvironment) -> Option<PathBuf> {
    let folder = |name: &str| host.variable(name).map(PathBuf::from);
    let data = match host.platform() {
        Platform::Windows => folder("LOCALAPPDATA"),
        Platform::MacOs => folder("HOME").map(|home| home.join("Library").join("Application Support")),
        // The XDG Base Directory Specification says that a relative path must be ignored.
        Platform::Unix => folder("XDG_DATA_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| folder("HOME").map(|home| home.join(".local").join("share"))),
    };
    Some(data?.join("imagate"))
}

#[cfg(test)]
pub(super) mod fake {
    use std::collections::BTreeMap;

    use super::*;

    /// A host environment that a test defines completely.
    #[derive(Clone, Debug, Default)]
    pub(in super::super) struct FakeEnvironment {
        variables: BTreeMap<String, String>,
        files: BTreeMap<PathBuf, String>,
        platform: Option<Platform>,
    }

    impl FakeEnvironment {
        pub(in super::super) fn variable(mut self, name: &str, value: &str) -> Self {
            self.variables.insert(name.to_owned(), value.to_owned());
            self
        }

        pub(in super::super) fn file(mut self, path: &str, text: &str) -> Self {
            self.files.insert(PathBuf::from(path), text.to_owned());
            self
        }

        pub(super) fn platform(mut self, platform: Platform) -> Self {
            self.platform = Some(platform);
            self
        }
    }

    impl HostEnvironment for FakeEnvironment {
        fn variable(&self, name: &str) -> Option<OsString> {
            self.variables.get(name).filter(|value| !value.is_empty()).map(OsString::from)
        }

        fn read(&self, path: &Path) -> io::Result<String> {
            self.files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        }

        fn platform(&self) -> Platform {
            self.platform.unwrap_or(Platform::Unix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeEnvironment;
    use super::*;

    #[track_caller]
    fn check(fake: &FakeEnvironment, expected: Option<&str>) {
        assert_eq!(default_data_dir(fake), expected.map(PathBuf::from));
    }

    #[test]
    #[cfg(unix)]
    fn the_default_data_folder_follows_the_platform() {
        let home = FakeEnvironment::default().variable("HOME", "/h/ada");
        check(&home, Some("/h/ada/.local/share/imagate"));
        check(&home.clone().variable("XDG_DATA_HOME", "/data"), Some("/data/imagate"));
        check(&home.clone().variable("XDG_DATA_HOME", "data"), Some("/h/ada/.local/share/imagate"));
        check(&home.platform(Platform::MacOs), Some("/h/ada/Library/Application Support/imagate"));
        check(
            &FakeEnvironment::default().platform(Platform::Windows).variable("LOCALAPPDATA", "/appdata"),
            Some("/appdata/imagate"),
        );
        check(&FakeEnvironment::default(), None);
    }
}
