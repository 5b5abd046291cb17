//! The wait for proof: a 200 goes out only when the first bytes of an image have been seen.

use super::course::Course;
use super::fill::Asked;
use super::pass::{Pass, Told};
use super::tap::{Broken, Limits, Tap, Without};
use crate::gateway::upstream::ReplyBody;
use crate::image::Facts;
use crate::tables::HOLD_BEFORE_PROOF_BYTES;

/// So much of an image is held at most to find out what it is: held pieces count against the budget of all answers.
const HOLD_TO_TELL: usize = 32 * 1024;

/// There is no image in the answer.
#[derive(Debug)]
pub(crate) enum NoProof {
    /// A whole answer without an image.
    Ended(Without),
    /// Not what was promised, or too much of it before any image.
    Malformed,
    /// The connection broke.
    Broken,
    /// Nothing came in time.
    Timeout,
}

/// An answer with an image in it, which a [`super::RelayBody`] can deliver.
#[derive(Debug)]
pub(crate) struct Proven {
    pub(super) course: Course,
}

// === impl Proven ===

impl Proven {
    /// What the first image is, where its head told.
    pub(crate) fn first(&self) -> Option<Facts> {
        self.course.first().0
    }
}

/// An answer in which an image is sought.
#[derive(Debug)]
pub(crate) struct Proof {
    course: Course,
}

// === impl Proof ===

impl Proof {
    /// In an answer of images.
    pub(crate) fn images(body: ReplyBody, asked: Asked, limits: Limits) -> Self {
        Self { course: Course::Images(Box::new(Tap::new(body, asked, limits))) }
    }

    /// In a response that was asked for one image, and becomes an answer of the image endpoints.
    pub(crate) fn drawn(body: ReplyBody, asked: Asked, limits: Limits) -> Self {
        Self { course: Course::Images(Box::new(Tap::of_response(body, asked, limits))) }
    }

    /// In a response, which until it has really begun can still fail with a status of its own.
    pub(crate) fn response(body: ReplyBody, told: Told, limits: Limits) -> Self {
        Self { course: Course::Response(Box::new(Pass::new(body, told, limits))) }
    }

    /// Reads until an image has begun, and a little further to know what it is. May be dropped and called again.
    pub(crate) async fn seek(&mut self) -> Result<(), NoProof> {
        seek(&mut self.course).await
    }

    /// True if an image has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.course.proven()
    }

    /// The answer, once [`Self::seek`] has found an image in it.
    pub(crate) fn into_proven(self) -> Proven {
        Proven { course: self.course }
    }
}

async fn seek(course: &mut Course) -> Result<(), NoProof> {
    let (mut before, mut since) = (0, 0);
    loop {
        if course.proven() && (since >= HOLD_TO_TELL || !course.first().1) {
            return Ok(());
        }
        if before > HOLD_BEFORE_PROOF_BYTES && course.holds_back() {
            return Err(NoProof::Malformed);
        }
        let proven = course.proven();
        match std::future::poll_fn(|cx| course.poll_read(cx)).await {
            Ok(Some(length)) if proven => since += length,
            Ok(Some(length)) => before += length as u64,
            // An answer that breaks off after its image has begun is for the body to end.
            Ok(None) | Err(_) if proven => return Ok(()),
            // Of a small response its end is what proves it.
            Ok(None) if course.proven() => return Ok(()),
            // What comes behind the final image, in the same piece, cannot take it back.
            Err(_) if course.complete() => return Ok(()),
            Ok(None) | Err(Broken::Failed) => {
                return Err(course.without_image().map_or(NoProof::Malformed, NoProof::Ended));
            }
            Err(Broken::Malformed(_) | Broken::Unfinished | Broken::Endless | Broken::Lost) => {
                return Err(NoProof::Malformed);
            }
            Err(Broken::Connection | Broken::Cutoff) => return Err(NoProof::Broken),
            Err(Broken::Timeout | Broken::Slow) => return Err(NoProof::Timeout),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    async fn found(mut proof: Proof) -> Result<Proven, NoProof> {
        proof.seek().await?;
        Ok(proof.into_proven())
    }

    pub(crate) async fn prove(body: ReplyBody, asked: Asked, limits: Limits) -> Result<Proven, NoProof> {
        found(Proof::images(body, asked, limits)).await
    }

    pub(crate) async fn prove_drawn(body: ReplyBody, asked: Asked, limits: Limits) -> Result<Proven, NoProof> {
        found(Proof::drawn(body, asked, limits)).await
    }

    pub(crate) async fn prove_response(body: ReplyBody, told: Told, limits: Limits) -> Result<Proven, NoProof> {
        found(Proof::response(body, told, limits)).await
    }
}
