//! One problem with the settings, and its location.

use std::fmt;

/// A setting that cannot be used: its location, the problem, and a valid alternative if there is one.
///
/// It never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{location}: {message}")]
pub(crate) struct ConfigProblem {
    location: ConfigLocation,
    message: String,
    /// The path of the setting, such as `accounts[0].base_url`, if the problem is about a single one.
    setting: Option<String>,
}

impl ConfigProblem {
    pub(super) fn new(location: ConfigLocation, message: impl Into<String>) -> Self {
        Self { location, message: message.into(), setting: None }
    }

    /// Creates a problem with a setting that is in no file.
    pub(crate) fn for_setting(setting: &str, fault: &str) -> Self {
        let name = setting.rsplit('.').next().unwrap_or(setting);
        Self::new(ConfigLocation::Named(setting.to_owned()), format!("`{name}` {fault}")).with_setting(setting)
    }

    /// Returns the same problem with the setting that it is about.
    pub(super) fn with_setting(self, setting: impl Into<String>) -> Self {
        Self { setting: Some(setting.into()), ..self }
    }

    /// The problem and a valid alternative, without the location.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The setting that the problem is about, if it is a single one. For accounts of the store, the path is relative to
    /// the account.
    pub(crate) fn setting(&self) -> Option<&str> {
        self.setting.as_deref()
    }

    /// True if both problems have the same location and the same message.
    pub(super) fn has_same_text(&self, other: &Self) -> bool {
        (&self.location, &self.message) == (&other.location, &other.message)
    }

    /// Returns the same problem with another location.
    pub(super) fn with_location(self, location: ConfigLocation) -> Self {
        Self { location, ..self }
    }

    /// Returns the same problem with the path of its setting relative to `table`.
    pub(super) fn with_relative_setting(self, table: &str) -> Self {
        let setting = self.setting.as_deref().and_then(|setting| setting.strip_prefix(table)).map(str::to_owned);
        Self { setting, ..self }
    }
}

/// The location of a value, as far as it can be shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConfigLocation {
    /// An environment variable, an argument, a setting that is written nowhere, or a file as a whole.
    Named(String),
    /// A position in the file.
    InFile { file: String, position: ConfigPosition },
}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => formatter.write_str(name),
            Self::InFile { file, position } => write!(formatter, "{file}:{}:{}", position.line, position.column),
        }
    }
}

/// Line and column as editors count them: both from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConfigPosition {
    line: usize,
    column: usize,
}

impl ConfigPosition {
    /// The position of a byte in the text.
    pub(super) fn from_offset(text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

/// Returns the known name that is closest to a misspelt name, if one is close enough.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase().replace('-', "_");
    // A third of the letters may differ, and one letter in very short names.
    let bound = (folded.chars().count() / 3).max(1);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&folded, &candidate.to_lowercase());
    let scored = known.into_iter().map(|candidate| (distance(candidate), candidate));
    scored.filter(|(distance, _)| *distance <= bound).min().map(|(_, candidate)| candidate)
}

/// Returns the end of a message about a misspelt name; empty if no known name is close enough.
pub(super) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |candidate| format!("; did you mean `{candidate}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "a = 1\r\nb = \"ü\" # x\n";
        let position = |line, column| ConfigPosition { line, column };
        assert_eq!(ConfigPosition::from_offset(text, 0), position(1, 1));
        assert_eq!(ConfigPosition::from_offset(text, 7), position(2, 1));
        assert_eq!(ConfigPosition::from_offset(text, text.find('#').unwrap()), position(2, 9));
        assert_eq!(ConfigPosition::from_offset(text, 999), position(3, 1));
    }

    #[test]
    fn only_a_close_name_is_suggested() {
        let known = ["listen", "metrics_listen", "data_dir"];
        assert_eq!(nearest("listn", known), Some("listen"));
        assert_eq!(nearest("data-dir", known), Some("data_dir"));
        assert_eq!(nearest("Listen", known), Some("listen"));
        assert_eq!(nearest("colour", known), None);
    }
}
