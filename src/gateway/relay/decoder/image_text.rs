//! The text of an image: proves that it can be passed on as it is written, and leaves out a `data:` prefix. White
//! space, the letters for URLs and absent padding are corrected, because callers may not be able to read them. In a
//! response that is passed on as it is, only absent padding is.

use bytes::Bytes;

use crate::gateway::relay::event::ImagePlace;
use crate::gateway::relay::relay_error::MalformedAnswer;
use crate::image::absent_padding;

/// The number of bytes of each image that are checked one by one.
const BASE64_BYTES_CHECKED: usize = 64;
/// The number of words of eight bytes that are searched at once for the end of an image.
const SEARCH_BLOCK_WORDS: usize = 8;
/// A word whose bytes are all 1.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;
/// The beginning of a data URL, which some upstreams send in place of base64.
const DATA_SCHEME: &[u8] = b"data:";
/// The most bytes of a data URL before its comma (our choice).
const PREFIX_MAX: usize = 256;

/// The image that is being read.
#[derive(Debug, Default)]
pub(super) struct ImageText {
    /// The number of its base64 bytes so far.
    length: usize,
    /// The part of the text before the next byte.
    beginning: TextBeginning,
    /// Its place, if the last piece ended within its text and outside of an escape.
    open: Option<ImagePlace>,
    /// The end of what is known of a text that is passed on as it is.
    unchanged: UnchangedText,
}

/// The part that was read of a text that is passed on as it is.
#[derive(Clone, Copy, Debug, Default)]
struct UnchangedText {
    /// The number of its characters.
    length: usize,
    /// The offset of its end in the piece; `None` after an escape.
    end: Option<usize>,
    /// True if it has more than base64: the beginning of a data URL, or white space.
    has_more: bool,
}

/// The bytes before the base64.
#[derive(Clone, Copy, Debug, Default)]
enum TextBeginning {
    /// This number of bytes has come, all of them those of [`DATA_SCHEME`].
    Scheme(usize),
    /// A data URL, whose comma has not come, with this number of bytes.
    Prefix(usize),
    /// None, or they are over.
    #[default]
    Over,
}

// === impl ImageText ===

impl ImageText {
    /// Begins an image.
    pub(super) fn begin(&mut self) {
        (self.length, self.beginning) = (0, TextBeginning::Scheme(0));
        self.unchanged = UnchangedText::default();
    }

    /// Begins the next piece of the answer.
    pub(super) const fn begin_piece(&mut self) {
        self.unchanged.end = Some(0);
    }

    /// Reads bytes that are passed on as they are, and that end at this offset of the piece.
    pub(super) fn read_unchanged(&mut self, text: &[u8], end: usize) {
        let UnchangedText { length, end: end_in_piece, has_more } = &mut self.unchanged;
        (*length, *end_in_piece) = (*length + text.len(), Some(end));
        *has_more |= memchr::memchr2(b' ', b':', text).is_some();
    }

    /// Reads an escape that is passed on as it is; `byte` is its character, unless it is white space.
    pub(super) const fn read_unchanged_escape(&mut self, byte: Option<u8>) {
        self.unchanged.length += 1;
        self.unchanged.end = None;
        self.unchanged.has_more |= byte.is_none();
    }

    /// Returns the padding that is absent at the end of a text that was passed on as it is, with the offset in the piece
    /// at which it is absent.
    pub(super) fn absent_padding_of_unchanged(&self) -> Option<(usize, &'static [u8])> {
        let UnchangedText { length, end, has_more } = self.unchanged;
        let padding = absent_padding(length);
        end.filter(|_| !padding.is_empty() && !has_more).map(|end| (end, padding))
    }

    /// Returns the base64 in the next bytes of the text, after any base64 that was mistaken for the beginning of a data
    /// URL.
    pub(super) fn skip_prefix<'t>(&mut self, mut text: &'t [u8]) -> Result<(&'static [u8], &'t [u8]), MalformedAnswer> {
        while let Some((byte, rest)) = text.split_first() {
            self.beginning = match self.beginning {
                TextBeginning::Over => break,
                TextBeginning::Scheme(length) if *byte == DATA_SCHEME[length] => match length + 1 {
                    length if length == DATA_SCHEME.len() => TextBeginning::Prefix(length),
                    length => TextBeginning::Scheme(length),
                },
                TextBeginning::Scheme(_) => return Ok((self.end_scheme(), text)),
                TextBeginning::Prefix(_) if *byte == b',' => TextBeginning::Over,
                TextBeginning::Prefix(length) if length < PREFIX_MAX => TextBeginning::Prefix(length + 1),
                TextBeginning::Prefix(_) => return Err(MalformedAnswer::Base64),
            };
            text = rest;
        }
        Ok((b"", text))
    }

    /// Returns the base64 that was mistaken for the beginning of a data URL.
    pub(super) fn end_scheme(&mut self) -> &'static [u8] {
        let beginning = std::mem::take(&mut self.beginning);
        if let TextBeginning::Scheme(length) = beginning { &DATA_SCHEME[..length] } else { b"" }
    }

    /// Notes that the piece ends within the image.
    pub(super) const fn leave_open(&mut self, place: ImagePlace) {
        self.open = Some(place);
    }

    /// Returns the place of the image that the last piece left open, and the number of bytes that only continue it.
    /// Returns `None` if the piece has to be read in the usual way.
    pub(super) fn read_plain(&mut self, piece: &[u8]) -> Option<(ImagePlace, usize)> {
        let place = self.open.take().filter(|_| self.length >= BASE64_BYTES_CHECKED)?;
        let length = plain_length(piece);
        self.length = self.length.saturating_add(length);
        self.open = (length == piece.len()).then_some(place);
        (length > 0).then_some((place, length))
    }

    /// Returns the padding that is absent at the end of the text.
    pub(super) const fn absent_padding(&self) -> &'static [u8] {
        absent_padding(self.length)
    }

    /// Checks the next bytes, and returns them in the standard alphabet. The whole alphabet is not checked: the caller
    /// decodes it.
    pub(super) fn read(&mut self, base64: Bytes) -> Result<Bytes, MalformedAnswer> {
        // Nearly all images are plain, so they are searched once.
        let base64 = if is_plain(&base64) { Some(base64) } else { in_standard_alphabet(&base64).filter(is_plain) };
        let base64 = base64.ok_or(MalformedAnswer::Base64)?;
        let beginning = &base64[..base64.len().min(BASE64_BYTES_CHECKED.saturating_sub(self.length))];
        self.length = self.length.saturating_add(base64.len());
        if beginning.iter().all(|byte| is_base64(*byte)) { Ok(base64) } else { Err(MalformedAnswer::Base64) }
    }
}

fn is_plain(base64: &Bytes) -> bool {
    plain_length(base64) == base64.len()
}

/// Returns the number of bytes before the first one that can end the text or its line, or that is not ASCII.
fn plain_length(bytes: &[u8]) -> usize {
    // `memchr` has vector instructions, also where the compiler optimizes for size. Three bytes at once are its most.
    let end = memchr::memchr3(b'"', b'\\', b'-', bytes).unwrap_or(bytes.len());
    let end = memchr::memchr(b'_', &bytes[..end]).unwrap_or(end);
    let words = bytes[..end].as_chunks().0;
    let plain = words.as_chunks().0.iter().take_while(|block| is_printable(block)).count() * SEARCH_BLOCK_WORDS * 8;
    plain + bytes[plain..end].iter().position(|byte| is_special(*byte)).unwrap_or(end - plain)
}

/// True if no byte is a control character, white space, or outside of ASCII. If one is, the highest bit of it or of its
/// neighbor is set, because a difference borrows; if none is, no difference does.
fn is_printable(block: &[[u8; 8]; SEARCH_BLOCK_WORDS]) -> bool {
    let words = block.iter().map(|word| u64::from_ne_bytes(*word));
    words.fold(0, |found, word| found | word | word.wrapping_sub(EACH_BYTE * 0x21)) & EACH_BYTE << 7 == 0
}

/// True for control characters, white space, bytes outside of ASCII, the two characters with a meaning in a text of JSON,
/// and the letters of Base64 for URLs.
const fn is_special(byte: u8) -> bool {
    // A byte outside of ASCII is negative as a signed number.
    (byte.cast_signed() <= 0x20) | (byte == b'"') | (byte == b'\\') | (byte == b'-') | (byte == b'_')
}

/// Returns the bytes in the standard alphabet (RFC 4648, section 4) without spaces; `None` if they are so already.
pub(super) fn in_standard_alphabet(base64: &[u8]) -> Option<Bytes> {
    memchr::memchr3(b'-', b'_', b' ', base64)?;
    let letters = base64.iter().filter(|byte| **byte != b' ');
    Some(letters.map(|byte| standard_letter(*byte)).collect())
}

/// Returns the letter of the standard alphabet for one of the alphabet for URLs.
pub(super) const fn standard_letter(byte: u8) -> u8 {
    match byte {
        b'-' => b'+',
        b'_' => b'/',
        _ => byte,
    }
}

pub(super) const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

/// Returns a character that was written as an escape, such as `\/`; `None` for the white space with which some encoders
/// break the lines of base64.
pub(super) fn unescaped_byte(unit: u16) -> Result<Option<u8>, MalformedAnswer> {
    let byte = u8::try_from(unit).map_err(|_| MalformedAnswer::Base64)?;
    Ok(Some(byte).filter(|byte| !matches!(byte, b'\r' | b'\n' | b'\t' | b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_each_special_byte_at_each_place() {
        for (byte, place) in (0..=u8::MAX).flat_map(|byte| (0..150).map(move |place| (byte, place))) {
            let mut bytes = [b'A'; 150];
            bytes[place] = byte;
            let expected = if is_special(byte) { place } else { bytes.len() };
            assert_eq!(plain_length(&bytes), expected, "{byte:#x} at {place}");
        }
        assert_eq!(plain_length(b"+/=09azAZ,!~\x7f"), 13);
        let next_to_special = [&[b'!'; 70][..], b"\"!\x7f-_!", &[0x7f; 70]].concat();
        assert_eq!(plain_length(&next_to_special), 70);
    }
}
