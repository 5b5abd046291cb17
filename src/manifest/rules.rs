//! The rules: their ids, which are stable, how bad it is to break them, and why they are there.
//!
//! Decides nothing at run time: a table. An id is never used for something else, and never reused.

mod digests;
mod history;
mod layout;
mod lists;
mod names;
mod network;
mod paths;
mod shape;
mod times;
mod urls;

use super::finding::Level;
use super::package::rules as package;
pub(in crate::manifest) use digests::*;
pub(in crate::manifest) use history::*;
pub(in crate::manifest) use layout::*;
pub(in crate::manifest) use lists::*;
pub(in crate::manifest) use names::*;
pub(in crate::manifest) use network::*;
pub(in crate::manifest) use package::*;
pub(in crate::manifest) use paths::*;
pub(in crate::manifest) use shape::*;
pub(in crate::manifest) use times::*;
pub(in crate::manifest) use urls::*;

/// What a check needs to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The file alone; without it there is nothing to check, so it cannot be allowed away.
    Shape,
    /// The file alone.
    Static,
    /// The checkout of the repository.
    Repository,
    /// The content of the packages.
    Package,
    /// What addresses answer.
    Network,
    /// The manifest that was published before.
    History,
}

/// One rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// `M` and three digits.
    pub id: &'static str,
    /// A name in words with hyphens.
    pub name: &'static str,
    /// What it takes to check it.
    pub class: Class,
    /// How bad it is where nobody says otherwise.
    pub level: Level,
    /// What must hold, in a sentence.
    pub summary: &'static str,
    /// Why, with an example and the way to mend it.
    pub explain: &'static str,
}

// === impl Class ===

impl Class {
    /// What it takes to check a rule of this class, in words.
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

/// Every rule, by id.
#[expect(unused_qualifications, reason = "every list has this name, and one glob is taken for the one that is meant")]
pub fn all() -> impl Iterator<Item = &'static Rule> {
    let groups: [&[&'static Rule]; 11] = [
        shape::RULES,
        times::RULES,
        urls::RULES,
        names::RULES,
        digests::RULES,
        paths::RULES,
        lists::RULES,
        package::RULES,
        network::RULES,
        history::RULES,
        layout::RULES,
    ];
    groups.into_iter().flatten().copied()
}

/// The rule with this id, in small or capital letters, or with this name.
#[must_use]
pub fn find(word: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.id.eq_ignore_ascii_case(word) || rule.name == word)
}

/// Nobody knows this rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no rule `{word}`{}", .nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?")))]
pub struct UnknownRule {
    /// What was asked for.
    pub word: String,
    /// The id of the rule that is nearest to it.
    pub nearest: Option<&'static str>,
}

/// The same, or the rule that was most likely meant.
///
/// # Errors
///
/// There is no such rule.
pub fn lookup(word: &str) -> Result<&'static Rule, UnknownRule> {
    find(word).ok_or_else(|| {
        let (id, name) = (word.to_ascii_uppercase(), word.to_ascii_lowercase());
        let distance = |rule: &Rule| strsim::levenshtein(&id, rule.id).min(strsim::levenshtein(&name, rule.name));
        let nearest = all().min_by_key(|rule| distance(rule)).filter(|rule| distance(rule) <= 2);
        UnknownRule { word: word.to_owned(), nearest: nearest.map(|rule| rule.id) }
    })
}

/// Writes down the rules of one file: each a static by its id, and all of them as `RULES`.
macro_rules! rules {
    ($($id:ident $name:literal $class:ident $level:ident $summary:literal $explain:literal)*) => {
        $(
            #[doc = $summary]
            pub(in $crate::manifest) static $id: $crate::manifest::rules::Rule = $crate::manifest::rules::Rule {
                id: stringify!($id),
                name: $name,
                class: $crate::manifest::rules::Class::$class,
                level: $crate::manifest::Level::$level,
                summary: $summary,
                explain: $explain,
            };
        )*
        pub(in $crate::manifest) const RULES: &[&$crate::manifest::rules::Rule] = &[$(&$id),*];
    };
}

pub(in crate::manifest) use rules;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_stand_once_and_in_order() {
        let ids: Vec<&str> = all().map(|rule| rule.id).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let mut names: Vec<&str> = all().map(|rule| rule.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_rule_says_what_must_hold_and_why() {
        for rule in all() {
            assert!(rule.summary.ends_with('.') && rule.summary.len() < 120, "{}: {}", rule.id, rule.summary);
            assert!(rule.explain.len() > 80 && rule.explain.ends_with('.'), "{}: {}", rule.id, rule.explain);
            let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(rule.name.bytes().all(is_word), "{}", rule.name);
        }
    }

    /// The specification gives no rules for values. What is refused all the same is refused for a reason.
    #[test]
    fn what_is_refused_in_the_manifest_alone_is_so_for_a_reason_that_is_told() {
        let of_manifest = |rule: &&Rule| matches!(rule.class, Class::Shape | Class::Static);
        let errors: Vec<&Rule> = all().filter(of_manifest).filter(|rule| rule.level == Level::Error).collect();
        let ids: Vec<&str> = errors.iter().map(|rule| rule.id).collect();
        assert_eq!(ids, ["M001", "M002", "M003", "M004", "M007", "M023", "M036", "M045", "M050"]);
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
