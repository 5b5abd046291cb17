//! A value of a manifest with its location: the input of the checks.

use super::finding::{FileId, SourceSpan};
use super::text::{JsonNode, child, element};

/// A value and its location. It can be read even if the shape of the manifest is invalid, so that one missing field
/// hides no other finding.
#[derive(Clone, Debug)]
pub struct LocatedNode<'a> {
    node: &'a JsonNode,
    pointer: String,
    file: FileId,
}

// === impl LocatedNode ===

impl<'a> LocatedNode<'a> {
    pub(in crate::manifest) fn root(node: &'a JsonNode, file: FileId) -> Self {
        Self { node, pointer: String::new(), file }
    }

    /// Returns the value.
    #[must_use]
    pub fn node(&self) -> &'a JsonNode {
        self.node
    }

    /// Returns the JSON pointer to the value.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the file that contains the value.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Returns the span of the value.
    #[must_use]
    pub fn span(&self) -> SourceSpan {
        SourceSpan::new(self.file, self.node.span.clone())
    }

    /// Returns the member with this key, if the value is an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        Some(Self { node: self.node.get(key)?, pointer: child(&self.pointer, key), file: self.file })
    }

    /// Returns the text of the member with this key and its location, if there is one.
    #[must_use]
    pub fn text_of(&self, key: &str) -> Option<(&'a str, Self)> {
        let value = self.get(key)?;
        Some((value.node.text()?, value))
    }

    /// Returns the text, if the value is a string.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        self.node.text()
    }

    /// Returns the elements, if the value is an array.
    pub fn elements(&self) -> impl Iterator<Item = Self> + use<'a> {
        let (pointer, file) = (self.pointer.clone(), self.file);
        let elements = self.node.elements().iter().enumerate();
        elements.map(move |(index, node)| Self { node, pointer: element(&pointer, index), file })
    }

    /// Returns the elements of the member with this key.
    pub fn elements_of(&self, key: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.get(key).into_iter().flat_map(|list| list.elements())
    }

    /// Returns the published skills.
    pub fn skills(&self) -> impl Iterator<Item = Self> + use<'a> {
        self.elements_of("skills")
    }

    /// Returns the published API references.
    pub fn apis(&self) -> impl Iterator<Item = Self> + use<'a> {
        self.elements_of("apis")
    }
}
