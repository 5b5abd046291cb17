//! Tests of repeats after `Error::InProgress` that another node gets.

use super::keyed_requests::spawn;
use super::shared_answers::SharingNodes;
use super::*;
use crate::gateway::store::testing::record;
use crate::gateway::store::testing::running_record;
use crate::gateway::store::{JobRecord, JobState, RecordStore as _, RowWrite};

/// A job of the first node whose caller got `Error::InProgress`.
struct AnnouncedJob {
    nodes: SharingNodes,
    job: Arc<Job>,
    record: JobRecord,
    sender: AnswerSender<ChannelAnswer>,
}

impl AnnouncedJob {
    /// A job whose record runs.
    async fn begin() -> Self {
        let nodes = SharingNodes::open().await;
        // A client that does not mark its retries sends a file.
        let (job, ada) = (nodes.fixture.edit(1), &nodes.fixture.ada);
        let fingerprint = nodes.first.fingerprint(ada, &SharedTask::from(&job), false).await;
        let record = record! { fingerprint, created_at: Timestamp::now(), ..running_record("req_1") };
        nodes.fixture.store.write_rows(&NodeId::only(), &[RowWrite::Open(&record)]).await.unwrap();
        let registration =
            JobRegistration { request_id: "req_1".to_owned(), announces_retries: false, fingerprint, ..registration() };
        let (receiver, sender) = nodes.first.register_job(ada, &job, registration);
        assert_eq!(receiver.answer(Instant::now()).await.err(), Some(Error::InProgress));
        Self { nodes, job, record, sender }
    }

    async fn close_record(&self, state: JobState) {
        let closed = record! { state, latency_ms: Some(1), ..self.record.clone() };
        self.nodes.fixture.store.write_rows(&NodeId::only(), &[RowWrite::Close(&closed)]).await.unwrap();
    }
}

/// Looks up the earlier request on a node, as a request with or without a retry mark does.
async fn find(node: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>, is_marked: bool) -> Option<AnswerReader> {
    let task = SharedTask::from(job);
    let registration = JobRegistration { announces_retries: is_marked, ..registration() };
    let registration = node.with_fingerprint(caller, &task, registration).await;
    match is_marked {
        true => node.find_earlier_answer(caller, &task, &registration).await.unwrap(),
        false => node.find_answer_in_progress(caller, &task, &registration).await.unwrap(),
    }
}

#[tokio::test]
async fn a_repeat_on_another_node_waits_for_the_answer() {
    for is_marked in [false, true] {
        let job = AnnouncedJob::begin().await;
        let (second, ada, task) = (job.nodes.second, job.nodes.fixture.ada.clone(), Arc::clone(&job.job));
        assert!(find(&second, &job.nodes.fixture.bob, &job.job, is_marked).await.is_none());
        let node = Arc::clone(&second);
        let waiting = spawn(async move { read(find(&node, &ada, &task, is_marked).await.unwrap()).await.unwrap() });
        tokio::time::sleep(lookup::RUNNING_WAIT_MAX + Duration::from_millis(200)).await;
        assert!(!waiting.is_finished(), "the job runs");
        job.sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
        assert_eq!(waiting.await.unwrap(), b"an image");
        second.drain().await;
        assert_eq!(job.nodes.fixture.store.list_replays().await.unwrap(), [], "no other repeat gets it");
    }
}

#[tokio::test]
async fn an_announced_job_that_ended_without_an_answer_is_reported_once() {
    for (state, is_unknown) in [(JobState::Failed, false), (JobState::Interrupted, true)] {
        let job = AnnouncedJob::begin().await;
        job.close_record(state).await;
        let (second, ada) = (&job.nodes.second, &job.nodes.fixture.ada);
        match find(second, ada, &job.job, false).await {
            Some(reader) => assert_eq!((reason(reader).await.as_str(), is_unknown), ("outcome_unknown", true)),
            None => assert!(!is_unknown, "{state:?}"),
        }
        assert!(find(second, ada, &job.job, false).await.is_none());
        assert_eq!(job.nodes.fixture.store.list_replays().await.unwrap(), []);
    }
}

#[tokio::test]
async fn each_job_has_an_announcement_of_its_own() {
    let AnnouncedJob { nodes, job, record, .. } = AnnouncedJob::begin().await;
    let ada = &nodes.fixture.ada;
    let registration =
        JobRegistration { request_id: "req_2".to_owned(), fingerprint: record.fingerprint, ..registration() };
    let (receiver, _sender) = nodes.first.register_job::<ChannelAnswer>(ada, &job, registration);
    assert_eq!(receiver.answer(Instant::now()).await.err(), Some(Error::InProgress));
    let announced = nodes.fixture.store.list_replays().await.unwrap();
    let requests: Vec<_> = announced.iter().map(|replay| replay.claim.request_id.as_str()).collect();
    assert_eq!(requests, ["req_1", "req_2"]);
    assert!(announced.iter().all(|replay| replay.claim.repeat_expected));
}

#[tokio::test]
async fn the_node_of_the_job_finds_it_in_memory_and_removes_the_announcement() {
    let job = AnnouncedJob::begin().await;
    assert_eq!(job.nodes.fixture.store.list_replays().await.unwrap().len(), 1);
    let AnnouncedJob { nodes, job, sender, .. } = job;
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let reader = find(&nodes.first, &nodes.fixture.ada, &job, false).await.unwrap();
    assert_eq!(read(reader).await.unwrap(), b"an image");
    nodes.first.drain().await;
    assert_eq!(nodes.fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn a_job_whose_caller_left_without_the_error_is_not_announced() {
    let nodes = SharingNodes::open().await;
    let (job, ada) = (job("red"), &nodes.fixture.ada);
    let fingerprint = nodes.first.fingerprint(ada, &SharedTask::from(&job), false).await;
    let registration =
        JobRegistration { request_id: "req_1".to_owned(), announces_retries: false, fingerprint, ..registration() };
    let (receiver, sender) = nodes.first.register_job(ada, &job, registration);
    drop(receiver);
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert!(find(&nodes.second, ada, &job, false).await.is_none(), "an equal request is a new one");
}
