//! Recognises the secrets of an account in what its upstream says, by their value.
//!
//! An upstream, or a proxy in front of it, may repeat the credentials of a call anywhere: in a message, an id, a header
//! or a body. The words around a secret tell nothing, so the text is compared with the secrets themselves. A part of at
//! least [`TEXT_PART`] characters counts like the whole, in the spellings in which texts carry it: plain, with the
//! escapes of URLs and of JSON, and in base64. A part without a digit and with letters of one case and separators only
//! does not count, because it may be words. In an image in base64, short parts occur by chance, so a part has at least
//! [`DATA_PART`] characters there. The module is pure, and does not know where a text comes from or where it goes.

mod parts;

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use memchr::memchr3;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use self::parts::SecretParts;

/// The characters of the shortest part of a secret that counts (our choice): fewer occur by chance.
const TEXT_PART: usize = 8;
/// The characters of the shortest part that counts in data (our choice). A token of 2,000 characters has about 6,000 parts:
/// with eight characters, one of them would occur by chance in one of 3,000 images of 15 MB in base64, and with twelve in
/// one of fifty billion.
const DATA_PART: usize = 12;
/// The characters of base64 in a row, at the end of a text without spaces, quotation marks and backslashes, from which that
/// text counts as data (our choice): more than an id has.
pub(crate) const DATA_MIN: usize = 256;

/// The secrets of one account.
#[derive(Default)]
pub(crate) struct SecretMask {
    parts: SecretParts,
    /// The parts that count in data.
    data_parts: SecretParts,
}

// === impl SecretMask ===

impl SecretMask {
    /// The byte that takes the place of each byte of a secret. It changes no length, and is valid in every format.
    pub(crate) const MASK: u8 = b'*';

    /// Prepares the search for these secrets. Those shorter than [`TEXT_PART`] are not searched for: they occur by chance.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let secrets: Vec<_> =
            secrets.into_iter().map(str::as_bytes).filter(|secret| secret.len() >= TEXT_PART).collect();
        Self { parts: SecretParts::new(&secrets, TEXT_PART), data_parts: SecretParts::new(&secrets, DATA_PART) }
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
        let mut mask = |start: usize, length: usize| {
            masked.get_or_insert_with(|| BytesMut::from(&bytes[..]))[start..start + length].fill(Self::MASK);
            true
        };
        let mut text_start = 0;
        for data in data_runs(&bytes) {
            self.parts.for_each_match(&bytes, text_start..data.start, &mut mask);
            text_start = data.end;
            self.data_parts.for_each_match(&bytes, data, &mut mask);
        }
        self.parts.for_each_match(&bytes, text_start..bytes.len(), &mut mask);
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

impl std::fmt::Debug for SecretMask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SecretMask").finish_non_exhaustive()
    }
}

/// Returns the runs of bytes that count as data.
fn data_runs(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        while start + DATA_MIN <= bytes.len() {
            let length = memchr3(b'"', b'\\', b' ', &bytes[start..]).unwrap_or(bytes.len() - start);
            let run = start..start + length;
            start = run.end + 1;
            if ends_with_data(&bytes[run.clone()]) {
                return Some(run);
            }
        }
        None
    })
}

/// True if a run ends with enough characters of base64, which padding may follow.
fn ends_with_data(run: &[u8]) -> bool {
    let unpadded = run.strip_suffix(b"==").or_else(|| run.strip_suffix(b"=")).unwrap_or(run);
    let is_data = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    unpadded.last_chunk::<DATA_MIN>().is_some_and(|end| end.iter().all(is_data))
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
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

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

    /// Masks each part that begins at one of the places, without a table.
    fn mask_by_comparison(secret: &str, text: &str) -> String {
        let mut masked = text.as_bytes().to_vec();
        let data: Vec<Range<usize>> = data_runs(text.as_bytes()).collect();
        for start in 0..text.len() {
            let length = if data.iter().any(|run| run.contains(&start)) { DATA_PART } else { TEXT_PART };
            let parts = secret.as_bytes().windows(length);
            if parts.into_iter().any(|part| text.as_bytes()[start..].starts_with(part)) {
                masked[start..start + length].fill(SecretMask::MASK);
            }
        }
        String::from_utf8(masked).unwrap()
    }

    #[test]
    fn the_search_finds_the_parts_that_a_comparison_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..400 {
            let length = random.usize(TEXT_PART..50);
            let secret: String = (0..length).map(|_| random.alphanumeric()).chain("9Z".chars()).collect();
            let mut text = String::new();
            while text.len() < 3000 {
                let filler = random.usize(..600);
                text.extend((0..filler).map(|_| random.alphanumeric()));
                let start = random.usize(..length);
                let part = &secret[start..random.usize(start..=secret.len())];
                text += [part, part, "=", " ", "\""][random.usize(..5)];
            }
            let masked = SecretMask::new([secret.as_str()]).mask_bytes(text.clone().into());
            assert_eq!(String::from_utf8_lossy(&masked), mask_by_comparison(&secret, &text), "{secret}");
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
