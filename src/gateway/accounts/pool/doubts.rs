//! Accounts whose credentials are in doubt, until they were checked by themselves.

use std::sync::Arc;

use chrono::Utc;
use tokio::time::Instant;

use super::Pool;
use crate::gateway::accounts::account::Account;
use crate::gateway::accounts::cooling::Moment;
use crate::gateway::accounts::lease::LeaseGrant;

// === impl Pool ===

impl Pool {
    /// The account has forbidden a request that another account forbids as well: whether its credentials are good for
    /// anything must be checked.
    pub(in crate::gateway::accounts) fn doubt(self: &Arc<Self>, granted: &LeaseGrant) {
        self.change(granted, |member, moment| member.doubt(moment.now));
    }

    /// The accounts whose credentials must be checked now. The result for each goes to [`Pool::tried`].
    pub(in crate::gateway::accounts) fn take_doubted(&self) -> Vec<(u64, Arc<Account>)> {
        let (now, mut inner) = (Instant::now(), self.lock());
        let doubted = inner.members.iter_mut().filter(|member| member.doubted && !member.trying);
        let taken = doubted.map(|member| {
            (member.doubted, member.trying) = (false, true);
            member.checked = Some(now);
            (member.id, Arc::clone(&member.account))
        });
        taken.collect()
    }

    /// Takes in the status with which the credentials of an account were answered, if there was an answer. It says
    /// nothing of the credentials that the account has been given since.
    pub(in crate::gateway::accounts) fn tried(self: &Arc<Self>, id: u64, tried: &Arc<Account>, status: Option<u16>) {
        let now = Instant::now();
        let mut inner = self.lock();
        if let Some(member) = inner.members.iter_mut().find(|member| member.id == id) {
            member.trying = false;
            let status = status.filter(|_| Arc::ptr_eq(&member.account, tried));
            match status {
                // Some keys may make images and not list models, so this alone disables no account.
                Some(403) if member.suspected => member.forbidden(Moment { granted: now, now, jitter: 0 }, Utc::now()),
                Some(status @ (401 | 403)) => member.refused(status),
                Some(200..=299) => member.acquit(now),
                // Nothing is known: the account rests, and the next refusal starts the next check.
                Some(_) | None => {}
            }
        }
        inner.settle(self, now);
    }
}
