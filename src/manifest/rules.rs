//! The rules: their stable ids, their levels, and the reasons for them.
//!
//! `cargo xtask generate` makes the table from `schemas/skills-rules.json`. An id never changes its meaning and is never
//! reused.

use super::finding::FindingLevel;

include!("../../generated/manifest_rules.rs");

/// The input that the check of a rule needs. Without this input, the rule is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleClass {
    /// The manifest alone. Without a valid shape nothing else can be checked, so a finding of such a rule is always an
    /// error and cannot be allowed.
    Shape,
    /// The manifest alone; `M066` also uses the checkout of the repository if there is one.
    Static,
    /// The manifest and the checkout of the repository.
    Repository,
    /// The manifest and the content of the packages in the checkout.
    Package,
    /// The manifest and the answers of the addresses in it.
    Network,
    /// The manifest and the one that was published before; `M114` also needs the checkout of the repository.
    History,
}

/// A rule for manifests.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// The id: `M` and three digits.
    pub id: &'static str,
    /// The name: words joined by hyphens.
    pub name: &'static str,
    /// The input that the check needs.
    pub class: RuleClass,
    /// The level of its findings, if the options of the check set no other.
    pub level: FindingLevel,
    /// The requirement, in one sentence.
    pub summary: &'static str,
    /// The reason, with an example and a fix.
    pub explain: &'static str,
}

// === impl RuleClass ===

impl RuleClass {
    /// Returns the input that rules of this class need, in words.
    #[must_use]
    pub fn needs(self) -> &'static str {
        match self {
            Self::Shape | Self::Static => "the manifest",
            Self::Repository => "a checkout of the repository",
            Self::Package => "the packages",
            Self::Network => "the network",
            Self::History => "the manifest published before",
        }
    }
}

/// Returns all rules, in the order of their ids.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    ALL.iter().copied()
}

/// Returns the rule with this id, in lower or upper case, or with exactly this name.
#[must_use]
pub fn find(word: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.id.eq_ignore_ascii_case(word) || rule.name == word)
}

/// The error for an unknown rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no rule `{word}`{}", .nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?")))]
pub struct UnknownRule {
    /// The id or name that was looked up.
    pub word: String,
    /// The id of the rule whose id or name is most similar, if it is similar enough.
    pub nearest: Option<&'static str>,
}

/// Looks up a rule by its id or name, and suggests a similar one if there is none.
///
/// # Errors
///
/// Returns an error if there is no such rule. It names a rule whose id or name differs by at most two letters, if there
/// is one.
pub fn lookup(word: &str) -> Result<&'static Rule, UnknownRule> {
    find(word).ok_or_else(|| {
        let (id, name) = (word.to_ascii_uppercase(), word.to_ascii_lowercase());
        let distance = |rule: &Rule| strsim::levenshtein(&id, rule.id).min(strsim::levenshtein(&name, rule.name));
        let nearest = all().min_by_key(|rule| distance(rule)).filter(|rule| distance(rule) <= 2);
        UnknownRule { word: word.to_owned(), nearest: nearest.map(|rule| rule.id) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_and_ids_are_sorted() {
        let ids: Vec<&str> = all().map(|rule| rule.id).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let mut names: Vec<&str> = all().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_rule_has_a_summary_and_an_explanation() {
        for rule in all() {
            assert!(rule.summary.ends_with('.') && rule.summary.len() < 120, "{}: {}", rule.id, rule.summary);
            assert!(rule.explain.len() > 80 && rule.explain.ends_with('.'), "{}: {}", rule.id, rule.explain);
            let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(rule.name.bytes().all(is_word), "{}", rule.name);
        }
    }

    /// The specification of the manifest restricts no values, so each rule that refuses some needs a documented reason.
    #[test]
    fn every_error_about_the_manifest_alone_has_a_reason() {
        let needs_only_the_manifest = |rule: &&Rule| matches!(rule.class, RuleClass::Shape | RuleClass::Static);
        let errors: Vec<&Rule> =
            all().filter(needs_only_the_manifest).filter(|rule| rule.level == FindingLevel::Error).collect();
        let ids: Vec<&str> = errors.iter().map(|rule| rule.id).collect();
        assert_eq!(ids, ["M001", "M002", "M003", "M004", "M007", "M023", "M028", "M036", "M045", "M050"]);
        for rule in errors {
            assert!(rule.explain.contains("It is an error because "), "{}", rule.id);
        }
    }

    #[test]
    fn a_rule_is_found_by_id_and_by_name() {
        assert_eq!(find("m003").map(|rule| rule.name), Some("repeated-key"));
        assert_eq!(find("repeated-key").map(|rule| rule.id), Some("M003"));
        assert_eq!(find("M999"), None);
    }
}
