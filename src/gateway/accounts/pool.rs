//! All accounts in use and all waiting requests, behind one lock that is never held across an await.
//!
//! A slot that becomes free goes to the next waiting request that it can serve. No account serves more concurrent
//! requests than it has slots, an ejected account is used only if no other is left, and no user can keep other
//! users waiting (U32 and C10 of the failure catalogue).

mod credential_checks;
mod lease_decision;
mod waiting_requests;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::Utc;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::account::UpstreamAccount;
use super::cooldown::{AttemptTiming, WorkKind};
use super::health::HealthStatus;
use super::lease::{AccountSlot, LeaseGrant, ReturnedSlot};
use super::pool_member::{AccountRowContent, PoolMember, UnsavedChange, UnsavedHealth};
use super::queue::{FairQueue, QueueTicket, RequesterId};
use super::selection::{AccountCandidate, pick, pseudo_random, random_permille};
use super::slot_share::MemberShare;
use super::waiter_kinds::WaiterKinds;
use super::{AccountFeedback, LeaseRefusal};
use crate::gateway::store::Timestamp;
#[cfg(test)]
use lease_decision::LEASE_DECISIONS;
use lease_decision::{ANY_SEED, LeaseDecision, lease_decision};

/// The maximum number of waiting requests in all (our choice).
const QUEUE_MAX: usize = 4096;
/// The maximum number of waiting requests of one user (our choice).
const USER_QUEUE_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct AccountPool {
    state: Mutex<AccountPoolState>,
    /// Notified if this node may need slots of other nodes, or may give some back.
    slot_change: Notify,
}

#[derive(Debug)]
pub(super) struct AccountPoolState {
    pub(super) members: Vec<PoolMember>,
    /// The accounts of the store whose rows cannot be used. They are remembered so that each is logged once.
    pub(super) unusable_rows: HashMap<String, AccountRowContent>,
    /// True if other nodes use the accounts, too.
    pub(super) is_shared: bool,
    /// The number of members in the last exchange of slots with other nodes.
    pub(super) shared_members: usize,
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
    /// The kind of work of a caller's request; `None` for a call that any account can serve.
    pub(super) work: Option<WorkKind>,
    /// True if only an account that needs no translation of the request can serve it.
    pub(super) needs_native: bool,
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
    /// The seed that decides between equal accounts; `None` if the pool chooses one.
    pub(super) tie_seed: Option<u64>,
}

// === impl AccountRequirements ===

impl AccountRequirements {
    /// The kind of work of the request; a command is like a request for images.
    pub(super) fn work_kind(&self) -> WorkKind {
        self.work.unwrap_or_default()
    }
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

// === impl WaitingRequest ===

impl WaitingRequest {
    /// Ends the wait. The answer is dropped if the request stopped waiting at this moment.
    fn answer(self, answer: Result<AccountSlot, LeaseRefusal>) {
        drop(self.sender.send(answer));
    }
}

// === impl AccountPool ===

impl AccountPool {
    pub(super) fn new() -> Arc<Self> {
        Self::with_seed(RandomState::new().hash_one(()))
    }

    pub(super) fn with_seed(seed: u64) -> Arc<Self> {
        let state = AccountPoolState {
            members: Vec::new(),
            unusable_rows: HashMap::new(),
            is_shared: false,
            shared_members: 0,
            queue: FairQueue::default(),
            kinds: WaiterKinds::default(),
            stopped: false,
            seed,
            next_id: 0,
        };
        Arc::new(Self { state: Mutex::new(state), slot_change: Notify::new() })
    }

    /// Locks the state, also after a panic of another holder: every change is made in one step, so the state is
    /// consistent.
    pub(super) fn lock(&self) -> MutexGuard<'_, AccountPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn slot_change(&self) -> &Notify {
        &self.slot_change
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
        let mut state = self.lock();
        let decision = state.lease_decision(&requirements, now);
        match decision {
            LeaseDecision::Refuse(reason) => SlotRequestOutcome::Answered(Err(reason)),
            // Waiting requests go first, unless none of them can use any of the free slots.
            LeaseDecision::Grant(index) if state.servable_kinds(now, ANY_SEED).is_empty() => {
                SlotRequestOutcome::Answered(Ok(state.grant(self, index, &requirements, now)))
            }
            _ if state.stopped => SlotRequestOutcome::Answered(Err(LeaseRefusal::Stopping)),
            LeaseDecision::Grant(_) | LeaseDecision::Wait => {
                if !state.reserve_queue_room(requester) {
                    return SlotRequestOutcome::Answered(Err(LeaseRefusal::Busy));
                }
                let (sender, receiver) = oneshot::channel();
                let kind_id = state.add_to_kind(&requirements);
                let ticket = state.queue.push(requester.clone(), WaitingRequest { requirements, kind_id, sender });
                state.grant_free_slots(self, now);
                if state.is_shared {
                    self.slot_change.notify_one();
                }
                SlotRequestOutcome::Waiting(ticket, receiver)
            }
        }
    }

    /// Returns the account that would be chosen now with this seed.
    pub(super) fn likely_account(&self, requirements: &AccountRequirements, seed: u64) -> Option<String> {
        let state = self.lock();
        let candidates = state.candidates(requirements, Instant::now());
        pick(&candidates, seed).map(|index| state.members[index].account.name().to_owned())
    }

    /// True if an account meets the requirements now, or as soon as a slot is free, and does not fail repeatedly.
    pub(super) fn has_healthy_account(&self, requirements: &AccountRequirements) -> bool {
        let candidates = self.lock().candidates(requirements, Instant::now());
        candidates.iter().any(|candidate| candidate.is_eligible && !candidate.is_ejected)
    }

    /// Returns the text models of the accounts that may serve such a request by translation, each once.
    pub(super) fn tool_host_models(&self, requirements: &AccountRequirements) -> Vec<String> {
        let state = self.lock();
        let serving = state.members.iter().filter(|member| member.may_serve(requirements));
        let mut models: Vec<String> =
            serving.filter_map(|member| member.account.endpoint().host_model()).map(str::to_owned).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// Refuses all waiting requests. From now on, a request that finds no free slot is refused, too.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.refuse_waiting(|_, _| Some(LeaseRefusal::Stopping));
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
        let mut state = self.lock();
        if let Some(member) = state.members.iter_mut().find(|member| member.account.name() == account) {
            member.disable_after_revocation(code);
        }
        state.update_queue(self, Instant::now());
    }

    /// Serves waiting requests after time has passed, because cooldowns may have ended.
    pub(super) fn serve_waiting(self: &Arc<Self>) {
        self.lock().update_queue(self, Instant::now());
    }

    /// Returns the name of an account, if it is still in use.
    pub(super) fn account_name(&self, id: u64) -> Option<String> {
        self.lock().members.iter().find(|member| member.id == id).map(|member| member.account.name().to_owned())
    }

    /// Returns the change of the state of this account that must be stored.
    pub(super) fn unsaved_change(&self, account: &str) -> Option<UnsavedChange> {
        let state = self.lock();
        state.members.iter().find(|member| member.account.name() == account).and_then(PoolMember::unsaved_change)
    }

    /// Returns the accounts whose health has changed since it was last stored, with the health to be stored.
    pub(super) fn unsaved_health(&self) -> Vec<UnsavedHealth> {
        let (now, utc_now) = (Instant::now(), Utc::now());
        self.lock().members.iter().filter_map(|member| member.unsaved_health(now, utc_now)).collect()
    }

    pub(super) fn mark_health_saved(&self, saved: &UnsavedHealth) {
        let mut state = self.lock();
        if let Some(member) = state.members.iter_mut().find(|member| member.id == saved.member_id) {
            member.mark_health_saved(saved.ejection_end);
        }
    }

    pub(super) fn unsaved_changes(&self) -> Vec<UnsavedChange> {
        self.lock().members.iter().filter_map(PoolMember::unsaved_change).collect()
    }

    pub(super) fn mark_change_saved(&self, unsaved: &UnsavedChange, cooling_until: Option<Timestamp>) {
        let mut state = self.lock();
        if let Some(member) = state.members.iter_mut().find(|member| member.account.name() == unsaved.account) {
            member.mark_change_saved(unsaved.version, cooling_until);
        }
    }

    /// Takes a slot back.
    pub(super) fn release_slot(self: &Arc<Self>, returned: ReturnedSlot) {
        let mut state = self.lock();
        state.release_slot(returned);
        state.grant_free_slots(self, Instant::now());
        if state.is_shared && state.gives_slots_back(returned.member_id) {
            self.slot_change.notify_one();
        }
    }

    fn change_member(self: &Arc<Self>, grant: &LeaseGrant, change: impl FnOnce(&mut PoolMember, AttemptTiming)) {
        let now = Instant::now();
        let mut state = self.lock();
        let jitter = random_permille(state.next_seed());
        let timing = AttemptTiming { granted_at: grant.granted_at, now, jitter };
        let model = grant.model.as_deref();
        // The kind of the waiting requests for this model is split if this account is the first that refuses the model.
        let may_split_kind = state.waiting() > 0 && !state.is_model_refused(model);
        if let Some(member) = state.members.iter_mut().find(|member| member.id == grant.member_id) {
            change(member, timing);
        }
        if may_split_kind && state.is_model_refused(model) {
            state.split_kind(model);
        }
        state.update_queue(self, now);
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

    /// Adds an account.
    pub(super) fn add_member(
        &mut self,
        account: Arc<UpstreamAccount>,
        stored_row: Option<AccountRowContent>,
    ) -> &mut PoolMember {
        self.next_id += 1;
        let mut member = PoolMember::new(self.next_id, account, stored_row);
        member.share = self.is_shared.then(MemberShare::empty);
        let index = self.members.len();
        self.members.push(member);
        &mut self.members[index]
    }

    /// True if other nodes need the slots of the account that running calls give back.
    fn gives_slots_back(&self, id: u64) -> bool {
        let member = self.members.iter().find(|member| member.id == id);
        member.and_then(|member| member.share).is_some_and(|share| share.gives_back())
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

    fn release_slot(&mut self, returned: ReturnedSlot) {
        // If the account was removed, there is nothing to do.
        if let Some(member) = self.members.iter_mut().find(|member| member.id == returned.member_id) {
            member.taken_slots = member.taken_slots.saturating_sub(1);
            member.taken_large_slots = member.taken_large_slots.saturating_sub(usize::from(returned.is_large));
            member.is_probing &= !returned.is_probe;
        }
    }

    fn lease_decision(&mut self, requirements: &AccountRequirements, now: Instant) -> LeaseDecision {
        let seed = requirements.tie_seed.unwrap_or_else(|| self.next_seed());
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
        let mut state = self.pool.lock();
        let removed = state.queue.remove(self.requester, self.ticket);
        if let Some(waiter) = &removed {
            state.kinds.remove(waiter.kind_id);
        }
        drop(state);
        // The request may have been granted a slot. Dropping it takes the lock, so the lock is released first.
        drop(removed);
    }
}

#[cfg(test)]
mod tests;
