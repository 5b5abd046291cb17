//! Tests of the rows of claims, answers and orphans: shared commits, and rows that are refused, written too late, or
//! removed.

use std::sync::atomic::Ordering;

use super::super::answer_folder::PARTIAL_EXTENSION;
use super::keyed_requests::{KEY, check, outcome_name, spawn};
use super::*;
use crate::gateway::store::testing::REFUSED_REQUEST_ID;

/// Returns the number of complete answers on disk.
fn finished_files(fixture: &ReplayFixture) -> usize {
    let entries = std::fs::read_dir(fixture.dir.path().join(FOLDER)).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.path().extension().is_none_or(|kind| kind != PARTIAL_EXTENSION)).count()
}

/// Sends `count` requests at once, each with an idempotency key of its own. Permits the writes when all are registered.
async fn claim_concurrently(
    fixture: &ReplayFixture,
    replay: &Arc<AnswerStore>,
    count: usize,
) -> Vec<Result<ClaimOutcome, ReplayError>> {
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..count {
        let (replay, job, ada) = (Arc::clone(replay), job("red"), fixture.ada.clone());
        let (key, id) = (format!("key {number}"), format!("req_{number}"));
        callers.spawn(async move { replay.claim_or_follow(&ada, &job, &key, &id).await });
    }
    fixture.wait_until(|_| replay.live_claims().len() >= count).await;
    fixture.double.write_permits.add_permits(1_000);
    callers.join_all().await
}

#[tokio::test]
async fn concurrent_requests_share_commits() {
    const REQUEST_COUNT: usize = 32;
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let commits = || fixture.double.commits.load(Ordering::Relaxed);
    fixture.double.hold_writes();
    let outcomes = claim_concurrently(&fixture, &replay, REQUEST_COUNT).await;
    // One commit for the first claims, and one for the claims that arrived while it was written.
    assert!((1..=2).contains(&commits()), "{} commits for {REQUEST_COUNT} claims", commits());
    fixture.double.hold_writes();
    let before = commits();
    let mut jobs = tokio::task::JoinSet::new();
    for outcome in outcomes {
        let Ok(ClaimOutcome::Claimed(guard)) = outcome else { panic!("no claim") };
        jobs.spawn(guard.record(Ok(ChannelAnswer::complete(b"an image"))));
    }
    fixture.wait_until(|fixture| finished_files(fixture) == REQUEST_COUNT && commits() > before).await;
    fixture.double.write_permits.add_permits(1_000);
    jobs.join_all().await;
    let commits = commits() - before;
    assert!(commits < REQUEST_COUNT / 2, "{commits} commits for {REQUEST_COUNT} answers");
    for number in 0..REQUEST_COUNT {
        let outcome =
            replay.claim_or_follow(&fixture.ada, &job("red"), &format!("key {number}"), "req_x").await.unwrap();
        assert_eq!(outcome_name(&outcome), "follow");
    }
}

#[tokio::test]
async fn a_claim_that_the_database_refuses_fails_alone() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    fixture.double.hold_writes();
    let refused = {
        let (replay, bob) = (Arc::clone(&replay), fixture.bob.clone());
        spawn(async move { replay.claim_or_follow(&bob, &job("red"), KEY, REFUSED_REQUEST_ID).await.is_err() })
    };
    let outcomes = claim_concurrently(&fixture, &replay, 8).await;
    assert!(outcomes.into_iter().all(|outcome| matches!(outcome, Ok(ClaimOutcome::Claimed(_)))));
    assert!(refused.await.unwrap());
    check(&replay, &fixture.bob, &job("red"), "claimed").await;
}

#[tokio::test]
async fn a_claim_that_is_written_too_late_is_released() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    fixture.double.hold_writes();
    tokio::time::pause();
    let result = replay.claim_or_follow(&fixture.ada, &job, KEY, "req_1").await;
    assert!(matches!(result, Err(ReplayError::Ledger(LedgerError::Overloaded))));
    tokio::time::resume();
    fixture.double.write_permits.add_permits(1_000);
    replay.drain().await;
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
    check(&replay, &fixture.ada, &job, "claimed").await;
}

/// Stores the answer of an orphan.
async fn store_orphan(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) {
    let (receiver, sender) = replay.register_job(caller, job, registration());
    drop(receiver);
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
}

#[tokio::test]
async fn an_orphan_in_removal_is_not_found() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    store_orphan(&replay, &fixture.ada, &job).await;
    fixture.double.hold_writes();
    assert_eq!(read(replay.adopt_job(&fixture.ada, &job).await.unwrap()).await.unwrap(), b"an image");
    assert_eq!(fixture.store.list_replays().await.unwrap().len(), 1);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none(), "its row is there still");
    // The read begins while the row exists, and returns after it was removed.
    let mut lookup = Box::pin(replay.adopt_job(&fixture.ada, &job));
    let first_poll = std::future::poll_fn(|cx| Poll::Ready(lookup.as_mut().poll(cx))).await;
    fixture.double.write_permits.add_permits(1_000);
    replay.drain().await;
    let found = match first_poll {
        Poll::Ready(found) => found,
        Poll::Pending => lookup.await,
    };
    assert!(found.is_none());
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn an_answer_that_cannot_be_stored_is_kept_in_memory_for_its_retry() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    fixture.double.hold_writes();
    let fail_store = async {
        // The claim is written, but nothing after it.
        fixture.double.write_permits.add_permits(1);
        fixture.wait_until(|fixture| finished_files(fixture) == 1).await;
        fixture.double.failure.set(Some(|| StoreError::Busy));
        fixture.double.write_permits.add_permits(1_000);
    };
    tokio::join!(fail_store, store_orphan(&replay, &fixture.ada, &job));
    fixture.double.failure.set(None);
    assert_eq!(read(replay.adopt_job(&fixture.ada, &job).await.unwrap()).await.unwrap(), b"an image");
    fixture.wait_until_no_files().await;
    replay.drain().await;
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
    assert_eq!(fixture.store.list_replays().await.unwrap(), [], "its claim was removed too");
}

#[tokio::test]
async fn a_read_orphan_is_gone_even_if_its_row_cannot_be_removed() {
    let fixture = ReplayFixture::new().await;
    let job = job("red");
    store_orphan(&fixture.open().await, &fixture.ada, &job).await;
    let replay = fixture.open().await;
    let retry = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    fixture.double.failure.set(Some(|| StoreError::Busy));
    assert_eq!(read(retry).await.unwrap(), b"an image");
    replay.drain().await;
    fixture.double.failure.set(None);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none(), "the next retry runs a new job");
    replay.sweep().await.unwrap();
    assert!(replay.jobs().entries.is_empty());
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
}
