//! Jobs whose callers were told to come back for the answer.

use super::*;

/// Returns a job in flight whose caller was told to come back.
async fn job_with_expected_retry(
    replay: &AnswerReplay,
    caller: &Caller,
    job: &Arc<Job>,
) -> AnswerSender<ChannelAnswer> {
    let (waiting, promise) = replay.register_job(caller, job, JobRegistration::default());
    assert_eq!(waiting.answer(Instant::now()).await.err(), Some(Error::InProgress));
    promise
}

#[tokio::test]
async fn who_was_told_to_come_back_gets_the_answer_once_without_saying_that_it_is_a_retry() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let task = SharedTask::from(&job);
    assert!(replay.find_answer_in_progress(&house.ada, &task).await.is_none());
    drop(replay.register_job::<ChannelAnswer>(&house.ada, &job, JobRegistration::default()));
    assert!(replay.find_answer_in_progress(&house.ada, &task).await.is_none(), "nobody told this one to come back");
    let promise = job_with_expected_retry(&replay, &house.ada, &job).await;
    assert!(replay.find_answer_in_progress(&house.bob, &task).await.is_none());
    let early = replay.find_answer_in_progress(&house.ada, &task).await.expect("the job, in flight");
    assert!(replay.find_answer_in_progress(&house.ada, &task).await.is_none(), "another request is another job");
    drop(early);
    // Two requests that have both seen the job before one of them follows it.
    let orphans = replay.orphans.as_ref().expect("orphans");
    let expected = orphans.candidates(&house.ada, &task).into_iter().find(|candidate| candidate.retry_expected);
    let place = expected.expect("the job").job_id;
    let (one, other) = (orphans.follow_awaited_job(place), orphans.follow_awaited_job(place));
    assert!(one.is_some() && other.is_none(), "of two requests at once one is the retry");
    drop(one);
    promise.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let follower = replay.find_answer_in_progress(&house.ada, &task).await.expect("the answer");
    assert_eq!(follower.collect().await.unwrap().to_bytes(), "an image");
    assert!(replay.find_answer_in_progress(&house.ada, &task).await.is_none(), "it was delivered");
}

#[tokio::test]
async fn a_job_whose_caller_was_told_to_come_back_is_not_abandoned() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let promise = job_with_expected_retry(&replay, &house.ada, &job).await;
    tokio::time::pause();
    tokio::time::timeout(Duration::from_secs(3600), promise.abandoned()).await.unwrap_err();
}

#[tokio::test]
async fn a_job_is_wanted_as_long_as_somebody_waits_or_was_told_to_come_back() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let (waiting, promise) = replay.register_job::<ChannelAnswer>(&house.ada, &job, JobRegistration::default());
    assert!(promise.is_wanted());
    drop(waiting);
    assert!(!promise.is_wanted(), "its caller has left");
    let retry = replay.adopt_job(&house.ada, &job).await.expect("the job, in flight");
    assert!(promise.is_wanted(), "a retry waits for it");
    drop(retry);
    assert!(!promise.is_wanted());
    drop(promise);
    let other = super::job("blue");
    assert!(job_with_expected_retry(&replay, &house.ada, &other).await.is_wanted());
}

#[tokio::test]
async fn who_was_told_to_come_back_reads_once_that_it_may_have_been_paid_for() {
    let house = ReplayFixture::new().await;
    let (replay, job) = (house.open().await, job("red"));
    let task = SharedTask::from(&job);
    job_with_expected_retry(&replay, &house.ada, &job)
        .await
        .complete(Err(Error::Upstream(UpstreamFault::Timeout)))
        .await;
    assert_eq!(reason(replay.find_answer_in_progress(&house.ada, &task).await.expect("the end")).await, "timeout");
    assert!(replay.find_answer_in_progress(&house.ada, &task).await.is_none());
    job_with_expected_retry(&replay, &house.ada, &job).await.complete(Err(Error::Unavailable)).await;
    assert!(replay.find_answer_in_progress(&house.ada, &task).await.is_none(), "nothing was spent");
}
