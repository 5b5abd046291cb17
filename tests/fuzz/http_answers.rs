//! Reads HTTP/1.1 answers that are cut at any byte, and compares the results with those of hyper.
//!
//! Both must find the same status, the same data, and the same kind of end. One difference is meant: a bare line feed in
//! trailers is an error.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;

use super::answer_framing::BARE_LINE_FEED;
use super::answer_head::AnswerHead;

/// The most bytes of a head; hyper has another limit, so that inputs with a longer head are not compared.
const MAX_HEAD: usize = 64 * 1024;
const LONGEST_INPUT: usize = 16 * 1024;
/// The most places at which an input is cut, one after the other.
const CUTS_MAX: usize = 64;

/// The status and the data that were read before the end or an error, and true if the answer is complete. `None` if there
/// is no head.
type AnswerOutcome = Option<(u16, Vec<u8>, bool)>;

/// The bytes of an answer, which arrive in pieces after the request, and then the end of the connection.
struct AnswerStream {
    pieces: VecDeque<Vec<u8>>,
    is_asked: bool,
    reader: Option<Waker>,
}

/// Returns true if the answer is complete.
pub(crate) fn http(input: &[u8]) -> bool {
    let input = &input[..input.len().min(LONGEST_INPUT)];
    let Ok(expected) = read_pieces(&[input]) else { return false };
    assert_eq!(read_by_hyper(&[input]), expected, "{}", input.escape_ascii());
    let step = input.len().div_ceil(CUTS_MAX).max(1);
    for cut in (0..input.len()).step_by(step) {
        let (first, rest) = input.split_at(cut);
        let middle = rest.len() / 2;
        let pieces = [first, &rest[..middle], &rest[middle..]];
        assert_eq!(read_pieces(&pieces), Ok(expected.clone()), "cut at {cut}: {}", input.escape_ascii());
    }
    expected.is_some_and(|(.., is_complete)| is_complete)
}

/// Reads an answer as the gateway does. Fails if it has the difference that is meant.
fn read_pieces(pieces: &[&[u8]]) -> Result<AnswerOutcome, ()> {
    let mut received = Bytes::new();
    let mut pieces = pieces.iter();
    let head = loop {
        let Some(piece) = pieces.next() else { return Ok(None) };
        received = [&received[..], piece].concat().into();
        match AnswerHead::take(&mut received, &http::Method::GET, MAX_HEAD) {
            Ok(None) => {}
            Ok(Some(head)) => break head,
            Err(_) => return Ok(None),
        }
    };
    let (status, mut framing, mut data) = (head.status.as_u16(), head.framing, Vec::new());
    loop {
        match framing.take_data(&mut received) {
            Err(error) if error == BARE_LINE_FEED => return Err(()),
            Err(_) => return Ok(Some((status, data, false))),
            Ok(taken) if !taken.is_empty() => data.extend_from_slice(&taken),
            Ok(_) if framing.is_end() => return Ok(Some((status, data, true))),
            Ok(_) => match pieces.next() {
                Some(piece) => received = [&received[..], piece].concat().into(),
                None => return Ok(Some((status, data, framing.data_at_end_of_connection().is_some()))),
            },
        }
    }
}

fn read_by_hyper(pieces: &[&[u8]]) -> AnswerOutcome {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime"));
    let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
    runtime.block_on(async {
        let stream = AnswerStream { pieces, is_asked: false, reader: None };
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::join!(read_answer(sender), connection).0
    })
}

async fn read_answer(mut sender: http1::SendRequest<Empty<Bytes>>) -> AnswerOutcome {
    let response = sender.send_request(http::Request::new(Empty::new())).await.ok()?;
    let (status, mut body, mut data) = (response.status().as_u16(), response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Some((status, data, false)) };
        data.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    Some((status, data, true))
}

// === impl AnswerStream ===

impl AsyncRead for AnswerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        while let Some(mut piece) = self.pieces.pop_front() {
            let count = piece.len().min(buf.remaining());
            buf.put_slice(&piece[..count]);
            if count < piece.len() {
                self.pieces.push_front(piece.split_off(count));
            }
            if count > 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AnswerStream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
