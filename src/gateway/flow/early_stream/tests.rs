use http_body_util::BodyExt as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::gateway::replay::{AnswerHead, AnswerReader};

const LATE: Duration = Duration::from_secs(40);

/// Returns the answer that an earlier request with the same idempotency key left behind.
fn followed(status: u16, body: impl Into<Bytes>) -> GatewayAnswer {
    let head = AnswerHead { status, content_type: "x/y".to_owned(), headers: std::collections::BTreeMap::new() };
    let follower = AnswerReader::from_bytes(&head, body.into());
    GatewayAnswer::from_stored_answer(head, follower, &CancellationToken::new())
}

async fn text(made: GatewayAnswer) -> (u16, String) {
    let status = made.head.status;
    let bytes = made.body.collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_first_heartbeat_keeps_its_status() {
    let begun = Instant::now();
    let failed = begin_stream(async { Err(Error::NoAccounts) }).await;
    assert_eq!(failed.err(), Some(Error::NoAccounts));
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_later_failure_is_an_event_after_the_heartbeats() {
    let begun = Instant::now();
    let made = begin_stream(async {
        sleep(LATE).await;
        Err(Error::Upstream(UpstreamFault::Timeout))
    });
    let made = made.await.unwrap();
    assert!(made.is_stream());
    assert_eq!(begun.elapsed(), HEARTBEAT_INTERVAL, "the stream begins when the first heartbeat is due");
    let (status, text) = text(made).await;
    let error = Error::Upstream(UpstreamFault::Timeout).event();
    assert_eq!((status, text), (200, format!(": keep-alive\n\n: keep-alive\n\nevent: error\ndata: {error}\n\n")));
    assert_eq!(begun.elapsed(), LATE);
}

#[tokio::test(start_paused = true)]
async fn the_work_ends_with_its_caller() {
    struct DropProbe(std::sync::Arc<()>);
    let alive = std::sync::Arc::new(());
    let work = DropProbe(std::sync::Arc::clone(&alive));
    let made = begin_stream(async move {
        let _work = work.0;
        std::future::pending().await
    });
    let made = made.await.unwrap();
    assert_eq!(std::sync::Arc::strong_count(&alive), 2);
    drop(made);
    assert_eq!(std::sync::Arc::strong_count(&alive), 1);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_refusal_is_an_event_and_one_that_cannot_be_read_is_an_unknown_outcome() {
    let refused = Error::Upstream(UpstreamFault::Refused);
    let unknown = Error::Upstream(UpstreamFault::Unknown).event();
    for (body, event) in [
        (refused.body().to_string(), refused.event()),
        ("{\"error\":{\"code\"".to_owned(), unknown.clone()),
        ("<html>".to_owned(), unknown.clone()),
        ("{\"detail\":1}".to_owned(), unknown.clone()),
        (String::new(), unknown),
    ] {
        let refusal = followed(502, body.clone());
        let late = async {
            sleep(LATE).await;
            Ok(refusal)
        };
        let (status, text) = text(begin_stream(late).await.unwrap()).await;
        assert_eq!(status, 200);
        assert!(text.ends_with(&format!(": keep-alive\n\nevent: error\ndata: {event}\n\n")), "{body}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_a_kept_answer_too_slowly_is_cut_off_in_a_stream_that_began_before_it_too() {
    for (pause, is_whole) in [(1, true), (60, false)] {
        let late = async {
            sleep(LATE).await;
            Ok(followed(200, vec![b'x'; 1000]))
        };
        let mut body = begin_stream(late).await.unwrap().body;
        let (mut taken, mut ended) = (0, Ok(()));
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => taken += frame.into_data().unwrap().iter().filter(|byte| **byte == b'x').count(),
                Err(error) => ended = Err(error),
            }
            sleep(Duration::from_secs(pause)).await;
        }
        assert_eq!((taken, ended.is_ok()), (1000, is_whole), "{pause} seconds between two reads");
    }
}
