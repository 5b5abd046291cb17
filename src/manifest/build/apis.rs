//! The API references: one for each document of their folder, from its front matter.
//!
//! The build owns the entries whose path is a document of that folder. Others were typed for documents that lie elsewhere or can
//! have no front matter, and stay as they are.

mod front;

use std::collections::BTreeSet;

use super::{Kind, Member, Node, Problem, Recipe, Value, limits, set, string, text};
use crate::manifest::package::unwanted;
use crate::manifest::text::Source;
use front::ApiFrontMatter;

/// The ending of a document's name.
const ENDING: &str = ".md";
/// It is about the folder, and no API reference.
const ABOUT: &str = "readme.md";

/// The API references of a tree, and their faults.
#[derive(Default)]
pub(super) struct ApiReferences {
    /// The entries, of which some may be missing where there are problems.
    pub(super) entries: Vec<Node>,
    /// Their ids, also of those that have problems.
    pub(super) ids: BTreeSet<String>,
    /// Ids of the manifest of before whose document is no longer there.
    pub(super) removed: Vec<String>,
}

/// Makes the entries.
pub(super) fn apis(recipe: &Recipe<'_>, previous: Option<&Node>, problems: &mut Vec<Problem>) -> ApiReferences {
    let mut apis = ApiReferences::default();
    let before: Vec<&Node> = previous.iter().filter_map(|root| root.get("apis")).flat_map(Node::elements).collect();
    for (id, path) in documents(recipe, problems) {
        match entry(recipe, &id, &path, &before) {
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
        if text(entry, "path").is_some_and(|path| is_document(recipe, path)) {
            apis.removed.extend(id.map(str::to_owned));
        } else {
            apis.entries.push(entry.clone());
        }
    }
    let kept: Vec<String> = apis.entries.iter().filter_map(|entry| text(entry, "id")).map(str::to_owned).collect();
    apis.ids.extend(kept);
    apis
}

fn is_document(recipe: &Recipe<'_>, path: &str) -> bool {
    path.strip_prefix(&recipe.apis).is_some_and(|rest| rest.starts_with('/') && rest.ends_with(ENDING))
}

/// The documents below the folder, by their ids.
fn documents(recipe: &Recipe<'_>, problems: &mut Vec<Problem>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut left = vec![String::new()];
    while let Some(below) = left.pop() {
        let at = if below.is_empty() { recipe.apis.clone() } else { format!("{}/{below}", recipe.apis) };
        let listed = match recipe.files.list(&at) {
            Ok(listed) => listed.unwrap_or_default(),
            Err(error) => {
                problems.push(error.into());
                continue;
            }
        };
        for entry in listed {
            let path = if below.is_empty() { entry.name } else { format!("{below}/{}", entry.name) };
            let whole = format!("{}/{path}", recipe.apis);
            match entry.metadata.kind {
                _ if unwanted(&path).is_some() => {}
                Kind::Folder if path.matches('/').count() < limits().depth => left.push(path),
                Kind::Folder => problems.push(Problem::new(whole, "lies too deep for API references")),
                Kind::File => found.extend(id(&path).map(|id| (id.to_owned(), whole))),
                Kind::Link(_) => {
                    problems.push(Problem::new(whole, "is a symbolic link, which raw hosts do not follow"));
                }
                Kind::Other => {}
            }
        }
    }
    found.sort_unstable();
    found
}

/// The id that the path of a document makes.
fn id(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.strip_suffix(ENDING).filter(|_| !name.eq_ignore_ascii_case(ABOUT) && name != ENDING)
}

fn entry(recipe: &Recipe<'_>, id: &str, path: &str, before: &[&Node]) -> Result<Node, Vec<Problem>> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./".contains(&byte);
    if !id.bytes().all(is_letter) {
        let message = format!("makes the id `{id}`; ids hold small letters, digits and `-`, `_`, `.`, `/`");
        return Err(vec![Problem::new(path, message)]);
    }
    let reference = read(recipe, id, path)?;
    let before = before.iter().rev().find(|entry| text(entry, "id") == Some(id));
    let mut members: Vec<Member> = before.map(|entry| entry.members().to_vec()).unwrap_or_default();
    // The document has the word: what it no longer says is not kept from before, as unknown fields are.
    members.retain(|member| !["tags", "source_urls"].contains(&member.key.as_str()));
    let fields = [("id", id), ("title", &reference.title), ("product", &reference.product)];
    for (key, value) in fields.into_iter().chain([("language", &*reference.language), ("path", path)]) {
        set(&mut members, key, string(value));
    }
    for (key, words) in [("tags", reference.tags), ("source_urls", reference.source_urls)] {
        if let Some(words) = words {
            set(&mut members, key, Node::new(Value::Array(words.into_iter().map(string).collect())));
        }
    }
    Ok(Node::new(Value::Object(members)))
}

fn read(recipe: &Recipe<'_>, id: &str, path: &str) -> Result<ApiFrontMatter, Vec<Problem>> {
    let bytes = match recipe.files.read(path, limits().archive_bytes) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(vec![Problem::new(path, "went away while it was read")]),
        Err(error) => return Err(vec![error.into()]),
    };
    front::read(&bytes, id).map_err(|faults| {
        let source = Source::new(path, bytes.as_slice());
        let problem = |fault: crate::manifest::package::front::FrontError| Problem {
            path: path.to_owned(),
            position: Some(source.position(fault.span.start)),
            message: fault.message,
        };
        faults.into_iter().map(problem).collect()
    })
}
