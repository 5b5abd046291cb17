//! Who does something, and what is kept of it: the audit trail. Plain data; no secret has a place in it.

use std::fmt;
use std::str::FromStr;

use super::{Timestamp, UserId};

/// Somebody who is about to change something. Every change names one, so that its row of the trail is written with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Act {
    /// What kind of somebody.
    pub(crate) kind: ActorKind,
    /// Which user, where it is one.
    pub(crate) user: Option<UserId>,
    /// What the trail calls them.
    pub(crate) name: String,
    /// From where, where there is a network between.
    pub(crate) address: Option<String>,
    /// When.
    pub(crate) at: Timestamp,
}

/// Who can change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActorKind {
    /// A person in a browser.
    User,
    /// A program with the admin token of a user.
    Token,
    /// Whoever has the admin token of the settings.
    Settings,
    /// Somebody on the machine itself.
    Command,
    /// The gateway, by itself.
    System,
}

/// One row of the trail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AuditRow {
    /// Its number. Later rows have higher ones.
    pub(crate) seq: i64,
    /// When.
    pub(crate) at: Timestamp,
    /// What kind of somebody.
    pub(crate) actor_kind: ActorKind,
    /// The id of the user, where it was one.
    pub(crate) actor_id: Option<String>,
    /// What they were called then.
    pub(crate) actor_name: String,
    /// From where.
    pub(crate) address: Option<String>,
    /// What was done, such as `key.create`.
    pub(crate) action: String,
    /// What it was done to: `key`, `user`, `group`, `account`, `token`, `session` or `setup`.
    pub(crate) target_kind: String,
    /// Its id.
    pub(crate) target_id: Option<String>,
    /// What it was called then.
    pub(crate) target_name: Option<String>,
    /// What else is known of the change.
    pub(crate) details: serde_json::Value,
}

/// Which rows of the trail are wanted, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditFilter {
    /// The id or name of who did it.
    pub(crate) actor: Option<String>,
    /// An action, or the kind of several: `key` is every `key.…`.
    pub(crate) action: Option<String>,
    /// The id or name of what it was done to.
    pub(crate) target: Option<String>,
    /// Only rows older than this one.
    pub(crate) before: Option<i64>,
    /// How many at most.
    pub(crate) limit: u32,
}

/// A part of a list that can be long.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Page<T> {
    /// The part.
    pub(crate) items: Vec<T>,
    /// How many there are that pass the filter, on all pages.
    pub(crate) total: u64,
    /// Whether more come behind this part.
    pub(crate) has_more: bool,
}

// === impl Act ===

impl Act {
    /// Somebody on the machine itself, now.
    pub(crate) fn command() -> Self {
        Self::nobody(ActorKind::Command, "command")
    }

    /// The gateway by itself, now.
    pub(crate) fn system() -> Self {
        Self::nobody(ActorKind::System, "gateway")
    }

    /// Whoever has the admin token of the settings, now.
    pub(crate) fn settings(address: Option<String>) -> Self {
        Self { address, ..Self::nobody(ActorKind::Settings, "admin token of the settings") }
    }

    fn nobody(kind: ActorKind, name: &str) -> Self {
        Self { kind, user: None, name: name.to_owned(), address: None, at: Timestamp::now() }
    }
}

// === impl ActorKind ===

impl ActorKind {
    const ALL: [Self; 5] = [Self::User, Self::Token, Self::Settings, Self::Command, Self::System];

    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Token => "token",
            Self::Settings => "settings",
            Self::Command => "command",
            Self::System => "system",
        }
    }
}

impl FromStr for ActorKind {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownWord)
    }
}

/// A cell holds a word that this program does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownWord;

impl fmt::Display for UnknownWord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an unknown word")
    }
}

impl std::error::Error for UnknownWord {}
