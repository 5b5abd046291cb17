//! Extracts the texts of a request: all texts, or the last text of the user, in every form that clients send.
//!
//! Input without a text may still be meaningful to the model, so it is no error. The only possible error is that
//! the body cannot be read back from disk.

use super::body_members::{self, BodyMember, JsonType, KnownMembers, ValueSpan};
use super::body_reader::{BegunValue, BodyReader};
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;

/// The most bytes of a user's text that are kept (our choice). The limit on the prompt of an image request is the same
/// number of characters.
const USER_TEXT_MAX: usize = 32_000;
/// The number of bytes after which a window is passed on (our choice).
const WINDOW: usize = 256 * 1024;
/// The number of bytes that are repeated in the next window (our choice), so that every shorter expression is whole in
/// at least one window.
const WINDOW_OVERLAP: usize = 32 * 1024;
/// The greatest depth of nested values in which texts are searched (our choice): items have parts, which have texts.
const DEPTH_MAX: u32 = 6;
/// The members of a request whose texts are visited.
const REQUEST_MEMBERS: &[&str] = &["input", "instructions"];
/// The members of the objects inside these members whose texts are visited.
const TEXT_MEMBERS: &[&str] = &["arguments", "content", "input", "output", "revised_prompt", "summary", "text"];
/// The members of an item that are read for the user's text.
const ITEM_MEMBERS: &[&str] = &["role", "content"];
/// The members of a part of an item that are read for the user's text.
const PART_MEMBERS: &[&str] = &["text"];

/// Returns the last text of the user in the input that is not blank, or the input itself if it is a string, cut at
/// `USER_TEXT_MAX`. Returns an empty text if there is none.
pub(super) fn last_user_text(body: &SpooledBytes, input: ValueSpan) -> Result<String, Error> {
    let (mut reader, _) = BodyReader::over_span(body, input)?;
    match input.json_type {
        JsonType::Text => read_text(&mut reader),
        JsonType::Array => {
            let mut last = String::new();
            while let Some(item) = reader.next_value()? {
                let known = body_members::read_members(&mut reader, item, ITEM_MEMBERS)?;
                if let Some(text) = user_text(body, &known)?.filter(|text| !text.trim().is_empty()) {
                    last = text;
                }
            }
            Ok(last)
        }
        _ => Ok(String::new()),
    }
}

/// Passes the texts in a body to `is_enough`, each on a line of its own: the input of every role, and the instructions.
/// Images and names are not texts. The texts are passed in windows that overlap, until `is_enough` returns true.
pub(super) fn visit_texts(body: &SpooledBytes, is_enough: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
    let mut window = TextWindow { text: String::new(), has_new_text: false, is_done: false, is_enough };
    let (mut reader, _) = BodyReader::over_body(body)?;
    while let Some(value) = reader.next_value()? {
        if REQUEST_MEMBERS.contains(&reader.key()) {
            collect(&mut reader, value, &mut window, DEPTH_MAX)?;
        } else {
            reader.skip(value)?;
        }
    }
    window.flush();
    Ok(())
}

/// The texts that have been collected and not yet passed on, after the end of the last window, which is repeated.
struct TextWindow<'e> {
    text: String,
    /// True if the window has more than the text that is repeated from the last window.
    has_new_text: bool,
    /// True after `is_enough` has returned true.
    is_done: bool,
    is_enough: &'e mut dyn FnMut(&str) -> bool,
}

// === impl TextWindow ===

impl TextWindow<'_> {
    fn push(&mut self, text: &str) {
        if self.is_done {
            return;
        }
        self.text.push_str(text);
        self.has_new_text = true;
        if self.text.len() > WINDOW {
            self.flush();
            let overlap_start = self.text.floor_char_boundary(self.text.len() - WINDOW_OVERLAP);
            self.text.drain(..overlap_start);
        }
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.has_new_text) && !self.is_done {
            self.is_done = (self.is_enough)(&self.text);
        }
    }
}

/// Collects the texts of a value: a string itself, the texts of the elements of an array, or those of the
/// `TEXT_MEMBERS` of an object, nested at most `depth` deep.
fn collect(
    reader: &mut BodyReader<'_>,
    value: BegunValue,
    window: &mut TextWindow<'_>,
    depth: u32,
) -> Result<(), Error> {
    match value.first {
        b'"' => {
            reader.visit_text(|text| window.push(text))?;
            window.push("\n");
        }
        b'{' | b'[' if depth > 0 => {
            while let Some(inner) = reader.next_value()? {
                if value.first == b'[' || TEXT_MEMBERS.contains(&reader.key()) {
                    collect(reader, inner, window, depth - 1)?;
                } else {
                    reader.skip(inner)?;
                }
            }
        }
        // Any other type has no texts, and more deeply nested values are not searched.
        _ => drop(reader.skip(value)?),
    }
    Ok(())
}

/// Returns the user's text in an item; `None` if the item has another role, or no content that may be text.
fn user_text(body: &SpooledBytes, item: &KnownMembers) -> Result<Option<String>, Error> {
    if item.get("role").and_then(BodyMember::parse::<String>).as_deref() != Some("user") {
        return Ok(None);
    }
    let Some(content) = item.get("content") else { return Ok(None) };
    let (mut reader, _) = BodyReader::over_span(body, content.span)?;
    match content.json_type() {
        JsonType::Text => read_text(&mut reader).map(Some),
        JsonType::Array => {
            let mut text = String::new();
            while let Some(part) = reader.next_value()? {
                let known = body_members::read_members(&mut reader, part, PART_MEMBERS)?;
                append_part(body, &known, &mut text)?;
            }
            Ok(Some(text))
        }
        _ => Ok(None),
    }
}

/// Adds the text of a part to `collected`, on a line of its own.
fn append_part(body: &SpooledBytes, part: &KnownMembers, collected: &mut String) -> Result<(), Error> {
    if let Some(text) = part.get("text").filter(|text| text.json_type() == JsonType::Text) {
        append(collected, if collected.is_empty() { "" } else { "\n" });
        let (mut reader, _) = BodyReader::over_span(body, text.span)?;
        reader.visit_text(|text| append(collected, text))?;
    }
    Ok(())
}

/// Returns a string that has begun, cut at `USER_TEXT_MAX`.
fn read_text(reader: &mut BodyReader<'_>) -> Result<String, Error> {
    let mut collected = String::new();
    reader.visit_text(|text| append(&mut collected, text))?;
    Ok(collected)
}

fn append(collected: &mut String, text: &str) {
    let remaining = USER_TEXT_MAX.saturating_sub(collected.len());
    collected.push_str(&text[..text.floor_char_boundary(remaining)]);
}
