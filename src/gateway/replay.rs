//! Replays answers that were already paid for, so that a repeated request is not charged again.
//!
//! The module decides which requests are repeats of each other, which of them runs the job and which only read its
//! answer, which answers are stored, and for how long. It must not know how a job is run, what an image is, or how an
//! answer becomes HTTP.
//!
//! It implements the header `Idempotency-Key`, and the adoption of orphans that the money rules demand. A repeat runs
//! no new job as long as the gateway knows that the first job was charged, or may have been. If the first job ended
//! without cost, a repeat runs a new job.
//!
//! # Requests with an idempotency key
//!
//! [`AnswerReplay::claim_or_follow`] claims the combination of API key, operation and idempotency key in the store. The
//! claim is durable before anything is spent. The request that gets the claim has a [`claim_guard::ClaimGuard`] and
//! runs the job; all others read its answer. The answer is stored once, while it arrives, and every reader, including
//! the first caller, reads it at its own pace. Readers see the end when the answer is durable.
//!
//! | State of the job | A repeat gets |
//! |---|---|
//! | it is running | the same answer, while it arrives |
//! | it ended with an answer, a refusal, or a failure that may have been charged | the same, also after a restart |
//! | it ended without cost | a job of its own |
//! | its process died; its answer broke off, had no disk space, or was evicted | [`ClaimOutcome::AnswerLost`] |
//! | any, but the request with this key was a different one | [`ClaimOutcome::Conflict`] |
//!
//! # Requests without an idempotency key
//!
//! The official SDKs mark their own retries, and their first request already shows that they do.
//! [`AnswerReplay::register_job`] registers each plain job under a hash of its request. If the client marks its
//! retries, the answer is stored from the beginning, and its own caller is one of its readers. Otherwise the answer is
//! stored only if the caller leaves before the answer, or if an equal request arrives before it. Codex does not mark
//! the retries of its image tool, but its requests name the turn of the conversation: an equal request in the same turn
//! is a retry. Streams without an idempotency key are not registered: they end when their caller leaves.
//!
//! | State of the job to which a retry belongs | The retry gets ([`AnswerReplay::find_earlier_answer`]) |
//! |---|---|
//! | its caller has left, before or during the answer | the answer, in flight or finished |
//! | its caller still waits | after a second the same answer, in parallel with the caller |
//! | it ended with a refusal or with a failure that may have been charged | the same error |
//! | its answer broke off or was evicted; its process died before the answer was complete | "outcome unknown" |
//! | its caller, or a retry, has all of the answer; it ended without cost | a job of its own |
//!
//! If the answer of a plain request does not begin before the answer deadline, its caller gets [`Error::InProgress`],
//! and the job continues. The next equal request, even if it is not marked as a retry, gets that answer
//! ([`AnswerReplay::find_answer_in_progress`]). If several nodes share a database, this applies to all of them: the
//! repeat is announced in the database before the caller gets the error, and a repeat on another node waits for the
//! answer.
//!
//! Retries are spread over equal jobs: as long as there are no more retries than jobs, no two retries get the same job.
//! The answer of an orphan is stored like an answer with an idempotency key, so it survives a restart. A job that was
//! running when a process died is found by the fingerprint in its record. An answer that was being delivered then is
//! found by the fingerprint in the name of its unfinished file. A fingerprint is a keyed hash of the request.
//!
//! # Storage
//!
//! Each answer is a file of frames, encrypted with a key of its own. The key of a finished answer is stored in its
//! database row, encrypted with the master key, so a file reveals nothing without the database and the master key. The
//! name of a file contains the id of its API key, so a start reads the folder and no rows. Answers with and without an
//! idempotency key each have a limit on their disk space. Beyond it, the oldest answer of the API key with the most
//! bytes is evicted. The same happens if an answer would take the free space that is reserved for the database and for
//! uploads. If the disk is full, the bytes of an answer are still passed on to its present readers, at the pace of the
//! slowest, but later repeats cannot get them.
//!
//! Tools of agents and pages show an image from the stored answer. For such a request, disk space is reserved before
//! anything is spent ([`AnswerReplay::reserve_space`]); without space it is refused. If its answer cannot be written
//! nevertheless, it is kept in memory for some minutes. Links reserve space in the same way, but without it the caller
//! gets the images in place of the links.
//!
//! If several nodes share a database, the bytes of finished answers are also there, encrypted in the same way, so that
//! every node can send them.
//!
//! # Use by the request flow
//!
//! ```text
//! // With an idempotency key:
//! let reader = match replay.claim_or_follow(&caller, task, key, request_id).await? {
//!     ClaimOutcome::Claimed(claim) => {
//!         let reader = claim.answer_reader();
//!         spawn(async move { claim.record(run(task).await).await });
//!         reader
//!     }
//!     ClaimOutcome::Follow(reader) => reader,
//!     ClaimOutcome::Conflict => return Err(/* 400 */),
//!     ClaimOutcome::AnswerLost => return Err(/* 502, must not be retried */),
//! };
//! let head = reader.head().await?; // and the reader is the body
//!
//! // Without an idempotency key:
//! if may_be_retry && let Some(reader) = replay.find_earlier_answer(&caller, &task, fingerprint).await? {
//!     return /* as above */;
//! }
//! let (receiver, sender) = replay.register_job(&caller, task, registration);
//! spawn(async move { sender.complete(run(task).await).await });
//! receiver.answer(deadline).await // if this future is dropped before it is ready, the job is an orphan
//! ```

mod adoption;
mod answer_channel;
mod answer_folder;
mod answer_head;
mod answer_reader;
mod answer_recorder;
mod answer_sharing;
mod claim_guard;
mod disk_budget;
mod durable_answers;
mod fingerprint;
mod idempotent_answers;
mod one_time_use;
mod orphans;
mod pending_work;
mod sealed_file;
mod stored_answer;
mod unstored_answers;
mod user_requests;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use answer_channel::{AnswerReceiver, AnswerSender, AnswerSource};
pub(crate) use answer_head::{AnswerHead, RecordableAnswer};
pub(crate) use answer_reader::AnswerReader;
pub(crate) use disk_budget::AnswerSpace;
pub(crate) use idempotent_answers::{ClaimOutcome, EarlierAnswer};
pub(crate) use one_time_use::{OneTimeClaim, OneTimeUse};
pub(crate) use orphans::{EarlyClaim, JobRegistration};

use crate::error::Error;
use crate::gateway::admission::Admission;
use crate::gateway::config;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::{Ledger, LedgerError};
use crate::gateway::rules::SharedTask;
use crate::gateway::spool::FreeSpace;
use crate::gateway::store::{NodeId, ReplayStore, RequestId, StoreError, Timestamp, Vault};
use answer_channel::RetryableJobHandle;
use answer_folder::{AnswerFolder, RetentionWindows};
use durable_answers::{EarlierRequest, OrphanAnswer};
use fingerprint::ReplayDigest;
use idempotent_answers::IdempotentAnswers;
use orphans::RetryableJobs;
use pending_work::PendingWork;

/// The folder of the stored answers, in the data directory.
const FOLDER: &str = "replays";
/// The share of orphans in the disk space for stored answers: one part in this many (our choice).
const ORPHAN_SHARE_DIVISOR: u64 = 4;
/// The longest time that a job can take.
const LONGEST_JOB: Duration = config::LONGEST_IMAGE_DEADLINE;
/// The time for which a claim without an answer is valid (our choice): longer than a job and the storage of its answer.
const LONGEST_CLAIM: Duration = LONGEST_JOB.saturating_add(Duration::from_secs(60));
/// The longest time that a retry waits for the end of a record in state `running`, or for a claimed answer, of a job that
/// this process does not know, and whose caller did not get [`Error::InProgress`] (our choice).
const RUNNING_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause between two reads of such a record or answer.
const RUNNING_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The stored answers, and the jobs whose answers a retry may get.
pub(crate) struct AnswerReplay {
    pending: PendingWork,
    idempotent_answers: Arc<IdempotentAnswers>,
    /// `None` if the configuration disables the adoption of orphans.
    orphans: Option<Arc<RetryableJobs>>,
    orphan_window: Duration,
}

/// The reason why stored answers cannot be used, or an earlier request cannot be looked up. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The store has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A claim could not be stored.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The files of the request cannot be read.
    #[error("the files of a request cannot be read")]
    Files(#[source] io::Error),
    /// The folder cannot be used.
    #[error("the folder for stored answers cannot be used")]
    Folder(#[source] io::Error),
    /// The runtime is shutting down.
    #[error("the gateway has stopped")]
    Stopped,
}

impl AnswerReplay {
    /// Takes over the files of an earlier process of this node in the data directory, and starts the periodic
    /// sweeps. `free` is the free space of that directory.
    ///
    /// Must be called within a tokio runtime, by the only process that uses this directory.
    ///
    /// # Errors
    ///
    /// Returns an error if the store or the folder cannot be used.
    #[expect(clippy::too_many_arguments, reason = "each argument is a separate dependency")]
    pub(crate) async fn open(
        settings: &config::ReplayConfig,
        free: FreeSpace,
        store: Arc<dyn ReplayStore>,
        ledger: Ledger,
        vault: Vault,
        node: NodeId,
    ) -> Result<Self, ReplayError> {
        let orphan_bytes = if settings.orphans { settings.max_bytes / ORPHAN_SHARE_DIVISOR } else { 0 };
        let answer_bytes = settings.max_bytes - orphan_bytes;
        let windows = RetentionWindows { answers: settings.idempotency_window, orphans: settings.orphan_window };
        let folder = AnswerFolder::open(free, answer_bytes, windows);
        let folder = folder.map_err(ReplayError::Folder)?;
        let pending = PendingWork::new();
        let idempotent_answers =
            IdempotentAnswers::new(store, ledger, vault, folder, node, settings.idempotency_window);
        let idempotent_answers = idempotent_answers.with_pending_work(pending.clone()).with_sharing(settings.max_bytes);
        let idempotent_answers = Arc::new(idempotent_answers);
        let window = settings.orphan_window;
        let orphans = settings
            .orphans
            .then(|| RetryableJobs::new(window, Arc::clone(&idempotent_answers), orphan_bytes, pending.clone()));
        idempotent_answers.take_over_leftovers().await?;
        let work = sweep(Arc::downgrade(&idempotent_answers), orphans.as_ref().map(Arc::downgrade));
        // The task has weak references only, so it ends after the answers are dropped.
        drop(tokio::runtime::Handle::current().spawn(work));
        Ok(Self { pending, idempotent_answers, orphans, orphan_window: settings.orphan_window })
    }

    /// Reserves disk space for the answer of a job before anything is spent ([`ClaimGuard::use_space`]).
    ///
    /// # Errors
    ///
    /// Returns [`Error::StorageFull`] if the space that no running answer uses is too small, and
    /// [`Error::BudgetExceeded`] if the user or the key of the request holds all that it may hold.
    pub(crate) async fn reserve_space(&self, admission: &Admission, bytes: u64) -> Result<AnswerSpace, Error> {
        self.idempotent_answers.reserve_space(admission.disk(), bytes).await
    }

    /// Decides how a request with an idempotency key continues. Of several concurrent requests, exactly one gets the
    /// claim.
    ///
    /// # Errors
    ///
    /// Returns an error if the decision cannot be made; nothing may be spent then.
    pub(crate) async fn claim_or_follow(
        &self,
        caller: &Caller,
        task: impl Into<SharedTask>,
        idempotency_key: &str,
        request_id: &str,
    ) -> Result<ClaimOutcome, ReplayError> {
        let task = task.into();
        let digest = fingerprint::digest(&task).await.map_err(ReplayError::Files)?;
        let digest = fingerprint::keyed_digest(&digest, idempotency_key);
        let scope = fingerprint::scope(caller, task.operation_id(), idempotency_key);
        self.idempotent_answers.claim_or_follow(caller.key(), scope, digest, request_id).await
    }

    /// Returns the state of the request of this operation that the caller sent with this idempotency key; `None` if there
    /// is none, or if it ended without cost.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn find_request(
        &self,
        caller: &Caller,
        operation: &str,
        idempotency_key: &str,
    ) -> Result<Option<EarlierAnswer>, ReplayError> {
        let scope = fingerprint::scope(caller, operation, idempotency_key);
        self.idempotent_answers.find_answer(&scope).await
    }

    /// Returns the answer of the request with this id, whose claim has this scope. Returns `None` if the answer is not
    /// complete or not kept any more, or if a later request has the same scope.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn find_stored_answer(
        &self,
        scope: &[u8; 32],
        request_id: &RequestId,
    ) -> Result<Option<(AnswerHead, AnswerReader)>, ReplayError> {
        let found = self.idempotent_answers.find_answer(scope).await?;
        Ok(found.filter(|found| found.request_id == *request_id).and_then(|found| found.answer))
    }

    /// Returns the keyed hash by which a retry of this plain request is recognized after a restart, and by other nodes.
    /// `None` if the adoption of orphans is disabled, if the files cannot be read, or if no other node can get a repeat,
    /// the client does not mark retries, and files would have to be read for the hash.
    pub(crate) async fn fingerprint(
        &self,
        caller: &Caller,
        task: &SharedTask,
        marks_retries: bool,
    ) -> Option<ReplayDigest> {
        let is_needed = marks_retries || self.idempotent_answers.sharing.is_some() || fingerprint::is_in_memory(task);
        if self.orphans.is_none() || !is_needed {
            return None;
        }
        match fingerprint::digest(task).await {
            Ok(digest) => {
                Some(self.idempotent_answers.vault.keyed_hash(&format!("retry of {}", caller.key()), &digest))
            }
            Err(error) => {
                tracing::error!(%error, "the files of a request cannot be read, so a retry will not be recognized");
                None
            }
        }
    }

    /// Registers a plain job without an idempotency key, and returns the caller's side and the job's side of it. If the
    /// client marks its retries, the answer is stored while the caller reads it.
    pub(crate) fn register_job<M: RecordableAnswer>(
        &self,
        caller: &Caller,
        task: impl Into<SharedTask>,
        registration: JobRegistration,
    ) -> (AnswerReceiver<M>, AnswerSender<M>) {
        answer_channel::channel(self.orphans.as_ref().map(|orphans| {
            let job_id = orphans.register(caller, task.into(), registration);
            RetryableJobHandle { orphans: Arc::clone(orphans), job_id }
        }))
    }

    /// Returns the answer of the earlier request that a retry repeats, from a job of this process, of an earlier process
    /// or of another node; `None` if the retry must run a job of its own. Waits for an announced repeat
    /// ([`AnswerReplay::find_answer_in_progress`]); the caller limits the wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the files of the request or the store cannot be read; nothing may be spent then.
    pub(crate) async fn find_earlier_answer(
        &self,
        caller: &Caller,
        task: &SharedTask,
        fingerprint: Option<ReplayDigest>,
    ) -> Result<Option<AnswerReader>, ReplayError> {
        if self.orphans.is_none() {
            return Ok(None);
        }
        let deadline = Instant::now() + RUNNING_WAIT_MAX;
        loop {
            let adopted = self.adopt_job(caller, task.clone()).await;
            let Some(fingerprint) = fingerprint.filter(|_| adopted.is_none()) else { return Ok(adopted) };
            if let Some(reader) = self.idempotent_answers.find_announced_answer(&fingerprint).await? {
                return Ok(Some(reader));
            }
            let since = Timestamp::now() - self.retry_window();
            // In this order: an answer is claimed before its record ends, so one of the two is found.
            let earlier = self.idempotent_answers.find_earlier_request(&fingerprint, since).await?;
            match (self.idempotent_answers.find_orphan(&fingerprint).await?, earlier) {
                (OrphanAnswer::Stored(reader), _) => return Ok(Some(reader)),
                (OrphanAnswer::None, EarlierRequest::None) => return Ok(None),
                // The answer may be about to be stored, or the record to be closed.
                (OrphanAnswer::Claimed, _) | (OrphanAnswer::None, EarlierRequest::Running)
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(RUNNING_PAUSE).await;
                }
                (OrphanAnswer::Claimed, _)
                | (OrphanAnswer::None, EarlierRequest::Running | EarlierRequest::Unknown) => {
                    return Ok(Some(RetryableJobs::unknown_outcome()));
                }
            }
        }
    }

    /// Returns, for the next equal request, the answer of a job whose caller got [`Error::InProgress`]. Waits for the
    /// answer of another node; the caller limits the wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read; nothing may be spent then.
    pub(crate) async fn find_answer_in_progress(
        &self,
        caller: &Caller,
        task: &SharedTask,
        fingerprint: Option<ReplayDigest>,
    ) -> Result<Option<AnswerReader>, ReplayError> {
        let Some(orphans) = &self.orphans else { return Ok(None) };
        let found = adoption::find_answer_in_progress(orphans, caller, task).await;
        match fingerprint.filter(|_| found.is_none()) {
            Some(fingerprint) => self.idempotent_answers.find_announced_answer(&fingerprint).await,
            None => Ok(found),
        }
    }

    /// Adopts a job like [`AnswerReplay::find_earlier_answer`], for jobs of this process only.
    pub(crate) async fn adopt_job(&self, caller: &Caller, task: impl Into<SharedTask>) -> Option<AnswerReader> {
        adoption::adopt_job(self.orphans.as_ref()?, caller, &task.into()).await
    }

    /// Returns the time after the begin of a job within which a retry without an idempotency key may get its answer.
    pub(crate) const fn retry_window(&self) -> Duration {
        self.orphan_window.saturating_add(LONGEST_JOB)
    }

    /// Remembers a failure that was not sent through an [`AnswerSender`], such as a body that broke off after its
    /// answer had begun. Failures that cost nothing are not remembered.
    pub(crate) async fn remember(&self, caller: &Caller, task: impl Into<SharedTask>, error: &Error) {
        if let Some(orphans) = &self.orphans
            && answer_head::is_final(error)
        {
            orphans.remember(caller, task.into(), error).await;
        }
    }

    /// The vault that seals the keys of stored answers.
    pub(crate) fn vault(&self) -> &Vault {
        &self.idempotent_answers.vault
    }

    /// Waits until every claim is completed or released, and every answer that must be stored is stored. The caller
    /// limits the wait.
    pub(crate) async fn drain(&self) {
        self.pending.wait_until_none().await;
    }
}

async fn sweep(idempotent_answers: Weak<IdempotentAnswers>, orphans: Option<Weak<RetryableJobs>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(idempotent_answers) = idempotent_answers.upgrade() else { return };
        if let Some(orphans) = orphans.as_ref().and_then(Weak::upgrade) {
            orphans.sweep();
        }
        if let Err(error) = idempotent_answers.sweep().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "expired answers could not be deleted; retrying in a minute"
            );
        }
    }
}
