//! Tests of idempotency keys: one answer for each key.

use super::super::disk_budget::EvictableStorage as _;
use super::*;
use crate::gateway::replay::claim_guard::ClaimGuard;
use crate::gateway::spool::blocking_io::tests::disk_accesses;
use crate::gateway::store::StoreError;

pub(super) const KEY: &str = "3f1c-a-key-of-a-caller";

async fn claim_in_store(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) -> ClaimOutcome {
    replay.claim_or_follow(caller, job, KEY, "req_1").await.unwrap()
}

pub(super) async fn claim(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) -> ClaimGuard {
    match claim_in_store(replay, caller, job).await {
        ClaimOutcome::Claimed(guard) => *guard,
        outcome => panic!("{}", outcome_name(&outcome)),
    }
}

pub(super) async fn follow(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) -> AnswerReader {
    match claim_in_store(replay, caller, job).await {
        ClaimOutcome::Answer(reader) => reader,
        outcome => panic!("{}", outcome_name(&outcome)),
    }
}

pub(super) fn outcome_name(outcome: &ClaimOutcome) -> &'static str {
    match outcome {
        ClaimOutcome::Claimed(_) => "claimed",
        ClaimOutcome::Answer(_) => "follow",
        ClaimOutcome::Conflict => "conflict",
        ClaimOutcome::AnswerUnavailable => "lost",
    }
}

pub(super) async fn check(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>, expected: &str) {
    assert_eq!(outcome_name(&claim_in_store(replay, caller, job).await), expected);
}

pub(super) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(work)
}

/// Continues a request after its claim. Returns 1 if this request ran the job, or else 0, and a reader of the answer.
async fn run(outcome: ClaimOutcome, answer: &[u8]) -> (u32, AnswerReader) {
    match outcome {
        ClaimOutcome::Claimed(guard) => {
            let reader = guard.answer_reader();
            guard.record(Ok(ChannelAnswer::complete(answer))).await;
            (1, reader)
        }
        ClaimOutcome::Answer(reader) => (0, reader),
        outcome @ (ClaimOutcome::Conflict | ClaimOutcome::AnswerUnavailable) => panic!("{}", outcome_name(&outcome)),
    }
}

fn store_error() -> StoreError {
    StoreError::Busy
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_concurrent_requests_run_one_job() {
    let fixture = ReplayFixture::new().await;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(200_000));
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (replay, job, ada, answer) = (Arc::clone(&replay), Arc::clone(&job), fixture.ada.clone(), answer.clone());
        callers.spawn(async move {
            let outcome = replay.claim_or_follow(&ada, &job, KEY, &format!("req_{number}")).await.unwrap();
            let (ran, reader) = run(outcome, &answer).await;
            (ran, reader.head().await.unwrap(), read(reader).await.unwrap())
        });
    }
    let results = callers.join_all().await;
    assert_eq!(results.iter().map(|(ran, ..)| ran).sum::<u32>(), 1);
    assert!(results.iter().all(|(_, head, read)| *head == super::head() && *read == answer));
    assert_eq!(read(follow(&replay, &fixture.ada, &job).await).await.unwrap(), answer);
}

#[tokio::test]
async fn an_idempotency_key_belongs_to_one_api_key_and_one_request() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let first = claim(&replay, &fixture.ada, &job("red")).await;
    check(&replay, &fixture.ada, &job("blue"), "conflict").await;
    check(&replay, &fixture.bob, &job("blue"), "claimed").await;
    first.record(Ok(ChannelAnswer::complete(b"red"))).await;
    check(&replay, &fixture.ada, &job("blue"), "conflict").await;
    check(&replay, &fixture.ada, &job("red"), "follow").await;
    // The same idempotency key with another operation is independent.
    let edit = claim(&replay, &fixture.ada, &fixture.edit(1)).await;
    check(&replay, &fixture.ada, &fixture.edit(2), "conflict").await;
    check(&replay, &fixture.ada, &fixture.edit(1), "follow").await;
    drop(edit);
}

#[tokio::test]
async fn an_answer_survives_a_restart_with_its_head() {
    let fixture = ReplayFixture::new().await;
    let (job, answer) = (job("red"), bytes(150_000));
    claim(&fixture.open().await, &fixture.ada, &job).await.record(Ok(ChannelAnswer::complete(&answer))).await;
    let reader = follow(&fixture.open().await, &fixture.ada, &job).await;
    assert_eq!(reader.head().await.unwrap(), head());
    assert_eq!(reader.size_hint().exact(), Some(150_000));
    assert_eq!(read(reader).await.unwrap(), answer);
}

#[tokio::test]
async fn an_answer_in_progress_is_lost_when_the_process_dies() {
    let fixture = ReplayFixture::new().await;
    let (first, job) = (fixture.open().await, job("red"));
    let (body_sender, output) = ChannelAnswer::new();
    let guard = claim(&first, &fixture.ada, &job).await;
    let mut reader = guard.answer_reader();
    let running = spawn(guard.record(Ok(output)));
    body_sender.send(Ok(bytes(100_000).into())).await.unwrap();
    read_some(&mut reader, 100_000).await;
    assert_eq!(fixture.files().len(), 1);
    // A second process starts. The first has not cleaned up.
    let second = fixture.open().await;
    assert_eq!(fixture.files(), []);
    check(&second, &fixture.ada, &job, "lost").await;
    check(&second, &fixture.ada, &super::job("blue"), "conflict").await;
    running.abort();
}

#[tokio::test]
async fn leftovers_are_removed_and_stored_answers_are_encrypted() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let job = job("a canary in a prompt");
    claim(&replay, &fixture.ada, &job).await.record(Ok(ChannelAnswer::complete(b"a canary in a body"))).await;
    std::fs::write(fixture.dir.path().join(FOLDER).join("left-over"), b"x").unwrap();
    drop(replay);
    let replay = fixture.open().await;
    let [(path, _)] = fixture.files().try_into().unwrap();
    for path in [&path, &fixture.dir.path().join("imagate.db"), &fixture.dir.path().join("imagate.db-wal")] {
        let bytes = std::fs::read(path).unwrap_or_default();
        for canary in [&b"canary"[..], KEY.as_bytes()] {
            assert!(!bytes.windows(canary.len()).any(|window| window == canary), "{}", path.display());
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
    check(&replay, &fixture.ada, &job, "follow").await;
}

#[tokio::test]
async fn a_changed_file_is_an_error_and_a_truncated_file_is_lost() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    claim(&replay, &fixture.ada, &job).await.record(Ok(ChannelAnswer::complete(&bytes(100_000)))).await;
    let [(path, length)] = fixture.files().try_into().unwrap();
    let original = std::fs::read(&path).unwrap();
    let mut changed = original.clone();
    changed[90_000] ^= 1;
    std::fs::write(&path, changed).unwrap();
    assert_eq!(read(follow(&replay, &fixture.ada, &job).await).await, Err(AnswerReaderError));
    std::fs::write(&path, &original[..usize::try_from(length).unwrap() - 1]).unwrap();
    check(&replay, &fixture.ada, &job, "lost").await;
    std::fs::write(&path, original).unwrap();
    check(&replay, &fixture.ada, &job, "follow").await;
}

#[tokio::test]
async fn a_refusal_is_stored_and_an_error_without_cost_is_not() {
    let fixture = ReplayFixture::new().await;
    let (replay, refused, busy) = (fixture.open().await, job("red"), job("blue"));
    claim(&replay, &fixture.ada, &refused)
        .await
        .record::<ChannelAnswer>(Err(Error::Upstream(UpstreamFault::ContentRefused)))
        .await;
    assert_eq!(reason(follow(&replay, &fixture.ada, &refused).await).await, "content_refused");
    assert_eq!(reason(follow(&fixture.open().await, &fixture.ada, &refused).await).await, "content_refused");

    let first = claim(&replay, &fixture.bob, &busy).await;
    let joined = follow(&replay, &fixture.bob, &busy).await;
    first.record::<ChannelAnswer>(Err(Error::Unavailable)).await;
    let head = joined.head().await.unwrap();
    assert_eq!((head.status, head.headers["x-should-retry"].as_str()), (503, "true"));
    check(&replay, &fixture.bob, &busy, "claimed").await;
}

#[tokio::test]
async fn a_dropped_guard_and_a_broken_body_lose_the_answer() {
    let fixture = ReplayFixture::new().await;
    let (replay, dropped, broken) = (fixture.open().await, job("red"), job("blue"));
    let first = claim(&replay, &fixture.ada, &dropped).await;
    let joined = follow(&replay, &fixture.ada, &dropped).await;
    drop(first);
    assert_eq!(joined.head().await, Err(AnswerReaderError));
    check(&replay, &fixture.ada, &dropped, "lost").await;

    let first = claim(&replay, &fixture.bob, &broken).await;
    let reader = first.answer_reader();
    first.record(Ok(ChannelAnswer::broken(&bytes(100_000)))).await;
    assert_eq!(read(reader).await, Err(AnswerReaderError));
    check(&replay, &fixture.bob, &broken, "lost").await;
    fixture.wait_until_no_files().await;
}

#[tokio::test]
async fn the_oldest_answers_are_evicted_when_the_space_is_used_up() {
    let mut fixture = ReplayFixture::new().await;
    (fixture.settings.orphans, fixture.settings.max_bytes) = (false, 700_000);
    let replay = fixture.open().await;
    let answer = bytes(200_000);
    for number in 0..5 {
        let job = job(&number.to_string());
        let ClaimOutcome::Claimed(guard) =
            replay.claim_or_follow(&fixture.ada, &job, &number.to_string(), "req_1").await.unwrap()
        else {
            panic!("no claim")
        };
        guard.record(Ok(ChannelAnswer::complete(&answer))).await;
        assert!(fixture.files().iter().map(|(_, length)| length).sum::<u64>() <= fixture.settings.max_bytes);
    }
    for replay in [replay, fixture.open().await] {
        for (number, expected) in ["lost", "lost", "follow", "follow", "follow"].into_iter().enumerate() {
            let number = number.to_string();
            let outcome = replay.claim_or_follow(&fixture.ada, &job(&number), &number, "req_1").await.unwrap();
            assert_eq!(outcome_name(&outcome), expected, "{number}");
        }
    }
    // A smaller limit applies after the next start.
    fixture.settings.max_bytes = 300_000;
    let replay = fixture.open().await;
    assert_eq!((fixture.files().len(), replay.folder.budget().used() > 200_000), (1, true));
}

#[tokio::test]
async fn answers_of_the_api_key_with_most_bytes_are_evicted_first() {
    let mut fixture = ReplayFixture::new().await;
    (fixture.settings.orphans, fixture.settings.max_bytes) = (false, 700_000);
    let replay = fixture.open().await;
    let claim_key = async |replay: &Arc<AnswerStore>, caller: &Caller, key: &str| {
        replay.claim_or_follow(caller, &job("red"), key, "req_1").await.unwrap()
    };
    let store_answer = async |caller: &Caller, key: &str| {
        let ClaimOutcome::Claimed(guard) = claim_key(&replay, caller, key).await else { panic!("no claim") };
        guard.record(Ok(ChannelAnswer::complete(&bytes(200_000)))).await;
    };
    store_answer(&fixture.bob, "of bob").await;
    for number in 0..6 {
        store_answer(&fixture.ada, &number.to_string()).await;
    }
    for replay in [&replay, &fixture.open().await] {
        assert_eq!(outcome_name(&claim_key(replay, &fixture.bob, "of bob").await), "follow");
        for (number, expected) in ["lost", "lost", "lost", "lost", "follow", "follow"].into_iter().enumerate() {
            assert_eq!(outcome_name(&claim_key(replay, &fixture.ada, &number.to_string()).await), expected, "{number}");
        }
    }
}

#[tokio::test]
async fn a_start_reads_no_claims_and_a_sweep_removes_expired_ones() {
    let fixture = ReplayFixture::new().await;
    let (job, answer) = (job("red"), bytes(100_000));
    claim(&fixture.open().await, &fixture.ada, &job).await.record(Ok(ChannelAnswer::complete(&answer))).await;
    crate::gateway::store::testing::insert_expired_replays(&fixture.dir, 20_000).await;
    // The store fails during the start, which must not need it: the start reads only the folder.
    fixture.double.failure.set(Some(store_error));
    let replay = fixture.open().await;
    fixture.double.failure.set(None);
    replay.sweep().await.unwrap();
    assert_eq!(fixture.store.list_replays().await.unwrap().len(), 1, "only the claim that has not expired is left");
    assert_eq!(read(follow(&replay, &fixture.ada, &job).await).await.unwrap(), answer);
}

#[tokio::test]
async fn the_answers_of_a_deleted_key_are_removed_with_the_next_sweep() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    for caller in [&fixture.ada, &fixture.bob] {
        claim(&replay, caller, &job).await.record(Ok(ChannelAnswer::complete(&bytes(100_000)))).await;
    }
    replay.sweep().await.unwrap();
    assert_eq!(fixture.files().len(), 2);
    let delete = "UPDATE keys SET deleted_at = '2026-01-01T00:00:00.000Z' WHERE name = 'ada'";
    crate::gateway::store::testing::execute(&fixture.dir, delete).await;
    replay.sweep().await.unwrap();
    let [(file, _)] = &fixture.files()[..] else { panic!("{:?}", fixture.files()) };
    assert!(file.file_name().unwrap().to_string_lossy().starts_with(fixture.bob.key().as_str()), "{file:?}");
    assert_eq!(read(follow(&replay, &fixture.bob, &job).await).await.unwrap(), bytes(100_000));
    assert_eq!(replay.folder.owners(), [fixture.bob.key().to_string()]);
}

#[tokio::test]
async fn an_answer_beyond_the_disk_space_is_passed_on_once() {
    let mut fixture = ReplayFixture::new().await;
    (fixture.settings.orphans, fixture.settings.max_bytes) = (false, 300_000);
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(1_000_000));
    let first = claim(&replay, &fixture.ada, &job).await;
    let (first_reader, second_reader) = (first.answer_reader(), follow(&replay, &fixture.ada, &job).await);
    let recording = spawn(first.record(Ok(ChannelAnswer::complete(&answer))));
    let (first_result, second_result) = tokio::join!(read(first_reader), read(second_reader));
    recording.await.unwrap();
    assert_eq!((first_result.unwrap(), second_result.unwrap()), (answer.clone(), answer));
    assert_eq!(replay.folder.budget().used(), 0);
    fixture.wait_until_no_files().await;
    check(&replay, &fixture.ada, &job, "lost").await;
}

#[tokio::test]
async fn a_repeat_after_a_gap_gets_answer_lost_at_once() {
    let mut fixture = ReplayFixture::new().await;
    (fixture.settings.orphans, fixture.settings.max_bytes) = (false, 100_000);
    let (replay, job) = (fixture.open().await, job("red"));
    let (body_sender, output) = ChannelAnswer::new();
    let first = claim(&replay, &fixture.ada, &job).await;
    let mut reader = first.answer_reader();
    let recording = spawn(first.record(Ok(output)));
    check(&replay, &fixture.ada, &job, "follow").await;
    for _ in 0..5 {
        body_sender.send(Ok(bytes(100_000).into())).await.unwrap();
        read_some(&mut reader, 100_000).await;
    }
    check(&replay, &fixture.ada, &job, "lost").await;
    drop(body_sender);
    recording.await.unwrap();
    assert!(reader.frame().await.is_none());
}

#[tokio::test]
async fn without_a_folder_the_first_caller_still_gets_its_answer() {
    let fixture = ReplayFixture::new().await;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(500_000));
    std::fs::remove_dir_all(fixture.dir.path().join(FOLDER)).unwrap();
    let first = claim(&replay, &fixture.ada, &job).await;
    let reader = first.answer_reader();
    let recording = spawn(first.record(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read(reader).await.unwrap(), answer);
    recording.await.unwrap();
    check(&replay, &fixture.ada, &job, "lost").await;
}

#[tokio::test]
async fn a_store_failure_costs_nothing_before_and_no_answer_after() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    fixture.double.failure.set(Some(store_error));
    assert!(matches!(
        replay.claim_or_follow(&fixture.ada, &job, KEY, "req_1").await,
        Err(ReplayError::Ledger(LedgerError::Store(_)))
    ));
    fixture.double.failure.set(None);
    let first = claim(&replay, &fixture.ada, &job).await;
    let reader = first.answer_reader();
    fixture.double.failure.set(Some(store_error));
    first.record(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(read(reader).await.unwrap(), b"an image");
    fixture.double.failure.set(None);
    check(&replay, &fixture.ada, &job, "lost").await;
    fixture.wait_until_no_files().await;
}

async fn fail_to_release_claim(fixture: &ReplayFixture, replay: &Arc<AnswerStore>, job: &Arc<Job>) {
    let first = claim(replay, &fixture.ada, job).await;
    fixture.double.failure.set(Some(store_error));
    first.record::<ChannelAnswer>(Err(Error::Unavailable)).await;
    fixture.double.failure.set(None);
}

#[tokio::test]
async fn a_claim_without_cost_that_the_store_kept_is_claimed_again() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    fail_to_release_claim(&fixture, &replay, &job).await;
    assert!(replay.find_request(&fixture.ada, job.operation_id(), KEY).await.unwrap().is_none());
    check(&replay, &fixture.ada, &job, "claimed").await;
}

#[tokio::test]
async fn a_claim_without_cost_is_released_when_the_store_recovers() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    fail_to_release_claim(&fixture, &replay, &job).await;
    fixture.double.failure.set(Some(store_error));
    assert!(replay.sweep().await.is_err());
    fixture.double.failure.set(None);
    replay.sweep().await.unwrap();
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn a_caller_that_leaves_during_its_claim_leaves_no_claim() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    for yields in 0..20 {
        // One poll sends the claim. The caller then leaves, before or after the claim is written.
        let mut claiming = Box::pin(replay.claim_or_follow(&fixture.ada, &job, KEY, "req_1"));
        let is_pending = std::future::poll_fn(|cx| Poll::Ready(claiming.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending);
        while yields % 2 == 1 && fixture.store.list_replays().await.unwrap().is_empty() {}
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        drop(claiming);
        // The claim is released in the background. The last pass does not wait for that: the next request does.
        while yields < 19 && !replay.live_claims().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    check(&replay, &fixture.ada, &job, "claimed").await;
}

#[tokio::test]
async fn an_expired_idempotency_key_can_be_claimed_again() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.idempotency_window = Duration::ZERO;
    let (replay, job) = (fixture.open().await, job("red"));
    claim(&replay, &fixture.ada, &job).await.record(Ok(ChannelAnswer::complete(b"old"))).await;
    assert_eq!(fixture.files().len(), 1);
    let second = claim(&replay, &fixture.ada, &job).await;
    replay.sweep().await.unwrap();
    assert_eq!(fixture.files(), []);
    assert_eq!(fixture.store.list_replays().await.unwrap().len(), 1, "a live claim is not removed");
    drop(second);
    replay.sweep().await.unwrap();
    check(&replay, &fixture.ada, &job, "lost").await;
}

#[tokio::test]
async fn the_disk_is_not_accessed_on_runtime_threads() {
    let fixture = ReplayFixture::new().await;
    let (replay, accesses, answer) = (fixture.open().await, disk_accesses(), bytes(150_000));
    // One answer is stored and read again, and another breaks off.
    let job = job("red");
    claim(&replay, &fixture.ada, &job).await.record(Ok(ChannelAnswer::complete(&answer))).await;
    assert_eq!(read(follow(&replay, &fixture.ada, &job).await).await.unwrap(), answer);
    claim(&replay, &fixture.bob, &job).await.record(Ok(ChannelAnswer::broken(&answer))).await;
    // The fingerprint of the second orphan is known before. A retry reads each orphan to the end, which removes it.
    for fingerprint in [None, replay.fingerprint(&fixture.ada, &SharedTask::from(&job), true).await] {
        let registration = JobRegistration { fingerprint, ..registration() };
        let (receiver, sender) = replay.register_job(&fixture.ada, &job, registration);
        drop(receiver);
        sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
        assert_eq!(read(replay.adopt_job(&fixture.ada, &job).await.unwrap()).await.unwrap(), answer);
    }
    replay.sweep().await.unwrap();
    replay.drain().await;
    drop(replay);
    assert_eq!(disk_accesses(), accesses);
}
