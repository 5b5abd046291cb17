//! Waits for proof: a 200 goes out only after the first bytes of an image have been seen.

use super::course::AnswerRelay;
use super::fill::RequestedAnswer;
use super::pass::{RequestedResponse, ResponsePassthrough};
use super::tap::{AnswerTimeouts, AnswerWithoutImage, ImageRelay, RelayError};
use crate::gateway::upstream::ReplyBody;
use crate::image::ImageProperties;
use crate::tables::HOLD_BEFORE_PROOF_BYTES;

/// The most bytes of an image that are held to find its properties: they count against the budget of all answers.
const HOLD_TO_TELL: usize = 32 * 1024;

/// The reason why there is no image in the answer.
#[derive(Debug)]
pub(crate) enum ProofError {
    /// A complete answer without an image.
    Ended(AnswerWithoutImage),
    /// The answer is not the promised one, or too much of it came before any image.
    Malformed,
    /// The connection broke.
    Broken,
    /// Nothing came in time.
    Timeout,
}

/// An answer with an image in it, which a [`super::RelayBody`] can deliver.
#[derive(Debug)]
pub(crate) struct ProvenAnswer {
    pub(super) course: AnswerRelay,
}

// === impl ProvenAnswer ===

impl ProvenAnswer {
    /// Returns the properties of the first image, if its head stated them.
    pub(crate) fn first(&self) -> Option<ImageProperties> {
        self.course.first().0
    }
}

/// An answer in which an image is sought.
#[derive(Debug)]
pub(crate) struct UnprovenAnswer {
    course: AnswerRelay,
}

// === impl UnprovenAnswer ===

impl UnprovenAnswer {
    /// Searches an answer of images.
    pub(crate) fn images(body: ReplyBody, asked: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        Self { course: AnswerRelay::Images(Box::new(ImageRelay::new(body, asked, limits))) }
    }

    /// Searches a response that was requested for one image, and becomes an answer of the image endpoints.
    pub(crate) fn drawn(body: ReplyBody, asked: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        Self { course: AnswerRelay::Images(Box::new(ImageRelay::of_response(body, asked, limits))) }
    }

    /// Searches a response, which can still fail with a status of its own until it has really begun.
    pub(crate) fn response(body: ReplyBody, told: RequestedResponse, limits: AnswerTimeouts) -> Self {
        Self { course: AnswerRelay::Response(Box::new(ResponsePassthrough::new(body, told, limits))) }
    }

    /// Reads until an image has begun, and a little further for its properties. May be dropped and called again.
    pub(crate) async fn seek(&mut self) -> Result<(), ProofError> {
        seek(&mut self.course).await
    }

    /// True if an image has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.course.proven()
    }

    /// Returns the answer, once [`Self::seek`] has found an image in it.
    pub(crate) fn into_proven(self) -> ProvenAnswer {
        ProvenAnswer { course: self.course }
    }
}

async fn seek(course: &mut AnswerRelay) -> Result<(), ProofError> {
    let (mut before, mut since) = (0, 0);
    loop {
        if course.proven() && (since >= HOLD_TO_TELL || !course.first().1) {
            return Ok(());
        }
        if before > HOLD_BEFORE_PROOF_BYTES && course.holds_back() {
            return Err(ProofError::Malformed);
        }
        let proven = course.proven();
        match std::future::poll_fn(|cx| course.poll_read(cx)).await {
            Ok(Some(length)) if proven => since += length,
            Ok(Some(length)) => before += length as u64,
            // If an answer breaks off after its image has begun, the body ends it.
            Ok(None) | Err(_) if proven => return Ok(()),
            // A small response is proven by its end.
            Ok(None) if course.proven() => return Ok(()),
            // Bytes after the final image, in the same piece, cannot take it back.
            Err(_) if course.complete() => return Ok(()),
            Ok(None) | Err(RelayError::Failed) => {
                return Err(course.without_image().map_or(ProofError::Malformed, ProofError::Ended));
            }
            Err(RelayError::Malformed(_) | RelayError::Unfinished | RelayError::Endless | RelayError::Lost) => {
                return Err(ProofError::Malformed);
            }
            Err(RelayError::Connection | RelayError::Cutoff) => return Err(ProofError::Broken),
            Err(RelayError::Timeout | RelayError::Slow) => return Err(ProofError::Timeout),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    async fn found(mut proof: UnprovenAnswer) -> Result<ProvenAnswer, ProofError> {
        proof.seek().await?;
        Ok(proof.into_proven())
    }

    pub(crate) async fn prove(
        body: ReplyBody,
        asked: RequestedAnswer,
        limits: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        found(UnprovenAnswer::images(body, asked, limits)).await
    }

    pub(crate) async fn prove_drawn(
        body: ReplyBody,
        asked: RequestedAnswer,
        limits: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        found(UnprovenAnswer::drawn(body, asked, limits)).await
    }

    pub(crate) async fn prove_response(
        body: ReplyBody,
        told: RequestedResponse,
        limits: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        found(UnprovenAnswer::response(body, told, limits)).await
    }
}
