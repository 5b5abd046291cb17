//! The unread rest of a request, in frames of any size.

use std::sync::atomic::Ordering;

use super::*;
use crate::gateway::front::framed_body::{FRAME_SIZES, framed};

const ROOM: usize = 100_000;

#[tokio::test]
async fn what_is_left_is_read_away_as_far_as_there_is_room_whatever_a_frame_holds() {
    for frame in FRAME_SIZES {
        for length in [0, 1, ROOM - 1, ROOM, ROOM + 1, 3 * ROOM] {
            let (body, pulled) = framed(&vec![b'x'; length].into(), frame);
            drain(body, ROOM).await;
            // The frame that does not fit is the last one.
            let most = (ROOM / frame + 1) * frame;
            assert_eq!(pulled.load(Ordering::Relaxed), length.min(most) as u64, "{length} bytes in frames of {frame}");
        }
    }
}

/// Reads this many frames of a body, and leaves the rest.
async fn assert_rest_comes_back(frame: usize, frames_read: usize) {
    let case = format!("{frames_read} frames of {frame}");
    let whole = Bytes::from(vec![b'x'; 40_000]);
    let (body, pulled) = framed(&whole, frame);
    let (request, unread) = UnreadBody::capture_from(hyper::Request::new(body));
    let mut body = request.into_body();
    for _ in 0..frames_read {
        drop(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await);
    }
    assert_eq!(pulled.load(Ordering::Relaxed), (frames_read * frame).min(whole.len()) as u64, "{case}");
    drop(body);
    let rest = unread.take();
    // A reader that has seen the end leaves nothing; before it has asked for more it cannot know that it is the end.
    assert_eq!(rest.is_none(), frames_read > whole.len().div_ceil(frame), "{case}");
    if let Some(rest) = rest {
        drain(rest, ROOM).await;
        assert_eq!(pulled.load(Ordering::Relaxed), whole.len() as u64, "{case}");
    }
}

#[tokio::test]
async fn what_was_not_read_comes_back_whatever_a_frame_holds() {
    for (frame, frames_read) in
        FRAME_SIZES.into_iter().flat_map(|frame| [0, 1, 2].map(|frames_read| (frame, frames_read)))
    {
        assert_rest_comes_back(frame, frames_read).await;
    }
}
