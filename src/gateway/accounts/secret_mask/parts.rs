//! The parts of secrets, and the search for them.
//!
//! A text is searched by its grams: each part begins with one of a few grams near any place where it can begin, so most
//! places are not looked at, and nearly all others end with one bit of a table.

use std::ops::Range;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::TEXT_PART;

/// The number of bytes of a gram.
const GRAM: usize = 4;
/// The bytes of a long pattern.
const LONG: usize = super::DATA_PART;
/// The bits of the table for each pattern, and the limits of a table (our choices). A pattern adds one gram, or four in
/// base64, so few others are in the table by chance; and the table must stay small beside the caches of a processor.
const BITS_PER_PATTERN: usize = 128;
const MIN_BITS: usize = 1 << 15;
const MAX_BITS: usize = 1 << 20;

/// The parts of secrets that have a given number of characters.
#[derive(Default)]
pub(super) struct SecretParts {
    /// The parts in all spellings, sorted; none begins with another.
    patterns: Vec<Box<[u8]>>,
    /// The grams of all patterns.
    grams: GramTable,
    longest: usize,
    /// True if each pattern has at least [`LONG`] bytes.
    are_long: bool,
}

/// A set of grams, in which others are by chance.
#[derive(Default)]
struct GramTable {
    /// Two bits for each gram. The number of words is a power of two.
    words: Vec<u64>,
}

/// A part of a secret in one spelling, character by character.
type SpelledSecret = Vec<Vec<u8>>;

// === impl SecretParts ===

impl SecretParts {
    /// Prepares the search for the parts of these secrets that have this number of characters. A shorter secret has no part
    /// but itself.
    pub(super) fn new(secrets: &[&[u8]], length: usize) -> Self {
        let mut patterns: Vec<Box<[u8]>> = Vec::new();
        for secret in secrets {
            add_patterns(secret, length.min(secret.len()), &mut patterns);
        }
        patterns.sort_unstable();
        patterns.dedup_by(|later, earlier| later.starts_with(earlier));
        let lengths = || patterns.iter().map(|pattern| pattern.len());
        let (shortest, longest) = (lengths().min().unwrap_or_default(), lengths().max().unwrap_or_default());
        let grams = GramTable::new(&patterns);
        Self { patterns, grams, longest, are_long: shortest >= LONG }
    }

    /// Returns the length of the longest beginning of a pattern with which the bytes end.
    pub(super) fn unfinished_length(&self, bytes: &[u8]) -> usize {
        let begins_pattern = |length: &usize| {
            let end = &bytes[bytes.len() - length..];
            if end.first_chunk().is_some_and(|gram| !self.grams.contains(*gram)) {
                return false;
            }
            let at = self.patterns.partition_point(|pattern| pattern.as_ref() < end);
            self.patterns.get(at).is_some_and(|pattern| pattern.starts_with(end))
        };
        (1..self.longest.min(bytes.len() + 1)).rev().find(begins_pattern).unwrap_or_default()
    }

    pub(super) fn has_match(&self, bytes: &[u8]) -> bool {
        let mut found = false;
        self.for_each_match(bytes, 0..bytes.len(), |_, _| {
            found = true;
            false
        });
        found
    }

    /// Calls `visit` with the start and the length of each match that starts in the range, until it returns `false`.
    pub(super) fn for_each_match(&self, bytes: &[u8], range: Range<usize>, visit: impl FnMut(usize, usize) -> bool) {
        // Each place at which a pattern begins has a gram of it at one of so many offsets, so one place of so many is
        // looked at.
        if self.are_long {
            self.search::<{ LONG - GRAM + 1 }>(bytes, range, visit);
        } else {
            self.search::<{ TEXT_PART - GRAM + 1 }>(bytes, range, visit);
        }
    }

    fn search<const STRIDE: usize>(
        &self,
        bytes: &[u8],
        range: Range<usize>,
        mut visit: impl FnMut(usize, usize) -> bool,
    ) {
        if self.patterns.is_empty() {
            return;
        }
        let end = bytes.len().min(range.end + STRIDE + GRAM - 2);
        let (chunks, rest) = bytes[range.start..end].as_chunks::<STRIDE>();
        let mut next = 0;
        while let Some(index) = self.grams.position(chunks, rest, next) {
            next = index + 1;
            let place = range.start + index * STRIDE;
            if self.are_long && !self.has_neighbor(bytes, place) {
                continue;
            }
            let starts = range.start.max(place.saturating_sub(STRIDE - 1))..range.end.min(place + 1);
            let mut matches = starts.filter_map(|start| Some((start, self.match_at(&bytes[start..])?)));
            if !matches.all(|(start, length)| visit(start, length)) {
                return;
            }
        }
    }

    /// True if the gram just before or after the one at this place may be of a pattern, too: a long pattern has one of them
    /// beside each of its grams.
    fn has_neighbor(&self, bytes: &[u8], place: usize) -> bool {
        let before = place.checked_sub(GRAM).and_then(|place| bytes[place..].first_chunk());
        let after = bytes.get(place + GRAM..).and_then(<[u8]>::first_chunk);
        [before, after].into_iter().flatten().any(|gram| self.grams.contains(*gram))
    }

    /// Returns the length of the pattern with which the bytes begin. It is the last that does not come after them, because no
    /// pattern begins with another.
    fn match_at(&self, bytes: &[u8]) -> Option<usize> {
        let at = self.patterns.partition_point(|pattern| pattern.as_ref() <= bytes);
        let pattern = self.patterns.get(at.checked_sub(1)?)?;
        bytes.starts_with(pattern).then_some(pattern.len())
    }
}

// === impl GramTable ===

impl GramTable {
    fn new(patterns: &[Box<[u8]>]) -> Self {
        let bits = (patterns.len() * BITS_PER_PATTERN).next_power_of_two().clamp(MIN_BITS, MAX_BITS);
        let mut table = Self { words: vec![0; bits / 64] };
        let grams = patterns.iter().flat_map(|pattern| pattern.array_windows());
        for hash in grams.flat_map(|gram| Self::hashes(*gram)) {
            let (word, bit) = table.place(hash);
            table.words[word] |= bit;
        }
        table
    }

    /// Returns the index of the first chunk, from this one on, that begins with a gram of the set. The rest is the last.
    fn position<const SIZE: usize>(&self, chunks: &[[u8; SIZE]], rest: &[u8], next: usize) -> Option<usize> {
        let begins_with_gram = |chunk: &[u8]| chunk.first_chunk().is_some_and(|gram| self.contains(*gram));
        let found = chunks.get(next..)?.iter().position(|chunk| begins_with_gram(chunk));
        found.map(|index| next + index).or_else(|| begins_with_gram(rest).then_some(chunks.len()))
    }

    /// True if the gram is in the set, or by chance.
    #[inline]
    fn contains(&self, gram: [u8; GRAM]) -> bool {
        let [first, second] = Self::hashes(gram);
        self.has(first) && self.has(second)
    }

    #[inline]
    fn has(&self, hash: u32) -> bool {
        let (word, bit) = self.place(hash);
        self.words[word] & bit != 0
    }

    /// Returns the word of a hash and its bit in that word.
    #[inline]
    const fn place(&self, hash: u32) -> (usize, u64) {
        ((hash >> 6) as usize & (self.words.len() - 1), 1 << (hash % 64))
    }

    /// Returns two numbers for a gram that are spread over all bits (Fibonacci hashing).
    #[inline]
    const fn hashes(gram: [u8; GRAM]) -> [u32; 2] {
        let hash = ((u32::from_le_bytes(gram) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        [hash, hash.rotate_right(11)]
    }
}

/// Adds each part of a secret of this number of characters in each spelling.
fn add_patterns(secret: &[u8], length: usize, patterns: &mut Vec<Box<[u8]>>) {
    for spelling in spellings(secret) {
        for (part, characters) in secret.windows(length).zip(spelling.windows(length)) {
            if !may_be_word(part) {
                patterns.push(characters.concat().into());
            }
        }
    }
    for engine in [&alphabet::STANDARD, &alphabet::URL_SAFE].map(|alphabet| GeneralPurpose::new(alphabet, NO_PAD)) {
        for skipped in 0..3 {
            // Three bytes are four characters, so there is one text for each place in a group of three. The group of bytes at
            // either end of the secret also has bits of its neighbours.
            let Some(aligned) = secret.get(skipped..) else { continue };
            let whole_groups = aligned.len() / 3 * 3;
            let encoded = engine.encode(&aligned[..whole_groups]).into_bytes();
            patterns.extend(encoded.windows(length).step_by(4).map(Box::from));
        }
    }
}

/// The spellings that change characters one by one.
fn spellings(secret: &[u8]) -> [SpelledSecret; 6] {
    let each = |spell: &dyn Fn(u8) -> Vec<u8>| secret.iter().map(|byte| spell(*byte)).collect();
    let with_slash = |byte: u8| if byte == b'/' { b"\\/".to_vec() } else { vec![byte] };
    let as_url = |byte: u8| match std::str::from_utf8(&[byte]) {
        Ok(text) => utf8_percent_encode(text, NON_ALPHANUMERIC).to_string().into_bytes(),
        Err(_) => format!("%{byte:02X}").into_bytes(),
    };
    [
        each(&|byte| vec![byte]),
        each(&with_slash),
        each(&as_url),
        each(&|byte| format!("%{byte:02x}").into_bytes()),
        each(&|byte| format!("\\u{byte:04x}").into_bytes()),
        each(&|byte| format!("\\u{byte:04X}").into_bytes()),
    ]
}

/// True if a part of a secret may be words, such as the prefix that all keys of a provider have: it has letters of one case
/// and separators, and no digit.
fn may_be_word(part: &[u8]) -> bool {
    let is_any = |test: fn(&u8) -> bool| part.iter().any(test);
    part.iter().all(|byte| byte.is_ascii_alphabetic() || b"-_.".contains(byte))
        && !(is_any(u8::is_ascii_lowercase) && is_any(u8::is_ascii_uppercase))
}
