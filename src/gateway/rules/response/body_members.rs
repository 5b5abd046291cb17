//! Reads single members of the body of a response request, and of the objects in it, without loading the whole body
//! into memory: it may contain 64 MiB of images of earlier turns.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::body_reader::{BegunValue, BodyReader};
use crate::error::Error;
use crate::gateway::rules::fields;
use crate::gateway::spool::SpooledBytes;

/// The position and type of a value in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The members of an object that the reader asked for. Of duplicate members, the last counts.
#[derive(Debug)]
pub(super) struct KnownMembers {
    /// The position and type of the value, which has no members if it is not an object.
    pub(super) span: ValueSpan,
    members: BTreeMap<&'static str, BodyMember>,
    /// The name of the first member that the reader did not ask for.
    first_unknown: Option<String>,
}

/// The type of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonType {
    Null,
    Boolean,
    Integer,
    Decimal,
    Text,
    Array,
    Object,
}

/// Parses the whole body, which must be a JSON object, and returns the members with these names.
pub(super) fn read_body(body: &SpooledBytes, names: &'static [&'static str]) -> Result<KnownMembers, Error> {
    let (mut reader, value) = BodyReader::over_body(body)?;
    let known = read_members(&mut reader, value, names)?;
    reader.finish()?;
    match known.span.json_type {
        JsonType::Object => Ok(known),
        found => Err(fields::not_object(found.as_str()).into()),
    }
}

/// Reads the rest of a value, and returns the members with these names. A value that is not an object has none.
pub(super) fn read_members(
    reader: &mut BodyReader<'_>,
    value: BegunValue,
    names: &'static [&'static str],
) -> Result<KnownMembers, Error> {
    let (mut members, mut first_unknown) = (BTreeMap::new(), None);
    if value.first != b'{' {
        return Ok(KnownMembers { span: reader.skip(value)?, members, first_unknown });
    }
    while let Some(member) = reader.next_value()? {
        if let Some(name) = names.iter().find(|name| **name == reader.key()) {
            let (span, raw) = reader.capture(member)?;
            members.insert(*name, BodyMember { span, raw });
        } else {
            first_unknown.get_or_insert_with(|| reader.key().to_owned());
            reader.skip(member)?;
        }
    }
    Ok(KnownMembers { span: reader.end_span(value), members, first_unknown })
}

// === impl KnownMembers ===

impl KnownMembers {
    pub(super) fn get(&self, name: &str) -> Option<&BodyMember> {
        self.members.get(name)
    }

    /// Returns the name of the first member that the reader did not ask for.
    pub(super) fn first_unknown(&self) -> Option<&str> {
        self.first_unknown.as_deref()
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
