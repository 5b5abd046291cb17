//! Parsers of options whose values are words of the API document, or other words where a service may know more.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

use crate::client::{Json, OpenWord};
use crate::tables::{self, FieldKind, IMAGE_GENERATION_FIELDS};

/// Parses a field of the request: a value that is not JSON is a text.
pub(super) fn parse_member(text: &str) -> Result<(String, Json), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok((name.to_owned(), Json::parse(value).unwrap_or_else(|_| value.into())))
        }
        _ => Err("expected NAME=VALUE, such as seed=7".to_owned()),
    }
}

/// Parses one of the words that the API document allows for a field.
pub(super) fn choice_parser<T>(field: &str) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words_of(field)).try_map(|word| word.parse())
}

/// Parses any word for a field. Help and completions show those of the API document.
#[derive(Clone)]
pub(super) struct OpenWordParser<T> {
    words: &'static [&'static str],
    kind: PhantomData<fn() -> T>,
}

// === impl OpenWordParser ===

impl<T> OpenWordParser<T> {
    pub(super) fn new(field: &str) -> Self {
        Self { words: words_of(field), kind: PhantomData }
    }
}

impl<T: FromStr + Clone + Send + Sync + 'static> TypedValueParser for OpenWordParser<T> {
    type Value = OpenWord<T>;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Self::Value, clap::Error> {
        let word = StringValueParser::new().parse_ref(command, arg, value)?;
        Ok(word.parse().map_or_else(|_| OpenWord::Other(word), OpenWord::Known))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().map(PossibleValue::new)))
    }
}

/// Returns the words that the API document allows for a field.
fn words_of(field: &str) -> &'static [&'static str] {
    match tables::field(IMAGE_GENERATION_FIELDS, field).map(|field| field.kind) {
        Some(FieldKind::Choice(words)) => words,
        _ => &[],
    }
}
