//! Builds a manifest and its packages from a tree of skills.
//!
//! The module decides the content of each entry, when a package is built again, and when a version must be raised. It
//! writes no files: it returns the content to write, or only the problems if there are any.
//!
//! - All fields that a `SKILL.md` or the document of an API reference can state come from that file, so that no value
//!   is maintained twice. Fields that it cannot state (the repository, unknown fields) are kept from the previous
//!   manifest, and so are `api_docs`, `tags` and `agents` of a skill whose `SKILL.md` does not state them.
//! - An existing package is not built again while it has the files of the folder and the checksum of the previous
//!   manifest, because users have pinned its bytes. Changed content under the same version is an error, unless the
//!   caller allows it.
//! - A time changes only if something else changes.

mod apis;
mod entry;
mod folder;
mod repository;
#[cfg(test)]
mod tests;
mod update;

use chrono::{DateTime, SecondsFormat, Utc};

use super::check::parse_lenient_version;
use super::files::{FileKind, FilesError, RepositoryFiles};
use super::layout::{canonical, sorted};
use super::package::{PackageLimits, ZipTimestamp};
use super::text::{JsonLimits, JsonMember, JsonNode, JsonValue, SourceFile, TextPosition, read, write};

use entry::SkillSource;
pub use repository::RepositoryFields;
pub use update::{UpdateInput, UpdateOutput, update};

/// The input of a build.
#[derive(Clone)]
pub struct BuildInput<'a> {
    /// The files of the repository.
    pub files: &'a dyn RepositoryFiles,
    /// The previous manifest. Values that no file states are taken from it.
    pub previous: Option<&'a SourceFile>,
    /// The folder whose subfolders are skills.
    pub skills: String,
    /// The folder whose documents are API references.
    pub apis: String,
    /// The folder for packages.
    pub packages: String,
    /// The fields of the repository that are to be set. The others keep the values of the previous manifest.
    pub repository: RepositoryFields,
    /// The time that is written into a changed manifest and its changed entries.
    pub now: DateTime<Utc>,
    /// The modification time of all files in packages.
    pub timestamp: ZipTimestamp,
    /// True if content may change under the same version, for versions that have not been published yet.
    pub overwrite: bool,
}

/// The result of a build, ready to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildOutput {
    /// The manifest as text.
    pub manifest: String,
    /// The packages that are new or changed, by path.
    pub packages: Vec<(String, Vec<u8>)>,
    /// The number of packages that stay as they are.
    pub unchanged: usize,
    /// The files and folders of skills that are not packed.
    pub left_out: Vec<String>,
    /// The skills of the previous manifest that no longer exist.
    pub removed: Vec<String>,
    /// The ids of the API references of the previous manifest whose document no longer exists.
    pub removed_apis: Vec<String>,
}

/// A problem that prevents the build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildProblem {
    /// The path of the file or folder.
    pub path: String,
    /// The position in the file.
    pub position: Option<TextPosition>,
    /// The problem, in words that follow the path and a colon.
    pub message: String,
}

impl BuildProblem {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), position: None, message: message.into() }
    }
}

impl std::fmt::Display for BuildProblem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.position {
            Some(TextPosition { line, column }) => write!(formatter, "{}:{line}:{column}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

/// The error of a build: the problems that prevent it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", join_problems(.0))]
pub struct BuildError(pub Vec<BuildProblem>);

fn join_problems(problems: &[BuildProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl From<FilesError> for BuildProblem {
    fn from(error: FilesError) -> Self {
        let path = match &error {
            FilesError::Outside { path }
            | FilesError::TooLarge { path, .. }
            | FilesError::Name { path }
            | FilesError::Unreadable { path, .. } => path.clone(),
        };
        Self::new(path, error.to_string())
    }
}

/// Builds the manifest and its packages.
///
/// # Errors
///
/// Returns the problems that prevent the build: all of them, or only one if the previous manifest or the folder of the
/// skills cannot be read. In that case there is nothing to write.
pub fn build(input: &BuildInput<'_>) -> Result<BuildOutput, BuildError> {
    let previous = read_previous(input).map_err(|problem| BuildError(vec![problem]))?;
    let mut built = BuildOutput::default();
    let mut problems = Vec::new();
    let repository = repository::repository_node(&input.repository, previous.as_ref(), &mut problems);
    let apis = apis::build_api_references(input, previous.as_ref(), &mut problems);
    let mut skills = Vec::new();
    let mut names = Vec::new();
    for name in skill_folders(input).map_err(|problem| BuildError(vec![problem]))? {
        let before = PreviousEntries::from_manifest(previous.as_ref(), &name);
        let root = format!("{}/{name}", input.skills);
        let source = SkillSource { name: &name, root, packages: &input.packages, keeps_package_path: false };
        match entry::skill_entry(input, &source, &before, &apis.ids, &mut built) {
            Ok(entry) => skills.push(entry),
            Err(found) => problems.extend(found),
        }
        names.push(name);
    }
    if !problems.is_empty() {
        return Err(BuildError(problems));
    }
    let previous_names = previous.iter().flat_map(skills_of).filter_map(|entry| text(entry, "name"));
    built.removed =
        previous_names.filter(|name| !names.iter().any(|current| current == name)).map(str::to_owned).collect();
    built.removed.dedup();
    built.removed_apis = apis.removed;
    let array = |entries| JsonNode::new(JsonValue::Array(entries));
    let parts = [("repository", repository), ("skills", array(skills)), ("apis", array(apis.entries))];
    built.manifest = manifest_text(input, previous.as_ref(), parts);
    Ok(built)
}

/// The entries of one skill in the previous manifest.
struct PreviousEntries<'a> {
    entries: Vec<&'a JsonNode>,
}

impl<'a> PreviousEntries<'a> {
    fn from_manifest(previous: Option<&'a JsonNode>, name: &str) -> Self {
        let entries =
            previous.into_iter().flat_map(skills_of).filter(|entry| text(entry, "name") == Some(name)).collect();
        Self { entries }
    }

    fn version(&self, version: &str) -> Option<&'a JsonNode> {
        self.entries.iter().copied().find(|entry| text(entry, "version") == Some(version))
    }

    fn newest(&self) -> Option<&'a JsonNode> {
        let version = |entry| text(entry, "version").unwrap_or_default();
        self.entries.iter().copied().max_by_key(|entry| (parse_lenient_version(version(entry)), version(entry)))
    }
}

fn skills_of(manifest: &JsonNode) -> impl Iterator<Item = &JsonNode> {
    manifest.get("skills").into_iter().flat_map(JsonNode::elements)
}

fn text<'a>(entry: &'a JsonNode, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(JsonNode::text)
}

fn string(text: impl Into<String>) -> JsonNode {
    JsonNode::new(JsonValue::String(text.into()))
}

/// Sets a member; an existing member keeps its position.
fn set_member(members: &mut Vec<JsonMember>, key: &str, node: JsonNode) {
    match members.iter_mut().rev().find(|member| member.key == key) {
        Some(member) => member.node = node,
        None => members.push(JsonMember { key: key.to_owned(), key_span: 0..0, node }),
    }
}

fn read_previous(input: &BuildInput<'_>) -> Result<Option<JsonNode>, BuildProblem> {
    let Some(source) = input.previous else { return Ok(None) };
    let Some(text) = source.text() else { return Err(BuildProblem::new(source.name(), "is not UTF-8")) };
    match read(text.strip_prefix('\u{feff}').unwrap_or(text), JsonLimits::default()) {
        Ok(root) => Ok(Some(root)),
        Err(error) => {
            let position = Some(source.position(error.span.start));
            Err(BuildProblem { path: source.name().to_owned(), position, message: error.to_string() })
        }
    }
}

/// Returns the names of the skill folders, sorted.
fn skill_folders(input: &BuildInput<'_>) -> Result<Vec<String>, BuildProblem> {
    let entries = input.files.list(&input.skills)?;
    let Some(entries) = entries else { return Err(BuildProblem::new(&input.skills, "there is no such folder")) };
    let mut names = Vec::new();
    for entry in entries {
        match entry.metadata.kind {
            FileKind::Folder if super::package::unwanted(&entry.name).is_none() => names.push(entry.name),
            FileKind::Link(_) => {
                let path = format!("{}/{}", input.skills, entry.name);
                return Err(BuildProblem::new(path, "is a symbolic link, which raw hosts do not follow"));
            }
            _ => {}
        }
    }
    Ok(names)
}

fn manifest_text(input: &BuildInput<'_>, previous: Option<&JsonNode>, parts: [(&str, JsonNode); 3]) -> String {
    let mut root = previous.cloned().filter(|root| matches!(root.value, JsonValue::Object(_)));
    let before = root.as_ref().map(|root| write(&canonical(root)));
    let root = root.get_or_insert_with(|| JsonNode::new(JsonValue::Object(Vec::new())));
    let JsonValue::Object(members) = &mut root.value else { return String::new() };
    if !members.iter().any(|member| member.key == "schema_version") {
        set_member(members, "schema_version", string("1.0"));
    }
    for (key, part) in parts {
        set_member(members, key, part);
    }
    let unstamped = write(&canonical(&sorted(root)));
    if before.as_ref() == Some(&unstamped) && root.get("generated_at").is_some() {
        return unstamped;
    }
    if let JsonValue::Object(members) = &mut root.value {
        set_member(members, "generated_at", string(format_time(input.now)));
    }
    write(&canonical(&sorted(root)))
}

fn format_time(now: DateTime<Utc>) -> String {
    now.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn limits() -> PackageLimits {
    PackageLimits::default()
}
