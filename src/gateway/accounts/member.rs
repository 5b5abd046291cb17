//! One account in use: its places, its rest, its health, and what of that is not stored yet. Pure.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::Lesson;
use super::account::{Access, Account};
use super::cooling::{Cause, Cooling, Moment, REFUSALS, Rest};
use super::health::{DoubtfulCall, Health, Standing};
use super::lease::LeaseGrant;
use super::pick::{Candidate, affinity};
use super::pool::Wanted;
use super::rows::State;
use super::unfit::UnfitModels;
use crate::gateway::store::{AccountChange, Failing, Timestamp};

/// The shortest time between two checks of credentials that requests give rise to (ours).
const CHECK_PAUSE: Duration = Duration::from_secs(60);

/// One account in use.
#[derive(Debug)]
pub(super) struct Member {
    /// Not the name: an account that was deleted and added again is another.
    pub(super) id: u64,
    pub(super) account: Arc<Account>,
    /// What an account of the store was built from; nothing for one of the file.
    pub(super) origin: Option<Origin>,
    pub(super) taken: usize,
    pub(super) taken_large: usize,
    pub(super) probing: bool,
    pub(super) disabled: Option<String>,
    pub(super) health: Health,
    /// Its credentials were refused so often that they must be checked by themselves.
    pub(super) doubted: bool,
    /// Its credentials are being checked.
    pub(super) trying: bool,
    /// They are checked because of requests that may be the cause, not because they were refused again and again.
    pub(super) suspected: bool,
    /// The time of the last check of its credentials.
    pub(super) checked: Option<Instant>,
    cooling: Cooling,
    unfit: UnfitModels,
    /// Counts what was learnt here, so that an older look at the store does not undo it.
    version: u64,
    unsaved: Option<AccountChange>,
    /// The rest as the store has it.
    stored: Option<Timestamp>,
    /// The end of the ejection that the store has last been told.
    told_ejected: Option<Instant>,
}

/// What an account of the store was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) settings: Option<String>,
    pub(super) sealed: Option<Vec<u8>>,
}

/// What is to be stored.
#[derive(Debug)]
pub(super) struct Unsaved {
    pub(super) account: String,
    pub(super) change: AccountChange,
    pub(super) version: u64,
}

// === impl Member ===

impl Member {
    pub(super) fn new(id: u64, account: Arc<Account>, origin: Option<Origin>) -> Self {
        Self {
            id,
            account,
            origin,
            taken: 0,
            taken_large: 0,
            probing: false,
            disabled: None,
            health: Health::default(),
            doubted: false,
            trying: false,
            suspected: false,
            checked: None,
            cooling: Cooling::default(),
            unfit: UnfitModels::default(),
            version: 0,
            unsaved: None,
            stored: None,
            told_ejected: None,
        }
    }

    /// Whether it would serve such a request if it did not rest.
    pub(super) fn serves(&self, wanted: &Wanted) -> bool {
        let tried = wanted.tried.iter().any(|name| name == self.account.name());
        let named = wanted.only.as_deref().is_none_or(|only| only == self.account.name());
        self.disabled.is_none()
            && !tried
            && named
            && self.account.serves(&wanted.group)
            && self.account.speaks(wanted.protocol)
    }

    pub(super) fn rest(&self, now: Instant) -> Option<Rest> {
        self.cooling.rest(now)
    }

    /// True if it is not, or was not, asked for this model.
    pub(super) fn has_refused(&self, model: &str) -> bool {
        self.unfit.has(model)
    }

    /// Whether anything at all can be given out.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.disabled.is_none() && self.has_place(false) && self.rest(now).is_none()
    }

    fn has_place(&self, large: bool) -> bool {
        let places = self.account.places();
        self.taken < places.all && (!large || self.taken_large < places.large)
    }

    pub(super) fn candidate(&self, wanted: &Wanted, now: Instant) -> Candidate {
        let standing = self.health.standing(now);
        Candidate {
            eligible: self.serves(wanted)
                && self.rest(now).is_none()
                && !self.unfit.is_for(wanted.model.as_deref(), now),
            ejected: matches!(standing, Standing::Ejected { .. }),
            free: self.has_place(wanted.large) && !(self.probing && standing == Standing::Probing),
            paid: self.account.paid(),
            kind: self.account.kind(),
            priority: self.account.priority(),
            native: self.account.is_native(wanted.protocol),
            affinity: wanted.session.as_deref().map_or(0, |session| affinity(session, self.account.name())),
            load: self.load(wanted.large),
        }
    }

    /// Places taken, in thousandths: of the few for large images where it is one.
    fn load(&self, large: bool) -> u32 {
        let places = self.account.places();
        let (taken, all) = if large { (self.taken_large, places.large) } else { (self.taken, places.all) };
        u32::try_from(taken.saturating_mul(1000) / all.max(1)).unwrap_or(u32::MAX)
    }

    /// Takes in the lesson of an attempt.
    pub(super) fn learn(&mut self, lesson: Lesson, granted: &LeaseGrant, moment: Moment, wall: DateTime<Utc>) {
        let (before, model) = (self.rest(moment.now), granted.model.as_ref());
        match lesson {
            Lesson::Good => {
                self.health.good(moment.now);
                self.cooling.good(moment.granted);
                model.into_iter().for_each(|model| self.unfit.good(model, moment.granted));
                if self.stored.is_some() && before.is_none() {
                    self.wish(AccountChange::Thaw);
                }
            }
            Lesson::Exhausted { wait } => self.cooling.exhausted(wait, moment),
            Lesson::Throttled { wait } => self.cooling.throttled(wait, moment),
            Lesson::Unfit { .. } => model.into_iter().for_each(|model| self.unfit.learn(model, moment)),
            Lesson::Unauthorized { status } => {
                let refusals = self.cooling.unauthorized(status, moment);
                if refusals >= REFUSALS {
                    (self.doubted, self.suspected) = (true, false);
                }
            }
            Lesson::Faulty => self.health.faulty(moment.granted, moment.now),
            Lesson::Doubtful => {
                let call = DoubtfulCall { caller: &granted.caller, granted: moment.granted };
                self.health.doubtful(call, moment.now);
            }
            Lesson::Neutral => {}
        }
        self.note_rest(before, moment.now, wall);
    }

    /// Takes over changed settings. What was held against the credentials does not hold for others.
    pub(super) fn replace(&mut self, account: Arc<Account>) {
        self.account = account;
        self.doubted = false;
    }

    /// Its credentials are to be checked, unless that was done a moment ago.
    pub(super) fn doubt(&mut self, now: Instant) {
        let is_new = !self.doubted && !self.trying;
        if is_new && self.checked.is_none_or(|checked| now - checked >= CHECK_PAUSE) {
            (self.doubted, self.suspected) = (true, true);
        }
    }

    /// Its credentials were checked by themselves and are known, but not allowed to do that.
    pub(super) fn forbidden(&mut self, moment: Moment, wall: DateTime<Utc>) {
        let before = self.rest(moment.now);
        self.cooling.unauthorized(403, moment);
        self.note_rest(before, moment.now, wall);
    }

    /// There is no token for it right now.
    pub(super) fn tokenless(&mut self, moment: Moment, wall: DateTime<Utc>) {
        let before = self.rest(moment.now);
        self.cooling.tokenless(moment);
        self.note_rest(before, moment.now, wall);
    }

    /// Its credentials were checked by themselves and refused with this status.
    pub(super) fn refused(&mut self, status: u16) {
        self.disable(format!("the upstream refuses its credentials again and again (status {status})"));
    }

    /// Its credentials were checked by themselves and are valid: the refusals were caused by the callers' requests.
    pub(super) fn acquit(&mut self, now: Instant) {
        self.cooling.acquit();
        if self.rest(now).is_none() {
            self.wish(AccountChange::Thaw);
        }
    }

    /// There will be no token for it.
    pub(super) fn revoked(&mut self, code: &'static str) {
        self.disable(format!("its token endpoint gives no more tokens ({code}): enter new credentials"));
    }

    fn disable(&mut self, reason: String) {
        if self.disabled.is_none() {
            self.disabled = Some(reason.clone());
            self.wish(AccountChange::Disable { reason });
        }
    }

    fn note_rest(&mut self, before: Option<Rest>, now: Instant, wall: DateTime<Utc>) {
        let rest = self.rest(now).filter(|rest| before != Some(*rest));
        if let Some(Rest { until, cause }) = rest {
            let until = Timestamp::from(wall + (until - now));
            self.wish(AccountChange::Cool { until, cause: cause.as_str().to_owned() });
        }
    }

    /// The health to be written to the store; `None` if it has not changed. Two ejections are told apart by their ends.
    pub(super) fn untold_health(
        &self,
        now: Instant,
        wall: DateTime<Utc>,
    ) -> Option<(Option<Instant>, Option<Failing>)> {
        let ejection = self.health.ejection();
        let until = ejection.map(|(_, until, _)| until);
        let failing = ejection.map(|(since, until, faults)| Failing {
            since: Timestamp::from(wall - (now - since)),
            until: Timestamp::from(wall + until.saturating_duration_since(now)),
            reason: format!("{faults} calls in a row have failed"),
        });
        (until != self.told_ejected).then_some((until, failing))
    }

    /// Notes that the store has been told.
    pub(super) const fn told_health(&mut self, until: Option<Instant>) {
        self.told_ejected = until;
    }

    /// A disabling outlives every later rest, which is worth nothing beside it.
    fn wish(&mut self, change: AccountChange) {
        self.version += 1;
        if !matches!(self.unsaved, Some(AccountChange::Disable { .. })) {
            self.unsaved = Some(change);
        }
    }

    pub(super) fn unsaved(&self) -> Option<Unsaved> {
        let change = self.unsaved.clone()?;
        Some(Unsaved { account: self.account.name().to_owned(), change, version: self.version })
    }

    /// The store has it. `cooling_until` is what stands there now.
    pub(super) fn saved(&mut self, version: u64, cooling_until: Option<Timestamp>) {
        self.stored = cooling_until;
        if self.version == version {
            self.unsaved = None;
        }
    }

    /// What a look at the store is compared with later; nothing where the store is behind.
    pub(super) fn mark(&self) -> Option<(u64, u64)> {
        self.unsaved.is_none().then_some((self.id, self.version))
    }

    /// Takes over what others have done to the account.
    pub(super) fn adopt(&mut self, state: &State, now: Instant, wall: DateTime<Utc>) {
        if self.disabled.is_some() && state.disabled.is_none() {
            self.cooling.forget();
            self.unfit.forget();
            self.health = Health::default();
            if let Access::Token(keeper) = self.account.access() {
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
                self.cooling.adopt(Cause::parse(state.cooling_cause.as_deref()), left, now);
            }
        }
    }
}
