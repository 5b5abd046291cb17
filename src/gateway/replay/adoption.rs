//! Finds the job to which a retry belongs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::answer_reader::AnswerReader;
use super::fingerprint::{ReplayDigest, digest};
use super::orphans::{RetryCandidate, RetryableJobState, RetryableJobs};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;

/// The time for which a retry waits before it reads the answer of a job whose caller is still connected (our choice):
/// the gateway may be late to notice that the caller has left. Then the job is an orphan, and the retry gets its answer
/// without sharing it.
const CALLER_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Returns a reader of an orphan of the same request, or else of a job that still has its caller, or else a remembered
/// error, or else the error "outcome unknown" if a job still runs but new readers can no longer get all of its answer.
/// `None` if the retry must run a job of its own.
pub(super) async fn adopt_job(
    orphans: &Arc<RetryableJobs>,
    caller: &Caller,
    task: &SharedTask,
) -> Option<AnswerReader> {
    let mut changes = orphans.changes();
    let grace_end = Instant::now() + CALLER_GRACE_PERIOD;
    let (mut request_digest, mut hold) = (None, None);
    orphans.sweep();
    loop {
        changes.borrow_and_update();
        let mut matching = matching_candidates(orphans.candidates(caller, task), task, &mut request_digest).await;
        // The job with the fewest retries comes first, then the oldest, so that concurrent retries are spread over the
        // jobs.
        matching.sort_by_key(|candidate| (candidate.retry_count, candidate.job_id.1));
        let in_state = |state| matching.iter().filter(move |candidate| candidate.state == state);
        if let Some(reader) =
            in_state(RetryableJobState::Orphan).find_map(|candidate| orphans.follow_job(candidate.job_id))
        {
            return Some(reader);
        }
        let is_grace_over = Instant::now() >= grace_end;
        if is_grace_over
            && let Some(reader) =
                in_state(RetryableJobState::Attended).find_map(|candidate| orphans.follow_job(candidate.job_id))
        {
            return Some(reader);
        }
        if is_grace_over || in_state(RetryableJobState::Attended).next().is_none() {
            let remembered = in_state(RetryableJobState::Remembered)
                .find_map(|candidate| orphans.remembered_answer(candidate.job_id));
            // The job still runs, but parts of its answer are no longer available to new readers.
            let is_lost = is_grace_over && in_state(RetryableJobState::Attended).next().is_some();
            return remembered.or_else(|| is_lost.then(RetryableJobs::unknown_outcome));
        }
        // The hold keeps the job until the grace period is over, even if other readers finish before that.
        hold =
            hold.or_else(|| in_state(RetryableJobState::Attended).find_map(|candidate| orphans.hold(candidate.job_id)));
        // The next pass of the loop checks both conditions: a changed job, and the end of the grace period.
        let _ = timeout_at(grace_end, changes.changed()).await;
    }
}

/// Returns a reader of a job whose caller got the error `InProgress` and has not repeated its request yet, or the
/// remembered error of such a job. The request need not be marked as a retry.
pub(super) async fn find_answer_in_progress(
    orphans: &Arc<RetryableJobs>,
    caller: &Caller,
    task: &SharedTask,
) -> Option<AnswerReader> {
    if !orphans.may_expect_repeats() {
        return None;
    }
    let mut candidates = orphans.candidates(caller, task);
    candidates.retain(|candidate| candidate.repeat_expected && candidate.state != RetryableJobState::Attended);
    let matching = matching_candidates(candidates, task, &mut None).await;
    matching.iter().find_map(|candidate| orphans.follow_awaited_job(candidate.job_id))
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
