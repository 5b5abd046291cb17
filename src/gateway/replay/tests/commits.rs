//! The commits that requests with idempotency keys cost, and the result for rows that the database refuses.

use std::sync::atomic::Ordering;

use super::super::answer_folder::PARTIAL_EXTENSION;
use super::idempotent_answers::{KEY, check, spawn, word};
use super::*;
use crate::gateway::store::ReplayWrite;
use crate::gateway::store::testing::POISON;

/// The number of complete answers on disk for which only the rows are missing.
fn finished(house: &ReplayFixture) -> usize {
    let entries = std::fs::read_dir(house.dir.path().join(FOLDER)).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.path().extension().is_none_or(|kind| kind != PARTIAL_EXTENSION)).count()
}

/// Enters `count` requests at once, each with a key of its own.
async fn crowd(
    house: &ReplayFixture,
    replay: &Arc<AnswerReplay>,
    count: usize,
) -> Vec<Result<ClaimOutcome, ReplayError>> {
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..count {
        let (replay, job, ada) = (Arc::clone(replay), job("red"), house.ada.clone());
        let (key, id) = (format!("key {number}"), format!("req_{number}"));
        callers.spawn(async move { replay.claim_or_follow(&ada, &job, &key, &id).await });
    }
    house.until(|_| replay.idempotent_answers.live_claims().len() >= count).await;
    house.double.write_permits.add_permits(1_000);
    callers.join_all().await
}

#[tokio::test]
async fn a_crowd_of_requests_with_keys_shares_its_commits() {
    const CROWD: usize = 32;
    let house = ReplayFixture::new().await;
    let replay = Arc::new(house.open().await);
    let commits = || house.double.commits.load(Ordering::Relaxed);
    house.double.hold_writes();
    let entered = crowd(&house, &replay, CROWD).await;
    // One commit for the claims that came first, and one for those that came while it was written.
    assert!((1..=2).contains(&commits()), "{} commits for {CROWD} claims", commits());
    house.double.hold_writes();
    let before = commits();
    let mut jobs = tokio::task::JoinSet::new();
    for entrance in entered {
        let Ok(ClaimOutcome::Claimed(ticket)) = entrance else { panic!("not fresh") };
        jobs.spawn(ticket.record(Ok(ChannelAnswer::complete(b"an image"))));
    }
    house.until(|house| finished(house) == CROWD && commits() > before).await;
    house.double.write_permits.add_permits(1_000);
    jobs.join_all().await;
    let commits = commits() - before;
    assert!(commits < CROWD / 2, "{commits} commits for {CROWD} answers");
    for number in 0..CROWD {
        let entrance =
            replay.claim_or_follow(&house.ada, &job("red"), &format!("key {number}"), "req_x").await.unwrap();
        assert_eq!(word(&entrance), "follow");
    }
}

#[tokio::test]
async fn a_claim_that_no_database_takes_fails_alone() {
    let house = ReplayFixture::new().await;
    let replay = Arc::new(house.open().await);
    house.double.hold_writes();
    let poisoned = {
        let (replay, bob) = (Arc::clone(&replay), house.bob.clone());
        spawn(async move { replay.claim_or_follow(&bob, &job("red"), KEY, POISON).await.is_err() })
    };
    let entered = crowd(&house, &replay, 8).await;
    assert!(entered.into_iter().all(|entered| matches!(entered, Ok(ClaimOutcome::Claimed(_)))));
    assert!(poisoned.await.unwrap());
    check(&replay, &house.bob, &job("red"), "fresh").await;
}

#[tokio::test]
async fn a_claim_that_is_durable_too_late_is_given_back() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    house.double.hold_writes();
    tokio::time::pause();
    let late = replay.claim_or_follow(&house.ada, &job, KEY, "req_1").await;
    assert!(matches!(late, Err(ReplayError::Ledger(LedgerError::Overloaded))));
    tokio::time::resume();
    house.double.write_permits.add_permits(1_000);
    replay.drain().await;
    assert_eq!(house.store.list_replays().await.unwrap(), []);
    check(&replay, &house.ada, &job, "fresh").await;
}

#[tokio::test]
async fn an_answer_that_is_being_forgotten_is_gone_for_whoever_asks_meanwhile() {
    let house = ReplayFixture::new().await;
    let (replay, fingerprint) = (house.open().await, [7; 32]);
    let end = Timestamp::now() + Duration::from_secs(60);
    let claim = ReplayWrite::Claim(replay.idempotent_answers.orphan_row(fingerprint, "req_1".into(), end));
    house.ledger.write_replay(claim).await.unwrap();
    assert!(replay.idempotent_answers.find_orphan(&fingerprint).await.unwrap().is_some());
    house.double.hold_writes();
    replay.idempotent_answers.remove_orphan(fingerprint, "req_1".into(), "no file");
    // The read begins while the row exists, and returns after it was removed.
    let mut asking = Box::pin(replay.idempotent_answers.find_orphan(&fingerprint));
    let asked = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await;
    house.double.write_permits.add_permits(1_000);
    house.until(|_| replay.idempotent_answers.orphans_in_removal().is_empty()).await;
    let found = match asked {
        Poll::Ready(found) => found,
        Poll::Pending => asking.await,
    };
    assert!(found.unwrap().is_none());
}

#[tokio::test]
async fn a_file_whose_row_no_store_has_taken_goes_with_its_orphan() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let expected =
        JobRegistration { request_id: "req_1".to_owned(), fingerprint: Some([7; 32]), ..JobRegistration::default() };
    let (waiting, promise) = replay.register_job(&house.ada, &job, expected);
    drop(waiting);
    house.double.hold_writes();
    let trouble = async {
        // The claim is written, but nothing after it.
        house.double.write_permits.add_permits(1);
        house.until(|house| finished(house) == 1).await;
        house.double.set_failure(Some(|| StoreError::Busy));
        house.double.write_permits.add_permits(1_000);
    };
    tokio::join!(trouble, promise.complete(Ok(ChannelAnswer::complete(b"an image"))));
    house.double.set_failure(None);
    assert_eq!(finished(&house), 1);
    assert_eq!(read(replay.adopt_job(&house.ada, &job).await.unwrap()).await.unwrap(), b"an image");
    house.cleared().await;
    house.until(|_| replay.idempotent_answers.orphans_in_removal().is_empty()).await;
    assert!(replay.idempotent_answers.find_orphan(&[7; 32]).await.unwrap().is_none(), "its claim went too");
}

#[tokio::test]
async fn an_orphan_that_was_read_is_gone_even_if_the_store_cannot_forget_it() {
    let house = ReplayFixture::new().await;
    let (job, fingerprint) = (job("red"), [7; 32]);
    let expected = || {
        let (request_id, fingerprint) = ("req_1".to_owned(), Some(fingerprint));
        JobRegistration { request_id, fingerprint, ..JobRegistration::default() }
    };
    let (waiting, promise) = house.open().await.register_job(&house.ada, &job, expected());
    drop(waiting);
    promise.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let replay = house.open().await;
    let retry = replay.idempotent_answers.find_orphan(&fingerprint).await.unwrap().expect("an orphan");
    house.double.set_failure(Some(|| StoreError::Busy));
    assert_eq!(read(retry).await.unwrap(), b"an image");
    replay.drain().await;
    house.double.set_failure(None);
    assert!(replay.idempotent_answers.find_orphan(&fingerprint).await.unwrap().is_none(), "the next one runs anew");
    replay.idempotent_answers.sweep().await.unwrap();
    assert!(replay.idempotent_answers.orphans_in_removal().is_empty());
    assert_eq!(house.store.list_replays().await.unwrap(), []);
}
