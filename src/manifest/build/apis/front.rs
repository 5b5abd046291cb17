//! Reads the front matter of an API reference, and reports all problems of its fields.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::manifest::check::nearest;
use crate::manifest::package::front::{
    self, FieldReader, FrontMatterDocument, FrontMatterError, FrontMatterSource, SpannedText,
};

/// The fields of the front matter of an API reference.
const FIELDS: [&str; 6] = ["id", "title", "product", "language", "tags", "source_urls"];

/// The front matter of an API reference, after all fields have passed their checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiFrontMatter {
    pub(super) title: String,
    pub(super) product: String,
    pub(super) language: String,
    pub(super) tags: Option<Vec<String>>,
    pub(super) source_urls: Option<Vec<String>>,
}

/// Reads the document of the API reference with this id.
///
/// # Errors
///
/// Returns all problems of its front matter.
pub(super) fn read_api_front_matter(bytes: &[u8], id: &str) -> Result<ApiFrontMatter, Vec<FrontMatterError>> {
    let FrontMatterDocument { raw, source, body } =
        front::read_front_matter_parts::<RawApiFrontMatter>(bytes).map_err(|error| vec![error])?;
    let mut reader = FrontMatterReader { source, errors: Vec::new() };
    reader.report_unknown(&raw.unknown);
    reader.check_id(raw.id, id);
    let title = raw.title.map(|title| reader.read_single_line("title", title)).or_else(|| front::heading(body));
    let reference = ApiFrontMatter {
        title: title.unwrap_or_else(|| reader.report_missing("title", "the name of the document")),
        product: reader.read_required("product", raw.product, "the name of what it describes"),
        language: reader.read_required("language", raw.language, "a programming language, `http`, or a language tag"),
        tags: raw
            .tags
            .map(|tags| reader.read_word_list("tags", tags, |character| character == ',' || character.is_whitespace())),
        source_urls: raw.source_urls.map(|urls| reader.read_word_list("source_urls", urls, char::is_whitespace)),
    };
    if reader.errors.is_empty() { Ok(reference) } else { Err(reader.errors) }
}

/// Reads the fields, and collects the problems with their spans.
struct FrontMatterReader<'a> {
    source: FrontMatterSource<'a>,
    errors: Vec<FrontMatterError>,
}

// === impl FrontMatterReader ===

impl FrontMatterReader<'_> {
    fn add_error(&mut self, message: String, span: Range<usize>) {
        self.errors.push(FrontMatterError { message, span });
    }

    /// Reports unknown fields. A typing error looks like a field of another tool, so fields of other tools must begin
    /// with `x-` or `x_`.
    fn report_unknown(&mut self, keys: &[Spanned<String>]) {
        for key in keys {
            let SpannedText { text, span } = self.source.spanned_text(key.clone());
            if text.starts_with("x-") || text.starts_with("x_") {
                continue;
            }
            let help = match nearest(&text, FIELDS.into_iter()) {
                Some(field) => format!("did you mean `{field}`?"),
                None => "begin names of your own with `x-`".to_owned(),
            };
            self.add_error(format!("`{}` is not a field of an API reference; {help}", text.escape_debug()), span);
        }
    }

    fn check_id(&mut self, value: Option<Spanned<String>>, id: &str) {
        let Some(stated) = value.map(|value| self.source.spanned_text(value)) else { return };
        if stated.text.trim() != id {
            let message = format!("`id` is `{}`, but the path gives `{id}`; they must be the same", stated.text.trim());
            self.add_error(message, stated.span);
        }
    }

    fn read_required(&mut self, field: &str, value: Option<Spanned<String>>, description: &str) -> String {
        match value {
            Some(value) => self.read_single_line(field, value),
            None => self.report_missing(field, description),
        }
    }

    /// Reports a missing field, and returns an empty text in its place, so that the other fields are read too.
    fn report_missing(&mut self, field: &str, description: &str) -> String {
        let start = self.source.full_range().start;
        self.add_error(format!("has no `{field}`; write `{field}:`, followed by {description}"), start..start);
        String::new()
    }

    /// Returns the trimmed text; reports it if it is empty or has more than one line.
    fn read_single_line(&mut self, field: &str, value: Spanned<String>) -> String {
        let word = self.source.spanned_text(value);
        let text = word.text.trim();
        if text.is_empty() {
            self.add_error(format!("`{field}` is empty"), word.span);
        } else if text.contains('\n') {
            self.add_error(format!("`{field}` has more than one line"), word.span);
        }
        text.to_owned()
    }

    /// Returns the words of a list, or of a text that is split at the characters for which `is_separator` is true.
    fn read_word_list(&mut self, field: &str, list: StringList, is_separator: impl Fn(char) -> bool) -> Vec<String> {
        match list {
            StringList::Text(text) => {
                text.split(is_separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
            StringList::List(words) => words.into_iter().map(|word| self.read_element(field, word)).collect(),
        }
    }

    fn read_element(&mut self, field: &str, value: Spanned<String>) -> String {
        let word = self.source.spanned_text(value);
        if word.text.trim().is_empty() {
            self.add_error(format!("an element of `{field}` is empty"), word.span);
        }
        word.text.trim().to_owned()
    }
}

/// The front matter as it is written in the YAML.
#[derive(Default)]
struct RawApiFrontMatter {
    id: Option<Spanned<String>>,
    title: Option<Spanned<String>>,
    product: Option<Spanned<String>>,
    language: Option<Spanned<String>>,
    tags: Option<StringList>,
    source_urls: Option<StringList>,
    unknown: Vec<Spanned<String>>,
}

impl FieldReader for RawApiFrontMatter {
    const EXPECTED: &'static str = "a mapping of names to texts and lists of texts";

    fn read_value<'de, A: MapAccess<'de>>(&mut self, key: Spanned<String>, map: &mut A) -> Result<(), A::Error> {
        match key.value.as_str() {
            "id" => self.id = Some(map.next_value()?),
            "title" => self.title = Some(map.next_value()?),
            "product" => self.product = Some(map.next_value()?),
            "language" => self.language = Some(map.next_value()?),
            "tags" => self.tags = Some(map.next_value()?),
            "source_urls" => self.source_urls = Some(map.next_value()?),
            _ => {
                map.next_value::<IgnoredAny>()?;
                self.unknown.push(key);
            }
        }
        Ok(())
    }
}

/// A list of texts, each with its span, or one text that contains all of them.
enum StringList {
    Text(String),
    List(Vec<Spanned<String>>),
}

struct StringListVisitor;

impl<'de> Visitor<'de> for StringListVisitor {
    type Value = StringList;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<StringList, E> {
        Ok(StringList::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StringList, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = seq.next_element()? {
            words.push(word);
        }
        Ok(StringList::List(words))
    }
}

impl<'de> Deserialize<'de> for StringList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StringListVisitor)
    }
}
