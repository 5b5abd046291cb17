//! Finds the job that a retry means.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fingerprint::{Digest, digest};
use super::follower::Follower;
use super::orphans::{Candidate, Orphans, Standing};
use crate::gateway::keys::Caller;
use crate::gateway::rules::SharedTask;

/// The time for which a retry watches a job whose caller is still there before it joins: the retry may arrive before
/// the gateway notices that the caller left, and an orphan is not shared with a caller.
const GRACE: Duration = Duration::from_secs(1);

/// Follows an orphan of the same request, else a job that still has its caller, else a remembered end; `None` if the
/// retry must run anew.
pub(super) async fn adopt(orphans: &Arc<Orphans>, caller: &Caller, task: &SharedTask) -> Option<Follower> {
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
        if let Some(follower) = of(Standing::Orphan).find_map(|candidate| orphans.follow(candidate.place)) {
            return Some(follower);
        }
        let over = Instant::now() >= until;
        if over && let Some(follower) = of(Standing::Attended).find_map(|candidate| orphans.follow(candidate.place)) {
            return Some(follower);
        }
        if over || of(Standing::Attended).next().is_none() {
            let remembered = of(Standing::Remembered).find_map(|candidate| orphans.recall(candidate.place));
            // The job runs but cannot be followed, because parts of its answer are no longer available.
            let lost = over && of(Standing::Attended).next().is_some();
            return remembered.or_else(|| lost.then(Orphans::unknown));
        }
        // The hold keeps the job until the end of the grace, even if others read it to its end meanwhile.
        hold = hold.or_else(|| of(Standing::Attended).find_map(|candidate| orphans.hold(candidate.place)));
        // Whether it changed or the grace is over is seen by looking.
        let _ = timeout_at(until, changes.changed()).await;
    }
}

/// Follows a job whose caller was told to come back and has not come, or recalls its end. That a request says nothing of
/// being a retry is no objection.
pub(super) async fn in_progress(orphans: &Arc<Orphans>, caller: &Caller, task: &SharedTask) -> Option<Follower> {
    let mut candidates = orphans.candidates(caller, task);
    candidates.retain(|candidate| candidate.retry_expected && candidate.standing != Standing::Attended);
    let same = same(candidates, task, &mut None).await;
    same.iter().find_map(|candidate| orphans.follow_expected(candidate.place))
}

/// Who really is the same request. Files are read only where everything else fits, and once.
async fn same(candidates: Vec<Candidate>, task: &SharedTask, wanted: &mut Option<Digest>) -> Vec<Candidate> {
    let mut same = Vec::new();
    for candidate in candidates {
        let wanted = match wanted {
            Some(wanted) => *wanted,
            None => match digest(task).await {
                Ok(digest) => *wanted.insert(digest),
                Err(error) => {
                    tracing::error!(%error, "the files of a retry cannot be read, so it runs anew");
                    return Vec::new();
                }
            },
        };
        // What cannot be read is logged where it is let go.
        if candidate.identity.digest().await.is_ok_and(|digest| digest == wanted) {
            same.push(candidate);
        }
    }
    same
}
