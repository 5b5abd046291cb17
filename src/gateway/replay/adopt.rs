//! Finds the job to which a retry belongs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fingerprint::{ReplayDigest, digest};
use super::follower::AnswerReader;
use super::orphans::{RetryCandidate, RetryableJobState, RetryableJobs};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;

/// The time for which a retry watches a job whose caller is still there before it joins: the retry may arrive before
/// the gateway notices that the caller left, and an orphan is not shared with a caller.
const GRACE: Duration = Duration::from_secs(1);

/// Follows an orphan of the same request, else a job that still has its caller, else a remembered end; `None` if the
/// retry must run anew.
pub(super) async fn adopt(orphans: &Arc<RetryableJobs>, caller: &Caller, task: &SharedTask) -> Option<AnswerReader> {
    let mut changes = orphans.changes();
    let until = Instant::now() + GRACE;
    let (mut wanted, mut hold) = (None, None);
    orphans.sweep();
    loop {
        changes.borrow_and_update();
        let mut same = same(orphans.candidates(caller, task), task, &mut wanted).await;
        // The job with the fewest retries comes first, then the oldest, so that concurrent retries are spread over the
        // jobs.
        same.sort_by_key(|candidate| (candidate.retries, candidate.place.1));
        let of = |standing| same.iter().filter(move |candidate| candidate.standing == standing);
        if let Some(follower) = of(RetryableJobState::Orphan).find_map(|candidate| orphans.follow(candidate.place)) {
            return Some(follower);
        }
        let over = Instant::now() >= until;
        if over
            && let Some(follower) =
                of(RetryableJobState::Attended).find_map(|candidate| orphans.follow(candidate.place))
        {
            return Some(follower);
        }
        if over || of(RetryableJobState::Attended).next().is_none() {
            let remembered = of(RetryableJobState::Remembered).find_map(|candidate| orphans.recall(candidate.place));
            // The job runs but cannot be followed, because parts of its answer are no longer available.
            let lost = over && of(RetryableJobState::Attended).next().is_some();
            return remembered.or_else(|| lost.then(RetryableJobs::unknown));
        }
        // The hold keeps the job until the end of the grace, even if others read it to its end meanwhile.
        hold = hold.or_else(|| of(RetryableJobState::Attended).find_map(|candidate| orphans.hold(candidate.place)));
        // The next pass of the loop finds out whether the job changed or the grace is over.
        let _ = timeout_at(until, changes.changed()).await;
    }
}

/// Follows a job whose caller was told to come back and has not done so, or returns its remembered end. The request
/// need not be marked as a retry.
pub(super) async fn in_progress(
    orphans: &Arc<RetryableJobs>,
    caller: &Caller,
    task: &SharedTask,
) -> Option<AnswerReader> {
    let mut candidates = orphans.candidates(caller, task);
    candidates.retain(|candidate| candidate.retry_expected && candidate.standing != RetryableJobState::Attended);
    let same = same(candidates, task, &mut None).await;
    same.iter().find_map(|candidate| orphans.follow_expected(candidate.place))
}

/// Returns the candidates that are the same request. Files are read only if everything else is equal, and only once.
async fn same(
    candidates: Vec<RetryCandidate>,
    task: &SharedTask,
    wanted: &mut Option<ReplayDigest>,
) -> Vec<RetryCandidate> {
    let mut same = Vec::new();
    for candidate in candidates {
        let wanted = match wanted {
            Some(wanted) => *wanted,
            None => match digest(task).await {
                Ok(digest) => *wanted.insert(digest),
                Err(error) => {
                    tracing::error!(%error, "the files of a retry cannot be read, so it runs as a new request");
                    return Vec::new();
                }
            },
        };
        // An unreadable file is logged when its task is released.
        if candidate.identity.digest().await.is_ok_and(|digest| digest == wanted) {
            same.push(candidate);
        }
    }
    same
}
