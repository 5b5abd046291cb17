//! Tests of how many bytes of answers wait for callers, and of the sizes of frames.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use http_body::Body;
use tokio::task::JoinSet;

use super::*;

/// Starts a task that writes `count` answers of this length, each on its own connection. The task ends when all are
/// written.
fn serve(upstream: Upstream, count: usize, length: usize) -> JoinSet<()> {
    let mut servers = JoinSet::new();
    servers.spawn(async move {
        let mut answers = JoinSet::new();
        for _ in 0..count {
            let mut stream = upstream.accept().await;
            answers.spawn(async move {
                answer(&mut stream, &head(length)).await;
                stream.write_all(&pattern(length)).await.unwrap();
            });
        }
        answers.join_all().await;
    });
    servers
}

fn head(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect()
}

#[tokio::test]
async fn a_large_image_passes_intact_and_in_large_frames() {
    let length = 28 << 20;
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let servers = serve(upstream, 1, length);
    let mut body = send(&transport, &uri).await.unwrap().into_body();
    let (mut seen, mut frames, mut largest) = (Vec::with_capacity(length), 0, 0);
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        (frames, largest) = (frames + 1, largest.max(data.len()));
        seen.extend_from_slice(&data);
    }
    println!("{frames} frames, the largest {largest}");
    assert!(seen == pattern(length));
    assert!((128 * 1024..=256 * 1024).contains(&largest), "{largest}");
    assert_eq!(transport.unwritten(), 0);
    servers.join_all().await;
}

/// Takes all frames that are available now, and returns their number.
fn take_available_frames(body: &mut ResponseBody, held: &mut Vec<Bytes>) -> usize {
    let (mut cx, before) = (Context::from_waker(Waker::noop()), held.len());
    while let Poll::Ready(Some(frame)) = Pin::new(&mut *body).poll_frame(&mut cx) {
        held.push(frame.unwrap().into_data().unwrap());
    }
    held.len() - before
}

#[tokio::test]
async fn unwritten_answers_stay_within_the_budget_and_still_end() {
    let (answers, length, buffer_budget, small_read) = (32, 2 << 20, 4 << 20, 64 * 1024);
    let settings = TransportSettings { buffer_budget, small_read, ..TransportSettings::default() };
    let (upstream, transport) = (Upstream::start().await, Transport::new(settings).unwrap());
    let uri = upstream.uri();
    let servers = serve(upstream, answers, length);
    let mut bodies = Vec::new();
    for _ in 0..answers {
        bodies.push((send(&transport, &uri).await.unwrap().into_body(), Vec::new()));
    }

    // Everything that is available is taken, and nothing is dropped.
    let mut idle_rounds = 0;
    while idle_rounds < 20 {
        let taken: usize = bodies.iter_mut().map(|(body, held)| take_available_frames(body, held)).sum();
        idle_rounds = if taken == 0 { idle_rounds + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let held: usize = bodies.iter().flat_map(|(_, held)| held).map(Bytes::len).sum();
    println!("{answers} answers of {length} hold {held}");
    // The first frame of an answer keeps its head.
    assert_eq!(transport.unwritten(), held + answers * head(length).len());
    assert!(held >= buffer_budget, "the whole budget is used");
    assert!(held <= buffer_budget + 512 * 1024 + answers * small_read, "{held}");

    // Each answer can be read to its end, although the other answers use up the budget.
    for (mut body, held) in bodies {
        let mut seen: usize = held.into_iter().map(|frame| frame.len()).sum();
        while let Some(frame) = body.frame().await {
            seen += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(seen, length);
    }
    assert_eq!(transport.unwritten(), 0);
    servers.join_all().await;
}

#[tokio::test]
async fn without_a_budget_an_answer_is_read_in_small_frames() {
    let settings = TransportSettings { buffer_budget: 0, small_read: 16 * 1024, ..TransportSettings::default() };
    let (upstream, transport) = (Upstream::start().await, Transport::new(settings).unwrap());
    let uri = upstream.uri();
    let servers = serve(upstream, 1, 1 << 20);
    let mut body = send(&transport, &uri).await.unwrap().into_body();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() <= 16 * 1024);
        seen += data.len();
    }
    assert_eq!(seen, 1 << 20);
    servers.join_all().await;
}

#[tokio::test]
async fn small_frames_are_passed_on_at_once() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let (mut stream, response) = tokio::join!(upstream.answer(head), send(&transport, &uri));
    let mut body = response.unwrap().into_body();
    for _ in 0..3 {
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "data: 1\n\n");
    }
}
