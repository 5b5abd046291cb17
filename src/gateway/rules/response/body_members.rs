//! Reads single members of the body of a response request, and of the objects in it, without loading the whole body
//! into memory: it may contain 64 MiB of images of earlier turns.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::body_reader::{BegunValue, BodyReader};
use crate::error::Error;
use crate::gateway::spool::SpooledBytes;
use crate::image::ByteSource as _;

/// The position and type of a value in the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ValueSpan {
    /// The offset of the first byte of the value.
    pub(super) start: u64,
    /// The offset after the last byte of the value.
    pub(super) end: u64,
    /// The type of the value.
    pub(super) json_type: JsonType,
}

/// A member that is read, of the body or of an object in it.
#[derive(Clone, Debug)]
pub(super) struct BodyMember {
    pub(super) span: ValueSpan,
    /// The bytes of the value in the body; `None` if the value is too large for [`BodyReader::capture`].
    raw: Option<Vec<u8>>,
}

/// The members of an object that the reader asked for.
#[derive(Debug, Default)]
pub(super) struct KnownMembers {
    /// The position and type of the value, which has no members if it is not an object.
    pub(super) span: ValueSpan,
    members: BTreeMap<&'static str, BodyMember>,
    /// The name of the first member that the reader did not ask for.
    first_unknown: Option<String>,
}

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JsonType {
    #[default]
    Null,
    Boolean,
    Integer,
    Decimal,
    Text,
    Array,
    Object,
}

/// Returns the bytes of a value of the body; `None` if they are more than `max_bytes`, or cannot be read.
pub(super) fn read_span(body: &SpooledBytes, span: ValueSpan, max_bytes: usize) -> Option<Vec<u8>> {
    let length = usize::try_from(span.end - span.start).ok().filter(|length| *length <= max_bytes)?;
    let mut bytes = vec![0; length];
    let count = body.read_at(span.start, &mut bytes).ok()?;
    (count == length).then_some(bytes)
}

/// Reads the rest of a value, and returns the members with these names. A value that is not an object has none.
pub(super) fn read_members(
    reader: &mut BodyReader<'_>,
    value: BegunValue,
    names: &'static [&'static str],
) -> Result<KnownMembers, Error> {
    let mut known = KnownMembers::default();
    if value.first != b'{' {
        known.span = reader.skip(value)?;
        return Ok(known);
    }
    while let Some(member) = reader.next_value()? {
        if let Some(name) = names.iter().find(|name| **name == reader.key()) {
            let (span, raw) = reader.capture(member)?;
            known.insert(name, span, raw);
        } else {
            known.note_unknown(reader.key());
            reader.skip(member)?;
        }
    }
    known.span = reader.end_span(value);
    Ok(known)
}

// === impl KnownMembers ===

impl KnownMembers {
    pub(super) fn get(&self, name: &str) -> Option<&BodyMember> {
        self.members.get(name)
    }

    /// Adds a member.
    pub(super) fn insert(&mut self, name: &'static str, span: ValueSpan, raw: Option<Vec<u8>>) {
        self.members.insert(name, BodyMember { span, raw });
    }

    /// Notes a member that the reader did not ask for.
    pub(super) fn note_unknown(&mut self, key: &str) {
        self.first_unknown.get_or_insert_with(|| key.to_owned());
    }

    /// Returns the name of the first member that the reader did not ask for.
    pub(super) fn first_unknown(&self) -> Option<&str> {
        self.first_unknown.as_deref()
    }

    /// Reads the members as a type of the API document; `None` if one that it requires is absent. A member that is an
    /// object or a list, is too large or has invalid characters counts as absent.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let values = self.members.iter().filter_map(|(name, member)| Some(((*name).to_owned(), member.parse()?)));
        serde_json::from_value(Value::Object(values.collect())).ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &BodyMember)> {
        self.members.iter().map(|(name, member)| (*name, member))
    }
}

// === impl BodyMember ===

impl BodyMember {
    pub(super) const fn json_type(&self) -> JsonType {
        self.span.json_type
    }

    /// Returns the bytes of the value in the body; `None` if the value is too large for [`BodyReader::capture`].
    pub(super) fn raw(&self) -> Option<&[u8]> {
        self.raw.as_deref()
    }

    /// Returns the parsed value of the member; `None` if its bytes were not captured, or if it is not of type `T`.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.raw()?).ok()
    }
}

// === impl JsonType ===

impl JsonType {
    /// Returns the name of the type, as rejections state it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Integer => "an integer",
            Self::Decimal => "a decimal number",
            Self::Text => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}
