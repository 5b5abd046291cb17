//! All accounts in use and all waiting requests, behind one lock that is never held across an await.
//!
//! A slot that becomes free goes to the next waiting request that it can serve. No account serves more concurrent
//! requests than it has slots, an ejected account is used only if no other is left, and no user can keep other
//! users waiting (U32 and C10 of the failure catalogue).

mod credential_checks;
mod lease_decision;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::Utc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::cooldown::AttemptTiming;
use super::health::HealthStatus;
use super::lease::{AccountSlot, LeaseGrant};
use super::pool_member::{AccountRowContent, PoolMember, UnsavedChange};
use super::queue::{FairQueue, QueueTicket, RequesterId};
use super::selection::{AccountCandidate, pick, pseudo_random};
use super::waiter_kinds::WaiterKinds;
use super::{AccountFeedback, LeaseRefusal};
use crate::gateway::config::UpstreamProtocol;
use crate::gateway::store::{StoredEjection, Timestamp};
#[cfg(test)]
use lease_decision::LEASE_DECISIONS;
use lease_decision::{LeaseDecision, lease_decision};

/// The maximum number of waiting requests in all (our choice).
const QUEUE_MAX: usize = 4096;
/// The maximum number of waiting requests of one user (our choice).
const USER_QUEUE_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct AccountPool(Mutex<AccountPoolState>);

#[derive(Debug)]
pub(super) struct AccountPoolState {
    pub(super) members: Vec<PoolMember>,
    /// The accounts of the store whose rows cannot be used. They are remembered so that each is logged once.
    pub(super) unusable_rows: HashMap<String, AccountRowContent>,
    queue: FairQueue<WaitingRequest>,
    /// The kinds of the waiting requests. Requests of one kind have the same requirements.
    kinds: WaiterKinds,
    stopped: bool,
    seed: u64,
    next_id: u64,
}

/// The properties that a request requires of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct AccountRequirements {
    pub(super) group: String,
    /// The protocol of the request; `None` if it is not a caller's request.
    pub(super) protocol: Option<UpstreamProtocol>,
    /// True if the request is for a large image, for which an account may have fewer slots.
    pub(super) is_large: bool,
    /// The model that the request names; `None` if it is not a caller's request.
    pub(super) model: Option<Arc<str>>,
    /// The identifier of the conversation, if the request belongs to one.
    pub(super) session: Option<Arc<[u8]>>,
    /// The only account that may serve the request; `None` if any account may.
    pub(super) only_account: Option<String>,
    /// The accounts that were tried already.
    pub(super) tried_accounts: Vec<String>,
}

#[derive(Debug)]
struct WaitingRequest {
    requirements: AccountRequirements,
    kind_id: u64,
    sender: oneshot::Sender<Result<AccountSlot, LeaseRefusal>>,
}

enum SlotRequestOutcome {
    Answered(Result<AccountSlot, LeaseRefusal>),
    Waiting(QueueTicket, oneshot::Receiver<Result<AccountSlot, LeaseRefusal>>),
}

/// Removes a request from the queue when dropped, however the wait ends.
struct QueueGuard<'a> {
    pool: &'a AccountPool,
    requester: &'a RequesterId,
    ticket: QueueTicket,
}

// === impl AccountPool ===

impl AccountPool {
    pub(super) fn new() -> Arc<Self> {
        Self::with_seed(RandomState::new().hash_one(()))
    }

    pub(super) fn with_seed(seed: u64) -> Arc<Self> {
        let inner = AccountPoolState {
            members: Vec::new(),
            unusable_rows: HashMap::new(),
            queue: FairQueue::default(),
            kinds: WaiterKinds::default(),
            stopped: false,
            seed,
            next_id: 0,
        };
        Arc::new(Self(Mutex::new(inner)))
    }

    /// Locks the state, also after a panic of another holder: every change is made in one step, so the state is
    /// consistent.
    pub(super) fn lock(&self) -> MutexGuard<'_, AccountPoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot on one of the accounts, in fair order, until the deadline.
    pub(super) async fn acquire_slot(
        self: &Arc<Self>,
        requester: &RequesterId,
        requirements: AccountRequirements,
        deadline: Instant,
    ) -> Result<AccountSlot, LeaseRefusal> {
        let slot = match self.request_slot(requester, requirements) {
            SlotRequestOutcome::Answered(answer) => answer,
            SlotRequestOutcome::Waiting(ticket, receiver) => {
                let _waiting = QueueGuard { pool: self, requester, ticket };
                match timeout_at(deadline, receiver).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) | Err(_) => Err(LeaseRefusal::Busy),
                }
            }
        };
        slot.map(|slot| slot.assigned_to(requester.user()))
    }

    fn request_slot(
        self: &Arc<Self>,
        requester: &RequesterId,
        requirements: AccountRequirements,
    ) -> SlotRequestOutcome {
        let now = Instant::now();
        let mut inner = self.lock();
        let decision = inner.lease_decision(&requirements, now);
        match decision {
            _ if inner.stopped => SlotRequestOutcome::Answered(Err(LeaseRefusal::Stopping)),
            LeaseDecision::Refuse(reason) => SlotRequestOutcome::Answered(Err(reason)),
            // Waiting requests go first, unless none of them can use any of the free slots.
            LeaseDecision::Grant(index) if inner.servable_kinds(now, 0).is_none() => {
                SlotRequestOutcome::Answered(Ok(inner.grant(self, index, &requirements, now)))
            }
            LeaseDecision::Grant(_) | LeaseDecision::Wait => {
                if !inner.reserve_queue_room(requester) {
                    return SlotRequestOutcome::Answered(Err(LeaseRefusal::Busy));
                }
                let (sender, receiver) = oneshot::channel();
                let kind = inner.add_to_kind(&requirements);
                let ticket =
                    inner.queue.push(requester.clone(), WaitingRequest { requirements, kind_id: kind, sender });
                inner.grant_free_slots(self, now);
                SlotRequestOutcome::Waiting(ticket, receiver)
            }
        }
    }

    /// Returns the account that would be chosen now.
    pub(super) fn likely_account(&self, requirements: &AccountRequirements) -> Option<String> {
        let mut inner = self.lock();
        let candidates = inner.candidates(requirements, Instant::now());
        let seed = inner.next_seed();
        pick(&candidates, seed).map(|index| inner.members[index].account.name().to_owned())
    }

    /// Returns the text models of the accounts that may serve such a request by translation, each once.
    pub(super) fn tool_host_models(&self, requirements: &AccountRequirements) -> Vec<String> {
        let inner = self.lock();
        let serving = inner.members.iter().filter(|member| member.may_serve(requirements));
        let mut models: Vec<String> =
            serving.filter_map(|member| member.account.endpoint().host_model()).map(str::to_owned).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// Refuses all waiting requests, and grants no further slots.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.refuse_waiting(|_, _| Some(LeaseRefusal::Stopping));
    }

    /// Applies the result of an attempt to its account.
    pub(super) fn apply_feedback(self: &Arc<Self>, grant: &LeaseGrant, feedback: AccountFeedback) {
        self.change_member(grant, |member, timing| member.apply_feedback(feedback, grant, timing, Utc::now()));
    }

    /// Records that no token is available for the account at present.
    pub(super) fn note_missing_token(self: &Arc<Self>, slot: &AccountSlot) {
        self.change_member(slot.grant(), |member, timing| member.note_missing_token(timing, Utc::now()));
    }

    /// Disables an account for which no token can be fetched until an operator acts.
    pub(super) fn disable_revoked(self: &Arc<Self>, account: &str, code: &'static str) {
        let mut inner = self.lock();
        let member = inner.members.iter_mut().find(|member| member.account.name() == account);
        member.into_iter().for_each(|member| member.disable_after_revocation(code));
        inner.update_queue(self, Instant::now());
    }

    /// Serves waiting requests after time has passed, because cooldowns may have ended.
    pub(super) fn serve_waiting(self: &Arc<Self>) {
        self.lock().update_queue(self, Instant::now());
    }

    /// Returns the name of an account, if it is still in use.
    pub(super) fn account_name(&self, id: u64) -> Option<String> {
        self.lock().members.iter().find(|member| member.id == id).map(|member| member.account.name().to_owned())
    }

    pub(super) fn unsaved_change(&self, account: &str) -> Option<UnsavedChange> {
        let inner = self.lock();
        inner.members.iter().find(|member| member.account.name() == account).and_then(PoolMember::unsaved_change)
    }

    /// Returns the accounts whose health has changed since it was last stored, with the health to be stored.
    pub(super) fn unsaved_health(&self) -> Vec<(u64, String, Option<Instant>, Option<StoredEjection>)> {
        let (now, utc_now) = (Instant::now(), Utc::now());
        let inner = self.lock();
        let unsaved = inner.members.iter().filter_map(|member| {
            let (until, ejection) = member.unsaved_health(now, utc_now)?;
            Some((member.id, member.account.name().to_owned(), until, ejection))
        });
        unsaved.collect()
    }

    pub(super) fn mark_health_saved(&self, id: u64, until: Option<Instant>) {
        let mut inner = self.lock();
        let member = inner.members.iter_mut().find(|member| member.id == id);
        member.into_iter().for_each(|member| member.mark_health_saved(until));
    }

    pub(super) fn unsaved_changes(&self) -> Vec<UnsavedChange> {
        self.lock().members.iter().filter_map(PoolMember::unsaved_change).collect()
    }

    pub(super) fn mark_saved(&self, unsaved: &UnsavedChange, cooling_until: Option<Timestamp>) {
        let mut inner = self.lock();
        let member = inner.members.iter_mut().find(|member| member.account.name() == unsaved.account);
        member.into_iter().for_each(|member| member.mark_saved(unsaved.version, cooling_until));
    }

    /// Takes a slot back.
    pub(super) fn release_slot(self: &Arc<Self>, member: u64, large: bool, probe: bool) {
        let mut inner = self.lock();
        inner.release_slot(member, large, probe);
        inner.grant_free_slots(self, Instant::now());
    }

    fn change_member(self: &Arc<Self>, grant: &LeaseGrant, change: impl FnOnce(&mut PoolMember, AttemptTiming)) {
        let now = Instant::now();
        let mut inner = self.lock();
        let jitter = u32::try_from(pseudo_random(inner.next_seed(), 0) % 1000).unwrap_or(0);
        let timing = AttemptTiming { granted_at: grant.granted_at, now, jitter };
        let model = grant.model.as_deref();
        let refused_before = inner.is_model_refused(model);
        if let Some(member) = inner.members.iter_mut().find(|member| member.id == grant.member_id) {
            change(member, timing);
        }
        if !refused_before && inner.is_model_refused(model) {
            inner.split_kind(model);
        }
        inner.update_queue(self, now);
    }
}

// === impl AccountPoolState ===

impl AccountPoolState {
    /// Returns the number of requests that wait for a slot.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns a number for the next account.
    pub(super) const fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// True if an account has refused the model.
    fn is_model_refused(&self, model: Option<&str>) -> bool {
        model.is_some_and(|model| self.members.iter().any(|member| member.has_refused_model(model)))
    }

    /// Returns the id of the kind of a request that begins to wait. All models that no account has refused
    /// share one kind: callers choose the model names, so the number of kinds must not depend on them.
    fn add_to_kind(&mut self, requirements: &AccountRequirements) -> u64 {
        let model = requirements.model.clone().filter(|model| self.is_model_refused(Some(model)));
        self.kinds.add(AccountRequirements { session: None, model, ..requirements.clone() })
    }

    /// Moves the requests that wait for this model to a kind of their own.
    fn split_kind(&mut self, model: Option<&str>) {
        let Self { queue, kinds, .. } = self;
        queue.for_each_mut(|waiter| {
            if waiter.requirements.model.as_deref() == model {
                kinds.remove(waiter.kind_id);
                waiter.kind_id = kinds.add(AccountRequirements { session: None, ..waiter.requirements.clone() });
            }
        });
    }

    /// Refuses and serves waiting requests after any change except a returned slot.
    pub(super) fn update_queue(&mut self, pool: &Arc<AccountPool>, now: Instant) {
        if self.queue.len() > 0 {
            self.refuse_waiting(|members, requirements| match lease_decision(members, requirements, now, 0) {
                LeaseDecision::Refuse(reason) => Some(reason),
                LeaseDecision::Grant(_) | LeaseDecision::Wait => None,
            });
            self.grant_free_slots(pool, now);
        }
    }

    /// Refuses the waiting requests for which `reason` returns a refusal.
    fn refuse_waiting(&mut self, reason: impl Fn(&[PoolMember], &AccountRequirements) -> Option<LeaseRefusal>) {
        let Self { members, queue, kinds, .. } = self;
        let Some(refused) = kinds.matching(|requirements| reason(members, requirements).is_some()) else { return };
        for waiter in queue.take_matching(|waiter| refused.contains(&waiter.kind_id)) {
            kinds.remove(waiter.kind_id);
            let reason = reason(members, &waiter.requirements).unwrap_or(LeaseRefusal::Busy);
            // Sending fails only if the request stopped waiting at this moment.
            let _unsent = waiter.sender.send(Err(reason));
        }
    }

    /// Grants the free slots to waiting requests, in fair order.
    fn grant_free_slots(&mut self, pool: &Arc<AccountPool>, now: Instant) {
        while self.queue.len() > 0 && !self.stopped && self.members.iter().any(|member| member.can_grant_slot(now)) {
            let seed = self.next_seed();
            let Some(servable) = self.servable_kinds(now, seed) else { return };
            let mut chosen = None;
            let Self { members, queue, kinds, .. } = self;
            let waiter = queue.take_next(|waiter| {
                servable.contains(&waiter.kind_id)
                    && match lease_decision(members, &waiter.requirements, now, seed) {
                        LeaseDecision::Grant(index) => chosen.replace(index).is_none(),
                        LeaseDecision::Wait | LeaseDecision::Refuse(_) => false,
                    }
            });
            let (Some(waiter), Some(index)) = (waiter, chosen) else { return };
            kinds.remove(waiter.kind_id);
            let slot = self.grant(pool, index, &waiter.requirements, now);
            if let Err(Ok(slot)) = waiter.sender.send(Ok(slot)) {
                // The request has just stopped waiting. Dropping the slot would take the lock, which is held here, so
                // the slot is released by its parts.
                let (member, large, probe) = slot.into_parts();
                self.release_slot(member, large, probe);
            }
        }
    }

    /// Returns the kinds of waiting requests for which a slot is free; `None` if there are none. Checking kinds instead
    /// of requests is cheap, because thousands of requests are of few kinds.
    fn servable_kinds(&self, now: Instant, seed: u64) -> Option<Vec<u64>> {
        self.kinds.matching(|requirements| {
            matches!(lease_decision(&self.members, requirements, now, seed), LeaseDecision::Grant(_))
        })
    }

    /// Makes room in the queue for one more request of this requester, if necessary by refusing another waiting
    /// request. Returns false if there is no room.
    fn reserve_queue_room(&mut self, requester: &RequesterId) -> bool {
        let evicted = if self.queue.user_len(requester) >= USER_QUEUE_MAX {
            self.queue.evict_from_longest_key(requester)
        } else if self.queue.len() >= QUEUE_MAX {
            self.queue.evict_from_longest_user(requester)
        } else {
            return true;
        };
        evicted.iter().for_each(|waiter| self.kinds.remove(waiter.kind_id));
        evicted.map(|waiter| waiter.sender.send(Err(LeaseRefusal::Busy))).is_some()
    }

    fn grant(
        &mut self,
        pool: &Arc<AccountPool>,
        index: usize,
        requirements: &AccountRequirements,
        now: Instant,
    ) -> AccountSlot {
        let member = &mut self.members[index];
        member.taken_slots += 1;
        member.taken_large_slots += usize::from(requirements.is_large);
        let probe = member.health.status(now) == HealthStatus::HalfOpen;
        member.is_probing |= probe;
        AccountSlot::new(pool, member, requirements, probe, now)
    }

    fn release_slot(&mut self, id: u64, large: bool, probe: bool) {
        // If the account was removed, there is nothing to do.
        let member = self.members.iter_mut().find(|member| member.id == id);
        member.into_iter().for_each(|member| {
            member.taken_slots = member.taken_slots.saturating_sub(1);
            member.taken_large_slots = member.taken_large_slots.saturating_sub(usize::from(large));
            member.is_probing &= !probe;
        });
    }

    fn lease_decision(&mut self, requirements: &AccountRequirements, now: Instant) -> LeaseDecision {
        let seed = self.next_seed();
        lease_decision(&self.members, requirements, now, seed)
    }

    pub(super) fn candidates(&self, requirements: &AccountRequirements, now: Instant) -> Vec<AccountCandidate> {
        self.members.iter().map(|member| member.candidate(requirements, now)).collect()
    }

    const fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        pseudo_random(self.seed, 0)
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.pool.lock();
        let removed = inner.queue.remove(self.requester, self.ticket);
        removed.iter().for_each(|waiter| inner.kinds.remove(waiter.kind_id));
        drop(inner);
        // The request may have been granted a slot. Dropping it takes the lock, so the lock is released first.
        drop(removed);
    }
}

#[cfg(test)]
mod tests;
