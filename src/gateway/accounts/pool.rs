//! Every account in use and everybody who waits for one, behind one lock that is never held across an await.
//!
//! A place that frees anywhere goes to whoever is next among those it can serve. It carries the operating rules on
//! per-account concurrency, U32 and C10 of the failure catalogue.

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
use super::lease::Place;
use super::member::{Member, Origin, Unsaved};
use super::pick::{Candidate, pick, scatter};
use super::queue::{Queue, Ticket};
use super::{Lesson, NoLease};
use crate::gateway::config::Protocol;
use crate::gateway::keys::KeyId;
use crate::gateway::store::Timestamp;

/// So many requests may wait in all, and of one key (ours).
const QUEUE_MAX: usize = 4096;
const KEY_MAX: usize = 1024;

/// Every account in use.
#[derive(Debug)]
pub(super) struct Pool(Mutex<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) members: Vec<Member>,
    /// Accounts of the store that cannot be built, as they were found: said once is enough.
    pub(super) broken: HashMap<String, Origin>,
    queue: Queue<KeyId, Waiter>,
    stopped: bool,
    seed: u64,
    next_id: u64,
}

/// What a request needs of an account.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) group: String,
    /// What the request speaks; nothing where it is no request of a caller.
    pub(super) protocol: Option<Protocol>,
    pub(super) large: bool,
    /// What names the conversation that it belongs to, where it belongs to one.
    pub(super) session: Option<Arc<[u8]>>,
    /// The accounts that have had their turn.
    pub(super) tried: Vec<String>,
}

#[derive(Debug)]
struct Waiter {
    wanted: Wanted,
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
    key: &'a KeyId,
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
        key: &KeyId,
        wanted: Wanted,
        deadline: Instant,
    ) -> Result<Place, NoLease> {
        let (ticket, answer) = match self.ask(key, wanted) {
            Asked::Answered(answer) => return answer,
            Asked::Waiting(ticket, answer) => (ticket, answer),
        };
        let _waiting = Waiting { pool: self, key, ticket };
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(NoLease::Busy),
        }
    }

    fn ask(self: &Arc<Self>, key: &KeyId, wanted: Wanted) -> Asked {
        let now = Instant::now();
        let mut inner = self.lock();
        let verdict = inner.verdict(&wanted, now);
        match verdict {
            _ if inner.stopped => Asked::Answered(Err(NoLease::Stopping)),
            Verdict::No(reason) => Asked::Answered(Err(reason)),
            // Who waits already has been waiting for longer.
            Verdict::Take(index) if inner.queue.len() == 0 => {
                Asked::Answered(Ok(inner.grant(self, index, wanted.large, now)))
            }
            Verdict::Take(_) | Verdict::Wait => {
                if !inner.has_room(key) {
                    return Asked::Answered(Err(NoLease::Busy));
                }
                let (answer, answered) = oneshot::channel();
                let ticket = inner.queue.push(key.clone(), Waiter { wanted, answer });
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
        refuse(&mut inner.queue, |_| Some(NoLease::Stopping));
    }

    /// What an attempt has taught about its account.
    pub(super) fn learn(self: &Arc<Self>, place: &Place, lesson: Lesson) {
        self.change(place, |member, moment| member.learn(lesson, moment, Utc::now()));
    }

    /// There is no token for the account right now.
    pub(super) fn tokenless(self: &Arc<Self>, place: &Place) {
        self.change(place, |member, moment| member.tokenless(moment, Utc::now()));
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

    pub(super) fn unsaved(&self, account: &str) -> Option<Unsaved> {
        let inner = self.lock();
        inner.members.iter().find(|member| member.account.name() == account).and_then(Member::unsaved)
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

    fn change(self: &Arc<Self>, place: &Place, change: impl FnOnce(&mut Member, Moment)) {
        let now = Instant::now();
        let mut inner = self.lock();
        let jitter = u32::try_from(scatter(inner.seed(), 0) % 1000).unwrap_or(0);
        let moment = Moment { granted: place.granted(), now, jitter };
        if let Some(member) = inner.members.iter_mut().find(|member| member.id == place.member()) {
            change(member, moment);
        }
        inner.settle(self, now);
    }
}

// === impl Inner ===

impl Inner {
    /// How many requests wait for a place.
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

    /// After any change but a returned place: those without hope are told, the others served.
    pub(super) fn settle(&mut self, pool: &Arc<Pool>, now: Instant) {
        if self.queue.len() > 0 {
            let members = &self.members;
            refuse(&mut self.queue, |wanted| match verdict(members, wanted, now, 0) {
                Verdict::No(reason) => Some(reason),
                Verdict::Take(_) | Verdict::Wait => None,
            });
            self.serve(pool, now);
        }
    }

    /// Gives out what is free, to those whose turn it is.
    fn serve(&mut self, pool: &Arc<Pool>, now: Instant) {
        while self.queue.len() > 0 && !self.stopped && self.members.iter().any(|member| member.is_open(now)) {
            let seed = self.seed();
            let mut chosen = None;
            let (members, queue) = (&self.members, &mut self.queue);
            let waiter = queue.take(|waiter| match verdict(members, &waiter.wanted, now, seed) {
                Verdict::Take(index) => chosen.replace(index).is_none(),
                Verdict::Wait | Verdict::No(_) => false,
            });
            let (Some(waiter), Some(index)) = (waiter, chosen) else { return };
            let place = self.grant(pool, index, waiter.wanted.large, now);
            if let Err(Ok(place)) = waiter.answer.send(Ok(place)) {
                // Left in this moment. The place must not come back by itself: the lock is held here.
                let (member, large, probe) = place.dissolve();
                self.take_back(member, large, probe);
            }
        }
    }

    /// Whether one more of this key may wait, if need be instead of another.
    fn has_room(&mut self, key: &KeyId) -> bool {
        if self.queue.of_key(key) >= KEY_MAX {
            return false;
        }
        if self.queue.len() < QUEUE_MAX {
            return true;
        }
        let evicted = self.queue.make_room(key);
        evicted.map(|waiter| waiter.answer.send(Err(NoLease::Busy))).is_some()
    }

    fn grant(&mut self, pool: &Arc<Pool>, index: usize, large: bool, now: Instant) -> Place {
        let member = &mut self.members[index];
        member.taken += 1;
        member.taken_large += usize::from(large);
        let probe = member.health.standing(now) == Standing::Probing;
        member.probing |= probe;
        Place::new(pool, member, large, probe, now)
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

fn refuse(queue: &mut Queue<KeyId, Waiter>, reason: impl Fn(&Wanted) -> Option<NoLease>) {
    for waiter in queue.take_all(|waiter| reason(&waiter.wanted).is_some()) {
        let reason = reason(&waiter.wanted).unwrap_or(NoLease::Busy);
        // Nobody to tell where the request has left in this moment.
        let _left = waiter.answer.send(Err(reason));
    }
}

fn verdict(members: &[Member], wanted: &Wanted, now: Instant, seed: u64) -> Verdict {
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
        let gone = self.pool.lock().queue.remove(self.key, self.ticket);
        drop(gone);
    }
}

#[cfg(test)]
mod tests;
