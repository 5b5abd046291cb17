//! The bodies of requests, which can be sent again, and of answers, which poll their connections.
//!
//! The module decides when a connection may carry another request. It must not know time: the reader of an answer
//! decides how long a pause may be, and drops the body to end it. Rules: after the head, the connection is polled only
//! from the body, so no frame is passed between tasks; a body that is dropped early closes its socket at once; a body
//! that broke off never ends like a complete one (U06).

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::answer_framing::AnswerFraming;
use super::buffer_budget::ExchangeState;
use super::error::BodyError;
use super::exchange::ActiveConnection;
use crate::gateway::content_coding::{AnswerDecoder, DecodedStep, UnknownCoding};
use crate::gateway::spool::{BodyPart, BodyPartReader};

/// The body of a request. A clone sends the bytes that this body has not yet returned.
#[derive(Clone, Debug)]
pub(crate) enum RequestBody {
    /// The whole body, in memory.
    InMemory(Bytes),
    /// A sequence of parts, some of them files.
    Parts(BodyPartReader),
}

/// The body of an answer.
///
/// Its frames, and slices of them, count against the budget until they are dropped. While the budget is used up, an
/// answer that has too many such bytes is read further only after some of its frames were dropped, so a reader that
/// keeps bytes while it waits for more must copy them.
pub(crate) struct ResponseBody {
    framing: AnswerFraming,
    exchange_state: Arc<ExchangeState>,
    connection: Option<ActiveConnection>,
    ended: bool,
    /// The decoder, if the body has a coding.
    decoder: Result<Option<Box<AnswerDecoder>>, UnknownCoding>,
}

// === impl RequestBody ===

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self::InMemory(bytes)
    }
}

impl From<Vec<BodyPart>> for RequestBody {
    fn from(parts: Vec<BodyPart>) -> Self {
        Self::Parts(BodyPartReader::new(parts))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::InMemory(bytes) => {
                let remaining = std::mem::take(bytes);
                Poll::Ready((!remaining.is_empty()).then(|| Ok(Frame::data(remaining))))
            }
            Self::Parts(parts) => Pin::new(parts).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::InMemory(bytes) => bytes.is_empty(),
            Self::Parts(parts) => parts.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::InMemory(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Parts(parts) => parts.size_hint(),
        }
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    pub(super) fn new(
        framing: AnswerFraming,
        exchange_state: Arc<ExchangeState>,
        connection: Option<ActiveConnection>,
        decoder: Result<Option<AnswerDecoder>, UnknownCoding>,
    ) -> Self {
        let decoder = decoder.map(|decoder| decoder.map(Box::new));
        let mut body = Self { framing, exchange_state, connection, ended: false, decoder };
        if body.framing.is_end() {
            body.release_connection();
        }
        body
    }

    /// True if the body has a coding that is not known, so that it cannot be read.
    pub(crate) const fn has_unknown_coding(&self) -> bool {
        self.decoder.is_err()
    }

    /// Releases the connection after a complete body.
    fn release_connection(&mut self) {
        self.ended = true;
        if let Some(connection) = self.connection.take() {
            connection.release();
        }
    }

    /// Returns the next frame as it was received.
    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.ended) else { return Poll::Ready(None) };
        match ready!(connection.poll_data(&mut self.framing, cx)) {
            Ok(data) => {
                if data.is_empty() || self.framing.is_end() {
                    self.release_connection();
                }
                Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
            }
            Err(error) => {
                (self.ended, self.connection) = (true, None);
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    /// Returns the next decoded frame. After an error or the end, the decoder is gone.
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            let Ok(Some(decoder)) = &mut self.decoder else { return Poll::Ready(None) };
            let error = match decoder.step() {
                Ok(DecodedStep::Data(data)) if data.is_empty() => continue,
                Ok(DecodedStep::Data(data)) => {
                    return Poll::Ready(Some(Ok(Frame::data(self.exchange_state.count_frame(data)))));
                }
                Ok(DecodedStep::NeedsInput) => match ready!(self.poll_received(cx)) {
                    Some(Ok(frame)) => {
                        self.feed_decoder(frame.into_data().ok());
                        continue;
                    }
                    None => {
                        self.feed_decoder(None);
                        continue;
                    }
                    Some(Err(error)) => Some(error),
                },
                Ok(DecodedStep::End) => None,
                Err(error) => Some(BodyError::undecodable(error)),
            };
            self.decoder = Ok(None);
            if error.is_some() {
                (self.ended, self.connection) = (true, None);
            }
            return Poll::Ready(error.map(Err));
        }
    }

    /// Hands received bytes to the decoder; `None` at the end of the body.
    fn feed_decoder(&mut self, received: Option<Bytes>) {
        let Ok(Some(decoder)) = &mut self.decoder else { return };
        match received {
            Some(received) => decoder.feed(received),
            None => decoder.end_source(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.decoder {
            Ok(None) => this.poll_received(cx),
            Err(UnknownCoding) => Poll::Ready(Some(Err(BodyError::undecodable(UnknownCoding)))),
            Ok(Some(_)) => this.poll_decoded(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && matches!(self.decoder, Ok(None))
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.decoder, self.framing.length()) {
            (Ok(None), Some(length)) => SizeHint::with_exact(length),
            _ => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("ended", &self.ended).finish_non_exhaustive()
    }
}
