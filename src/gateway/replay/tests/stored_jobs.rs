//! Tests of the stored answers of plain jobs.

use super::jobs::orphan;
use super::*;

/// Returns the registration of a request whose retry is recognized after a restart.
fn with_fingerprint(fingerprint: [u8; 32]) -> JobRegistration {
    let (request_id, fingerprint) = (format!("req_{}", fingerprint[0]), Some(fingerprint));
    JobRegistration { request_id, marks_retries: true, fingerprint, ..registration() }
}

#[tokio::test]
async fn memory_has_only_jobs_that_run_and_answers_that_are_read() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let entries = |replay: &Arc<AnswerStore>| replay.jobs().entries.len();
    let sender = orphan(&replay, &fixture.ada, &job);
    assert_eq!(entries(&replay), 1);
    sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
    assert_eq!((entries(&replay), fixture.store.list_replays().await.unwrap().len()), (0, 1), "its row has the answer");
    let reader = replay.adopt_job(&fixture.ada, &job).await.unwrap();
    assert_eq!(entries(&replay), 1);
    assert_eq!(read(reader).await.unwrap(), b"an image");
    replay.drain().await;
    assert_eq!((entries(&replay), fixture.store.list_replays().await.unwrap().len()), (0, 0));
}

#[tokio::test]
async fn two_retries_get_the_answers_of_two_stored_orphans() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    for answer in [b"0", b"1"] {
        orphan(&replay, &fixture.ada, &job).complete(Ok(ChannelAnswer::complete(answer))).await;
    }
    let (first, second) = tokio::join!(replay.adopt_job(&fixture.ada, &job), replay.adopt_job(&fixture.ada, &job));
    let mut answers = [read(first.unwrap()).await.unwrap(), read(second.unwrap()).await.unwrap()];
    answers.sort();
    assert_eq!(answers, [b"0", b"1"]);
    assert!(replay.adopt_job(&fixture.ada, &job).await.is_none());
}

#[tokio::test]
async fn an_answer_with_links_is_kept_when_it_was_delivered() {
    let fixture = ReplayFixture::new().await;
    let (replay, job) = (fixture.open().await, job("red"));
    let linked = || JobRegistration { link_window: Some(Duration::from_secs(3600)), ..registration() };
    for is_delivered in [true, false] {
        let (receiver, sender) = replay.register_job(&fixture.ada, &job, linked());
        sender.complete(Ok(ChannelAnswer::complete(b"an image"))).await;
        let AnswerSource::Stored(mut reader) = receiver.answer(far_deadline()).await.unwrap() else {
            panic!("the answer is not stored")
        };
        let id = reader.id().unwrap().clone();
        reader.make_restartable();
        while let Some(frame) = reader.frame().await {
            frame.unwrap();
        }
        if is_delivered {
            reader.note_delivered();
        } else {
            drop(reader);
        }
        replay.drain().await;
        let restarted = fixture.open().await;
        let view = restarted.find_stored_answer(&id).await.unwrap().expect("its answer");
        assert!(view.is_successful() && view.stored_until > Timestamp::now() + Duration::from_secs(3500));
        assert!(restarted.adopt_job(&fixture.ada, &job).await.is_none(), "a request for images is another one");
        let task = SharedTask::from(&job);
        let retry = restarted.with_fingerprint(&fixture.ada, &task, linked()).await;
        let retried = restarted.find_earlier_answer(&fixture.ada, &task, &retry).await.unwrap();
        assert_eq!(retried.is_none(), is_delivered);
        if let Some(reader) = retried {
            assert_eq!(read(reader).await.unwrap(), b"an image");
            restarted.drain().await;
            assert!(restarted.find_earlier_answer(&fixture.ada, &task, &retry).await.unwrap().is_none());
            assert!(restarted.find_stored_answer(&id).await.unwrap().is_some(), "the links lead to it");
        }
    }
}

#[tokio::test]
async fn an_answer_without_disk_space_stays_in_memory_for_its_retry() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 400_000;
    let (replay, answer) = (fixture.open().await, bytes(500_000));
    for (prompt, fingerprint) in [("red", [1; 32]), ("blue", [2; 32])] {
        let (receiver, sender) = replay.register_job(&fixture.ada, &job(prompt), with_fingerprint(fingerprint));
        drop(receiver);
        sender.complete(Ok(ChannelAnswer::complete(&answer))).await;
    }
    replay.drain().await;
    let (task, registration) = (SharedTask::from(&job("red")), with_fingerprint([1; 32]));
    let reader = replay.find_earlier_answer(&fixture.ada, &task, &registration).await.unwrap();
    assert_eq!(read(reader.expect("the answer in memory")).await.unwrap(), answer);
    let other_process = fixture.open().await;
    let (task, registration) = (SharedTask::from(&job("blue")), with_fingerprint([2; 32]));
    let reader = other_process.find_earlier_answer(&fixture.ada, &task, &registration).await.unwrap();
    assert_eq!(reason(reader.expect("an answer of another process")).await, "outcome_unknown");
}

#[tokio::test]
async fn an_answer_without_disk_space_is_known_as_lost_after_a_kill() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 400_000;
    let replay = fixture.open().await;
    let _memory = replay.unstored.reserve(128 * 1024 * 1024, true).expect("memory");
    // The caller of the first job has left. The caller of the second leaves after a part of the answer.
    let (receiver, sender) = replay.register_job(&fixture.ada, &job("red"), with_fingerprint([1; 32]));
    drop(receiver);
    sender.complete(Ok(ChannelAnswer::complete(&bytes(500_000)))).await;
    let (receiver, sender) = replay.register_job(&fixture.ada, &job("blue"), with_fingerprint([2; 32]));
    let leaving = async {
        let AnswerSource::Stored(mut own) = receiver.answer(far_deadline()).await.unwrap() else {
            panic!("the answer is not stored")
        };
        read_some(&mut own, 200_000).await;
    };
    tokio::join!(leaving, sender.complete(Ok(ChannelAnswer::complete(&bytes(500_000)))));
    replay.drain().await;
    fixture.wait_until_no_files().await;
    let killed = fixture.open().await;
    for (prompt, fingerprint) in [("red", [1; 32]), ("blue", [2; 32])] {
        let task = SharedTask::from(&job(prompt));
        let found = killed.find_earlier_answer(&fixture.ada, &task, &with_fingerprint(fingerprint)).await.unwrap();
        assert_eq!(reason(found.expect("a lost answer")).await, "outcome_unknown", "{prompt}");
    }
}

#[tokio::test]
async fn the_file_of_an_answer_without_disk_space_is_removed_after_its_read() {
    let mut fixture = ReplayFixture::new().await;
    fixture.settings.max_bytes = 400_000;
    let (replay, answer) = (fixture.open().await, bytes(500_000));
    let (receiver, sender) = replay.register_job(&fixture.ada, &job("red"), with_fingerprint([1; 32]));
    let reading = async {
        let AnswerSource::Stored(own) = receiver.answer(far_deadline()).await.unwrap() else {
            panic!("the answer is not stored")
        };
        read(own).await
    };
    let (read, ()) = tokio::join!(reading, sender.complete(Ok(ChannelAnswer::complete(&answer))));
    assert_eq!(read.unwrap(), answer);
    fixture.wait_until_no_files().await;
}
