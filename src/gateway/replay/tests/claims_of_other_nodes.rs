//! Tests of idempotency keys whose jobs run on another node.

use super::keyed_requests::{KEY, check, claim, outcome_name, spawn};
use super::*;
use crate::gateway::store::testing::{finished_record, record, running_record};
use crate::gateway::store::{RecordStore as _, RowWrite};

/// Longer than a node needs to find an outcome.
const LONG_ENOUGH: Duration = Duration::from_millis(700);

/// Two nodes with one folder and one store.
struct TwoNodes {
    fixture: ReplayFixture,
    this_node: Arc<AnswerStore>,
    other_node: Arc<AnswerStore>,
    job: Arc<Job>,
}

impl TwoNodes {
    async fn open_with(set: impl FnOnce(&mut config::ReplayConfig)) -> Self {
        let mut fixture = ReplayFixture::new().await;
        set(&mut fixture.settings);
        let this_node = fixture.open().await;
        let other_node = fixture.open_as(NodeId::from("other")).await;
        Self { fixture, this_node, other_node, job: job("red") }
    }

    fn repeat(&self) -> tokio::task::JoinHandle<&'static str> {
        let (this_node, ada, job) = (Arc::clone(&self.this_node), self.fixture.ada.clone(), Arc::clone(&self.job));
        spawn(async move { outcome_name(&this_node.claim_or_follow(&ada, &job, KEY, "req_2").await.unwrap()) })
    }

    async fn assert_waits(&self) {
        let repeat = self.repeat();
        tokio::time::sleep(LONG_ENOUGH).await;
        assert!(!repeat.is_finished());
        repeat.abort();
        assert!(self.is_running().await);
    }

    async fn assert_lost(&self) {
        check(&self.this_node, &self.fixture.ada, &self.job, "lost").await;
        assert!(!self.is_running().await);
    }

    async fn is_running(&self) -> bool {
        let operation = SharedTask::from(&self.job).operation_id();
        let found = self.this_node.find_request(&self.fixture.ada, operation, KEY).await.unwrap();
        found.expect("a claim").is_running
    }

    async fn write(&self, write: RowWrite<'_>) {
        self.fixture.store.write_rows(&NodeId::from("other"), &[write]).await.unwrap();
    }
}

#[tokio::test]
async fn a_claim_of_another_node_is_read_until_it_has_an_answer() {
    let nodes = TwoNodes::open_with(|_| {}).await;
    let first = claim(&nodes.other_node, &nodes.fixture.ada, &nodes.job).await;
    let waiting = nodes.repeat();
    first.record(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(waiting.await.unwrap(), "follow");
}

#[tokio::test]
async fn a_claim_lasts_as_long_as_its_job_however_short_the_window() {
    let nodes = TwoNodes::open_with(|settings| settings.idempotency_window = Duration::ZERO).await;
    let first = claim(&nodes.other_node, &nodes.fixture.ada, &nodes.job).await;
    let repeat = nodes.repeat();
    nodes.this_node.sweep().await.unwrap();
    tokio::time::sleep(LONG_ENOUGH).await;
    assert!(!repeat.is_finished(), "it waits for the job");
    first.record(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(repeat.await.unwrap(), "follow");
    check(&nodes.this_node, &nodes.fixture.ada, &nodes.job, "claimed").await;
}

#[tokio::test]
async fn the_answer_of_a_node_that_died_is_lost_when_its_record_is_closed() {
    let nodes = TwoNodes::open_with(|_| {}).await;
    let first = claim(&nodes.other_node, &nodes.fixture.ada, &nodes.job).await;
    nodes.assert_waits().await;
    nodes.write(RowWrite::Open(&running_record("req_1"))).await;
    nodes.assert_waits().await;
    nodes.fixture.store.interrupt_running(&NodeId::from("other")).await.unwrap();
    nodes.assert_lost().await;
    drop(first);
}

#[tokio::test]
async fn an_answer_that_is_not_stored_after_the_end_of_its_job_is_lost_after_a_while() {
    for (seconds_ago, is_lost) in [(10, false), (60, true)] {
        let nodes = TwoNodes::open_with(|_| {}).await;
        let first = claim(&nodes.other_node, &nodes.fixture.ada, &nodes.job).await;
        let created_at = Timestamp::now() - Duration::from_secs(seconds_ago);
        nodes.write(RowWrite::Open(&record! { created_at, ..running_record("req_1") })).await;
        nodes.write(RowWrite::Close(&record! { created_at, latency_ms: Some(0), ..finished_record("req_1") })).await;
        match is_lost {
            true => nodes.assert_lost().await,
            false => nodes.assert_waits().await,
        }
        drop(first);
    }
}
