//! What is looked at in the body of a response request, without taking the body apart: it may be 64 MiB of replayed
//! images.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::walk::Walk;
use crate::error::Error;
use crate::gateway::rules::fields;
use crate::gateway::spool::Kept;

/// A value where it stands in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its first byte.
    pub(super) from: u64,
    /// Behind its last byte.
    pub(super) to: u64,
    /// What it is.
    pub(super) shape: Shape,
}

/// A member that somebody looks at.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) part: Part,
    /// As it stands in the body, unless it is large.
    raw: Option<Vec<u8>>,
}

/// The members of an object that somebody looks at. Of duplicates the last one.
#[derive(Debug, Default)]
pub(super) struct Known {
    members: BTreeMap<&'static str, Member>,
    /// The first member of another name.
    other: Option<String>,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Null,
    Boolean,
    Integer,
    Decimal,
    Text,
    Array,
    Object,
}

/// Reads a request, all of it: these members, and where the object begins.
pub(super) fn read(body: &Kept, names: &'static [&'static str]) -> Result<(Known, u64), Error> {
    let mut walk = Walk::new(body);
    if walk.ahead()? != Some(b'{') {
        let part = walk.value()?;
        walk.finish()?;
        return Err(fields::not_object(part.shape.as_str()).into());
    }
    let begin = walk.place();
    let known = members(&mut walk, names)?;
    walk.finish()?;
    Ok((known, begin))
}

/// These members of the object ahead.
pub(super) fn members(walk: &mut Walk<'_>, names: &'static [&'static str]) -> Result<Known, Error> {
    let mut known = Known::default();
    walk.object(&mut |walk, name| {
        let Some(name) = names.iter().find(|known| **known == name) else {
            known.other.get_or_insert_with(|| name.to_owned());
            return walk.value().map(drop);
        };
        let (part, raw) = walk.capture()?;
        known.members.insert(name, Member { part, raw });
        Ok(())
    })?;
    Ok(known)
}

// === impl Known ===

impl Known {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    /// The first member of another name.
    pub(super) fn other(&self) -> Option<&str> {
        self.other.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &Member)> {
        self.members.iter().map(|(name, member)| (*name, member))
    }
}

// === impl Member ===

impl Member {
    pub(super) const fn shape(&self) -> Shape {
        self.part.shape
    }

    /// As it stands in the body, unless it is large.
    pub(super) fn raw(&self) -> Option<&[u8]> {
        self.raw.as_deref()
    }

    /// Its value, where it is small and of that type.
    pub(super) fn parsed<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.raw()?).ok()
    }
}

// === impl Shape ===

impl Shape {
    /// In the words of the rejections.
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
