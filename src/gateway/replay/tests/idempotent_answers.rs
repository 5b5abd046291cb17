//! One answer for one idempotency key.

use super::super::disk_budget::EvictableStorage as _;
use super::*;
use crate::gateway::replay::claim_guard::ClaimGuard;
use crate::gateway::spool::blocking_io::tests::disk_accesses;
use crate::gateway::store::StoreError;

pub(super) const KEY: &str = "3f1c-a-key-of-a-caller";

async fn enter(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>) -> ClaimOutcome {
    replay.claim_or_follow(caller, job, KEY, "req_1").await.unwrap()
}

async fn ticket(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>) -> ClaimGuard {
    match enter(replay, caller, job).await {
        ClaimOutcome::Claimed(ticket) => ticket,
        other => panic!("{}", word(&other)),
    }
}

async fn follower(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>) -> AnswerReader {
    match enter(replay, caller, job).await {
        ClaimOutcome::Follow(follower) => follower,
        other => panic!("{}", word(&other)),
    }
}

pub(super) fn word(entrance: &ClaimOutcome) -> &'static str {
    match entrance {
        ClaimOutcome::Claimed(_) => "fresh",
        ClaimOutcome::Follow(_) => "follow",
        ClaimOutcome::Conflict => "conflict",
        ClaimOutcome::AnswerLost => "lost",
    }
}

pub(super) async fn check(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>, expected: &str) {
    assert_eq!(word(&enter(replay, caller, job).await), expected);
}

pub(super) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::runtime::Handle::current().spawn(work)
}

/// Runs a request. Returns 1 if it ran the job and 0 if not, and the reader of its answer.
async fn run(entrance: ClaimOutcome, answer: &[u8]) -> (u32, AnswerReader) {
    match entrance {
        ClaimOutcome::Claimed(ticket) => {
            let follower = ticket.answer_reader();
            ticket.record(Ok(ChannelAnswer::complete(answer))).await;
            (1, follower)
        }
        ClaimOutcome::Follow(follower) => (0, follower),
        other @ (ClaimOutcome::Conflict | ClaimOutcome::AnswerLost) => panic!("{}", word(&other)),
    }
}

fn trouble() -> StoreError {
    StoreError::Busy
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_at_once_one_runs_and_all_get_the_same() {
    let house = ReplayFixture::new().await;
    let (replay, job, answer) = (Arc::new(house.open().await), job("red"), bytes(200_000));
    let mut callers = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (replay, job, ada, answer) = (Arc::clone(&replay), Arc::clone(&job), house.ada.clone(), answer.clone());
        callers.spawn(async move {
            let entrance = replay.claim_or_follow(&ada, &job, KEY, &format!("req_{number}")).await.unwrap();
            let (fresh, follower) = run(entrance, &answer).await;
            (fresh, follower.head().await.unwrap(), read(follower).await.unwrap())
        });
    }
    let all = callers.join_all().await;
    assert_eq!(all.iter().map(|(fresh, ..)| fresh).sum::<u32>(), 1);
    assert!(all.iter().all(|(_, head, read)| *head == super::head() && *read == answer));
    assert_eq!(read(follower(&replay, &house.ada, &job).await).await.unwrap(), answer);
}

#[tokio::test]
async fn a_key_belongs_to_its_api_key_and_to_one_request() {
    let house = ReplayFixture::new().await;
    let replay = house.open().await;
    let first = ticket(&replay, &house.ada, &job("red")).await;
    check(&replay, &house.ada, &job("blue"), "conflict").await;
    check(&replay, &house.bob, &job("blue"), "fresh").await;
    first.record(Ok(ChannelAnswer::complete(b"red"))).await;
    check(&replay, &house.ada, &job("blue"), "conflict").await;
    check(&replay, &house.ada, &job("red"), "follow").await;
    // Another operation makes another key.
    let edit = ticket(&replay, &house.ada, &house.edit(1)).await;
    check(&replay, &house.ada, &house.edit(2), "conflict").await;
    check(&replay, &house.ada, &house.edit(1), "follow").await;
    drop(edit);
}

#[tokio::test]
async fn an_answer_survives_a_restart_with_its_head() {
    let house = ReplayFixture::new().await;
    let (job, answer) = (job("red"), bytes(150_000));
    ticket(&house.open().await, &house.ada, &job).await.record(Ok(ChannelAnswer::complete(&answer))).await;
    let again = follower(&house.open().await, &house.ada, &job).await;
    assert_eq!(again.head().await.unwrap(), head());
    assert_eq!(again.size_hint().exact(), Some(150_000));
    assert_eq!(read(again).await.unwrap(), answer);
}

#[tokio::test]
async fn what_was_running_when_the_process_died_is_lost_and_its_file_goes() {
    let house = ReplayFixture::new().await;
    let (first, job) = (house.open().await, job("red"));
    let (feed, made) = ChannelAnswer::new();
    let held = ticket(&first, &house.ada, &job).await;
    let mut reader = held.answer_reader();
    let running = spawn(held.record(Ok(made)));
    feed.send(Ok(bytes(100_000).into())).await.unwrap();
    read_some(&mut reader, 100_000).await;
    assert_eq!(house.files().len(), 1);
    // A second process starts, and the first has dropped nothing in order.
    let second = house.open().await;
    assert_eq!(house.files(), []);
    check(&second, &house.ada, &job, "lost").await;
    check(&second, &house.ada, &super::job("blue"), "conflict").await;
    running.abort();
}

#[tokio::test]
async fn leftovers_go_and_nobody_else_can_read_the_rest() {
    let house = ReplayFixture::new().await;
    let replay = house.open().await;
    let job = job("a canary in a prompt");
    ticket(&replay, &house.ada, &job).await.record(Ok(ChannelAnswer::complete(b"a canary in a body"))).await;
    std::fs::write(house.dir.path().join(FOLDER).join("left-over"), b"x").unwrap();
    drop(replay);
    let replay = house.open().await;
    let [(path, _)] = house.files().try_into().unwrap();
    for path in [&path, &house.dir.path().join("imagate.db"), &house.dir.path().join("imagate.db-wal")] {
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
    check(&replay, &house.ada, &job, "follow").await;
}

#[tokio::test]
async fn a_file_that_was_changed_never_ends_well_and_one_cut_short_is_lost() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    ticket(&replay, &house.ada, &job).await.record(Ok(ChannelAnswer::complete(&bytes(100_000)))).await;
    let [(path, length)] = house.files().try_into().unwrap();
    let good = std::fs::read(&path).unwrap();
    let mut changed = good.clone();
    changed[90_000] ^= 1;
    std::fs::write(&path, changed).unwrap();
    assert_eq!(read(follower(&replay, &house.ada, &job).await).await, Err(AnswerReaderError));
    std::fs::write(&path, &good[..usize::try_from(length).unwrap() - 1]).unwrap();
    check(&replay, &house.ada, &job, "lost").await;
    std::fs::write(&path, good).unwrap();
    check(&replay, &house.ada, &job, "follow").await;
}

#[tokio::test]
async fn a_refusal_is_an_answer_to_stay_and_an_end_that_cost_nothing_is_not() {
    let house = ReplayFixture::new().await;
    let (replay, refused, busy) = (house.open().await, job("red"), job("blue"));
    ticket(&replay, &house.ada, &refused)
        .await
        .record::<ChannelAnswer>(Err(Error::Upstream(UpstreamFault::Refused)))
        .await;
    assert_eq!(reason(follower(&replay, &house.ada, &refused).await).await, "content_refused");
    assert_eq!(reason(follower(&house.open().await, &house.ada, &refused).await).await, "content_refused");

    let first = ticket(&replay, &house.bob, &busy).await;
    let joined = follower(&replay, &house.bob, &busy).await;
    first.record::<ChannelAnswer>(Err(Error::Unavailable)).await;
    let head = joined.head().await.unwrap();
    assert_eq!((head.status, head.headers["x-should-retry"].as_str()), (503, "true"));
    check(&replay, &house.bob, &busy, "fresh").await;
}

#[tokio::test]
async fn a_ticket_dropped_and_a_body_broken_off_are_lost() {
    let house = ReplayFixture::new().await;
    let (replay, dropped, broken) = (house.open().await, job("red"), job("blue"));
    let first = ticket(&replay, &house.ada, &dropped).await;
    let joined = follower(&replay, &house.ada, &dropped).await;
    drop(first);
    assert_eq!(joined.head().await, Err(AnswerReaderError));
    check(&replay, &house.ada, &dropped, "lost").await;

    let first = ticket(&replay, &house.bob, &broken).await;
    let reader = first.answer_reader();
    first.record(Ok(ChannelAnswer::broken(&bytes(100_000)))).await;
    assert_eq!(read(reader).await, Err(AnswerReaderError));
    check(&replay, &house.bob, &broken, "lost").await;
    house.cleared().await;
}

#[tokio::test]
async fn the_oldest_answers_go_when_there_is_no_more_room() {
    let mut house = ReplayFixture::new().await;
    (house.settings.orphans, house.settings.max_bytes) = (false, 700_000);
    let replay = house.open().await;
    let answer = bytes(200_000);
    for number in 0..5 {
        let job = job(&number.to_string());
        let ClaimOutcome::Claimed(ticket) =
            replay.claim_or_follow(&house.ada, &job, &number.to_string(), "req_1").await.unwrap()
        else {
            panic!("not fresh")
        };
        ticket.record(Ok(ChannelAnswer::complete(&answer))).await;
        assert!(house.files().iter().map(|(_, length)| length).sum::<u64>() <= house.settings.max_bytes);
    }
    for replay in [replay, house.open().await] {
        for (number, expected) in ["lost", "lost", "follow", "follow", "follow"].into_iter().enumerate() {
            let number = number.to_string();
            let entrance = replay.claim_or_follow(&house.ada, &job(&number), &number, "req_1").await.unwrap();
            assert_eq!(word(&entrance), expected, "{number}");
        }
    }
    // A smaller bound applies from the next start on.
    house.settings.max_bytes = 300_000;
    let replay = house.open().await;
    assert_eq!((house.files().len(), replay.idempotent_answers.folder.budget().used() > 200_000), (1, true));
}

#[tokio::test]
async fn who_has_most_answers_makes_room_for_others() {
    let mut house = ReplayFixture::new().await;
    (house.settings.orphans, house.settings.max_bytes) = (false, 700_000);
    let replay = house.open().await;
    let enter = async |replay: &AnswerReplay, caller: &Caller, key: &str| {
        replay.claim_or_follow(caller, &job("red"), key, "req_1").await.unwrap()
    };
    let keep = async |caller: &Caller, key: &str| {
        let ClaimOutcome::Claimed(ticket) = enter(&replay, caller, key).await else { panic!("not fresh") };
        ticket.record(Ok(ChannelAnswer::complete(&bytes(200_000)))).await;
    };
    keep(&house.bob, "of bob").await;
    for number in 0..6 {
        keep(&house.ada, &number.to_string()).await;
    }
    for replay in [&replay, &house.open().await] {
        assert_eq!(word(&enter(replay, &house.bob, "of bob").await), "follow");
        for (number, expected) in ["lost", "lost", "lost", "lost", "follow", "follow"].into_iter().enumerate() {
            assert_eq!(word(&enter(replay, &house.ada, &number.to_string()).await), expected, "{number}");
        }
    }
}

#[tokio::test]
async fn a_start_reads_no_claims_and_a_sweep_clears_all_that_are_over() {
    let house = ReplayFixture::new().await;
    let (job, answer) = (job("red"), bytes(100_000));
    ticket(&house.open().await, &house.ada, &job).await.record(Ok(ChannelAnswer::complete(&answer))).await;
    crate::gateway::store::testing::expired_replays(&house.dir, 20_000).await;
    // The store does not answer: the start finds everything that it needs in the folder.
    house.double.set_failure(Some(trouble));
    let replay = house.open().await;
    house.double.set_failure(None);
    replay.idempotent_answers.sweep().await.unwrap();
    assert_eq!(house.store.list_replays().await.unwrap().len(), 1, "the one that is not over");
    assert_eq!(read(follower(&replay, &house.ada, &job).await).await.unwrap(), answer);
}

#[tokio::test]
async fn an_answer_larger_than_all_room_is_given_once_and_never_paid_twice() {
    let mut house = ReplayFixture::new().await;
    (house.settings.orphans, house.settings.max_bytes) = (false, 300_000);
    let (replay, job, answer) = (house.open().await, job("red"), bytes(1_000_000));
    let first = ticket(&replay, &house.ada, &job).await;
    let (one, other) = (first.answer_reader(), follower(&replay, &house.ada, &job).await);
    let recording = spawn(first.record(Ok(ChannelAnswer::complete(&answer))));
    let (one, other) = tokio::join!(read(one), read(other));
    recording.await.unwrap();
    assert_eq!((one.unwrap(), other.unwrap()), (answer.clone(), answer));
    assert_eq!(replay.idempotent_answers.folder.budget().used(), 0);
    house.cleared().await;
    check(&replay, &house.ada, &job, "lost").await;
}

#[tokio::test]
async fn who_comes_when_something_is_gone_already_is_told_at_once() {
    let mut house = ReplayFixture::new().await;
    (house.settings.orphans, house.settings.max_bytes) = (false, 100_000);
    let (replay, job) = (house.open().await, job("red"));
    let (feed, made) = ChannelAnswer::new();
    let first = ticket(&replay, &house.ada, &job).await;
    let mut reader = first.answer_reader();
    let recording = spawn(first.record(Ok(made)));
    check(&replay, &house.ada, &job, "follow").await;
    for _ in 0..5 {
        feed.send(Ok(bytes(100_000).into())).await.unwrap();
        read_some(&mut reader, 100_000).await;
    }
    check(&replay, &house.ada, &job, "lost").await;
    drop(feed);
    recording.await.unwrap();
    assert!(reader.frame().await.is_none());
}

#[tokio::test]
async fn without_a_disk_the_first_caller_still_gets_its_image() {
    let house = ReplayFixture::new().await;
    let (replay, job, answer) = (house.open().await, job("red"), bytes(500_000));
    std::fs::remove_dir_all(house.dir.path().join(FOLDER)).unwrap();
    let first = ticket(&replay, &house.ada, &job).await;
    let reader = first.answer_reader();
    let recording = spawn(first.record(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read(reader).await.unwrap(), answer);
    recording.await.unwrap();
    check(&replay, &house.ada, &job, "lost").await;
}

#[tokio::test]
async fn trouble_with_the_store_costs_nothing_before_and_no_image_after() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    house.double.set_failure(Some(trouble));
    assert!(matches!(
        replay.claim_or_follow(&house.ada, &job, KEY, "req_1").await,
        Err(ReplayError::Ledger(LedgerError::Store(_)))
    ));
    house.double.set_failure(None);
    let first = ticket(&replay, &house.ada, &job).await;
    let reader = first.answer_reader();
    house.double.set_failure(Some(trouble));
    first.record(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(read(reader).await.unwrap(), b"an image");
    house.double.set_failure(None);
    check(&replay, &house.ada, &job, "lost").await;
    house.cleared().await;
}

#[tokio::test]
async fn a_claim_that_cost_nothing_is_given_back_when_the_store_is_well_again() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let first = ticket(&replay, &house.ada, &job).await;
    house.double.set_failure(Some(trouble));
    first.record::<ChannelAnswer>(Err(Error::Unavailable)).await;
    assert!(replay.idempotent_answers.sweep().await.is_err());
    house.double.set_failure(None);
    check(&replay, &house.ada, &job, "lost").await;
    replay.idempotent_answers.sweep().await.unwrap();
    check(&replay, &house.ada, &job, "fresh").await;
}

#[tokio::test]
async fn a_caller_who_leaves_while_the_store_is_asked_leaves_nothing_behind() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    for turns in 0..20 {
        // One poll sends the claim. The caller then leaves, before or after the claim is written.
        let mut asking = Box::pin(replay.claim_or_follow(&house.ada, &job, KEY, "req_1"));
        let pending = std::future::poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
        while turns % 2 == 1 && house.store.list_replays().await.unwrap().is_empty() {}
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(asking);
        // The claim is given back in the background; the last round leaves this to the next request.
        while turns < 19 && !replay.idempotent_answers.live_claims().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    check(&replay, &house.ada, &job, "fresh").await;
}

#[tokio::test]
async fn after_its_time_a_key_is_new_and_the_answer_is_gone() {
    let mut house = ReplayFixture::new().await;
    house.settings.idempotency_window = Duration::ZERO;
    let (replay, job) = (house.open().await, job("red"));
    ticket(&replay, &house.ada, &job).await.record(Ok(ChannelAnswer::complete(b"old"))).await;
    assert_eq!(house.files().len(), 1);
    let second = ticket(&replay, &house.ada, &job).await;
    replay.idempotent_answers.sweep().await.unwrap();
    assert_eq!(house.files(), []);
    assert_eq!(house.store.list_replays().await.unwrap().len(), 1, "a claim that lives is left alone");
    drop(second);
    replay.idempotent_answers.sweep().await.unwrap();
    assert_eq!(house.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn a_claim_of_another_node_is_watched_until_there_is_an_answer_or_none() {
    let house = ReplayFixture::new().await;
    let (here, job) = (Arc::new(house.open().await), job("red"));
    let there = house.open_as(NodeId::from("other")).await;
    let first = ticket(&there, &house.ada, &job).await;
    let watching = {
        let (here, ada, job) = (Arc::clone(&here), house.ada.clone(), Arc::clone(&job));
        spawn(async move { word(&enter(&here, &ada, &job).await) })
    };
    first.record(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(watching.await.unwrap(), "follow");
}

#[tokio::test]
async fn no_file_is_touched_on_a_thread_of_the_runtime() {
    let house = ReplayFixture::new().await;
    let (replay, before, answer) = (house.open().await, disk_accesses(), bytes(150_000));
    // Answers that are kept and read, read again, broken off, and dropped.
    let job = job("red");
    ticket(&replay, &house.ada, &job).await.record(Ok(ChannelAnswer::complete(&answer))).await;
    assert_eq!(read(follower(&replay, &house.ada, &job).await).await.unwrap(), answer);
    ticket(&replay, &house.bob, &job).await.record(Ok(ChannelAnswer::broken(&answer))).await;
    // Orphans without a name and with one, which retries remove.
    for fingerprint in [None, Some([7; 32])] {
        let expected = JobRegistration { request_id: "req_2".to_owned(), fingerprint, ..JobRegistration::default() };
        let (waiting, promise) = replay.register_job(&house.ada, &job, expected);
        drop(waiting);
        promise.complete(Ok(ChannelAnswer::complete(&answer))).await;
        assert_eq!(read(replay.adopt_job(&house.ada, &job).await.unwrap()).await.unwrap(), answer);
    }
    replay.idempotent_answers.sweep().await.unwrap();
    replay.drain().await;
    drop(replay);
    assert_eq!(disk_accesses(), before);
}
