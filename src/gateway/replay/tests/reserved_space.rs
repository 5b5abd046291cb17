//! Tests of disk space that is reserved before an answer is made.

use super::keyed_requests::{check, claim, follow, outcome_name};
use super::*;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::replay::claim_guard::ClaimGuard;

/// Claims a key of this request, and reserves space for its answer.
async fn reserve(
    replay: &Arc<AnswerStore>,
    caller: &Caller,
    key: &str,
    bytes: u64,
) -> (AnswerReader, Option<ClaimGuard>) {
    match replay.claim_or_follow(caller, &job(key), key, &format!("req_{key}")).await.unwrap() {
        ClaimOutcome::Claimed(mut guard) => {
            let reader = guard.answer_reader();
            let admission = RequestBudgets::default_for_test().admit_for_test("usr_1", "key_1");
            match replay.reserve_space(&admission, bytes).await {
                Ok(space) => guard.use_space(space),
                Err(error) => {
                    guard.record::<ChannelAnswer>(Err(error)).await;
                    return (reader, None);
                }
            }
            (reader, Some(*guard))
        }
        outcome => panic!("{}", outcome_name(&outcome)),
    }
}

#[tokio::test]
async fn a_request_whose_answer_has_no_space_costs_nothing_and_can_be_sent_again() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let (_, first) = reserve(&replay, &fixture.ada, "first", 40 * MIB).await;
    let first = first.expect("space for the first answer");
    let (reader, second) = reserve(&replay, &fixture.bob, "second", 40 * MIB).await;
    assert!(second.is_none());
    let head = reader.head().await.unwrap();
    assert_eq!(
        (head.status, head.headers["x-should-retry"].as_str(), head.headers["retry-after"].as_str()),
        (503, "true", "5")
    );
    assert!(String::from_utf8(read(reader).await.unwrap()).unwrap().contains("Nothing was spent"));
    // The space that the first answer does not need is free again.
    first.record(Ok(ChannelAnswer::complete(&bytes(100_000)))).await;
    let (_, second) = reserve(&replay, &fixture.bob, "second", 40 * MIB).await;
    assert!(second.is_some(), "its claim was released");
}

#[tokio::test]
async fn an_answer_that_is_larger_than_its_space_is_kept_in_memory_if_the_disk_is_full() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let (reader, first) = reserve(&replay, &fixture.ada, "first", MIB).await;
    let (_, others) = reserve(&replay, &fixture.bob, "others", 63 * MIB).await;
    let (first, _others) = (first.expect("space"), others.expect("space"));
    let answer = bytes(3_000_000);
    // Nobody reads it meanwhile: its writer waits for no reader.
    first.record(Ok(ChannelAnswer::complete(&answer))).await;
    assert_eq!(read(reader).await.unwrap(), answer);
    let found = replay.find_request(&fixture.ada, "create_image", "first").await.unwrap().expect("the request");
    assert!(!found.is_running);
    let (found_head, reader) = found.answer.expect("the answer");
    assert_eq!((found_head, read(reader).await.unwrap()), (head(), answer.clone()));
    match replay.claim_or_follow(&fixture.ada, &job("first"), "first", "req_again").await.unwrap() {
        ClaimOutcome::Answer(reader) => assert_eq!(read(reader).await.unwrap(), answer),
        outcome => panic!("{}", outcome_name(&outcome)),
    }
    replay.unstored.remove_expired(Instant::now() + Duration::from_secs(3600));
    let found = replay.find_request(&fixture.ada, "create_image", "first").await.unwrap().expect("the request");
    assert!(found.answer.is_none(), "its time is over");
}

/// Memory has a limit too: an answer beyond it is passed on to its present reader.
#[tokio::test]
async fn an_answer_without_space_on_disk_and_in_memory_reaches_its_present_reader() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let (reader, first) = reserve(&replay, &fixture.ada, "first", MIB).await;
    let (_, others) = reserve(&replay, &fixture.bob, "others", 63 * MIB).await;
    let (first, _others) = (first.expect("space"), others.expect("space"));
    let _memory = replay.unstored.reserve(127 * MIB, true).expect("memory");
    let answer = bytes(4_000_000);
    let (received, ()) = tokio::join!(read(reader), first.record(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(received.unwrap(), answer);
    let found = replay.find_request(&fixture.ada, "create_image", "first").await.unwrap().expect("the request");
    assert!(found.answer.is_none());
}

#[tokio::test]
async fn the_answer_of_a_request_that_reserves_space_is_stored_like_any_other() {
    let fixture = ReplayFixture::new().await;
    let answer = bytes(200_000);
    let (_, guard) = reserve(&fixture.open().await, &fixture.ada, "first", MIB).await;
    guard.expect("space").record(Ok(ChannelAnswer::complete(&answer))).await;
    let replay = fixture.open().await;
    match replay.claim_or_follow(&fixture.ada, &job("first"), "first", "req_again").await.unwrap() {
        ClaimOutcome::Answer(reader) => assert_eq!(read(reader).await.unwrap(), answer),
        outcome => panic!("{}", outcome_name(&outcome)),
    }
    check(&replay, &fixture.ada, &job("other"), "claimed").await;
}

#[tokio::test]
async fn a_user_reserves_no_more_of_the_disk_than_its_part() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let budgets =
        RequestBudgets::with_limits(|limits| (limits.disk_per_user, limits.disk_per_key) = (20 * MIB, 15 * MIB));
    let of = |user: &str, key: &str| budgets.admit_for_test(user, key);
    let first = replay.reserve_space(&of("usr_1", "key_1"), 10 * MIB).await.unwrap();
    for (key, bytes) in [("key_1", 6 * MIB), ("key_2", 11 * MIB)] {
        let refused = replay.reserve_space(&of("usr_1", key), bytes).await;
        assert!(matches!(refused, Err(Error::BudgetExceeded(_))), "{key}");
    }
    replay.reserve_space(&of("usr_2", "key_3"), 15 * MIB).await.unwrap();
    drop(first);
    replay.reserve_space(&of("usr_1", "key_1"), 15 * MIB).await.unwrap();
}

#[tokio::test]
async fn an_answer_is_kept_until_its_last_reason_ends() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.idempotency_window = Duration::ZERO;
    let (replay, job) = (fixture.open().await, job("red"));
    let mut shown = claim(&replay, &fixture.ada, &job).await;
    shown.keep_for(RUN_WINDOW);
    shown.keep_for(Duration::from_secs(1));
    shown.record(Ok(ChannelAnswer::complete(b"image"))).await;
    let kept_until = fixture.store.list_replays().await.unwrap()[0].claim.expires_at;
    assert!(kept_until > Timestamp::now() + RUN_WINDOW - Duration::from_secs(60));
    drop(replay);
    // A start knows the ages of the files only.
    let replay = fixture.open().await;
    replay.sweep().await.unwrap();
    assert_eq!(read(follow(&replay, &fixture.ada, &job).await).await.unwrap(), b"image");
}
