//! Tests of jobs whose callers got `Error::InProgress`.

use super::*;

/// Returns a running job whose caller got `Error::InProgress`.
async fn job_with_expected_repeat(
    replay: &Arc<AnswerStore>,
    caller: &Caller,
    job: &Arc<Job>,
) -> AnswerSender<ChannelAnswer> {
    let (receiver, sender) = replay.register_job(caller, job, registration());
    assert_eq!(receiver.answer(Instant::now()).await.err(), Some(Error::InProgress));
    sender
}

async fn find_awaited(replay: &Arc<AnswerStore>, caller: &Caller, task: &SharedTask) -> Option<AnswerReader> {
    replay.find_answer_in_progress(caller, task, &registration()).await.unwrap()
}

#[tokio::test]
async fn a_repeat_after_in_progress_gets_the_answer_once() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let task = SharedTask::from(&job);
    assert!(find_awaited(&replay, &fixture.ada, &task).await.is_none());
    drop(replay.register_job::<ChannelAnswer>(&fixture.ada, &job, registration()));
    assert!(find_awaited(&replay, &fixture.ada, &task).await.is_none(), "its caller left without the error");
    let sender = job_with_expected_repeat(&replay, &fixture.ada, &job).await;
    assert!(find_awaited(&replay, &fixture.bob, &task).await.is_none());
    let early = find_awaited(&replay, &fixture.ada, &task).await.expect("the running job");
    assert!(find_awaited(&replay, &fixture.ada, &task).await.is_none(), "a second repeat runs a job of its own");
    drop(early);
    // Two requests find the job before either of them reads it.
    let orphans = &replay;
    let expected =
        orphans.candidates(&fixture.ada, &task, false).into_iter().find(|candidate| candidate.repeat_expected);
    let job_id = expected.expect("the job").job_id;
    let (first, second) = (orphans.follow_awaited_job(job_id), orphans.follow_awaited_job(job_id));
    assert!(first.is_some() && second.is_none(), "only one of two requests gets a reader");
    drop(first);
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    let reader = find_awaited(&replay, &fixture.ada, &task).await.expect("the answer");
    assert_eq!(reader.collect().await.unwrap().to_bytes(), "an image");
    assert!(find_awaited(&replay, &fixture.ada, &task).await.is_none(), "the answer was delivered");
}

#[tokio::test]
async fn a_job_with_an_expected_repeat_is_not_abandoned() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let sender = job_with_expected_repeat(&replay, &fixture.ada, &job).await;
    tokio::time::pause();
    tokio::time::timeout(Duration::from_secs(3600), sender.abandoned()).await.unwrap_err();
}

#[tokio::test]
async fn a_job_is_wanted_while_a_caller_waits_or_is_expected() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let (receiver, sender) = replay.register_job::<ChannelAnswer>(&fixture.ada, &job, registration());
    assert!(sender.is_wanted());
    drop(receiver);
    assert!(!sender.is_wanted(), "its caller has left");
    let retry = replay.adopt_job(&fixture.ada, &job).await.expect("the running job");
    assert!(sender.is_wanted(), "a retry waits for it");
    drop(retry);
    assert!(!sender.is_wanted());
    drop(sender);
    let other_job = super::job("blue");
    assert!(job_with_expected_repeat(&replay, &fixture.ada, &other_job).await.is_wanted());
}

#[tokio::test]
async fn a_repeat_after_in_progress_gets_a_final_error_once() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let task = SharedTask::from(&job);
    job_with_expected_repeat(&replay, &fixture.ada, &job)
        .await
        .complete(Err(Error::Upstream(UpstreamFault::Timeout)))
        .await;
    assert_eq!(
        reason(find_awaited(&replay, &fixture.ada, &task).await.expect("the remembered error")).await,
        "timeout"
    );
    assert!(find_awaited(&replay, &fixture.ada, &task).await.is_none());
    job_with_expected_repeat(&replay, &fixture.ada, &job).await.complete(Err(Error::Unavailable)).await;
    assert!(find_awaited(&replay, &fixture.ada, &task).await.is_none(), "nothing was spent");
}
