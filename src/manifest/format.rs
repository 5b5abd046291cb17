//! A manifest laid out in the one way that there is for it.

use super::document::ReadError;
use super::layout;
use super::text::{Limits, Source, SyntaxError, read, write};

/// Lays a manifest out: fields in the order of the specification, two spaces for each level, one newline at the end.
///
/// `sorted` puts skills in the order of name and version, and API references in that of their ids. Nothing is lost and nothing is added, so it can be
/// done to a manifest with any findings, as long as it is JSON; a byte order mark is dropped.
///
/// # Errors
///
/// It is not UTF-8, or not JSON.
pub fn format(source: &Source, sorted: bool) -> Result<String, ReadError> {
    let name = || source.name().to_owned();
    let text = source.text().ok_or_else(|| ReadError::Encoding { name: name() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = read(text, Limits::default()).map_err(|error: SyntaxError| {
        let at = Source::new("", text).position(error.span.start);
        ReadError::Syntax { name: name(), line: at.line, column: at.column, error: Box::new(error) }
    })?;
    let root = if sorted { layout::sorted(&root) } else { root };
    Ok(write(&layout::canonical(&root)))
}
