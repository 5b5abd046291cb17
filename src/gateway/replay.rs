//! Lets a caller who asks again have what was paid for already.
//!
//! Decides which requests are the same request, who runs a job and who follows it, what of an answer is kept, and for
//! how long. Refuses to know how a job is run, what an image is, and how an answer becomes HTTP.
//!
//! Carries: `Idempotency-Key` and orphan adoption of the money rules. A repeat never pays while it can be known that
//! something was, or may have been, paid; after an end that cost nothing a repeat runs anew.
//!
//! # A key from the caller
//!
//! [`Replay::enter`] claims (API key, operation, idempotency key) in the store, durable before anything is spent.
//! Who wins gets a [`Ticket`] and runs the job; everybody else follows. The answer is written down once, as it comes,
//! and every reader, the first caller too, reads at its own pace; the end is shown when the answer is durable.
//!
//! | What became of the job | A repeat gets |
//! |---|---|
//! | it runs | the same answer, as it comes |
//! | an answer, a refusal, an end that may have been paid for | the same again, also after a restart |
//! | an end that cost nothing | a run of its own |
//! | its process died; the answer broke off, had no room, was let go for newer ones | [`Entrance::Lost`] |
//! | the same key, but another request | [`Entrance::Conflict`] |
//!
//! # No key from the caller
//!
//! The official SDKs mark their own retries, and announce that with the first try already. [`Replay::expect`] registers
//! each plain job under a hash of its request. If the client marks its retries, the answer is written down from the
//! beginning, and its own caller reads it from there like everybody else; otherwise it is written down only if the
//! caller leaves before the answer, or if somebody asks for the same meanwhile. Codex does not mark the retries of its
//! image tool, but names the turn of its conversation: the same call in the same turn is a retry. Streams without an
//! idempotency key are not registered: they end with their caller.
//!
//! | State of the job that a retry means | The retry gets ([`Replay::earlier`]) |
//! |---|---|
//! | its caller has left, before the answer or within it | the answer, in flight or finished |
//! | its caller is still there | after a second the same answer, beside the caller |
//! | a refusal, an end that may have been paid for | the same end |
//! | an answer that broke off or was let go; its process died before the answer was whole | "outcome unknown" |
//! | its caller, or a retry, has all of the answer; an end that cost nothing | a run of its own |
//!
//! A plain request whose answer takes longer than the answer deadline is told to come back, and its job goes on. The next
//! request that is the same, even if it is not marked as a retry, gets that answer ([`Replay::in_progress`]).
//!
//! Retries are spread over equal jobs: as long as there are no more retries than jobs, no two of them get the same job.
//! The answer of an orphan lies in the store like an answer with an idempotency key, so it survives a restart. A job
//! that was running when a process died is found by the fingerprint in its record, and an answer that was being
//! delivered then by the name of its unfinished file: both are keyed hashes.
//!
//! # Storage
//!
//! Answers are files in frames that are sealed with a key for each file; the key of a finished answer lies sealed in
//! its row, so a file reveals nothing without the database and the master key. The name of a file contains the id of
//! its API key, so a start reads the folder and no rows. Answers with and without an idempotency key each have a bound;
//! beyond it the oldest answer of the API key that holds the most is dropped, and so it is where it would take the free
//! space that is reserved for the database and for uploads. A disk that takes no more stops nothing:
//! the bytes of such an answer are passed on to the readers that follow it already, at the pace of the slowest, and are
//! lost to later repeats.
//!
//! # How the corridor uses it
//!
//! ```text
//! let follower = match replay.enter(&caller, task, key, request_id).await? {
//!     Entrance::Fresh(ticket) => {
//!         let follower = ticket.follow();
//!         spawn(async move { ticket.record(make(task).await).await });
//!         follower
//!     }
//!     Entrance::Follow(follower) => follower,
//!     Entrance::Conflict => return Err(/* 400 */),
//!     Entrance::Lost => return Err(/* 502, not to be sent again */),
//! };
//! let head = follower.head().await?; // and the follower is the body
//!
//! if retry >= 1 && let Some(follower) = replay.earlier(&caller, &task, fingerprint).await? { return /* as above */ }
//! let (waiting, promise) = replay.expect(&caller, task, expected);
//! spawn(async move { promise.done(make(task).await).await });
//! waiting.answer(until).await // dropped before it is ready: an orphan
//! ```

mod adopt;
mod durable;
mod fingerprint;
mod follower;
mod frames;
mod head;
mod keyed;
mod orphans;
mod pending;
mod promise;
mod recorder;
mod room;
mod shelf;
mod tape;
mod ticket;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use follower::Follower;
pub(crate) use head::{Head, Recordable};
pub(crate) use keyed::Entrance;
pub(crate) use orphans::JobRegistration;
pub(crate) use promise::{AnswerSource, Promise, Waiting};

use crate::error::Error;
use crate::gateway::config;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{Ledger, LedgerError};
use crate::gateway::rules::SharedTask;
use crate::gateway::spool::FreeSpace;
use crate::gateway::store::{NodeId, Store, StoreError, Timestamp, Vault};
use durable::EarlierTry;
use fingerprint::Digest;
use keyed::Keyed;
use orphans::Orphans;
use pending::PendingWork;
use promise::Registered;
use shelf::{RetentionWindows, Shelf};

/// Where the files lie, in the data directory.
const FOLDER: &str = "replays";
/// One part in so many of the room is for orphans.
const ORPHAN_SHARE: u64 = 4;
/// The longest time that a plain job can take.
const LONGEST_JOB: Duration = config::LONGEST_IMAGE_DEADLINE;
/// The time for which a retry waits for a record in state `running` whose job this process does not know, and the pause
/// between two looks at it.
const RUNNING_PATIENCE: Duration = Duration::from_secs(1);
const RUNNING_PAUSE: Duration = Duration::from_millis(50);
/// Between two clean-ups.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Answers that can be given again.
pub(crate) struct Replay {
    pending: PendingWork,
    keyed: Arc<Keyed>,
    /// Nothing where the configuration wants none.
    orphans: Option<Arc<Orphans>>,
    orphan_window: Duration,
}

/// Why it could not be found out what a repeat gets. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The store has trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A claim could not be stored.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The files of the request cannot be read.
    #[error("the files of a request cannot be read")]
    Files(#[source] io::Error),
    /// The folder cannot be used.
    #[error("the folder for kept answers cannot be used")]
    Folder(#[source] io::Error),
    /// The runtime is shutting down.
    #[error("the gateway has stopped")]
    Stopped,
}

impl Replay {
    /// Takes over what an earlier life of this node has left in the data directory, where the free space is looked at,
    /// and clears what is over from now on.
    ///
    /// To be called within a tokio runtime, by the only process that serves from this directory.
    ///
    /// # Errors
    ///
    /// Where the store or the folder cannot be used.
    #[expect(clippy::too_many_arguments, reason = "what it reads, what it writes through, and whose it is")]
    pub(crate) async fn open(
        settings: &config::Replay,
        free: FreeSpace,
        store: Arc<dyn Store>,
        ledger: Ledger,
        vault: Vault,
        node: NodeId,
    ) -> Result<Self, ReplayError> {
        let share = if settings.orphans { settings.max_bytes / ORPHAN_SHARE } else { 0 };
        let room = settings.max_bytes - share;
        let windows = RetentionWindows { answers: settings.idempotency_window, orphans: settings.orphan_window };
        let shelf = Shelf::open(free, room, windows);
        let shelf = shelf.map_err(ReplayError::Folder)?;
        let pending = PendingWork::new();
        let keyed = Keyed::new(store, ledger, vault, shelf, node, settings.idempotency_window);
        let keyed = Arc::new(keyed.counted_by(pending.clone()));
        let window = settings.orphan_window;
        let orphans = settings.orphans.then(|| Orphans::new(window, Arc::clone(&keyed), share, pending.clone()));
        keyed.settle().await?;
        let work = sweep(Arc::downgrade(&keyed), orphans.as_ref().map(Arc::downgrade));
        // It ends with the room.
        drop(tokio::runtime::Handle::current().spawn(work));
        Ok(Self { pending, keyed, orphans, orphan_window: settings.orphan_window })
    }

    /// How a request with an idempotency key goes on. Of several at once, one is fresh.
    ///
    /// # Errors
    ///
    /// Where it cannot be found out; nothing may be spent then.
    pub(crate) async fn enter(
        &self,
        caller: &Caller,
        task: impl Into<SharedTask>,
        idempotency_key: &str,
        request_id: &str,
    ) -> Result<Entrance, ReplayError> {
        let task = task.into();
        let digest = fingerprint::digest(&task).await.map_err(ReplayError::Files)?;
        let digest = fingerprint::locked(&digest, idempotency_key);
        let scope = fingerprint::scope(caller, task.operation(), idempotency_key);
        self.keyed.enter(caller.key(), scope, digest, request_id).await
    }

    /// The keyed hash by which a retry of this plain request is recognized after a restart; `None` if no retry is
    /// expected and the hash would need files to be read.
    pub(crate) async fn fingerprint(&self, caller: &Caller, task: &SharedTask, marks_retries: bool) -> Option<Digest> {
        if self.orphans.is_none() || !(marks_retries || fingerprint::is_in_memory(task)) {
            return None;
        }
        match fingerprint::digest(task).await {
            Ok(digest) => Some(self.keyed.vault.keyed_hash(&format!("retry of {}", caller.key()), &digest)),
            Err(error) => {
                tracing::error!(%error, "the files of a request cannot be read, so no retry of it will be known");
                None
            }
        }
    }

    /// Registers a plain job without an idempotency key, and returns the caller's side and the job's side of it. If the
    /// caller's client says that it marks its own retries, the answer is written down while the caller reads it.
    pub(crate) fn expect<M: Recordable>(
        &self,
        caller: &Caller,
        task: impl Into<SharedTask>,
        expected: JobRegistration,
    ) -> (Waiting<M>, Promise<M>) {
        promise::pair(self.orphans.as_ref().map(|orphans| {
            let place = orphans.attend(caller, task.into(), expected);
            Registered { orphans: Arc::clone(orphans), place }
        }))
    }

    /// The answer for a client's own retry that costs nothing, from a job of this process or of an earlier one; `None`
    /// if the retry must run anew.
    ///
    /// # Errors
    ///
    /// Returns an error if the files of the request or the store cannot be read; nothing may be spent then.
    pub(crate) async fn earlier(
        &self,
        caller: &Caller,
        task: &SharedTask,
        fingerprint: Option<Digest>,
    ) -> Result<Option<Follower>, ReplayError> {
        if self.orphans.is_none() {
            return Ok(None);
        }
        let until = Instant::now() + RUNNING_PATIENCE;
        loop {
            let adopted = self.adopt(caller, task.clone()).await;
            let Some(fingerprint) = fingerprint.filter(|_| adopted.is_none()) else { return Ok(adopted) };
            if let Some(kept) = self.keyed.find_orphan(&fingerprint).await? {
                return Ok(Some(kept));
            }
            let since = Timestamp::now() - (self.orphan_window + LONGEST_JOB);
            match self.keyed.earlier(&fingerprint, since).await? {
                EarlierTry::Nothing => return Ok(None),
                // The record may be about to be closed.
                EarlierTry::Running if Instant::now() < until => tokio::time::sleep(RUNNING_PAUSE).await,
                EarlierTry::Running | EarlierTry::Unknown => return Ok(Some(Orphans::unknown())),
            }
        }
    }

    /// The answer of a job of this process whose caller was told to come back, for the next request that is the same.
    pub(crate) async fn in_progress(&self, caller: &Caller, task: &SharedTask) -> Option<Follower> {
        adopt::in_progress(self.orphans.as_ref()?, caller, task).await
    }

    /// The same for jobs of this process only.
    pub(crate) async fn adopt(&self, caller: &Caller, task: impl Into<SharedTask>) -> Option<Follower> {
        adopt::adopt(self.orphans.as_ref()?, caller, &task.into()).await
    }

    /// Remembers an end that no [`Promise`] has seen: that of a stream, or of a body that broke off. Ends that cost
    /// nothing are not remembered.
    pub(crate) async fn remember(&self, caller: &Caller, task: impl Into<SharedTask>, error: &Error) {
        if let Some(orphans) = &self.orphans
            && head::is_final(error)
        {
            orphans.remember(caller, task.into(), error).await;
        }
    }

    /// Waits until every claim is settled or given back, and every answer that must be kept is written down. The caller
    /// bounds the wait.
    pub(crate) async fn drain(&self) {
        self.pending.finished().await;
    }
}

async fn sweep(keyed: Weak<Keyed>, orphans: Option<Weak<Orphans>>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(keyed) = keyed.upgrade() else { return };
        if let Some(orphans) = orphans.as_ref().and_then(Weak::upgrade) {
            orphans.sweep();
        }
        if let Err(error) = keyed.sweep().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "kept answers were not cleared; trying again in a minute"
            );
        }
    }
}
