//! The index of the jobs that run, of answers that are being read, and of remembered errors.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, UpstreamFault};
use crate::gateway::replay::answer_head::error_answer;
use crate::gateway::replay::answer_reader::AnswerId;
use crate::gateway::replay::answer_recorder::PendingFile;
use crate::gateway::replay::fingerprint::{ReplayDigest, RequestIdentity, plain_scope};
use crate::gateway::replay::stored_answer::StoredAnswer;
use crate::gateway::store::KeyId;

/// The id of a job: the cheap hash of its request, and a number that increases by one with each job.
pub(in super::super) type JobId = (u64, u64);

#[derive(Default)]
pub(in super::super) struct JobIndex {
    pub(in super::super) last_number: u64,
    /// The time at which a caller last got [`Error::InProgress`].
    pub(in super::super) last_in_progress: Option<Instant>,
    pub(in super::super) entries: BTreeMap<JobId, JobEntry>,
}

pub(in super::super) struct JobEntry {
    pub(in super::super) key: KeyId,
    pub(in super::super) id: AnswerId,
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
    /// The file of the complete answer, until the answer is stored.
    pub(in super::super) file: Option<PendingFile>,
    pub(in super::super) row: JobRow,
    /// The time at which the job ended. A running job does not expire: its own deadlines limit it.
    pub(in super::super) ended_at: Option<Instant>,
}

/// The properties of a job that are known when it is registered.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobRegistration {
    /// The id of the request.
    pub(crate) request_id: String,
    /// True if the client marks its retries, as the official SDKs do.
    pub(crate) announces_retries: bool,
    /// The keyed hash by which a retry of this request is recognized after a restart, if it is known.
    pub(crate) fingerprint: Option<ReplayDigest>,
    /// The time for which links lead to the stored answer; `None` if its caller gets no links.
    pub(crate) link_window: Option<Duration>,
}

/// The way in which the answer of a job is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum DeliveryMode {
    /// So far, only the caller of the job waits for the answer.
    CallerOnly,
    /// The caller of the job gets the answer directly. Other requests can have it only if the caller leaves first.
    Direct,
    /// The answer is written to a file for all requests that want it.
    Stored,
    /// Every retry gets the same error: that of the job, or "outcome unknown" if the answer was lost.
    Remembered,
}

/// The row of a job's answer in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum JobRow {
    /// There is none.
    None,
    /// There may be one, without an answer.
    Claimed,
    /// The answer is being written to it.
    Storing,
    /// It has the answer, in this file.
    Stored(String),
    /// The answer was delivered, and its row is being removed.
    Ending,
}

/// The state in which a retry finds a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum CandidateState {
    /// A caller waits for the answer, or a reader reads it.
    Attended,
    /// No request waits for the answer or reads it, but a retry may still get it.
    Orphan,
    /// Every retry gets the same error: that of the job, or "outcome unknown" if the answer was lost.
    Remembered,
}

/// A job to which a retry may belong.
pub(in super::super) struct RetryCandidate {
    pub(in super::super) job_id: JobId,
    pub(in super::super) identity: Arc<RequestIdentity>,
    pub(in super::super) state: CandidateState,
    /// The number of retries that already wait for the answer or read it.
    pub(in super::super) retry_count: usize,
    /// True if the caller got [`Error::InProgress`], so that a repeat of the request is expected.
    pub(in super::super) repeat_expected: bool,
}

/// The next step of a job whose state has changed. It is taken without the lock of the index.
pub(in super::super) enum JobStep {
    /// The entry is not needed any more. It is dropped.
    Forget(Box<JobEntry>),
    /// The answer must be stored.
    Store(PendingFile),
    /// The answer is lost, or only in memory. It holds its unfinished file, which shows that after a kill, until the row
    /// does.
    Claim(Arc<StoredAnswer>),
    /// The answer was delivered: the reason to keep it for retries ends.
    End(JobRow),
}

// === impl JobIndex ===

impl JobIndex {
    /// True if the answer with this scope runs or is read in this process.
    pub(in super::super) fn has_scope(&self, cheap_hash: u64, scope: &ReplayDigest) -> bool {
        self.entries.range((cheap_hash, 0)..=(cheap_hash, u64::MAX)).any(|(_, entry)| entry.id.scope == *scope)
    }

    pub(in super::super) fn insert(&mut self, cheap_hash: u64, entry: JobEntry) -> JobId {
        self.last_number += 1;
        let job_id = (cheap_hash, self.last_number);
        self.entries.insert(job_id, entry);
        job_id
    }

    /// Returns the next step of the job, if there is one now.
    pub(in super::super) fn settle(&mut self, job_id: JobId) -> Option<JobStep> {
        let entry = self.entries.get_mut(&job_id)?;
        if entry.mode == DeliveryMode::Remembered || matches!(entry.row, JobRow::Storing | JobRow::Ending) {
            return None;
        }
        if entry.is_over() {
            return match std::mem::replace(&mut entry.row, JobRow::Ending) {
                JobRow::None => self.forget(job_id),
                row => Some(JobStep::End(row)),
            };
        }
        let is_unread = entry.reader_count == 0 && entry.mode == DeliveryMode::Stored;
        if is_unread && entry.answer.has_gap() {
            // New readers cannot read all of an answer with a gap.
            entry.mode = DeliveryMode::Remembered;
            return Some(JobStep::Claim(std::mem::replace(&mut entry.answer, unknown_outcome())));
        }
        let is_orphan = is_unread && entry.needs_retry_read;
        let is_stored = is_orphan || entry.registration.link_window.is_some();
        if is_stored && entry.ended_at.is_some() && !entry.answer.has_gap() && entry.file.is_some() {
            entry.row = JobRow::Storing;
            return entry.file.take().map(JobStep::Store);
        }
        if is_orphan && entry.ended_at.is_some() && entry.row == JobRow::None {
            entry.row = JobRow::Claimed;
            return Some(JobStep::Claim(Arc::clone(&entry.answer)));
        }
        let is_in_row = is_orphan && entry.hold_count == 0 && matches!(entry.row, JobRow::Stored(_));
        if is_in_row { self.forget(job_id) } else { None }
    }

    fn forget(&mut self, job_id: JobId) -> Option<JobStep> {
        self.entries.remove(&job_id).map(|entry| JobStep::Forget(Box::new(entry)))
    }

    /// Removes the oldest remembered error of the API key with the most, if there are more than `max`.
    pub(in super::super) fn evict_error(&mut self, max: usize) -> Option<JobEntry> {
        let mut keys: HashMap<&KeyId, (usize, (Instant, JobId))> = HashMap::new();
        let mut total = 0;
        for (job_id, entry) in &self.entries {
            let Some(ended) = entry.ended_at.filter(|_| entry.mode == DeliveryMode::Remembered) else { continue };
            total += 1;
            let (count, oldest) = keys.entry(&entry.key).or_insert((0, (ended, *job_id)));
            *count += 1;
            if (ended, job_id.1) < (oldest.0, oldest.1.1) {
                *oldest = (ended, *job_id);
            }
        }
        let largest = keys.into_values().max_by_key(|(count, (ended, job_id))| (*count, Reverse((*ended, job_id.1))));
        let (_, (_, job_id)) = largest.filter(|_| total > max)?;
        self.entries.remove(&job_id)
    }
}

// === impl JobEntry ===

impl JobEntry {
    /// Makes the entry of a running job, whose caller waits for it.
    pub(in super::super) fn new(key: &KeyId, identity: RequestIdentity, registration: JobRegistration) -> Self {
        let is_shared = registration.announces_retries || registration.link_window.is_some();
        let request_id = registration.request_id.as_str();
        Self {
            key: key.clone(),
            id: AnswerId { scope: plain_scope(request_id), request_id: request_id.into() },
            registration,
            identity: Arc::new(identity),
            answer: Arc::default(),
            reader_count: 1,
            retry_count: 0,
            hold_count: 0,
            needs_retry_read: false,
            repeat_expected: false,
            mode: if is_shared { DeliveryMode::Stored } else { DeliveryMode::CallerOnly },
            file: None,
            row: JobRow::None,
            ended_at: None,
        }
    }

    /// Makes the entry of an ended job that no request reads.
    pub(in super::super) fn ended(self, mode: DeliveryMode, answer: Arc<StoredAnswer>) -> Self {
        let (reader_count, ended_at) = (0, Some(Instant::now()));
        Self { reader_count, needs_retry_read: true, mode, answer, ended_at, ..self }
    }

    /// Returns the state in which a retry finds the job; `None` if no retry may get its answer: the caller gets it
    /// directly, or it was delivered.
    pub(in super::super) fn state(&self) -> Option<CandidateState> {
        match self.mode {
            DeliveryMode::Remembered => Some(CandidateState::Remembered),
            DeliveryMode::Direct => None,
            DeliveryMode::CallerOnly | DeliveryMode::Stored if self.is_over() => None,
            DeliveryMode::CallerOnly | DeliveryMode::Stored if self.reader_count > 0 => Some(CandidateState::Attended),
            DeliveryMode::CallerOnly | DeliveryMode::Stored => Some(CandidateState::Orphan),
        }
    }

    /// True unless the job is an orphan that no retry keeps, and whose caller did not get [`Error::InProgress`].
    pub(in super::super) fn is_wanted(&self) -> bool {
        self.hold_count > 0 || self.repeat_expected || self.state() != Some(CandidateState::Orphan)
    }

    /// True if no request reads or keeps the answer, and it was delivered.
    fn is_over(&self) -> bool {
        self.reader_count == 0 && self.hold_count == 0 && !self.needs_retry_read
    }

    /// True if the entry is not needed any more: the job ended longer ago than `window`, and nobody reads its answer.
    pub(in super::super) fn is_expired(&self, window: Duration) -> bool {
        let is_read = self.reader_count > 0 && self.mode != DeliveryMode::Remembered;
        let is_busy = is_read || matches!(self.row, JobRow::Storing | JobRow::Ending);
        !is_busy && self.ended_at.is_some_and(|ended| ended.elapsed() > window)
    }
}

/// Returns the error "outcome unknown", as the answer of a job whose answer is lost.
pub(in super::super) fn unknown_outcome() -> Arc<StoredAnswer> {
    let (head, body) = error_answer(&Error::Upstream(UpstreamFault::Unknown));
    Arc::new(StoredAnswer::from_bytes(head, body))
}
