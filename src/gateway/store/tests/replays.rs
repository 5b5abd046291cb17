//! Claims of answers that are made once.

use super::*;

fn moment(second: u8) -> Timestamp {
    at(&format!("2026-02-01T00:00:{second:02}Z"))
}

/// Makes a claim that begins at that second and lasts ten seconds.
fn row(scope: u8, request_id: &str, second: u8) -> ReplayClaim {
    ReplayClaim {
        scope: [scope; 32],
        digest: [7; 32],
        request_id: request_id.into(),
        node: NodeId::only(),
        created_at: moment(second),
        expires_at: moment(second + 10),
    }
}

fn done() -> StoredAnswerRow {
    StoredAnswerRow {
        status: 200,
        content_type: "application/json".to_owned(),
        headers: r#"{"x-request-id":"r1"}"#.to_owned(),
        file: "r1.answer".to_owned(),
        size: 5_000_000_000,
        sealed_key: vec![1, 2, 3],
    }
}

fn running(row: ReplayClaim) -> StoredReplay {
    StoredReplay { claim: row, state: ReplayState::Running }
}

fn finished_as(row: ReplayClaim, done: StoredAnswerRow) -> StoredReplay {
    StoredReplay { claim: row, state: ReplayState::Stored(done) }
}

async fn write_replay(store: &dyn Store, replay: ReplayWrite) -> RowWriteOutcome {
    write(store, &[RowWrite::Replay(&replay)]).await.remove(0)
}

async fn claim(store: Arc<dyn Store>, row: ReplayClaim) -> RowWriteOutcome {
    write_replay(&*store, ReplayWrite::Claim(row)).await
}

fn finish(scope: u8, request_id: &str, done: StoredAnswerRow) -> ReplayWrite {
    ReplayWrite::Finish { scope: [scope; 32], request_id: request_id.into(), done }
}

fn taken(by: StoredReplay) -> RowWriteOutcome {
    RowWriteOutcome::AlreadyClaimed(Box::new(by))
}

#[tokio::test]
async fn of_many_who_claim_at_once_one_makes_the_answer() {
    for Fixture { store, other, .. } in stores().await {
        let mut tasks = JoinSet::new();
        for (number, store) in [&store, &other].into_iter().cycle().take(20).enumerate() {
            tasks.spawn(claim(Arc::clone(store), row(1, &format!("r{number}"), 1)));
        }
        let claimed = tasks.join_all().await;
        assert_eq!(claimed.iter().filter(|claimed| **claimed == RowWriteOutcome::Done).count(), 1);
        let stored = store.find_replay(&[1; 32]).await.unwrap().unwrap();
        // The later requests were told of the existing claim.
        assert_eq!(claimed.into_iter().filter(|claimed| *claimed == taken(stored.clone())).count(), 19);
    }
}

#[tokio::test]
async fn an_answer_comes_back_with_every_field() {
    for Fixture { store, other, .. } in stores().await {
        assert_eq!(claim(Arc::clone(&store), row(1, "r1", 1)).await, RowWriteOutcome::Done);
        let found = claim(Arc::clone(&other), ReplayClaim { digest: [8; 32], ..row(1, "r2", 2) }).await;
        assert_eq!(found, taken(running(row(1, "r1", 1))));
        assert_eq!(write_replay(&*store, finish(1, "r1", done())).await, RowWriteOutcome::Done);
        let found = claim(Arc::clone(&other), row(1, "r2", 2)).await;
        assert_eq!(found, taken(finished_as(row(1, "r1", 1), done())));
    }
}

#[tokio::test]
async fn claims_and_answers_share_a_transaction_with_records() {
    for Fixture { store, .. } in stores().await {
        let (opened, closed, refused) = (running_record("r1"), finished_record("r1"), running_record("r2"));
        let claims = ["r1", "r2", "r3"].map(|id| ReplayWrite::Claim(row(1, id, 1)));
        let end = finish(1, "r1", done());
        let writes = [
            RowWrite::Replay(&claims[0]),
            RowWrite::Open(&opened),
            RowWrite::Replay(&claims[1]),
            RowWrite::Close(&closed),
            RowWrite::Replay(&end),
            RowWrite::Replay(&end),
            RowWrite::Replay(&claims[2]),
        ];
        // Each claim gets its answer at its own position in the order.
        let expected = [
            RowWriteOutcome::Done,
            RowWriteOutcome::Done,
            taken(running(row(1, "r1", 1))),
            RowWriteOutcome::Done,
            RowWriteOutcome::Done,
            RowWriteOutcome::NoEffect,
            taken(finished_as(row(1, "r1", 1), done())),
        ];
        assert_eq!(write(&*store, &writes).await, expected);

        // No database accepts this row, so nothing of the same transaction is stored.
        let claim = ReplayWrite::Claim(row(2, "r2", 1));
        let hopeless = finish(2, "r2", StoredAnswerRow { size: u64::MAX, ..done() });
        let writes = [RowWrite::Open(&refused), RowWrite::Replay(&claim), RowWrite::Replay(&hopeless)];
        assert!(store.write_rows(&NodeId::only(), &writes).await.is_err());
        assert_eq!(store.find_record(&refused.request_id, None).await.unwrap(), None);
        assert_eq!(store.find_replay(&[2; 32]).await.unwrap(), None);
    }
}

#[tokio::test]
async fn what_is_over_may_be_claimed_anew_and_not_a_moment_before() {
    for Fixture { store, .. } in stores().await {
        claim(Arc::clone(&store), row(1, "r1", 1)).await;
        write_replay(&*store, finish(1, "r1", done())).await;
        assert!(matches!(claim(Arc::clone(&store), row(1, "r2", 10)).await, RowWriteOutcome::AlreadyClaimed(_)));
        assert_eq!(claim(Arc::clone(&store), row(1, "r3", 11)).await, RowWriteOutcome::Done);
        assert_eq!(store.list_replays().await.unwrap(), [running(row(1, "r3", 11))]);
    }
}

#[tokio::test]
async fn an_answer_is_stored_once_and_only_for_its_own_claim() {
    for Fixture { store, .. } in stores().await {
        let finish = async |scope, id: &str, status| {
            let written = write_replay(&*store, finish(scope, id, StoredAnswerRow { status, ..done() })).await;
            written == RowWriteOutcome::Done
        };
        assert!(!finish(1, "r1", 200).await);
        claim(Arc::clone(&store), row(1, "r1", 1)).await;
        claim(Arc::clone(&store), row(1, "r2", 11)).await;
        // The claim of the first request has expired, and its answer comes late.
        assert!(!finish(1, "r1", 500).await);
        assert!(!finish(2, "r2", 500).await);
        assert!(finish(1, "r2", 200).await);
        assert!(!finish(1, "r2", 500).await);
        assert_eq!(store.list_replays().await.unwrap(), [finished_as(row(1, "r2", 11), done())]);
    }
}

#[tokio::test]
async fn forgetting_touches_no_other_claim() {
    for Fixture { store, .. } in stores().await {
        for (scope, id) in [(1, "r1"), (2, "r2")] {
            claim(Arc::clone(&store), row(scope, id, 1)).await;
        }
        let forget = async |scope, id: &str| {
            let forget = ReplayWrite::Remove { scope: [scope; 32], request_id: id.into() };
            write_replay(&*store, forget).await == RowWriteOutcome::Done
        };
        assert!(!forget(1, "r2").await);
        assert!(forget(1, "r1").await);
        assert!(!forget(1, "r1").await);
        assert_eq!(store.find_replay(&[1; 32]).await.unwrap(), None);
        assert_eq!(store.list_replays().await.unwrap(), [running(row(2, "r2", 1))]);
        assert_eq!(claim(Arc::clone(&store), row(1, "r3", 2)).await, RowWriteOutcome::Done);
    }
}

#[tokio::test]
async fn what_is_over_is_cleared_and_nothing_else() {
    for Fixture { store, .. } in stores().await {
        for (scope, second) in [(1, 3), (2, 1), (3, 2), (4, 20)] {
            claim(Arc::clone(&store), row(scope, &format!("r{scope}"), second)).await;
        }
        write_replay(&*store, finish(2, "r2", done())).await;
        let clear = async |second, but: &[[u8; 32]], limit| {
            store.remove_expired_replays(moment(second), but, limit).await.unwrap()
        };
        let left = async || {
            let all = store.list_replays().await.unwrap();
            all.iter().map(|replay| replay.claim.scope[0]).collect::<Vec<_>>()
        };
        assert_eq!(clear(10, &[], 9).await, 0);
        assert_eq!((clear(29, &[[1; 32], [3; 32]], 9).await, left().await), (1, vec![3, 1, 4]));
        assert_eq!((clear(29, &[], 1).await, left().await.len()), (1, 2));
        assert_eq!((clear(29, &[], 9).await, left().await), (1, vec![4]));
    }
}

#[tokio::test]
async fn the_twins_of_a_request_are_told_newest_first() {
    for Fixture { store, .. } in stores().await {
        let node = NodeId::only();
        let record = |id: &str, second: u8, fingerprint: u8| Record {
            created_at: moment(second),
            fingerprint: Some([fingerprint; 32]),
            ..running_record(id)
        };
        let (one, two, other) = (record("r1", 1, 7), record("r2", 2, 7), record("r3", 3, 8));
        let opens: Vec<_> = [&one, &two, &other].map(RowWrite::Open).into();
        store.write_rows(&node, &opens).await.unwrap();
        let failed = Record { state: JobState::Failed, ..one.clone() };
        store.write_rows(&node, &[RowWrite::Close(&failed)]).await.unwrap();
        let twins = async |since, limit| store.states_by_fingerprint(&[7; 32], moment(since), limit).await.unwrap();
        assert_eq!(twins(1, 9).await, [JobState::Running, JobState::Failed]);
        assert_eq!((twins(2, 9).await, twins(1, 1).await), (vec![JobState::Running], vec![JobState::Running]));
        assert_eq!(twins(3, 9).await, []);
    }
}

#[tokio::test]
async fn the_maker_of_a_response_is_told_to_its_user_alone() {
    for Fixture { store, .. } in stores().await {
        let done = finished_record("r1");
        let write = [RowWrite::Open(&running_record("r1")), RowWrite::Close(&done)];
        store.write_rows(&NodeId::only(), &write).await.unwrap();
        let maker = async |id: &str, user: &str| {
            store.account_of_response(id, &user.into(), &"key_other".into()).await.unwrap()
        };
        assert_eq!(maker("resp_1", "usr_1").await.as_deref(), Some("primary"));
        assert_eq!((maker("resp_1", "usr_2").await, maker("resp_2", "usr_1").await), (None, None));
    }
}
