//! Jobs whose callers have left, and the retries that come back for them.

use super::*;

/// Returns a request of a client that marks its retries.
fn marked() -> JobRegistration {
    JobRegistration { marks_retries: true, ..JobRegistration::default() }
}

/// Returns a job in flight whose caller has left.
fn left(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>) -> AnswerSender<ChannelAnswer> {
    let (waiting, promise) = replay.register_job(caller, job, JobRegistration::default());
    drop(waiting);
    promise
}

async fn remembered(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>) -> String {
    reason(replay.adopt_job(caller, job).await.expect("a remembered end")).await
}

#[tokio::test]
async fn a_caller_who_stays_gets_the_answer_itself_and_a_retry_after_it_runs_anew() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let (waiting, promise) = replay.register_job(&house.ada, &job, JobRegistration::default());
    promise.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let made = waiting.answer(far_deadline()).await.unwrap().into_direct();
    assert_eq!(made.collect().await.unwrap().to_bytes(), "an image");
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

#[tokio::test]
async fn an_orphan_in_flight_goes_to_every_retry_that_comes_meanwhile() {
    let house = ReplayFixture::new().await;
    let (replay, job, answer) = (Arc::new(house.open().await), job("red"), bytes(200_000));
    let promise = left(&replay, &house.ada, &job);
    tokio::time::pause();
    let mut retries = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (replay, ada, job) = (Arc::clone(&replay), house.ada.clone(), super::job("red"));
        retries.spawn(async move { replay.adopt_job(&ada, &job).await });
    }
    let adopted: Vec<AnswerReader> = retries.join_all().await.into_iter().flatten().collect();
    assert_eq!(adopted.len(), 10);
    promise.complete(Ok(ChannelAnswer::complete(&answer))).await;
    for follower in adopted {
        assert_eq!(follower.head().await.unwrap(), head());
        assert_eq!(read(follower).await.unwrap(), answer);
    }
    assert!(replay.adopt_job(&house.ada, &job).await.is_none(), "it was taken");
}

#[tokio::test]
async fn each_of_several_jobs_gets_a_retry_before_any_gets_two() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    tokio::time::pause();
    let waits: Vec<_> = (0..3).map(|_| replay.register_job::<ChannelAnswer>(&house.ada, &job, marked())).collect();
    let mut followers = Vec::new();
    for _ in 0..3 {
        followers.push(replay.adopt_job(&house.ada, &job).await.unwrap());
    }
    for (number, (waiting, promise)) in waits.into_iter().enumerate() {
        drop(waiting);
        promise.complete(Ok(ChannelAnswer::complete(number.to_string().as_bytes()))).await;
    }
    let mut read_all = Vec::new();
    for follower in followers {
        read_all.push(read(follower).await.unwrap());
    }
    assert_eq!(read_all, [b"0", b"1", b"2"]);
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

#[tokio::test]
async fn who_leaves_within_the_body_leaves_all_of_it_to_a_retry() {
    let house = ReplayFixture::new().await;
    let (replay, job, answer) = (house.open().await, job("red"), bytes(200_000));
    let (waiting, promise) = replay.register_job(&house.ada, &job, marked());
    promise.complete(Ok(ChannelAnswer::complete(&answer))).await;
    let AnswerSource::Stored(mut own) = waiting.answer(far_deadline()).await.unwrap() else {
        panic!("nobody writes it down")
    };
    read_some(&mut own, 100_000).await;
    drop(own);
    assert_eq!(read(replay.adopt_job(&house.ada, &job).await.unwrap()).await.unwrap(), answer);
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

#[tokio::test]
async fn what_only_a_proxy_has_read_is_still_owed_to_a_retry_that_left() {
    let house = ReplayFixture::new().await;
    let (replay, job, answer) = (house.open().await, job("red"), bytes(200_000));
    tokio::time::pause();
    let (waiting, promise) = replay.register_job(&house.ada, &job, marked());
    promise.complete(Ok(ChannelAnswer::complete(&answer))).await;
    let AnswerSource::Stored(own) = waiting.answer(far_deadline()).await.unwrap() else {
        panic!("nobody writes it down")
    };
    drop(replay.adopt_job(&house.ada, &job).await.unwrap());
    assert_eq!(read(own).await.unwrap(), answer);
    assert_eq!(read(replay.adopt_job(&house.ada, &job).await.unwrap()).await.unwrap(), answer);
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

#[tokio::test]
async fn what_has_no_room_on_disk_reaches_its_own_caller() {
    let mut house = ReplayFixture::new().await;
    house.settings.max_bytes = 400_000;
    let (replay, job, answer) = (house.open().await, job("red"), bytes(500_000));
    let (waiting, promise) = replay.register_job(&house.ada, &job, marked());
    let reading = async {
        read(match waiting.answer(far_deadline()).await.unwrap() {
            AnswerSource::Stored(own) => own,
            AnswerSource::Direct(_) => panic!("nobody writes it down"),
        })
        .await
    };
    let (read, ()) = tokio::join!(reading, promise.complete(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read.unwrap(), answer);
}

#[tokio::test]
async fn an_orphan_that_a_retry_has_is_none_any_more() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let promise = left(&replay, &house.ada, &job);
    let orphans = replay.orphans.as_ref().unwrap();
    let place = orphans.candidates(&house.ada, &(&job).into())[0].job_id;
    let one = orphans.follow_job(place);
    assert!(one.is_some() && orphans.candidates(&house.ada, &(&job).into())[0].retries == 1);
    drop(promise);
}

#[tokio::test]
async fn an_adopter_who_leaves_leaves_an_orphan_again() {
    let house = ReplayFixture::new().await;
    let (replay, job, answer) = (house.open().await, job("red"), bytes(200_000));
    let promise = left(&replay, &house.ada, &job);
    drop(replay.adopt_job(&house.ada, &job).await.unwrap());
    let mut second = replay.adopt_job(&house.ada, &job).await.unwrap();
    promise.complete(Ok(ChannelAnswer::complete(&answer))).await;
    read_some(&mut second, 100_000).await;
    drop(second);
    let third = replay.adopt_job(&house.ada, &job).await.unwrap();
    assert_eq!(read(third).await.unwrap(), answer, "from the beginning");
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

#[tokio::test]
async fn a_late_orphan_waits_for_its_window_and_no_longer() {
    let house = ReplayFixture::new().await;
    let replay = house.open().await;
    tokio::time::pause();
    for (wait, kept) in [(299, true), (301, false)] {
        let job = job(&wait.to_string());
        left(&replay, &house.ada, &job).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
        tokio::time::advance(Duration::from_secs(wait)).await;
        assert_eq!(replay.adopt_job(&house.ada, &job).await.is_some(), kept, "{wait}");
    }
    assert_eq!(house.files(), [], "its file has no name");
}

#[tokio::test]
async fn a_caller_who_leaves_with_the_answer_on_its_way_leaves_an_orphan() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let (waiting, promise) = replay.register_job(&house.ada, &job, JobRegistration::default());
    promise.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    drop(waiting);
    let follower = replay.adopt_job(&house.ada, &job).await.unwrap();
    assert_eq!(read(follower).await.unwrap(), b"an image");
}

#[tokio::test]
async fn nobody_gets_what_another_key_or_another_request_made() {
    let house = ReplayFixture::new().await;
    let replay = house.open().await;
    let promises = [left(&replay, &house.ada, &job("red")), left(&replay, &house.ada, &house.edit(1))];
    tokio::time::pause();
    assert!(replay.adopt_job(&house.bob, &job("red")).await.is_none());
    assert!(replay.adopt_job(&house.ada, &job("blue")).await.is_none());
    assert!(replay.adopt_job(&house.bob, &house.edit(1)).await.is_none());
    // An image as long as the first, but different.
    assert!(replay.adopt_job(&house.ada, &house.edit(2)).await.is_none());
    assert!(replay.adopt_job(&house.ada, &house.edit(1)).await.is_some());
    assert!(replay.adopt_job(&house.ada, &job("red")).await.is_some());
    drop(promises);
}

#[tokio::test]
async fn a_retry_quicker_than_the_news_waits_for_it_a_little() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let (waiting, promise) = replay.register_job::<ChannelAnswer>(&house.ada, &job, JobRegistration::default());
    tokio::time::pause();
    let begun = Instant::now();
    drop(replay.adopt_job(&house.ada, &job).await.unwrap());
    assert!(begun.elapsed() >= Duration::from_secs(1), "its own caller waits for it");
    let begun = Instant::now();
    let leaving = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(waiting);
    };
    let (adopted, ()) = tokio::join!(replay.adopt_job(&house.ada, &job), leaving);
    assert!(adopted.is_some());
    assert!(begun.elapsed() < Duration::from_secs(1), "and no longer than needed");
    drop(promise);
}

#[tokio::test]
async fn an_end_that_may_have_been_paid_for_is_given_to_every_retry() {
    let house = ReplayFixture::new().await;
    let replay = house.open().await;
    tokio::time::pause();
    let (attended, orphaned, adopted, told) = (job("a"), job("b"), job("c"), job("d"));
    let (waiting, promise) = replay.register_job::<ChannelAnswer>(&house.ada, &attended, JobRegistration::default());
    promise.complete(Err(Error::Upstream(UpstreamFault::Timeout))).await;
    assert_eq!(waiting.answer(far_deadline()).await.err(), Some(Error::Upstream(UpstreamFault::Timeout)));
    left(&replay, &house.ada, &orphaned).complete(Err(Error::Upstream(UpstreamFault::Timeout))).await;
    let promise = left(&replay, &house.ada, &adopted);
    let follower = replay.adopt_job(&house.ada, &adopted).await.unwrap();
    promise.complete(Err(Error::Upstream(UpstreamFault::Timeout))).await;
    assert_eq!(reason(follower).await, "timeout");
    replay.remember(&house.ada, &told, &Error::Upstream(UpstreamFault::Timeout)).await;
    for job in [&attended, &orphaned, &adopted, &told] {
        for _ in 0..3 {
            assert_eq!(remembered(&replay, &house.ada, job).await, "timeout");
        }
        assert!(replay.adopt_job(&house.bob, job).await.is_none());
    }
    tokio::time::advance(Duration::from_secs(301)).await;
    assert!(replay.adopt_job(&house.ada, &told).await.is_none());
}

#[tokio::test]
async fn an_end_that_cost_nothing_is_not_remembered() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let promise = left(&replay, &house.ada, &job);
    let follower = replay.adopt_job(&house.ada, &job).await.unwrap();
    promise.complete(Err(Error::Unavailable)).await;
    assert_eq!(follower.head().await.unwrap().status, 503, "who waits is told");
    replay.remember(&house.ada, &job, &Error::RateLimited { retry_after: 1 }).await;
    let (waiting, promise) = replay.register_job::<ChannelAnswer>(&house.ada, &job, JobRegistration::default());
    promise.complete(Err(Error::Unavailable)).await;
    assert_eq!(waiting.answer(far_deadline()).await.err(), Some(Error::Unavailable));
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_seen_and_remembered() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let promise = left(&replay, &house.ada, &job);
    let follower = replay.adopt_job(&house.ada, &job).await.unwrap();
    promise.complete(Ok(ChannelAnswer::broken(&bytes(70_000)))).await;
    assert_eq!(read(follower).await, Err(AnswerReaderError));
    assert_eq!(remembered(&replay, &house.ada, &job).await, "network");
}

#[tokio::test]
async fn a_job_that_ends_without_a_word_is_a_fault_of_ours_for_all() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let (waiting, promise) = replay.register_job::<ChannelAnswer>(&house.ada, &job, JobRegistration::default());
    drop(promise);
    assert_eq!(waiting.answer(far_deadline()).await.err(), Some(Error::Internal));
    assert_eq!(replay.adopt_job(&house.ada, &job).await.unwrap().head().await.unwrap().status, 500);
}

#[tokio::test]
async fn an_orphan_is_preferred_to_an_older_end() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    replay.remember(&house.ada, &job, &Error::Upstream(UpstreamFault::Refused)).await;
    left(&replay, &house.ada, &job).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(read(replay.adopt_job(&house.ada, &job).await.unwrap()).await.unwrap(), b"an image");
    assert_eq!(remembered(&replay, &house.ada, &job).await, "content_refused");
}

/// Returns true if the answer of an orphan is still there; otherwise a retry must get the error that it is lost.
async fn kept(replay: &AnswerReplay, caller: &Caller, job: &Arc<Job>) -> bool {
    let follower = replay.adopt_job(caller, job).await.expect("an orphan or an end");
    if follower.head().await.unwrap().status == 200 {
        return read(follower).await.is_ok();
    }
    assert_eq!(reason(follower).await, "outcome_unknown");
    false
}

#[tokio::test]
async fn orphans_have_bounds_and_the_oldest_goes_first() {
    let mut house = ReplayFixture::new().await;
    house.settings.max_bytes = 4 * 300_000;
    let replay = house.open().await;
    for number in 0..4 {
        left(&replay, &house.ada, &job(&number.to_string()))
            .complete(Ok(ChannelAnswer::complete(&bytes(100_000))))
            .await;
    }
    // At most three fit into the quarter that orphans have; in complete blocks, two.
    let mut found = Vec::new();
    for number in 0..4 {
        found.push(kept(&replay, &house.ada, &job(&number.to_string())).await);
    }
    assert_eq!(found, [false, false, true, true]);

    house.settings.max_bytes = 64 * MIB;
    let replay = house.open().await;
    for number in 0..70 {
        left(&replay, &house.ada, &job(&number.to_string())).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    }
    let mut found = 0;
    for number in 0..70 {
        found += u32::from(kept(&replay, &house.ada, &job(&number.to_string())).await);
    }
    assert_eq!(found, 64);
}

#[tokio::test]
async fn who_has_most_orphans_makes_room_for_others() {
    let mut house = ReplayFixture::new().await;
    house.settings.max_bytes = 4 * 300_000;
    let replay = house.open().await;
    left(&replay, &house.bob, &job("first of all")).complete(Ok(ChannelAnswer::complete(&bytes(50_000)))).await;
    for number in 0..8 {
        left(&replay, &house.ada, &job(&number.to_string()))
            .complete(Ok(ChannelAnswer::complete(&bytes(100_000))))
            .await;
    }
    assert!(kept(&replay, &house.bob, &job("first of all")).await);
    assert!(kept(&replay, &house.ada, &job("7")).await);
    assert!(!kept(&replay, &house.ada, &job("0")).await);
}

#[tokio::test]
async fn memory_of_ends_has_a_bound() {
    let house = ReplayFixture::new().await;
    let replay = house.open().await;
    let (first, other) = (job("first"), job("other"));
    replay.remember(&house.ada, &first, &Error::Upstream(UpstreamFault::Refused)).await;
    for number in 0..4096 {
        if number % 512 == 0 || number == 4095 {
            assert!(replay.adopt_job(&house.ada, &first).await.is_some(), "{number}");
        }
        replay.remember(&house.ada, &other, &Error::Upstream(UpstreamFault::Refused)).await;
    }
    assert!(replay.adopt_job(&house.ada, &first).await.is_none());
    // The answers of one API key do not displace those of another.
    replay.remember(&house.bob, &first, &Error::Upstream(UpstreamFault::Refused)).await;
    for _ in 0..100 {
        replay.remember(&house.ada, &other, &Error::Upstream(UpstreamFault::Refused)).await;
    }
    assert!(replay.adopt_job(&house.bob, &first).await.is_some());
}

#[tokio::test]
async fn what_is_over_keeps_no_files_of_the_job() {
    let house = ReplayFixture::new().await;
    let (replay, kept, told) = (house.open().await, house.edit(1), house.edit(2));
    left(&replay, &house.ada, &kept).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    replay.remember(&house.ada, &told, &Error::Upstream(UpstreamFault::Refused)).await;
    assert_eq!((Arc::strong_count(&kept), Arc::strong_count(&told)), (1, 1));
    assert!(replay.adopt_job(&house.ada, &house.edit(1)).await.is_some());
    assert_eq!(remembered(&replay, &house.ada, &house.edit(2)).await, "content_refused");
}

#[tokio::test]
async fn an_orphan_with_no_room_reaches_who_follows_and_nobody_after() {
    let mut house = ReplayFixture::new().await;
    house.settings.max_bytes = 400_000;
    let (replay, job, answer) = (house.open().await, job("red"), bytes(500_000));
    let promise = left(&replay, &house.ada, &job);
    let follower = replay.adopt_job(&house.ada, &job).await.unwrap();
    let (read, ()) = tokio::join!(read(follower), promise.complete(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read.unwrap(), answer);
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
}

/// Returns a request whose retry is recognized after a restart.
fn recognized(fingerprint: ReplayDigest) -> JobRegistration {
    let (request_id, fingerprint) = ("req_1".to_owned(), Some(fingerprint));
    JobRegistration { request_id, marks_retries: true, fingerprint }
}

#[tokio::test]
async fn an_answer_with_no_room_is_known_to_be_lost_after_a_kill() {
    let mut house = ReplayFixture::new().await;
    house.settings.max_bytes = 400_000;
    let replay = house.open().await;
    let since = Timestamp::now() - Duration::from_secs(60);
    // The first job has no waiting caller; the caller of the second leaves after a part of the answer.
    let (waiting, promise) = replay.register_job(&house.ada, &job("red"), recognized([1; 32]));
    drop(waiting);
    promise.complete(Ok(ChannelAnswer::complete(&bytes(500_000)))).await;
    let (waiting, promise) = replay.register_job(&house.ada, &job("blue"), recognized([2; 32]));
    let leaving = async {
        let AnswerSource::Stored(mut own) = waiting.answer(far_deadline()).await.unwrap() else {
            panic!("nobody writes it down")
        };
        read_some(&mut own, 200_000).await;
    };
    tokio::join!(leaving, promise.complete(Ok(ChannelAnswer::complete(&bytes(500_000)))));
    house.until(|house| house.files().iter().all(|(_, length)| *length == 0)).await;
    let killed = house.open().await;
    for fingerprint in [[1; 32], [2; 32]] {
        assert_eq!(
            killed.idempotent_answers.find_earlier_try(&fingerprint, since).await.unwrap(),
            EarlierTry::Unknown,
            "{fingerprint:?}"
        );
    }
}

#[tokio::test]
async fn the_file_of_an_answer_with_no_room_goes_when_all_of_it_was_read() {
    let mut house = ReplayFixture::new().await;
    house.settings.max_bytes = 400_000;
    let (replay, answer) = (house.open().await, bytes(500_000));
    let (waiting, promise) = replay.register_job(&house.ada, &job("red"), recognized([1; 32]));
    let reading = async {
        let AnswerSource::Stored(own) = waiting.answer(far_deadline()).await.unwrap() else {
            panic!("nobody writes it down")
        };
        read(own).await
    };
    let (read, ()) = tokio::join!(reading, promise.complete(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read.unwrap(), answer);
    house.cleared().await;
}

#[tokio::test]
async fn an_operator_can_switch_it_off() {
    let mut house = ReplayFixture::new().await;
    house.settings.orphans = false;
    let (replay, job) = (house.open().await, job("red"));
    left(&replay, &house.ada, &job).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    replay.remember(&house.ada, &job, &Error::Upstream(UpstreamFault::Refused)).await;
    assert!(replay.adopt_job(&house.ada, &job).await.is_none());
    let (waiting, promise) = replay.register_job(&house.ada, &job, JobRegistration::default());
    promise.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert!(waiting.answer(far_deadline()).await.is_ok());
    replay.drain().await;
}
