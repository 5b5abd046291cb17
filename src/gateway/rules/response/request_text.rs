//! Extracts the texts of a request: all texts, or the last text of the user, in every form that clients send.
//!
//! Every string of a body is a text except Base64 data, and so is the name of every member that the gateway does not know:
//! a text model reads the schemas and descriptions of its tools as well as the conversation. Input without a text may still
//! be meaningful to the model, so it is no error. The only possible error is that the body cannot be read back from disk.

use super::body_members::{self, BodyMember, JsonType, KnownMembers, ValueSpan};
use super::body_reader::{BegunValue, BodyReader};
use super::data_filter::DataFilter;
use super::member_name::MemberName;
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;

/// The most bytes of a user's text that are kept (our choice). The limit on the prompt of an image request is the same
/// number of characters.
const USER_TEXT_MAX: usize = 32_000;
/// The members of a request that are the conversation.
const CONVERSATION: &[&str] = &["input", "instructions"];
/// The members of the objects inside these members whose texts are read one after the other.
const CONVERSATION_TEXTS: &[&str] =
    &["arguments", "content", "input", "output", "refusal", "revised_prompt", "summary", "text"];
/// Members whose values are words of the protocol, ids and names of models.
const WORDS: &[&str] =
    &["call_id", "detail", "effort", "id", "item_id", "mode", "model", "object", "phase", "role", "status", "type"];
/// Members that may be Base64 data without a prefix that says so.
const DATA_MEMBERS: &[&str] =
    &["b64_json", "data", "encrypted_content", "file_data", "image_url", "partial_image_b64", "result", "url"];

/// The texts that are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextScope {
    /// Every string, and the name of every member that the gateway does not know.
    All,
    /// Every string that may be a sentence: no words of the protocol, ids or names of members.
    Sentences,
}

/// The lengths of the windows in which texts are passed on, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextWindows {
    /// The length of a window.
    pub(crate) length: usize,
    /// The number of bytes at the end of a window that are repeated in the next one, so that every shorter expression is
    /// whole in at least one window.
    pub(crate) overlap: usize,
}

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

/// Passes the texts in a body to `is_enough`, each on a line of its own, until `is_enough` returns true: the conversation,
/// and apart from it, so that it is not interrupted, everything else.
pub(super) fn visit_texts(
    body: &SpooledBytes,
    scope: TextScope,
    windows: TextWindows,
    is_enough: &mut dyn FnMut(&str) -> bool,
) -> Result<(), Error> {
    let (mut reader, _) = BodyReader::over_body(body)?;
    let mut collector = TextCollector {
        scope,
        conversation: TextWindow::new(windows),
        others: TextWindow::new(windows),
        is_done: false,
        is_enough,
    };
    while let Some(value) = reader.next_value()? {
        let is_conversation = CONVERSATION.contains(&reader.key());
        collector.collect_member(&mut reader, value, is_conversation)?;
    }
    collector.finish();
    Ok(())
}

/// The texts that have been collected and not yet passed on.
struct TextCollector<'e> {
    scope: TextScope,
    conversation: TextWindow,
    others: TextWindow,
    /// True after `is_enough` has returned true.
    is_done: bool,
    is_enough: &'e mut dyn FnMut(&str) -> bool,
}

/// Texts that follow each other, after the end of the last window, which is repeated.
struct TextWindow {
    windows: TextWindows,
    text: String,
    /// True if the window has more than the text that is repeated from the last window.
    has_new_text: bool,
}

// === impl TextCollector ===

impl TextCollector<'_> {
    /// Collects the texts of a member whose key was read last, and the key itself.
    fn collect_member(
        &mut self,
        reader: &mut BodyReader<'_>,
        value: BegunValue,
        is_conversation: bool,
    ) -> Result<(), Error> {
        let key = reader.key();
        let (is_data, is_word) = (DATA_MEMBERS.contains(&key), WORDS.contains(&key));
        if self.scope == TextScope::All && !is_word && MemberName::find(key).is_none() {
            let key = format!("{key}\n");
            self.push(&key, false);
        }
        if is_word && self.scope == TextScope::Sentences && value.first == b'"' {
            return reader.skip(value).map(drop);
        }
        self.collect(reader, value, is_conversation, is_data)
    }

    /// Collects the texts of a value: a string itself, those of the elements of an array, or of the members of an object.
    fn collect(
        &mut self,
        reader: &mut BodyReader<'_>,
        value: BegunValue,
        is_conversation: bool,
        is_data: bool,
    ) -> Result<(), Error> {
        match value.first {
            b'"' => {
                let mut filter = DataFilter::new(is_data);
                reader.visit_text(|text| filter.push(text, |text| self.push(text, is_conversation)))?;
                filter.finish(|text| self.push(text, is_conversation));
                self.push("\n", is_conversation);
            }
            b'{' => {
                while let Some(member) = reader.next_value()? {
                    let is_conversation = is_conversation && CONVERSATION_TEXTS.contains(&reader.key());
                    self.collect_member(reader, member, is_conversation)?;
                }
            }
            b'[' => {
                while let Some(element) = reader.next_value()? {
                    self.collect(reader, element, is_conversation, is_data)?;
                }
            }
            _ => drop(reader.skip(value)?),
        }
        Ok(())
    }

    fn push(&mut self, text: &str, is_conversation: bool) {
        let window = if is_conversation { &mut self.conversation } else { &mut self.others };
        if !self.is_done {
            self.is_done = window.push(text, self.is_enough);
        }
    }

    fn finish(&mut self) {
        for window in [&mut self.conversation, &mut self.others] {
            self.is_done = self.is_done || window.pass_on(self.is_enough);
        }
    }
}

// === impl TextWindow ===

impl TextWindow {
    const fn new(windows: TextWindows) -> Self {
        Self { windows, text: String::new(), has_new_text: false }
    }

    /// Adds a text, and passes each full window on. Returns true if that is enough.
    fn push(&mut self, mut text: &str, is_enough: &mut dyn FnMut(&str) -> bool) -> bool {
        while !text.is_empty() {
            let is_full = self.text.len() >= self.windows.length;
            if is_full && self.pass_on(is_enough) {
                return true;
            }
            if is_full {
                let overlap_start = self.text.ceil_char_boundary(self.text.len() - self.windows.overlap);
                self.text.drain(..overlap_start);
            }
            // A character is at most four bytes longer than a window.
            let room = self.windows.length + 4 - self.text.len();
            let (now, later) = text.split_at(text.floor_char_boundary(room));
            self.text.push_str(now);
            self.has_new_text |= !now.trim().is_empty();
            text = later;
        }
        false
    }

    /// Passes the window on if it has a new text. Returns true if that is enough.
    fn pass_on(&mut self, is_enough: &mut dyn FnMut(&str) -> bool) -> bool {
        std::mem::take(&mut self.has_new_text) && is_enough(&self.text)
    }
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
