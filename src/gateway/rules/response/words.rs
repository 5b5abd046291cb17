//! What is said in a request: all of it, and what the user said last, in whatever form clients write it.
//!
//! Input that says nothing here may still say something to the model, so nothing is an error but a disk that fails.

use super::json::{self, Member, Part, Shape};
use super::walk::Walk;
use crate::error::Error;
use crate::gateway::spool::Kept;

/// So much of what the user said is kept: as much as a prompt may be.
const MOST: usize = 32_000;
/// So much is heard at once, and so much of it again with what follows, so that nothing is cut in two.
const WINDOW: usize = 256 * 1024;
const AGAIN: usize = 32 * 1024;
/// Items hold parts, and parts hold texts.
const DEPTH_MAX: u32 = 6;
/// The members of a request, and of what is in it, that say something.
const REQUEST: &[&str] = &["input", "instructions"];
const TEXTS: &[&str] = &["arguments", "content", "input", "output", "revised_prompt", "summary", "text"];
/// The members of an item and of its parts that are looked at.
const ITEM: &[&str] = &["role", "content"];
const PART: &[&str] = &["text"];

/// The last text of the user in the input, or the text that the input is.
pub(super) fn last(body: &Kept, input: Part) -> Result<String, Error> {
    let mut walk = Walk::through(body, input);
    match input.shape {
        Shape::Text => heard(&mut walk),
        Shape::Array => {
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

/// Hears every text in a body, one to a line: what is asked for, by whomever, and what the model is told beside it.
/// Images and names are no texts. It comes in windows that overlap, until one of them is enough.
pub(super) fn all(body: &Kept, enough: &mut dyn FnMut(&str) -> bool) -> Result<(), Error> {
    let mut window = Window { text: String::new(), fresh: false, over: false, enough };
    let mut walk = Walk::new(body);
    walk.object(&mut |walk, name| {
        if REQUEST.contains(&name) { collect(walk, &mut window, DEPTH_MAX) } else { walk.value().map(drop) }
    })?;
    window.look();
    Ok(())
}

/// What has been heard and not looked at.
struct Window<'e> {
    text: String,
    /// More than what is heard again.
    fresh: bool,
    over: bool,
    enough: &'e mut dyn FnMut(&str) -> bool,
}

// === impl Window ===

impl Window<'_> {
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

/// The texts of the value ahead: itself, or those of its elements, or those of the members that hold texts.
fn collect(walk: &mut Walk<'_>, window: &mut Window<'_>, depth: u32) -> Result<(), Error> {
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
        // What is none of these has no texts.
        _ => walk.value().map(drop),
    }
}

/// What the user says in the item ahead; nothing where it is another's.
fn said(body: &Kept, walk: &mut Walk<'_>) -> Result<Option<String>, Error> {
    if walk.ahead()? != Some(b'{') {
        return walk.value().map(|_| None);
    }
    let known = json::members(walk, ITEM)?;
    if known.get("role").and_then(Member::parsed::<String>).as_deref() != Some("user") {
        return Ok(None);
    }
    let Some(content) = known.get("content") else { return Ok(None) };
    let mut walk = Walk::through(body, content.part);
    match content.shape() {
        Shape::Text => heard(&mut walk).map(Some),
        Shape::Array => {
            let mut all = String::new();
            walk.array(&mut |walk, _| part(body, walk, &mut all))?;
            Ok(Some(all))
        }
        _ => Ok(None),
    }
}

/// The text of the part ahead, below those before it.
fn part(body: &Kept, walk: &mut Walk<'_>, all: &mut String) -> Result<(), Error> {
    if walk.ahead()? != Some(b'{') {
        return walk.value().map(drop);
    }
    let known = json::members(walk, PART)?;
    if let Some(text) = known.get("text").filter(|text| text.shape() == Shape::Text) {
        append(all, if all.is_empty() { "" } else { "\n" });
        Walk::through(body, text.part).text(&mut |text| append(all, text))?;
    }
    Ok(())
}

/// The text ahead, as far as it is kept.
fn heard(walk: &mut Walk<'_>) -> Result<String, Error> {
    let mut all = String::new();
    walk.text(&mut |text| append(&mut all, text))?;
    Ok(all)
}

fn append(all: &mut String, text: &str) {
    let room = MOST.saturating_sub(all.len());
    all.push_str(&text[..text.floor_char_boundary(room)]);
}
