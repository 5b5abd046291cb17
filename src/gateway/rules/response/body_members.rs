//! Reads the relevant members of the body of a response request without parsing all of it: it may be 64 MiB of replayed
//! images.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::json_walker::JsonWalker;
use crate::error::Error;
use crate::gateway::rules::fields;
use crate::gateway::spool::SpooledBytes;

/// A value at its position in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueSpan {
    /// The offset of its first byte.
    pub(super) start: u64,
    /// The offset after its last byte.
    pub(super) end: u64,
    /// The type of the value.
    pub(super) json_type: JsonType,
}

/// A member that is read.
#[derive(Clone, Debug)]
pub(super) struct BodyMember {
    pub(super) span: ValueSpan,
    /// Its text as it stands in the body, unless it is large.
    raw: Option<Vec<u8>>,
}

/// The members of an object that are read. Of duplicates the last one counts.
#[derive(Debug, Default)]
pub(super) struct KnownMembers {
    members: BTreeMap<&'static str, BodyMember>,
    /// The name of the first other member.
    other: Option<String>,
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

/// Reads all of a request. Returns these members, and the offset at which the object begins.
pub(super) fn read_members(body: &SpooledBytes, names: &'static [&'static str]) -> Result<(KnownMembers, u64), Error> {
    let mut walk = JsonWalker::new(body);
    if walk.peek()? != Some(b'{') {
        let part = walk.skip_value()?;
        walk.finish()?;
        return Err(fields::not_object(part.json_type.as_str()).into());
    }
    let begin = walk.offset();
    let known = object_members(&mut walk, names)?;
    walk.finish()?;
    Ok((known, begin))
}

/// Reads these members of the next object.
pub(super) fn object_members(walk: &mut JsonWalker<'_>, names: &'static [&'static str]) -> Result<KnownMembers, Error> {
    let mut known = KnownMembers::default();
    walk.visit_object(&mut |walk, name| {
        let Some(name) = names.iter().find(|known| **known == name) else {
            known.other.get_or_insert_with(|| name.to_owned());
            return walk.skip_value().map(drop);
        };
        let (part, raw) = walk.capture_value()?;
        known.members.insert(name, BodyMember { span: part, raw });
        Ok(())
    })?;
    Ok(known)
}

// === impl KnownMembers ===

impl KnownMembers {
    pub(super) fn get(&self, name: &str) -> Option<&BodyMember> {
        self.members.get(name)
    }

    /// Returns the name of the first other member.
    pub(super) fn other(&self) -> Option<&str> {
        self.other.as_deref()
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

    /// Returns the text of the member as it stands in the body, unless it is large.
    pub(super) fn raw(&self) -> Option<&[u8]> {
        self.raw.as_deref()
    }

    /// Returns the value of the member, if it is small and of that type.
    pub(super) fn parsed<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.raw()?).ok()
    }
}

// === impl JsonType ===

impl JsonType {
    /// Returns the name of the type, in the words of the rejections.
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
