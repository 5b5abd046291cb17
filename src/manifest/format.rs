//! Formats a manifest in its canonical layout.

use super::document::ManifestReadError;
use super::layout;
use super::text::{JsonLimits, SourceFile, SyntaxError, read, write};

/// Formats a manifest: fields in the order of the specification, two spaces for each level, one newline at the end.
///
/// If `sorted` is true, skills are sorted by name and version, and API references by id. No content is lost or added,
/// so every manifest that is JSON can be formatted, whatever its findings are. A byte order mark is dropped.
///
/// # Errors
///
/// Returns an error if the file is not UTF-8 or not JSON.
pub fn format(source: &SourceFile, sorted: bool) -> Result<String, ManifestReadError> {
    let name = || source.name().to_owned();
    let text = source.text().ok_or_else(|| ManifestReadError::Encoding { name: name() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = read(text, JsonLimits::default()).map_err(|error: SyntaxError| {
        let at = SourceFile::new("", text).position(error.span.start);
        ManifestReadError::Syntax { name: name(), line: at.line, column: at.column, error: Box::new(error) }
    })?;
    let root = if sorted { layout::sorted(&root) } else { root };
    Ok(write(&layout::canonical(&root)))
}
