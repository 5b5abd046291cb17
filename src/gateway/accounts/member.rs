//! One account in use: its slots, its cooldown, its health, and the changes that are not stored yet. No I/O.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::AccountFeedback;
use super::account::{AccountAuth, UpstreamAccount};
use super::cooling::{AccountCooldown, AttemptTiming, CooldownCause, CooldownPeriod, REFUSALS};
use super::health::{AccountHealth, DoubtfulCall, HealthStatus};
use super::lease::LeaseGrant;
use super::pick::{AccountCandidate, affinity};
use super::pool::AccountRequirements;
use super::rows::StoredAccountState;
use super::unfit::UnfitModels;
use crate::gateway::store::{AccountChange, StoredEjection, Timestamp};

/// The shortest time between two credential checks that requests cause (ours).
const CHECK_PAUSE: Duration = Duration::from_secs(60);

/// One account in use.
#[derive(Debug)]
pub(super) struct PoolMember {
    /// Identifies the account. The name does not: an account that was deleted and added again is a different one.
    pub(super) id: u64,
    pub(super) account: Arc<UpstreamAccount>,
    /// The row content that an account of the store was built from; `None` for an account of the configuration file.
    pub(super) origin: Option<AccountRowContent>,
    pub(super) taken: usize,
    pub(super) taken_large: usize,
    pub(super) probing: bool,
    pub(super) disabled: Option<String>,
    pub(super) health: AccountHealth,
    /// True if the credentials were refused so often that they must be checked separately.
    pub(super) doubted: bool,
    /// True if the credentials are being checked.
    pub(super) trying: bool,
    /// True if they are checked because of requests that may be the cause, and not because of repeated refusals.
    pub(super) suspected: bool,
    /// The time of the last credential check.
    pub(super) checked: Option<Instant>,
    cooling: AccountCooldown,
    unfit: UnfitModels,
    /// Counts the changes made in this process, so that an older read of the store does not undo them.
    version: u64,
    unsaved: Option<AccountChange>,
    /// The end of the cooldown that the store has.
    stored: Option<Timestamp>,
    /// The end of the ejection that was last written to the store.
    told_ejected: Option<Instant>,
}

/// The row content that an account of the store was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccountRowContent {
    pub(super) settings: Option<String>,
    pub(super) sealed: Option<Vec<u8>>,
}

/// A change that must be stored.
#[derive(Debug)]
pub(super) struct UnsavedChange {
    pub(super) account: String,
    pub(super) change: AccountChange,
    pub(super) version: u64,
}

// === impl PoolMember ===

impl PoolMember {
    pub(super) fn new(id: u64, account: Arc<UpstreamAccount>, origin: Option<AccountRowContent>) -> Self {
        Self {
            id,
            account,
            origin,
            taken: 0,
            taken_large: 0,
            probing: false,
            disabled: None,
            health: AccountHealth::default(),
            doubted: false,
            trying: false,
            suspected: false,
            checked: None,
            cooling: AccountCooldown::default(),
            unfit: UnfitModels::default(),
            version: 0,
            unsaved: None,
            stored: None,
            told_ejected: None,
        }
    }

    /// True if the account could serve such a request outside of a cooldown.
    pub(super) fn serves(&self, wanted: &AccountRequirements) -> bool {
        let tried = wanted.tried.iter().any(|name| name == self.account.name());
        let named = wanted.only.as_deref().is_none_or(|only| only == self.account.name());
        self.disabled.is_none()
            && !tried
            && named
            && self.account.serves(&wanted.group)
            && self.account.speaks(wanted.protocol)
    }

    pub(super) fn rest(&self, now: Instant) -> Option<CooldownPeriod> {
        self.cooling.rest(now)
    }

    /// True if a pause for this model is remembered, even one that is over.
    pub(super) fn has_refused(&self, model: &str) -> bool {
        self.unfit.has(model)
    }

    /// True if the account can grant any slot.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.disabled.is_none() && self.has_place(false) && self.rest(now).is_none()
    }

    fn has_place(&self, large: bool) -> bool {
        let places = self.account.places();
        self.taken < places.all && (!large || self.taken_large < places.large)
    }

    pub(super) fn candidate(&self, wanted: &AccountRequirements, now: Instant) -> AccountCandidate {
        let standing = self.health.standing(now);
        AccountCandidate {
            eligible: self.serves(wanted)
                && self.rest(now).is_none()
                && !self.unfit.is_for(wanted.model.as_deref(), now),
            ejected: matches!(standing, HealthStatus::Ejected { .. }),
            free: self.has_place(wanted.large) && !(self.probing && standing == HealthStatus::Probing),
            paid: self.account.paid(),
            kind: self.account.kind(),
            priority: self.account.priority(),
            native: self.account.is_native(wanted.protocol),
            affinity: wanted.session.as_deref().map_or(0, |session| affinity(session, self.account.name())),
            load: self.load(wanted.large),
        }
    }

    /// The share of taken slots in thousandths; for a large request, of the slots for large requests.
    fn load(&self, large: bool) -> u32 {
        let places = self.account.places();
        let (taken, all) = if large { (self.taken_large, places.large) } else { (self.taken, places.all) };
        u32::try_from(taken.saturating_mul(1000) / all.max(1)).unwrap_or(u32::MAX)
    }

    /// Applies the result of an attempt.
    pub(super) fn learn(
        &mut self,
        lesson: AccountFeedback,
        granted: &LeaseGrant,
        moment: AttemptTiming,
        wall: DateTime<Utc>,
    ) {
        let (before, model) = (self.rest(moment.now), granted.model.as_ref());
        match lesson {
            AccountFeedback::Good => {
                self.health.good(moment.now);
                self.cooling.good(moment.granted);
                model.into_iter().for_each(|model| self.unfit.good(model, moment.granted));
                if self.stored.is_some() && before.is_none() {
                    self.wish(AccountChange::Thaw);
                }
            }
            AccountFeedback::Exhausted { wait } => self.cooling.exhausted(wait, moment),
            AccountFeedback::Throttled { wait } => self.cooling.throttled(wait, moment),
            AccountFeedback::Unfit { .. } => model.into_iter().for_each(|model| self.unfit.learn(model, moment)),
            AccountFeedback::Unauthorized { status } => {
                let refusals = self.cooling.unauthorized(status, moment);
                if refusals >= REFUSALS {
                    (self.doubted, self.suspected) = (true, false);
                }
            }
            AccountFeedback::Faulty => self.health.faulty(moment.granted, moment.now),
            AccountFeedback::Doubtful => {
                let call = DoubtfulCall { caller: &granted.caller, granted: moment.granted };
                self.health.doubtful(call, moment.now);
            }
            AccountFeedback::Neutral => {}
        }
        self.note_rest(before, moment.now, wall);
    }

    /// Applies changed settings. Doubts about the old credentials do not apply to new ones.
    pub(super) fn replace(&mut self, account: Arc<UpstreamAccount>) {
        self.account = account;
        self.doubted = false;
    }

    /// Requests a check of the credentials, unless they were checked a moment ago.
    pub(super) fn doubt(&mut self, now: Instant) {
        let is_new = !self.doubted && !self.trying;
        if is_new && self.checked.is_none_or(|checked| now - checked >= CHECK_PAUSE) {
            (self.doubted, self.suspected) = (true, true);
        }
    }

    /// Notes that the credentials were checked, and are known but not permitted.
    pub(super) fn forbidden(&mut self, moment: AttemptTiming, wall: DateTime<Utc>) {
        let before = self.rest(moment.now);
        self.cooling.unauthorized(403, moment);
        self.note_rest(before, moment.now, wall);
    }

    /// Notes that no token is available at present.
    pub(super) fn tokenless(&mut self, moment: AttemptTiming, wall: DateTime<Utc>) {
        let before = self.rest(moment.now);
        self.cooling.tokenless(moment);
        self.note_rest(before, moment.now, wall);
    }

    /// Notes that the credentials were checked, and refused with this status.
    pub(super) fn refused(&mut self, status: u16) {
        self.disable(format!("the upstream repeatedly refuses its credentials (status {status})"));
    }

    /// Notes that the credentials were checked and are valid: the callers' requests caused the refusals.
    pub(super) fn acquit(&mut self, now: Instant) {
        self.cooling.acquit();
        if self.rest(now).is_none() {
            self.wish(AccountChange::Thaw);
        }
    }

    /// Notes that no token can be fetched until an operator acts.
    pub(super) fn revoked(&mut self, code: &'static str) {
        self.disable(format!("its token endpoint refuses to issue tokens ({code}): enter new credentials"));
    }

    fn disable(&mut self, reason: String) {
        if self.disabled.is_none() {
            self.disabled = Some(reason.clone());
            self.wish(AccountChange::Disable { reason });
        }
    }

    fn note_rest(&mut self, before: Option<CooldownPeriod>, now: Instant, wall: DateTime<Utc>) {
        let rest = self.rest(now).filter(|rest| before != Some(*rest));
        if let Some(CooldownPeriod { until, cause }) = rest {
            let until = Timestamp::from(wall + (until - now));
            self.wish(AccountChange::Cool { until, cause: cause.as_str().to_owned() });
        }
    }

    /// Returns the health to be written to the store; `None` if it has not changed. Ejections are distinguished by
    /// their ends.
    pub(super) fn untold_health(
        &self,
        now: Instant,
        wall: DateTime<Utc>,
    ) -> Option<(Option<Instant>, Option<StoredEjection>)> {
        let ejection = self.health.ejection();
        let until = ejection.map(|(_, until, _)| until);
        let failing = ejection.map(|(since, until, faults)| StoredEjection {
            since: Timestamp::from(wall - (now - since)),
            until: Timestamp::from(wall + until.saturating_duration_since(now)),
            reason: format!("{faults} consecutive calls have failed"),
        });
        (until != self.told_ejected).then_some((until, failing))
    }

    /// Notes that the store has the health.
    pub(super) const fn told_health(&mut self, until: Option<Instant>) {
        self.told_ejected = until;
    }

    /// Queues a change to be stored. A disabling takes precedence over every later cooldown.
    fn wish(&mut self, change: AccountChange) {
        self.version += 1;
        if !matches!(self.unsaved, Some(AccountChange::Disable { .. })) {
            self.unsaved = Some(change);
        }
    }

    pub(super) fn unsaved(&self) -> Option<UnsavedChange> {
        let change = self.unsaved.clone()?;
        Some(UnsavedChange { account: self.account.name().to_owned(), change, version: self.version })
    }

    /// Notes that the store has the change. `cooling_until` is the stored value.
    pub(super) fn saved(&mut self, version: u64, cooling_until: Option<Timestamp>) {
        self.stored = cooling_until;
        if self.version == version {
            self.unsaved = None;
        }
    }

    /// Returns the mark with which a later read of the store is compared; `None` if the store is behind.
    pub(super) fn mark(&self) -> Option<(u64, u64)> {
        self.unsaved.is_none().then_some((self.id, self.version))
    }

    /// Applies the changes that others have made to the account.
    pub(super) fn adopt(&mut self, state: &StoredAccountState, now: Instant, wall: DateTime<Utc>) {
        if self.disabled.is_some() && state.disabled.is_none() {
            self.cooling.forget();
            self.unfit.forget();
            self.health = AccountHealth::default();
            if let AccountAuth::Token(keeper) = self.account.access() {
                keeper.forgive();
            }
        }
        self.disabled.clone_from(&state.disabled);
        if self.stored == state.cooling_until {
            return;
        }
        self.stored = state.cooling_until;
        match state.cooling_until {
            None => {
                self.cooling.forget();
                self.unfit.forget();
            }
            Some(until) => {
                let left = (DateTime::<Utc>::from(until) - wall).to_std().unwrap_or(Duration::ZERO);
                self.cooling.adopt(CooldownCause::parse(state.cooling_cause.as_deref()), left, now);
            }
        }
    }
}
