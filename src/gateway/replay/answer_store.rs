//! The store of paid answers: their rows, their files, and what memory has of them.
//!
//! The first request with an idempotency key has the [`ClaimGuard`] and runs the job; later requests read its answer.
//! The row in the store is the claim, and is durable before anything is spent. The map in memory has the claims that
//! this process holds or is about to make. If a row of this node is in state `Running` but has no entry in the map, the
//! process that ran the job died, or the answer was not stored: the answer counts as lost, and the job is not run again
//! until the row has expired or is deleted. The same applies to a row of another node whose job has ended, by its record,
//! and whose answer has not been stored since. A row that this process failed to delete counts as deleted.
//!
//! The answers of jobs without an idempotency key have rows too (`jobs`).

mod sweep;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::answer_folder::AnswerFolder;
use super::answer_reader::{AnswerId, AnswerReader, AnswerView};
use super::answer_sharing::AnswerSharing;
use super::claim_guard::ClaimGuard;
use super::disk_budget::{AnswerSpace, reserve_ahead, run_with_timeout};
use super::fingerprint::ReplayDigest;
use super::jobs::JobIndex;
use super::pending_work::{PendingGuard, PendingWork};
use super::stored_answer::StoredAnswer;
use super::unstored_answers::UnstoredAnswers;
use super::{LONGEST_CLAIM, ReplayError};
use crate::error::Error;
use crate::gateway::admission::Admission;
use crate::gateway::config;
use crate::gateway::ledger::{Ledger, LedgerError};
use crate::gateway::spool::FreeSpace;
use crate::gateway::store::{
    JobProgress, JobState, KeyId, NodeId, ReplayClaim, ReplayState, ReplayStore, ReplayWrite, RequestId, StoreError,
    StoredAnswerRow, StoredReplay, Timestamp, Vault,
};

/// The time after the end of a job from which the answer of another node counts as lost (our choice): that node stores it
/// in less time, and the clocks of two nodes differ by some seconds.
const OTHER_NODE_STORAGE_TIME: Duration = Duration::from_secs(30);

/// The paid answers of this node, and those of others that it can read.
pub(crate) struct AnswerStore {
    pub(super) store: Arc<dyn ReplayStore>,
    /// Writes claims, in the same transactions as records.
    pub(super) ledger: Ledger,
    pub(super) vault: Vault,
    pub(super) folder: Arc<AnswerFolder>,
    pub(super) node: NodeId,
    /// The bytes of the answers of all nodes; `None` if no other node can share them.
    pub(super) sharing: Option<AnswerSharing>,
    /// The answers that this process keeps because the disk does not have them.
    pub(super) unstored: Arc<UnstoredAnswers>,
    pub(super) windows: KeepWindows,
    /// True if a retry may get the answer of a plain job.
    pub(super) adopts_jobs: bool,
    live_claims: Mutex<HashMap<ReplayDigest, Arc<LiveClaim>>>,
    /// Rows that the store failed to delete: claims for which nothing was spent, and answers that a retry has read to
    /// the end. The next sweep tries again.
    unreleased_claims: Mutex<Vec<AnswerId>>,
    /// The plain jobs of this process.
    pub(super) jobs: Mutex<JobIndex>,
    pub(super) hasher: RandomState,
    /// Notified when the state of a plain job changes, and when one is removed.
    pub(super) changed: watch::Sender<()>,
    pub(super) pending: PendingWork,
}

/// The times for which an answer is kept, by reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepWindows {
    /// For repeats with the same idempotency key.
    pub(super) replay: Duration,
    /// For a retry without an idempotency key.
    pub(super) retry: Duration,
}

/// A claim of this process.
pub(super) struct LiveClaim {
    /// The API key that holds the claim.
    pub(super) owner: KeyId,
    /// The request that registered the claim.
    request_id: RequestId,
    /// The digest of the request, to detect another request with the same idempotency key.
    request_digest: ReplayDigest,
    registered_at: Instant,
    pub(super) answer: Arc<StoredAnswer>,
    phase: watch::Sender<ClaimPhase>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimPhase {
    /// The store has not decided yet whether this process gets the claim.
    Querying,
    /// This process has the claim, and the request that runs the job has its guard.
    Held,
    /// This process did not get the claim, or the claim was completed, released or given up.
    Ended,
}

/// The way in which a request with an idempotency key continues.
pub(crate) enum ClaimOutcome {
    /// The request is the first: run the job.
    Claimed(Box<ClaimGuard>),
    /// The answer is complete or in progress.
    Answer(AnswerReader),
    /// The idempotency key was used for a different request.
    Conflict,
    /// The job was started, or may have been, and this request cannot get its answer. The gateway must not run the job
    /// again, because it could be charged twice.
    AnswerUnavailable,
}

/// The claim of an idempotency key in this process: registered by this request, or by an earlier one.
enum ClaimLookup {
    Registered(Arc<LiveClaim>),
    Existing(Arc<LiveClaim>),
}

/// A claim outcome that is sent to its request. If the request no longer waits, the value is dropped, which releases
/// the claim, because nothing was spent for it.
pub(super) struct ClaimHandover(Option<ClaimOutcome>);

// === impl AnswerStore ===

impl AnswerStore {
    /// Takes over the files of an earlier process of this node in the data directory, and starts the periodic sweeps.
    /// `free` is the free space of that directory.
    ///
    /// Must be called within a tokio runtime, by the only process that uses this directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be used.
    #[expect(clippy::too_many_arguments, reason = "each argument is a separate dependency")]
    pub(crate) async fn open(
        settings: &config::ReplayConfig,
        free: FreeSpace,
        store: Arc<dyn ReplayStore>,
        ledger: Ledger,
        vault: Vault,
        node: NodeId,
    ) -> Result<Arc<Self>, ReplayError> {
        let windows = KeepWindows { replay: settings.idempotency_window, retry: settings.orphan_window };
        let folder = AnswerFolder::open(free, settings.max_bytes).map_err(ReplayError::Folder)?;
        // All nodes together share about as many bytes as each has on its disk.
        let sharing = AnswerSharing::start(Arc::clone(&store), Arc::clone(&folder), settings.max_bytes);
        let leftovers = Arc::clone(&folder);
        let result = tokio::task::spawn_blocking(move || leftovers.take_over_leftovers(Timestamp::now(), windows));
        result.await.map_err(|_| ReplayError::Stopped)?.map_err(ReplayError::Folder)?;
        let answers = Arc::new(Self {
            store,
            ledger,
            vault,
            folder,
            node,
            sharing,
            unstored: UnstoredAnswers::new(),
            windows,
            adopts_jobs: settings.orphans,
            live_claims: Mutex::default(),
            unreleased_claims: Mutex::default(),
            jobs: Mutex::default(),
            hasher: RandomState::new(),
            changed: watch::Sender::new(()),
            pending: PendingWork::new(),
        });
        // The task has a weak reference only, so it ends after the answers are dropped.
        drop(tokio::runtime::Handle::current().spawn(sweep::run(Arc::downgrade(&answers))));
        Ok(answers)
    }

    /// Counts work that must end before the store is closed.
    pub(super) fn begin_work(&self) -> PendingGuard {
        self.pending.begin()
    }

    /// Lets later requests find an answer that is not stored in memory, if it must be kept; otherwise none can get it.
    pub(super) fn keep_unstored(&self, request_id: RequestId, answer: &Arc<StoredAnswer>, must_be_kept: bool) {
        if !must_be_kept {
            answer.mark_unstored();
        } else if !answer.has_gap() {
            self.unstored.keep(request_id, Arc::clone(answer));
        }
    }

    /// Reserves disk space for the answer of a job before anything is spent.
    ///
    /// # Errors
    ///
    /// Returns [`Error::StorageFull`] if the space that no running answer uses is too small, and
    /// [`Error::BudgetExceeded`] if the user or the key of the request holds all that it may hold.
    pub(crate) async fn reserve_space(&self, admission: &Admission, bytes: u64) -> Result<AnswerSpace, Error> {
        let mut share = admission.disk();
        share.try_set_bytes(bytes)?;
        let storage = Arc::clone(&self.folder);
        let reserved = run_with_timeout(&self.folder.free, move || reserve_ahead(&*storage, bytes, share)).await;
        reserved.map_err(|error| {
            tracing::warn!(%error, bytes, "an answer that is not made yet has no space");
            Error::StorageFull
        })
    }

    /// Claims the idempotency key of `scope` for this request, or reads the existing claim. Waits while an earlier
    /// request makes its claim.
    pub(super) async fn claim_scope(
        self: &Arc<Self>,
        owner: &KeyId,
        scope: ReplayDigest,
        digest: ReplayDigest,
        request_id: &str,
    ) -> Result<ClaimOutcome, ReplayError> {
        loop {
            let live = match self.find_or_register(owner, scope, digest, request_id) {
                ClaimLookup::Existing(live) => live,
                ClaimLookup::Registered(live) => return self.claim_in_store(live, scope, request_id).await,
            };
            let mut phase = live.phase.subscribe();
            // `live` owns the sender, so the wait cannot fail.
            let is_held = phase
                .wait_for(|phase| *phase != ClaimPhase::Querying)
                .await
                .is_ok_and(|phase| *phase == ClaimPhase::Held);
            match is_held {
                true if live.request_digest == digest && live.answer.has_gap() => {
                    return Ok(ClaimOutcome::AnswerUnavailable);
                }
                true if live.request_digest == digest => {
                    let reader = AnswerReader::new(&live.answer)
                        .with_id(AnswerId { scope, request_id: live.request_id.clone() });
                    return Ok(ClaimOutcome::Answer(reader));
                }
                true => return Ok(ClaimOutcome::Conflict),
                // The claim has ended in the meantime: the next pass looks it up again.
                false => {}
            }
        }
    }

    /// Returns the claim that this process has for `scope`, or registers a new one if there is none.
    fn find_or_register(
        &self,
        owner: &KeyId,
        scope: ReplayDigest,
        digest: ReplayDigest,
        request_id: &str,
    ) -> ClaimLookup {
        match self.live_claims().entry(scope) {
            Entry::Occupied(live) => ClaimLookup::Existing(Arc::clone(live.get())),
            Entry::Vacant(vacant) => {
                let (answer, phase) = (Arc::default(), watch::Sender::new(ClaimPhase::Querying));
                let live = LiveClaim {
                    owner: owner.clone(),
                    request_id: request_id.into(),
                    request_digest: digest,
                    registered_at: Instant::now(),
                    answer,
                    phase,
                };
                ClaimLookup::Registered(Arc::clone(vacant.insert(Arc::new(live))))
            }
        }
    }

    /// Makes the claim in the store, in a task of its own, so that the claim is released if the caller leaves during
    /// the write.
    async fn claim_in_store(
        self: &Arc<Self>,
        live: Arc<LiveClaim>,
        scope: ReplayDigest,
        request_id: &str,
    ) -> Result<ClaimOutcome, ReplayError> {
        // While the job runs, nobody may claim the scope again.
        let expires_at = Timestamp::now() + self.windows.replay.max(LONGEST_CLAIM);
        let row = ReplayClaim::new(scope, live.request_digest, request_id.into(), self.node.clone(), expires_at);
        let guard = ClaimGuard::new(Arc::clone(self), live, row);
        let (reply, receiver) = oneshot::channel();
        tokio::runtime::Handle::current().spawn(guard.acquire(reply));
        let mut handover = receiver.await.map_err(|_| ReplayError::Stopped)??;
        let outcome = handover.0.take().ok_or(ReplayError::Stopped)?;
        if let ClaimOutcome::Claimed(guard) = &outcome {
            guard.mark_held();
        }
        Ok(outcome)
    }

    /// Removes the claim from memory. After that, requests find its state in the store.
    pub(super) fn end_live_claim(&self, scope: &ReplayDigest, live: &Arc<LiveClaim>) {
        {
            let mut map = self.live_claims();
            if map.get(scope).is_some_and(|registered| Arc::ptr_eq(registered, live)) {
                map.remove(scope);
            }
        }
        live.phase.send_replace(ClaimPhase::Ended);
    }

    pub(super) fn live_claims(&self) -> MutexGuard<'_, HashMap<ReplayDigest, Arc<LiveClaim>>> {
        self.live_claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the outcome for a claim that is already in the store; `None` if the claim belongs to another node, which
    /// may still store the answer, or if the claim could not be deleted before and now is.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read, or if the claim still cannot be deleted.
    pub(super) async fn outcome_of_stored_claim(
        &self,
        stored_claim: &StoredReplay,
        digest: &ReplayDigest,
    ) -> Result<Option<ClaimOutcome>, ReplayError> {
        let claim = &stored_claim.claim;
        if claim.digest != *digest {
            return Ok(Some(ClaimOutcome::Conflict));
        }
        Ok(match &stored_claim.state {
            ReplayState::Stored(row) => Some(self.reopen(claim, row).await),
            ReplayState::Running => match self.unstored.find(claim) {
                Some(answer) => Some(follow(&answer, claim)),
                None if self.is_unreleased(claim) => {
                    self.write_release(&claim.into()).await?;
                    None
                }
                None => self.is_answer_lost(claim).await?.then_some(ClaimOutcome::AnswerUnavailable),
            },
        })
    }

    /// True if the answer of a claim in state `Running`, which this process does not hold, will not be stored any more.
    async fn is_answer_lost(&self, claim: &ReplayClaim) -> Result<bool, StoreError> {
        if claim.node == self.node {
            return Ok(true);
        }
        let ended_at = match self.store.job_progress(&claim.request_id).await? {
            Some(JobProgress { state: JobState::Running, .. }) => return Ok(false),
            Some(JobProgress { ended_at: None, .. }) => return Ok(true),
            Some(JobProgress { ended_at: Some(ended_at), .. }) => ended_at,
            // The record is opened just after the claim.
            None => claim.created_at,
        };
        Ok(Timestamp::now() >= ended_at + OTHER_NODE_STORAGE_TIME)
    }

    /// Returns the request whose claim has this scope, and its answer.
    pub(super) async fn find_answer(&self, scope: &ReplayDigest) -> Result<Option<AnswerView>, ReplayError> {
        let Some(StoredReplay { claim, state }) = self.store.find_replay(scope).await? else { return Ok(None) };
        if state == ReplayState::Running && self.is_unreleased(&claim) {
            return Ok(None);
        }
        let stored = match &state {
            ReplayState::Stored(row) => self.load_answer(&claim, row).await.map(Arc::new),
            ReplayState::Running => self.unstored.find(&claim),
        };
        let mut answer = None;
        if let Some(stored) = stored {
            let reader = AnswerReader::new(&stored);
            answer = reader.head().await.ok().map(|head| (head, reader));
        }
        let is_held = self.live_claims().contains_key(&claim.scope);
        let is_running = match state {
            ReplayState::Stored(_) => false,
            ReplayState::Running if claim.node == self.node => is_held,
            ReplayState::Running => !self.is_answer_lost(&claim).await?,
        };
        Ok(Some(AnswerView { id: (&claim).into(), expires_at: claim.expires_at, is_running, answer }))
    }

    async fn reopen(&self, claim: &ReplayClaim, row: &StoredAnswerRow) -> ClaimOutcome {
        let answer = self.load_answer(claim, row).await;
        answer.map_or(ClaimOutcome::AnswerUnavailable, |answer| follow(&Arc::new(answer), claim))
    }

    /// Deletes the row of a claim. Returns true if that succeeds; otherwise the next sweep tries again.
    pub(super) async fn release_claim(&self, id: &AnswerId) -> bool {
        let result = self.write_release(id).await;
        if let Err(error) = &result {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "a claim could not be deleted from the store; the next sweep will try again"
            );
            self.unreleased_claims().push(id.clone());
        }
        result.is_ok()
    }

    /// True if the row of this claim counts as deleted: only the store failed to delete it.
    fn is_unreleased(&self, claim: &ReplayClaim) -> bool {
        self.unreleased_claims().contains(&claim.into())
    }

    async fn write_release(&self, id: &AnswerId) -> Result<(), LedgerError> {
        let AnswerId { scope, request_id } = id.clone();
        self.ledger.write_replay(ReplayWrite::Remove { scope, request_id }).await.map(drop)
    }

    fn unreleased_claims(&self) -> MutexGuard<'_, Vec<AnswerId>> {
        self.unreleased_claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn follow(answer: &Arc<StoredAnswer>, claim: &ReplayClaim) -> ClaimOutcome {
    ClaimOutcome::Answer(AnswerReader::new(answer).with_id(claim.into()))
}

/// Returns the context in which the key of a file is sealed: the scope and the length of the answer. It binds the key
/// to its row.
pub(super) fn sealing_context(scope: &ReplayDigest, size: u64) -> String {
    format!("replay {} {size}", hex::encode(scope))
}

// === impl LiveClaim ===

impl LiveClaim {
    /// Records that this process has the claim, and that the request has received its guard.
    pub(super) fn mark_held(&self) {
        self.phase.send_replace(ClaimPhase::Held);
    }
}

// === impl ClaimHandover ===

impl ClaimHandover {
    pub(super) const fn new(outcome: ClaimOutcome) -> Self {
        Self(Some(outcome))
    }
}

impl Drop for ClaimHandover {
    fn drop(&mut self) {
        if let Some(ClaimOutcome::Claimed(guard)) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            drop(runtime.spawn(guard.release()));
        }
    }
}
