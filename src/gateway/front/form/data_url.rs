//! An image as a base64 data URL, decoded as it comes.
//!
//! Line breaks and spaces between the characters are passed over, because encoders of mail and of command lines put them
//! there; everything else is strict: the standard alphabet, and padding to the last character.

use std::io;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use base64::engine::GeneralPurpose;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use base64::engine::Simd;
use base64::engine::general_purpose::PAD;

use crate::gateway::spool::{Spooled, Writer};
use crate::tables::{MAX_EDIT_IMAGES, MAX_EDIT_JSON_BODY_BYTES, MAX_JSON_BODY_BYTES};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static ENGINE: LazyLock<Simd> = LazyLock::new(|| Simd::standard(PAD));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static ENGINE: LazyLock<GeneralPurpose> = LazyLock::new(|| GeneralPurpose::new(&base64::alphabet::STANDARD, PAD));

/// The longest data URL, in characters: what the document's limit of the body leaves for each image and the mask.
pub(super) const URL_MAX: u64 = (MAX_EDIT_JSON_BODY_BYTES - MAX_JSON_BODY_BYTES) / (MAX_EDIT_IMAGES + 1);
/// What stands before the comma.
const HEAD_MAX: usize = 256;
/// Decoded bytes that wait for their write. A text full of escapes comes in very small pieces.
const WRITE_AT: usize = 192 * 1024;
/// As much base64 as fills that once.
const PIECE: usize = WRITE_AT / 3 * 4;

/// A data URL on its way into a file.
#[derive(Debug)]
pub(super) struct DataUrl {
    writer: Writer,
    /// What stands before the comma, until it has come.
    head: Option<Vec<u8>>,
    /// Characters so far.
    length: u64,
    /// Characters that are not yet four.
    rest: Vec<u8>,
    /// Padding has come: nothing may follow.
    ended: bool,
    decoded: Vec<u8>,
}

/// Why a text is no image.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// More than [`URL_MAX`] characters.
    #[error("string too long. Expected a string with at most {URL_MAX} characters.")]
    TooLong,
    /// An address to fetch from.
    #[error("remote images are not fetched here. Send the image itself as a base64 data URL.")]
    Remote,
    /// Some other text.
    #[error("expected a base64 data URL: 'data:image/png;base64,…'.")]
    NotData,
    /// A data URL that is cut or damaged.
    #[error("the data URL is not valid base64.")]
    NotBase64,
    /// The disk.
    #[error("the spool took no more")]
    Spool(#[from] io::Error),
}

// === impl DataUrl ===

impl DataUrl {
    pub(super) fn new(writer: Writer) -> Self {
        Self { writer, head: Some(Vec::new()), length: 0, rest: Vec::new(), ended: false, decoded: Vec::new() }
    }

    /// The next characters as they stand in the body.
    pub(super) fn push(&mut self, mut text: &[u8]) -> Result<(), Fault> {
        self.count(text.len())?;
        if self.head.is_some() {
            text = self.head(text)?;
        }
        for piece in text.chunks(PIECE) {
            self.decode(piece)?;
        }
        Ok(())
    }

    /// A character that was written as an escape. Only so can a line break stand in a JSON text.
    pub(super) fn push_escaped(&mut self, byte: u8) -> Result<(), Fault> {
        if self.head.is_none() && matches!(byte, b'\r' | b'\n' | b'\t') { self.count(1) } else { self.push(&[byte]) }
    }

    /// The text is complete.
    pub(super) fn finish(mut self) -> Result<Arc<Spooled>, Fault> {
        if let Some(head) = &self.head {
            return Err(refusal(head));
        }
        if !self.rest.is_empty() {
            return Err(Fault::NotBase64);
        }
        self.write(1)?;
        Ok(self.writer.finish())
    }

    fn count(&mut self, characters: usize) -> Result<(), Fault> {
        self.length += characters as u64;
        if self.length > URL_MAX { Err(Fault::TooLong) } else { Ok(()) }
    }

    /// Takes what belongs before the comma, and hands back the rest.
    fn head<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], Fault> {
        let Some(head) = &mut self.head else { return Ok(text) };
        let comma = text.iter().take(HEAD_MAX).position(|byte| *byte == b',');
        let (taken, rest) = text.split_at(comma.unwrap_or_else(|| text.len().min(HEAD_MAX)));
        head.extend_from_slice(taken);
        let possible = head.len() < b"https://".len() || starts_with(head, "data:");
        if head.len() >= HEAD_MAX || !possible {
            return Err(refusal(head));
        }
        if comma.is_none() {
            return Ok(rest);
        }
        if !starts_with(head, "data:image/") || !head.to_ascii_lowercase().ends_with(b";base64") {
            return Err(refusal(head));
        }
        self.head = None;
        Ok(&rest[1..])
    }

    fn decode(&mut self, mut text: &[u8]) -> Result<(), Fault> {
        while let (false, [first, others @ ..]) = (self.rest.is_empty(), text) {
            self.take(*first)?;
            text = others;
        }
        let (whole, others) = text.split_at(text.len() / 4 * 4);
        if self.fours(whole).is_err() {
            // Spaces, perhaps: one by one it shows.
            whole.iter().try_for_each(|byte| self.take(*byte))?;
        }
        others.iter().try_for_each(|byte| self.take(*byte))?;
        self.write(WRITE_AT)
    }

    /// One character.
    fn take(&mut self, byte: u8) -> Result<(), Fault> {
        if byte == b' ' {
            return Ok(());
        }
        self.rest.push(byte);
        if self.rest.len() == 4 {
            let four = std::mem::take(&mut self.rest);
            self.fours(&four)?;
        }
        Ok(())
    }

    /// Characters in groups of four, all of them or none.
    fn fours(&mut self, text: &[u8]) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }
        let before = self.decoded.len();
        self.decoded.resize(before + text.len() / 4 * 3, 0);
        let count = ENGINE.decode_slice(text, &mut self.decoded[before..]).ok().filter(|_| !self.ended);
        self.decoded.truncate(before + count.unwrap_or(0));
        self.ended |= count.is_some() && text.ends_with(b"=");
        count.map(drop).ok_or(Fault::NotBase64)
    }

    fn write(&mut self, least: usize) -> Result<(), Fault> {
        if self.decoded.len() >= least {
            self.writer.write(&self.decoded)?;
            self.decoded.clear();
        }
        Ok(())
    }
}

/// What to say of a text that is no data URL of an image.
fn refusal(head: &[u8]) -> Fault {
    if starts_with(head, "http://") || starts_with(head, "https://") { Fault::Remote } else { Fault::NotData }
}

fn starts_with(text: &[u8], prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}
