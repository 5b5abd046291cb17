//! Applies the result of an attempt to its account, and stores it.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Accounts;
use super::account::AccountAuth;
use super::keeper::TokenFailure;
use super::lease::{AccountSlot, Lease, LeaseGrant};
use super::member::UnsavedChange;
use crate::gateway::store::{AccountChange, AuditContext};

/// A request waits at most this long for the store (ours). After that the watch task retries.
const PATIENCE: Duration = Duration::from_secs(2);

/// The result of an attempt, as far as it concerns the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountFeedback {
    /// The attempt gave an image.
    Good,
    /// The usage window of the account is used up.
    Exhausted {
        /// The time until it opens again, if stated.
        wait: Option<Duration>,
    },
    /// The account was asked too fast.
    Throttled {
        /// The wait that the upstream advises.
        wait: Option<Duration>,
    },
    /// The credentials of the account were refused.
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// The account is not paid for, or does not have the requested model. It is not asked for this model for a while.
    Unfit {
        /// 402 or 404.
        status: u16,
    },
    /// The account could not be reached, or failed on its own.
    Faulty,
    /// The account failed, and the request may be the cause.
    Doubtful,
    /// No feedback: refusals of content, errors of the caller, callers who left.
    Neutral,
}

/// The account to ask next, if the money rules allow another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryTarget {
    /// Another account.
    Other,
    /// The same account once more, with the same lease or another one: its token was refused and has just been renewed.
    Same,
}

// === impl Accounts ===

impl Accounts {
    /// Applies the result of an attempt. Must be called once for each attempt, while its lease is held.
    pub(crate) async fn learn(&self, lease: &Lease, lesson: AccountFeedback) -> RetryTarget {
        if matches!(lesson, AccountFeedback::Unauthorized { .. }) {
            match self.renew(lease).await {
                RenewalOutcome::Yes => return RetryTarget::Same,
                RenewalOutcome::Never => self.pool.learn(lease.place().granted(), lesson),
                RenewalOutcome::No(no_token) => {
                    self.without_token(lease.place(), no_token).await;
                    return RetryTarget::Other;
                }
            }
        } else {
            self.pool.learn(lease.place().granted(), lesson);
        }
        self.save(lease.account().name()).await;
        RetryTarget::Other
    }

    /// Applies the result of an attempt whose lease has been given back.
    pub(crate) async fn learn_of(&self, granted: &LeaseGrant, lesson: AccountFeedback) {
        self.pool.learn(granted, lesson);
        if let Some(account) = self.pool.name_of(granted.member) {
            self.save(&account).await;
        }
    }

    /// Notes that two accounts have forbidden the same request: the request is the cause, or the credentials of both
    /// are invalid. The watch task checks which.
    pub(crate) fn doubt(&self, granted: &LeaseGrant) {
        self.pool.doubt(granted);
    }

    /// Fetches a new token in place of a refused one. A token that was renewed recently is not renewed again; its
    /// refusal counts.
    async fn renew(&self, lease: &Lease) -> RenewalOutcome {
        let (AccountAuth::Token(keeper), Some(refused), false) =
            (lease.place().account().access(), lease.authorization(), lease.is_renewed())
        else {
            return RenewalOutcome::Never;
        };
        if keeper.is_fresh(refused, Instant::now()) {
            return RenewalOutcome::Never;
        }
        match self.tokens.renew(keeper, refused).await {
            Ok(header) => {
                if lease.renew(header) {
                    RenewalOutcome::Yes
                } else {
                    RenewalOutcome::Never
                }
            }
            Err(no_token) => RenewalOutcome::No(no_token),
        }
    }

    /// Disables an account without a token, or begins a short cooldown.
    pub(super) async fn without_token(&self, place: &AccountSlot, no_token: TokenFailure) {
        match no_token {
            TokenFailure::Revoked(code) => self.pool.revoked(place.account().name(), code),
            TokenFailure::Trouble => self.pool.tokenless(place),
        }
        self.save(place.account().name()).await;
    }

    /// Stores the state of the account. If that fails, the request does not fail: this process has the state, and the
    /// watch task retries.
    pub(super) async fn save(&self, account: &str) {
        if let Some(unsaved) = self.pool.unsaved(account) {
            self.save_one(&unsaved).await;
        }
    }

    pub(super) async fn save_one(&self, unsaved: &UnsavedChange) {
        let UnsavedChange { account, change, .. } = unsaved;
        if let AccountChange::Disable { reason } = change {
            tracing::error!(account, reason, "an account has been disabled; `imagate account enable` enables it again");
        }
        let act = AuditContext::system();
        let write = self.store.change_account(&act, account, change.clone());
        match timeout(PATIENCE, write).await {
            Ok(Ok(row)) => self.pool.saved(unsaved, row.and_then(|row| row.cooling_until)),
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
    Yes,
    /// The credentials are no token, or the token was renewed already.
    Never,
    No(TokenFailure),
}
