//! Builds entries that a manifest already lists again, by the rules of a build.
//!
//! The module decides which entries are built again: of each skill, that of the version in its folder or else the newest
//! one, and the API references that a build owns. A version that is not listed and is lower than the newest one gets an
//! entry of its own, because the newest release stays published. An entry states its folder and the folder of its
//! package. Everything else of the manifest, including the order of its entries, stays as it is.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::entry::{SkillSource, are_equal_except_spans, skill_entry};
use super::{
    BuildError, BuildInput, BuildOutput, BuildProblem, FileKind, JsonMember, JsonNode, JsonValue, PreviousEntries,
    RepositoryFields, apis, format_time, set_member, skills_of, string, text,
};
use crate::manifest::check::parse_lenient_version;
use crate::manifest::document::Manifest;
use crate::manifest::files::RepositoryFiles;
use crate::manifest::layout::{ManifestSection, with_ordered_fields};
use crate::manifest::package::ZipTimestamp;
use crate::manifest::text::write;

/// The input of an update.
#[derive(Clone)]
pub struct UpdateInput<'a> {
    /// The files of the repository.
    pub files: &'a dyn RepositoryFiles,
    /// The manifest.
    pub manifest: &'a Manifest,
    /// The names of the skills to update; `None` stands for all skills and API references.
    pub names: Option<BTreeSet<String>>,
    /// The folder whose documents are API references.
    pub apis: String,
    /// The time that is written into a changed manifest and its changed entries.
    pub now: DateTime<Utc>,
    /// The modification time of all files in packages.
    pub timestamp: ZipTimestamp,
    /// True if content may change under the same version, for versions that have not been published yet.
    pub overwrite: bool,
}

/// The result of an update, ready to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateOutput {
    /// The manifest as text, or `None` if it does not change.
    pub manifest: Option<String>,
    /// The packages that are new or changed, by path.
    pub packages: Vec<(String, Vec<u8>)>,
    /// The files and folders of skills that are not packed.
    pub left_out: Vec<String>,
}

/// Builds the entries of a manifest again whose sources have changed. Skills that it does not list are not added.
///
/// # Errors
///
/// Returns all problems that prevent the update. In that case there is nothing to write.
pub fn update(input: &UpdateInput<'_>) -> Result<UpdateOutput, BuildError> {
    let root = input.manifest.root();
    let mut problems = Vec::new();
    let mut built = BuildOutput::default();
    let apis = updated_apis(input, &mut problems);
    let skills = updated_skills(input, &mut built, &mut problems);
    if !problems.is_empty() {
        return Err(BuildError(problems));
    }
    let mut updated = root.clone();
    for (key, section, changes) in [("skills", ManifestSection::Skill, skills), ("apis", ManifestSection::Api, apis)] {
        apply_changes(&mut updated, key, section, changes);
    }
    let is_changed = !are_equal_except_spans(root.members(), updated.members());
    if let JsonValue::Object(members) = &mut updated.value {
        set_member(members, "generated_at", string(format_time(input.now)));
    }
    let manifest = is_changed.then(|| write(&updated));
    Ok(UpdateOutput { manifest, packages: built.packages, left_out: built.left_out })
}

/// A change of a list of the manifest: an entry that replaces the one at the index, or is added before it.
struct EntryChange {
    index: usize,
    is_added: bool,
    entry: JsonNode,
}

fn apply_changes(root: &mut JsonNode, key: &str, section: ManifestSection, mut changes: Vec<EntryChange>) {
    let JsonValue::Object(members) = &mut root.value else { return };
    let Some(member) = members.iter_mut().rev().find(|member| member.key == key) else { return };
    let JsonValue::Array(elements) = &mut member.node.value else { return };
    // From the last index on, an added entry moves no entry that is still to be changed.
    changes.sort_by_key(|change| std::cmp::Reverse(change.index));
    for EntryChange { index, is_added, entry } in changes {
        elements.splice(index..index + usize::from(!is_added), [with_ordered_fields(&entry, section)]);
    }
}

/// Builds the entries of the skills, and returns those that changed.
fn updated_skills(
    input: &UpdateInput<'_>,
    built: &mut BuildOutput,
    problems: &mut Vec<BuildProblem>,
) -> Vec<EntryChange> {
    let root = input.manifest.root();
    let ids = api_entries(root).filter_map(|entry| text(entry, "id")).map(str::to_owned).collect();
    let build_input = build_input(input);
    let mut updated = Vec::new();
    let mut seen = BTreeSet::new();
    for name in skills_of(root).filter_map(|entry| text(entry, "name")) {
        let is_selected = input.names.as_ref().is_none_or(|names| names.contains(name));
        if !is_selected || !seen.insert(name) {
            continue;
        }
        let before = PreviousEntries::from_manifest(Some(root), name);
        let Some(newest) = before.newest() else { continue };
        let source = skill_source(input.files, name, newest);
        let entry = match source.and_then(|source| skill_entry(&build_input, &source, &before, &ids, built)) {
            Ok(entry) => entry,
            Err(found) => {
                problems.extend(found);
                continue;
            }
        };
        // The folder may hold a version that is listed beside newer ones.
        let listed = text(&entry, "version").and_then(|version| before.version(version));
        let is_added = listed.is_none() && is_lower_version(&entry, newest);
        let replaced = listed.unwrap_or(newest);
        let is_changed = is_added || !are_equal_except_times(replaced, &entry);
        let index = skills_of(root).position(|listed| std::ptr::eq(listed, replaced));
        updated.extend(index.filter(|_| is_changed).map(|index| EntryChange { index, is_added, entry }));
    }
    updated
}

fn is_lower_version(entry: &JsonNode, newest: &JsonNode) -> bool {
    let version = |entry| text(entry, "version").and_then(parse_lenient_version);
    match (version(entry), version(newest)) {
        (Some(version), Some(newest)) => version.cmp_precedence(&newest).is_lt(),
        _ => false,
    }
}

/// Returns true if two entries of a skill differ at most in `updated_at`.
fn are_equal_except_times(first: &JsonNode, second: &JsonNode) -> bool {
    let without_time = |entry: &JsonNode| -> Vec<JsonMember> {
        entry.members().iter().filter(|member| member.key != "updated_at").cloned().collect()
    };
    are_equal_except_spans(&without_time(first), &without_time(second))
}

/// Returns the folders that the newest entry of a skill states. The folder of the skill must exist.
fn skill_source<'a>(
    files: &dyn RepositoryFiles,
    name: &'a str,
    newest: &'a JsonNode,
) -> Result<SkillSource<'a>, Vec<BuildProblem>> {
    let stated = |key| text(newest, key).unwrap_or_default();
    let root = stated("path").trim_end_matches('/').to_owned();
    match files.metadata(&root) {
        Ok(Some(metadata)) if metadata.kind == FileKind::Folder && !root.is_empty() => {}
        Ok(_) => {
            let message = format!("is not the folder of `{name}`; restore it, or remove the entry from the manifest");
            return Err(vec![BuildProblem::new(root, message)]);
        }
        Err(error) => return Err(vec![error.into()]),
    }
    let packages = stated("package").rsplit_once('/').map_or("", |(folder, _)| folder);
    Ok(SkillSource { name, root, packages, keeps_package_path: true })
}

fn build_input<'a>(input: &UpdateInput<'a>) -> BuildInput<'a> {
    BuildInput {
        files: input.files,
        previous: None,
        skills: String::new(),
        apis: input.apis.clone(),
        packages: String::new(),
        repository: RepositoryFields::default(),
        now: input.now,
        timestamp: input.timestamp,
        overwrite: input.overwrite,
    }
}

fn api_entries(root: &JsonNode) -> impl Iterator<Item = &JsonNode> {
    root.get("apis").into_iter().flat_map(JsonNode::elements)
}

/// Builds the API references again that a build owns, unless only certain skills are selected.
fn updated_apis(input: &UpdateInput<'_>, problems: &mut Vec<BuildProblem>) -> Vec<EntryChange> {
    if input.names.is_some() {
        return Vec::new();
    }
    let before: Vec<&JsonNode> = api_entries(input.manifest.root()).collect();
    let build_input = build_input(input);
    let mut updated = Vec::new();
    for (index, entry) in before.iter().enumerate() {
        let (Some(id), Some(path)) = (text(entry, "id"), text(entry, "path")) else { continue };
        if apis::document_id(&build_input, path) != Some(id) {
            continue;
        }
        match apis::api_entry(&build_input, id, path, &before) {
            Ok(new) if are_equal_except_spans(entry.members(), new.members()) => {}
            Ok(entry) => updated.push(EntryChange { index, is_added: false, entry }),
            Err(found) => problems.extend(found),
        }
    }
    updated
}
