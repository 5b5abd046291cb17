//! One answer for one idempotency key.
//!
//! Who comes first holds the [`Ticket`] and runs the job; whoever comes later follows. The row in the store is the
//! claim, durable before anything is spent; the map in memory says which claims live in this process. A claim of this
//! node that is not in the map belongs to a process that died, or to an answer that was not kept: it is lost, and is
//! never paid for again as long as the claim stands.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Utc;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::ReplayError;
use super::fingerprint::Digest;
use super::follower::Follower;
use super::pending::{PendingGuard, PendingWork};
use super::shelf::Shelf;
use super::tape::Tape;
use super::ticket::Ticket;
use crate::gateway::ledger::{Ledger, LedgerError};
use crate::gateway::store::{
    KeyId, NodeId, ReplayDone, ReplayRow, ReplayState, ReplayWrite, RequestId, Store, StoredReplay, Timestamp, Vault,
};

/// The number of expired rows deleted at once, and the pause after that for other users of the store.
const SWEEP: u32 = 500;
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// Everything that has an idempotency key.
pub(super) struct Keyed {
    pub(super) store: Arc<dyn Store>,
    /// Its writer makes claims durable, in the commits of the records.
    pub(super) ledger: Ledger,
    pub(super) vault: Vault,
    pub(super) shelf: Arc<Shelf>,
    pub(super) node: NodeId,
    window: Duration,
    live: Mutex<HashMap<Digest, Arc<Live>>>,
    /// Claims that nothing was spent on, and that the store did not give back yet.
    unforgotten: Mutex<Vec<(Digest, RequestId)>>,
    forgetting: Mutex<HashSet<Digest>>,
    pending: PendingWork,
}

/// A claim of this process.
pub(super) struct Live {
    /// The API key that holds the claim.
    pub(super) owner: KeyId,
    digest: Digest,
    begun: Instant,
    pub(super) tape: Arc<Tape>,
    phase: watch::Sender<Phase>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The store is being asked.
    Asking,
    /// The claim is ours.
    Open,
    /// It was not ours, or it is over.
    Gone,
}

/// How a request with an idempotency key goes on.
pub(crate) enum Entrance {
    /// It is the first: run the job.
    Fresh(Ticket),
    /// The answer is there or on its way.
    Follow(Follower),
    /// The key was used for another request.
    Conflict,
    /// The job ran, or may have, and what it made is gone: paying again is not for us to decide.
    Lost,
}

/// Who is there already.
enum Joined {
    First(Arc<Live>),
    Running(Arc<Live>),
}

/// An entrance on its way to whoever asked. Nobody took it: then nothing was spent.
pub(super) struct Handed(Option<Entrance>);

// === impl Keyed ===

impl Keyed {
    #[expect(clippy::too_many_arguments, reason = "what it reads, what it writes through, and whose it is")]
    pub(super) fn new(
        store: Arc<dyn Store>,
        ledger: Ledger,
        vault: Vault,
        shelf: Arc<Shelf>,
        node: NodeId,
        window: Duration,
    ) -> Self {
        let (live, unforgotten, forgetting) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { store, ledger, vault, shelf, node, window, live, unforgotten, forgetting, pending: PendingWork::new() }
    }

    /// The same, with its claims counted in `pending` together with other work.
    pub(super) fn counted_by(self, pending: PendingWork) -> Self {
        Self { pending, ..self }
    }

    pub(super) fn pending(&self) -> PendingGuard {
        self.pending.begin()
    }

    /// Takes over the files that an earlier process of this node has left.
    pub(super) async fn settle(&self) -> Result<(), ReplayError> {
        let shelf = Arc::clone(&self.shelf);
        let settled = tokio::task::spawn_blocking(move || shelf.settle(Timestamp::now())).await;
        settled.map_err(|_| ReplayError::Stopped)?.map_err(ReplayError::Folder)
    }

    pub(super) async fn enter(
        self: &Arc<Self>,
        owner: &KeyId,
        scope: Digest,
        digest: Digest,
        request_id: &str,
    ) -> Result<Entrance, ReplayError> {
        loop {
            let live = match self.join(owner, scope, digest) {
                Joined::Running(live) => live,
                Joined::First(live) => return self.claim(live, scope, request_id).await,
            };
            let mut phase = live.phase.subscribe();
            // The sender lives in `live`, so this cannot fail.
            let open = phase.wait_for(|phase| *phase != Phase::Asking).await.is_ok_and(|phase| *phase == Phase::Open);
            match open {
                true if live.digest == digest && live.tape.has_gap() => return Ok(Entrance::Lost),
                true if live.digest == digest => return Ok(Entrance::Follow(Follower::of(&live.tape))),
                true => return Ok(Entrance::Conflict),
                // It was over before this one looked; the next turn finds what is there now.
                false => {}
            }
        }
    }

    /// Looks who is there, and takes the place where nobody is.
    fn join(&self, owner: &KeyId, scope: Digest, digest: Digest) -> Joined {
        match self.live().entry(scope) {
            Entry::Occupied(live) => Joined::Running(Arc::clone(live.get())),
            Entry::Vacant(place) => {
                let (tape, phase) = (Arc::default(), watch::Sender::new(Phase::Asking));
                let live = Live { owner: owner.clone(), digest, begun: Instant::now(), tape, phase };
                Joined::First(Arc::clone(place.insert(Arc::new(live))))
            }
        }
    }

    /// Asks the store. On a task of its own: a caller who leaves in the middle must not leave a claim behind.
    async fn claim(
        self: &Arc<Self>,
        live: Arc<Live>,
        scope: Digest,
        request_id: &str,
    ) -> Result<Entrance, ReplayError> {
        let now = Utc::now();
        let window = chrono::TimeDelta::from_std(self.window).unwrap_or(chrono::TimeDelta::MAX);
        let expires_at = now.checked_add_signed(window).unwrap_or(chrono::DateTime::<Utc>::MAX_UTC);
        let (request_id, node) = (request_id.into(), self.node.clone());
        let (created_at, expires_at) = (now.into(), expires_at.into());
        let row = ReplayRow { scope, digest: live.digest, request_id, node, created_at, expires_at };
        let ticket = Ticket::new(Arc::clone(self), live, row);
        let (reply, answer) = oneshot::channel();
        tokio::runtime::Handle::current().spawn(ticket.ask(reply));
        let mut handed = answer.await.map_err(|_| ReplayError::Stopped)??;
        let entrance = handed.0.take().ok_or(ReplayError::Stopped)?;
        if let Entrance::Fresh(ticket) = &entrance {
            ticket.open();
        }
        Ok(entrance)
    }

    /// The claim is over, whatever became of it: the store alone speaks for it.
    pub(super) fn leave(&self, scope: &Digest, live: &Arc<Live>) {
        {
            let mut map = self.live();
            if map.get(scope).is_some_and(|there| Arc::ptr_eq(there, live)) {
                map.remove(scope);
            }
        }
        live.phase.send_replace(Phase::Gone);
    }

    pub(super) fn live(&self) -> MutexGuard<'_, HashMap<Digest, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stands in the store for somebody else's claim.
    pub(super) async fn taken(&self, taken: &StoredReplay, digest: &Digest) -> Option<Entrance> {
        if taken.row.digest != *digest {
            return Some(Entrance::Conflict);
        }
        match &taken.state {
            ReplayState::Done(done) => Some(self.reopen(&taken.row.scope, done).await),
            ReplayState::Running => (taken.row.node == self.node).then_some(Entrance::Lost),
        }
    }

    async fn reopen(&self, scope: &Digest, done: &ReplayDone) -> Entrance {
        let tape = self.tape_of(scope, done).await;
        tape.map_or(Entrance::Lost, |tape| Entrance::Follow(Follower::of(&Arc::new(tape))))
    }

    /// The orphans that a retry has read, as long as the store still has them.
    pub(super) fn forgetting(&self) -> MutexGuard<'_, HashSet<Digest>> {
        self.forgetting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a claim back, now or at the next sweep. Returns true if it is given back.
    pub(super) async fn forget(&self, row: &ReplayRow) -> bool {
        let forgotten = self.forget_claim(row.scope, row.request_id.clone()).await;
        if let Err(error) = &forgotten {
            tracing::warn!(error = error as &dyn std::error::Error, "a claim that cost nothing is given back later");
            let mut unforgotten = self.unforgotten.lock().unwrap_or_else(PoisonError::into_inner);
            unforgotten.push((row.scope, row.request_id.clone()));
        }
        forgotten.is_ok()
    }

    async fn forget_claim(&self, scope: Digest, request_id: RequestId) -> Result<(), LedgerError> {
        self.ledger.write_replay(ReplayWrite::Forget { scope, request_id }).await.map(drop)
    }

    /// Clears what is over.
    pub(super) async fn sweep(&self) -> Result<(), ReplayError> {
        let now = Timestamp::now();
        let shelf = Arc::clone(&self.shelf);
        tokio::task::spawn_blocking(move || shelf.expire(now)).await.map_err(|_| ReplayError::Stopped)?;
        let late = std::mem::take(&mut *self.unforgotten.lock().unwrap_or_else(PoisonError::into_inner));
        let mut late = late.into_iter();
        while let Some((scope, request_id)) = late.next() {
            if let Err(error) = self.forget_claim(scope, request_id.clone()).await {
                let mut unforgotten = self.unforgotten.lock().unwrap_or_else(PoisonError::into_inner);
                unforgotten.push((scope, request_id));
                unforgotten.extend(late);
                return Err(error.into());
            }
            self.forgetting().remove(&scope);
        }
        let mut cleared = SWEEP;
        while cleared == SWEEP {
            let live = self.live_beyond_their_time();
            cleared = self.store.clear_replays(now, &live, SWEEP).await?;
            // The pause lets records be written in between.
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
        Ok(())
    }

    /// Claims of this process whose rows may have expired although the jobs still run.
    fn live_beyond_their_time(&self) -> Vec<Digest> {
        let live = self.live();
        live.iter().filter(|(_, live)| live.begun.elapsed() >= self.window).map(|(scope, _)| *scope).collect()
    }
}

/// Binds the key of a file to its row: whose answer it is, and how long.
pub(super) fn context(scope: &Digest, size: u64) -> String {
    let scope: String = scope.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("replay {scope} {size}")
}

// === impl Live ===

impl Live {
    /// The claim is won, and somebody has the ticket.
    pub(super) fn open(&self) {
        self.phase.send_replace(Phase::Open);
    }
}

// === impl Handed ===

impl Handed {
    pub(super) const fn new(entrance: Entrance) -> Self {
        Self(Some(entrance))
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if let Some(Entrance::Fresh(ticket)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn(ticket.give_back()));
        }
    }
}
