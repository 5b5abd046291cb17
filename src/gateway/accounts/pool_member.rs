//! One account in use: its slots, its cooldown, its health, and the changes that are not stored yet. No I/O.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::AccountFeedback;
use super::account::{AccountAuth, SlotLimits, UpstreamAccount};
use super::cooldown::{AccountCooldown, AttemptTiming, CooldownCause, CooldownPeriod, REFUSALS_BEFORE_CHECK, WorkKind};
use super::health::{AccountHealth, DoubtfulCall, HealthStatus};
use super::lease::LeaseGrant;
use super::pool::AccountRequirements;
use super::recent_calls::RecentCalls;
use super::rows::StoredAccountState;
use super::selection::{AccountCandidate, affinity};
use super::slot_share::MemberShare;
use super::unfit_models::{AddedToolCooldown, UnfitModels};
use crate::gateway::store::{AccountChange, StoredEjection, Timestamp};

/// The shortest time between two credential checks that requests cause (our choice).
const CHECK_PAUSE: Duration = Duration::from_secs(60);

/// One account in use.
#[derive(Debug)]
pub(super) struct PoolMember {
    /// Identifies the account. The name is not enough: an account that was deleted and added again is a different one.
    pub(super) id: u64,
    pub(super) account: Arc<UpstreamAccount>,
    /// The row content that the account was built from; `None` for an account of the configuration file.
    pub(super) stored_row: Option<AccountRowContent>,
    pub(super) taken_slots: usize,
    pub(super) taken_large_slots: usize,
    /// The slots that this node may use; `None` if no other node uses the account.
    pub(super) share: Option<MemberShare>,
    /// True while the one test request of an ejected account is in flight.
    pub(super) is_probing: bool,
    pub(super) disabled_reason: Option<String>,
    pub(super) health: AccountHealth,
    pub(super) recent_calls: RecentCalls,
    /// True if the credentials must be checked separately, and the check has not begun.
    pub(super) needs_credential_check: bool,
    /// True if the credentials are being checked.
    pub(super) is_checking_credentials: bool,
    /// True if the check was requested because the callers' requests may be the cause of the refusals; false if it
    /// follows repeated refusals.
    pub(super) is_request_suspected: bool,
    /// The time of the last credential check.
    pub(super) credentials_checked_at: Option<Instant>,
    cooldown: AccountCooldown,
    unfit_models: UnfitModels,
    added_tool: AddedToolCooldown,
    /// Counts the changes made in this process, so that an older read of the store does not undo them.
    version: u64,
    unsaved: Option<AccountChange>,
    /// The end of the cooldown in the store, as it was last read or written.
    stored_cooldown_end: Option<Timestamp>,
    /// The end of the ejection that was last written to the store.
    saved_ejection_end: Option<Instant>,
}

/// The row content that an account of the store was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccountRowContent {
    pub(super) settings: Option<String>,
    pub(super) sealed: Option<Vec<u8>>,
}

/// A change of the state of an account that must be stored.
#[derive(Debug)]
pub(super) struct UnsavedChange {
    pub(super) account: String,
    pub(super) change: AccountChange,
    pub(super) version: u64,
}

/// A health that must be stored.
#[derive(Debug)]
pub(super) struct UnsavedHealth {
    pub(super) member_id: u64,
    pub(super) account: String,
    /// The end of the ejection on the clock of this process, which tells one ejection from another.
    pub(super) ejection_end: Option<Instant>,
    pub(super) ejection: Option<StoredEjection>,
}

// === impl PoolMember ===

impl PoolMember {
    pub(super) fn new(id: u64, account: Arc<UpstreamAccount>, stored_row: Option<AccountRowContent>) -> Self {
        Self {
            id,
            account,
            stored_row,
            taken_slots: 0,
            taken_large_slots: 0,
            share: None,
            is_probing: false,
            disabled_reason: None,
            health: AccountHealth::default(),
            recent_calls: RecentCalls::new(Instant::now()),
            needs_credential_check: false,
            is_checking_credentials: false,
            is_request_suspected: false,
            credentials_checked_at: None,
            cooldown: AccountCooldown::default(),
            unfit_models: UnfitModels::default(),
            added_tool: AddedToolCooldown::default(),
            version: 0,
            unsaved: None,
            stored_cooldown_end: None,
            saved_ejection_end: None,
        }
    }

    /// True if the account could serve such a request outside of a cooldown.
    pub(super) fn may_serve(&self, requirements: &AccountRequirements) -> bool {
        let tried = requirements.tried_accounts.iter().any(|name| name == self.account.name());
        let named = requirements.only_account.as_deref().is_none_or(|only| only == self.account.name());
        self.disabled_reason.is_none()
            && !tried
            && named
            && self.account.serves_group(&requirements.group)
            && self.account.supports(requirements.work)
            && (!requirements.needs_native || self.account.is_native(requirements.work))
    }

    /// Returns the cooldown that ends last, whatever work it stops.
    pub(super) fn last_cooldown(&self, now: Instant) -> Option<CooldownPeriod> {
        self.cooldown.last(now)
    }

    /// Returns the cooldown that stops this kind of work.
    pub(super) fn cooldown_of(&self, work: WorkKind, now: Instant) -> Option<CooldownPeriod> {
        self.cooldown.current(work, now)
    }

    /// True if cooldowns stop every kind of work.
    pub(super) fn rests(&self, now: Instant) -> bool {
        [WorkKind::Images, WorkKind::Text].into_iter().all(|work| self.cooldown.stops(work, now))
    }

    /// True if the account remembers a cooldown of this model, even one that has ended.
    pub(super) fn has_refused_model(&self, model: &str) -> bool {
        self.unfit_models.contains(model)
    }

    /// True if the account refuses the tool that the gateway adds.
    pub(super) fn refuses_added_tool(&self, now: Instant) -> bool {
        self.added_tool.is_active(now)
    }

    /// True if the account can grant any slot.
    pub(super) fn can_grant_slot(&self, now: Instant) -> bool {
        self.disabled_reason.is_none() && self.has_free_slot(false, now) && !self.rests(now)
    }

    /// The slots that this node may use now.
    fn usable_slots(&self, now: Instant) -> SlotLimits {
        let limits = self.account.slot_limits();
        self.share.as_ref().map_or(limits, |share| share.usable_slots(limits, now))
    }

    fn has_free_slot(&self, large: bool, now: Instant) -> bool {
        let limits = self.usable_slots(now);
        self.taken_slots < limits.all && (!large || self.taken_large_slots < limits.large)
    }

    pub(super) fn candidate(&self, requirements: &AccountRequirements, now: Instant) -> AccountCandidate {
        let status = self.health.status(now);
        AccountCandidate {
            is_eligible: self.may_serve(requirements)
                && !self.cooldown.stops(requirements.work_kind(), now)
                && !self.unfit_models.is_cooling_down(requirements.model.as_deref(), now),
            is_ejected: matches!(status, HealthStatus::Ejected { .. }),
            has_free_slot: self.has_free_slot(requirements.is_large, now)
                && !(self.is_probing && status == HealthStatus::HalfOpen),
            is_paid: self.account.is_paid(),
            auth_kind: self.account.kind(),
            priority: self.account.priority(),
            needs_no_translation: self.account.is_native(requirements.work),
            affinity: requirements.session.as_deref().map_or(0, |session| affinity(session, self.account.name())),
            load: self.load(requirements.is_large),
        }
    }

    /// The share of taken slots in thousandths; for a large request, of the slots for large requests.
    fn load(&self, large: bool) -> u32 {
        let limits = self.account.slot_limits();
        let (taken, all) = if large { (self.taken_large_slots, limits.large) } else { (self.taken_slots, limits.all) };
        u32::try_from(taken.saturating_mul(1000) / all.max(1)).unwrap_or(u32::MAX)
    }

    /// Applies the result of an attempt.
    pub(super) fn apply_feedback(
        &mut self,
        feedback: AccountFeedback,
        grant: &LeaseGrant,
        timing: AttemptTiming,
        utc_now: DateTime<Utc>,
    ) {
        let (before, model) = (self.last_cooldown(timing.now), grant.model.as_ref());
        match feedback {
            AccountFeedback::Success => {
                self.recent_calls.note_success(timing.now.saturating_duration_since(timing.granted_at), timing.now);
                self.health.note_success(timing.now);
                self.cooldown.note_success(grant.work, timing.granted_at);
                if let Some(model) = model {
                    self.unfit_models.note_success(model, timing.granted_at);
                }
                if self.stored_cooldown_end.is_some() && before.is_none() {
                    self.queue_change(AccountChange::EndCooldown);
                }
            }
            AccountFeedback::Exhausted { wait } => self.cooldown.note_exhausted(grant.work, wait, timing),
            AccountFeedback::Throttled { wait } => self.cooldown.note_throttled(grant.work, wait, timing),
            AccountFeedback::ModelUnavailable { status } => {
                let is_text = status == 200;
                if let Some(model) = model {
                    self.unfit_models.note_unavailable(model, is_text, timing);
                }
            }
            AccountFeedback::AddedToolRefused => self.added_tool.note_refusal(timing),
            AccountFeedback::Unauthorized { status } => {
                let refusals = self.cooldown.note_unauthorized(status, timing);
                if refusals >= REFUSALS_BEFORE_CHECK {
                    (self.needs_credential_check, self.is_request_suspected) = (true, false);
                }
            }
            AccountFeedback::Failed => self.health.note_failure(timing.granted_at, timing.now),
            AccountFeedback::Doubtful => {
                let call = DoubtfulCall { caller: &grant.caller, granted_at: timing.granted_at };
                self.health.note_doubtful_failure(call, timing.now);
            }
            AccountFeedback::Neutral => {}
        }
        self.queue_cooldown_change(before, timing.now, utc_now);
    }

    /// Applies changed settings. Doubts about the old credentials do not apply to new ones.
    pub(super) fn replace_account(&mut self, account: Arc<UpstreamAccount>) {
        self.account = account;
        self.needs_credential_check = false;
    }

    /// Requests a check of the credentials, unless they were checked a moment ago.
    pub(super) fn request_credential_check(&mut self, now: Instant) {
        let is_new = !self.needs_credential_check && !self.is_checking_credentials;
        if is_new && self.credentials_checked_at.is_none_or(|checked| now - checked >= CHECK_PAUSE) {
            (self.needs_credential_check, self.is_request_suspected) = (true, true);
        }
    }

    /// Notes that a credential check was answered with 403: the upstream knows the credentials, but they do not permit
    /// the call of the check.
    pub(super) fn note_forbidden(&mut self, timing: AttemptTiming, utc_now: DateTime<Utc>) {
        let before = self.last_cooldown(timing.now);
        self.cooldown.note_unauthorized(403, timing);
        self.queue_cooldown_change(before, timing.now, utc_now);
    }

    /// Notes that no token is available at present.
    pub(super) fn note_missing_token(&mut self, timing: AttemptTiming, utc_now: DateTime<Utc>) {
        let before = self.last_cooldown(timing.now);
        self.cooldown.note_missing_token(timing);
        self.queue_cooldown_change(before, timing.now, utc_now);
    }

    /// Notes that the credentials were checked, and refused with this status.
    pub(super) fn disable_after_refusal(&mut self, status: u16) {
        self.disable(format!("the upstream repeatedly refuses its credentials (status {status})"));
    }

    /// Notes that the credentials were checked and are valid: the callers' requests caused the refusals.
    pub(super) fn confirm_credentials(&mut self, now: Instant) {
        self.cooldown.clear_unauthorized();
        if self.last_cooldown(now).is_none() {
            self.queue_change(AccountChange::EndCooldown);
        }
    }

    /// Notes that no token can be fetched until an operator acts.
    pub(super) fn disable_after_revocation(&mut self, code: &'static str) {
        self.disable(format!("its token endpoint refuses to issue tokens ({code}): enter new credentials"));
    }

    fn disable(&mut self, reason: String) {
        if self.disabled_reason.is_none() {
            self.disabled_reason = Some(reason.clone());
            self.queue_change(AccountChange::Disable { reason });
        }
    }

    fn queue_cooldown_change(&mut self, before: Option<CooldownPeriod>, now: Instant, utc_now: DateTime<Utc>) {
        let cooldown = self.last_cooldown(now).filter(|cooldown| before != Some(*cooldown));
        if let Some(CooldownPeriod { until, cause }) = cooldown {
            let until = Timestamp::from(utc_now + (until - now));
            self.queue_change(AccountChange::StartCooldown { until, cause: cause.as_str().to_owned() });
        }
    }

    /// Returns the health to be written to the store; `None` if it has not changed. Ejections are distinguished by
    /// their ends.
    pub(super) fn unsaved_health(&self, now: Instant, utc_now: DateTime<Utc>) -> Option<UnsavedHealth> {
        let ejection = self.health.ejection();
        let ejection_end = ejection.map(|(_, until, _)| until);
        if ejection_end == self.saved_ejection_end {
            return None;
        }
        let ejection = ejection.map(|(since, until, failures)| StoredEjection {
            since: Timestamp::from(utc_now - (now - since)),
            until: Timestamp::from(utc_now + until.saturating_duration_since(now)),
            reason: format!("{failures} consecutive calls have failed"),
        });
        Some(UnsavedHealth { member_id: self.id, account: self.account.name().to_owned(), ejection_end, ejection })
    }

    /// Notes that the store has the health. A read that began before that does not show it, so its result is older.
    pub(super) const fn mark_health_saved(&mut self, ejection_end: Option<Instant>) {
        self.saved_ejection_end = ejection_end;
        self.version += 1;
    }

    /// Queues a change to be stored. A disabling takes precedence over every later cooldown.
    fn queue_change(&mut self, change: AccountChange) {
        self.version += 1;
        if !matches!(self.unsaved, Some(AccountChange::Disable { .. })) {
            self.unsaved = Some(change);
        }
    }

    pub(super) fn unsaved_change(&self) -> Option<UnsavedChange> {
        let change = self.unsaved.clone()?;
        Some(UnsavedChange { account: self.account.name().to_owned(), change, version: self.version })
    }

    /// Notes that the store has the change. `cooling_until` is the stored value.
    pub(super) fn mark_change_saved(&mut self, version: u64, cooling_until: Option<Timestamp>) {
        self.stored_cooldown_end = cooling_until;
        if self.version == version {
            self.unsaved = None;
        }
    }

    /// Returns the id and the version with which a later read of the store is compared; `None` if a change is not
    /// stored yet.
    pub(super) fn saved_version(&self) -> Option<(u64, u64)> {
        self.unsaved.is_none().then_some((self.id, self.version))
    }

    /// Applies the stored state of the account, which other processes may have changed.
    pub(super) fn apply_stored_state(&mut self, state: &StoredAccountState, now: Instant, utc_now: DateTime<Utc>) {
        if self.disabled_reason.is_some() && state.disabled_reason.is_none() {
            self.cooldown.clear();
            self.unfit_models.clear();
            self.added_tool.clear();
            self.health = AccountHealth::default();
            if let AccountAuth::Token(cache) = self.account.auth() {
                cache.clear_failure();
            }
        }
        self.disabled_reason.clone_from(&state.disabled_reason);
        // Only a command that enables the account removes the stored start of an ejection.
        if self.saved_ejection_end.is_some() && state.ejected_since.is_none() {
            (self.health, self.saved_ejection_end) = (AccountHealth::default(), None);
        }
        if self.stored_cooldown_end == state.cooling_until {
            return;
        }
        self.stored_cooldown_end = state.cooling_until;
        match state.cooling_until {
            None => {
                self.cooldown.clear();
                self.unfit_models.clear();
                self.added_tool.clear();
            }
            Some(until) => {
                let remaining = (DateTime::<Utc>::from(until) - utc_now).to_std().unwrap_or(Duration::ZERO);
                self.cooldown.adopt(CooldownCause::parse(state.cooling_cause.as_deref()), remaining, now);
            }
        }
    }
}
