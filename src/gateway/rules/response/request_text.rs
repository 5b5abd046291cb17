//! Extracts the texts of a request: all of them, and the last one of the user, in every form that clients write.
//!
//! Input without a text here may still mean something to the model, so the only error is a disk that fails.

use super::body_members::{self, BodyMember, JsonType, ValueSpan};
use super::json_walker::JsonWalker;
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;

/// The most bytes of a user's text that are kept: as many as a prompt may have characters.
const USER_TEXT_MAX: usize = 32_000;
/// The bytes of a window, and the bytes that are repeated in the next one, so that nothing is cut in two.
const WINDOW: usize = 256 * 1024;
const WINDOW_OVERLAP: usize = 32 * 1024;
/// The greatest depth: items hold parts, and parts hold texts.
const DEPTH_MAX: u32 = 6;
/// The members of a request, and of the values in it, that hold texts.
const REQUEST: &[&str] = &["input", "instructions"];
const TEXTS: &[&str] = &["arguments", "content", "input", "output", "revised_prompt", "summary", "text"];
/// The members of an item and of its parts that are read.
const ITEM: &[&str] = &["role", "content"];
const PART: &[&str] = &["text"];

/// Returns the last text of the user in the input, or the input itself if it is a text.
pub(super) fn last_user_text(body: &SpooledBytes, input: ValueSpan) -> Result<String, Error> {
    let mut walk = JsonWalker::over_span(body, input);
    match input.json_type {
        JsonType::Text => read_text(&mut walk),
        JsonType::Array => {
            let mut last = String::new();
            walk.visit_array(&mut |walk, _| {
                if let Some(text) = user_text(body, walk)?.filter(|said| !said.trim().is_empty()) {
                    last = text;
                }
                Ok(())
            })?;
            Ok(last)
        }
        _ => Ok(String::new()),
    }
}

/// Passes every text in a body to `enough`, one to a line: the input of every role, and the instructions of the model.
/// Images and names are not texts. The texts come in windows that overlap, until one of them is enough.
pub(super) fn visit_texts(body: &SpooledBytes, is_enough: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
    let mut window = TextWindow { text: String::new(), has_new_text: false, is_done: false, is_enough };
    let mut walk = JsonWalker::new(body);
    walk.visit_object(&mut |walk, name| {
        if REQUEST.contains(&name) { collect(walk, &mut window, DEPTH_MAX) } else { walk.skip_value().map(drop) }
    })?;
    window.flush();
    Ok(())
}

/// The texts that have been collected and not yet passed on.
struct TextWindow<'e> {
    text: String,
    /// True if there is more than the repeated text.
    has_new_text: bool,
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
            let kept = self.text.floor_char_boundary(self.text.len() - WINDOW_OVERLAP);
            self.text.drain(..kept);
        }
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.has_new_text) && !self.is_done {
            self.is_done = (self.is_enough)(&self.text);
        }
    }
}

/// Collects the texts of the next value: the value itself, or those of its elements, or of the members that hold texts.
fn collect(walk: &mut JsonWalker<'_>, window: &mut TextWindow<'_>, depth: u32) -> Result<(), Error> {
    match walk.peek()? {
        Some(b'"') => {
            walk.visit_text(&mut |text| window.push(text))?;
            window.push("\n");
            Ok(())
        }
        Some(b'{') if depth > 0 => walk.visit_object(&mut |walk, name| {
            if TEXTS.contains(&name) { collect(walk, window, depth - 1) } else { walk.skip_value().map(drop) }
        }),
        Some(b'[') if depth > 0 => walk.visit_array(&mut |walk, _| collect(walk, window, depth - 1)),
        // Any other value has no texts.
        _ => walk.skip_value().map(drop),
    }
}

/// Returns the user's text in the next item; `None` if the item is not the user's.
fn user_text(body: &SpooledBytes, walk: &mut JsonWalker<'_>) -> Result<Option<String>, Error> {
    if walk.peek()? != Some(b'{') {
        return walk.skip_value().map(|_| None);
    }
    let known = body_members::object_members(walk, ITEM)?;
    if known.get("role").and_then(BodyMember::parsed::<String>).as_deref() != Some("user") {
        return Ok(None);
    }
    let Some(content) = known.get("content") else { return Ok(None) };
    let mut walk = JsonWalker::over_span(body, content.span);
    match content.json_type() {
        JsonType::Text => read_text(&mut walk).map(Some),
        JsonType::Array => {
            let mut all = String::new();
            walk.visit_array(&mut |walk, _| append_part(body, walk, &mut all))?;
            Ok(Some(all))
        }
        _ => Ok(None),
    }
}

/// Adds the text of the next part on a line of its own.
fn append_part(body: &SpooledBytes, walk: &mut JsonWalker<'_>, all: &mut String) -> Result<(), Error> {
    if walk.peek()? != Some(b'{') {
        return walk.skip_value().map(drop);
    }
    let known = body_members::object_members(walk, PART)?;
    if let Some(text) = known.get("text").filter(|text| text.json_type() == JsonType::Text) {
        append(all, if all.is_empty() { "" } else { "\n" });
        JsonWalker::over_span(body, text.span).visit_text(&mut |text| append(all, text))?;
    }
    Ok(())
}

/// Returns the next text, up to the limit.
fn read_text(walk: &mut JsonWalker<'_>) -> Result<String, Error> {
    let mut all = String::new();
    walk.visit_text(&mut |text| append(&mut all, text))?;
    Ok(all)
}

fn append(all: &mut String, text: &str) {
    let room = USER_TEXT_MAX.saturating_sub(all.len());
    all.push_str(&text[..text.floor_char_boundary(room)]);
}
