//! What an account could do now, as far as the store knows.

use super::Known;
use crate::gateway::store::{AccountRow, Timestamp};

/// What an account could do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State<'a> {
    /// It gets work.
    Enabled,
    /// It gets none until it is enabled: since when, and why.
    Disabled(Timestamp, &'a str),
    /// It rests: until when, and why.
    Cooling(Timestamp, &'a str),
    /// Its calls fail, and it gets work only if no other account can take it: the end of that, and the reason.
    Failing(Timestamp, &'a str),
    /// Its settings, or what is sealed of it, cannot be used: why.
    Unusable(&'a str),
}

// === impl Known ===

impl Known {
    /// What it could do at this moment.
    pub(crate) fn state(&self, now: Timestamp) -> State<'_> {
        let row = self.row.as_ref();
        let unusable = self.account.as_ref().err().map(|problem| State::Unusable(problem));
        let passing = |row| cooling(row, now).or_else(|| failing(row, now));
        let learnt = || row.and_then(disabled).or_else(|| row.and_then(passing));
        unusable.or_else(learnt).unwrap_or(State::Enabled)
    }
}

fn disabled(row: &AccountRow) -> Option<State<'_>> {
    row.disabled_at.map(|since| State::Disabled(since, row.disabled_reason.as_deref().unwrap_or_default()))
}

/// The state of failing in the store, if its end has not passed: a process that was killed cannot take it back.
fn failing(row: &AccountRow, now: Timestamp) -> Option<State<'_>> {
    let until = row.failing_until.filter(|until| *until > now)?;
    Some(State::Failing(until, row.failing_reason.as_deref().unwrap_or_default()))
}

fn cooling(row: &AccountRow, now: Timestamp) -> Option<State<'_>> {
    let until = row.cooling_until.filter(|until| *until > now)?;
    Some(State::Cooling(until, row.cooling_cause.as_deref().unwrap_or_default()))
}
