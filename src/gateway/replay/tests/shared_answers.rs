//! Tests of answers whose bytes several nodes share. Each node has a folder of its own, and all have one store.

use super::keyed_requests::{check, claim, follow, spawn};
use super::*;
use crate::gateway::replay::disk_budget::EvictableStorage as _;
use crate::gateway::store::testing::{SharedAnswersDouble, record, running_record};
use crate::gateway::store::{JobState, RecordStore as _, ReplayState, RowWrite};

/// An answer of three pieces.
const LENGTH: usize = 600_000;

pub(super) struct SharingNodes {
    pub(super) fixture: ReplayFixture,
    second_dir: TempDir,
    pub(super) first: Arc<AnswerStore>,
    pub(super) second: Arc<AnswerStore>,
}

impl SharingNodes {
    pub(super) async fn open() -> Self {
        Self::open_with(|_| {}).await
    }

    async fn open_with(set: impl FnOnce(&mut config::ReplayConfig)) -> Self {
        let mut fixture = ReplayFixture::with_double(RecordStoreDouble::with_shared_answers).await;
        set(&mut fixture.settings);
        let second_dir = TempDir::new().unwrap();
        let first = fixture.open().await;
        let second = fixture.open_in(FreeSpace::new(second_dir.path().to_owned(), 0), NodeId::from("second")).await;
        Self { fixture, second_dir, first, second }
    }

    fn shared(&self) -> &SharedAnswersDouble {
        self.fixture.double.shared_answers.as_ref().unwrap()
    }

    /// Runs the job of an idempotency key on the first node.
    async fn answer_on_first(&self, job: &Arc<Job>, answer: &[u8]) {
        claim(&self.first, &self.fixture.ada, job).await.record(Ok(ChannelAnswer::complete(answer))).await;
    }

    async fn wait_until_shared(&self, count: usize) {
        self.fixture.wait_until(|_| self.shared().complete_count() == count).await;
    }

    async fn wait_until_withdrawn(&self) {
        self.fixture.wait_until(|_| self.shared().count() == 0).await;
    }

    fn second_folder(&self) -> std::path::PathBuf {
        self.second_dir.path().join(FOLDER)
    }

    fn second_bytes(&self) -> u64 {
        self.second.folder.budget().used()
    }
}

#[tokio::test]
async fn another_node_sends_the_same_answer_and_keeps_its_file() {
    let nodes = SharingNodes::open().await;
    let (job, answer) = (job("red"), bytes(LENGTH));
    nodes.answer_on_first(&job, &answer).await;
    nodes.wait_until_shared(1).await;
    let reader = follow(&nodes.second, &nodes.fixture.ada, &job).await;
    assert_eq!((reader.head().await.unwrap(), reader.size_hint().exact()), (head(), Some(LENGTH as u64)));
    assert_eq!(read(reader).await.unwrap(), answer);
    assert!(nodes.second_bytes() >= LENGTH as u64, "the file counts like the answers of the node");
    // The pieces are needed once: the file is there, also after a restart of the node.
    nodes.shared().lose_last_pieces();
    assert_eq!(read(follow(&nodes.second, &nodes.fixture.ada, &job).await).await.unwrap(), answer);
    let free = FreeSpace::new(nodes.second_dir.path().to_owned(), 0);
    let restarted = nodes.fixture.open_in(free, NodeId::from("second")).await;
    assert_eq!(read(follow(&restarted, &nodes.fixture.ada, &job).await).await.unwrap(), answer);
    check(&restarted, &nodes.fixture.ada, &super::job("blue"), "conflict").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_on_one_node_read_the_pieces_once() {
    let nodes = SharingNodes::open().await;
    let (job, answer) = (job("red"), bytes(LENGTH));
    nodes.answer_on_first(&job, &answer).await;
    nodes.wait_until_shared(1).await;
    let second = nodes.second;
    let mut repeats = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (second, ada, job) = (Arc::clone(&second), nodes.fixture.ada.clone(), Arc::clone(&job));
        repeats.spawn(async move { read(follow(&second, &ada, &job).await).await.unwrap() });
    }
    assert!(repeats.join_all().await.iter().all(|read| *read == answer));
    let used = second.folder.budget().used();
    assert!(used < 2 * LENGTH as u64, "{used} bytes for one answer");
}

#[tokio::test]
async fn a_node_that_has_lost_its_files_sends_its_answers_again() {
    let nodes = SharingNodes::open().await;
    let (job, answer) = (job("red"), bytes(LENGTH));
    nodes.answer_on_first(&job, &answer).await;
    nodes.wait_until_shared(1).await;
    for (path, _) in nodes.fixture.files() {
        std::fs::write(path, b"truncated").unwrap();
    }
    assert_eq!(read(follow(&nodes.first, &nodes.fixture.ada, &job).await).await.unwrap(), answer);
}

#[tokio::test]
async fn the_shared_bytes_are_encrypted() {
    let nodes = SharingNodes::open().await;
    nodes.answer_on_first(&job("red"), b"a canary in a body").await;
    nodes.wait_until_shared(1).await;
    let bytes = nodes.shared().all_bytes();
    assert!(bytes.len() > b"a canary in a body".len());
    assert!(!bytes.windows(6).any(|window| window == b"canary"));
}

#[tokio::test]
async fn the_caller_does_not_wait_for_the_pieces_and_another_node_does() {
    let nodes = SharingNodes::open().await;
    let (job, answer) = (job("red"), bytes(LENGTH));
    nodes.shared().write_permits.forget_permits(usize::MAX >> 4);
    let first = claim(&nodes.first, &nodes.fixture.ada, &job).await;
    let reader = first.answer_reader();
    first.record(Ok(ChannelAnswer::complete(&answer))).await;
    assert_eq!(read(reader).await.unwrap(), answer, "the caller has all of it");
    assert_eq!((nodes.shared().count(), nodes.shared().complete_count()), (1, 0), "no piece is written yet");
    nodes.shared().write_permits.add_permits(2);
    let second = nodes.second;
    let repeat = {
        let (second, ada) = (Arc::clone(&second), nodes.fixture.ada.clone());
        spawn(async move { read(follow(&second, &ada, &super::job("red")).await).await.unwrap() })
    };
    let double = nodes.fixture.double.shared_answers.as_ref().unwrap();
    nodes.fixture.wait_until(|_| double.write_permits.available_permits() == 0).await;
    assert!(!repeat.is_finished(), "one of three pieces is missing");
    double.write_permits.add_permits(1);
    assert_eq!(repeat.await.unwrap(), answer);
}

#[tokio::test]
async fn an_answer_that_cannot_be_shared_is_known_to_its_own_node() {
    let nodes = SharingNodes::open().await;
    let (job, answer) = (job("red"), bytes(LENGTH));
    nodes.shared().failure.set(Some(|| StoreError::Busy));
    nodes.answer_on_first(&job, &answer).await;
    nodes.wait_until_withdrawn().await;
    nodes.shared().failure.set(None);
    check(&nodes.second, &nodes.fixture.ada, &job, "lost").await;
    assert_eq!(read(follow(&nodes.first, &nodes.fixture.ada, &job).await).await.unwrap(), answer);
}

#[tokio::test]
async fn an_answer_that_is_never_completed_is_lost_after_a_while() {
    let nodes = SharingNodes::open().await;
    let job = job("red");
    nodes.shared().write_permits.forget_permits(usize::MAX >> 4);
    nodes.answer_on_first(&job, &bytes(LENGTH)).await;
    let [replay] = nodes.fixture.store.list_replays().await.unwrap().try_into().unwrap();
    let ReplayState::Stored(row) = replay.state else { panic!("no answer") };
    tokio::time::pause();
    assert!(nodes.second.load_answer(&replay.claim, &row).await.is_none());
}

#[tokio::test]
async fn a_missing_piece_loses_the_answer_and_leaves_no_file() {
    let nodes = SharingNodes::open().await;
    let job = job("red");
    nodes.answer_on_first(&job, &bytes(LENGTH)).await;
    nodes.wait_until_shared(1).await;
    nodes.shared().lose_last_pieces();
    check(&nodes.second, &nodes.fixture.ada, &job, "lost").await;
    wait_until_empty(&nodes.second_folder()).await;
    assert_eq!(nodes.second_bytes(), 0);
}

#[tokio::test]
async fn an_incomplete_file_is_removed_by_the_next_start() {
    let nodes = SharingNodes::open().await;
    let left = nodes.second_folder().join("key_1-0123456789abcdef.orphan.fetch");
    std::fs::write(&left, b"x").unwrap();
    drop(nodes.fixture.open_in(FreeSpace::new(nodes.second_dir.path().to_owned(), 0), NodeId::from("second")).await);
    assert!(!left.exists());
}

#[tokio::test]
async fn a_node_checks_the_space_of_all_nodes_before_it_writes_much() {
    let nodes = SharingNodes::open_with(|settings| {
        (settings.orphans, settings.max_bytes) = (false, 1_000_000);
    })
    .await;
    // It checks again before it has written more than a sixteenth of the limit.
    for number in 0..4 {
        let job = job(&number.to_string());
        let outcome =
            nodes.first.claim_or_follow(&nodes.fixture.ada, &job, &number.to_string(), "req_1").await.unwrap();
        let ClaimOutcome::Claimed(guard) = outcome else { panic!("no claim") };
        guard.record(Ok(ChannelAnswer::complete(&bytes(25_000)))).await;
        nodes.wait_until_shared(number + 1).await;
    }
    assert_eq!(*nodes.shared().limits.lock().unwrap(), [1_000_000, 1_000_000]);
}

#[tokio::test]
async fn a_retry_on_another_node_gets_the_answer_that_its_caller_left() {
    let nodes = SharingNodes::open().await;
    let (job, answer, ada) = (job("red"), bytes(LENGTH), &nodes.fixture.ada);
    let task = SharedTask::from(&job);
    let fingerprint = nodes.first.fingerprint(ada, &task, true).await;
    let registered =
        JobRegistration { request_id: "req_1".to_owned(), announces_retries: true, fingerprint, ..registration() };
    let (receiver, sender) = nodes.first.register_job(ada, &job, registered.clone());
    drop(receiver);
    sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
    nodes.wait_until_shared(1).await;
    let reader = nodes.second.find_earlier_answer(ada, &task, &registered).await.unwrap().unwrap();
    assert_eq!(read(reader).await.unwrap(), answer);
    nodes.wait_until_withdrawn().await;
    nodes.second.drain().await;
    assert_eq!(nodes.fixture.store.list_replays().await.unwrap(), [], "no other retry gets it");
    wait_until_empty(&nodes.second_folder()).await;
}

#[tokio::test]
async fn a_stop_waits_until_the_bytes_are_shared() {
    let nodes = SharingNodes::open().await;
    nodes.shared().write_permits.forget_permits(usize::MAX >> 4);
    nodes.answer_on_first(&job("red"), &bytes(LENGTH)).await;
    let first = nodes.first;
    let drain = {
        let first = Arc::clone(&first);
        spawn(async move { first.drain().await })
    };
    let double = nodes.fixture.double.shared_answers.as_ref().unwrap();
    double.write_permits.add_permits(2);
    nodes.fixture.wait_until(|_| double.write_permits.available_permits() == 0).await;
    assert!(!drain.is_finished());
    double.write_permits.add_permits(1);
    drain.await.unwrap();
    assert_eq!(double.complete_count(), 1);
}

#[tokio::test]
async fn another_node_finds_an_orphan_between_the_end_of_its_record_and_its_answer() {
    let nodes = SharingNodes::open().await;
    let (job, answer, ada) = (job("red"), bytes(LENGTH), &nodes.fixture.ada);
    let task = SharedTask::from(&job);
    let fingerprint = nodes.first.fingerprint(ada, &task, true).await;
    let record = record! { fingerprint, created_at: Timestamp::now(), ..running_record("req_1") };
    nodes.fixture.double.write_rows(&NodeId::only(), &[RowWrite::Open(&record)]).await.unwrap();
    let registered =
        JobRegistration { request_id: "req_1".to_owned(), announces_retries: true, fingerprint, ..registration() };
    let (receiver, sender) = nodes.first.register_job(ada, &job, registered.clone());
    drop(receiver);
    let (body, output) = ChannelAnswer::new();
    body.send(Ok(answer.clone().into())).await.unwrap();
    let claim = sender.early_claim().unwrap();
    let storing = spawn(sender.complete(Ok(output)));
    nodes.fixture.wait_until(|_| body.capacity() == body.max_capacity()).await;
    // The end of the delivery: the record is closed before the body ends.
    claim.write().await;
    let closed = record! { state: JobState::Succeeded, ..record };
    nodes.fixture.double.write_rows(&NodeId::only(), &[RowWrite::Close(&closed)]).await.unwrap();
    nodes.fixture.double.hold_writes();
    drop(body);
    let reader = nodes.second.find_earlier_answer(ada, &task, &registered).await.unwrap();
    assert_eq!(reason(reader.expect("no second job")).await, "outcome_unknown");
    nodes.fixture.double.write_permits.add_permits(1_000);
    storing.await.unwrap();
    nodes.wait_until_shared(1).await;
    let reader = nodes.second.find_earlier_answer(ada, &task, &registered).await.unwrap();
    assert_eq!(read(reader.expect("the answer")).await.unwrap(), answer);
    nodes.second.drain().await;
    assert_eq!(nodes.fixture.store.list_replays().await.unwrap(), [], "no other retry gets it");
}

#[tokio::test]
async fn a_claimed_orphan_that_is_read_on_its_own_node_leaves_no_claim() {
    let nodes = SharingNodes::open().await;
    let (job, ada) = (job("red"), &nodes.fixture.ada);
    let fingerprint = nodes.first.fingerprint(ada, &SharedTask::from(&job), true).await;
    let registered =
        JobRegistration { request_id: "req_1".to_owned(), announces_retries: true, fingerprint, ..registration() };
    let (receiver, sender) = nodes.first.register_job(ada, &job, registered.clone());
    drop(receiver);
    let (body, output) = ChannelAnswer::new();
    body.send(Ok(Bytes::from_static(b"an image"))).await.unwrap();
    let claim = sender.early_claim().unwrap();
    let storing = spawn(sender.complete(Ok(output)));
    nodes.fixture.wait_until(|_| body.capacity() == body.max_capacity()).await;
    claim.write().await;
    assert_eq!(nodes.fixture.store.list_replays().await.unwrap().len(), 1);
    let retry = nodes.first.adopt_job(ada, &job).await.unwrap();
    drop(body);
    storing.await.unwrap();
    assert_eq!(read(retry).await.unwrap(), b"an image");
    nodes.first.drain().await;
    assert_eq!(nodes.fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn another_node_pays_for_no_answer_that_its_caller_may_not_have() {
    let nodes = SharingNodes::open().await;
    let (job, ada) = (job("red"), &nodes.fixture.ada);
    let task = SharedTask::from(&job);
    let fingerprint = nodes.first.fingerprint(ada, &task, true).await;
    let registered =
        JobRegistration { request_id: "req_1".to_owned(), announces_retries: true, fingerprint, ..registration() };
    let (receiver, sender) = nodes.first.register_job(ada, &job, registered.clone());
    // The end of the delivery: the record is closed, and the caller is still connected.
    sender.early_claim().unwrap().write().await;
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let reader = nodes.second.find_earlier_answer(ada, &task, &registered).await.unwrap();
    assert_eq!(reason(reader.expect("no second job")).await, "outcome_unknown");
    let AnswerSource::Stored(reader) = receiver.answer(far_deadline()).await.unwrap() else {
        panic!("the client marks its retries");
    };
    assert_eq!(read(reader).await.unwrap(), b"an image");
    nodes.first.drain().await;
    assert_eq!(nodes.fixture.store.list_replays().await.unwrap(), [], "the caller has the answer");
    assert!(nodes.second.find_earlier_answer(ada, &task, &registered).await.unwrap().is_none());
}
