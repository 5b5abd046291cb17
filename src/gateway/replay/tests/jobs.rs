//! Tests of jobs whose callers have left, and of the retries that get their answers.

use super::*;

/// Returns the registration of a client that marks its retries.
fn marked_retries() -> JobRegistration {
    JobRegistration { announces_retries: true, ..registration() }
}

/// Returns a running job whose caller has left.
pub(super) fn orphan(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) -> AnswerSender<ChannelAnswer> {
    let (receiver, sender) = replay.register_job(caller, job, registration());
    drop(receiver);
    sender
}

async fn remembered_reason(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) -> String {
    reason(replay.adopt_job(caller, job).await.expect("a remembered error")).await
}

#[tokio::test]
async fn a_retry_after_a_delivered_answer_runs_a_new_job() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let (receiver, sender) = replay.register_job(&fixture.ada, &job, registration());
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let answer = receiver.answer(far_deadline()).await.unwrap().into_direct();
    assert_eq!(answer.collect().await.unwrap().to_bytes(), "an image");
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn a_running_orphan_is_read_by_every_concurrent_retry() {
    let fixture = ReplayFixture::new().await;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(200_000));
    let sender = orphan(&replay, &fixture.ada, &job);
    let mut retries = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (replay, ada, job) = (Arc::clone(&replay), fixture.ada.clone(), super::job("red"));
        retries.spawn(async move { replay.adopt_job(&ada, &job).await });
    }
    let adopted: Vec<AnswerReader> = retries.join_all().await.into_iter().flatten().collect();
    assert_eq!(adopted.len(), 10);
    sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
    for reader in adopted {
        assert_eq!(reader.head().await.unwrap(), head());
        assert_eq!(read(reader).await.unwrap(), answer);
    }
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none(), "the answer was delivered");
}

#[tokio::test]
async fn retries_are_spread_over_equal_jobs() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let jobs: Vec<_> =
        (0..3).map(|_| replay.register_job::<ChannelAnswer>(&fixture.ada, &job, marked_retries())).collect();
    let mut readers = Vec::new();
    for _ in 0..3 {
        readers.push(replay.adopt_job(&fixture.ada, &job).await.unwrap());
    }
    for (number, (receiver, sender)) in jobs.into_iter().enumerate() {
        drop(receiver);
        sender.complete(Ok(ChannelAnswer::complete(number.to_string().as_bytes()))).await;
    }
    let mut read_all = Vec::new();
    for reader in readers {
        read_all.push(read(reader).await.unwrap());
    }
    assert_eq!(read_all, [b"0", b"1", b"2"]);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn a_retry_gets_the_whole_answer_that_its_caller_left() {
    let fixture = ReplayFixture::new().await;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(200_000));
    let (receiver, sender) = replay.register_job(&fixture.ada, &job, marked_retries());
    sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
    let AnswerSource::Stored(mut own) = receiver.answer(far_deadline()).await.unwrap() else {
        panic!("the answer is not stored")
    };
    read_some(&mut own, 100_000).await;
    drop(own);
    assert_eq!(read(replay.adopt_job(&fixture.ada, &job).await.unwrap()).await.unwrap(), answer);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn a_complete_read_by_the_caller_does_not_remove_an_orphan() {
    let fixture = ReplayFixture::new().await;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(200_000));
    let (receiver, sender) = replay.register_job(&fixture.ada, &job, marked_retries());
    sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
    let AnswerSource::Stored(own) = receiver.answer(far_deadline()).await.unwrap() else {
        panic!("the answer is not stored")
    };
    drop(replay.adopt_job(&fixture.ada, &job).await.unwrap());
    assert_eq!(read(own).await.unwrap(), answer);
    assert_eq!(read(replay.adopt_job(&fixture.ada, &job).await.unwrap()).await.unwrap(), answer);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn an_answer_without_disk_space_reaches_its_caller() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 400_000;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(500_000));
    let (receiver, sender) = replay.register_job(&fixture.ada, &job, marked_retries());
    let reading = async {
        read(match receiver.answer(far_deadline()).await.unwrap() {
            AnswerSource::Stored(own) => own,
            AnswerSource::Direct(_) => panic!("the answer is not stored"),
        })
        .await
    };
    let (read, ()) = tokio::join!(reading, sender.complete(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read.unwrap(), answer);
}

#[tokio::test]
async fn a_retry_that_reads_an_orphan_is_counted() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let sender = orphan(&replay, &fixture.ada, &job);
    let orphans = &replay;
    let job_id = orphans.candidates(&fixture.ada, &(&job).into(), false)[0].job_id;
    let reader = orphans.follow_job(job_id);
    assert!(reader.is_some() && orphans.candidates(&fixture.ada, &(&job).into(), false)[0].retry_count == 1);
    drop(sender);
}

#[tokio::test]
async fn a_retry_that_leaves_makes_the_job_an_orphan_again() {
    let fixture = ReplayFixture::new().await;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(200_000));
    let sender = orphan(&replay, &fixture.ada, &job);
    drop(replay.adopt_job(&fixture.ada, &job).await.unwrap());
    let mut second = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
    read_some(&mut second, 100_000).await;
    drop(second);
    let third = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    assert_eq!(read(third).await.unwrap(), answer, "from the beginning");
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn an_orphan_expires_after_its_window() {
    let mut fixture = ReplayFixture::new().await;
    for (seconds, is_kept) in [(300, true), (0, false)] {
        fixture.settings.orphan_window = Duration::from_secs(seconds);
        let replay = fixture.open().await;
        let job = job(&seconds.to_string());
        orphan(&replay, &fixture.ada, &job).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
        let found = replay.adopt_job(&fixture.ada, &job).await;
        assert_eq!(found.is_some(), is_kept, "{seconds} s");
        if let Some(reader) = found {
            assert_eq!(read(reader).await.unwrap(), b"an image");
        }
        replay.sweep().await.unwrap();
        replay.drain().await;
    }
    fixture.wait_until_no_files().await;
    assert_eq!(fixture.store.list_replays().await.unwrap(), []);
}

#[tokio::test]
async fn a_caller_that_leaves_before_it_takes_the_answer_leaves_an_orphan() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let (receiver, sender) = replay.register_job(&fixture.ada, &job, registration());
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    drop(receiver);
    let reader = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    assert_eq!(read(reader).await.unwrap(), b"an image");
}

#[tokio::test]
async fn only_an_equal_request_of_the_same_api_key_gets_an_orphan() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let senders = [orphan(&replay, &fixture.ada, &job("red")), orphan(&replay, &fixture.ada, &fixture.edit(1))];
    assert!(replay.adopt_job(&fixture.bob, &job("red")).await.is_none());
    assert!(replay.adopt_job(&fixture.ada, &job("blue")).await.is_none());
    assert!(replay.adopt_job(&fixture.bob, &fixture.edit(1)).await.is_none());
    // An image as long as the first, but different.
    assert!(replay.adopt_job(&fixture.ada, &fixture.edit(2)).await.is_none());
    assert!(replay.adopt_job(&fixture.ada, &fixture.edit(1)).await.is_some());
    assert!(replay.adopt_job(&fixture.ada, &job("red")).await.is_some());
    drop(senders);
}

#[tokio::test]
async fn a_retry_waits_for_the_caller_to_leave() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let (receiver, sender) = replay.register_job::<ChannelAnswer>(&fixture.ada, &job, registration());
    let start = Instant::now();
    drop(replay.adopt_job(&fixture.ada, &job).await.unwrap());
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(1), "the caller still waits");
    let start = Instant::now();
    let leaving = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(receiver);
    };
    let (adopted, ()) = tokio::join!(replay.adopt_job(&fixture.ada, &job), leaving);
    assert!(adopted.is_some());
    assert!(start.elapsed() < waited, "the retry does not wait for the whole grace period");
    drop(sender);
}

#[tokio::test]
async fn every_retry_gets_an_error_that_may_have_been_charged() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let (attended, orphaned, adopted, remembered) = (job("a"), job("b"), job("c"), job("d"));
    let (receiver, sender) = replay.register_job::<ChannelAnswer>(&fixture.ada, &attended, registration());
    sender.complete(Err(Error::Upstream(UpstreamFault::Timeout))).await;
    assert_eq!(receiver.answer(far_deadline()).await.err(), Some(Error::Upstream(UpstreamFault::Timeout)));
    orphan(&replay, &fixture.ada, &orphaned).complete(Err(Error::Upstream(UpstreamFault::Timeout))).await;
    let sender = orphan(&replay, &fixture.ada, &adopted);
    let reader = replay.adopt_job(&fixture.ada, &adopted).await.unwrap();
    sender.complete(Err(Error::Upstream(UpstreamFault::Timeout))).await;
    assert_eq!(reason(reader).await, "timeout");
    replay.remember(&fixture.ada, &remembered, registration(), &Error::Upstream(UpstreamFault::Timeout)).await;
    for job in [&attended, &orphaned, &adopted, &remembered] {
        for _ in 0..3 {
            assert_eq!(remembered_reason(&replay, &fixture.ada, job).await, "timeout");
        }
        assert!(replay.adopt_job(&fixture.bob, job).await.is_none());
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(301)).await;
    tokio::time::resume();
    assert!(replay.adopt_job(&fixture.ada, &remembered).await.is_none());
}

#[tokio::test]
async fn an_error_that_cost_nothing_is_not_remembered() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let sender = orphan(&replay, &fixture.ada, &job);
    let reader = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    sender.complete(Err(Error::Unavailable)).await;
    assert_eq!(reader.head().await.unwrap().status, 503, "a present reader gets the error");
    replay.remember(&fixture.ada, &job, registration(), &Error::RateLimited { retry_after: 1 }).await;
    let (receiver, sender) = replay.register_job::<ChannelAnswer>(&fixture.ada, &job, registration());
    sender.complete(Err(Error::Unavailable)).await;
    assert_eq!(receiver.answer(far_deadline()).await.err(), Some(Error::Unavailable));
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn a_body_that_breaks_off_is_remembered_as_an_error() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let sender = orphan(&replay, &fixture.ada, &job);
    let reader = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    sender.complete(Ok(ChannelAnswer::broken(&bytes(70_000)))).await;
    assert_eq!(read(reader).await, Err(AnswerReaderError));
    assert_eq!(remembered_reason(&replay, &fixture.ada, &job).await, "network");
}

#[tokio::test]
async fn a_job_that_is_dropped_ends_with_an_internal_error() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let (receiver, sender) = replay.register_job::<ChannelAnswer>(&fixture.ada, &job, registration());
    drop(sender);
    assert_eq!(receiver.answer(far_deadline()).await.err(), Some(Error::Internal));
    assert_eq!(replay.adopt_job(&fixture.ada, &job).await.unwrap().head().await.unwrap().status, 500);
}

#[tokio::test]
async fn an_orphan_is_preferred_to_an_older_error() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    replay.remember(&fixture.ada, &job, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    orphan(&replay, &fixture.ada, &job).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!(read(replay.adopt_job(&fixture.ada, &job).await.unwrap()).await.unwrap(), b"an image");
    assert_eq!(remembered_reason(&replay, &fixture.ada, &job).await, "content_refused");
}

/// Reads the answer of an orphan as a retry does. Returns false if the answer is lost (error "outcome unknown").
async fn is_stored(replay: &Arc<AnswerStore>, caller: &Caller, job: &Arc<Job>) -> bool {
    let reader = replay.adopt_job(caller, job).await.expect("an orphan or an error");
    if reader.head().await.unwrap().status == 200 {
        return read(reader).await.is_ok();
    }
    assert_eq!(reason(reader).await, "outcome_unknown");
    false
}

#[tokio::test]
async fn beyond_their_limits_the_oldest_orphans_are_evicted() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 300_000;
    let replay = fixture.open().await;
    for number in 0..4 {
        orphan(&replay, &fixture.ada, &job(&number.to_string()))
            .complete(Ok(ChannelAnswer::complete(&bytes(100_000))))
            .await;
    }
    // The space is enough for two answers, whose files count in whole disk blocks.
    let mut found = Vec::new();
    for number in 0..4 {
        found.push(is_stored(&replay, &fixture.ada, &job(&number.to_string())).await);
    }
    assert_eq!(found, [false, false, true, true]);
}

#[tokio::test]
async fn orphans_of_the_api_key_with_most_bytes_are_evicted_first() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 300_000;
    let replay = fixture.open().await;
    orphan(&replay, &fixture.bob, &job("first of all")).complete(Ok(ChannelAnswer::complete(&bytes(50_000)))).await;
    for number in 0..8 {
        orphan(&replay, &fixture.ada, &job(&number.to_string()))
            .complete(Ok(ChannelAnswer::complete(&bytes(100_000))))
            .await;
    }
    assert!(is_stored(&replay, &fixture.bob, &job("first of all")).await);
    assert!(is_stored(&replay, &fixture.ada, &job("7")).await);
    assert!(!is_stored(&replay, &fixture.ada, &job("0")).await);
}

#[tokio::test]
async fn the_number_of_remembered_errors_is_limited() {
    let fixture = ReplayFixture::new().await;
    let replay = fixture.open().await;
    let (first, second) = (job("first"), job("second"));
    replay.remember(&fixture.ada, &first, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    for number in 0..4096 {
        if number % 512 == 0 || number == 4095 {
            assert!(replay.adopt_job(&fixture.ada, &first).await.is_some(), "{number}");
        }
        replay.remember(&fixture.ada, &second, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    }
    assert!(replay.adopt_job(&fixture.ada, &first).await.is_none());
    // The errors of one API key do not displace those of another.
    replay.remember(&fixture.bob, &first, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    for _ in 0..100 {
        replay.remember(&fixture.ada, &second, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    }
    assert!(replay.adopt_job(&fixture.bob, &first).await.is_some());
}

#[tokio::test]
async fn a_finished_job_holds_no_files_of_its_request() {
    let fixture = ReplayFixture::new().await;
    let (replay, finished, failed) = (fixture.open().await, fixture.edit(1), fixture.edit(2));
    orphan(&replay, &fixture.ada, &finished).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    replay.remember(&fixture.ada, &failed, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    assert_eq!((Arc::strong_count(&finished), Arc::strong_count(&failed)), (1, 1));
    assert!(replay.adopt_job(&fixture.ada, &fixture.edit(1)).await.is_some());
    assert_eq!(remembered_reason(&replay, &fixture.ada, &fixture.edit(2)).await, "content_refused");
}

#[tokio::test]
async fn an_orphan_without_disk_space_reaches_present_readers_only() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 400_000;
    let (replay, job, answer) = (fixture.open().await, job("red"), bytes(500_000));
    let sender = orphan(&replay, &fixture.ada, &job);
    let reader = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    let (read, ()) = tokio::join!(read(reader), sender.complete(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read.unwrap(), answer);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn an_operator_can_disable_the_adoption_of_orphans() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.orphans = false;
    let (replay, job) = (fixture.open().await, job("red"));
    orphan(&replay, &fixture.ada, &job).complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    replay.remember(&fixture.ada, &job, registration(), &Error::Upstream(UpstreamFault::ContentRefused)).await;
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
    let (receiver, sender) = replay.register_job(&fixture.ada, &job, registration());
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert!(receiver.answer(far_deadline()).await.is_ok());
    replay.drain().await;
}
