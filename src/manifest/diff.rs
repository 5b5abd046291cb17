//! What two manifests say differently of each skill, and which version that asks for.
//!
//! Decides how much a change is: content, words and places ask for a patch, more agents or documents for a minor, and
//! fewer of them for a major version. Below 1.0.0 each step is one smaller, and a pre-release may change anything.

use std::collections::BTreeMap;

use semver::Version;
use serde::Serialize;

use super::check::lenient;
use super::document::Manifest;
use super::text::Node;

/// A step between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bump {
    /// The versions are equal.
    None,
    /// Something was mended.
    Patch,
    /// Something was added.
    Minor,
    /// Something does not work as before.
    Major,
}

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What, in words.
    pub what: String,
    /// What it asks for.
    pub bump: Bump,
}

/// What became of a skill: of several versions the newest is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillDifference {
    /// Its name.
    pub name: String,
    /// The newest version before; nothing if it is new.
    pub before: Option<String>,
    /// The newest version now; nothing if it is gone.
    pub now: Option<String>,
    /// What changed.
    pub changes: Vec<Change>,
    /// The step that the changes ask for.
    pub required: Bump,
    /// The step that was made; nothing if the skill is new or gone, or the versions cannot be compared.
    pub made: Option<Bump>,
    /// Whether the step that was made is enough.
    pub is_enough: bool,
}

/// What two manifests say differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The skills that changed, by name.
    pub skills: Vec<SkillDifference>,
    /// What changed besides skills.
    pub changes: Vec<Change>,
    /// The step that the whole asks for: the largest of all, where a new skill is a minor step and a lost one a major.
    pub required: Bump,
}

/// Fields whose change is no reason for a version, because it follows from one.
const FOLLOWING: [&str; 4] = ["version", "updated_at", "size_bytes", "sha256"];

// === impl Bump ===

impl Bump {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
        }
    }

    fn between(before: &Version, now: &Version) -> Self {
        if before.major != now.major {
            Self::Major
        } else if before.minor != now.minor {
            Self::Minor
        } else if before.patch != now.patch || before.pre != now.pre {
            Self::Patch
        } else {
            Self::None
        }
    }

    /// What it means below 1.0.0, where a minor version may break and a patch may add.
    fn below_one(self) -> Self {
        match self {
            Self::Major => Self::Minor,
            Self::Minor | Self::Patch => Self::Patch,
            Self::None => Self::None,
        }
    }
}

// === impl Difference ===

impl Difference {
    /// Whether every skill that changed has made the step that its changes ask for.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.skills.iter().all(|skill| skill.is_enough)
    }
}

/// Compares two manifests.
#[must_use]
pub fn diff(old: &Manifest, new: &Manifest) -> Difference {
    let (before, now) = (newest(old.root()), newest(new.root()));
    let names: std::collections::BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
    let skills: Vec<SkillDifference> =
        names.into_iter().filter_map(|name| skill(name, before.get(name).copied(), now.get(name).copied())).collect();
    let mut changes = apis(old.root(), new.root());
    changes.extend(besides(old.root(), new.root()));
    let of_skills = skills.iter().map(|skill| skill.required.max(skill.made.unwrap_or(Bump::None)));
    let required = of_skills.chain(changes.iter().map(|change| change.bump)).max().unwrap_or(Bump::None);
    Difference { skills, changes, required }
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Node::text).unwrap_or_default()
}

fn list<'a>(root: &'a Node, key: &str) -> &'a [Node] {
    root.get(key).map_or(&[], Node::elements)
}

/// The newest entry of each skill; of entries whose versions cannot be compared, the last.
fn newest(root: &Node) -> BTreeMap<&str, &Node> {
    let mut skills: BTreeMap<&str, &Node> = BTreeMap::new();
    for entry in list(root, "skills") {
        let is_older = |known: &&Node| lenient(text(entry, "version")) < lenient(text(known, "version"));
        if !skills.get(text(entry, "name")).is_some_and(is_older) {
            skills.insert(text(entry, "name"), entry);
        }
    }
    skills
}

fn skill(name: &str, before: Option<&Node>, now: Option<&Node>) -> Option<SkillDifference> {
    let version = |node: Option<&Node>| node.map(|node| text(node, "version").to_owned());
    let (changes, required, made, is_enough) = match (before, now) {
        (Some(old), Some(new)) => changed(old, new)?,
        (None, _) => (vec![Change { what: "added".to_owned(), bump: Bump::Minor }], Bump::Minor, None, true),
        (_, None) => (vec![Change { what: "removed".to_owned(), bump: Bump::Major }], Bump::Major, None, true),
    };
    let (before, now) = (version(before), version(now));
    Some(SkillDifference { name: name.to_owned(), before, now, changes, required, made, is_enough })
}

fn changed(old: &Node, new: &Node) -> Option<(Vec<Change>, Bump, Option<Bump>, bool)> {
    let changes = changes(old, new);
    if changes.is_empty() && text(old, "version") == text(new, "version") {
        return None;
    }
    let required = changes.iter().map(|change| change.bump).max().unwrap_or(Bump::None);
    let versions = lenient(text(old, "version")).zip(lenient(text(new, "version")));
    let Some((before, now)) = versions else { return Some((changes, required, None, required == Bump::None)) };
    let required = if before.major == 0 { required.below_one() } else { required };
    let made = Bump::between(&before, &now);
    let is_later = before.cmp_precedence(&now).is_lt();
    // Before its release a version may change in any way, as long as it goes up.
    let is_pre = !before.pre.is_empty() && is_later;
    let is_enough = required == Bump::None || is_pre || (is_later && made >= required);
    Some((changes, required, Some(made), is_enough))
}

fn changes(old: &Node, new: &Node) -> Vec<Change> {
    let mut changes = Vec::new();
    let content = |node: &Node| text(node, "sha256").to_ascii_lowercase();
    if content(old) != content(new) {
        changes.push(Change { what: "the content changed".to_owned(), bump: Bump::Patch });
    }
    for key in keys(old, new).into_iter().filter(|key| !FOLLOWING.contains(&key.as_str())) {
        let (before, now) = (old.get(&key), new.get(&key));
        match key.as_str() {
            "agents" | "api_docs" => members(&key, before, now, &mut changes),
            // A package is named after its version.
            "package" if text(old, "version") != text(new, "version") => {}
            _ if before.map(Node::to_json) != now.map(Node::to_json) => {
                changes.push(Change { what: format!("`{}` changed", key.escape_debug()), bump: Bump::Patch });
            }
            _ => {}
        }
    }
    changes
}

fn keys(old: &Node, new: &Node) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for member in old.members().iter().chain(new.members()) {
        if !keys.contains(&member.key) {
            keys.push(member.key.clone());
        }
    }
    keys
}

/// Lists in which more is an addition and fewer is a loss.
fn members(key: &str, before: Option<&Node>, now: Option<&Node>, changes: &mut Vec<Change>) {
    let values =
        |node: Option<&Node>| node.map_or(&[][..], Node::elements).iter().map(Node::to_json).collect::<Vec<_>>();
    let (before, now) = (values(before), values(now));
    for lost in before.iter().filter(|value| !now.contains(value)) {
        changes.push(Change { what: format!("`{key}` lost {lost}"), bump: Bump::Major });
    }
    for gained in now.iter().filter(|value| !before.contains(value)) {
        changes.push(Change { what: format!("`{key}` gained {gained}"), bump: Bump::Minor });
    }
}

fn apis(old: &Node, new: &Node) -> Vec<Change> {
    let by_id = |root: &'_ Node| -> BTreeMap<String, serde_json::Value> {
        list(root, "apis").iter().map(|api| (text(api, "id").to_owned(), api.to_json())).collect()
    };
    let (before, now) = (by_id(old), by_id(new));
    let mut changes = Vec::new();
    let mut push = |id: &str, what: &str, bump| {
        changes.push(Change { what: format!("API reference `{}` {what}", id.escape_debug()), bump });
    };
    for (id, api) in &before {
        match now.get(id) {
            None => push(id, "was removed", Bump::Major),
            Some(other) if other != api => push(id, "changed", Bump::Patch),
            Some(_) => {}
        }
    }
    now.keys().filter(|id| !before.contains_key(*id)).for_each(|id| push(id, "was added", Bump::Minor));
    changes
}

/// What stands beside the lists: only the time changes by itself.
fn besides(old: &Node, new: &Node) -> Vec<Change> {
    let beside = |key: &String| !["skills", "apis", "generated_at"].contains(&key.as_str());
    let is_changed = |key: &String| old.get(key).map(Node::to_json) != new.get(key).map(Node::to_json);
    let changed = keys(old, new).into_iter().filter(beside).filter(is_changed);
    let change = |key: String| {
        let bump = if key == "schema_version" || key == "repository" { Bump::Major } else { Bump::Patch };
        Change { what: format!("`{}` changed", key.escape_debug()), bump }
    };
    changed.map(change).collect()
}
