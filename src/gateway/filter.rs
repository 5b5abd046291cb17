//! What may be asked for: the operator's words and patterns, held against a prompt before anything is spent.
//!
//! Decides whether a rule of the group is in a prompt, whatever the prompt is dressed up as. Refuses to know who asks,
//! what the answer says, and the network: a service that judges prompts is named here and asked elsewhere.
//! Pure. Nothing here repeats a prompt: a verdict names the rule by its place in the settings, for the word itself would
//! tell what was asked for.
//! It carries rule 3 of the specification's errors: what is disallowed is filtered before it is sent.

mod fold;
mod letters;
mod words;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use regex::{RegexSet, RegexSetBuilder};

use crate::gateway::config::{Filter, Group, Moderation};
use words::{Word, Words};

/// One pattern is no larger once compiled; the settings hold the same limit.
const PATTERN_MAX: usize = 1 << 20;

/// The rules of every group.
#[derive(Debug)]
pub(crate) struct Filters(HashMap<String, Rules>);

/// The rules of one group.
#[derive(Debug)]
struct Rules {
    words: Words,
    patterns: RegexSet,
    moderation: Option<Moderation>,
}

/// What the rules of a group say to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Pass,
    /// It must not be drawn.
    Refused {
        /// The place of the rule in the settings, for the log and the record.
        rule: String,
    },
}

/// A rule that cannot be held against anything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    /// Nothing is left of it without spaces and what cannot be seen.
    #[error("groups: {group}: filter.words[{index}] has nothing in it that can be seen")]
    Word {
        /// Whose filter.
        group: String,
        /// Which word.
        index: usize,
    },
    /// The patterns cannot be compiled together.
    #[error("groups: {group}: filter.patterns cannot be used")]
    Patterns {
        /// Whose filter.
        group: String,
        /// Why.
        #[source]
        source: Box<regex::Error>,
    },
}

// === impl Filters ===

impl Filters {
    /// The rules of these groups.
    ///
    /// # Errors
    ///
    /// Where a rule cannot be held against anything. The settings have checked most of it before.
    pub(crate) fn new(groups: &[Group]) -> Result<Self, FilterError> {
        let rules = |group: &Group| Ok((group.name.clone(), Rules::new(&group.name, &group.filter)?));
        groups.iter().map(rules).collect::<Result<_, _>>().map(Self)
    }

    /// Holds the rules of a group against a prompt. Takes time in proportion to the prompt, however many words there are.
    pub(crate) fn check(&self, group: &str, prompt: &str) -> Verdict {
        self.0.get(group).and_then(|rules| rules.find(prompt)).map_or(Verdict::Pass, |rule| Verdict::Refused { rule })
    }

    /// Whether a group has rules of its own, so that there is something to hold against a prompt.
    pub(crate) fn has_rules(&self, group: &str) -> bool {
        self.0.get(group).is_some_and(|rules| !rules.is_empty())
    }

    /// The service that judges the prompts of a group.
    pub(crate) fn moderation(&self, group: &str) -> Option<&Moderation> {
        self.0.get(group)?.moderation.as_ref()
    }
}

// === impl Rules ===

impl Rules {
    fn new(group: &str, filter: &Filter) -> Result<Self, FilterError> {
        let mut words = Words::default();
        for (index, word) in filter.words.iter().enumerate() {
            words.add(word, index).map_err(|Word| FilterError::Word { group: group.to_owned(), index })?;
        }
        let patterns = RegexSetBuilder::new(&filter.patterns)
            .case_insensitive(true)
            .size_limit(PATTERN_MAX.saturating_mul(filter.patterns.len().max(1)))
            .build()
            .map_err(|source| FilterError::Patterns { group: group.to_owned(), source: Box::new(source) })?;
        Ok(Self { words, patterns, moderation: filter.moderation.clone() })
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.patterns.is_empty()
    }

    /// The first rule that is in the prompt.
    fn find(&self, prompt: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let readings = fold::readings(prompt);
        let word = readings.iter().find_map(|reading| self.words.find(reading));
        word.map(|index| format!("words[{index}]")).or_else(|| {
            // As it was written too: a pattern may be about exactly what a reading leaves out.
            let texts = std::iter::once(prompt).chain(readings.iter().map(String::as_str));
            let pattern = texts.into_iter().find_map(|text| self.patterns.matches(text).iter().next());
            pattern.map(|index| format!("patterns[{index}]"))
        })
    }
}
