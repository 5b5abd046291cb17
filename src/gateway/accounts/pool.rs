//! Every account in use and everybody who waits for one, behind one lock that is never held across an await.
//!
//! A place that frees anywhere goes to whoever is next among those it can serve. It carries the operating rules on
//! per-account concurrency, U32 and C10 of the failure catalogue.

mod doubts;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Utc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::cooling::{Cause, Moment};
use super::health::Standing;
use super::kinds::WaiterKinds;
use super::lease::{LeaseGrant, Place};
use super::member::{Member, Origin, Unsaved};
use super::pick::{Candidate, pick, scatter};
use super::queue::{Queue, Requester, Ticket};
use super::{Lesson, NoLease};
use crate::gateway::config::Protocol;
use crate::gateway::store::{Failing, Timestamp};

/// The most requests that may wait, in all and of one user (ours).
const QUEUE_MAX: usize = 4096;
const USER_MAX: usize = 1024;

/// Every account in use.
#[derive(Debug)]
pub(super) struct Pool(Mutex<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) members: Vec<Member>,
    /// Accounts of the store that cannot be built, as they were found: said once is enough.
    pub(super) broken: HashMap<String, Origin>,
    queue: Queue<Waiter>,
    kinds: WaiterKinds,
    stopped: bool,
    seed: u64,
    next_id: u64,
}

/// What a request needs of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) group: String,
    /// What the request speaks; nothing where it is no request of a caller.
    pub(super) protocol: Option<Protocol>,
    pub(super) large: bool,
    /// The model that the request names; `None` if it is not a caller's request.
    pub(super) model: Option<Arc<str>>,
    /// What names the conversation that it belongs to, where it belongs to one.
    pub(super) session: Option<Arc<[u8]>>,
    /// The only account that can serve the request, if no other can.
    pub(super) only: Option<String>,
    /// The accounts that have had their turn.
    pub(super) tried: Vec<String>,
}

#[derive(Debug)]
struct Waiter {
    wanted: Wanted,
    /// The kind of the request, as [`WaiterKinds`] names it.
    kind: u64,
    answer: oneshot::Sender<Result<Place, NoLease>>,
}

/// What can be said to a request right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Take(usize),
    Wait,
    No(NoLease),
}

enum Asked {
    Answered(Result<Place, NoLease>),
    Waiting(Ticket, oneshot::Receiver<Result<Place, NoLease>>),
}

/// Leaves the queue when dropped, however the wait ends.
struct Waiting<'a> {
    pool: &'a Pool,
    requester: &'a Requester,
    ticket: Ticket,
}

// === impl Pool ===

impl Pool {
    pub(super) fn new() -> Arc<Self> {
        Self::seeded(RandomState::new().hash_one(()))
    }

    pub(super) fn seeded(seed: u64) -> Arc<Self> {
        let inner = Inner {
            members: Vec::new(),
            broken: HashMap::new(),
            queue: Queue::default(),
            kinds: WaiterKinds::default(),
            stopped: false,
            seed,
            next_id: 0,
        };
        Arc::new(Self(Mutex::new(inner)))
    }

    /// What has panicked elsewhere has not broken anything here: every change is made in one go.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place on one of the accounts, in fair order, before the deadline.
    pub(super) async fn place(
        self: &Arc<Self>,
        requester: &Requester,
        wanted: Wanted,
        deadline: Instant,
    ) -> Result<Place, NoLease> {
        let place = match self.ask(requester, wanted) {
            Asked::Answered(answer) => answer,
            Asked::Waiting(ticket, answer) => {
                let _waiting = Waiting { pool: self, requester, ticket };
                match timeout_at(deadline, answer).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) | Err(_) => Err(NoLease::Busy),
                }
            }
        };
        place.map(|place| place.of(requester.user()))
    }

    fn ask(self: &Arc<Self>, requester: &Requester, wanted: Wanted) -> Asked {
        let now = Instant::now();
        let mut inner = self.lock();
        let verdict = inner.verdict(&wanted, now);
        match verdict {
            _ if inner.stopped => Asked::Answered(Err(NoLease::Stopping)),
            Verdict::No(reason) => Asked::Answered(Err(reason)),
            // Waiting requests go first, unless none of them can use any of the free places.
            Verdict::Take(index) if inner.served_kinds(now, 0).is_none() => {
                Asked::Answered(Ok(inner.grant(self, index, &wanted, now)))
            }
            Verdict::Take(_) | Verdict::Wait => {
                if !inner.has_room(requester) {
                    return Asked::Answered(Err(NoLease::Busy));
                }
                let (answer, answered) = oneshot::channel();
                let kind = inner.join_kind(&wanted);
                let ticket = inner.queue.push(requester.clone(), Waiter { wanted, kind, answer });
                inner.serve(self, now);
                Asked::Waiting(ticket, answered)
            }
        }
    }

    /// Whose turn it would be right now.
    pub(super) fn likely(&self, wanted: &Wanted) -> Option<String> {
        let mut inner = self.lock();
        let candidates = inner.candidates(wanted, Instant::now());
        let seed = inner.seed();
        pick(&candidates, seed).map(|index| inner.members[index].account.name().to_owned())
    }

    /// Nothing is given out from now on.
    pub(super) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.refuse(|_, _| Some(NoLease::Stopping));
    }

    /// What an attempt has taught about its account.
    pub(super) fn learn(self: &Arc<Self>, granted: &LeaseGrant, lesson: Lesson) {
        self.change(granted, |member, moment| member.learn(lesson, granted, moment, Utc::now()));
    }

    /// There is no token for the account right now.
    pub(super) fn tokenless(self: &Arc<Self>, place: &Place) {
        self.change(place.granted(), |member, moment| member.tokenless(moment, Utc::now()));
    }

    /// There will be no token for the account.
    pub(super) fn revoked(self: &Arc<Self>, account: &str, code: &'static str) {
        let mut inner = self.lock();
        let found = inner.members.iter_mut().find(|member| member.account.name() == account);
        found.into_iter().for_each(|member| member.revoked(code));
        inner.settle(self, Instant::now());
    }

    /// Time has passed: who rested may be back.
    pub(super) fn wake(self: &Arc<Self>) {
        self.lock().settle(self, Instant::now());
    }

    /// The name of an account, if it is still in use.
    pub(super) fn name_of(&self, id: u64) -> Option<String> {
        self.lock().members.iter().find(|member| member.id == id).map(|member| member.account.name().to_owned())
    }

    pub(super) fn unsaved(&self, account: &str) -> Option<Unsaved> {
        let inner = self.lock();
        inner.members.iter().find(|member| member.account.name() == account).and_then(Member::unsaved)
    }

    /// The accounts whose health has changed since it was last stored, with the health to be stored.
    pub(super) fn untold_health(&self) -> Vec<(u64, String, Option<Instant>, Option<Failing>)> {
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

    pub(super) fn all_unsaved(&self) -> Vec<Unsaved> {
        self.lock().members.iter().filter_map(Member::unsaved).collect()
    }

    pub(super) fn saved(&self, unsaved: &Unsaved, cooling_until: Option<Timestamp>) {
        let mut inner = self.lock();
        let found = inner.members.iter_mut().find(|member| member.account.name() == unsaved.account);
        found.into_iter().for_each(|member| member.saved(unsaved.version, cooling_until));
    }

    /// Takes a place back.
    pub(super) fn give_back(self: &Arc<Self>, member: u64, large: bool, probe: bool) {
        let mut inner = self.lock();
        inner.take_back(member, large, probe);
        inner.serve(self, Instant::now());
    }

    fn change(self: &Arc<Self>, granted: &LeaseGrant, change: impl FnOnce(&mut Member, Moment)) {
        let now = Instant::now();
        let mut inner = self.lock();
        let jitter = u32::try_from(scatter(inner.seed(), 0) % 1000).unwrap_or(0);
        let moment = Moment { granted: granted.at, now, jitter };
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

// === impl Inner ===

impl Inner {
    /// The number of requests that wait for a place.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// A number for the next account.
    pub(super) const fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// True if an account was found unfit for the model.
    fn is_refused_somewhere(&self, model: Option<&str>) -> bool {
        model.is_some_and(|model| self.members.iter().any(|member| member.has_refused(model)))
    }

    /// The id of the kind of a request that begins to wait. All models are one to accounts that were never found unfit
    /// for them: callers choose the names, so the number of kinds must not depend on them.
    fn join_kind(&mut self, wanted: &Wanted) -> u64 {
        let model = wanted.model.clone().filter(|model| self.is_refused_somewhere(Some(model)));
        self.kinds.join(Wanted { session: None, model, ..wanted.clone() })
    }

    /// The requests that wait for this model are of a kind of their own from now on.
    fn sort_out(&mut self, model: Option<&str>) {
        let Self { queue, kinds, .. } = self;
        queue.each(|waiter| {
            if waiter.wanted.model.as_deref() == model {
                kinds.leave(waiter.kind);
                waiter.kind = kinds.join(Wanted { session: None, ..waiter.wanted.clone() });
            }
        });
    }

    /// After any change but a returned place: those without hope are told, the others served.
    pub(super) fn settle(&mut self, pool: &Arc<Pool>, now: Instant) {
        if self.queue.len() > 0 {
            self.refuse(|members, wanted| match verdict(members, wanted, now, 0) {
                Verdict::No(reason) => Some(reason),
                Verdict::Take(_) | Verdict::Wait => None,
            });
            self.serve(pool, now);
        }
    }

    /// Answers the waiting requests for which there is a reason to refuse them.
    fn refuse(&mut self, reason: impl Fn(&[Member], &Wanted) -> Option<NoLease>) {
        let Self { members, queue, kinds, .. } = self;
        let Some(refused) = kinds.where_true(|wanted| reason(members, wanted).is_some()) else { return };
        for waiter in queue.take_all(|waiter| refused.contains(&waiter.kind)) {
            kinds.leave(waiter.kind);
            let reason = reason(members, &waiter.wanted).unwrap_or(NoLease::Busy);
            // Fails only if the request has left at this moment.
            let _left = waiter.answer.send(Err(reason));
        }
    }

    /// Gives out what is free, to those whose turn it is.
    fn serve(&mut self, pool: &Arc<Pool>, now: Instant) {
        while self.queue.len() > 0 && !self.stopped && self.members.iter().any(|member| member.is_open(now)) {
            let seed = self.seed();
            let Some(served) = self.served_kinds(now, seed) else { return };
            let mut chosen = None;
            let Self { members, queue, kinds, .. } = self;
            let waiter = queue.take(|waiter| {
                served.contains(&waiter.kind)
                    && match verdict(members, &waiter.wanted, now, seed) {
                        Verdict::Take(index) => chosen.replace(index).is_none(),
                        Verdict::Wait | Verdict::No(_) => false,
                    }
            });
            let (Some(waiter), Some(index)) = (waiter, chosen) else { return };
            kinds.leave(waiter.kind);
            let place = self.grant(pool, index, &waiter.wanted, now);
            if let Err(Ok(place)) = waiter.answer.send(Ok(place)) {
                // Left in this moment. The place must not come back by itself: the lock is held here.
                let (member, large, probe) = place.dissolve();
                self.take_back(member, large, probe);
            }
        }
    }

    /// The kinds of waiting requests for which a place is free; `None` if there are none. Checking kinds instead of
    /// requests is cheap, because thousands of requests are of few kinds.
    fn served_kinds(&self, now: Instant, seed: u64) -> Option<Vec<u64>> {
        self.kinds.where_true(|wanted| matches!(verdict(&self.members, wanted, now, seed), Verdict::Take(_)))
    }

    /// True if one more request of this requester may wait, if necessary in place of another request.
    fn has_room(&mut self, requester: &Requester) -> bool {
        let evicted = if self.queue.of_user(requester) >= USER_MAX {
            self.queue.make_room_within(requester)
        } else if self.queue.len() >= QUEUE_MAX {
            self.queue.make_room(requester)
        } else {
            return true;
        };
        evicted.iter().for_each(|waiter| self.kinds.leave(waiter.kind));
        evicted.map(|waiter| waiter.answer.send(Err(NoLease::Busy))).is_some()
    }

    fn grant(&mut self, pool: &Arc<Pool>, index: usize, wanted: &Wanted, now: Instant) -> Place {
        let member = &mut self.members[index];
        member.taken += 1;
        member.taken_large += usize::from(wanted.large);
        let probe = member.health.standing(now) == Standing::Probing;
        member.probing |= probe;
        Place::new(pool, member, wanted, probe, now)
    }

    fn take_back(&mut self, id: u64, large: bool, probe: bool) {
        // An account that is gone has no places.
        let found = self.members.iter_mut().find(|member| member.id == id);
        found.into_iter().for_each(|member| {
            member.taken = member.taken.saturating_sub(1);
            member.taken_large = member.taken_large.saturating_sub(usize::from(large));
            member.probing &= !probe;
        });
    }

    fn verdict(&mut self, wanted: &Wanted, now: Instant) -> Verdict {
        let seed = self.seed();
        verdict(&self.members, wanted, now, seed)
    }

    pub(super) fn candidates(&self, wanted: &Wanted, now: Instant) -> Vec<Candidate> {
        self.members.iter().map(|member| member.candidate(wanted, now)).collect()
    }

    const fn seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        scatter(self.seed, 0)
    }
}

#[cfg(test)]
thread_local! {
    /// The number of verdicts on this thread: the work of a place that goes out or comes back.
    static VERDICTS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn verdict(members: &[Member], wanted: &Wanted, now: Instant, seed: u64) -> Verdict {
    #[cfg(test)]
    VERDICTS.set(VERDICTS.get() + 1);
    let candidates: Vec<Candidate> = members.iter().map(|member| member.candidate(wanted, now)).collect();
    match pick(&candidates, seed) {
        Some(index) if candidates[index].free => Verdict::Take(index),
        Some(_) => Verdict::Wait,
        None => Verdict::No(none(members, wanted, now)),
    }
}

/// Why nobody serves: only a limit passes by itself, so only that is worth waiting for.
fn none(members: &[Member], wanted: &Wanted, now: Instant) -> NoLease {
    let rests = members.iter().filter(|member| member.serves(wanted)).filter_map(|member| member.rest(now));
    let limits = rests.filter(|rest| matches!(rest.cause, Cause::Exhausted | Cause::Throttled));
    let (mut exhausted, mut wait) = (true, None::<Duration>);
    for rest in limits {
        exhausted &= rest.cause == Cause::Exhausted;
        let left = rest.until.saturating_duration_since(now);
        wait = Some(wait.map_or(left, |least| least.min(left)));
    }
    wait.map_or(NoLease::NoneLeft, |wait| NoLease::Resting { exhausted, wait: Some(wait) })
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.pool.lock();
        let gone = inner.queue.remove(self.requester, self.ticket);
        gone.iter().for_each(|waiter| inner.kinds.leave(waiter.kind));
        drop(inner);
        // Giving back a place takes the lock, so it is dropped after the lock is released.
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
