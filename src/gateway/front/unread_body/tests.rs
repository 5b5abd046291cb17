//! Tests of unread request bodies in frames of any size.

use std::sync::atomic::Ordering;

use super::*;
use crate::gateway::front::framed_body::{FRAME_SIZES, framed};

/// The maximum number of drained bytes.
const MAX_BYTES: usize = 100_000;

#[tokio::test]
async fn a_body_is_drained_up_to_the_limit_in_frames_of_any_size() {
    for frame_size in FRAME_SIZES {
        for length in [0, 1, MAX_BYTES - 1, MAX_BYTES, MAX_BYTES + 1, 3 * MAX_BYTES] {
            let (body, pulled) = framed(&vec![b'x'; length].into(), frame_size);
            drain(body, MAX_BYTES, None).await;
            // Draining stops after the frame that exceeds the limit.
            let max_pulled = (MAX_BYTES / frame_size + 1) * frame_size;
            assert_eq!(
                pulled.load(Ordering::Relaxed),
                length.min(max_pulled) as u64,
                "{length} bytes in frames of {frame_size}"
            );
        }
    }
}

/// Reads this many frames of a body and drops it, and checks that [`UnreadBody::take`] then returns the rest.
async fn assert_rest_is_recovered(frame_size: usize, frames_read: usize) {
    let case = format!("{frames_read} frames of {frame_size}");
    let bytes = Bytes::from(vec![b'x'; 40_000]);
    let (body, pulled) = framed(&bytes, frame_size);
    let (request, unread) = UnreadBody::wrap_request(hyper::Request::new(body));
    let mut body = request.into_body();
    for _ in 0..frames_read {
        drop(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await);
    }
    assert_eq!(pulled.load(Ordering::Relaxed), (frames_read * frame_size).min(bytes.len()) as u64, "{case}");
    drop(body);
    let unread_body = unread.take();
    // Only a poll after the last frame shows that the body has ended; then no rest is left.
    assert_eq!(unread_body.is_none(), frames_read > bytes.len().div_ceil(frame_size), "{case}");
    if let Some(unread_body) = unread_body {
        drain(unread_body, MAX_BYTES, None).await;
        assert_eq!(pulled.load(Ordering::Relaxed), bytes.len() as u64, "{case}");
    }
}

#[tokio::test]
async fn an_unread_rest_is_recovered_in_frames_of_any_size() {
    for (frame_size, frames_read) in
        FRAME_SIZES.into_iter().flat_map(|frame_size| [0, 1, 2].map(|frames_read| (frame_size, frames_read)))
    {
        assert_rest_is_recovered(frame_size, frames_read).await;
    }
}

/// A client with `Expect: 100-continue` sends its body only once a part of it is wanted.
#[tokio::test]
async fn a_body_that_the_client_holds_back_is_recovered_only_if_it_was_asked_for() {
    for (frames_read, is_recovered) in [(0, false), (1, true), (2, true)] {
        let (body, _) = framed(&Bytes::from(vec![b'x'; 40_000]), 4096);
        let mut request = hyper::Request::new(body);
        request.headers_mut().insert(EXPECT, http::HeaderValue::from_static("100-continue"));
        let (request, unread) = UnreadBody::wrap_request(request);
        let mut body = request.into_body();
        for _ in 0..frames_read {
            drop(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await);
        }
        drop(body);
        assert_eq!(unread.take().is_some(), is_recovered, "{frames_read} frames");
    }
}
