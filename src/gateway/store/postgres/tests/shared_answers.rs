//! Tests of the bytes of answers: they are announced with a row, and end with it.

use super::*;
use crate::gateway::store::{
    AnswerPiece, ReplayClaim, ReplayStore as _, ReplayWrite, SharedAnswerState, SharedAnswers as _, StoredAnswerRow,
};

fn time(second: u8) -> Timestamp {
    format!("2026-02-01T00:00:{second:02}Z").parse().unwrap()
}

/// Makes a claim that begins at `second` and is valid for ten seconds.
fn new_claim(scope: u8, second: u8) -> ReplayClaim {
    ReplayClaim {
        created_at: time(second),
        ..ReplayClaim::new([scope; 32], [7; 32], format!("r{second}").into(), NodeId::only(), time(second + 10))
    }
}

async fn write_replay(store: &SqlStore, write: ReplayWrite) {
    let outcomes = store.write_rows(&NodeId::only(), &[RowWrite::Replay(&write)]).await.unwrap();
    assert_eq!(outcomes, [RowWriteOutcome::Done]);
}

/// Stores a claim with its answer, and announces bytes of this file.
async fn announce(store: &SqlStore, claim: &ReplayClaim, file: &str, bytes: u64) {
    write_replay(store, ReplayWrite::Claim(claim.clone())).await;
    write_replay(store, finish(claim, file, bytes)).await;
}

fn finish(claim: &ReplayClaim, file: &str, bytes: u64) -> ReplayWrite {
    let answer = StoredAnswerRow {
        status: 200,
        content_type: "application/json".to_owned(),
        headers: "{}".to_owned(),
        file: file.to_owned(),
        size: bytes,
        sealed_key: vec![1],
    };
    let ReplayClaim { scope, request_id, expires_at, .. } = claim.clone();
    ReplayWrite::Finish { scope, request_id, expires_at, retry_until: None, answer, shared_bytes: Some(bytes) }
}

/// Returns a piece of three bytes.
fn piece(file: &str, number: u32, is_last: bool) -> AnswerPiece<'_> {
    const BYTES: [[u8; 3]; 2] = [[0, 0xff, 1], [7, 7, 7]];
    AnswerPiece { file, number, is_last, bytes: &BYTES[number as usize] }
}

/// Announces and writes an answer of one piece.
async fn store_answer(store: &SqlStore, claim: &ReplayClaim, file: &str, bytes: u64) {
    announce(store, claim, file, bytes).await;
    assert!(store.as_shared().unwrap().write_answer_piece(piece(file, 0, true)).await.unwrap());
}

async fn piece_count(store: &SqlStore) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM answer_pieces").fetch_one(store.readers.postgres()).await.unwrap()
}

async fn is_complete(store: &SqlStore, file: &str) -> bool {
    store.as_shared().unwrap().find_shared_answer(file).await.unwrap() == Some(SharedAnswerState::Complete)
}

#[tokio::test]
async fn an_answer_is_complete_with_its_last_piece() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    assert!(
        !store.as_shared().unwrap().write_answer_piece(piece("key_1-a", 0, true)).await.unwrap(),
        "it is not announced"
    );
    assert_eq!(store.as_shared().unwrap().find_shared_answer("key_1-a").await.unwrap(), None);
    announce(&store, &new_claim(1, 1), "key_1-a", 4096).await;
    for (number, is_last) in [(0, false), (1, true)] {
        assert_eq!(
            store.as_shared().unwrap().find_shared_answer("key_1-a").await.unwrap(),
            Some(SharedAnswerState::Incomplete)
        );
        assert!(store.as_shared().unwrap().write_answer_piece(piece("key_1-a", number, is_last)).await.unwrap());
    }
    assert!(is_complete(&store, "key_1-a").await);
    assert!(
        !store.as_shared().unwrap().write_answer_piece(piece("key_1-a", 0, false)).await.unwrap(),
        "it has all of its pieces"
    );
    for number in [0, 1] {
        let expected = piece("key_1-a", number, false).bytes.to_vec();
        assert_eq!(store.as_shared().unwrap().read_answer_piece("key_1-a", number).await.unwrap(), Some(expected));
    }
    assert_eq!(store.as_shared().unwrap().read_answer_piece("key_1-a", 2).await.unwrap(), None);
    store.as_shared().unwrap().remove_shared_answer("key_1-a").await.unwrap();
    assert_eq!(
        (store.as_shared().unwrap().find_shared_answer("key_1-a").await.unwrap(), piece_count(&store).await),
        (None, 0)
    );
    assert!(store.find_replay(&[1; 32]).await.unwrap().is_some(), "the row stays");
}

#[tokio::test]
async fn the_bytes_end_with_their_row() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let removed = new_claim(1, 1);
    store_answer(&store, &removed, "key_1-a", 4096).await;
    write_replay(&store, ReplayWrite::Remove { scope: removed.scope, request_id: removed.request_id }).await;
    assert_eq!(piece_count(&store).await, 0);

    store_answer(&store, &new_claim(2, 1), "key_1-b", 4096).await;
    store_answer(&store, &new_claim(3, 9), "key_1-c", 4096).await;
    // The first claim has expired, and another request has the scope now.
    write_replay(&store, ReplayWrite::Claim(new_claim(2, 12))).await;
    assert_eq!(
        (store.as_shared().unwrap().find_shared_answer("key_1-b").await.unwrap(), piece_count(&store).await),
        (None, 1)
    );

    assert_eq!(store.remove_expired_replays(time(18), &[], 9).await.unwrap(), 0);
    assert!(is_complete(&store, "key_1-c").await);
    assert_eq!(store.remove_expired_replays(time(19), &[], 9).await.unwrap(), 1);
    assert_eq!(piece_count(&store).await, 0);
}

#[tokio::test]
async fn many_expired_bytes_are_removed_in_steps() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    for number in 0..5 {
        store_answer(&store, &new_claim(number, 1), &format!("key_1-{number}"), 40 << 20).await;
    }
    store_answer(&store, &new_claim(9, 9), "key_1-new", 4096).await;
    assert_eq!(store.remove_expired_replays(time(11), &[], 9).await.unwrap(), 5);
    assert_eq!(piece_count(&store).await, 1);
}

#[tokio::test]
async fn the_oldest_answers_of_the_largest_keys_are_removed_first() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    for (scope, file) in (1..).zip(["key_1-a", "key_2-a", "key_2-b", "key_2-c", "key_2-d"]) {
        store_answer(&store, &new_claim(scope, 1), file, 4096).await;
    }
    store.as_shared().unwrap().limit_shared_answers(5 * 4096).await.unwrap();
    assert_eq!(piece_count(&store).await, 5, "everything fits");
    store.as_shared().unwrap().limit_shared_answers(3 * 4096).await.unwrap();
    for (file, expected) in
        [("key_1-a", true), ("key_2-a", false), ("key_2-b", false), ("key_2-c", true), ("key_2-d", true)]
    {
        assert_eq!(is_complete(&store, file).await, expected, "{file}");
    }
    store.as_shared().unwrap().limit_shared_answers(0).await.unwrap();
    assert_eq!(piece_count(&store).await, 0);
}

#[tokio::test]
async fn an_answer_can_be_announced_again_after_a_lost_commit() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    let claim = new_claim(1, 1);
    announce(&store, &claim, "key_1-a", 4096).await;
    let mut connection = store.writer.postgres().acquire().await.unwrap();
    let second_try = replay_writes::write(&mut connection, &finish(&claim, "key_1-a", 4096), true).await.unwrap();
    assert_eq!(second_try, RowWriteOutcome::Done);
    let other = replay_writes::write(&mut connection, &finish(&claim, "key_1-b", 4096), true).await.unwrap();
    assert_eq!(other, RowWriteOutcome::NoEffect);
    assert_eq!(store.as_shared().unwrap().find_shared_answer("key_1-b").await.unwrap(), None);
}

/// The commit of a piece does not wait for the disk, and later commits of the same connection wait again.
#[tokio::test]
async fn only_the_commit_of_a_piece_does_not_wait_for_the_disk() {
    let Some((_dir, _url, store)) = new_postgres_store().await else { return };
    store_answer(&store, &new_claim(1, 1), "key_1-a", 4096).await;
    let mut connection = store.writer.postgres().acquire().await.unwrap();
    let setting: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut *connection).await.unwrap();
    assert_eq!(setting, "on");
}
