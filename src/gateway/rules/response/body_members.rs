//! Reads single members of the body of a response request, and of the objects in it, without loading the whole body
//! into memory: it may contain 64 MiB of images of earlier turns.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::json_walker::JsonWalker;
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
    /// The bytes of the value in the body; `None` if the value is too large for [`JsonWalker::capture_value`].
    raw: Option<Vec<u8>>,
}

/// The members of an object that the reader asked for. Of duplicate members, the last counts.
#[derive(Debug, Default)]
pub(super) struct KnownMembers {
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

/// Parses the whole body, which must be a JSON object. Returns the members with these names, and the offset at which
/// the object begins.
pub(super) fn read_members(body: &SpooledBytes, names: &'static [&'static str]) -> Result<(KnownMembers, u64), Error> {
    let mut walker = JsonWalker::new(body);
    if walker.peek()? != Some(b'{') {
        let span = walker.skip_value()?;
        walker.finish()?;
        return Err(fields::not_object(span.json_type.as_str()).into());
    }
    let object_start = walker.offset();
    let known = object_members(&mut walker, names)?;
    walker.finish()?;
    Ok((known, object_start))
}

/// Parses the next value, which must be an object, and returns its members with these names.
pub(super) fn object_members(
    walker: &mut JsonWalker<'_>,
    names: &'static [&'static str],
) -> Result<KnownMembers, Error> {
    let mut known = KnownMembers::default();
    walker.visit_object(&mut |walker, name| {
        let Some(name) = names.iter().find(|candidate| **candidate == name) else {
            known.first_unknown.get_or_insert_with(|| name.to_owned());
            return walker.skip_value().map(drop);
        };
        let (span, raw) = walker.capture_value()?;
        known.members.insert(name, BodyMember { span, raw });
        Ok(())
    })?;
    Ok(known)
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

    /// Returns the bytes of the value in the body; `None` if the value is too large for [`JsonWalker::capture_value`].
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
