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
//! The official SDKs mark their own retries. [`Replay::expect`] registers each plain job under what it asks for. Where
//! the caller leaves before the answer, the job is an orphan, and what it makes is written down; [`Replay::adopt`] gives
//! it to one retry, in flight or finished. Refusals and ends that may have been paid for are given to every such retry.
//! Codex does not mark the retries of its image tool, but names the turn of its conversation: the same call in the same
//! turn is asked for here first, and runs anew where nothing was left behind.
//! This is memory of one process: after a restart a retry runs anew. A caller who leaves within the body, when the head
//! was out, leaves no orphan.
//!
//! # What lies where
//!
//! Answers are files in frames that are sealed with a key for each file; that of a finished answer lies sealed in its
//! row, so a file says nothing without the database and the master key. The files of orphans have no name. Both have
//! bounds, and the oldest goes first. The disk is never in the way: an answer that it does not take goes from hand to
//! hand to those who follow already, at the pace of the slowest, and is lost to later repeats.
//!
//! # How the corridor uses it
//!
//! ```text
//! let follower = match replay.enter(&caller, &job, key, request_id).await? {
//!     Entrance::Fresh(ticket) => {
//!         let follower = ticket.follow();
//!         spawn(async move { ticket.record(make(job).await).await });
//!         follower
//!     }
//!     Entrance::Follow(follower) => follower,
//!     Entrance::Conflict => return Err(/* 400 */),
//!     Entrance::Lost => return Err(/* 502, not to be sent again */),
//! };
//! let head = follower.head().await?; // and the follower is the body
//!
//! if retry >= 1 && let Some(follower) = replay.adopt(&caller, &job).await { return /* as above */ }
//! let (waiting, promise) = replay.expect(&caller, &job);
//! spawn(async move { promise.done(make(job).await).await });
//! waiting.answer().await // dropped before it is ready: an orphan
//! ```

mod adopt;
mod fingerprint;
mod follower;
mod frames;
mod head;
mod keyed;
mod orphans;
mod promise;
mod recorder;
mod room;
mod shelf;
mod tape;
mod ticket;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use follower::Follower;
pub(crate) use head::{Head, Recordable};
pub(crate) use keyed::Entrance;
pub(crate) use promise::{Promise, Waiting};

use crate::error::Error;
use crate::gateway::config;
use crate::gateway::keys::Caller;
use crate::gateway::rules::Job;
use crate::gateway::store::{NodeId, Store, StoreError, Vault};
use keyed::Keyed;
use orphans::Orphans;
use promise::Registered;
use shelf::Shelf;

/// Where the files lie, in the data directory.
const FOLDER: &str = "replays";
/// One part in so many of the room is for orphans.
const ORPHAN_SHARE: u64 = 4;
/// Between two clean-ups.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Answers that can be given again.
pub(crate) struct Replay {
    keyed: Arc<Keyed>,
    /// Nothing where the configuration wants none.
    orphans: Option<Arc<Orphans>>,
}

/// Why it could not be found out what a repeat gets. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The store has trouble.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    /// Takes over what an earlier life of this node has left, and clears what is over from now on.
    ///
    /// To be called within a tokio runtime, by the only process that serves from this directory.
    ///
    /// # Errors
    ///
    /// Where the store or the folder cannot be used.
    pub(crate) async fn open(
        settings: &config::Replay,
        data_dir: &Path,
        store: Arc<dyn Store>,
        vault: Vault,
        node: NodeId,
    ) -> Result<Self, ReplayError> {
        let share = if settings.orphans { settings.max_bytes / ORPHAN_SHARE } else { 0 };
        let shelf = Shelf::open(data_dir.join(FOLDER), settings.max_bytes - share).map_err(ReplayError::Folder)?;
        let orphans = settings.orphans.then(|| Orphans::new(settings.orphan_window, shelf.folder().to_owned(), share));
        let keyed = Arc::new(Keyed::new(store, vault, shelf, node, settings.idempotency_window));
        keyed.settle().await?;
        let work = sweep(Arc::downgrade(&keyed), orphans.as_ref().map(Arc::downgrade));
        // It ends with the room.
        drop(tokio::runtime::Handle::current().spawn(work));
        Ok(Self { keyed, orphans })
    }

    /// How a request with an idempotency key goes on. Of several at once, one is fresh.
    ///
    /// # Errors
    ///
    /// Where it cannot be found out; nothing may be spent then.
    pub(crate) async fn enter(
        &self,
        caller: &Caller,
        job: &Arc<Job>,
        idempotency_key: &str,
        request_id: &str,
    ) -> Result<Entrance, ReplayError> {
        let digest = fingerprint::digest(job).await.map_err(ReplayError::Files)?;
        let digest = fingerprint::locked(&digest, idempotency_key);
        let scope = fingerprint::scope(caller, job.operation(), idempotency_key);
        self.keyed.enter(scope, digest, request_id).await
    }

    /// Registers a plain job without an idempotency key: the caller's side of it, and the job's.
    pub(crate) fn expect<M: Recordable>(&self, caller: &Caller, job: &Arc<Job>) -> (Waiting<M>, Promise<M>) {
        promise::pair(
            self.orphans
                .as_ref()
                .map(|orphans| Registered { orphans: Arc::clone(orphans), place: orphans.attend(caller, job) }),
        )
    }

    /// What a retry of a client's own gets without spending; `None` where it runs anew.
    pub(crate) async fn adopt(&self, caller: &Caller, job: &Arc<Job>) -> Option<Follower> {
        adopt::adopt(self.orphans.as_ref()?, caller, job).await
    }

    /// Remembers an end that no [`Promise`] has seen: that of a stream, or of a body that broke off. Ends that cost
    /// nothing are not remembered.
    pub(crate) async fn remember(&self, caller: &Caller, job: &Arc<Job>, error: &Error) {
        if let Some(orphans) = &self.orphans
            && head::is_final(error)
        {
            orphans.remember(caller, job, error).await;
        }
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
