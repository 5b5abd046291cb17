//! Reads an upstream's answer until it is proven: until the first bytes of an image, or the first output of a response,
//! have arrived. A plain answer gets a 200 only after that.

use super::answer_relay::{AnswerSource, UpstreamRelay};
use super::event::AnswerWithoutImage;
use super::relay_error::RelayError;
use crate::gateway::upstream::FailureCause;
use crate::image::{ImageProperties, OtherContent};
use crate::tables::HOLD_BEFORE_PROOF_BYTES;

/// The most bytes of an image that are held in memory to find its properties (our choice).
const PROPERTIES_HOLD_BYTES: usize = 32 * 1024;

/// The reason why an answer is not proven.
#[derive(Debug)]
pub(crate) enum ProofError {
    /// A complete answer without an image.
    NoImage(Box<AnswerWithoutImage>),
    /// The answer broke off, has a syntax error, or came too late.
    Unusable(FailureCause),
}

/// A proven answer, which a [`super::RelayBody`] can deliver.
#[derive(Debug)]
pub(crate) struct ProvenAnswer {
    pub(super) source: Box<dyn AnswerSource>,
}

// === impl ProofError ===

impl ProofError {
    /// The answer has a syntax error or is incomplete, or too many bytes came before any image.
    const MALFORMED: Self = Self::Unusable(FailureCause::NoImage);
}

// === impl ProvenAnswer ===

impl ProvenAnswer {
    /// Returns the properties of the first image, if its first bytes stated them.
    pub(crate) fn first_image(&self) -> Option<ImageProperties> {
        self.source.first_image()
    }

    /// Returns the name of the format of the first image, if no request can name it.
    pub(crate) fn other_format(&self) -> Option<&'static str> {
        match self.source.other_content()? {
            OtherContent::Image(format) => Some(format),
            OtherContent::Text => None,
        }
    }
}

// === impl UpstreamRelay ===

impl UpstreamRelay {
    /// Reads until the answer is proven, and a little further for the properties of its image. The future may be
    /// dropped and the method called again.
    pub(crate) async fn read_until_proven(&mut self) -> Result<(), ProofError> {
        let (mut bytes_before_proof, mut bytes_since_proof) = (0, 0);
        loop {
            let is_proven = self.is_proven();
            if is_proven && (bytes_since_proof >= PROPERTIES_HOLD_BYTES || !self.image_properties().1) {
                return self.check_content();
            }
            if bytes_before_proof > HOLD_BEFORE_PROOF_BYTES && self.is_buffered_before_proof() {
                return Err(ProofError::MALFORMED);
            }
            match std::future::poll_fn(|cx| self.poll_read(cx)).await {
                Ok(Some(length)) if is_proven => bytes_since_proof += length,
                Ok(Some(length)) => bytes_before_proof += length as u64,
                // If an answer breaks off after it was proven, the body reports the error to the caller.
                Err(_) if is_proven => return self.check_content(),
                // A small response may be proven only by its end.
                Ok(None) if self.is_proven() => return self.check_content(),
                Ok(None) => return Err(self.no_image()),
                Err(error) => return Err(self.proof_error(error)),
            }
        }
    }

    /// A page or JSON in place of an image is no image.
    fn check_content(&self) -> Result<(), ProofError> {
        if self.other_content() == Some(OtherContent::Text) { Err(ProofError::MALFORMED) } else { Ok(()) }
    }

    fn proof_error(&self, error: RelayError) -> ProofError {
        match error {
            RelayError::UpstreamFailed | RelayError::Incomplete => self.no_image(),
            RelayError::Malformed(_) | RelayError::TooLarge | RelayError::SpoolUnreadable => ProofError::MALFORMED,
            RelayError::Connection | RelayError::Cutoff => ProofError::Unusable(FailureCause::Broken),
            RelayError::Timeout | RelayError::CallerTooSlow => ProofError::Unusable(FailureCause::Timeout),
        }
    }

    fn no_image(&self) -> ProofError {
        self.without_image().map_or(ProofError::MALFORMED, |answer| ProofError::NoImage(Box::new(answer)))
    }

    /// Returns the proven answer; to be called after [`Self::read_until_proven`] has succeeded.
    pub(crate) fn into_proven(self) -> ProvenAnswer {
        ProvenAnswer { source: Box::new(self) }
    }
}
