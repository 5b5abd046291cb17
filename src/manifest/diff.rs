//! Compares two manifests skill by skill, and determines the version step that the changes require.
//!
//! The module decides the size of a change: content, texts and locations require a patch version, more agents or
//! documents a minor version, and fewer of them a major version. Below 1.0.0, changes that would require a major
//! version require only a minor one, and all others a patch version. The version after a pre-release may change
//! anything.

use std::collections::BTreeMap;

use semver::Version;
use serde::Serialize;

use super::check::parse_lenient_version;
use super::document::Manifest;
use super::text::JsonNode;

/// A step between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionBump {
    /// No step: the versions are equal, or no change requires a new one.
    None,
    /// A fix.
    Patch,
    /// An addition.
    Minor,
    /// An incompatible change.
    Major,
}

/// A single change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManifestChange {
    /// The change, in words.
    pub what: String,
    /// The version step that the change requires.
    pub bump: VersionBump,
}

/// The changes of one skill. If the skill has several versions, the newest is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkillDifference {
    /// The name of the skill.
    pub name: String,
    /// The newest version in the old manifest; `None` if the skill is new.
    pub before: Option<String>,
    /// The newest version in the new manifest; `None` if the skill was removed.
    pub now: Option<String>,
    /// The changes of the skill.
    pub changes: Vec<ManifestChange>,
    /// The version step that the changes require.
    pub required: VersionBump,
    /// The version step that was made, up or down; `None` if the skill is new or removed, or if the versions cannot be
    /// compared.
    pub made: Option<VersionBump>,
    /// True if the step that was made is enough: the version increased by a large enough step, or if no step is required. Always true for a skill that is
    /// new or removed.
    pub is_enough: bool,
}

/// The differences between two manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManifestDifference {
    /// The skills that changed, by name.
    pub skills: Vec<SkillDifference>,
    /// The changes outside of skills.
    pub changes: Vec<ManifestChange>,
    /// The largest step that any change requires or any skill has made. A new skill requires a minor step, and a
    /// removed one a major step.
    pub required: VersionBump,
}

/// Fields that are not compared one by one: `sha256` is compared as the content of the skill, and the others change
/// with each new version.
const DERIVED_FIELDS: [&str; 4] = ["version", "updated_at", "size_bytes", "sha256"];

// === impl VersionBump ===

impl VersionBump {
    /// Returns the name of the step.
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

    /// Returns the step to use below 1.0.0, where a minor version may be incompatible and a patch version may add
    /// something.
    fn below_one(self) -> Self {
        match self {
            Self::Major => Self::Minor,
            Self::Minor | Self::Patch => Self::Patch,
            Self::None => Self::None,
        }
    }
}

// === impl ManifestDifference ===

impl ManifestDifference {
    /// Returns true if each changed skill has made the version step that its changes require.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.skills.iter().all(|skill| skill.is_enough)
    }
}

/// Compares two manifests.
#[must_use]
pub fn diff(old: &Manifest, new: &Manifest) -> ManifestDifference {
    let (before, now) = (newest(old.root()), newest(new.root()));
    let names: std::collections::BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
    let skills: Vec<SkillDifference> = names
        .into_iter()
        .filter_map(|name| compare_skill(name, before.get(name).copied(), now.get(name).copied()))
        .collect();
    let mut changes = compare_apis(old.root(), new.root());
    changes.extend(compare_other_fields(old.root(), new.root()));
    let skill_bumps = skills.iter().map(|skill| skill.required.max(skill.made.unwrap_or(VersionBump::None)));
    let required = skill_bumps.chain(changes.iter().map(|change| change.bump)).max().unwrap_or(VersionBump::None);
    ManifestDifference { skills, changes, required }
}

fn text<'a>(node: &'a JsonNode, key: &str) -> &'a str {
    node.get(key).and_then(JsonNode::text).unwrap_or_default()
}

fn list<'a>(root: &'a JsonNode, key: &str) -> &'a [JsonNode] {
    root.get(key).map_or(&[], JsonNode::elements)
}

/// Returns the newest entry of each skill. Of entries with equal versions, the last one counts; a text that is not a
/// version is older than every version.
fn newest(root: &JsonNode) -> BTreeMap<&str, &JsonNode> {
    let mut skills: BTreeMap<&str, &JsonNode> = BTreeMap::new();
    for entry in list(root, "skills") {
        let is_older = |known: &&JsonNode| {
            parse_lenient_version(text(entry, "version")) < parse_lenient_version(text(known, "version"))
        };
        if !skills.get(text(entry, "name")).is_some_and(is_older) {
            skills.insert(text(entry, "name"), entry);
        }
    }
    skills
}

fn compare_skill(name: &str, before: Option<&JsonNode>, now: Option<&JsonNode>) -> Option<SkillDifference> {
    let version = |node: Option<&JsonNode>| node.map(|node| text(node, "version").to_owned());
    let (changes, required, made, is_enough) = match (before, now) {
        (Some(old), Some(new)) => compare_entries(old, new)?,
        (None, _) => (
            vec![ManifestChange { what: "added".to_owned(), bump: VersionBump::Minor }],
            VersionBump::Minor,
            None,
            true,
        ),
        (_, None) => (
            vec![ManifestChange { what: "removed".to_owned(), bump: VersionBump::Major }],
            VersionBump::Major,
            None,
            true,
        ),
    };
    let (before, now) = (version(before), version(now));
    Some(SkillDifference { name: name.to_owned(), before, now, changes, required, made, is_enough })
}

fn compare_entries(
    old: &JsonNode,
    new: &JsonNode,
) -> Option<(Vec<ManifestChange>, VersionBump, Option<VersionBump>, bool)> {
    let changes = changes(old, new);
    if changes.is_empty() && text(old, "version") == text(new, "version") {
        return None;
    }
    let required = changes.iter().map(|change| change.bump).max().unwrap_or(VersionBump::None);
    let versions = parse_lenient_version(text(old, "version")).zip(parse_lenient_version(text(new, "version")));
    let Some((before, now)) = versions else { return Some((changes, required, None, required == VersionBump::None)) };
    let required = if before.major == 0 { required.below_one() } else { required };
    let made = VersionBump::between(&before, &now);
    let is_later = before.cmp_precedence(&now).is_lt();
    // The release after a pre-release may change in any way, as long as the version increases.
    let is_from_prerelease = !before.pre.is_empty() && is_later;
    let is_enough = required == VersionBump::None || is_from_prerelease || (is_later && made >= required);
    Some((changes, required, Some(made), is_enough))
}

fn changes(old: &JsonNode, new: &JsonNode) -> Vec<ManifestChange> {
    let mut changes = Vec::new();
    let content = |node: &JsonNode| text(node, "sha256").to_ascii_lowercase();
    if content(old) != content(new) {
        changes.push(ManifestChange { what: "the content changed".to_owned(), bump: VersionBump::Patch });
    }
    for key in keys(old, new).into_iter().filter(|key| !DERIVED_FIELDS.contains(&key.as_str())) {
        let (before, now) = (old.get(&key), new.get(&key));
        match key.as_str() {
            "agents" | "api_docs" => compare_members(&key, before, now, &mut changes),
            // The name of a package contains its version.
            "package" if text(old, "version") != text(new, "version") => {}
            _ if before.map(JsonNode::to_json) != now.map(JsonNode::to_json) => {
                changes.push(ManifestChange {
                    what: format!("`{}` changed", key.escape_debug()),
                    bump: VersionBump::Patch,
                });
            }
            _ => {}
        }
    }
    changes
}

fn keys(old: &JsonNode, new: &JsonNode) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for member in old.members().iter().chain(new.members()) {
        if !keys.contains(&member.key) {
            keys.push(member.key.clone());
        }
    }
    keys
}

/// Compares a list: a new element is an addition, and a missing element is an incompatible change.
fn compare_members(key: &str, before: Option<&JsonNode>, now: Option<&JsonNode>, changes: &mut Vec<ManifestChange>) {
    let values = |node: Option<&JsonNode>| {
        node.map_or(&[][..], JsonNode::elements).iter().map(JsonNode::to_json).collect::<Vec<_>>()
    };
    let (before, now) = (values(before), values(now));
    for removed in before.iter().filter(|value| !now.contains(value)) {
        changes.push(ManifestChange { what: format!("`{key}` lost {removed}"), bump: VersionBump::Major });
    }
    for added in now.iter().filter(|value| !before.contains(value)) {
        changes.push(ManifestChange { what: format!("`{key}` gained {added}"), bump: VersionBump::Minor });
    }
}

fn compare_apis(old: &JsonNode, new: &JsonNode) -> Vec<ManifestChange> {
    let by_id = |root: &'_ JsonNode| -> BTreeMap<String, serde_json::Value> {
        list(root, "apis").iter().map(|api| (text(api, "id").to_owned(), api.to_json())).collect()
    };
    let (before, now) = (by_id(old), by_id(new));
    let mut changes = Vec::new();
    let mut push = |id: &str, what: &str, bump| {
        changes.push(ManifestChange { what: format!("API reference `{}` {what}", id.escape_debug()), bump });
    };
    for (id, api) in &before {
        match now.get(id) {
            None => push(id, "was removed", VersionBump::Major),
            Some(current) if current != api => push(id, "changed", VersionBump::Patch),
            Some(_) => {}
        }
    }
    now.keys().filter(|id| !before.contains_key(*id)).for_each(|id| push(id, "was added", VersionBump::Minor));
    changes
}

/// Compares all fields except the lists and `generated_at`, which changes whenever another field changes.
fn compare_other_fields(old: &JsonNode, new: &JsonNode) -> Vec<ManifestChange> {
    let is_compared = |key: &String| !["skills", "apis", "generated_at"].contains(&key.as_str());
    let is_changed = |key: &String| old.get(key).map(JsonNode::to_json) != new.get(key).map(JsonNode::to_json);
    let changed = keys(old, new).into_iter().filter(is_compared).filter(is_changed);
    let change = |key: String| {
        let bump = if key == "schema_version" || key == "repository" { VersionBump::Major } else { VersionBump::Patch };
        ManifestChange { what: format!("`{}` changed", key.escape_debug()), bump }
    };
    changed.map(change).collect()
}
