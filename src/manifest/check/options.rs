//! The options of a check: its inputs, and how it treats single rules.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::manifest::files::RepositoryFiles;
use crate::manifest::finding::{Finding, FindingLevel};
use crate::manifest::package::CheckScope;
use crate::manifest::rules::{self, Rule, RuleClass, UnknownRule};
use crate::manifest::text::SourceFile;
use crate::manifest::web::WebFetcher;

/// The inputs of a check, and its strictness.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions<'a> {
    /// True if warnings count as errors.
    pub strict: bool,
    /// The overrides of single rules.
    pub overrides: RuleOverrides,
    /// The current time, for rules about the future. Without it these rules are not checked.
    pub now: Option<DateTime<Utc>>,
    /// The manifest that was published before, for the rules of history.
    pub previous: Option<&'a SourceFile>,
    /// The checkout of the repository, for the rules about files and packages.
    pub files: Option<&'a dyn RepositoryFiles>,
    /// The folder of the checkout as reports show it: it precedes the paths of its files. If it is empty, the paths are
    /// shown relative to the checkout.
    pub display_root: &'a str,
    /// The fetcher that requests the addresses of the manifest. Without it no address is requested.
    pub web: Option<&'a dyn WebFetcher>,
    /// True if addresses may name hosts that are not publicly reachable.
    pub allow_private_hosts: bool,
    /// The maximum number of threads that work at a time, including the calling one. With 0 or 1, no thread is started.
    /// Each thread has one package in memory. The findings do not depend on this number.
    pub threads: usize,
}

/// The override of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOverride {
    /// Allows the rule to be broken, for this reason.
    Allow(String),
    /// Sets the level of the rule.
    Level(FindingLevel),
}

/// The overrides of single rules.
#[derive(Clone, Debug, Default)]
pub struct RuleOverrides(BTreeMap<&'static str, RuleOverride>);

/// The reason why an override of a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleOverrideError {
    /// The rule does not exist.
    #[error(transparent)]
    Unknown(#[from] UnknownRule),
    /// The rule defines the shape. Without a valid shape, nothing can be checked.
    #[error("{id} cannot be allowed: without a valid shape, nothing can be checked")]
    Shape {
        /// The id of the rule.
        id: &'static str,
    },
    /// The reason is missing.
    #[error("{id} is allowed without a reason; write `{id}=why`")]
    NoReason {
        /// The id of the rule.
        id: &'static str,
    },
    /// The rule was given two different overrides.
    #[error("{id} has two different overrides")]
    Twice {
        /// The id of the rule.
        id: &'static str,
    },
}

// === impl RuleOverrides ===

impl RuleOverrides {
    /// Allows a rule to be broken. The reason is shown in every report.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule does not exist, if it cannot be allowed, if the reason is missing, or if the rule
    /// already has a different override.
    pub fn allow(&mut self, id_or_name: &str, reason: &str) -> Result<(), RuleOverrideError> {
        let rule = rules::lookup(id_or_name)?;
        if rule.class == RuleClass::Shape {
            return Err(RuleOverrideError::Shape { id: rule.id });
        }
        let reason = reason.trim();
        if reason.is_empty() {
            return Err(RuleOverrideError::NoReason { id: rule.id });
        }
        self.set(rule, RuleOverride::Allow(reason.to_owned()))
    }

    /// Sets the level of a rule.
    ///
    /// # Errors
    ///
    /// Returns an error if the rule does not exist, if it is a shape rule and the level is not an error, or if the rule
    /// already has a different override.
    pub fn level(&mut self, id_or_name: &str, level: FindingLevel) -> Result<(), RuleOverrideError> {
        let rule = rules::lookup(id_or_name)?;
        if rule.class == RuleClass::Shape && level != FindingLevel::Error {
            return Err(RuleOverrideError::Shape { id: rule.id });
        }
        self.set(rule, RuleOverride::Level(level))
    }

    fn set(&mut self, rule: &'static Rule, new_override: RuleOverride) -> Result<(), RuleOverrideError> {
        match self.0.insert(rule.id, new_override.clone()) {
            Some(before) if before != new_override => Err(RuleOverrideError::Twice { id: rule.id }),
            _ => Ok(()),
        }
    }

    /// Returns the override of a rule, if it has one.
    #[must_use]
    pub fn get(&self, rule: &Rule) -> Option<&RuleOverride> {
        self.0.get(rule.id)
    }
}

// === impl CheckOptions ===

impl CheckOptions<'_> {
    /// Returns the rules that can be checked with the given inputs in this scope, each with its level.
    pub(super) fn checked_rules(&self, has_tree: bool, scope: CheckScope) -> Vec<(&'static Rule, FindingLevel)> {
        let can_be_checked = |rule: &&Rule| match rule.class {
            RuleClass::Shape => true,
            RuleClass::Static => has_tree,
            RuleClass::Repository | RuleClass::Package => has_tree && self.files.is_some(),
            RuleClass::Network => has_tree && self.web.is_some(),
            RuleClass::History => has_tree && self.previous.is_some(),
        };
        let rules = rules::all().filter(|rule| scope.includes(rule));
        let levels = rules.filter(can_be_checked).map(|rule| (rule, self.level_of(rule).0));
        levels.filter(|(_, level)| *level != FindingLevel::Off).collect()
    }

    pub(super) fn apply_level(&self, finding: &mut Finding) {
        let (level, allowed) = self.level_of(finding.rule());
        finding.set_level(level, allowed);
    }

    /// Returns the level of a rule, and the reason why it may be broken.
    fn level_of(&self, rule: &Rule) -> (FindingLevel, Option<String>) {
        match self.overrides.get(rule) {
            Some(RuleOverride::Allow(reason)) => (rule.level.max(FindingLevel::Note), Some(reason.clone())),
            Some(RuleOverride::Level(level)) => (*level, None),
            None if self.strict && rule.level == FindingLevel::Warning => (FindingLevel::Error, None),
            None => (rule.level, None),
        }
    }
}
