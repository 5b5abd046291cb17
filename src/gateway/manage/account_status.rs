//! The current status of an account, from its row in the store.

use super::ManagedAccount;
use crate::gateway::store::{AccountRow, Timestamp};

/// The current status of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountStatus<'a> {
    /// The account gets jobs.
    Enabled,
    /// The account gets no jobs until it is enabled. The values are the time of the change and the reason.
    Disabled(Timestamp, &'a str),
    /// The account is in a cooldown. The values are its end and the reason.
    Cooling(Timestamp, &'a str),
    /// The account is ejected: it gets jobs only if no other account can take them. The values are the end of the
    /// ejection and the reason.
    Failing(Timestamp, &'a str),
    /// The settings or the sealed secrets of the account cannot be used. The value is the reason.
    Unusable(&'a str),
}

// === impl ManagedAccount ===

impl ManagedAccount {
    /// The status of the account at the time `now`.
    pub(crate) fn status(&self, now: Timestamp) -> AccountStatus<'_> {
        let row = self.row.as_ref();
        let unusable = self.account.as_ref().err().map(|problem| AccountStatus::Unusable(problem));
        let temporary_status = |row| cooling_status(row, now).or_else(|| failing_status(row, now));
        let stored_status = || row.and_then(disabled_status).or_else(|| row.and_then(temporary_status));
        unusable.or_else(stored_status).unwrap_or(AccountStatus::Enabled)
    }
}

fn disabled_status(row: &AccountRow) -> Option<AccountStatus<'_>> {
    row.disabled_at.map(|since| AccountStatus::Disabled(since, row.disabled_reason.as_deref().unwrap_or_default()))
}

/// The ejection in the store, if its end has not passed. After a process was killed, a row may still have an ejection
/// whose end has passed.
fn failing_status(row: &AccountRow, now: Timestamp) -> Option<AccountStatus<'_>> {
    let until = row.ejected_until.filter(|until| *until > now)?;
    Some(AccountStatus::Failing(until, row.ejection_reason.as_deref().unwrap_or_default()))
}

fn cooling_status(row: &AccountRow, now: Timestamp) -> Option<AccountStatus<'_>> {
    let until = row.cooldown_until.filter(|until| *until > now)?;
    Some(AccountStatus::Cooling(until, row.cooldown_cause.as_deref().unwrap_or_default()))
}
