//! The parts of a form of the type `multipart/form-data` that a stub server has received.

use std::borrow::Cow;

/// A part of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPart {
    head: String,
    content: Vec<u8>,
}

// === impl FormPart ===

impl FormPart {
    /// Returns the lines of its headers, as they arrived.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Returns the name of the field, such as `prompt` or `image[]`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.disposition("name")
    }

    /// Returns the name of the file, if the part is one, as it was encoded.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.disposition("filename")
    }

    /// Returns the content type, such as `image/png`, if the part states it.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.header("content-type")
    }

    /// Returns the bytes of the part.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns the content as text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }

    /// Returns a parameter of `content-disposition`.
    fn disposition(&self, parameter: &str) -> Option<&str> {
        let start = format!(" {parameter}=\"");
        let (_, rest) = self.header("content-disposition")?.split_once(&start)?;
        // A quotation mark in the value has a backslash before it.
        let mut ends = rest.match_indices('"').map(|(end, _)| end);
        rest.get(..ends.find(|end| !rest[..*end].ends_with('\\'))?)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Returns the parts of a form; `None` if the body is not a form with this boundary.
pub(super) fn split_form(body: &[u8], boundary: &str) -> Option<Vec<FormPart>> {
    let delimiter = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    let mut rest = body.strip_prefix(delimiter.trim_start().as_bytes())?;
    while !rest.starts_with(b"--") {
        let (head, content) = split_at(rest.strip_prefix(b"\r\n")?, b"\r\n\r\n")?;
        let (content, following) = split_at(content, delimiter.as_bytes())?;
        parts.push(FormPart { head: String::from_utf8_lossy(head).into_owned(), content: content.to_vec() });
        rest = following;
    }
    Some(parts)
}

/// Returns what is before and after the first occurrence of the separator.
fn split_at<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let start = bytes.windows(separator.len()).position(|window| window == separator)?;
    Some((bytes.get(..start)?, bytes.get(start + separator.len()..)?))
}
