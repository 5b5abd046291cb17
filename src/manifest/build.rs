//! A manifest and its packages, made from a tree of skills.
//!
//! Decides what an entry says, when a package is made anew, and when a version has to be raised.
//! Refuses to write: it hands back what there is to write, and nothing where something is wrong.
//!
//! - Everything that a `SKILL.md` or the document of an API reference can say comes from there, so that nothing is typed twice;
//!   what they cannot say (the repository, unknown fields) or do not (`api_docs` of other JSON) stays as it is in the manifest
//!   of before.
//! - A package that was made is never made again while it holds what the folder holds: its bytes are what people have
//!   pinned. Changed content under the same version is an error.
//! - Times change only where something else does.

mod apis;
mod entry;
mod folder;
mod repository;
#[cfg(test)]
mod tests;

use chrono::{DateTime, SecondsFormat, Utc};

use super::files::{Files, FilesError, Kind};
use super::layout::{canonical, sorted};
use super::package::{Limits, Stamp};
use super::text::{Limits as TextLimits, Member, Node, Position, Source, Value, read, write};

pub use repository::Facts;

/// What to build from.
#[derive(Clone)]
pub struct Recipe<'a> {
    /// The repository.
    pub files: &'a dyn Files,
    /// The manifest of before, which is also where what no file says comes from.
    pub previous: Option<&'a Source>,
    /// The folder whose folders are skills.
    pub skills: String,
    /// The folder whose documents are API references.
    pub apis: String,
    /// The folder that packages go to.
    pub packages: String,
    /// What is known of the repository.
    pub facts: Facts,
    /// The time that is written where something changed.
    pub now: DateTime<Utc>,
    /// The time of files in packages.
    pub stamp: Stamp,
    /// Whether content may change under the same version: for what nobody has got yet.
    pub overwrite: bool,
}

/// What there is to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// The manifest as text.
    pub manifest: String,
    /// Packages that are new or changed, by path.
    pub packages: Vec<(String, Vec<u8>)>,
    /// How many packages stay as they are.
    pub kept: usize,
    /// Files of skills that do not go into packages.
    pub left_out: Vec<String>,
    /// Skills of the manifest of before that are no longer there.
    pub removed: Vec<String>,
    /// API references of the manifest of before, by id, whose document is no longer there.
    pub removed_apis: Vec<String>,
}

/// One thing that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or folder.
    pub path: String,
    /// Where in the file.
    pub position: Option<Position>,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), position: None, message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.position {
            Some(Position { line, column }) => write!(formatter, "{}:{line}:{column}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

/// Why nothing was built: everything that is in the way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct BuildError(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl From<FilesError> for Problem {
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

/// Makes the manifest and its packages.
///
/// # Errors
///
/// With everything that is in the way. Then there is nothing to write.
pub fn build(recipe: &Recipe<'_>) -> Result<Built, BuildError> {
    let previous = previous(recipe).map_err(|problem| BuildError(vec![problem]))?;
    let mut built = Built::default();
    let mut problems = Vec::new();
    let repository = repository::node(&recipe.facts, previous.as_ref(), &mut problems);
    let apis = apis::apis(recipe, previous.as_ref(), &mut problems);
    let mut skills = Vec::new();
    let mut names = Vec::new();
    for name in folders(recipe).map_err(|problem| BuildError(vec![problem]))? {
        let before = Before::of(previous.as_ref(), &name);
        match entry::entry(recipe, &name, &before, &apis.ids, &mut built) {
            Ok(entry) => skills.push(entry),
            Err(found) => problems.extend(found),
        }
        names.push(name);
    }
    if !problems.is_empty() {
        return Err(BuildError(problems));
    }
    let old = previous.iter().flat_map(skills_of).filter_map(|entry| text(entry, "name"));
    built.removed = old.filter(|name| !names.iter().any(|other| other == name)).map(str::to_owned).collect();
    built.removed.dedup();
    built.removed_apis = apis.removed;
    let array = |entries| Node::new(Value::Array(entries));
    let parts = [("repository", repository), ("skills", array(skills)), ("apis", array(apis.entries))];
    built.manifest = manifest(recipe, previous.as_ref(), parts);
    Ok(built)
}

/// What the manifest of before says of a skill.
struct Before<'a> {
    entries: Vec<&'a Node>,
}

impl<'a> Before<'a> {
    fn of(previous: Option<&'a Node>, name: &str) -> Self {
        let entries =
            previous.into_iter().flat_map(skills_of).filter(|entry| text(entry, "name") == Some(name)).collect();
        Self { entries }
    }

    fn version(&self, version: &str) -> Option<&'a Node> {
        self.entries.iter().copied().find(|entry| text(entry, "version") == Some(version))
    }

    fn newest(&self) -> Option<&'a Node> {
        self.entries.iter().copied().max_by_key(|entry| super::layout::order(entry))
    }
}

fn skills_of(manifest: &Node) -> impl Iterator<Item = &Node> {
    manifest.get("skills").into_iter().flat_map(Node::elements)
}

fn text<'a>(entry: &'a Node, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Node::text)
}

fn string(text: impl Into<String>) -> Node {
    Node::new(Value::String(text.into()))
}

/// Writes a member, where it stands if it is there.
fn set(members: &mut Vec<Member>, key: &str, node: Node) {
    match members.iter_mut().rev().find(|member| member.key == key) {
        Some(member) => member.node = node,
        None => members.push(Member { key: key.to_owned(), key_span: 0..0, node }),
    }
}

fn previous(recipe: &Recipe<'_>) -> Result<Option<Node>, Problem> {
    let Some(source) = recipe.previous else { return Ok(None) };
    let Some(text) = source.text() else { return Err(Problem::new(source.name(), "is not UTF-8")) };
    match read(text.strip_prefix('\u{feff}').unwrap_or(text), TextLimits::default()) {
        Ok(root) => Ok(Some(root)),
        Err(error) => {
            let position = Some(source.position(error.span.start));
            Err(Problem { path: source.name().to_owned(), position, message: error.to_string() })
        }
    }
}

/// The names of the folders of skills, sorted.
fn folders(recipe: &Recipe<'_>) -> Result<Vec<String>, Problem> {
    let listed = recipe.files.list(&recipe.skills)?;
    let Some(listed) = listed else { return Err(Problem::new(&recipe.skills, "there is no such folder")) };
    let mut names = Vec::new();
    for entry in listed {
        match entry.metadata.kind {
            Kind::Folder if super::package::unwanted(&entry.name).is_none() => names.push(entry.name),
            Kind::Link(_) => {
                let path = format!("{}/{}", recipe.skills, entry.name);
                return Err(Problem::new(path, "is a symbolic link, which raw hosts do not follow"));
            }
            _ => {}
        }
    }
    Ok(names)
}

fn manifest(recipe: &Recipe<'_>, previous: Option<&Node>, parts: [(&str, Node); 3]) -> String {
    let mut root = previous.cloned().filter(|root| matches!(root.value, Value::Object(_)));
    let before = root.as_ref().map(|root| write(&canonical(root)));
    let root = root.get_or_insert_with(|| Node::new(Value::Object(Vec::new())));
    let Value::Object(members) = &mut root.value else { return String::new() };
    if !members.iter().any(|member| member.key == "schema_version") {
        set(members, "schema_version", string("1.0"));
    }
    parts.into_iter().for_each(|(key, part)| set(members, key, part));
    let unstamped = write(&canonical(&sorted(root)));
    if before.as_ref() == Some(&unstamped) && root.get("generated_at").is_some() {
        return unstamped;
    }
    if let Value::Object(members) = &mut root.value {
        set(members, "generated_at", string(stamp(recipe.now)));
    }
    write(&canonical(&sorted(root)))
}

fn stamp(now: DateTime<Utc>) -> String {
    now.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn limits() -> Limits {
    Limits::default()
}
