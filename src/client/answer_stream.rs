//! An answer that is a stream of events, as it arrives, whatever the events are.
//!
//! This module decides when the stream is over: after the last event, after an error, or if no data has arrived for too
//! long. A stream that ends without its last event is an error, because the result may have been paid for.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use reqwest::Response;

use super::body_reader::{HttpBodyEvent, HttpBodyReader, is_json_response};
use super::session::Session;
use super::sse::{EVENT_MAX_BYTES, SseEvent, SseEventReader, SseEventTooLarge};
use super::unfinished_calls::AutomaticKey;
use super::{AnswerMetadata, Error};

/// The events of one kind of stream.
pub(super) trait EventDecoder {
    type Event;

    /// The message if an event is larger than any event of this kind.
    const TOO_LARGE: &'static str;
    /// The message if the stream ends before its last event.
    const UNFINISHED: &'static str;

    /// Reads a server-sent event. An error ends the stream at once.
    fn decode(&self, event: SseEvent, session: &Session) -> Result<DecodedEvent<Self::Event>, Error>;

    /// Reads the answer of a service that answered as if no stream had been requested, as the last event.
    fn decode_json(&self, body: Vec<u8>, session: &Session) -> Result<Self::Event, Error>;

    /// True if nothing comes after this event.
    fn is_last(event: &Self::Event) -> bool;

    /// Records an event that is about to be returned. Returns the error with which the stream ends after it, if the event
    /// states a failure; `reported` is the error that was reported before it.
    fn record(&mut self, event: &Self::Event, reported: Option<Error>, session: &Session) -> Option<Error>;
}

/// The content of a server-sent event.
pub(super) enum DecodedEvent<Event> {
    Event(Event),
    /// The event reports a failure. The stream ends with it, after the events that still come.
    Failure(Error),
    /// Nothing for the caller, such as the marker `[DONE]`, which ends the streams of some services.
    Nothing,
}

pub(super) struct AnswerStream<Decoder> {
    pub(super) session: Session,
    pub(super) decoder: Decoder,
    /// The key that the client has given to the call. It is dropped with a stream that is not read to its end.
    automatic_key: Option<AutomaticKey>,
    body: HttpBodyReader,
    /// The bytes that have been received and not yet parsed.
    unparsed_bytes: Bytes,
    state: AnswerStreamState,
    /// The error that the stream will end with, if one was reported.
    failure: Option<Error>,
}

enum AnswerStreamState {
    Events(SseEventReader),
    /// The service answered with plain JSON, as if no stream had been requested: the bytes so far.
    PlainJson(Vec<u8>),
    /// The last event has arrived; only the end of the answer is left.
    Ended,
}

// === impl AnswerStream ===

impl<Decoder: EventDecoder> AnswerStream<Decoder> {
    pub(super) fn new(
        response: Response,
        session: Session,
        automatic_key: Option<AutomaticKey>,
        decoder: Decoder,
    ) -> Self {
        let state = if is_json_response(&response) {
            AnswerStreamState::PlainJson(Vec::new())
        } else {
            AnswerStreamState::Events(SseEventReader::default())
        };
        let body = HttpBodyReader::new(response, &session);
        Self { session, decoder, automatic_key, body, unparsed_bytes: Bytes::new(), state, failure: None }
    }

    pub(super) fn meta(&self) -> &AnswerMetadata {
        self.session.recorded_head()
    }

    pub(super) const fn is_closed(&self) -> bool {
        self.body.is_closed()
    }

    /// Returns the next event; `None` when the stream is over.
    pub(super) async fn next(&mut self) -> Option<Result<Decoder::Event, Error>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Decoder::Event, Error>>> {
        loop {
            if let Some(event) = self.next_buffered_event().transpose() {
                return Poll::Ready(Some(self.record(event)));
            }
            match ready!(self.body.poll(cx, &self.session)) {
                HttpBodyEvent::Bytes(bytes) => self.unparsed_bytes = bytes,
                HttpBodyEvent::Failure(error) if !matches!(self.state, AnswerStreamState::Ended) => {
                    return Poll::Ready(Some(self.record(Err(error))));
                }
                HttpBodyEvent::Failure(_) | HttpBodyEvent::End => {
                    let last = self.finish();
                    return Poll::Ready(last.map(|event| self.record(event)));
                }
            }
        }
    }

    /// Returns the next event in the received bytes; `None` if they hold no complete event.
    fn next_buffered_event(&mut self) -> Result<Option<Decoder::Event>, Error> {
        match &mut self.state {
            AnswerStreamState::Events(reader) => {
                let too_large = |SseEventTooLarge| too_large_error::<Decoder>(&self.session);
                while let Some(event) = reader.next(&mut self.unparsed_bytes).map_err(too_large)? {
                    let failure = match self.decoder.decode(event, &self.session)? {
                        DecodedEvent::Event(event) => return Ok(Some(event)),
                        DecodedEvent::Failure(error) => error,
                        DecodedEvent::Nothing => continue,
                    };
                    self.failure.get_or_insert(failure);
                    self.body.expect_end();
                }
            }
            AnswerStreamState::PlainJson(body) if body.len() + self.unparsed_bytes.len() > EVENT_MAX_BYTES => {
                return Err(too_large_error::<Decoder>(&self.session));
            }
            AnswerStreamState::PlainJson(body) => body.extend_from_slice(&std::mem::take(&mut self.unparsed_bytes)),
            AnswerStreamState::Ended => self.unparsed_bytes.clear(),
        }
        Ok(None)
    }

    /// Closes the body at its end, and returns the last item of the stream: an event, or an error if a failure was
    /// reported or the last event is missing. Returns `None` if the last item was returned before.
    fn finish(&mut self) -> Option<Result<Decoder::Event, Error>> {
        self.body.close();
        let state = std::mem::replace(&mut self.state, AnswerStreamState::Ended);
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        match state {
            AnswerStreamState::Events(mut reader) => {
                // An event that was cut off cannot be parsed; the error then says that the stream ended too early.
                match reader.finish().map(|event| self.decoder.decode(event, &self.session)) {
                    Some(Ok(DecodedEvent::Event(event))) if Decoder::is_last(&event) => Some(Ok(event)),
                    Some(Ok(DecodedEvent::Failure(error))) => Some(Err(error)),
                    Some(Err(error)) if error.is_answer() => Some(Err(error)),
                    _ => Some(Err(self.unfinished_error())),
                }
            }
            AnswerStreamState::PlainJson(body) => Some(self.decoder.decode_json(body, &self.session)),
            AnswerStreamState::Ended => None,
        }
    }

    /// Updates the state for an item that is about to be returned: the last event and an error end the stream. An error
    /// is completed.
    fn record(&mut self, event: Result<Decoder::Event, Error>) -> Result<Decoder::Event, Error> {
        match event {
            Ok(event) => {
                if Decoder::is_last(&event) {
                    self.state = AnswerStreamState::Ended;
                    self.body.expect_end();
                    self.record_end(None);
                }
                self.failure = self.decoder.record(&event, self.failure.take(), &self.session);
                Ok(event)
            }
            Err(error) => {
                self.state = AnswerStreamState::Ended;
                self.body.close();
                let error = self.failure.take().unwrap_or(error).of_call(&self.session);
                self.record_end(Some(&error));
                Err(error)
            }
        }
    }

    fn record_end(&mut self, error: Option<&Error>) {
        if let Some(key) = &mut self.automatic_key {
            key.record_end(error);
        }
    }

    pub(super) fn unfinished_error(&self) -> Error {
        Error::broken(Decoder::UNFINISHED, &self.session)
    }
}

fn too_large_error<Decoder: EventDecoder>(session: &Session) -> Error {
    Error::unintelligible(Decoder::TOO_LARGE, session.head())
}
