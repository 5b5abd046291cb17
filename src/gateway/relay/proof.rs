//! Waits for proof: a 200 goes out only after the first bytes of an image have been seen.

use super::answer_members::RequestedAnswer;
use super::answer_relay::AnswerRelay;
use super::image_relay::{AnswerTimeouts, AnswerWithoutImage, ImageRelay, RelayError};
use super::response_passthrough::{RequestedResponse, ResponsePassthrough};
use crate::gateway::upstream::ReplyBody;
use crate::image::ImageProperties;
use crate::tables::HOLD_BEFORE_PROOF_BYTES;

/// The most bytes of an image that are held to find its properties: they count against the budget of all answers.
const PROPERTIES_HOLD_BYTES: usize = 32 * 1024;

/// The reason why there is no image in the answer.
#[derive(Debug)]
pub(crate) enum ProofError {
    /// A complete answer without an image.
    NoImage(AnswerWithoutImage),
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
    pub(super) relay: AnswerRelay,
}

// === impl ProvenAnswer ===

impl ProvenAnswer {
    /// Returns the properties of the first image, if its head stated them.
    pub(crate) fn first_image(&self) -> Option<ImageProperties> {
        self.relay.first_image().0
    }
}

/// An answer in which an image is sought.
#[derive(Debug)]
pub(crate) struct UnprovenAnswer {
    relay: AnswerRelay,
}

// === impl UnprovenAnswer ===

impl UnprovenAnswer {
    /// Searches an answer of images.
    pub(crate) fn for_images(body: ReplyBody, requested: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        Self { relay: AnswerRelay::Images(Box::new(ImageRelay::new(body, requested, limits))) }
    }

    /// Searches a response that was requested for one image, and becomes an answer of the image endpoints.
    pub(crate) fn for_image_tool(body: ReplyBody, requested: RequestedAnswer, limits: AnswerTimeouts) -> Self {
        Self { relay: AnswerRelay::Images(Box::new(ImageRelay::for_response(body, requested, limits))) }
    }

    /// Searches a response, which can still fail with a status of its own until it has really begun.
    pub(crate) fn for_response(body: ReplyBody, requested: RequestedResponse, limits: AnswerTimeouts) -> Self {
        Self { relay: AnswerRelay::Response(Box::new(ResponsePassthrough::new(body, requested, limits))) }
    }

    /// Reads until an image has begun, and a little further for its properties. May be dropped and called again.
    pub(crate) async fn read_until_proven(&mut self) -> Result<(), ProofError> {
        read_until_proven(&mut self.relay).await
    }

    /// True if an image has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.relay.is_proven()
    }

    /// Returns the answer, once [`Self::read_until_proven`] has found an image in it.
    pub(crate) fn into_proven(self) -> ProvenAnswer {
        ProvenAnswer { relay: self.relay }
    }
}

async fn read_until_proven(relay: &mut AnswerRelay) -> Result<(), ProofError> {
    let (mut bytes_before_proof, mut bytes_since_proof) = (0, 0);
    loop {
        if relay.is_proven() && (bytes_since_proof >= PROPERTIES_HOLD_BYTES || !relay.first_image().1) {
            return Ok(());
        }
        if bytes_before_proof > HOLD_BEFORE_PROOF_BYTES && relay.is_buffered_before_proof() {
            return Err(ProofError::Malformed);
        }
        let proven = relay.is_proven();
        match std::future::poll_fn(|cx| relay.poll_read(cx)).await {
            Ok(Some(length)) if proven => bytes_since_proof += length,
            Ok(Some(length)) => bytes_before_proof += length as u64,
            // If an answer breaks off after its image has begun, the body ends it.
            Ok(None) | Err(_) if proven => return Ok(()),
            // A small response is proven by its end.
            Ok(None) if relay.is_proven() => return Ok(()),
            // Bytes after the final image, in the same piece, cannot take it back.
            Err(_) if relay.is_complete() => return Ok(()),
            Ok(None) | Err(RelayError::UpstreamFailed) => {
                return Err(relay.without_image().map_or(ProofError::Malformed, ProofError::NoImage));
            }
            Err(
                RelayError::Malformed(_) | RelayError::Incomplete | RelayError::TooLarge | RelayError::SpoolUnreadable,
            ) => {
                return Err(ProofError::Malformed);
            }
            Err(RelayError::Connection | RelayError::Cutoff) => return Err(ProofError::Broken),
            Err(RelayError::Timeout | RelayError::CallerTooSlow) => return Err(ProofError::Timeout),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    async fn read_proven(mut proof: UnprovenAnswer) -> Result<ProvenAnswer, ProofError> {
        proof.read_until_proven().await?;
        Ok(proof.into_proven())
    }

    pub(crate) async fn prove(
        body: ReplyBody,
        asked: RequestedAnswer,
        limits: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        read_proven(UnprovenAnswer::for_images(body, asked, limits)).await
    }

    pub(crate) async fn prove_image_tool(
        body: ReplyBody,
        asked: RequestedAnswer,
        limits: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        read_proven(UnprovenAnswer::for_image_tool(body, asked, limits)).await
    }

    pub(crate) async fn prove_response(
        body: ReplyBody,
        told: RequestedResponse,
        limits: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        read_proven(UnprovenAnswer::for_response(body, told, limits)).await
    }
}
