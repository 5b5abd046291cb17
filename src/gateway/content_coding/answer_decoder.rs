//! The decoder of an answer of an upstream: any codings, in any order and number up to a limit.
//!
//! The gateway asks for none, but the servers between it and an upstream apply them all the same, and such an answer may
//! have been paid for. Nothing therefore refuses the memory; it only counts.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::{BodyDecoder, ContentCoding, coding_names};
use crate::gateway::admission::RequestBudgets;

/// The most codings of one answer (our choice): an upstream and two servers before it.
const CODINGS_MAX: usize = 3;

/// The decoders of one answer.
pub(crate) struct AnswerDecoder {
    /// The coding that was applied last comes first.
    stages: Vec<DecoderStage>,
    /// The next bytes from the network.
    received: Option<Bytes>,
    /// True if no more bytes come from the network.
    is_source_over: bool,
}

/// One coding.
struct DecoderStage {
    coding: ContentCoding,
    state: DecoderState,
}

enum DecoderState {
    /// No byte has come.
    Waiting(BodyDecoder),
    Decoding(BodyDecoder),
    /// The bytes do not begin like the coding: a server has removed it and left its name in the header.
    Plain,
    Ended,
}

/// The result of one step.
pub(crate) enum DecodedStep {
    Data(Bytes),
    /// More bytes must come from the network.
    NeedsInput,
    End,
}

/// The answer has a coding that is not known, or too many.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the upstream's answer has a content coding that cannot be decoded")]
pub(crate) struct UnknownCoding;

// === impl AnswerDecoder ===

impl AnswerDecoder {
    /// The decoder for an answer with these headers; `None` if it has no coding.
    ///
    /// # Errors
    ///
    /// Returns an error if a coding is not known, or if there are too many.
    pub(crate) fn from_headers(
        headers: &HeaderMap,
        budgets: &Arc<RequestBudgets>,
    ) -> Result<Option<Self>, UnknownCoding> {
        let codings: Option<Vec<_>> = coding_names(headers).map(ContentCoding::from_name).collect();
        let codings = codings.filter(|codings| codings.len() <= CODINGS_MAX).ok_or(UnknownCoding)?;
        let stages: io::Result<Vec<_>> =
            codings.into_iter().rev().map(|coding| DecoderStage::new(coding, budgets)).collect();
        let stages = stages.map_err(|error| {
            tracing::error!(%error, "a decoder for an answer could not be created");
            UnknownCoding
        })?;
        Ok((!stages.is_empty()).then_some(Self { stages, received: None, is_source_over: false }))
    }

    /// Sets the next bytes from the network, after [`DecodedStep::NeedsInput`].
    pub(crate) fn feed(&mut self, received: Bytes) {
        self.received = Some(received);
    }

    /// Notes that no more bytes come from the network.
    pub(crate) const fn end_source(&mut self) {
        self.is_source_over = true;
    }

    /// Decodes the next step, of at most a few dozen kilobytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer is damaged or incomplete.
    pub(crate) fn step(&mut self) -> io::Result<DecodedStep> {
        self.pull(self.stages.len())
    }

    /// Returns the next output of the first `count` stages.
    fn pull(&mut self, count: usize) -> io::Result<DecodedStep> {
        let Some(at) = count.checked_sub(1) else {
            return Ok(match self.received.take() {
                Some(received) => DecodedStep::Data(received),
                None if self.is_source_over => DecodedStep::End,
                None => DecodedStep::NeedsInput,
            });
        };
        loop {
            if let Some(decoded) = self.stages[at].next()? {
                return Ok(DecodedStep::Data(decoded));
            }
            let input = match self.pull(at)? {
                DecodedStep::Data(input) => input,
                DecodedStep::NeedsInput => return Ok(DecodedStep::NeedsInput),
                DecodedStep::End => return Ok(self.stages[at].end()?.map_or(DecodedStep::End, DecodedStep::Data)),
            };
            let plain = if input.is_empty() { None } else { self.stages[at].feed(input) };
            if let Some(plain) = plain {
                return Ok(DecodedStep::Data(plain));
            }
        }
    }
}

// === impl DecoderStage ===

impl DecoderStage {
    fn new(coding: ContentCoding, budgets: &Arc<RequestBudgets>) -> io::Result<Self> {
        let mut decoder = BodyDecoder::new(coding, budgets.answer_memory())?;
        decoder.allow_large_windows();
        Ok(Self { coding, state: DecoderState::Waiting(decoder) })
    }

    fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let DecoderState::Decoding(decoder) = &mut self.state { decoder.next() } else { Ok(None) }
    }

    /// Takes the next bytes, at least one. Returns them if they have no coding.
    fn feed(&mut self, input: Bytes) -> Option<Bytes> {
        self.state = match std::mem::replace(&mut self.state, DecoderState::Plain) {
            DecoderState::Waiting(_) if !self.coding.may_begin_with(input[0]) => DecoderState::Plain,
            DecoderState::Waiting(decoder) => DecoderState::Decoding(decoder),
            state => state,
        };
        match &mut self.state {
            DecoderState::Decoding(decoder) => decoder.feed(input),
            DecoderState::Plain => return Some(input),
            DecoderState::Waiting(_) | DecoderState::Ended => {}
        }
        None
    }

    /// Ends the input, and returns the rest of the output. An empty body has no coding.
    fn end(&mut self) -> io::Result<Option<Bytes>> {
        match std::mem::replace(&mut self.state, DecoderState::Ended) {
            DecoderState::Decoding(decoder) => decoder.finish(),
            DecoderState::Waiting(_) | DecoderState::Plain | DecoderState::Ended => Ok(None),
        }
    }
}

// === impl ContentCoding ===

impl ContentCoding {
    /// True if coded data can begin with this byte. No data of `br` or `deflate` that decode to JSON begin with a brace.
    const fn may_begin_with(self, first: u8) -> bool {
        match self {
            Self::Gzip => first == 0x1f,
            // A frame, or one that is skipped (RFC 8878, section 3.1).
            Self::Zstd => matches!(first, 0x28 | 0x50..=0x5f),
            Self::Deflate | Self::Brotli => first != b'{',
        }
    }
}
