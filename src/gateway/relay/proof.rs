//! Reads an upstream's answer until it is proven: until the first bytes of an image, or the first output of a response,
//! have arrived. A plain answer gets a 200 only after that.

use super::answer_members::RequestedAnswer;
use super::answer_relay::AnswerRelay;
use super::image_relay::{AnswerTimeouts, AnswerWithoutImage, ImageRelay, RelayError};
use super::response_passthrough::{RequestedResponse, ResponsePassthrough};
use crate::gateway::upstream::ReplyBody;
use crate::image::ImageProperties;
use crate::tables::HOLD_BEFORE_PROOF_BYTES;

/// The most bytes of an image that are held in memory to find its properties (our choice).
const PROPERTIES_HOLD_BYTES: usize = 32 * 1024;

/// The reason why an answer is not proven.
#[derive(Debug)]
pub(crate) enum ProofError {
    /// A complete answer without an image.
    NoImage(AnswerWithoutImage),
    /// The answer has a syntax error or is incomplete, or too many bytes came before any image.
    Malformed,
    /// The connection broke.
    Broken,
    /// The upstream did not send in time.
    Timeout,
}

/// A proven answer, which a [`super::RelayBody`] can deliver.
#[derive(Debug)]
pub(crate) struct ProvenAnswer {
    pub(super) relay: AnswerRelay,
}

// === impl ProvenAnswer ===

impl ProvenAnswer {
    /// Returns the properties of the first image, if its first bytes stated them.
    pub(crate) fn first_image(&self) -> Option<ImageProperties> {
        self.relay.first_image().0
    }
}

/// An answer that is not proven yet.
#[derive(Debug)]
pub(crate) struct UnprovenAnswer {
    relay: AnswerRelay,
}

// === impl UnprovenAnswer ===

impl UnprovenAnswer {
    /// Makes an unproven answer of images.
    pub(crate) fn for_images(body: ReplyBody, requested: RequestedAnswer, timeouts: AnswerTimeouts) -> Self {
        Self { relay: AnswerRelay::Images(Box::new(ImageRelay::new(body, requested, timeouts))) }
    }

    /// Makes an unproven answer of a response that was requested for one image and becomes an answer of the image
    /// endpoints.
    pub(crate) fn for_image_tool(body: ReplyBody, requested: RequestedAnswer, timeouts: AnswerTimeouts) -> Self {
        Self { relay: AnswerRelay::Images(Box::new(ImageRelay::for_response(body, requested, timeouts))) }
    }

    /// Makes an unproven answer of a response that is passed on. Until it is proven, it can still become an error.
    pub(crate) fn for_response(body: ReplyBody, requested: RequestedResponse, timeouts: AnswerTimeouts) -> Self {
        Self { relay: AnswerRelay::Response(Box::new(ResponsePassthrough::new(body, requested, timeouts))) }
    }

    /// Reads until the answer is proven, and a little further for the properties of its image. The future may be
    /// dropped and the method called again.
    pub(crate) async fn read_until_proven(&mut self) -> Result<(), ProofError> {
        read_until_proven(&mut self.relay).await
    }

    /// True if the answer is proven.
    pub(crate) fn is_proven(&self) -> bool {
        self.relay.is_proven()
    }

    /// Returns the proven answer; to be called after [`Self::read_until_proven`] has succeeded.
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
        let is_proven = relay.is_proven();
        match std::future::poll_fn(|cx| relay.poll_read(cx)).await {
            Ok(Some(length)) if is_proven => bytes_since_proof += length,
            Ok(Some(length)) => bytes_before_proof += length as u64,
            // If an answer breaks off after it was proven, the body reports the error to the caller.
            Ok(None) | Err(_) if is_proven => return Ok(()),
            // A small response may be proven only by its end.
            Ok(None) if relay.is_proven() => return Ok(()),
            // A complete answer stays valid, even if the bytes after the final image are malformed.
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

    async fn read_proven(mut answer: UnprovenAnswer) -> Result<ProvenAnswer, ProofError> {
        answer.read_until_proven().await?;
        Ok(answer.into_proven())
    }

    pub(crate) async fn prove(
        body: ReplyBody,
        requested: RequestedAnswer,
        timeouts: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        read_proven(UnprovenAnswer::for_images(body, requested, timeouts)).await
    }

    pub(crate) async fn prove_image_tool(
        body: ReplyBody,
        requested: RequestedAnswer,
        timeouts: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        read_proven(UnprovenAnswer::for_image_tool(body, requested, timeouts)).await
    }

    pub(crate) async fn prove_response(
        body: ReplyBody,
        requested: RequestedResponse,
        timeouts: AnswerTimeouts,
    ) -> Result<ProvenAnswer, ProofError> {
        read_proven(UnprovenAnswer::for_response(body, requested, timeouts)).await
    }
}
