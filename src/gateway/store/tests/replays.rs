//! Tests of claims and stored answers.

use super::*;
use crate::gateway::store::testing::record;

fn time(second: u8) -> Timestamp {
    at(&format!("2026-02-01T00:00:{second:02}Z"))
}

/// Makes a claim that begins at `second` and is valid for ten seconds.
fn new_claim(scope: u8, request_id: &str, second: u8) -> ReplayClaim {
    ReplayClaim {
        created_at: time(second),
        ..ReplayClaim::new([scope; 32], [7; 32], request_id.into(), NodeId::only(), time(second + 10))
    }
}

fn answer() -> StoredAnswerRow {
    StoredAnswerRow {
        status: 200,
        content_type: "application/json".to_owned(),
        headers: r#"{"x-request-id":"r1"}"#.to_owned(),
        file: "r1.answer".to_owned(),
        size: 5_000_000_000,
        sealed_key: vec![1, 2, 3],
    }
}

fn running(claim: ReplayClaim) -> StoredReplay {
    StoredReplay { claim, state: ReplayState::Running }
}

/// The claim as [`finish`] leaves it.
fn stored_with(claim: ReplayClaim, answer: StoredAnswerRow) -> StoredReplay {
    StoredReplay { claim: ReplayClaim { expires_at: time(30), ..claim }, state: ReplayState::Stored(answer) }
}

async fn write_replay(store: &dyn Store, replay: ReplayWrite) -> RowWriteOutcome {
    write(store, &[RowWrite::Replay(&replay)]).await.remove(0)
}

async fn claim(store: Arc<dyn Store>, claim: ReplayClaim) -> RowWriteOutcome {
    write_replay(&*store, ReplayWrite::Claim(claim)).await
}

fn finish(scope: u8, request_id: &str, answer: StoredAnswerRow) -> ReplayWrite {
    finish_until(30, scope, request_id, answer)
}

fn finish_until(second: u8, scope: u8, request_id: &str, answer: StoredAnswerRow) -> ReplayWrite {
    let (scope, request_id, expires_at) = ([scope; 32], request_id.into(), time(second));
    ReplayWrite::Finish { scope, request_id, expires_at, retry_until: None, answer, shared_bytes: None }
}

fn already_claimed(replay: StoredReplay) -> RowWriteOutcome {
    RowWriteOutcome::AlreadyClaimed(Box::new(replay))
}

#[tokio::test]
async fn only_one_of_concurrent_claims_succeeds() {
    for Fixture { store, second_store, .. } in stores().await {
        let mut tasks = JoinSet::new();
        for (number, store) in [&store, &second_store].into_iter().cycle().take(20).enumerate() {
            tasks.spawn(claim(Arc::clone(store), new_claim(1, &format!("r{number}"), 1)));
        }
        let claimed = tasks.join_all().await;
        assert_eq!(claimed.iter().filter(|claimed| **claimed == RowWriteOutcome::Done).count(), 1);
        let stored = store.find_replay(&[1; 32]).await.unwrap().unwrap();
        // The other requests got the claim of the first.
        assert_eq!(claimed.into_iter().filter(|claimed| *claimed == already_claimed(stored.clone())).count(), 19);
    }
}

#[tokio::test]
async fn a_stored_answer_is_read_with_every_field() {
    for Fixture { store, second_store, .. } in stores().await {
        assert_eq!(claim(Arc::clone(&store), new_claim(1, "r1", 1)).await, RowWriteOutcome::Done);
        let outcome = claim(Arc::clone(&second_store), ReplayClaim { digest: [8; 32], ..new_claim(1, "r2", 2) }).await;
        assert_eq!(outcome, already_claimed(running(new_claim(1, "r1", 1))));
        assert_eq!(write_replay(&*store, finish(1, "r1", answer())).await, RowWriteOutcome::Done);
        let outcome = claim(Arc::clone(&second_store), new_claim(1, "r2", 2)).await;
        assert_eq!(outcome, already_claimed(stored_with(new_claim(1, "r1", 1), answer())));
    }
}

#[tokio::test]
async fn claims_and_answers_share_a_transaction_with_records() {
    for Fixture { store, .. } in stores().await {
        let (opened, closed, refused) = (running_record("r1"), finished_record("r1"), running_record("r2"));
        let claims = ["r1", "r2", "r3"].map(|id| ReplayWrite::Claim(new_claim(1, id, 1)));
        let end = finish(1, "r1", answer());
        let writes = [
            RowWrite::Replay(&claims[0]),
            RowWrite::Open(&opened),
            RowWrite::Replay(&claims[1]),
            RowWrite::Close(&closed),
            RowWrite::Replay(&end),
            RowWrite::Replay(&end),
            RowWrite::Replay(&claims[2]),
        ];
        // The outcomes have the order of the writes.
        let expected = [
            RowWriteOutcome::Done,
            RowWriteOutcome::Done,
            already_claimed(running(new_claim(1, "r1", 1))),
            RowWriteOutcome::Done,
            RowWriteOutcome::Done,
            RowWriteOutcome::NoEffect,
            already_claimed(stored_with(new_claim(1, "r1", 1), answer())),
        ];
        assert_eq!(write(&*store, &writes).await, expected);

        // No database accepts the size in `invalid_answer`, so nothing of its transaction is stored.
        let claim_write = ReplayWrite::Claim(new_claim(2, "r2", 1));
        let invalid_answer = finish(2, "r2", StoredAnswerRow { size: u64::MAX, ..answer() });
        let writes = [RowWrite::Open(&refused), RowWrite::Replay(&claim_write), RowWrite::Replay(&invalid_answer)];
        assert!(store.write_rows(&NodeId::only(), &writes).await.is_err());
        assert_eq!(store.find_record(&refused.document.request_id.as_str().into(), None).await.unwrap(), None);
        assert_eq!(store.find_replay(&[2; 32]).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_scope_can_be_claimed_again_only_after_expiry() {
    for Fixture { store, .. } in stores().await {
        claim(Arc::clone(&store), new_claim(1, "r1", 1)).await;
        write_replay(&*store, finish(1, "r1", answer())).await;
        // The claim was valid until second 11; its answer is kept until second 30.
        assert!(matches!(claim(Arc::clone(&store), new_claim(1, "r2", 29)).await, RowWriteOutcome::AlreadyClaimed(_)));
        assert_eq!(claim(Arc::clone(&store), new_claim(1, "r3", 30)).await, RowWriteOutcome::Done);
        assert_eq!(store.list_replays().await.unwrap(), [running(new_claim(1, "r3", 30))]);
    }
}

#[tokio::test]
async fn an_answer_is_stored_once_and_only_for_its_own_claim() {
    for Fixture { store, .. } in stores().await {
        let finish = async |scope, id: &str, status| {
            let written = write_replay(&*store, finish(scope, id, StoredAnswerRow { status, ..answer() })).await;
            written == RowWriteOutcome::Done
        };
        assert!(!finish(1, "r1", 200).await);
        claim(Arc::clone(&store), new_claim(1, "r1", 1)).await;
        claim(Arc::clone(&store), new_claim(1, "r2", 11)).await;
        // The claim of the first request has expired, and its answer comes late.
        assert!(!finish(1, "r1", 500).await);
        assert!(!finish(2, "r2", 500).await);
        assert!(finish(1, "r2", 200).await);
        assert!(!finish(1, "r2", 500).await);
        assert_eq!(store.list_replays().await.unwrap(), [stored_with(new_claim(1, "r2", 11), answer())]);
    }
}

#[tokio::test]
async fn removing_a_claim_leaves_other_claims() {
    for Fixture { store, .. } in stores().await {
        for (scope, id) in [(1, "r1"), (2, "r2")] {
            claim(Arc::clone(&store), new_claim(scope, id, 1)).await;
        }
        let remove = async |scope, id: &str| {
            let remove = ReplayWrite::Remove { scope: [scope; 32], request_id: id.into() };
            write_replay(&*store, remove).await == RowWriteOutcome::Done
        };
        assert!(!remove(1, "r2").await);
        assert!(remove(1, "r1").await);
        assert!(!remove(1, "r1").await);
        assert_eq!(store.find_replay(&[1; 32]).await.unwrap(), None);
        assert_eq!(store.list_replays().await.unwrap(), [running(new_claim(2, "r2", 1))]);
        assert_eq!(claim(Arc::clone(&store), new_claim(1, "r3", 2)).await, RowWriteOutcome::Done);
    }
}

#[tokio::test]
async fn a_retry_finds_the_answers_of_its_fingerprint_until_one_has_read_them() {
    for Fixture { store, .. } in stores().await {
        let with_fingerprint = |scope: u8, second: u8, fingerprint: u8| {
            let (fingerprint, retry_until) = (Some([fingerprint; 32]), Some(time(second + 5)));
            ReplayClaim { fingerprint, retry_until, ..new_claim(scope, &format!("r{scope}"), second) }
        };
        let expected = ReplayClaim { repeat_expected: true, ..with_fingerprint(2, 2, 8) };
        for new in [with_fingerprint(1, 1, 8), expected.clone(), with_fingerprint(3, 3, 9), new_claim(4, "r4", 4)] {
            assert_eq!(claim(Arc::clone(&store), new).await, RowWriteOutcome::Done);
        }
        let find = async |fingerprint: u8, second: u8| {
            let found = store.find_retried_replays(&[fingerprint; 32], time(second)).await.unwrap();
            found.into_iter().map(|replay| replay.claim.scope[0]).collect::<Vec<_>>()
        };
        assert_eq!((find(8, 5).await, find(9, 5).await, find(7, 5).await), (vec![1, 2], vec![3], vec![]));
        assert_eq!((find(8, 6).await, find(8, 7).await), (vec![2], vec![]), "their ends");
        assert_eq!(store.find_replay(&[2; 32]).await.unwrap(), Some(running(expected)));
        let (scope, request_id, expires_at) = ([1; 32], "r1".into(), time(40));
        let (retry_until, answer) = (Some(time(30)), answer());
        let stored = ReplayWrite::Finish { scope, request_id, expires_at, retry_until, answer, shared_bytes: None };
        assert_eq!(write_replay(&*store, stored).await, RowWriteOutcome::Done);
        assert_eq!(find(8, 20).await, [1]);
        for (id, remaining) in [("other", vec![1]), ("r1", vec![])] {
            let end = ReplayWrite::EndRetry { scope: [1; 32], request_id: id.into() };
            let is_done = write_replay(&*store, end).await == RowWriteOutcome::Done;
            assert_eq!((is_done, find(8, 20).await), (remaining.is_empty(), remaining));
        }
        let kept = store.find_replay(&[1; 32]).await.unwrap().expect("the answer has another reason");
        assert_eq!(kept.claim.expires_at, time(40));
    }
}

#[tokio::test]
async fn only_expired_claims_are_removed() {
    for Fixture { store, .. } in stores().await {
        for (scope, second) in [(1, 3), (2, 1), (3, 2), (4, 20)] {
            claim(Arc::clone(&store), new_claim(scope, &format!("r{scope}"), second)).await;
        }
        write_replay(&*store, finish_until(11, 2, "r2", answer())).await;
        let remove_expired = async |second, except: &[[u8; 32]], limit| {
            store.remove_expired_replays(time(second), except, limit).await.unwrap()
        };
        let remaining_scopes = async || {
            let replays = store.list_replays().await.unwrap();
            replays.iter().map(|replay| replay.claim.scope[0]).collect::<Vec<_>>()
        };
        assert_eq!(remove_expired(10, &[], 9).await, 0);
        assert_eq!((remove_expired(29, &[[1; 32], [3; 32]], 9).await, remaining_scopes().await), (1, vec![3, 1, 4]));
        assert_eq!((remove_expired(29, &[], 1).await, remaining_scopes().await.len()), (1, 2));
        assert_eq!((remove_expired(29, &[], 9).await, remaining_scopes().await), (1, vec![4]));
    }
}

#[tokio::test]
async fn states_by_fingerprint_are_sorted_newest_first() {
    for Fixture { store, .. } in stores().await {
        let node = NodeId::only();
        let record = |id: &str, second: u8, fingerprint: u8| {
            record! {
                created_at: time(second),
                fingerprint: Some([fingerprint; 32]),
                ..running_record(id)
            }
        };
        let (one, two, other) = (record("r1", 1, 7), record("r2", 2, 7), record("r3", 3, 8));
        let opens: Vec<_> = [&one, &two, &other].map(RowWrite::Open).into();
        store.write_rows(&node, &opens).await.unwrap();
        let failed = record! { state: JobState::Failed, ..one.clone() };
        store.write_rows(&node, &[RowWrite::Close(&failed)]).await.unwrap();
        let states = async |since, limit| store.states_by_fingerprint(&[7; 32], time(since), limit).await.unwrap();
        assert_eq!(states(1, 9).await, [JobState::Running, JobState::Failed]);
        assert_eq!((states(2, 9).await, states(1, 1).await), (vec![JobState::Running], vec![JobState::Running]));
        assert_eq!(states(3, 9).await, []);
    }
}

#[tokio::test]
async fn the_progress_of_a_job_tells_its_end_from_the_death_of_its_process() {
    for Fixture { store, .. } in stores().await {
        let node = NodeId::from("dead");
        let opened = ["r1", "r2"].map(running_record);
        store.write_rows(&node, &opened.each_ref().map(RowWrite::Open)).await.unwrap();
        let progress = async |id: &str| store.job_progress(&id.into()).await.unwrap();
        let expected = |state, ended_at: Option<&str>| Some(JobProgress { state, ended_at: ended_at.map(at) });
        assert_eq!(progress("r1").await, expected(JobState::Running, None));
        store.write_rows(&node, &[RowWrite::Close(&finished_record("r1"))]).await.unwrap();
        store.interrupt_running(&node).await.unwrap();
        assert_eq!(progress("r1").await, expected(JobState::Succeeded, Some("2026-11-21T03:00:08.246Z")));
        assert_eq!(progress("r2").await, expected(JobState::Interrupted, None));
        assert_eq!(progress("r3").await, None);
    }
}

#[tokio::test]
async fn the_requests_of_a_user_for_images_are_listed_as_long_as_they_have_a_claim() {
    for Fixture { store, .. } in stores().await {
        let record = |id: &str, second, user: &str, operation: &str| {
            record! {
                created_at: time(second),
                user: user,
                operation: operation.to_owned(),
                ..running_record(id)
            }
        };
        let records = [
            record("r1", 1, "usr_ada", "create_image"),
            record("r2", 2, "usr_ada", "edit_image"),
            record("r3", 3, "usr_ada", "create_response"),
            record("r4", 4, "usr_ben", "create_image"),
            record("r5", 5, "usr_ada", "create_image"),
            record("r6", 6, "usr_ada", "create_image"),
        ];
        write(&*store, &records.each_ref().map(RowWrite::Open)).await;
        for (scope, id) in [(1, "r1"), (2, "r2"), (3, "r3"), (4, "r4"), (6, "r6")] {
            assert_eq!(claim(Arc::clone(&store), new_claim(scope, id, scope)).await, RowWriteOutcome::Done);
        }
        let listed = async |since, limit| {
            let found = store.image_requests_with_replay(&"usr_ada".into(), time(since), limit).await.unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(listed(1, 9).await, ["r6", "r2", "r1"], "r5 has no claim");
        assert_eq!(
            (listed(2, 9).await, listed(1, 1).await),
            (vec!["r6".to_owned(), "r2".to_owned()], vec!["r6".to_owned()])
        );

        // A repeat was announced for the request, so it has a second claim; the one with the answer is found.
        assert_eq!(claim(Arc::clone(&store), new_claim(9, "r1", 9)).await, RowWriteOutcome::Done);
        assert_eq!(write_replay(&*store, finish(1, "r1", answer())).await, RowWriteOutcome::Done);
        let found = async |id: &str| store.find_replay_of_request(&id.into()).await.unwrap();
        assert_eq!(found("r1").await, Some(stored_with(new_claim(1, "r1", 1), answer())));
        assert_eq!(found("r2").await, Some(running(new_claim(2, "r2", 2))));
        assert_eq!(found("r5").await, None);
    }
}
