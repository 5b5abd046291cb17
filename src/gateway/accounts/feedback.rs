//! Applies the result of an attempt to its account, and stores it.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Accounts;
use super::account::AccountAuth;
use super::lease::{AccountSlot, Lease, LeaseGrant};
use super::pool_member::UnsavedChange;
use super::token_cache::TokenFailure;
use crate::gateway::store::{AccountChange, AuditContext};

/// The maximum time that a request waits for the store (our choice). After that the refresh task writes the state.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of an attempt, as far as it concerns the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountFeedback {
    /// The attempt gave its whole answer, or an image of a fan-out.
    Success,
    /// The usage window of the account is used up.
    Exhausted {
        /// The time until the window begins anew, if the upstream states it.
        wait: Option<Duration>,
    },
    /// The upstream refused because requests came too fast.
    Throttled {
        /// The wait that the upstream advises, if it does.
        wait: Option<Duration>,
    },
    /// The credentials of the account were refused.
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// The account is not paid for, or does not have the requested model or the tool for it. It gets no requests for this
    /// model for a while.
    ModelUnavailable {
        /// The status of the answer; 200 if only a text of a model says so.
        status: u16,
    },
    /// The account refused a response with the image tool that the gateway had added, and accepted it without the tool. It
    /// does not get the tool again for a while.
    AddedToolRefused,
    /// The account could not be reached, or failed on its own.
    Failed,
    /// The account failed, and the request may be the cause.
    Doubtful,
    /// No feedback: refusals of content, errors of the caller, callers who left.
    Neutral,
}

/// The account to ask next, if the money rules allow another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryTarget {
    /// Another account.
    OtherAccount,
    /// The same account once more, with the same lease or another one: the account's token was refused and has just
    /// been renewed.
    SameAccount,
}

// === impl Accounts ===

impl Accounts {
    /// Applies the result of an attempt, and returns the account to ask next. Must be called once for each attempt,
    /// while its lease is held.
    pub(crate) async fn apply_feedback(&self, lease: &Lease, feedback: AccountFeedback) -> RetryTarget {
        if matches!(feedback, AccountFeedback::Unauthorized { .. }) {
            match self.renew_token(lease).await {
                RenewalOutcome::Renewed => return RetryTarget::SameAccount,
                RenewalOutcome::NotApplicable => self.pool.apply_feedback(lease.slot().grant(), feedback),
                RenewalOutcome::Failed(failure) => {
                    self.handle_missing_token(lease.slot(), failure).await;
                    return RetryTarget::OtherAccount;
                }
            }
        } else {
            self.pool.apply_feedback(lease.slot().grant(), feedback);
        }
        self.save_state(lease.account().name()).await;
        RetryTarget::OtherAccount
    }

    /// Applies the result of an attempt whose lease has been given back.
    pub(crate) async fn apply_late_feedback(&self, grant: &LeaseGrant, feedback: AccountFeedback) {
        self.pool.apply_feedback(grant, feedback);
        if let Some(account) = self.pool.account_name(grant.member_id) {
            self.save_state(&account).await;
        }
    }

    /// Requests a check of the credentials of an account that has answered a request with 403 after another account did
    /// the same: the cause may be the request or the credentials. The refresh task makes the check.
    pub(crate) fn suspect_credentials(&self, grant: &LeaseGrant) {
        self.pool.request_credential_check(grant);
    }

    /// Fetches a new token in place of a refused one. Nothing is fetched if the account has no OAuth token, if the
    /// refused token itself was renewed recently, or if the lease was renewed before; the refusal then counts against
    /// the account.
    async fn renew_token(&self, lease: &Lease) -> RenewalOutcome {
        let (AccountAuth::Token(cache), Some(refused), false) =
            (lease.slot().account().auth(), lease.authorization(), lease.is_renewed())
        else {
            return RenewalOutcome::NotApplicable;
        };
        if cache.is_recently_renewed(refused, Instant::now()) {
            return RenewalOutcome::NotApplicable;
        }
        match self.token_fetcher.renew(cache, refused).await {
            Ok(header) => {
                if lease.set_renewed(header) {
                    RenewalOutcome::Renewed
                } else {
                    RenewalOutcome::NotApplicable
                }
            }
            Err(failure) => RenewalOutcome::Failed(failure),
        }
    }

    /// Disables an account whose token was revoked; begins a short cooldown if its token cannot be fetched at present.
    pub(super) async fn handle_missing_token(&self, slot: &AccountSlot, failure: TokenFailure) {
        match failure {
            TokenFailure::Revoked(code) => self.pool.disable_revoked(slot.account().name(), code),
            TokenFailure::Temporary => self.pool.note_missing_token(slot),
        }
        self.save_state(slot.account().name()).await;
    }

    /// Stores the state of the account. If that fails, the request does not fail: this process has the state, and the
    /// refresh task retries.
    pub(super) async fn save_state(&self, account: &str) {
        if let Some(unsaved) = self.pool.unsaved_change(account) {
            self.save_change(&unsaved).await;
        }
    }

    pub(super) async fn save_change(&self, unsaved: &UnsavedChange) {
        let UnsavedChange { account, change, .. } = unsaved;
        if let AccountChange::Disable { reason } = change {
            tracing::error!(account, reason, "an account has been disabled; `imagate account enable` enables it again");
        }
        let audit = AuditContext::system();
        let write = self.store.change_account(&audit, account, change.clone());
        match timeout(STORE_TIMEOUT, write).await {
            Ok(Ok(row)) => self.pool.mark_change_saved(unsaved, row.and_then(|row| row.cooldown_until)),
            Ok(Err(error)) => {
                tracing::warn!(
                    account,
                    error = &error as &dyn std::error::Error,
                    "the state of an account could not be stored; it will be retried"
                );
            }
            Err(_) => tracing::warn!(account, "the state of an account could not be stored: the store is too slow"),
        }
    }
}

enum RenewalOutcome {
    Renewed,
    /// The credentials are no OAuth token, or the token was already renewed, for this lease or a moment ago.
    NotApplicable,
    Failed(TokenFailure),
}
