//! Finds the job to which a retry belongs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::answer_reader::AnswerReader;
use super::fingerprint::{ReplayDigest, digest};
use super::orphans::{RetryCandidate, RetryableJobState, RetryableJobs};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;

/// The time for which a retry watches a job whose caller is still there before it joins: the retry may arrive before
/// the gateway notices that the caller left, and an orphan is not shared with a caller.
const CALLER_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Follows an orphan of the same request, else a job that still has its caller, else a remembered end; `None` if the
/// retry must run anew.
pub(super) async fn adopt_job(
    orphans: &Arc<RetryableJobs>,
    caller: &Caller,
    task: &SharedTask,
) -> Option<AnswerReader> {
    let mut changes = orphans.changes();
    let until = Instant::now() + CALLER_GRACE_PERIOD;
    let (mut request_digest, mut hold) = (None, None);
    orphans.sweep();
    loop {
        changes.borrow_and_update();
        let mut matching = matching_candidates(orphans.candidates(caller, task), task, &mut request_digest).await;
        // The job with the fewest retries comes first, then the oldest, so that concurrent retries are spread over the
        // jobs.
        matching.sort_by_key(|candidate| (candidate.retries, candidate.job_id.1));
        let in_state = |state| matching.iter().filter(move |candidate| candidate.state == state);
        if let Some(follower) =
            in_state(RetryableJobState::Orphan).find_map(|candidate| orphans.follow_job(candidate.job_id))
        {
            return Some(follower);
        }
        let over = Instant::now() >= until;
        if over
            && let Some(follower) =
                in_state(RetryableJobState::Attended).find_map(|candidate| orphans.follow_job(candidate.job_id))
        {
            return Some(follower);
        }
        if over || in_state(RetryableJobState::Attended).next().is_none() {
            let remembered = in_state(RetryableJobState::Remembered)
                .find_map(|candidate| orphans.remembered_answer(candidate.job_id));
            // The job runs but cannot be followed, because parts of its answer are no longer available.
            let lost = over && in_state(RetryableJobState::Attended).next().is_some();
            return remembered.or_else(|| lost.then(RetryableJobs::unknown_outcome));
        }
        // The hold keeps the job until the end of the grace, even if others read it to its end meanwhile.
        hold =
            hold.or_else(|| in_state(RetryableJobState::Attended).find_map(|candidate| orphans.hold(candidate.job_id)));
        // The next pass of the loop finds out whether the job changed or the grace is over.
        let _ = timeout_at(until, changes.changed()).await;
    }
}

/// Follows a job whose caller was told to come back and has not done so, or returns its remembered end. The request
/// need not be marked as a retry.
pub(super) async fn find_answer_in_progress(
    orphans: &Arc<RetryableJobs>,
    caller: &Caller,
    task: &SharedTask,
) -> Option<AnswerReader> {
    let mut candidates = orphans.candidates(caller, task);
    candidates.retain(|candidate| candidate.retry_expected && candidate.state != RetryableJobState::Attended);
    let matching = matching_candidates(candidates, task, &mut None).await;
    matching.iter().find_map(|candidate| orphans.follow_awaited_job(candidate.job_id))
}

/// Returns the candidates that are the same request. Files are read only if everything else is equal, and only once.
async fn matching_candidates(
    candidates: Vec<RetryCandidate>,
    task: &SharedTask,
    request_digest: &mut Option<ReplayDigest>,
) -> Vec<RetryCandidate> {
    let mut matching = Vec::new();
    for candidate in candidates {
        let wanted = match request_digest {
            Some(wanted) => *wanted,
            None => match digest(task).await {
                Ok(digest) => *request_digest.insert(digest),
                Err(error) => {
                    tracing::error!(%error, "the files of a retry cannot be read, so it runs as a new request");
                    return Vec::new();
                }
            },
        };
        // An unreadable file is logged when its task is released.
        if candidate.identity.digest().await.is_ok_and(|digest| digest == wanted) {
            matching.push(candidate);
        }
    }
    matching
}
