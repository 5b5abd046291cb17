//! Tests of what may happen once.

use super::*;

const SCOPE: [u8; 32] = [9; 32];

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

async fn claim(replay: &AnswerReplay) -> OneTimeUse {
    replay.claim_once(SCOPE, Timestamp::now() + hours(12)).await.unwrap()
}

async fn first(replay: &AnswerReplay) -> OneTimeClaim {
    let OneTimeUse::First(claim) = claim(replay).await else { panic!("it was used before") };
    claim
}

async fn repeated(replay: &AnswerReplay) -> Option<String> {
    let OneTimeUse::Repeated(created_id) = claim(replay).await else { panic!("it was not used before") };
    created_id
}

#[tokio::test]
async fn a_repeat_on_any_node_gets_the_created_id() {
    let fixture = ReplayFixture::new().await;
    let (replay, other) = (fixture.open().await, fixture.open_as(NodeId::from("other")).await);
    let claim = first(&replay).await;
    assert_eq!(repeated(&other).await, None, "nothing is created yet");
    claim.complete("key_1").await;
    for replay in [&replay, &other, &fixture.open().await] {
        assert_eq!(repeated(replay).await.as_deref(), Some("key_1"));
    }
}

#[tokio::test]
async fn a_released_right_can_be_used_by_another_node() {
    let fixture = ReplayFixture::new().await;
    let (replay, other) = (fixture.open().await, fixture.open_as(NodeId::from("other")).await);
    first(&replay).await.release().await;
    drop(first(&other).await);
    assert_eq!(repeated(&replay).await, None, "a claim that is dropped stays used");
}

#[tokio::test]
async fn a_claim_is_removed_after_its_end() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    drop(replay.claim_once(SCOPE, Timestamp::now() - hours(1)).await.unwrap());
    replay.idempotent_answers.sweep().await.unwrap();
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn a_failure_of_the_store_is_no_permission() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    fixture.double.failure.set(Some(|| StoreError::Busy));
    assert!(replay.claim_once(SCOPE, Timestamp::now() + hours(12)).await.is_err());
}
