//! A manifest: the typed models, and the document as it was written.

use serde_json::{Map, Value as Json};

use super::check::shape_problem;
use super::layout::{ManifestSection, canonical, with_ordered_fields};
use super::text::{JsonLimits, JsonMember, JsonNode, JsonValue, SourceFile, SyntaxError, read, write};
use crate::wire::manifest::SkillsRegistry;

/// A manifest with a valid shape.
///
/// It is read and changed through the types, and written again. Everything that was not changed stays as it was
/// written, including the order of keys, unknown keys and the spelling of numbers; only whitespace is written anew.
#[derive(Clone, Debug)]
pub struct Manifest {
    root: JsonNode,
    registry: SkillsRegistry,
}

/// The reason why a manifest cannot be read. [`check`](super::check) reports the same problems with their locations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestReadError {
    /// The file is not UTF-8.
    #[error("{name} is not UTF-8")]
    Encoding {
        /// The name of the file.
        name: String,
    },
    /// The file is not JSON, or exceeds a limit of the reader.
    #[error("{name}:{line}:{column}: {error}")]
    Syntax {
        /// The name of the file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// The problem at this position.
        error: Box<SyntaxError>,
    },
    /// The file is JSON, but does not match the schema.
    #[error("{name} is not a skills registry manifest: {problem}")]
    Shape {
        /// The name of the file.
        name: String,
        /// The first violation of the schema.
        problem: String,
    },
}

// === impl Manifest ===

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not UTF-8, is not JSON, or does not match the schema.
    pub fn read(source: &SourceFile) -> Result<Self, ManifestReadError> {
        let name = || source.name().to_owned();
        let text = source.text().ok_or_else(|| ManifestReadError::Encoding { name: name() })?;
        let root = read(text, JsonLimits::default()).map_err(|error| {
            let at = source.position(error.span.start);
            ManifestReadError::Syntax { name: name(), line: at.line, column: at.column, error: Box::new(error) }
        })?;
        // The schema is authoritative: the types alone would accept `null` for an omitted field.
        if let Some(problem) = shape_problem(&root) {
            return Err(ManifestReadError::Shape { name: name(), problem });
        }
        let registry = serde_json::from_value(root.to_json())
            .map_err(|error| ManifestReadError::Shape { name: name(), problem: error.to_string() })?;
        Ok(Self { root, registry })
    }

    /// Creates a manifest that has no file yet, with its fields in the order of the specification.
    ///
    /// # Errors
    ///
    /// Returns an error if a number of the registry cannot be written as JSON.
    pub fn new(registry: SkillsRegistry) -> Result<Self, serde_json::Error> {
        let root = canonical(&JsonNode::from(&serde_json::to_value(&registry)?));
        Ok(Self { root, registry })
    }

    /// Returns the typed models.
    #[must_use]
    pub fn registry(&self) -> &SkillsRegistry {
        &self.registry
    }

    /// Returns the document.
    #[must_use]
    pub fn root(&self) -> &JsonNode {
        &self.root
    }

    /// Changes the typed models; the rest of the document stays as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if a number of the registry cannot be written as JSON. In that case nothing is changed.
    pub fn edit(&mut self, change: impl FnOnce(&mut SkillsRegistry)) -> Result<(), serde_json::Error> {
        let before = serde_json::to_value(&self.registry)?;
        let mut registry = self.registry.clone();
        change(&mut registry);
        let after = serde_json::to_value(&registry)?;
        merge(&mut self.root, ManifestSection::Registry, Some(&before), &after);
        self.registry = registry;
        Ok(())
    }

    /// Returns the document as text, in its own order.
    #[must_use]
    pub fn to_text(&self) -> String {
        write(&self.root)
    }
}

/// Writes the difference between two typed values into the document.
fn merge(node: &mut JsonNode, part: ManifestSection, before: Option<&Json>, after: &Json) {
    if before == Some(after) {
        return;
    }
    match (&mut node.value, before, after) {
        (JsonValue::Object(members), Some(Json::Object(before)), Json::Object(after)) => {
            merge_members(members, part, before, after);
        }
        (JsonValue::Array(elements), Some(Json::Array(before)), Json::Array(after))
            if elements.len() == before.len() =>
        {
            merge_elements(elements, part.section_of_element(), before, after);
        }
        _ => *node = with_ordered_fields(&JsonNode::from(after), part),
    }
}

fn merge_members(
    members: &mut Vec<JsonMember>,
    part: ManifestSection,
    before: &Map<String, Json>,
    after: &Map<String, Json>,
) {
    members.retain(|member| !before.contains_key(&member.key) || after.contains_key(&member.key));
    for (key, value) in after {
        let inside = part.section_of_field(key);
        match members.iter_mut().rev().find(|member| member.key == *key) {
            Some(member) => merge(&mut member.node, inside, before.get(key), value),
            None => {
                let node = with_ordered_fields(&JsonNode::from(value), inside);
                members.push(JsonMember { key: key.clone(), key_span: 0..0, node });
            }
        }
    }
}

/// Moves unchanged elements to their new index. If both lists have the same length, a changed element keeps its index,
/// and only its changes are merged.
fn merge_elements(elements: &mut Vec<JsonNode>, part: ManifestSection, before: &[Json], after: &[Json]) {
    let has_same_length = before.len() == after.len();
    let mut old: Vec<Option<JsonNode>> = std::mem::take(elements).into_iter().map(Some).collect();
    for (index, value) in after.iter().enumerate() {
        let is_unused_match = |at: &usize| before[*at] == *value && old[*at].is_some();
        let old_index =
            if before.get(index) == Some(value) { Some(index) } else { (0..before.len()).find(is_unused_match) };
        let unchanged = old_index.and_then(|at| old[at].take());
        let changed = || old.get_mut(index).filter(|_| has_same_length).and_then(Option::take);
        elements.push(match unchanged.or_else(changed) {
            Some(mut node) => {
                merge(&mut node, part, before.get(old_index.unwrap_or(index)), value);
                node
            }
            None => with_ordered_fields(&JsonNode::from(value), part),
        });
    }
}
