//! Accounts whose credentials are in doubt until they have been checked separately.

use std::sync::Arc;

use chrono::Utc;
use tokio::time::Instant;

use super::AccountPool;
use crate::gateway::accounts::account::UpstreamAccount;
use crate::gateway::accounts::cooldown::AttemptTiming;
use crate::gateway::accounts::lease::LeaseGrant;

// === impl AccountPool ===

impl AccountPool {
    /// Requests a check of the account's credentials: this account and another one have answered the same request with
    /// 403, so the cause may be the request.
    pub(in crate::gateway::accounts) fn request_credential_check(self: &Arc<Self>, grant: &LeaseGrant) {
        self.change_member(grant, |member, moment| member.request_credential_check(moment.now));
    }

    /// Returns the accounts whose credentials must be checked now, and marks them as being checked. The result for each
    /// goes to [`AccountPool::apply_credential_check`].
    pub(in crate::gateway::accounts) fn take_credential_checks(&self) -> Vec<(u64, Arc<UpstreamAccount>)> {
        let (now, mut state) = (Instant::now(), self.lock());
        let unchecked_members =
            state.members.iter_mut().filter(|member| member.needs_credential_check && !member.is_checking_credentials);
        let checks = unchecked_members.map(|member| {
            (member.needs_credential_check, member.is_checking_credentials) = (false, true);
            member.credentials_checked_at = Some(now);
            (member.id, Arc::clone(&member.account))
        });
        checks.collect()
    }

    /// Ends a credential check, and applies the status of the answer, if there was one. The status is ignored if the
    /// account is no longer the one that was checked, because its settings changed during the check.
    pub(in crate::gateway::accounts) fn apply_credential_check(
        self: &Arc<Self>,
        id: u64,
        account_at_start: &Arc<UpstreamAccount>,
        status: Option<u16>,
    ) {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(member) = state.members.iter_mut().find(|member| member.id == id) {
            member.is_checking_credentials = false;
            let status = status.filter(|_| Arc::ptr_eq(&member.account, account_at_start));
            match status {
                // The check lists models. Some API keys may make images but not list models, so a 403 for such a check
                // begins a cooldown, and does not disable the account.
                Some(403) if member.is_request_suspected => {
                    member.note_forbidden(AttemptTiming { granted_at: now, now, jitter: 0 }, Utc::now());
                }
                Some(status @ (401 | 403)) => member.disable_after_refusal(status),
                Some(200..=299) => member.confirm_credentials(now),
                // The result is unknown: the account stays in its cooldown, and the next refusal starts the next check.
                Some(_) | None => {}
            }
        }
        state.update_queue(self, now);
    }
}
