//! File names with placeholders, such as `{date}-{prompt}-{number}.{ext}`.
//!
//! A template is read before anything is sent, so that a misspelled placeholder costs nothing. Values are changed to
//! words that every file system accepts. `{{` and `}}` stand for braces.

use crate::image::Format;

/// The placeholders with the values that are known before the images arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct NameValues {
    pub(super) prompt: String,
    pub(super) date: String,
    pub(super) model: String,
    pub(super) size: String,
}

/// A file name with placeholders for the number and the format of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameTemplate(Vec<NamePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    /// `{number}`, or `{n}`: the number of the image, from 1.
    Number,
    /// `{ext}`: the extension of the format.
    Extension,
}

// === impl NameTemplate ===

impl NameTemplate {
    /// Reads a file name. The error is a sentence about the first placeholder that cannot be used.
    pub(super) fn parse(name: &str, values: &NameValues) -> Result<Self, String> {
        let (mut parts, mut text) = (Vec::new(), String::new());
        let mut rest = name;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            text.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                text.push_str(&from[..1]);
                rest = after;
                continue;
            }
            let Some((word, after)) = from.strip_prefix('{').and_then(|from| from.split_once('}')) else {
                return Err(format!("`{name}` has a single brace; write `{{{{` or `}}}}` for a brace"));
            };
            rest = after;
            match word {
                "number" | "n" => parts.extend([NamePart::Text(std::mem::take(&mut text)), NamePart::Number]),
                "ext" => parts.extend([NamePart::Text(std::mem::take(&mut text)), NamePart::Extension]),
                "prompt" => text.push_str(&values.prompt),
                "date" => text.push_str(&values.date),
                "model" => text.push_str(&portable(&values.model)),
                "size" => text.push_str(&portable(&values.size)),
                _ => return Err(unknown_placeholder(word)),
            }
        }
        text.push_str(rest);
        parts.push(NamePart::Text(text));
        Ok(Self(parts))
    }

    /// Returns true if the name has the number of the image.
    pub(super) fn has_number(&self) -> bool {
        self.0.contains(&NamePart::Number)
    }

    /// Returns the name of the image with this index.
    pub(super) fn name(&self, index: usize, format: Option<Format>) -> String {
        let part = |part: &NamePart| match part {
            NamePart::Text(text) => text.clone(),
            NamePart::Number => (index + 1).to_string(),
            NamePart::Extension => format.map_or("bin", Format::extension).to_owned(),
        };
        self.0.iter().map(part).collect()
    }
}

fn unknown_placeholder(word: &str) -> String {
    format!(
        "the placeholder {{{word}}} is unknown; there are {{prompt}}, {{number}}, {{ext}}, {{date}}, {{model}} and \
         {{size}}"
    )
}

/// Replaces every character that is not a letter, a digit, `-`, `.` or `_` with a hyphen.
fn portable(text: &str) -> String {
    let is_kept = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
    text.chars().map(|character| if is_kept(character) { character } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> NameValues {
        let [prompt, date, model, size] = ["a-fox", "2026-11-27", "lab/sketch-1", "1536x1024"].map(str::to_owned);
        NameValues { prompt, date, model, size }
    }

    #[test]
    fn every_placeholder_has_its_value() {
        let name = |text: &str| NameTemplate::parse(text, &values()).unwrap().name(1, Some(Format::Jpeg));
        for text in ["{date}-{prompt}-{number}.{ext}", "{date}-{prompt}-{n}.{ext}"] {
            assert_eq!(name(text), "2026-11-27-a-fox-2.jpg");
        }
        assert_eq!(name("{model}_{size}"), "lab-sketch-1_1536x1024");
        assert_eq!(name("{{n}} {n}{n}}}"), "{n} 22}");
    }

    #[test]
    fn a_placeholder_that_cannot_be_used_is_an_error() {
        for text in ["{promt}.png", "{}", "{N}", "{n", "n}.png", "{{n}", "{a{n}}"] {
            assert!(NameTemplate::parse(text, &values()).is_err(), "{text}");
        }
        let error = NameTemplate::parse("{seed}.png", &values()).unwrap_err();
        assert!(error.starts_with("the placeholder {seed} is unknown; there are {prompt}, {number}"), "{error}");
    }
}
