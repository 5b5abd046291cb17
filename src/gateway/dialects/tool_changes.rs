//! The changes of the image tools of one request.

use super::Adaptations;
use crate::gateway::config::{Dialect, DialectSet, ModelAlias};

/// The dialects for the image tools of a request, and the changes that were made to its tools.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolChanges {
    declared: DialectSet,
    changes: Vec<ToolChange>,
}

/// One change of a field of a tool.
#[derive(Clone, Debug)]
struct ToolChange {
    /// The dialect that makes the change; `None` if the settings name the model in another way.
    dialect: Option<Dialect>,
    /// The path of the field in the request.
    path: String,
    /// The statement of the change, which begins with the path.
    text: String,
}

// === impl ToolChanges ===

impl ToolChanges {
    /// Begins with the declared dialects, and without a change.
    pub(crate) const fn new(declared: DialectSet) -> Self {
        Self { declared, changes: Vec::new() }
    }

    /// Returns the declared dialects.
    pub(crate) const fn declared(&self) -> DialectSet {
        self.declared
    }

    /// True if a declared dialect removes the member [`STYLE`](super::STYLE) of an image tool.
    pub(crate) fn removes_style(&self) -> bool {
        super::removes_field(self.declared, super::STYLE)
    }

    /// Notes the changes of the tool with this path, such as `tools[0].`.
    pub(crate) fn note(&mut self, prefix: &str, adaptations: &Adaptations) {
        self.changes.extend(adaptations.iter().map(|adaptation| ToolChange {
            dialect: Some(adaptation.dialect),
            path: format!("{prefix}{}", adaptation.field),
            text: format!("{prefix}{adaptation}"),
        }));
    }

    /// Notes that the tool with this path names its model in another way.
    pub(crate) fn note_alias(&mut self, prefix: &str, alias: &ModelAlias) {
        let (path, text) = (format!("{prefix}model"), format!("{prefix}{alias}"));
        self.changes.push(ToolChange { dialect: None, path, text });
    }

    /// Returns the text of all changes, separated by commas, as the answer and the record state it; `None` if there is no
    /// change.
    pub(crate) fn text(&self) -> Option<String> {
        let texts: Vec<_> = self.changes.iter().map(|change| change.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Returns the dialects that have changed the field with this path, or any field.
    pub(crate) fn dialects(&self, path: Option<&str>) -> DialectSet {
        let changes = self.changes.iter().filter(|change| path.is_none_or(|path| path == change.path));
        changes.filter_map(|change| change.dialect).collect()
    }
}
