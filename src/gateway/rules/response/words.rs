//! What is said in a request: all of it, and what the user said last, in whatever form clients write it.
//!
//! Never an error: input that says nothing here may still say something to the model.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json;

/// So much of it is kept: as much as a prompt may be.
const MOST: usize = 32_000;
/// Items hold parts, and parts hold texts.
const DEPTH_MAX: u32 = 6;
/// The members of a request, and of what is in it, that say something.
const REQUEST: &[&str] = &["input", "instructions"];
const TEXTS: &[&str] = &["arguments", "content", "input", "output", "revised_prompt", "summary", "text"];
/// The members of an item and of its parts that are looked at.
const ITEM: &[&str] = &["role", "content"];
const PART: &[&str] = &["text"];

/// The last text of the user in the raw `input`, or the text that the input is.
pub(super) fn last(input: &[u8]) -> String {
    let Ok(raw) = serde_json::from_slice::<&RawValue>(input) else { return String::new() };
    if let Some(text) = text(raw) {
        return text;
    }
    let mut last = String::new();
    // An element that cannot be read is passed over.
    let _ = json::each(raw, |_, item| {
        if let Some(said) = said(item).filter(|said| !said.trim().is_empty()) {
            last = said;
        }
        Ok(())
    });
    last
}

/// Every text in a body, one to a line: what is asked for, by whomever, and what the model is told beside it. Images and
/// names are no texts.
pub(super) fn all(body: &[u8]) -> String {
    let mut texts = String::new();
    let Ok(text) = std::str::from_utf8(body) else { return texts };
    let Ok(known) = json::members(text, REQUEST) else { return texts };
    for (_, raw) in known.iter() {
        collect(raw, &mut texts, DEPTH_MAX);
    }
    texts
}

/// The texts of a value: itself, or those of its elements, or those of the members that hold texts.
fn collect(raw: &RawValue, texts: &mut String, depth: u32) {
    if let Ok(text) = String::deserialize(raw) {
        texts.push_str(&text);
        texts.push('\n');
        return;
    }
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Ok(known) = json::members(raw.get(), TEXTS) {
        known.iter().for_each(|(_, raw)| collect(raw, texts, depth));
        return;
    }
    // What is neither has no texts.
    let _ = json::each(raw, |_, element| {
        collect(element, texts, depth);
        Ok(())
    });
}

/// What the user says in an item; nothing where it is another's.
fn said(item: &RawValue) -> Option<String> {
    let known = json::members(item.get(), ITEM).ok()?;
    if known.get("role").and_then(text).as_deref() != Some("user") {
        return None;
    }
    let content = known.get("content")?;
    text(content).or_else(|| {
        let mut all = String::new();
        let _ = json::each(content, |_, part| {
            let known = json::members(part.get(), PART).ok();
            if let Some(text) = known.and_then(|known| known.get("text")).and_then(text) {
                append(&mut all, &text);
            }
            Ok(())
        });
        Some(clip(all))
    })
}

/// One part below the other.
fn append(all: &mut String, text: &str) {
    all.push_str(if all.is_empty() { "" } else { "\n" });
    all.push_str(text);
}

fn text(raw: &RawValue) -> Option<String> {
    String::deserialize(raw).ok().map(clip)
}

fn clip(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST));
    text
}
