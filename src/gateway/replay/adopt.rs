//! Finds the job that a retry means.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fingerprint::{Digest, digest};
use super::follower::Follower;
use super::orphans::{Candidate, Orphans, Standing};
use crate::gateway::keys::Caller;
use crate::gateway::rules::Job;

/// How long a job that has its caller still is watched: a retry may be quicker than the news that the caller left.
const GRACE: Duration = Duration::from_secs(1);

/// An orphan of the same request, or an end that is remembered; `None` where the retry must run anew.
pub(super) async fn adopt(orphans: &Arc<Orphans>, caller: &Caller, job: &Arc<Job>) -> Option<Follower> {
    let mut changes = orphans.changes();
    let until = Instant::now() + GRACE;
    let mut wanted = None;
    loop {
        changes.borrow_and_update();
        let same = same(orphans, caller, job, &mut wanted).await;
        let of = |standing| same.iter().filter(move |candidate| candidate.standing == standing);
        if let Some(follower) = of(Standing::Orphan).find_map(|candidate| orphans.take(candidate.place)) {
            return Some(follower);
        }
        let pending = same.iter().any(|candidate| candidate.standing != Standing::Remembered);
        if !pending || Instant::now() >= until {
            return of(Standing::Remembered).find_map(|candidate| orphans.recall(candidate.place));
        }
        // Whether it changed or the grace is over is seen by looking.
        let _ = timeout_at(until, changes.changed()).await;
    }
}

/// Who really is the same request. Files are read only where everything else fits, and once.
async fn same(orphans: &Orphans, caller: &Caller, job: &Arc<Job>, wanted: &mut Option<Digest>) -> Vec<Candidate> {
    let mut same = Vec::new();
    for candidate in orphans.candidates(caller, job) {
        let wanted = match wanted {
            Some(wanted) => *wanted,
            None => match digest(job).await {
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
