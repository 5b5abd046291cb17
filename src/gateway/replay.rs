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
//! [`AnswerStore::claim_or_follow`] claims the combination of API key, operation and idempotency key in the store. The
//! claim is durable before anything is spent. The request that gets the claim has a [`claim_guard::ClaimGuard`] and
//! runs the job; all others read its answer. The answer is stored once, while it arrives, and every reader, including
//! the first caller, reads it at its own pace. Readers see the end when the answer is durable.
//!
//! | State of the job | A repeat gets |
//! |---|---|
//! | it is running | the same answer, while it arrives |
//! | it ended with an answer, a refusal, or a failure that may have been charged | the same, also after a restart |
//! | it ended without cost | a job of its own |
//! | its process died; its answer broke off, had no disk space, or was evicted | [`ClaimOutcome::AnswerUnavailable`] |
//! | any, but the request with this key was a different one | [`ClaimOutcome::Conflict`] |
//!
//! # Requests without an idempotency key
//!
//! The official SDKs mark their own retries, and their first request already shows that they do.
//! [`AnswerStore::register_job`] registers each plain job under a hash of its request. If the client marks its
//! retries, the answer is stored from the beginning, and its own caller is one of its readers. Otherwise the answer is
//! stored only if the caller leaves before the answer, or if an equal request arrives before it. Codex does not mark
//! the retries of its image tool, but its requests name the turn of the conversation: an equal request in the same turn
//! is a retry. Streams without an idempotency key are not registered: they end when their caller leaves.
//!
//! | State of the job to which a retry belongs | The retry gets ([`AnswerStore::find_earlier_answer`]) |
//! |---|---|
//! | its caller has left, before or during the answer | the answer, in flight or finished |
//! | its caller still waits | after a second the same answer, in parallel with the caller |
//! | it ended with a refusal or with a failure that may have been charged | the same error |
//! | its answer broke off or was evicted; its process died before the answer was complete, or before the caller had all of it | "outcome unknown" |
//! | its caller, or a retry, has all of the answer; it ended without cost | a job of its own |
//!
//! If the answer of a plain request does not begin before the answer deadline, its caller gets
//! [`Error::InProgress`](crate::error::Error::InProgress), and the job continues. The next equal request, even if it is
//! not marked as a retry, gets that answer ([`AnswerStore::find_answer_in_progress`]). If several nodes share a database,
//! this applies to all of them: the row of the answer is claimed before the caller gets the error, and a repeat on
//! another node waits for the answer.
//!
//! Retries are spread over equal jobs: as long as there are no more retries than jobs, no two retries get the same job.
//! A job that was running when a process died is found by the fingerprint in its record. An answer that was being
//! delivered then is found by the fingerprint in the name of its unfinished file. A fingerprint is a keyed hash of the
//! request.
//!
//! # Storage
//!
//! There is one store of answers, [`AnswerStore`]. Each answer has an id, a file of frames and a row. Memory
//! has only what runs, what is being read, remembered errors, and what cannot be stored. The row names the request that
//! made the answer; the record of that request has its owner, its state, and the facts of its images. An answer is kept
//! until the last reason to keep it ends:
//!
//! | Reason | Answers | End |
//! |---|---|---|
//! | `replay` | of requests with an idempotency key | `idempotency_window` |
//! | `run` | of requests of pages and tools, which show their images from the stored answer | a day |
//! | `retry` | of plain jobs whose caller left | `orphan_window`, or when a retry has read all of it |
//! | `link` | of requests whose caller gets links | an hour |
//!
//! An answer never depends on its storage: its present readers get it even if it cannot be stored, and only later
//! requests cannot. A plain job whose caller has received its answer has no row.
//!
//! A file is encrypted with a key of its own. The key of a finished answer is stored in its row, encrypted with the master
//! key, so a file reveals nothing without the database and the master key. The name of a file contains the id of its API
//! key, so a start reads the folder and no rows. All files share one limit on their disk space. Beyond it, the oldest
//! answer of the API key with the most bytes is evicted. The same happens if an answer would take the free space that is
//! reserved for the database and for uploads. If the disk is full, the bytes of an answer are still passed on to its
//! present readers, at the pace of the slowest, but later repeats cannot get them.
//!
//! Tools of agents and pages show an image from the stored answer. For such a request, disk space is reserved before
//! anything is spent ([`AnswerStore::reserve_space`]); without space it is refused. If its answer cannot be written
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
//!     ClaimOutcome::Answer(reader) => reader,
//!     ClaimOutcome::Conflict => return Err(/* 400 */),
//!     ClaimOutcome::AnswerUnavailable => return Err(/* 502, must not be retried */),
//! };
//! let head = reader.head().await?; // and the reader is the body
//!
//! // Without an idempotency key:
//! if may_be_retry && let Some(reader) = replay.find_earlier_answer(&caller, &task, &registration).await? {
//!     return /* as above */;
//! }
//! let (receiver, sender) = replay.register_job(&caller, task, registration);
//! spawn(async move { sender.complete(run(task).await).await });
//! receiver.answer(deadline).await // if this future is dropped before it is ready, the job is an orphan
//! ```

mod answer_channel;
mod answer_folder;
mod answer_head;
mod answer_reader;
mod answer_recorder;
mod answer_sharing;
mod answer_store;
mod claim_guard;
mod disk_budget;
mod durable_answers;
mod fingerprint;
mod jobs;
mod lookup;
mod one_time_use;
mod pending_work;
mod sealed_file;
mod stored_answer;
mod unstored_answers;
mod user_requests;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use answer_channel::{AnswerReceiver, AnswerSender, AnswerSource};
pub(crate) use answer_head::{AnswerHead, RecordableAnswer};
pub(crate) use answer_reader::{AnswerId, AnswerReader, AnswerView};
pub(crate) use answer_store::{AnswerStore, ClaimOutcome};
pub(crate) use disk_budget::AnswerSpace;
pub(crate) use jobs::{EarlyClaim, JobRegistration};
pub(crate) use one_time_use::{OneTimeClaim, OneTimeUse};

use crate::gateway::config;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::LedgerError;
use crate::gateway::rules::SharedTask;
use crate::gateway::store::{StoreError, Vault};
use answer_channel::JobHandle;

/// The folder of the stored answers, in the data directory.
const FOLDER: &str = "replays";
/// The longest time that a job can take.
const LONGEST_JOB: Duration = config::LONGEST_IMAGE_DEADLINE;
/// The time for which the answer of a request of a page or tool is kept (our choice): a reload of the page, a new sign-in
/// or another browser finds its images.
pub(crate) const RUN_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which a claim without an answer is valid (our choice): longer than a job and the storage of its answer.
const LONGEST_CLAIM: Duration = LONGEST_JOB.saturating_add(Duration::from_secs(60));

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

impl AnswerStore {
    /// Decides how a request with an idempotency key continues. Of several concurrent requests, exactly one gets the
    /// claim.
    ///
    /// # Errors
    ///
    /// Returns an error if the decision cannot be made; nothing may be spent then.
    pub(crate) async fn claim_or_follow(
        self: &Arc<Self>,
        caller: &Caller,
        task: impl Into<SharedTask>,
        idempotency_key: &str,
        request_id: &str,
    ) -> Result<ClaimOutcome, ReplayError> {
        let task = task.into();
        let digest = fingerprint::digest(&task).await.map_err(ReplayError::Files)?;
        let digest = fingerprint::keyed_digest(&digest, idempotency_key);
        let scope = fingerprint::scope(caller, task.operation_id(), idempotency_key);
        self.claim_scope(caller.key(), scope, digest, request_id).await
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
    ) -> Result<Option<AnswerView>, ReplayError> {
        let scope = fingerprint::scope(caller, operation, idempotency_key);
        self.find_answer(&scope).await
    }

    /// Returns the answer with this id; `None` if it is not kept any more, or if it was lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn find_stored_answer(&self, id: &AnswerId) -> Result<Option<AnswerView>, ReplayError> {
        let found = self.find_answer(&id.scope).await?;
        Ok(found.filter(|found| found.id == *id))
    }

    /// Adds the hash by which a retry of this plain request is recognized after a restart, and by other nodes. It is left out
    /// if the adoption of orphans is disabled, or if the files cannot be read. It is also left out if files would have to be
    /// read for a retry that is improbable: the client does not mark its retries, and no other node can get one.
    pub(crate) async fn with_fingerprint(
        &self,
        caller: &Caller,
        task: &SharedTask,
        registration: JobRegistration,
    ) -> JobRegistration {
        let is_needed = registration.announces_retries || self.sharing.is_some() || fingerprint::is_in_memory(task);
        if !self.adopts_jobs || !is_needed {
            return registration;
        }
        let digest = fingerprint::digest(task).await.inspect_err(|error| {
            tracing::error!(%error, "the files of a request cannot be read, so a retry will not be recognized");
        });
        let is_linked = registration.link_window.is_some();
        let fingerprint = digest.ok().map(|digest| self.job_fingerprint(caller.key(), &digest, is_linked));
        JobRegistration { fingerprint, ..registration }
    }

    /// Registers a plain job without an idempotency key, and returns the caller's side and the job's side of it. If the
    /// client marks its retries or gets links, the answer is stored while the caller reads it.
    pub(crate) fn register_job<M: RecordableAnswer>(
        self: &Arc<Self>,
        caller: &Caller,
        task: impl Into<SharedTask>,
        registration: JobRegistration,
    ) -> (AnswerReceiver<M>, AnswerSender<M>) {
        let is_needed = self.adopts_jobs || registration.link_window.is_some();
        answer_channel::channel(is_needed.then(|| {
            let job_id = self.register(caller, task.into(), registration);
            JobHandle { answers: Arc::clone(self), job_id }
        }))
    }

    /// Returns the time after the start of a job within which a retry without an idempotency key may get its answer.
    pub(crate) fn retry_window(&self) -> Duration {
        self.windows.retry.saturating_add(LONGEST_JOB)
    }

    /// The vault that seals the keys of stored answers.
    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    /// Waits until every claim is completed or released, and every answer that must be stored is stored. The caller
    /// limits the wait.
    pub(crate) async fn drain(&self) {
        self.pending.wait_until_none().await;
    }
}
