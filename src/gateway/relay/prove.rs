//! The wait for proof: a 200 goes out only when the first bytes of an image have been seen.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use serde_json::{Map, Value};
use tokio::time::{Instant, Sleep};

use super::fill::Asked;
use super::lexer::{Lexer, Malformed};
use super::rewrite::{Rewrite, Summary};
use crate::gateway::upstream::{ReplyBody, ReplyError};
use crate::tables::HOLD_BEFORE_PROOF_BYTES;

/// How long an answer may take, from here on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Silence between two pieces of the body.
    pub(crate) idle: Duration,
    /// The end of all patience.
    pub(crate) until: Instant,
}

/// There is no image in the answer.
#[derive(Debug)]
pub(crate) enum NoProof {
    /// A whole JSON answer without an image; its members are kept because they may say why.
    Ended(Map<String, Value>),
    /// Not the JSON that was promised, or too much of it before any image.
    Malformed,
    /// The connection broke.
    Broken,
    /// Nothing came in time.
    Timeout,
}

/// An answer with an image in it: the ticket to a [`super::RelayBody`].
#[derive(Debug)]
pub(crate) struct Proven(pub(super) Tap);

/// The upstream's body with the lexer and the rewriting behind it.
#[derive(Debug)]
pub(super) struct Tap {
    body: ReplyBody,
    lexer: Lexer,
    rewrite: Rewrite,
    limits: Limits,
    timer: Pin<Box<Sleep>>,
    /// The timer runs only while somebody waits for the upstream: a caller who does not read is not the upstream's fault.
    waiting: bool,
}

/// What one look at the upstream gave.
pub(super) enum Step {
    /// Something came; perhaps nothing of it goes out.
    Pieces(Vec<Bytes>),
    /// The answer is complete: its last bytes, and what it held.
    End(Bytes, Summary),
}

/// How an answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the upstream's answer is not the JSON that was promised: {0}")]
    Malformed(#[from] MalformedAnswer),
    #[error("the upstream's connection broke in the middle of its answer")]
    Connection,
    #[error("the upstream fell silent in the middle of its answer")]
    Timeout,
}

/// Keeps the lexer's word private to this room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MalformedAnswer(Malformed);

/// Reads until an image has begun.
pub(crate) async fn prove(body: ReplyBody, asked: Asked, limits: Limits) -> Result<Proven, NoProof> {
    let mut tap = Tap::new(body, asked, limits);
    let mut seen = 0;
    loop {
        if tap.rewrite.proven() {
            return Ok(Proven(tap));
        }
        if seen > HOLD_BEFORE_PROOF_BYTES {
            return Err(NoProof::Malformed);
        }
        match std::future::poll_fn(|cx| tap.poll_read(cx)).await {
            Ok(Some(length)) => seen += length as u64,
            Ok(None) => return Err(tap.without_image()),
            Err(Broken::Malformed(_)) => return Err(NoProof::Malformed),
            Err(Broken::Connection) => return Err(NoProof::Broken),
            Err(Broken::Timeout) => return Err(NoProof::Timeout),
        }
    }
}

// === impl Tap ===

impl Tap {
    fn new(body: ReplyBody, asked: Asked, limits: Limits) -> Self {
        let timer = Box::pin(tokio::time::sleep_until(limits.until.min(Instant::now() + limits.idle)));
        Self { body, lexer: Lexer::new(), rewrite: Rewrite::new(asked), limits, timer, waiting: false }
    }

    /// The next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Broken>> {
        let waiting = self.rewrite.take();
        if !waiting.is_empty() {
            return Poll::Ready(Ok(Step::Pieces(waiting)));
        }
        Poll::Ready(match ready!(self.poll_read(cx))? {
            Some(_) => Ok(Step::Pieces(self.rewrite.take())),
            None => {
                self.lexer.finish().map_err(MalformedAnswer)?;
                let summary = self.rewrite.summary();
                Ok(Step::End(self.rewrite.finish(), summary))
            }
        })
    }

    /// What the answer held so far.
    pub(super) fn summary(&self) -> Summary {
        self.rewrite.summary()
    }

    /// Reads one frame through the lexer: its length, or `None` at the end of the body.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<usize>, Broken>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                if !std::mem::replace(&mut self.waiting, true) {
                    let end = self.limits.until.min(Instant::now() + self.limits.idle);
                    self.timer.as_mut().reset(end);
                }
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(Broken::Timeout));
            }
        };
        self.waiting = false;
        let Some(frame) = frame else { return Poll::Ready(Ok(None)) };
        let frame = frame.map_err(|ReplyError| Broken::Connection)?;
        let Ok(data) = frame.into_data() else { return Poll::Ready(Ok(Some(0))) };
        self.lexer.push(&data, &mut self.rewrite).map_err(MalformedAnswer)?;
        Poll::Ready(Ok(Some(data.len())))
    }

    fn without_image(self) -> NoProof {
        match self.lexer.finish() {
            Ok(()) => NoProof::Ended(self.rewrite.members().clone()),
            Err(_) => NoProof::Malformed,
        }
    }
}
