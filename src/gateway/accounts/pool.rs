//! All accounts in use and all waiting requests, behind one lock that is never held across an await.
//!
//! A slot that becomes free goes to the next waiting request that it can serve. The module carries the operating rules
//! on per-account concurrency, and U32 and C10 of the failure catalogue.

mod doubts;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Utc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::cooling::{AttemptTiming, CooldownCause};
use super::health::HealthStatus;
use super::kinds::WaiterKinds;
use super::lease::{AccountSlot, LeaseGrant};
use super::member::{AccountRowContent, PoolMember, UnsavedChange};
use super::pick::{AccountCandidate, pick, scatter};
use super::queue::{FairQueue, QueueTicket, RequesterId};
use super::{AccountFeedback, LeaseRefusal};
use crate::gateway::config::UpstreamProtocol;
use crate::gateway::store::{StoredEjection, Timestamp};

/// The most requests that may wait, in all and of one user (ours).
const QUEUE_MAX: usize = 4096;
const USER_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct AccountPool(Mutex<AccountPoolState>);

#[derive(Debug)]
pub(super) struct AccountPoolState {
    pub(super) members: Vec<PoolMember>,
    /// The accounts of the store that cannot be built, so that each is logged once.
    pub(super) broken: HashMap<String, AccountRowContent>,
    queue: FairQueue<WaitingRequest>,
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
    pub(super) large: bool,
    /// The model that the request names; `None` if it is not a caller's request.
    pub(super) model: Option<Arc<str>>,
    /// The identifier of the conversation, if the request belongs to one.
    pub(super) session: Option<Arc<[u8]>>,
    /// The only account that can serve the request, if no other can.
    pub(super) only: Option<String>,
    /// The accounts that were tried already.
    pub(super) tried: Vec<String>,
}

#[derive(Debug)]
struct WaitingRequest {
    wanted: AccountRequirements,
    kind: u64,
    answer: oneshot::Sender<Result<AccountSlot, LeaseRefusal>>,
}

/// The decision on a request at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseDecision {
    Take(usize),
    Wait,
    No(LeaseRefusal),
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
        Self::seeded(RandomState::new().hash_one(()))
    }

    pub(super) fn seeded(seed: u64) -> Arc<Self> {
        let inner = AccountPoolState {
            members: Vec::new(),
            broken: HashMap::new(),
            queue: FairQueue::default(),
            kinds: WaiterKinds::default(),
            stopped: false,
            seed,
            next_id: 0,
        };
        Arc::new(Self(Mutex::new(inner)))
    }

    /// Locks the state. A panic elsewhere leaves it consistent: every change is made in one step.
    pub(super) fn lock(&self) -> MutexGuard<'_, AccountPoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot on one of the accounts, in fair order, until the deadline.
    pub(super) async fn place(
        self: &Arc<Self>,
        requester: &RequesterId,
        wanted: AccountRequirements,
        deadline: Instant,
    ) -> Result<AccountSlot, LeaseRefusal> {
        let place = match self.ask(requester, wanted) {
            SlotRequestOutcome::Answered(answer) => answer,
            SlotRequestOutcome::Waiting(ticket, answer) => {
                let _waiting = QueueGuard { pool: self, requester, ticket };
                match timeout_at(deadline, answer).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) | Err(_) => Err(LeaseRefusal::Busy),
                }
            }
        };
        place.map(|place| place.of(requester.user()))
    }

    fn ask(self: &Arc<Self>, requester: &RequesterId, wanted: AccountRequirements) -> SlotRequestOutcome {
        let now = Instant::now();
        let mut inner = self.lock();
        let verdict = inner.verdict(&wanted, now);
        match verdict {
            _ if inner.stopped => SlotRequestOutcome::Answered(Err(LeaseRefusal::Stopping)),
            LeaseDecision::No(reason) => SlotRequestOutcome::Answered(Err(reason)),
            // Waiting requests go first, unless none of them can use any of the free slots.
            LeaseDecision::Take(index) if inner.served_kinds(now, 0).is_none() => {
                SlotRequestOutcome::Answered(Ok(inner.grant(self, index, &wanted, now)))
            }
            LeaseDecision::Take(_) | LeaseDecision::Wait => {
                if !inner.has_room(requester) {
                    return SlotRequestOutcome::Answered(Err(LeaseRefusal::Busy));
                }
                let (answer, answered) = oneshot::channel();
                let kind = inner.join_kind(&wanted);
                let ticket = inner.queue.push(requester.clone(), WaitingRequest { wanted, kind, answer });
                inner.serve(self, now);
                SlotRequestOutcome::Waiting(ticket, answered)
            }
        }
    }

    /// Returns the account that would be chosen now.
    pub(super) fn likely(&self, wanted: &AccountRequirements) -> Option<String> {
        let mut inner = self.lock();
        let candidates = inner.candidates(wanted, Instant::now());
        let seed = inner.seed();
        pick(&candidates, seed).map(|index| inner.members[index].account.name().to_owned())
    }

    /// Grants no further slots.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.refuse(|_, _| Some(LeaseRefusal::Stopping));
    }

    /// Applies the result of an attempt to its account.
    pub(super) fn learn(self: &Arc<Self>, granted: &LeaseGrant, lesson: AccountFeedback) {
        self.change(granted, |member, moment| member.learn(lesson, granted, moment, Utc::now()));
    }

    /// Notes that no token is available for the account at present.
    pub(super) fn tokenless(self: &Arc<Self>, place: &AccountSlot) {
        self.change(place.granted(), |member, moment| member.tokenless(moment, Utc::now()));
    }

    /// Notes that no token can be fetched for the account until an operator acts.
    pub(super) fn revoked(self: &Arc<Self>, account: &str, code: &'static str) {
        let mut inner = self.lock();
        let found = inner.members.iter_mut().find(|member| member.account.name() == account);
        found.into_iter().for_each(|member| member.revoked(code));
        inner.settle(self, Instant::now());
    }

    /// Serves waiting requests after time has passed, because cooldowns may have ended.
    pub(super) fn wake(self: &Arc<Self>) {
        self.lock().settle(self, Instant::now());
    }

    /// Returns the name of an account, if it is still in use.
    pub(super) fn name_of(&self, id: u64) -> Option<String> {
        self.lock().members.iter().find(|member| member.id == id).map(|member| member.account.name().to_owned())
    }

    pub(super) fn unsaved(&self, account: &str) -> Option<UnsavedChange> {
        let inner = self.lock();
        inner.members.iter().find(|member| member.account.name() == account).and_then(PoolMember::unsaved)
    }

    /// Returns the accounts whose health has changed since it was last stored, with the health to be stored.
    pub(super) fn untold_health(&self) -> Vec<(u64, String, Option<Instant>, Option<StoredEjection>)> {
        let (now, wall) = (Instant::now(), Utc::now());
        let inner = self.lock();
        let untold = inner.members.iter().filter_map(|member| {
            let (until, failing) = member.untold_health(now, wall)?;
            Some((member.id, member.account.name().to_owned(), until, failing))
        });
        untold.collect()
    }

    pub(super) fn told_health(&self, id: u64, until: Option<Instant>) {
        let mut inner = self.lock();
        let found = inner.members.iter_mut().find(|member| member.id == id);
        found.into_iter().for_each(|member| member.told_health(until));
    }

    pub(super) fn all_unsaved(&self) -> Vec<UnsavedChange> {
        self.lock().members.iter().filter_map(PoolMember::unsaved).collect()
    }

    pub(super) fn saved(&self, unsaved: &UnsavedChange, cooling_until: Option<Timestamp>) {
        let mut inner = self.lock();
        let found = inner.members.iter_mut().find(|member| member.account.name() == unsaved.account);
        found.into_iter().for_each(|member| member.saved(unsaved.version, cooling_until));
    }

    /// Takes a slot back.
    pub(super) fn give_back(self: &Arc<Self>, member: u64, large: bool, probe: bool) {
        let mut inner = self.lock();
        inner.take_back(member, large, probe);
        inner.serve(self, Instant::now());
    }

    fn change(self: &Arc<Self>, granted: &LeaseGrant, change: impl FnOnce(&mut PoolMember, AttemptTiming)) {
        let now = Instant::now();
        let mut inner = self.lock();
        let jitter = u32::try_from(scatter(inner.seed(), 0) % 1000).unwrap_or(0);
        let moment = AttemptTiming { granted: granted.at, now, jitter };
        let model = granted.model.as_deref();
        let refused_before = inner.is_refused_somewhere(model);
        if let Some(member) = inner.members.iter_mut().find(|member| member.id == granted.member) {
            change(member, moment);
        }
        if !refused_before && inner.is_refused_somewhere(model) {
            inner.sort_out(model);
        }
        inner.settle(self, now);
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

    /// True if an account was found unfit for the model.
    fn is_refused_somewhere(&self, model: Option<&str>) -> bool {
        model.is_some_and(|model| self.members.iter().any(|member| member.has_refused(model)))
    }

    /// Returns the id of the kind of a request that begins to wait. Models that no account was found unfit for share
    /// one kind: callers choose the names, so the number of kinds must not depend on them.
    fn join_kind(&mut self, wanted: &AccountRequirements) -> u64 {
        let model = wanted.model.clone().filter(|model| self.is_refused_somewhere(Some(model)));
        self.kinds.join(AccountRequirements { session: None, model, ..wanted.clone() })
    }

    /// Moves the requests that wait for this model to a kind of their own.
    fn sort_out(&mut self, model: Option<&str>) {
        let Self { queue, kinds, .. } = self;
        queue.each(|waiter| {
            if waiter.wanted.model.as_deref() == model {
                kinds.leave(waiter.kind);
                waiter.kind = kinds.join(AccountRequirements { session: None, ..waiter.wanted.clone() });
            }
        });
    }

    /// Refuses and serves waiting requests after any change except a returned slot.
    pub(super) fn settle(&mut self, pool: &Arc<AccountPool>, now: Instant) {
        if self.queue.len() > 0 {
            self.refuse(|members, wanted| match verdict(members, wanted, now, 0) {
                LeaseDecision::No(reason) => Some(reason),
                LeaseDecision::Take(_) | LeaseDecision::Wait => None,
            });
            self.serve(pool, now);
        }
    }

    /// Answers the waiting requests for which there is a reason to refuse them.
    fn refuse(&mut self, reason: impl Fn(&[PoolMember], &AccountRequirements) -> Option<LeaseRefusal>) {
        let Self { members, queue, kinds, .. } = self;
        let Some(refused) = kinds.where_true(|wanted| reason(members, wanted).is_some()) else { return };
        for waiter in queue.take_all(|waiter| refused.contains(&waiter.kind)) {
            kinds.leave(waiter.kind);
            let reason = reason(members, &waiter.wanted).unwrap_or(LeaseRefusal::Busy);
            // Fails only if the request has left at this moment.
            let _left = waiter.answer.send(Err(reason));
        }
    }

    /// Grants the free slots to the requests whose turn it is.
    fn serve(&mut self, pool: &Arc<AccountPool>, now: Instant) {
        while self.queue.len() > 0 && !self.stopped && self.members.iter().any(|member| member.is_open(now)) {
            let seed = self.seed();
            let Some(served) = self.served_kinds(now, seed) else { return };
            let mut chosen = None;
            let Self { members, queue, kinds, .. } = self;
            let waiter = queue.take(|waiter| {
                served.contains(&waiter.kind)
                    && match verdict(members, &waiter.wanted, now, seed) {
                        LeaseDecision::Take(index) => chosen.replace(index).is_none(),
                        LeaseDecision::Wait | LeaseDecision::No(_) => false,
                    }
            });
            let (Some(waiter), Some(index)) = (waiter, chosen) else { return };
            kinds.leave(waiter.kind);
            let place = self.grant(pool, index, &waiter.wanted, now);
            if let Err(Ok(place)) = waiter.answer.send(Ok(place)) {
                // The request has just left. The slot must not give itself back, because the lock is held here.
                let (member, large, probe) = place.dissolve();
                self.take_back(member, large, probe);
            }
        }
    }

    /// Returns the kinds of waiting requests for which a slot is free; `None` if there are none. Checking kinds instead
    /// of requests is cheap, because thousands of requests are of few kinds.
    fn served_kinds(&self, now: Instant, seed: u64) -> Option<Vec<u64>> {
        self.kinds.where_true(|wanted| matches!(verdict(&self.members, wanted, now, seed), LeaseDecision::Take(_)))
    }

    /// True if one more request of this requester may wait, if necessary in place of another request.
    fn has_room(&mut self, requester: &RequesterId) -> bool {
        let evicted = if self.queue.of_user(requester) >= USER_MAX {
            self.queue.make_room_within(requester)
        } else if self.queue.len() >= QUEUE_MAX {
            self.queue.make_room(requester)
        } else {
            return true;
        };
        evicted.iter().for_each(|waiter| self.kinds.leave(waiter.kind));
        evicted.map(|waiter| waiter.answer.send(Err(LeaseRefusal::Busy))).is_some()
    }

    fn grant(
        &mut self,
        pool: &Arc<AccountPool>,
        index: usize,
        wanted: &AccountRequirements,
        now: Instant,
    ) -> AccountSlot {
        let member = &mut self.members[index];
        member.taken += 1;
        member.taken_large += usize::from(wanted.large);
        let probe = member.health.standing(now) == HealthStatus::Probing;
        member.probing |= probe;
        AccountSlot::new(pool, member, wanted, probe, now)
    }

    fn take_back(&mut self, id: u64, large: bool, probe: bool) {
        // A removed account has no slots.
        let found = self.members.iter_mut().find(|member| member.id == id);
        found.into_iter().for_each(|member| {
            member.taken = member.taken.saturating_sub(1);
            member.taken_large = member.taken_large.saturating_sub(usize::from(large));
            member.probing &= !probe;
        });
    }

    fn verdict(&mut self, wanted: &AccountRequirements, now: Instant) -> LeaseDecision {
        let seed = self.seed();
        verdict(&self.members, wanted, now, seed)
    }

    pub(super) fn candidates(&self, wanted: &AccountRequirements, now: Instant) -> Vec<AccountCandidate> {
        self.members.iter().map(|member| member.candidate(wanted, now)).collect()
    }

    const fn seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        scatter(self.seed, 0)
    }
}

#[cfg(test)]
thread_local! {
    /// The number of verdicts on this thread, which measures the cost of granting or returning a slot.
    static VERDICTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn verdict(members: &[PoolMember], wanted: &AccountRequirements, now: Instant, seed: u64) -> LeaseDecision {
    #[cfg(test)]
    VERDICTS.set(VERDICTS.get() + 1);
    let candidates: Vec<AccountCandidate> = members.iter().map(|member| member.candidate(wanted, now)).collect();
    match pick(&candidates, seed) {
        Some(index) if candidates[index].free => LeaseDecision::Take(index),
        Some(_) => LeaseDecision::Wait,
        None => LeaseDecision::No(none(members, wanted, now)),
    }
}

/// Returns the reason why no account can serve. Only a limit ends by itself, so only a limit has a wait.
fn none(members: &[PoolMember], wanted: &AccountRequirements, now: Instant) -> LeaseRefusal {
    let rests = members.iter().filter(|member| member.serves(wanted)).filter_map(|member| member.rest(now));
    let limits = rests.filter(|rest| matches!(rest.cause, CooldownCause::Exhausted | CooldownCause::Throttled));
    let (mut exhausted, mut wait) = (true, None::<Duration>);
    for rest in limits {
        exhausted &= rest.cause == CooldownCause::Exhausted;
        let left = rest.until.saturating_duration_since(now);
        wait = Some(wait.map_or(left, |least| least.min(left)));
    }
    wait.map_or(LeaseRefusal::NoneLeft, |wait| LeaseRefusal::Resting { exhausted, wait: Some(wait) })
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.pool.lock();
        let gone = inner.queue.remove(self.requester, self.ticket);
        gone.iter().for_each(|waiter| inner.kinds.leave(waiter.kind));
        drop(inner);
        // Giving back a slot takes the lock, so it is dropped after the lock is released.
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
