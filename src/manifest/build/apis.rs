//! Builds the API references: one for each document of their folder, from its front matter.
//!
//! The build owns each entry whose path is a document of that folder. Other entries were written by hand, for documents
//! that are stored elsewhere or cannot have front matter, and stay unchanged.

mod front;

use std::collections::BTreeSet;

use super::{BuildInput, BuildProblem, FileKind, JsonMember, JsonNode, JsonValue, limits, set_member, string, text};
use crate::manifest::package::unwanted;
use crate::manifest::text::SourceFile;
use front::ApiFrontMatter;

/// The file name extension of a document.
const DOCUMENT_EXTENSION: &str = ".md";
/// The name of a file that describes the folder and is not an API reference.
const README_NAME: &str = "readme.md";

/// The API references of a tree.
#[derive(Default)]
pub(super) struct ApiReferences {
    /// The entries; incomplete if there are problems.
    pub(super) entries: Vec<JsonNode>,
    /// The ids of all entries, including those with problems.
    pub(super) ids: BTreeSet<String>,
    /// The ids of the previous manifest whose document no longer exists.
    pub(super) removed: Vec<String>,
}

/// Builds the entries and adds their problems to `problems`.
pub(super) fn build_api_references(
    input: &BuildInput<'_>,
    previous: Option<&JsonNode>,
    problems: &mut Vec<BuildProblem>,
) -> ApiReferences {
    let mut apis = ApiReferences::default();
    let before: Vec<&JsonNode> =
        previous.iter().filter_map(|root| root.get("apis")).flat_map(JsonNode::elements).collect();
    for (id, path) in document_paths(input, problems) {
        match api_entry(input, &id, &path, &before) {
            Ok(entry) => apis.entries.push(entry),
            Err(found) => problems.extend(found),
        }
        apis.ids.insert(id);
    }
    for entry in before {
        let id = text(entry, "id");
        if id.is_some_and(|id| apis.ids.contains(id)) {
            continue;
        }
        if text(entry, "path").is_some_and(|path| is_document(input, path)) {
            apis.removed.extend(id.map(str::to_owned));
        } else {
            apis.entries.push(entry.clone());
        }
    }
    let kept: Vec<String> = apis.entries.iter().filter_map(|entry| text(entry, "id")).map(str::to_owned).collect();
    apis.ids.extend(kept);
    apis
}

fn is_document(input: &BuildInput<'_>, path: &str) -> bool {
    path.strip_prefix(&input.apis).is_some_and(|rest| rest.starts_with('/') && rest.ends_with(DOCUMENT_EXTENSION))
}

/// Returns the id of the document at this path, or `None` if the path is not that of a document of the folder.
pub(super) fn document_id<'a>(input: &BuildInput<'_>, path: &'a str) -> Option<&'a str> {
    id_from_path(path.strip_prefix(&input.apis)?.strip_prefix('/')?)
}

/// Returns the documents below the folder, with their ids.
fn document_paths(input: &BuildInput<'_>, problems: &mut Vec<BuildProblem>) -> Vec<(String, String)> {
    let mut documents = Vec::new();
    let mut pending = vec![String::new()];
    while let Some(subfolder) = pending.pop() {
        let folder = if subfolder.is_empty() { input.apis.clone() } else { format!("{}/{subfolder}", input.apis) };
        let entries = match input.files.list(&folder) {
            Ok(entries) => entries.unwrap_or_default(),
            Err(error) => {
                problems.push(error.into());
                continue;
            }
        };
        for entry in entries {
            let path = if subfolder.is_empty() { entry.name } else { format!("{subfolder}/{}", entry.name) };
            let full_path = format!("{}/{path}", input.apis);
            if unwanted(&path).is_some() {
                continue;
            }
            match entry.metadata.kind {
                FileKind::Folder if path.matches('/').count() < limits().depth => pending.push(path),
                FileKind::Folder => {
                    problems.push(BuildProblem::new(full_path, "is nested deeper than API references may be"));
                }
                FileKind::File => documents.extend(id_from_path(&path).map(|id| (id.to_owned(), full_path))),
                FileKind::Link(_) => {
                    problems.push(BuildProblem::new(full_path, "is a symbolic link, which raw hosts do not follow"));
                }
                FileKind::Other => {}
            }
        }
    }
    documents.sort_unstable();
    documents
}

/// Returns the id that is derived from the path of a document, or `None` if the file is not a document.
fn id_from_path(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.strip_suffix(DOCUMENT_EXTENSION)
        .filter(|_| !name.eq_ignore_ascii_case(README_NAME) && name != DOCUMENT_EXTENSION)
}

pub(super) fn api_entry(
    input: &BuildInput<'_>,
    id: &str,
    path: &str,
    before: &[&JsonNode],
) -> Result<JsonNode, Vec<BuildProblem>> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./".contains(&byte);
    if !id.bytes().all(is_allowed) {
        let message = format!("gives the id `{id}`; ids consist of lower-case letters, digits and `-`, `_`, `.`, `/`");
        return Err(vec![BuildProblem::new(path, message)]);
    }
    let reference = read_front_matter(input, id, path)?;
    let before = before.iter().rev().find(|entry| text(entry, "id") == Some(id));
    let mut members: Vec<JsonMember> = before.map(|entry| entry.members().to_vec()).unwrap_or_default();
    // The document is authoritative: a list that it no longer states is removed, unlike unknown fields, which stay.
    members.retain(|member| !["tags", "source_urls"].contains(&member.key.as_str()));
    let fields = [("id", id), ("title", &reference.title), ("product", &reference.product)];
    for (key, value) in fields.into_iter().chain([("language", &*reference.language), ("path", path)]) {
        set_member(&mut members, key, string(value));
    }
    for (key, values) in [("tags", reference.tags), ("source_urls", reference.source_urls)] {
        if let Some(values) = values {
            set_member(&mut members, key, JsonNode::new(JsonValue::Array(values.into_iter().map(string).collect())));
        }
    }
    Ok(JsonNode::new(JsonValue::Object(members)))
}

fn read_front_matter(input: &BuildInput<'_>, id: &str, path: &str) -> Result<ApiFrontMatter, Vec<BuildProblem>> {
    let bytes = match input.files.read(path, limits().archive_bytes) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(vec![BuildProblem::new(path, "is not a file of the repository")]),
        Err(error) => return Err(vec![error.into()]),
    };
    front::read_api_front_matter(&bytes, id).map_err(|faults| {
        let source = SourceFile::new(path, bytes.as_slice());
        let problem = |fault: crate::manifest::package::front::FrontMatterError| BuildProblem {
            path: path.to_owned(),
            position: Some(source.position(fault.span.start)),
            message: fault.message,
        };
        faults.into_iter().map(problem).collect()
    })
}
