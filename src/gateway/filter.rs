//! Checks a prompt against the words and patterns of the caller's group before an upstream is called.
//!
//! The module decides whether a prompt matches a rule of the group, even if the text is disguised. It must not know the
//! caller, the answer or the network: it names the moderation service of a group, and another module calls that
//! service. It does no I/O. It repeats no prompt: a result names the rule by its position in the settings, because the
//! word itself would reveal the prompt. It implements rule 3 of the errors in the specification: a disallowed request
//! is filtered before it is sent.

mod letter_forms;
mod phrase_matcher;
mod text_folding;

#[cfg(test)]
mod tests;

use regex::{RegexSet, RegexSetBuilder};

use crate::gateway::config::{FilterConfig, ModerationConfig};
use phrase_matcher::PhraseMatcher;

/// The maximum size of one compiled pattern in bytes. The check of the settings has the same limit.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The rules of one group.
#[derive(Debug)]
pub(crate) struct PromptFilter {
    phrases: PhraseMatcher,
    patterns: RegexSet,
    moderation: Option<ModerationConfig>,
}

/// A rule that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    /// The word contains only spaces, separators and invisible characters.
    #[error("groups: {group}: filter.words[{index}] contains no visible character")]
    Word {
        /// The group of the filter.
        group: String,
        /// The index of the word.
        index: usize,
    },
    /// The words cannot be searched together.
    #[error("groups: {group}: filter.words cannot be used")]
    Words {
        /// The group of the filter.
        group: String,
        /// The error of the compiler.
        #[source]
        source: Box<aho_corasick::BuildError>,
    },
    /// The patterns cannot be compiled together.
    #[error("groups: {group}: filter.patterns cannot be used")]
    Patterns {
        /// The group of the filter.
        group: String,
        /// The error of the compiler.
        #[source]
        source: Box<regex::Error>,
    },
}

// === impl PromptFilter ===

impl PromptFilter {
    /// Builds the rules of a group.
    ///
    /// # Errors
    ///
    /// Returns an error if a rule cannot be used. The check of the settings has already found most such rules.
    pub(crate) fn new(group: &str, filter: &FilterConfig) -> Result<Self, FilterError> {
        let phrases = PhraseMatcher::new(group, &filter.words)?;
        let patterns = RegexSetBuilder::new(&filter.patterns)
            .case_insensitive(true)
            .size_limit(MAX_PATTERN_BYTES.saturating_mul(filter.patterns.len().max(1)))
            .build()
            .map_err(|source| FilterError::Patterns { group: group.to_owned(), source: Box::new(source) })?;
        Ok(Self { phrases, patterns, moderation: filter.moderation.clone() })
    }

    /// True if there are words or patterns.
    pub(crate) fn has_rules(&self) -> bool {
        !self.phrases.is_empty() || !self.patterns.is_empty()
    }

    /// True if there are words, patterns or a moderation service.
    pub(crate) fn is_on(&self) -> bool {
        self.has_rules() || self.moderation.is_some()
    }

    /// Returns the moderation service, if there is one.
    pub(crate) const fn moderation(&self) -> Option<&ModerationConfig> {
        self.moderation.as_ref()
    }

    /// Returns the first word or pattern that matches a prompt, as its position in the settings. The time is proportional to
    /// the prompt, however many words there are.
    pub(crate) fn find(&self, prompt: &str) -> Option<String> {
        if !self.has_rules() {
            return None;
        }
        let readings = text_folding::normalized_readings(prompt);
        let word = readings.iter().find_map(|reading| self.phrases.find(reading));
        word.map(|index| format!("words[{index}]")).or_else(|| {
            // The original text is checked too, because a pattern may match characters that normalization removes.
            let texts = std::iter::once(prompt).chain(readings.iter().map(String::as_str));
            let pattern = texts.into_iter().find_map(|text| self.patterns.matches(text).iter().next());
            pattern.map(|index| format!("patterns[{index}]"))
        })
    }
}
