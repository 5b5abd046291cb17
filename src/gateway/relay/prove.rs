//! The wait for proof: a 200 goes out only when the first bytes of an image have been seen.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::fill::Asked;
use super::tap::{Broken, Limits, Tap, Without};
use crate::gateway::upstream::ReplyBody;
use crate::image::Facts;
use crate::tables::{HEARTBEAT_SECONDS, HOLD_BEFORE_PROOF_BYTES};

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

/// An answer with an image in it: the ticket to a [`super::RelayBody`].
///
/// A caller who wants events gets it without an image as well once the first heartbeat is due: the upstream has accepted
/// the request, and a connection that says nothing for long is cut by whatever stands in between.
#[derive(Debug)]
pub(crate) struct Proven {
    pub(super) tap: Tap,
}

// === impl Proven ===

impl Proven {
    /// What the first image is, where its head told.
    pub(crate) fn first(&self) -> Option<Facts> {
        self.tap.first().0
    }
}

/// Reads until an image has begun, and a little further to know what it is.
pub(crate) async fn prove(body: ReplyBody, asked: Asked, limits: Limits) -> Result<Proven, NoProof> {
    let stream = asked.stream;
    let mut tap = Tap::new(body, asked, limits);
    if stream {
        let heartbeat = Instant::now() + Duration::from_secs(HEARTBEAT_SECONDS);
        // Reading is safe to leave at any point: what was read is in the tap.
        if let Ok(proof) = timeout_at(heartbeat, seek(&mut tap)).await {
            proof?;
        }
    } else {
        seek(&mut tap).await?;
    }
    Ok(Proven { tap })
}

async fn seek(tap: &mut Tap) -> Result<(), NoProof> {
    let (mut before, mut since) = (0, 0);
    loop {
        if tap.proven() && (since >= HOLD_TO_TELL || !tap.first().1) {
            return Ok(());
        }
        if before > HOLD_BEFORE_PROOF_BYTES {
            return Err(NoProof::Malformed);
        }
        let proven = tap.proven();
        match std::future::poll_fn(|cx| tap.poll_read(cx)).await {
            Ok(Some(length)) if proven => since += length,
            Ok(Some(length)) => before += length as u64,
            // An answer that breaks off after its image has begun is for the body to end.
            Ok(None) | Err(_) if proven => return Ok(()),
            Ok(None) | Err(Broken::Failed) => {
                return Err(tap.without_image().map_or(NoProof::Malformed, NoProof::Ended));
            }
            Err(Broken::Malformed(_) | Broken::Unfinished | Broken::Endless) => return Err(NoProof::Malformed),
            Err(Broken::Connection) => return Err(NoProof::Broken),
            Err(Broken::Timeout) => return Err(NoProof::Timeout),
        }
    }
}
