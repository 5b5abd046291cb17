//! Readers of the answers of registered jobs, of stored answers, and of remembered errors.

use std::sync::Arc;

use tokio::time::Instant;

use super::index::{CandidateState, DeliveryMode, JobEntry, JobId, JobRegistration, JobRow, unknown_outcome};
use super::{AnswerReader, AnswerReaderExit};
use crate::gateway::replay::LONGEST_JOB;
use crate::gateway::replay::answer_store::AnswerStore;
use crate::gateway::replay::fingerprint::{ReplayDigest, RequestIdentity, cheap_hash};
use crate::gateway::replay::lookup::PlainRequest;
use crate::gateway::replay::stored_answer::StoredAnswer;
use crate::gateway::rules::SharedTask;
use crate::gateway::store::ReplayClaim;

/// A job that is kept for a retry until this value is dropped. If no job of the same request becomes an orphan
/// meanwhile, the retry reads the answer of this job, which other readers may have finished by then.
pub(in super::super) struct AttendedJobHold {
    answers: Arc<AnswerStore>,
    job_id: JobId,
}

// === impl AnswerStore ===

impl AnswerStore {
    /// Returns a reader of the answer of a job. The reader reports when it leaves.
    pub(super) fn job_reader(self: &Arc<Self>, job_id: JobId, is_retry: bool) -> Option<AnswerReader> {
        let (answer, id) = {
            let index = self.jobs();
            let entry = index.entries.get(&job_id)?;
            (Arc::clone(&entry.answer), entry.id.clone())
        };
        let answers = Arc::clone(self);
        let on_leave = move |has_read_all| {
            answers.note_reader_left(job_id, Some(AnswerReaderExit { has_read_all, is_retry }));
        };
        Some(AnswerReader::with_leave_callback(&answer, Box::new(on_leave)).with_id(id))
    }

    /// Returns a reader of the answer for a retry; `None` if a new reader cannot have the whole answer, or if the job
    /// has ended with an error. If the last reader leaves before the end, the job is an orphan again.
    pub(in super::super) fn follow_job(self: &Arc<Self>, job_id: JobId) -> Option<AnswerReader> {
        self.follow_if(job_id, |entry| matches!(entry.state(), Some(CandidateState::Attended | CandidateState::Orphan)))
    }

    /// Returns a reader of the answer of an orphan whose caller got
    /// [`Error::InProgress`](crate::error::Error::InProgress), or of the error that such a job ended with. Of several
    /// concurrent requests, exactly one gets a reader.
    pub(in super::super) fn follow_awaited_job(self: &Arc<Self>, job_id: JobId) -> Option<AnswerReader> {
        self.follow_if(job_id, |entry| entry.repeat_expected && entry.state() == Some(CandidateState::Orphan))
            .or_else(|| self.remembered_answer_if(job_id, |entry| entry.repeat_expected))
    }

    fn follow_if(self: &Arc<Self>, job_id: JobId, is_allowed: impl FnOnce(&JobEntry) -> bool) -> Option<AnswerReader> {
        {
            let mut index = self.jobs();
            let entry = index.entries.get_mut(&job_id).filter(|entry| is_allowed(entry) && !entry.answer.has_gap())?;
            entry.mode = DeliveryMode::Stored;
            entry.reader_count += 1;
            entry.retry_count += 1;
        }
        self.changed.send_replace(());
        self.job_reader(job_id, true)
    }

    /// Returns a reader of a stored answer for a retry of its request; `None` if another request reads it already.
    pub(in super::super) fn follow_row(
        self: &Arc<Self>,
        PlainRequest { caller, task, registration }: PlainRequest<'_>,
        claim: &ReplayClaim,
        file: String,
        answer: StoredAnswer,
    ) -> Option<AnswerReader> {
        let registration = JobRegistration { request_id: claim.request_id.to_string(), ..registration.clone() };
        let cheap_hash = cheap_hash(&self.hasher, task);
        let entry = JobEntry::new(caller.key(), RequestIdentity::new(task.clone()), registration);
        let entry = entry.ended(DeliveryMode::Stored, Arc::new(answer));
        let entry = JobEntry { row: JobRow::Stored(file), repeat_expected: claim.repeat_expected, ..entry };
        let job_id = {
            let mut index = self.jobs();
            if index.has_scope(cheap_hash, &claim.scope) {
                return None;
            }
            index.insert(cheap_hash, entry)
        };
        self.follow_job(job_id)
    }

    /// True if the answer with this scope, of the same request, runs or is read in this process.
    pub(in super::super) fn is_in_memory(&self, task: &SharedTask, scope: &ReplayDigest) -> bool {
        let cheap_hash = cheap_hash(&self.hasher, task);
        self.jobs().has_scope(cheap_hash, scope)
    }

    /// Keeps an attended job for a retry that may read it a little later, even if others read it to its end before
    /// that. Returns `None` if the job is not attended, or if a part of its answer is lost.
    pub(in super::super) fn hold(self: &Arc<Self>, job_id: JobId) -> Option<AttendedJobHold> {
        let mut index = self.jobs();
        let entry = index.entries.get_mut(&job_id)?;
        if entry.state() != Some(CandidateState::Attended) || entry.answer.has_gap() {
            return None;
        }
        entry.mode = DeliveryMode::Stored;
        entry.hold_count += 1;
        Some(AttendedJobHold { answers: Arc::clone(self), job_id })
    }

    /// Records that the caller got [`Error::InProgress`](crate::error::Error::InProgress): the job continues, and a repeat of the request is expected.
    pub(in super::super) fn note_repeat_expected(&self, job_id: JobId) {
        let mut index = self.jobs();
        if let Some(entry) = index.entries.get_mut(&job_id) {
            entry.repeat_expected = true;
            index.last_in_progress = Some(Instant::now());
        }
    }

    /// True if a repeat may be expected of any request: a caller got [`Error::InProgress`] within the time that a job and
    /// its answer are remembered. Most gateways never have such a caller, so their requests need no further search.
    pub(in super::super) fn may_expect_repeats(&self) -> bool {
        self.jobs().last_in_progress.is_some_and(|last| last.elapsed() <= LONGEST_JOB + self.windows.retry)
    }

    /// Returns a reader of the error "outcome unknown", for a retry of a job that was charged, or may have been, and
    /// whose answer is lost.
    pub(in super::super) fn unknown_outcome() -> AnswerReader {
        AnswerReader::new(&unknown_outcome())
    }

    /// Returns a reader of the remembered error of a job, if the job still exists and has one.
    pub(in super::super) fn remembered_answer(self: &Arc<Self>, job_id: JobId) -> Option<AnswerReader> {
        self.remembered_answer_if(job_id, |_| true)
    }

    /// Returns a reader of the remembered error of a job, if `is_allowed`. After that, no repeat of the request is
    /// expected.
    fn remembered_answer_if(
        self: &Arc<Self>,
        job_id: JobId,
        is_allowed: impl FnOnce(&JobEntry) -> bool,
    ) -> Option<AnswerReader> {
        let mut index = self.jobs();
        let entry = index.entries.get_mut(&job_id)?;
        if entry.mode != DeliveryMode::Remembered || !is_allowed(entry) {
            return None;
        }
        let was_expected = std::mem::take(&mut entry.repeat_expected);
        let (id, reader) = (entry.id.clone(), AnswerReader::new(&entry.answer));
        let has_row = entry.row != JobRow::None;
        drop(index);
        if was_expected && has_row {
            self.spawn_release(id);
        }
        Some(reader)
    }
}

impl Drop for AttendedJobHold {
    fn drop(&mut self) {
        self.answers.change(self.job_id, |entry| entry.hold_count = entry.hold_count.saturating_sub(1));
    }
}
