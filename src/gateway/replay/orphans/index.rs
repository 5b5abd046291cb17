//! The index of the jobs whose answers a retry may get.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use crate::error::{Error, UpstreamFault};
use crate::gateway::replay::answer_head::error_answer;
use crate::gateway::replay::durable_answers::PendingFile;
use crate::gateway::replay::fingerprint::{ReplayDigest, RequestIdentity};
use crate::gateway::replay::sealed_file::SealedFile;
use crate::gateway::replay::stored_answer::StoredAnswer;
use crate::gateway::store::KeyId;

/// The id of a job: the cheap hash of its request, and a number that increases by one with each job.
pub(in super::super) type RetryableJobId = (u64, u64);

#[derive(Default)]
pub(in super::super) struct RetryableJobIndex {
    pub(in super::super) last_number: u64,
    /// The time at which a caller last got [`Error::InProgress`].
    pub(in super::super) last_in_progress: Option<Instant>,
    pub(in super::super) entries: BTreeMap<RetryableJobId, RetryableJobEntry>,
}

pub(in super::super) struct RetryableJobEntry {
    pub(in super::super) key: KeyId,
    pub(in super::super) registration: JobRegistration,
    pub(in super::super) identity: Arc<RequestIdentity>,
    pub(in super::super) answer: Arc<StoredAnswer>,
    /// The number of requests that wait for the answer or read it: the caller of the job, and retries.
    pub(in super::super) reader_count: usize,
    /// The number of retries among these requests.
    pub(in super::super) retry_count: usize,
    /// The number of retries that will read this answer unless another job of the same request becomes an orphan first.
    pub(in super::super) hold_count: usize,
    /// True if a reader has left without the complete answer, and no retry has read all of it since.
    pub(in super::super) needs_retry_read: bool,
    /// True if the caller got [`Error::InProgress`], so that a repeat of the request is expected.
    pub(in super::super) repeat_expected: bool,
    pub(in super::super) mode: DeliveryMode,
    /// The name and key of the answer's file, until the answer is made durable.
    pub(in super::super) pending_file: Option<PendingFile>,
    /// The name of the file of an answer that is durable, or that may be although the store reported an error.
    pub(in super::super) stored_file: Option<String>,
    /// The emptied file of a lost answer. After a kill, its name shows the loss.
    pub(in super::super) loss_marker: Option<Arc<SealedFile>>,
    /// The time at which the job ended. A running job does not expire: its own deadlines limit it.
    pub(in super::super) ended_at: Option<Instant>,
}

/// The properties of a job that are known when it is registered.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobRegistration {
    /// The id of the request.
    pub(crate) request_id: String,
    /// True if the client marks its retries, as the official SDKs do.
    pub(crate) marks_retries: bool,
    /// The keyed hash by which a retry of this request is recognized after a restart, if there is one.
    pub(crate) fingerprint: Option<ReplayDigest>,
}

/// The resources of a removed answer. Its reserved disk space is released when this value is dropped; its files must be
/// removed or emptied by the code that gets this value.
pub(in super::super) struct RemovedAnswer {
    pub(in super::super) _answer: Arc<StoredAnswer>,
    /// The name of the file to remove.
    pub(in super::super) stored_file: Option<String>,
    pub(in super::super) registration: JobRegistration,
    /// The file to empty, so that its name shows the loss of the answer after a kill.
    pub(in super::super) loss_marker: Option<Arc<SealedFile>>,
}

/// The way in which the answer of a job is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum DeliveryMode {
    /// So far, only the caller of the job waits for the answer.
    CallerOnly,
    /// The caller of the job gets the answer directly. Other requests can have it only if the caller leaves first.
    Direct,
    /// The answer is stored for all requests that want it.
    Stored,
    /// Every retry gets the same error: that of the job, or "outcome unknown" if the answer was lost.
    Remembered,
}

/// The state in which a retry finds a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum RetryableJobState {
    /// A caller waits for the answer, or a reader reads it.
    Attended,
    /// No request waits for the answer or reads it, but a retry may still get it.
    Orphan,
    /// Every retry gets the same error: that of the job, or "outcome unknown" if the answer was lost.
    Remembered,
}

/// A job to which a retry may belong.
pub(in super::super) struct RetryCandidate {
    pub(in super::super) job_id: RetryableJobId,
    pub(in super::super) identity: Arc<RequestIdentity>,
    pub(in super::super) state: RetryableJobState,
    /// The number of retries that already wait for the answer or read it.
    pub(in super::super) retry_count: usize,
    /// True if the caller got [`Error::InProgress`], so that a repeat of the request is expected.
    pub(in super::super) repeat_expected: bool,
}

// === impl RetryableJobIndex ===

impl RetryableJobIndex {
    /// Takes the answer that must be made durable, if the job is a finished orphan that is not durable yet.
    pub(in super::super) fn take_unstored(
        &mut self,
        job_id: RetryableJobId,
    ) -> Option<(JobRegistration, PendingFile, Arc<StoredAnswer>)> {
        let entry = self.entries.get_mut(&job_id).filter(|entry| entry.is_unstored())?;
        let answer = entry.pending_file.take()?;
        Some((entry.registration.clone(), answer, Arc::clone(&entry.answer)))
    }

    /// Removes the job and returns its entry; `None` if [`RetryableJobEntry::is_wanted`], or if the job does not exist.
    pub(in super::super) fn remove_unwanted(&mut self, job_id: RetryableJobId) -> Option<RetryableJobEntry> {
        self.entries.get(&job_id).filter(|entry| !entry.is_wanted())?;
        self.entries.remove(&job_id)
    }

    /// Records the file of a durable answer, unless the answer was dropped. Returns the mode of the job; `None` if the
    /// job was removed.
    pub(in super::super) fn note_stored(&mut self, job_id: RetryableJobId, file: &str) -> Option<DeliveryMode> {
        let entry = self.entries.get_mut(&job_id)?;
        if entry.mode == DeliveryMode::Stored {
            entry.stored_file = Some(file.to_owned());
        }
        Some(entry.mode)
    }

    /// Returns the oldest finished job in this state (`Orphan` or `Remembered`) of one API key: the key with the most
    /// bytes of such answers, or with the most such errors.
    pub(in super::super) fn eviction_candidate(&self, state: RetryableJobState) -> Option<RetryableJobId> {
        let mut keys: HashMap<&KeyId, (u64, (Instant, RetryableJobId))> = HashMap::new();
        for (job_id, entry) in &self.entries {
            let Some(ended) = entry.ended_at.filter(|_| entry.state() == Some(state)) else { continue };
            let weight = if state == RetryableJobState::Orphan { entry.answer.length() } else { 1 };
            let (sum, oldest) = keys.entry(&entry.key).or_insert((0, (ended, *job_id)));
            *sum += weight;
            if (ended, job_id.1) < (oldest.0, oldest.1.1) {
                *oldest = (ended, *job_id);
            }
        }
        let largest = keys.into_values().max_by_key(|(sum, (ended, job_id))| (*sum, Reverse((*ended, job_id.1))));
        largest.map(|(_, (_, job_id))| job_id)
    }
}

// === impl RetryableJobEntry ===

impl RetryableJobEntry {
    pub(in super::super) fn new(
        key: &KeyId,
        identity: RequestIdentity,
        mode: DeliveryMode,
        answer: Arc<StoredAnswer>,
    ) -> Self {
        let has_ended = mode == DeliveryMode::Remembered;
        Self {
            key: key.clone(),
            registration: JobRegistration::default(),
            identity: Arc::new(identity),
            answer,
            reader_count: usize::from(!has_ended),
            retry_count: 0,
            hold_count: 0,
            needs_retry_read: false,
            repeat_expected: false,
            mode,
            pending_file: None,
            stored_file: None,
            loss_marker: None,
            ended_at: has_ended.then(Instant::now),
        }
    }

    /// Returns the state in which a retry finds the job; `None` if the caller of the job gets the answer directly.
    pub(in super::super) fn state(&self) -> Option<RetryableJobState> {
        match self.mode {
            DeliveryMode::Remembered => Some(RetryableJobState::Remembered),
            DeliveryMode::Direct => None,
            DeliveryMode::CallerOnly | DeliveryMode::Stored if self.reader_count > 0 => {
                Some(RetryableJobState::Attended)
            }
            DeliveryMode::CallerOnly | DeliveryMode::Stored => Some(RetryableJobState::Orphan),
        }
    }

    /// Replaces the answer by the remembered error "outcome unknown", so that no retry is charged again. Returns the
    /// resources of the answer.
    pub(in super::super) fn drop_answer(&mut self) -> RemovedAnswer {
        self.mode = DeliveryMode::Remembered;
        let (answer, stored) = (std::mem::replace(&mut self.answer, unknown_outcome()), self.stored_file.take());
        self.loss_marker = answer.frames().filter(|_| self.registration.fingerprint.is_some());
        RemovedAnswer {
            _answer: answer,
            stored_file: stored,
            registration: self.registration.clone(),
            loss_marker: self.loss_marker.clone(),
        }
    }

    pub(in super::super) fn into_removed(self) -> RemovedAnswer {
        RemovedAnswer {
            _answer: self.answer,
            stored_file: self.stored_file,
            registration: self.registration,
            loss_marker: None,
        }
    }

    /// True unless the job is an orphan that no retry keeps, and whose caller did not get [`Error::InProgress`].
    pub(in super::super) fn is_wanted(&self) -> bool {
        self.hold_count > 0 || self.repeat_expected || self.state() != Some(RetryableJobState::Orphan)
    }

    /// True if the job can be removed: no request reads or keeps its answer, and the answer was delivered.
    pub(in super::super) fn is_over(&self) -> bool {
        self.reader_count == 0
            && self.hold_count == 0
            && !self.needs_retry_read
            && self.mode != DeliveryMode::Remembered
    }

    /// True if the job is a finished orphan whose complete answer can be made durable and is not durable yet.
    pub(in super::super) fn is_unstored(&self) -> bool {
        let is_orphan = self.needs_retry_read && self.state() == Some(RetryableJobState::Orphan);
        is_orphan && self.ended_at.is_some() && self.pending_file.is_some() && !self.answer.has_gap()
    }
}

/// Returns the error "outcome unknown", as the answer of a job whose answer is lost.
pub(in super::super) fn unknown_outcome() -> Arc<StoredAnswer> {
    let (head, body) = error_answer(&Error::Upstream(UpstreamFault::Unknown));
    Arc::new(StoredAnswer::from_bytes(head, body))
}
