//! What an attempt teaches about its account, and that nobody forgets it.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Accounts;
use super::account::Access;
use super::keeper::NoToken;
use super::lease::{Lease, LeaseGrant, Place};
use super::member::Unsaved;
use crate::gateway::store::{AccountChange, Act};

/// A request waits for the store no longer than this (ours): the watch tries again.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an attempt teaches about its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// An image came.
    Good,
    /// Its usage window is used up.
    Exhausted {
        /// Until it opens again, where stated.
        wait: Option<Duration>,
    },
    /// It was asked too fast.
    Throttled {
        /// As the upstream advises.
        wait: Option<Duration>,
    },
    /// Its credentials were refused.
    Unauthorized {
        /// 401 or 403.
        status: u16,
    },
    /// It has not been paid for, or does not have the model that was asked for: it is not asked for this model for a
    /// while.
    Unfit {
        /// 402 or 404.
        status: u16,
    },
    /// It could not be reached, or failed by itself.
    Faulty,
    /// It failed, and the request may be the cause.
    Doubtful,
    /// Nothing: refusals, the callers' mistakes, callers who left.
    Neutral,
}

/// Whom to ask next, where the money rules allow it at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Another account.
    Other,
    /// The same account once more, with the same lease or another: its token was refused and has just been renewed.
    Same,
}

// === impl Accounts ===

impl Accounts {
    /// Takes in what an attempt has taught. To be called once for each attempt, while its lease is held.
    pub(crate) async fn learn(&self, lease: &Lease, lesson: Lesson) -> Again {
        if matches!(lesson, Lesson::Unauthorized { .. }) {
            match self.renew(lease).await {
                Renewed::Yes => return Again::Same,
                Renewed::Never => self.pool.learn(lease.place().granted(), lesson),
                Renewed::No(no_token) => {
                    self.without_token(lease.place(), no_token).await;
                    return Again::Other;
                }
            }
        } else {
            self.pool.learn(lease.place().granted(), lesson);
        }
        self.save(lease.account().name()).await;
        Again::Other
    }

    /// Takes in the lesson of an attempt whose lease has been given back.
    pub(crate) async fn learn_of(&self, granted: &LeaseGrant, lesson: Lesson) {
        self.pool.learn(granted, lesson);
        if let Some(account) = self.pool.name_of(granted.member) {
            self.save(&account).await;
        }
    }

    /// The account has forbidden a request, and so has another one: the request is the cause, or the credentials of both
    /// are good for nothing. The watch checks which.
    pub(crate) fn doubt(&self, granted: &LeaseGrant) {
        self.pool.doubt(granted);
    }

    /// Another token in place of one that was refused. One that has only just been renewed is not: then it counts.
    async fn renew(&self, lease: &Lease) -> Renewed {
        let (Access::Token(keeper), Some(refused), false) =
            (lease.place().account().access(), lease.authorization(), lease.is_renewed())
        else {
            return Renewed::Never;
        };
        if keeper.is_fresh(refused, Instant::now()) {
            return Renewed::Never;
        }
        match self.tokens.renew(keeper, refused).await {
            Ok(header) => {
                if lease.renew(header) {
                    Renewed::Yes
                } else {
                    Renewed::Never
                }
            }
            Err(no_token) => Renewed::No(no_token),
        }
    }

    /// Without a token the account is out, or rests for a moment.
    pub(super) async fn without_token(&self, place: &Place, no_token: NoToken) {
        match no_token {
            NoToken::Revoked(code) => self.pool.revoked(place.account().name(), code),
            NoToken::Trouble => self.pool.tokenless(place),
        }
        self.save(place.account().name()).await;
    }

    /// Stores what was learnt. Trouble with that is no trouble of the request: this process knows, and the watch tries
    /// again.
    pub(super) async fn save(&self, account: &str) {
        if let Some(unsaved) = self.pool.unsaved(account) {
            self.save_one(&unsaved).await;
        }
    }

    pub(super) async fn save_one(&self, unsaved: &Unsaved) {
        let Unsaved { account, change, .. } = unsaved;
        if let AccountChange::Disable { reason } = change {
            tracing::error!(account, reason, "an account is disabled; `imagate account enable` brings it back");
        }
        let act = Act::system();
        let write = self.store.change_account(&act, account, change.clone());
        match timeout(PATIENCE, write).await {
            Ok(Ok(row)) => self.pool.saved(unsaved, row.and_then(|row| row.cooling_until)),
            Ok(Err(error)) => {
                tracing::warn!(
                    account,
                    error = &error as &dyn std::error::Error,
                    "the state of an account could not be stored yet"
                );
            }
            Err(_) => tracing::warn!(account, "the store is too slow to take the state of an account"),
        }
    }
}

enum Renewed {
    Yes,
    /// It is no token, or it was renewed already.
    Never,
    No(NoToken),
}
