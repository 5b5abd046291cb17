//! Separates the images of an answer from its other members, while the answer arrives.
//!
//! The texts of the images are handed on in pieces. The rest of the answer is kept, with an empty text in place of each
//! image. Members without an image are not examined, so none of them makes the images unreadable.

use std::ops::Range;

use crate::stream::json::{JsonSyntaxError, JsonToken, JsonTokenizer};

/// The place of an image: the member `b64_json` of the answer, or of an element of its list `data`.
const IMAGE: &str = "b64_json";
const LIST: &str = "data";

/// The splitter of one answer.
#[derive(Debug, Default)]
pub(super) struct AnswerSplitter {
    tokens: JsonTokenizer,
    place: AnswerPlace,
    current: CurrentValue,
    rest: Vec<u8>,
}

/// The innermost object or list whose values are visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AnswerPlace {
    #[default]
    Outside,
    Answer,
    List,
    Entry,
}

/// The value that has begun last and not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CurrentValue {
    #[default]
    Visited,
    Skipped,
    Image,
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImagePart<'a> {
    /// The text of an image begins.
    Start,
    /// The next characters of the text.
    Text(&'a [u8]),
    /// A character that is written as an escape; 0 if it is no ASCII character.
    Escaped(u8),
    /// The text is complete.
    End,
}

// === impl AnswerSplitter ===

impl AnswerSplitter {
    /// Reads the input up to the next part of an image, and removes what was read; returns `None` at the end of the
    /// input, and after the end of the answer.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<ImagePart<'a>>, JsonSyntaxError> {
        loop {
            let (length, token) = self.tokens.next(input)?;
            let (read, remaining) = input.split_at(length);
            *input = remaining;
            let part = self.part_of(token, read);
            if part.is_some() || (token.is_none() && length == 0) {
                return Ok(part);
            }
        }
    }

    /// Keeps what is no part of an image, and returns the part of an image that a token is.
    fn part_of<'a>(&mut self, token: Option<JsonToken>, read: &'a [u8]) -> Option<ImagePart<'a>> {
        let is_image = self.current == CurrentValue::Image;
        if !is_image || token == Some(JsonToken::End) {
            self.rest.extend_from_slice(read);
        }
        match token? {
            JsonToken::Start(first) => {
                self.start_value(first);
                (self.current == CurrentValue::Image).then_some(ImagePart::Start)
            }
            JsonToken::Text => is_image.then_some(ImagePart::Text(read)),
            JsonToken::Escaped(unit) => {
                let byte = u8::try_from(unit).ok().filter(u8::is_ascii).unwrap_or(0);
                is_image.then_some(ImagePart::Escaped(byte))
            }
            JsonToken::End => {
                self.end_value();
                is_image.then_some(ImagePart::End)
            }
            JsonToken::Key | JsonToken::Raw => None,
        }
    }

    /// True if the answer is complete.
    pub(super) fn is_done(&self) -> bool {
        self.tokens.is_done()
    }

    /// The number of bytes that are kept.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) const fn rest_length(&self) -> usize {
        self.rest.len()
    }

    /// Returns the answer without the texts of its images.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.rest
    }

    /// Decides on a value that begins with this byte.
    fn start_value(&mut self, first: u8) {
        let key = self.tokens.key();
        self.current = CurrentValue::Visited;
        self.place = match (self.place, first) {
            (AnswerPlace::Outside, b'{') => AnswerPlace::Answer,
            (AnswerPlace::Answer, b'[') if key == LIST => AnswerPlace::List,
            (AnswerPlace::List, b'{') => AnswerPlace::Entry,
            (place @ (AnswerPlace::Answer | AnswerPlace::Entry), b'"') if key == IMAGE => {
                self.current = CurrentValue::Image;
                place
            }
            (place, _) => {
                self.current = CurrentValue::Skipped;
                self.tokens.skip_value();
                place
            }
        };
    }

    fn end_value(&mut self) {
        if std::mem::take(&mut self.current) == CurrentValue::Visited {
            self.place = match self.place {
                AnswerPlace::Entry => AnswerPlace::List,
                AnswerPlace::List => AnswerPlace::Answer,
                AnswerPlace::Answer | AnswerPlace::Outside => AnswerPlace::Outside,
            };
        }
    }
}

/// Returns the positions of the texts of the images in a whole answer, with their quotes; none if the answer does not
/// end.
pub(super) fn image_positions(answer: &str) -> Vec<Range<usize>> {
    let (mut splitter, mut input) = (AnswerSplitter::default(), answer.as_bytes());
    let (mut positions, mut start) = (Vec::new(), 0);
    while let Ok(Some(part)) = splitter.next(&mut input) {
        let read = answer.len() - input.len();
        match part {
            ImagePart::Start => start = read - 1,
            ImagePart::End => positions.push(start..read),
            ImagePart::Text(_) | ImagePart::Escaped(_) => {}
        }
    }
    if splitter.is_done() { positions } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(texts: &mut Vec<Vec<u8>>, part: ImagePart<'_>) {
        match part {
            ImagePart::Start => texts.push(Vec::new()),
            ImagePart::Text(text) => texts.last_mut().unwrap().extend_from_slice(text),
            ImagePart::Escaped(byte) => texts.last_mut().unwrap().push(byte),
            ImagePart::End => {}
        }
    }

    /// Splits an answer that comes in pieces; returns the texts of the images and the rest.
    fn split(answer: &str, piece: usize) -> Result<(Vec<String>, String), JsonSyntaxError> {
        let (mut splitter, mut texts) = (AnswerSplitter::default(), Vec::new());
        for mut input in answer.as_bytes().chunks(piece) {
            while let Some(part) = splitter.next(&mut input)? {
                add(&mut texts, part);
            }
        }
        let texts = texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
        Ok((texts, String::from_utf8(splitter.into_rest()).unwrap()))
    }

    #[test]
    fn images_are_separated_wherever_the_answer_is_cut() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let answer = format!(
            r#" {{"created": 1e999, "b64_json":"aa\/bb", "data": [{{"b64_json" : "cc+", "x": {deep}}}, 7, {{"b64_json": null}},
            {{"b64_json":"", "data": [{{"b64_json": "no"}}]}}], "other": {{"b64_json": "kept"}}, "é": "\u00e9"}} "#
        );
        let rest = answer.replace(r"aa\/bb", "").replace("cc+", "");
        for piece in 1..answer.len() {
            let (texts, kept) = split(&answer, piece).unwrap();
            assert_eq!(texts, ["aa/bb", "cc+", ""], "{piece}");
            assert_eq!(kept.trim_end(), rest.trim_end(), "{piece}");
        }
    }

    #[test]
    fn an_answer_without_images_is_kept_whole() {
        for answer in ["[{\"b64_json\": \"aa\"}]", "{\"data\": {\"b64_json\": \"aa\"}}", "\"text\"", "7"] {
            assert_eq!(split(answer, 3).unwrap(), (Vec::new(), answer.to_owned()));
        }
        assert!(split("<html>", 3).is_err());
    }
}
