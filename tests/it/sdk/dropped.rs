//! Calls that a program drops, against a gateway and the ledger of its upstream: the next equal call of the same client
//! gets the image, which is paid for once.

use std::time::Duration;

use imagate::client::{Client, EditRequest, Error, GenerateRequest, ImageEvent, Input, PartialImages};

use super::{client, run};
use crate::kit::{FakeUpstream, Gateway, alpha_png};

const ROUNDS: usize = 100;

/// Drops the call as soon as the upstream has been asked this number of times.
async fn drop_when_asked<T>(upstream: &FakeUpstream, count: usize, call: impl Future<Output = Result<T, Error>>) {
    let asked = async {
        while upstream.attempt_count() < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        () = asked => {}
        ended = call => panic!("it ended with {:?}", ended.err()),
    }
}

fn stream_request(prompt: &str) -> GenerateRequest {
    GenerateRequest::new(prompt).partial_images(PartialImages::of::<1>())
}

#[test]
fn a_hundred_dropped_calls_are_paid_for_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream).with_quiet_log();
    let client = client(&gateway);
    run(async {
        for round in 1..=ROUNDS {
            let prompt = format!("fox {round} [[delay=80]]");
            drop_when_asked(&upstream, round, client.images().generate(&*prompt)).await;
            let images = client.clone().images().generate(&*prompt).await?;
            assert!(images.is_replayed(), "round {round}");
        }
        Ok::<(), Error>(())
    })
    .expect("each call gets its image");
    assert_eq!(upstream.attempt_count(), ROUNDS);
}

#[test]
fn a_call_that_is_dropped_at_any_moment_is_paid_for_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream).with_quiet_log();
    let client = client(&gateway);
    let replays = run(async {
        let mut replays = 0;
        for round in 0..ROUNDS {
            let prompt = format!("fox {round} [[delay=40]]");
            let limit = Duration::from_millis(u64::try_from(round % 25).unwrap_or(0));
            let in_time = tokio::time::timeout(limit, client.images().generate(&*prompt)).await;
            if in_time.is_err() {
                replays += usize::from(client.images().generate(&*prompt).await?.is_replayed());
            }
        }
        Ok::<_, Error>(replays)
    })
    .expect("each call gets its image");
    println!("{replays} of {ROUNDS} answers were made before");
    assert_eq!(upstream.attempt_count(), ROUNDS);
}

#[test]
fn streams_and_edits_that_are_dropped_are_paid_for_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let client = client(&gateway);
    let file = gateway.home().join("hat.png");
    std::fs::write(&file, &alpha_png(64, 64)[..]).expect("a file");
    let edit = |prompt: &str| EditRequest::new(prompt).image(Input::from_path(&file));
    run(async {
        let images = client.images();
        drop_when_asked(&upstream, 1, images.edit(edit("a hat [[gate=edit]]"))).await;
        upstream.open_gate("edit");
        assert!(images.edit(edit("a hat [[gate=edit]]")).await?.is_replayed());

        // Before the stream begins, and between its events.
        let prompt = "a fox [[events=p,@stream,c]]";
        let stream = async { images.generate_stream(stream_request(prompt)).await?.collect_image().await };
        drop_when_asked(&upstream, 2, stream).await;
        let mut stream = images.generate_stream(stream_request(prompt)).await?;
        assert!(matches!(stream.next().await, Some(Ok(ImageEvent::PartialImage { .. }))));
        drop(stream);
        upstream.open_gate("stream");
        images.generate_stream(stream_request(prompt)).await?.collect_image().await?;

        let prompt = "another hat [[events=p,@edit-stream,c]]";
        let with_partial = |prompt: &str| edit(prompt).partial_images(PartialImages::of::<1>());
        let stream = async { images.edit_stream(with_partial(prompt)).await?.collect_image().await };
        drop_when_asked(&upstream, 3, stream).await;
        upstream.open_gate("edit-stream");
        images.edit_stream(with_partial(prompt)).await?.collect_image().await?;
        Ok::<(), Error>(())
    })
    .expect("each call gets its image");
    assert_eq!(upstream.attempt_count(), 3, "{:?}", upstream.received_attempts());
}

#[test]
fn a_call_that_exceeds_its_deadline_can_be_made_again_without_paying() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let builder = Client::builder().base_url(gateway.base_url()).api_key(gateway.secret());
    let client = builder.deadline(Duration::from_millis(300)).build().expect("a client");
    run(async {
        let prompt = "a fox [[gate=open]]";
        let error = client.images().generate(prompt).await.expect_err("no image in time");
        assert!(error.is_outcome_unknown() && error.idempotency_key().is_some(), "{error:?}");
        upstream.wait_until("the attempt", |attempts| attempts.len() == 1);
        upstream.open_gate("open");
        // By hand with another client, and by itself with the same one.
        let other = super::client(&gateway);
        let key = error.idempotency_key().unwrap_or_default();
        let images = other.images().generate(GenerateRequest::new(prompt).idempotency_key(key)).await?;
        assert!(images.is_replayed());
        let request = GenerateRequest::new(prompt).deadline(Duration::from_secs(60));
        assert!(client.images().generate(request).await?.is_replayed());
        Ok::<(), Error>(())
    })
    .expect("the image");
    assert_eq!(upstream.attempt_count(), 1);
}
