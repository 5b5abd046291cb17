//! What a check may use, and what it shall make of each rule.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::manifest::files::Files;
use crate::manifest::finding::{Finding, Level};
use crate::manifest::rules::{self, Class, Rule, UnknownRule};
use crate::manifest::text::Source;
use crate::manifest::web::Web;

/// What a check may use, and how strict it is.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Options<'a> {
    /// Whether a warning is an error.
    pub strict: bool,
    /// What single rules mean here.
    pub overrides: Overrides,
    /// The time, for rules about the future; without it they are not asked.
    pub now: Option<DateTime<Utc>>,
    /// The manifest that was published before, for the rules of history.
    pub previous: Option<&'a Source>,
    /// The checkout of the repository, for the rules about files and packages.
    pub files: Option<&'a dyn Files>,
    /// Who asks the addresses of the manifest; without it they are not asked.
    pub web: Option<&'a dyn Web>,
    /// Whether addresses may name a host that only some can reach.
    pub allow_private_hosts: bool,
    /// How many threads may work at a time, the one that asks among them; without it, or with 1, none is started. Each has
    /// one package in memory. What is found does not depend on it.
    pub threads: usize,
}

/// What one rule means here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// It may be broken, for this reason.
    Allow(String),
    /// Breaking it is of this level.
    Level(Level),
}

/// What single rules mean here.
#[derive(Clone, Debug, Default)]
pub struct Overrides(BTreeMap<&'static str, Override>);

/// Why a rule cannot be given another meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverridesError {
    /// Nobody knows this rule.
    #[error(transparent)]
    Unknown(#[from] UnknownRule),
    /// Without this rule there is nothing that could be checked.
    #[error("{id} cannot be allowed: without a shape there is nothing to check")]
    Shape {
        /// The rule.
        id: &'static str,
    },
    /// The reason is missing.
    #[error("{id} is allowed without a reason; write `{id}=why`")]
    NoReason {
        /// The rule.
        id: &'static str,
    },
    /// It was said twice, and not the same.
    #[error("{id} is given two meanings")]
    Twice {
        /// The rule.
        id: &'static str,
    },
}

// === impl Overrides ===

impl Overrides {
    /// Lets a rule be broken, for a reason that stands in every report.
    ///
    /// # Errors
    ///
    /// There is no such rule, it cannot be allowed, there is no reason, or it was given another meaning before.
    pub fn allow(&mut self, word: &str, reason: &str) -> Result<(), OverridesError> {
        let rule = rules::lookup(word)?;
        if rule.class == Class::Shape {
            return Err(OverridesError::Shape { id: rule.id });
        }
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(OverridesError::NoReason { id: rule.id });
        }
        self.set(rule, Override::Allow(reason.to_owned()))
    }

    /// Makes a rule as bad as this.
    ///
    /// # Errors
    ///
    /// There is no such rule, it is what makes a shape, or it was given another meaning before.
    pub fn level(&mut self, word: &str, level: Level) -> Result<(), OverridesError> {
        let rule = rules::lookup(word)?;
        if rule.class == Class::Shape && level != Level::Error {
            return Err(OverridesError::Shape { id: rule.id });
        }
        self.set(rule, Override::Level(level))
    }

    fn set(&mut self, rule: &'static Rule, meaning: Override) -> Result<(), OverridesError> {
        match self.0.insert(rule.id, meaning.clone()) {
            Some(before) if before != meaning => Err(OverridesError::Twice { id: rule.id }),
            _ => Ok(()),
        }
    }

    /// What a rule means here, if it was said.
    #[must_use]
    pub fn get(&self, rule: &Rule) -> Option<&Override> {
        self.0.get(rule.id)
    }
}

// === impl Options ===

impl Options<'_> {
    /// The rules that can be asked with what there is, and how bad each is here.
    pub(super) fn asked(&self, has_tree: bool) -> Vec<(&'static Rule, Level)> {
        let is_asked = |rule: &&Rule| match rule.class {
            Class::Shape => true,
            Class::Static => has_tree,
            Class::Repository | Class::Package => has_tree && self.files.is_some(),
            Class::Network => has_tree && self.web.is_some(),
            Class::History => has_tree && self.previous.is_some(),
        };
        let levels = rules::all().filter(is_asked).map(|rule| (rule, self.level_of(rule).0));
        levels.filter(|(_, level)| *level != Level::Off).collect()
    }

    pub(super) fn settle(&self, finding: &mut Finding) {
        let (level, allowed) = self.level_of(finding.rule());
        finding.settle(level, allowed);
    }

    /// How bad a rule is here, and why it may be broken.
    fn level_of(&self, rule: &Rule) -> (Level, Option<String>) {
        match self.overrides.get(rule) {
            Some(Override::Allow(reason)) => (rule.level.max(Level::Note), Some(reason.clone())),
            Some(Override::Level(level)) => (*level, None),
            None if self.strict && rule.level == Level::Warning => (Level::Error, None),
            None => (rule.level, None),
        }
    }
}
