//! Extracts the texts of a request: all of them, and the last one of the user, in every form that clients write.
//!
//! Input without a text here may still mean something to the model, so the only error is a disk that fails.

use super::json::{self, BodyMember, JsonType, ValueSpan};
use super::walk::JsonWalker;
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;

/// The most bytes of a user's text that are kept: as many as a prompt may have characters.
const MOST: usize = 32_000;
/// The bytes of a window, and the bytes that are repeated in the next one, so that nothing is cut in two.
const WINDOW: usize = 256 * 1024;
const AGAIN: usize = 32 * 1024;
/// The greatest depth: items hold parts, and parts hold texts.
const DEPTH_MAX: u32 = 6;
/// The members of a request, and of the values in it, that hold texts.
const REQUEST: &[&str] = &["input", "instructions"];
const TEXTS: &[&str] = &["arguments", "content", "input", "output", "revised_prompt", "summary", "text"];
/// The members of an item and of its parts that are read.
const ITEM: &[&str] = &["role", "content"];
const PART: &[&str] = &["text"];

/// Returns the last text of the user in the input, or the input itself if it is a text.
pub(super) fn last(body: &SpooledBytes, input: ValueSpan) -> Result<String, Error> {
    let mut walk = JsonWalker::through(body, input);
    match input.shape {
        JsonType::Text => heard(&mut walk),
        JsonType::Array => {
            let mut last = String::new();
            walk.array(&mut |walk, _| {
                if let Some(said) = said(body, walk)?.filter(|said| !said.trim().is_empty()) {
                    last = said;
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
pub(super) fn all(body: &SpooledBytes, enough: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
    let mut window = TextWindow { text: String::new(), fresh: false, over: false, enough };
    let mut walk = JsonWalker::new(body);
    walk.object(&mut |walk, name| {
        if REQUEST.contains(&name) { collect(walk, &mut window, DEPTH_MAX) } else { walk.value().map(drop) }
    })?;
    window.look();
    Ok(())
}

/// The texts that have been collected and not yet passed on.
struct TextWindow<'e> {
    text: String,
    /// True if there is more than the repeated text.
    fresh: bool,
    over: bool,
    enough: &'e mut dyn FnMut(&str) -> bool,
}

// === impl TextWindow ===

impl TextWindow<'_> {
    fn hear(&mut self, text: &str) {
        if self.over {
            return;
        }
        self.text.push_str(text);
        self.fresh = true;
        if self.text.len() > WINDOW {
            self.look();
            let kept = self.text.floor_char_boundary(self.text.len() - AGAIN);
            self.text.drain(..kept);
        }
    }

    fn look(&mut self) {
        if std::mem::take(&mut self.fresh) && !self.over {
            self.over = (self.enough)(&self.text);
        }
    }
}

/// Collects the texts of the next value: the value itself, or those of its elements, or of the members that hold texts.
fn collect(walk: &mut JsonWalker<'_>, window: &mut TextWindow<'_>, depth: u32) -> Result<(), Error> {
    match walk.ahead()? {
        Some(b'"') => {
            walk.text(&mut |text| window.hear(text))?;
            window.hear("\n");
            Ok(())
        }
        Some(b'{') if depth > 0 => walk.object(&mut |walk, name| {
            if TEXTS.contains(&name) { collect(walk, window, depth - 1) } else { walk.value().map(drop) }
        }),
        Some(b'[') if depth > 0 => walk.array(&mut |walk, _| collect(walk, window, depth - 1)),
        // Any other value has no texts.
        _ => walk.value().map(drop),
    }
}

/// Returns the user's text in the next item; `None` if the item is not the user's.
fn said(body: &SpooledBytes, walk: &mut JsonWalker<'_>) -> Result<Option<String>, Error> {
    if walk.ahead()? != Some(b'{') {
        return walk.value().map(|_| None);
    }
    let known = json::members(walk, ITEM)?;
    if known.get("role").and_then(BodyMember::parsed::<String>).as_deref() != Some("user") {
        return Ok(None);
    }
    let Some(content) = known.get("content") else { return Ok(None) };
    let mut walk = JsonWalker::through(body, content.part);
    match content.shape() {
        JsonType::Text => heard(&mut walk).map(Some),
        JsonType::Array => {
            let mut all = String::new();
            walk.array(&mut |walk, _| part(body, walk, &mut all))?;
            Ok(Some(all))
        }
        _ => Ok(None),
    }
}

/// Adds the text of the next part on a line of its own.
fn part(body: &SpooledBytes, walk: &mut JsonWalker<'_>, all: &mut String) -> Result<(), Error> {
    if walk.ahead()? != Some(b'{') {
        return walk.value().map(drop);
    }
    let known = json::members(walk, PART)?;
    if let Some(text) = known.get("text").filter(|text| text.shape() == JsonType::Text) {
        append(all, if all.is_empty() { "" } else { "\n" });
        JsonWalker::through(body, text.part).text(&mut |text| append(all, text))?;
    }
    Ok(())
}

/// Returns the next text, up to the limit.
fn heard(walk: &mut JsonWalker<'_>) -> Result<String, Error> {
    let mut all = String::new();
    walk.text(&mut |text| append(&mut all, text))?;
    Ok(all)
}

fn append(all: &mut String, text: &str) {
    let room = MOST.saturating_sub(all.len());
    all.push_str(&text[..text.floor_char_boundary(room)]);
}
