//! One thing that is wrong with the settings, and where it stands.

use std::fmt;

/// A setting that cannot be used: where it stands, what is wrong, and what would be right.
///
/// Never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{place}: {message}")]
pub(crate) struct Problem {
    place: Place,
    message: String,
    /// The setting by its path, `accounts[0].base_url`, where it is a single one.
    setting: Option<String>,
}

impl Problem {
    pub(super) fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), setting: None }
    }

    /// A problem with a setting that stands in no file.
    pub(crate) fn of_setting(setting: &str, fault: &str) -> Self {
        let name = setting.rsplit('.').next().unwrap_or(setting);
        Self::new(Place::Named(setting.to_owned()), format!("`{name}` {fault}")).about(setting)
    }

    /// The same problem, with the setting that it is about.
    pub(super) fn about(self, setting: impl Into<String>) -> Self {
        Self { setting: Some(setting.into()), ..self }
    }

    /// What is wrong and what would be right, without the place.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The setting that it is about, where it is a single one. For accounts of the store by its name there.
    pub(crate) fn setting(&self) -> Option<&str> {
        self.setting.as_deref()
    }

    /// Whether somebody who reads both learns nothing new from the second.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        (&self.place, &self.message) == (&other.place, &other.message)
    }

    /// The same problem, told of another place.
    pub(super) fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// The same problem, of a setting whose path begins where `table` ends.
    pub(super) fn within(self, table: &str) -> Self {
        let setting = self.setting.as_deref().and_then(|setting| setting.strip_prefix(table)).map(str::to_owned);
        Self { setting, ..self }
    }
}

/// Where a value came from, as far as it can be shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// An environment variable, an argument, a setting that stands nowhere, or a file as a whole.
    Named(String),
    /// A spot in the file.
    Spot { file: String, position: Position },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => formatter.write_str(name),
            Self::Spot { file, position } => write!(formatter, "{file}:{}:{}", position.line, position.column),
        }
    }
}

/// Line and column as editors count them: both from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    line: usize,
    column: usize,
}

impl Position {
    /// The position of a byte of the text.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

/// The name that stands closest to a misspelt one, if any is close enough to be meant.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase().replace('-', "_");
    // A third of the letters may differ; in very short names one.
    let bound = (folded.chars().count() / 3).max(1);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&folded, &candidate.to_lowercase());
    let scored = known.into_iter().map(|candidate| (distance(candidate), candidate));
    scored.filter(|(distance, _)| *distance <= bound).min().map(|(_, candidate)| candidate)
}

/// The end of a message about a misspelt name.
pub(super) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |candidate| format!("; did you mean `{candidate}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "a = 1\r\nb = \"ü\" # x\n";
        let position = |line, column| Position { line, column };
        assert_eq!(Position::of(text, 0), position(1, 1));
        assert_eq!(Position::of(text, 7), position(2, 1));
        assert_eq!(Position::of(text, text.find('#').unwrap()), position(2, 9));
        assert_eq!(Position::of(text, 999), position(3, 1));
    }

    #[test]
    fn only_a_name_that_is_close_is_offered() {
        let known = ["listen", "metrics_listen", "data_dir"];
        assert_eq!(nearest("listn", known), Some("listen"));
        assert_eq!(nearest("data-dir", known), Some("data_dir"));
        assert_eq!(nearest("Listen", known), Some("listen"));
        assert_eq!(nearest("colour", known), None);
    }
}
