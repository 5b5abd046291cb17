//! Finds the earlier request that a plain request repeats: a job of this process, or the row of a stored answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::answer_reader::AnswerReader;
use super::answer_store::AnswerStore;
use super::claim_guard::{OTHER_NODE_PAUSE, STORAGE_WAIT_MAX};
use super::durable_answers::EarlierRequest;
use super::fingerprint::{ReplayDigest, digest};
use super::jobs::{CandidateState, JobRegistration, RetryCandidate};
use super::{LONGEST_JOB, ReplayError};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;
use crate::gateway::store::{JobState, ReplayClaim, ReplayState, StoredReplay, Timestamp};

/// The time for which a retry waits before it reads the answer of a job whose caller is still connected (our choice):
/// the gateway may be late to notice that the caller has left. Then the job is an orphan, and the retry gets its answer
/// without sharing it.
const CALLER_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// The longest time that a retry waits for a job that this process does not know, and whose caller did not get
/// [`Error::InProgress`](crate::error::Error::InProgress): for the end of its record in state `running`, or for its
/// claimed answer (our choice).
pub(super) const RUNNING_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause between two reads of such a record or answer.
const RUNNING_PAUSE: Duration = Duration::from_millis(50);

/// A plain request that may repeat an earlier one.
#[derive(Clone, Copy)]
pub(super) struct PlainRequest<'a> {
    pub(super) caller: &'a Caller,
    pub(super) task: &'a SharedTask,
    pub(super) registration: &'a JobRegistration,
}

/// A stored answer that a retry may get.
pub(super) enum RowAnswer {
    /// There is none.
    None,
    /// It is claimed: a node makes it or is about to store it, or has died before that.
    Claimed(ReplayClaim),
    /// It is stored, but cannot be read.
    Unreadable,
    /// It is stored.
    Stored(AnswerReader),
}

// === impl RowAnswer ===

impl RowAnswer {
    fn or_claimed(self, claim: ReplayClaim) -> Self {
        if let Self::None | Self::Unreadable = self { Self::Claimed(claim) } else { self }
    }

    fn or_lost(self, is_lost: bool) -> Self {
        if let (Self::None, true) = (&self, is_lost) { Self::Unreadable } else { self }
    }
}

// === impl AnswerStore ===

impl AnswerStore {
    /// Returns the answer of the earlier request that a retry repeats, from a job of this process, of an earlier process
    /// or of another node; `None` if the retry must run a job of its own. Waits for an expected repeat
    /// ([`AnswerStore::find_answer_in_progress`]); the caller limits the wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read; nothing may be spent then.
    pub(crate) async fn find_earlier_answer(
        self: &Arc<Self>,
        caller: &Caller,
        task: &SharedTask,
        registration: &JobRegistration,
    ) -> Result<Option<AnswerReader>, ReplayError> {
        if !self.adopts_jobs {
            return Ok(None);
        }
        let request = PlainRequest { caller, task, registration };
        let deadline = Instant::now() + RUNNING_WAIT_MAX;
        loop {
            let adopted = self.adopt(request).await?;
            let Some(fingerprint) = registration.fingerprint.filter(|_| adopted.is_none()) else {
                return Ok(adopted);
            };
            if self.sharing.is_some()
                && let Some(reader) = self.find_expected_row(request).await?
            {
                return Ok(Some(reader));
            }
            let since = Timestamp::now() - (self.windows.retry + LONGEST_JOB);
            // In this order: an answer is claimed before its record ends, so one of the two is found.
            let earlier = self.find_earlier_request(&fingerprint, since).await?;
            match (self.find_row(request, false).await?, earlier) {
                (RowAnswer::Stored(reader), _) => return Ok(Some(reader)),
                (RowAnswer::None, EarlierRequest::None) => return Ok(None),
                // The answer may be about to be stored, or the record to be closed.
                (RowAnswer::Claimed(_), _) | (RowAnswer::None, EarlierRequest::Running)
                    if Instant::now() < deadline =>
                {
                    sleep(RUNNING_PAUSE).await;
                }
                (RowAnswer::Claimed(_) | RowAnswer::Unreadable, _)
                | (RowAnswer::None, EarlierRequest::Running | EarlierRequest::Unknown) => {
                    return Ok(Some(Self::unknown_outcome()));
                }
            }
        }
    }

    /// Returns, for the next equal request, the answer of a job whose caller got
    /// [`Error::InProgress`](crate::error::Error::InProgress), or the remembered error of such a job. The request need not
    /// be marked as a retry. Waits for the answer of another node; the caller limits the wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the files of the request or the store cannot be read; nothing may be spent then.
    pub(crate) async fn find_answer_in_progress(
        self: &Arc<Self>,
        caller: &Caller,
        task: &SharedTask,
        registration: &JobRegistration,
    ) -> Result<Option<AnswerReader>, ReplayError> {
        if !self.adopts_jobs || (!self.may_expect_repeats() && self.sharing.is_none()) {
            return Ok(None);
        }
        let mut candidates = self.candidates(caller, task, registration.link_window.is_some());
        candidates.retain(|candidate| candidate.repeat_expected && candidate.state != CandidateState::Attended);
        let matching = matching_candidates(candidates, task, &mut None).await;
        let found = matching.iter().find_map(|candidate| self.follow_awaited_job(candidate.job_id));
        if found.is_some() {
            return Ok(found);
        }
        let mut registration = registration.clone();
        if registration.fingerprint.is_none() {
            let digest = digest(task).await.map_err(ReplayError::Files)?;
            let is_linked = registration.link_window.is_some();
            registration.fingerprint = Some(self.job_fingerprint(caller.key(), &digest, is_linked));
        }
        self.find_expected_row(PlainRequest { caller, task, registration: &registration }).await
    }

    /// Returns a reader of an orphan of the same request in this process or in the store, or else of a job that still has
    /// its caller, or else a remembered error, or else the error "outcome unknown" if a job still runs but new readers
    /// can no longer get all of its answer. `None` if this process knows no such job.
    async fn adopt(self: &Arc<Self>, request: PlainRequest<'_>) -> Result<Option<AnswerReader>, ReplayError> {
        let PlainRequest { caller, task, registration } = request;
        let mut changes = self.changed.subscribe();
        let grace_end = Instant::now() + CALLER_GRACE_PERIOD;
        let (mut request_digest, mut hold, mut has_read_rows) = (None, None, false);
        self.sweep_jobs();
        loop {
            changes.borrow_and_update();
            let candidates = self.candidates(caller, task, registration.link_window.is_some());
            let mut matching = matching_candidates(candidates, task, &mut request_digest).await;
            // The job with the fewest retries comes first, then the oldest, so that concurrent retries are spread over
            // the jobs.
            matching.sort_by_key(|candidate| (candidate.retry_count, candidate.job_id.1));
            let in_state = |state| matching.iter().filter(move |candidate| candidate.state == state);
            let follow = |state| in_state(state).find_map(|candidate| self.follow_job(candidate.job_id));
            if let Some(reader) = follow(CandidateState::Orphan) {
                return Ok(Some(reader));
            }
            if !matching.is_empty()
                && !std::mem::replace(&mut has_read_rows, true)
                && let RowAnswer::Stored(reader) = self.find_row(request, false).await?
            {
                return Ok(Some(reader));
            }
            let is_grace_over = Instant::now() >= grace_end;
            let is_attended = in_state(CandidateState::Attended).next().is_some();
            if is_grace_over && let Some(reader) = follow(CandidateState::Attended) {
                return Ok(Some(reader));
            }
            if is_grace_over || !is_attended {
                let remembered =
                    in_state(CandidateState::Remembered).find_map(|candidate| self.remembered_answer(candidate.job_id));
                // The job still runs, but parts of its answer are no longer available to new readers.
                let is_lost = is_grace_over && is_attended;
                return Ok(remembered.or_else(|| is_lost.then(Self::unknown_outcome)));
            }
            // The hold keeps the job until the grace period is over, even if other readers finish before that.
            hold =
                hold.or_else(|| in_state(CandidateState::Attended).find_map(|candidate| self.hold(candidate.job_id)));
            // The next pass of the loop checks both conditions: a changed job, and the end of the grace period.
            let _ = timeout_at(grace_end, changes.changed()).await;
        }
    }

    /// Returns a reader of the first stored answer of the same request that no other request reads. Of an expected
    /// repeat only if `is_expected`.
    pub(super) async fn find_row(
        self: &Arc<Self>,
        request: PlainRequest<'_>,
        is_expected: bool,
    ) -> Result<RowAnswer, ReplayError> {
        let PlainRequest { task, registration, .. } = request;
        let Some(fingerprint) = registration.fingerprint else { return Ok(RowAnswer::None) };
        let mut found = RowAnswer::None;
        for StoredReplay { claim, state } in self.store.find_retried_replays(&fingerprint, Timestamp::now()).await? {
            if (is_expected && !claim.repeat_expected) || self.is_in_memory(task, &claim.scope) {
                continue;
            }
            let ReplayState::Stored(row) = state else {
                found = found.or_claimed(claim);
                continue;
            };
            let Some(answer) = self.load_answer(&claim, &row).await else {
                // If its row is gone, another request has read the answer to its end meanwhile.
                let is_lost = self.store.find_replay(&claim.scope).await?.is_some();
                found = found.or_lost(is_lost);
                continue;
            };
            if let Some(reader) = self.follow_row(request, &claim, row.file, answer) {
                return Ok(RowAnswer::Stored(reader));
            }
        }
        Ok(found)
    }

    /// Returns the answer, or the error "outcome unknown", of a job for which a repeat of this request is expected, of
    /// another node or from before; `None` if there is no such job, or if it ended without cost. Waits while the job runs.
    async fn find_expected_row(
        self: &Arc<Self>,
        request: PlainRequest<'_>,
    ) -> Result<Option<AnswerReader>, ReplayError> {
        let mut storage_deadline = Instant::now() + STORAGE_WAIT_MAX;
        loop {
            let claim = match self.find_row(request, true).await? {
                RowAnswer::None => return Ok(None),
                RowAnswer::Stored(reader) => return Ok(Some(reader)),
                RowAnswer::Unreadable => return Ok(Some(Self::unknown_outcome())),
                RowAnswer::Claimed(claim) => claim,
            };
            let state = self.store.job_progress(&claim.request_id).await?.map(|progress| progress.state);
            if state == Some(JobState::Running) {
                storage_deadline = Instant::now() + STORAGE_WAIT_MAX;
            }
            let is_stored_soon = state == Some(JobState::Succeeded) && Instant::now() < storage_deadline;
            if state == Some(JobState::Running) || is_stored_soon {
                sleep(OTHER_NODE_PAUSE).await;
                continue;
            }
            let is_released = self.release_claim(&(&claim).into()).await;
            match state {
                Some(JobState::Running | JobState::Succeeded | JobState::Interrupted) => {
                    return Ok(Some(Self::unknown_outcome()));
                }
                // If its claim cannot be removed, it is not asked for again.
                None | Some(JobState::Failed | JobState::Refused | JobState::Cancelled) if !is_released => {
                    return Ok(None);
                }
                // There may be a claim of another job.
                None | Some(JobState::Failed | JobState::Refused | JobState::Cancelled) => {}
            }
        }
    }
}

/// Returns the candidates that are the same request. The files of the task are read only if there is a candidate, and
/// only once: `request_digest` keeps the digest.
async fn matching_candidates(
    candidates: Vec<RetryCandidate>,
    task: &SharedTask,
    request_digest: &mut Option<ReplayDigest>,
) -> Vec<RetryCandidate> {
    let mut matching = Vec::new();
    for candidate in candidates {
        let expected = match request_digest {
            Some(expected) => *expected,
            None => match digest(task).await {
                Ok(digest) => *request_digest.insert(digest),
                Err(error) => {
                    tracing::error!(%error, "the files of a retry cannot be read, so it runs as a new request");
                    return Vec::new();
                }
            },
        };
        // The error of an unreadable file is logged when its task is released.
        if candidate.identity.digest().await.is_ok_and(|digest| digest == expected) {
            matching.push(candidate);
        }
    }
    matching
}
