//! A manifest: the typed models over the document as it was written.

use serde_json::{Map, Value as Json};

use super::check::shape_problem;
use super::layout::{Part, arranged, canonical};
use super::text::{Limits, Member, Node, Source, SyntaxError, Value, read, write};
use crate::wire::manifest::SkillsRegistry;

/// A manifest whose shape is right.
///
/// It can be read through the types, changed through them, and written again: what was not changed stays as it was written, with the order of keys, unknown keys and the spelling of numbers.
#[derive(Clone, Debug)]
pub struct Manifest {
    root: Node,
    registry: SkillsRegistry,
}

/// Why a manifest cannot be read. [`check`](super::check) says the same with places.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not UTF-8.
    #[error("{name} is not UTF-8")]
    Encoding {
        /// The name of the file.
        name: String,
    },
    /// It is not JSON.
    #[error("{name}:{line}:{column}: {error}")]
    Syntax {
        /// The name of the file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The character of the line, from 1.
        column: usize,
        /// What is wrong there.
        error: Box<SyntaxError>,
    },
    /// It is JSON of another shape.
    #[error("{name} is no skills registry manifest: {problem}")]
    Shape {
        /// The name of the file.
        name: String,
        /// What the schema says.
        problem: String,
    },
}

// === impl Manifest ===

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// It is not UTF-8, not JSON, or of another shape than the schema says.
    pub fn read(source: &Source) -> Result<Self, ReadError> {
        let name = || source.name().to_owned();
        let text = source.text().ok_or_else(|| ReadError::Encoding { name: name() })?;
        let root = read(text, Limits::default()).map_err(|error| {
            let at = source.position(error.span.start);
            ReadError::Syntax { name: name(), line: at.line, column: at.column, error: Box::new(error) }
        })?;
        // The schema has the word: the types alone would take `null` for a field that is left out.
        if let Some(problem) = shape_problem(&root) {
            return Err(ReadError::Shape { name: name(), problem });
        }
        let registry = serde_json::from_value(root.to_json())
            .map_err(|error| ReadError::Shape { name: name(), problem: error.to_string() })?;
        Ok(Self { root, registry })
    }

    /// A manifest that was never in a file, its fields in the order of the specification.
    ///
    /// # Errors
    ///
    /// A number of the registry is none that JSON knows.
    pub fn new(registry: SkillsRegistry) -> Result<Self, serde_json::Error> {
        let root = canonical(&Node::from(&serde_json::to_value(&registry)?));
        Ok(Self { root, registry })
    }

    /// What it says.
    #[must_use]
    pub fn registry(&self) -> &SkillsRegistry {
        &self.registry
    }

    /// The document.
    #[must_use]
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// Changes what it says; the rest of the document stays as it is.
    ///
    /// # Errors
    ///
    /// A number of the registry is none that JSON knows; then nothing is changed.
    pub fn edit(&mut self, change: impl FnOnce(&mut SkillsRegistry)) -> Result<(), serde_json::Error> {
        let before = serde_json::to_value(&self.registry)?;
        let mut registry = self.registry.clone();
        change(&mut registry);
        let after = serde_json::to_value(&registry)?;
        merge(&mut self.root, Part::Registry, Some(&before), &after);
        self.registry = registry;
        Ok(())
    }

    /// The document as text, in its own order.
    #[must_use]
    pub fn to_text(&self) -> String {
        write(&self.root)
    }
}

/// Writes the difference between two values of the types into the document.
fn merge(node: &mut Node, part: Part, before: Option<&Json>, after: &Json) {
    if before == Some(after) {
        return;
    }
    match (&mut node.value, before, after) {
        (Value::Object(members), Some(Json::Object(before)), Json::Object(after)) => {
            merge_members(members, part, before, after);
        }
        (Value::Array(elements), Some(Json::Array(before)), Json::Array(after)) if elements.len() == before.len() => {
            merge_elements(elements, part.of_element(), before, after);
        }
        _ => *node = arranged(&Node::from(after), part),
    }
}

fn merge_members(members: &mut Vec<Member>, part: Part, before: &Map<String, Json>, after: &Map<String, Json>) {
    members.retain(|member| !before.contains_key(&member.key) || after.contains_key(&member.key));
    for (key, value) in after {
        let inside = part.of_field(key);
        match members.iter_mut().rev().find(|member| member.key == *key) {
            Some(member) => merge(&mut member.node, inside, before.get(key), value),
            None => {
                let node = arranged(&Node::from(value), inside);
                members.push(Member { key: key.clone(), key_span: 0..0, node });
            }
        }
    }
}

/// Elements that are as before are moved to where they are now; of two lists of one length the others stay in place.
fn merge_elements(elements: &mut Vec<Node>, part: Part, before: &[Json], after: &[Json]) {
    let is_paired = before.len() == after.len();
    let mut old: Vec<Option<Node>> = std::mem::take(elements).into_iter().map(Some).collect();
    for (index, value) in after.iter().enumerate() {
        let is_free = |at: &usize| before[*at] == *value && old[*at].is_some();
        let same = if before.get(index) == Some(value) { Some(index) } else { (0..before.len()).find(is_free) };
        let kept = same.and_then(|at| old[at].take());
        let changed = || old.get_mut(index).filter(|_| is_paired).and_then(Option::take);
        elements.push(match kept.or_else(changed) {
            Some(mut node) => {
                merge(&mut node, part, before.get(same.unwrap_or(index)), value);
                node
            }
            None => arranged(&Node::from(value), part),
        });
    }
}
