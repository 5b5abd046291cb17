//! Tests of what may happen once.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const SCOPE: [u8; 32] = [9; 32];

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

async fn claim(replay: &Arc<AnswerStore>) -> OneTimeUse {
    replay.claim_once(SCOPE, Timestamp::now() + hours(12)).await.unwrap()
}

async fn first(replay: &Arc<AnswerStore>) -> OneTimeClaim {
    let OneTimeUse::First(claim) = claim(replay).await else { panic!("it was used before") };
    claim
}

async fn repeated(replay: &Arc<AnswerStore>) -> Option<String> {
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
    replay.sweep().await.unwrap();
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn a_failure_of_the_store_is_no_permission() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    fixture.double.failure.set(Some(|| StoreError::Busy));
    assert!(replay.claim_once(SCOPE, Timestamp::now() + hours(12)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_one_scope_runs_alone_on_all_nodes() {
    let fixture = ReplayFixture::new().await;
    let nodes = [fixture.open().await, fixture.open_as(NodeId::from("other")).await].map(Arc::new);
    let running = Arc::new(AtomicUsize::new(0));
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..10 {
        let (node, running) = (Arc::clone(&nodes[number % 2]), Arc::clone(&running));
        let work = async move {
            let others = running.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            others
        };
        requests.spawn(async move { node.run_alone(SCOPE, work).await.unwrap() });
    }
    assert_eq!(requests.join_all().await, [0; 10]);
    assert_eq!(fixture.store.list_replays().await.unwrap(), [], "every turn has ended");
}

#[tokio::test]
async fn work_continues_and_its_turn_ends_if_its_caller_leaves() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (open, gate) = tokio::sync::oneshot::channel::<()>();
    let is_done = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&is_done);
    let work = async move {
        begun.send(()).unwrap();
        gate.await.unwrap();
        done.store(1, Ordering::SeqCst);
    };
    tokio::select! {
        _ = replay.run_alone(SCOPE, work) => panic!("the gate is closed"),
        result = has_begun => result.unwrap(),
    }
    open.send(()).unwrap();
    let seen = replay.run_alone(SCOPE, async move { is_done.load(Ordering::SeqCst) }).await.unwrap();
    assert_eq!(seen, 1, "the first work was completed before the second began");
}
