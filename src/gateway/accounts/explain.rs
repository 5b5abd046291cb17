//! A choice explained: the same order that decides, as data for people and for `--json`.

use std::time::Duration;

use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::account::Kind;
use super::cooling::Cause;
use super::health::Standing;
use super::member::Member;
use super::pick::Candidate;
use super::pool::{Pool, Wanted};
use crate::gateway::config::Protocol;
use crate::gateway::telemetry::AccountNow;

/// One account in a choice; a list of them is in the order in which they would be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Explained {
    /// Its name.
    pub(crate) account: String,
    /// Whether it would be the one.
    pub(crate) chosen: bool,
    /// What it could do right now.
    pub(crate) state: Availability,
    /// Whether it is paid for.
    pub(crate) paid: bool,
    /// How it is let in.
    pub(crate) kind: Kind,
    /// The operator's own order.
    pub(crate) priority: i32,
    /// Calls that are under way.
    pub(crate) taken: usize,
    /// Calls at once.
    pub(crate) places: usize,
}

/// What an account could do right now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub(crate) enum Availability {
    /// Serve at once.
    Free,
    /// Serve when a call ends.
    Full,
    /// Serve only where no other can: it has failed too often lately.
    Ejected {
        /// How long still.
        seconds: u64,
    },
    /// Nothing until its rest is over.
    Resting {
        /// Why.
        cause: Cause,
        /// How long still.
        seconds: u64,
    },
    /// Nothing until it is enabled.
    Disabled {
        /// Why, for operators.
        reason: String,
    },
    /// Nothing for this group.
    OtherGroup,
    /// Nothing at the endpoint that was asked about.
    OtherProtocol,
}

/// Every account, the one that would be taken first. Of equals the order may differ from one call to the next, but not
/// for a conversation.
pub(super) fn explain(pool: &Pool, group: &str, large: bool, session: Option<&str>) -> Vec<Explained> {
    let now = Instant::now();
    let protocol = Some(if session.is_some() { Protocol::Responses } else { Protocol::Images });
    let session = session.map(|session| session.as_bytes().into());
    let wanted = Wanted { group: group.to_owned(), protocol, large, session, ..Wanted::default() };
    let inner = pool.lock();
    let mut ranked: Vec<(usize, &Member, Candidate)> = inner
        .members
        .iter()
        .enumerate()
        .map(|(index, member)| (index, member, member.candidate(&wanted, now)))
        .collect();
    ranked.sort_by_key(|(index, _, candidate)| candidate.rank(*index, 0));
    let first = ranked.first().filter(|(.., candidate)| candidate.eligible).map(|(index, ..)| *index);
    let explained = ranked.into_iter().map(|(index, member, candidate)| Explained {
        account: member.account.name().to_owned(),
        chosen: first == Some(index),
        state: availability(member, &candidate, &wanted, now),
        paid: candidate.paid,
        kind: candidate.kind,
        priority: candidate.priority,
        taken: member.taken,
        places: member.account.places().all,
    });
    explained.collect()
}

fn availability(member: &Member, candidate: &Candidate, wanted: &Wanted, now: Instant) -> Availability {
    if let Some(reason) = &member.disabled {
        return Availability::Disabled { reason: reason.clone() };
    }
    if !member.account.speaks(wanted.protocol) {
        return Availability::OtherProtocol;
    }
    if !member.serves(wanted) {
        return Availability::OtherGroup;
    }
    if let Some(rest) = member.rest(now) {
        return Availability::Resting { cause: rest.cause, seconds: ceil(rest.until.saturating_duration_since(now)) };
    }
    match member.health.standing(now) {
        Standing::Ejected { left } => Availability::Ejected { seconds: ceil(left) },
        Standing::Good | Standing::Probing if candidate.free => Availability::Free,
        Standing::Good | Standing::Probing => Availability::Full,
    }
}

// === impl Pool ===

impl Pool {
    /// How each account stands, and how many requests wait.
    pub(super) fn now(&self) -> (Vec<AccountNow>, usize) {
        let now = Instant::now();
        let inner = self.lock();
        let account = |member: &Member| AccountNow {
            name: member.account.name().to_owned(),
            taken: member.taken,
            places: member.account.places().all,
            resting: member.rest(now).is_some(),
            disabled: member.disabled.is_some(),
        };
        (inner.members.iter().map(account).collect(), inner.waiting())
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().is_stopped()
    }
}

/// Whole seconds, never too few.
fn ceil(left: Duration) -> u64 {
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
