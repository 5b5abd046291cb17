use http_body_util::BodyExt as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::gateway::replay::{AnswerHead, AnswerReader};

/// A time after the second heartbeat and before the third.
const AFTER_HEARTBEAT: Duration = Duration::from_secs(40);

/// Creates an answer that is read from the stored answer to an earlier request with the same idempotency key.
fn stored_answer(status: u16, body: impl Into<Bytes>) -> GatewayAnswer {
    let head = AnswerHead { status, content_type: "x/y".to_owned(), headers: std::collections::BTreeMap::new() };
    let reader = AnswerReader::from_bytes(&head, body.into());
    GatewayAnswer::from_stored_answer(head, reader, &CancellationToken::new())
}

async fn text(answer: GatewayAnswer) -> (u16, String) {
    let status = answer.head.status;
    let bytes = answer.body.collect().await.unwrap().to_bytes();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_first_heartbeat_keeps_its_status() {
    let started_at = Instant::now();
    let failed = begin_stream(async { Err(Error::NoAccounts) }, CancellationToken::new()).await;
    assert_eq!(failed.err(), Some(Error::NoAccounts));
    assert_eq!(started_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_later_failure_is_an_event_after_the_heartbeats() {
    let started_at = Instant::now();
    let answer = async {
        sleep(AFTER_HEARTBEAT).await;
        Err(Error::Upstream(UpstreamFault::Timeout))
    };
    let answer = begin_stream(answer, CancellationToken::new()).await.unwrap();
    assert!(answer.is_stream());
    assert_eq!(started_at.elapsed(), HEARTBEAT_INTERVAL, "the stream begins when the first heartbeat is due");
    let (status, text) = text(answer).await;
    let error = Error::Upstream(UpstreamFault::Timeout).event();
    assert_eq!((status, text), (200, format!(": keep-alive\n\n: keep-alive\n\nevent: error\ndata: {error}\n\n")));
    assert_eq!(started_at.elapsed(), AFTER_HEARTBEAT);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_drops_the_job() {
    struct DropProbe(std::sync::Arc<()>);
    let alive = std::sync::Arc::new(());
    let work = DropProbe(std::sync::Arc::clone(&alive));
    let departure = CancellationToken::new();
    let answer = async move {
        let _work = work.0;
        std::future::pending().await
    };
    let answer = begin_stream(answer, departure.clone()).await.unwrap();
    assert_eq!((std::sync::Arc::strong_count(&alive), departure.is_cancelled()), (2, false));
    drop(answer);
    assert_eq!((std::sync::Arc::strong_count(&alive), departure.is_cancelled()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_stored_error_is_sent_as_an_event() {
    let refused = Error::Upstream(UpstreamFault::ContentRefused);
    let unknown = Error::Upstream(UpstreamFault::Unknown).event();
    for (body, event) in [
        (refused.body().to_string(), refused.event()),
        ("{\"error\":{\"code\"".to_owned(), unknown.clone()),
        ("<html>".to_owned(), unknown.clone()),
        ("{\"detail\":1}".to_owned(), unknown.clone()),
        (String::new(), unknown),
    ] {
        let refusal = stored_answer(502, body.clone());
        let late = async {
            sleep(AFTER_HEARTBEAT).await;
            Ok(refusal)
        };
        let (status, text) = text(begin_stream(late, CancellationToken::new()).await.unwrap()).await;
        assert_eq!(status, 200);
        assert!(text.ends_with(&format!(": keep-alive\n\nevent: error\ndata: {event}\n\n")), "{body}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_stored_answer_is_cut_off_in_an_early_stream() {
    for (pause, is_complete) in [(1, true), (60, false)] {
        let late = async {
            sleep(AFTER_HEARTBEAT).await;
            Ok(stored_answer(200, vec![b'x'; 1000]))
        };
        let mut body = begin_stream(late, CancellationToken::new()).await.unwrap().body;
        let (mut received, mut result) = (0, Ok(()));
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => received += frame.into_data().unwrap().iter().filter(|byte| **byte == b'x').count(),
                Err(error) => result = Err(error),
            }
            sleep(Duration::from_secs(pause)).await;
        }
        assert_eq!((received, result.is_ok()), (1000, is_complete), "{pause} seconds between two reads");
    }
}
