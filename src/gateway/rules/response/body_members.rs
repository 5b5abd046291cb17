//! Reads the relevant members of the body of a response request in place: the body may contain 64 MiB of images of
//! earlier turns.

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

/// A member of the body that is read.
#[derive(Clone, Debug)]
pub(super) struct BodyMember {
    pub(super) span: ValueSpan,
    /// The bytes of the value in the body, unless it is large.
    raw: Option<Vec<u8>>,
}

/// The members of an object that are read. Of duplicate members, the last counts.
#[derive(Debug, Default)]
pub(super) struct KnownMembers {
    members: BTreeMap<&'static str, BodyMember>,
    /// The name of the first member that is not read.
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

/// Reads the whole body. Returns the members with these names, and the offset at which the object begins.
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

/// Reads the members with these names of the next object.
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

    /// Returns the name of the first member that is not read.
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

    /// Returns the bytes of the value in the body, unless it is large.
    pub(super) fn raw(&self) -> Option<&[u8]> {
        self.raw.as_deref()
    }

    /// Returns the parsed value of the member, if it is small and of type `T`.
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
