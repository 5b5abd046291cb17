//! The body of an answer, in which the secrets of its account are masked wherever the network cuts it.
//!
//! The last bytes of a frame are held back only if they may be the beginning of a secret, so an event is passed on as soon
//! as it has arrived.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};

use crate::gateway::accounts::{DATA_MIN, SecretMask};

/// The most bytes at the beginning of a piece that are copied to be joined with held bytes (our choice): enough to see that
/// they are data, and few enough to be outside of the budget of the buffers.
const SEAM_MAX: usize = 768;

/// A body whose secrets are masked.
#[derive(Debug)]
pub(crate) struct MaskedBody<B> {
    body: B,
    masker: PieceMasker,
    /// A piece that follows the bytes that were held back before it.
    waiting: Option<Bytes>,
    has_ended: bool,
}

/// Masks the secrets of bytes that arrive in pieces.
#[derive(Debug)]
struct PieceMasker {
    mask: Arc<SecretMask>,
    /// The last bytes, as they arrived.
    held: Bytes,
    /// The number of held bytes that belong to a part of a secret that has been found.
    covered: usize,
}

// === impl MaskedBody ===

impl<B> MaskedBody<B> {
    /// Wraps the body of an answer to a call with these secrets.
    pub(super) const fn new(body: B, mask: Arc<SecretMask>) -> Self {
        Self { body, masker: PieceMasker { mask, held: Bytes::new(), covered: 0 }, waiting: None, has_ended: false }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for MaskedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            if let Some(piece) = self.waiting.take() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.has_ended {
                return Poll::Ready(self.masker.finish().map(|rest| Ok(Frame::data(rest))));
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else {
                self.has_ended = true;
                continue;
            };
            // Nobody reads the trailers of an answer.
            let Ok(data) = frame.into_data() else { continue };
            let [first, second] = self.masker.push(data);
            self.waiting = (!second.is_empty()).then_some(second);
            if !first.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(first))));
            }
        }
    }
}

// === impl PieceMasker ===

impl PieceMasker {
    /// Adds a piece, and returns the bytes that can be passed on, in two parts. Of a long piece, only the beginning is joined
    /// with the held bytes to the first part, up to an offset at which no secret can go on; the rest is the second part,
    /// which is not copied.
    fn push(&mut self, piece: Bytes) -> [Bytes; 2] {
        if self.held.is_empty() {
            return [self.mask(piece), Bytes::new()];
        }
        let mut offsets = DATA_MIN..piece.len().min(SEAM_MAX);
        let cut = offsets.find(|cut| self.mask.unfinished_length(&piece[..*cut]) == 0).unwrap_or(piece.len());
        let seam = self.mask([&self.held[..], &piece[..cut]].concat().into());
        let rest = piece.slice(cut..);
        [seam, if rest.is_empty() { rest } else { self.mask(rest) }]
    }

    /// Masks bytes that begin with the held ones, and holds back their end if it may be the beginning of a secret.
    fn mask(&mut self, bytes: Bytes) -> Bytes {
        let mut masked = self.mask.mask_bytes(bytes.clone());
        if self.covered > 0 {
            let mut covered = BytesMut::from(masked);
            covered[..self.covered].fill(SecretMask::MASK);
            masked = covered.freeze();
        }
        let end = bytes.len() - self.mask.unfinished_length(&bytes);
        let differs = masked[end..].iter().zip(&bytes[end..]).rposition(|(masked, byte)| masked != byte);
        self.covered = differs.map_or(0, |at| at + 1);
        // A slice would keep the read buffer of the connection.
        self.held = Bytes::copy_from_slice(&bytes[end..]);
        masked.slice(..end)
    }

    /// Returns the last bytes: what is held back turned out to be no secret, or belongs to one that was found.
    fn finish(&mut self) -> Option<Bytes> {
        let mut rest = BytesMut::from(std::mem::take(&mut self.held));
        rest[..std::mem::take(&mut self.covered)].fill(SecretMask::MASK);
        (!rest.is_empty()).then(|| rest.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-live/Qz7w_XA9t-4KpL2m";

    #[test]
    fn a_secret_is_masked_wherever_the_bytes_are_cut() {
        let escaped: String = KEY.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
        let text = format!("{{\"id\":\"{KEY}\",\"x\":\"{escaped}\",\"part\":\"{}\"}}\n\n", &KEY[3..12]);
        // Characters of the key, at which bytes are held back again and again.
        let text = format!("{}{text}", "w_XA9t Qz7".repeat(1200));
        let mask = Arc::new(SecretMask::new([KEY]));
        let expected = mask.mask_bytes(Bytes::from(text.clone()));
        assert!(!expected.windows(8).any(|part| KEY.as_bytes().windows(8).any(|window| window == part)));
        for size in (1..60).chain([5000, 5001, 5003, 9000]) {
            let mut cutter = PieceMasker { mask: Arc::clone(&mask), held: Bytes::new(), covered: 0 };
            let mut out = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                out.extend(cutter.push(Bytes::copy_from_slice(piece)).into_iter().flatten());
            }
            assert!(cutter.held.is_empty(), "the end of an event is not held back");
            out.extend(cutter.finish().into_iter().flatten());
            assert_eq!(out, expected, "{size}");
        }
    }
}
