//! A value of a manifest together with where it is: what the checks walk on.

use super::finding::{FileId, Span};
use super::text::{Node, child, element};

/// A value and its place. It reads what is there, whether or not the shape of the whole is right, so that one missing
/// field does not hide everything else that is wrong.
#[derive(Clone, Debug)]
pub struct Located<'a> {
    node: &'a Node,
    pointer: String,
    file: FileId,
}

// === impl Located ===

impl<'a> Located<'a> {
    pub(in crate::manifest) fn root(node: &'a Node, file: FileId) -> Self {
        Self { node, pointer: String::new(), file }
    }

    /// The value.
    #[must_use]
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Its JSON pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// The file that it is in.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Where it stands.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.file, self.node.span.clone())
    }

    /// What it holds under a key, if it is an object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        Some(Self { node: self.node.get(key)?, pointer: child(&self.pointer, key), file: self.file })
    }

    /// The text under a key, with its place, if there is one.
    #[must_use]
    pub fn text_of(&self, key: &str) -> Option<(&'a str, Self)> {
        let value = self.get(key)?;
        Some((value.node.text()?, value))
    }

    /// Its text, if it is a string.
    #[must_use]
    pub fn text(&self) -> Option<&'a str> {
        self.node.text()
    }

    /// Its elements, if it is an array.
    pub fn elements(&self) -> impl Iterator<Item = Self> + use<'a> {
        let (pointer, file) = (self.pointer.clone(), self.file);
        let elements = self.node.elements().iter().enumerate();
        elements.map(move |(index, node)| Self { node, pointer: element(&pointer, index), file })
    }

    /// The elements under a key.
    pub fn elements_of(&self, key: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.get(key).into_iter().flat_map(|list| list.elements())
    }

    /// The published skills.
    pub fn skills(&self) -> impl Iterator<Item = Self> + use<'a> {
        self.elements_of("skills")
    }

    /// The published API references.
    pub fn apis(&self) -> impl Iterator<Item = Self> + use<'a> {
        self.elements_of("apis")
    }
}
