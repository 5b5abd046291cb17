//! Recognises the secrets of an account in what its upstream says, by their value.
//!
//! An upstream, or a proxy in front of it, may repeat the credentials of a call anywhere: in a message, an id, a header
//! or a body. The words around a secret tell nothing, so the text is compared with the secrets themselves. A part of at
//! least [`TEXT_PART`] characters counts like the whole, in the spellings in which texts carry it: plain, with the
//! escapes of URLs and of JSON, and in base64. A part without a digit and with letters of one case and separators only
//! does not count, because it may be words. In an image in base64, short parts occur by chance, so a part has at least
//! [`DATA_PART`] characters there. The module is pure, and does not know where a text comes from or where it goes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

/// The characters of the shortest part of a secret that counts (our choice): fewer occur by chance.
const TEXT_PART: usize = 8;
/// The characters of the shortest part that counts in data (our choice). A token of 2,000 characters has about 6,000 parts:
/// with eight characters, one of them would occur by chance in one of 3,000 images of 15 MB in base64, and with twelve in
/// one of fifty billion.
const DATA_PART: usize = 12;
/// The characters in a row from which a text in the alphabets of base64 counts as data (our choice): more than an id has.
pub(crate) const DATA_MIN: usize = 256;
/// The number of bytes of a gram, by which a text is searched.
const GRAM: usize = 4;
/// The bits of the table of grams for each gram, of the parts that are searched for and of those that are only looked up at
/// the end of a piece, and the limits of a table (our choices). A gram of an image that is in the table by chance costs more
/// than the look-up of a hundred others, and the table must stay small beside the caches of a processor.
const BITS_PER_GRAM: usize = 256;
const BITS_PER_DATA_GRAM: usize = 64;
const MIN_BITS: usize = 1 << 13;
const MAX_BITS: usize = 1 << 21;

/// The secrets of one account.
#[derive(Default)]
pub(crate) struct SecretMask {
    parts: SecretParts,
    /// The parts that count in data.
    data_parts: SecretParts,
}

/// The parts of secrets that have a given number of characters.
#[derive(Default)]
struct SecretParts {
    /// The parts in all spellings, sorted; none begins with another.
    patterns: Vec<Box<[u8]>>,
    /// A bit for each gram that occurs near the beginning of a pattern.
    grams: Vec<u64>,
    /// Each place at which a pattern can begin has a gram at one of this number of offsets, so only one place of that many
    /// is looked at.
    stride: usize,
    longest: usize,
}

/// A part of a secret in one spelling, character by character.
type Spelling = Vec<Vec<u8>>;

// === impl SecretMask ===

impl SecretMask {
    /// The byte that takes the place of each byte of a secret. It changes no length, and is valid in every format.
    pub(crate) const MASK: u8 = b'*';

    /// Prepares the search for these secrets. Those shorter than [`TEXT_PART`] are not searched for: they occur by chance.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets: Vec<_> =
            secrets.into_iter().map(str::as_bytes).filter(|secret| secret.len() >= TEXT_PART).collect();
        let parts = |length, bits| SecretParts::new(&secrets, length, bits);
        Self { parts: parts(TEXT_PART, BITS_PER_GRAM), data_parts: parts(DATA_PART, BITS_PER_DATA_GRAM) }
    }

    /// Prepares the search for the credentials in the sensitive headers of a call.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        Self::of_call(headers, None, None)
    }

    /// Prepares the search for the credentials of a call, which are in its sensitive headers, and for further secrets.
    pub(crate) fn of_call<'a>(
        headers: &'a HeaderMap,
        authorization: Option<&'a HeaderValue>,
        further: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let values = headers.values().filter(|value| value.is_sensitive()).chain(authorization);
        // The name of the scheme before a credential is no secret.
        let texts = values.filter_map(|value| value.to_str().ok()?.rsplit(' ').next());
        Self::new(texts.chain(further))
    }

    /// True if a text of an upstream has a part of a secret in any spelling, also if only some of its characters are
    /// escaped.
    pub(crate) fn reveals(&self, text: &str) -> bool {
        let parts = &self.parts;
        parts.has_match(text.as_bytes())
            || (text.contains('%') && parts.has_match(&percent_decode_str(text).collect::<Vec<_>>()))
            || (text.contains('\\') && parts.has_match(&unescaped_json(text)))
    }

    /// Returns a text of an upstream with each part of a secret masked; a part behind escapes masks the whole text.
    pub(crate) fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.reveals(text) {
            return Cow::Borrowed(text);
        }
        let masked = self.mask_bytes(Bytes::copy_from_slice(text.as_bytes()));
        let masked = String::from_utf8_lossy(&masked).into_owned();
        Cow::Owned(if self.reveals(&masked) { char::from(Self::MASK).to_string() } else { masked })
    }

    /// Returns bytes of an upstream with each part of a secret masked. They are copied only if they have one.
    pub(crate) fn mask_bytes(&self, bytes: Bytes) -> Bytes {
        let mut masked: Option<BytesMut> = None;
        self.parts.for_each_match(&bytes, |start, length| {
            let is_chance = is_in_data(&bytes, start) && !self.data_parts.covers(&bytes, start);
            if !is_chance {
                masked.get_or_insert_with(|| BytesMut::from(&bytes[..]))[start..start + length].fill(Self::MASK);
            }
            true
        });
        masked.map_or(bytes, BytesMut::freeze)
    }

    /// Returns the number of bytes at the end that may be the beginning of a secret, so that they cannot be passed on before
    /// the next bytes are known.
    pub(crate) fn unfinished_length(&self, bytes: &[u8]) -> usize {
        self.data_parts.unfinished_length(bytes).max(self.parts.unfinished_length(bytes))
    }

    /// Masks all texts of a value.
    pub(crate) fn mask_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.mask_text(text) {
                    *text = masked;
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.mask_value(value);
                }
            }
            Value::Object(members) => {
                members.retain(|name, _| !self.reveals(name));
                members.values_mut().for_each(|value| self.mask_value(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

// === impl SecretParts ===

impl SecretParts {
    /// Prepares the search for the parts of these secrets that have this number of characters. A shorter secret has no part
    /// but itself.
    fn new(secrets: &[&[u8]], length: usize, bits_per_gram: usize) -> Self {
        let mut patterns: Vec<Box<[u8]>> = Vec::new();
        for secret in secrets {
            add_patterns(secret, length.min(secret.len()), &mut patterns);
        }
        patterns.sort_unstable();
        patterns.dedup_by(|later, earlier| later.starts_with(earlier));
        let lengths = || patterns.iter().map(|pattern| pattern.len());
        let (stride, longest) = (lengths().min().unwrap_or(GRAM) - GRAM + 1, lengths().max().unwrap_or_default());
        let bits = (patterns.len() * stride * bits_per_gram).next_power_of_two().clamp(MIN_BITS, MAX_BITS);
        let mut parts = Self { patterns, grams: vec![0; bits / 64], stride, longest };
        for gram in parts.patterns.iter().flat_map(|pattern| pattern.windows(GRAM).take(stride)) {
            let bit = gram_bit([gram[0], gram[1], gram[2], gram[3]], parts.grams.len());
            parts.grams[bit / 64] |= 1 << (bit % 64);
        }
        parts
    }

    /// True if a part has the byte at this place near its beginning.
    fn covers(&self, bytes: &[u8], place: usize) -> bool {
        let first = place.saturating_sub(DATA_PART - TEXT_PART);
        (first..=place).any(|start| self.match_at(&bytes[start..]).is_some())
    }

    /// Returns the length of the longest beginning of a pattern with which the bytes end.
    fn unfinished_length(&self, bytes: &[u8]) -> usize {
        let begins_pattern = |length: &usize| {
            let end = &bytes[bytes.len() - length..];
            if end.first_chunk().is_some_and(|gram| !self.has_gram(*gram)) {
                return false;
            }
            let at = self.patterns.partition_point(|pattern| pattern.as_ref() < end);
            self.patterns.get(at).is_some_and(|pattern| pattern.starts_with(end))
        };
        (1..self.longest.min(bytes.len() + 1)).rev().find(begins_pattern).unwrap_or_default()
    }

    fn has_match(&self, bytes: &[u8]) -> bool {
        let mut found = false;
        self.for_each_match(bytes, |_, _| {
            found = true;
            false
        });
        found
    }

    /// Calls `visit` with the start and the length of each match, until it returns `false`.
    fn for_each_match(&self, bytes: &[u8], mut visit: impl FnMut(usize, usize) -> bool) {
        if self.patterns.is_empty() {
            return;
        }
        let mut place = 0;
        while let Some(gram) = bytes.get(place..).and_then(<[u8]>::first_chunk) {
            let starts = place.saturating_sub(self.stride - 1)..=place;
            let mut matches = starts.filter_map(|start| Some((start, self.match_at(&bytes[start..])?)));
            if self.has_gram(*gram) && !matches.all(|(start, length)| visit(start, length)) {
                return;
            }
            place += self.stride;
        }
    }

    /// True if a pattern may have this gram near its beginning.
    fn has_gram(&self, gram: [u8; GRAM]) -> bool {
        let bit = gram_bit(gram, self.grams.len());
        self.grams[bit / 64] & (1 << (bit % 64)) != 0
    }

    /// Returns the length of the pattern with which the bytes begin. It is the last that does not come after them, because no
    /// pattern begins with another.
    fn match_at(&self, bytes: &[u8]) -> Option<usize> {
        let at = self.patterns.partition_point(|pattern| pattern.as_ref() <= bytes);
        let pattern = self.patterns.get(at.checked_sub(1)?)?;
        bytes.starts_with(pattern).then_some(pattern.len())
    }
}

impl std::fmt::Debug for SecretMask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SecretMask").finish_non_exhaustive()
    }
}

/// True if the byte at this place belongs to a long text in the alphabets of base64.
fn is_in_data(bytes: &[u8], place: usize) -> bool {
    let is_data = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(*byte);
    let before = bytes[..place].iter().rev().take(DATA_MIN).take_while(is_data).count();
    before + bytes[place..].iter().take(DATA_MIN).take_while(is_data).count() >= DATA_MIN
}

/// Returns the bit of a gram in a table of this number of words, which is a power of two (Fibonacci hashing).
fn gram_bit(gram: [u8; GRAM], words: usize) -> usize {
    let hash = u64::from(u32::from_le_bytes(gram)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    hash as usize & (words * 64 - 1)
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
fn spellings(secret: &[u8]) -> [Spelling; 6] {
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

/// Returns a text with those JSON escapes resolved that a secret can have: of ASCII characters.
fn unescaped_json(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'\\', [b'u', digits @ ..]) => {
                let digits = digits.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(|byte| (byte, &after[5..]))
            }
            (b'\\', [byte, after @ ..]) => Some((*byte, after)),
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    const KEY: &str = "sk-live/Qz7w_XA9t-4KpL2m";

    fn mask() -> SecretMask {
        SecretMask::new([KEY, "short"])
    }

    fn escaped(text: &str) -> String {
        text.bytes().map(|byte| format!("\\u{byte:04x}")).collect()
    }

    #[test]
    fn a_secret_and_its_parts_are_found_in_every_spelling() {
        let percent = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        for text in [
            KEY.to_owned(),
            format!("Incorrect API key provided: {KEY}."),
            format!("xx{}yy", &KEY[7..15]),
            KEY[KEY.len() - 8..].to_owned(),
            KEY.replace('/', "\\/"),
            percent(KEY),
            percent(&KEY[6..16]),
            KEY.bytes().map(|byte| format!("%{byte:02x}")).collect(),
            KEY.replace('w', "%77").replace('t', "%74"),
            escaped(KEY),
            escaped(&KEY[4..13]),
            KEY.replace('w', "\\u0077").replace('t', "\\u0074"),
            STANDARD.encode(KEY),
            STANDARD.encode(format!("Bearer {KEY}")),
            STANDARD.encode(format!("a:{KEY}")),
            URL_SAFE.encode(format!("ab:{KEY}")),
        ] {
            assert!(mask().reveals(&text), "{text}");
            let masked = mask().mask_text(&text).into_owned();
            assert!(!mask().reveals(&masked), "{masked}");
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in ["", "short", "The model 'sk-live' does not exist.", "req_0123456789abcdef", "Qz7w_XA", "100 %"] {
            assert!(!mask().reveals(text), "{text}");
            assert!(matches!(mask().mask_text(text), Cow::Borrowed(_)), "{text}");
        }
        // A part that is a word occurs in any text.
        let mask = SecretMask::new(["sk-upstream-7"]);
        assert!(!mask.reveals("The upstream is busy.") && mask.reveals("sk-upstream-7") && mask.reveals("upstream-7"));
        assert!(!mask.reveals("A key begins with 'sk-upstream-'."));
    }

    #[test]
    fn only_parts_that_do_not_occur_by_chance_are_masked_in_data() {
        let mask = SecretMask::new([KEY, "k3y_of_9x"]);
        let data = "iVBORw0KGgo/".repeat(30);
        let masked = |text: &str| mask.mask_bytes(Bytes::from(text.to_owned()));
        for part in [&KEY[3..14], "k3y_of_9", KEY, &KEY[3..15], "k3y_of_9x", &STANDARD.encode(KEY)[4..20]] {
            let (text, in_data) = (format!("{data}\" {part} \"{data}"), format!("\"{data}{part}{data}\""));
            assert_eq!(masked(&text), text.replace(part, &"*".repeat(part.len())), "{part}");
            let is_data_part = part.len() >= DATA_PART || part == "k3y_of_9x";
            assert_eq!(masked(&in_data) != in_data, is_data_part, "{part}");
        }
    }

    #[test]
    fn names_and_texts_of_a_value_are_masked() {
        let mut value = serde_json::json!({"error": {"message": format!("bad {KEY}"), KEY: 1, "list": [KEY, 2]}});
        mask().mask_value(&mut value);
        let stars = "*".repeat(KEY.len());
        assert_eq!(value, serde_json::json!({"error": {"message": format!("bad {stars}"), "list": [stars, 2]}}));
    }
}
