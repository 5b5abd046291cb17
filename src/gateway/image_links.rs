//! Links to images of stored answers, which a client without an API key can fetch for a while.
//!
//! The last segment of such a link is a sealed token. It names the stored answer, the image in it, the API key whose
//! request made it, and the end of the link. A caller can neither read it nor make another one: a link cannot be changed
//! to another image, another answer or a later end. This module seals and opens tokens; the request flow looks
//! up if the answer is still stored and the key still valid.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};

use super::store::{PublicId, RequestId, StoreError, Timestamp, Vault};

/// The path of the links, before the token.
pub(crate) const IMAGE_FILES_PATH: &str = "/v1/images/files/";
/// The longest time for which a link is valid (our choice). It is that of the links that the provider's older image
/// models gave.
pub(crate) const LINK_LIFETIME: Duration = Duration::from_secs(3600);
/// The longest token that is opened, in characters (our choice): twice the usual length.
const TOKEN_MAX_LENGTH: usize = 320;
/// The purpose for which tokens are sealed. It separates them from every other sealed value.
const SEALING_CONTEXT: &str = "image link";

/// The image that a link leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageLink {
    /// The scope of the stored answer.
    pub(crate) scope: [u8; 32],
    /// The request that made the answer.
    pub(crate) request_id: RequestId,
    /// The API key of that request.
    pub(crate) key: PublicId,
    /// The index of the image in the answer, from 0.
    pub(crate) index: u8,
    /// The time from which the link is not valid, in whole seconds.
    pub(crate) expires_at: DateTime<Utc>,
}

/// Seals and opens the tokens of links.
#[derive(Clone, Debug)]
pub(crate) struct ImageLinkSealer {
    vault: Vault,
}

/// Returns the end of a link to an answer that is stored until `stored_until`.
pub(crate) fn link_end(now: Timestamp, stored_until: Timestamp) -> DateTime<Utc> {
    (now + LINK_LIFETIME).min(stored_until).into()
}

// === impl ImageLinkSealer ===

impl ImageLinkSealer {
    /// Makes the sealer of an installation. Every node of it opens the tokens of the others, also after a restart.
    pub(crate) const fn new(vault: Vault) -> Self {
        Self { vault }
    }

    /// Returns the path of a link.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no random bytes.
    pub(crate) fn path(&self, link: &ImageLink) -> Result<String, StoreError> {
        let sealed = self.vault.seal(SEALING_CONTEXT, &link.to_bytes())?;
        Ok(format!("{IMAGE_FILES_PATH}{}", URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// Returns the link of a token; `None` if this installation did not seal it, or if the link has ended at `now`.
    pub(crate) fn open(&self, token: &str, now: DateTime<Utc>) -> Option<ImageLink> {
        if token.len() > TOKEN_MAX_LENGTH {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(token).ok()?;
        let link = ImageLink::from_bytes(&self.vault.open(SEALING_CONTEXT, &sealed).ok()?)?;
        (now < link.expires_at).then_some(link)
    }
}

// === impl ImageLink ===

impl ImageLink {
    /// Writes the scope, the index, the end in seconds, the key's public id, a zero byte, and the request.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.scope.to_vec();
        bytes.push(self.index);
        bytes.extend(self.expires_at.timestamp().to_be_bytes());
        bytes.extend(self.key.as_str().as_bytes());
        bytes.push(0);
        bytes.extend(self.request_id.as_str().as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (scope, bytes) = bytes.split_first_chunk()?;
        let (index, bytes) = bytes.split_first()?;
        let (end, bytes) = bytes.split_first_chunk()?;
        let (key, request_id) = std::str::from_utf8(bytes).ok()?.split_once('\0')?;
        Some(Self {
            scope: *scope,
            request_id: request_id.into(),
            key: key.into(),
            index: *index,
            expires_at: DateTime::from_timestamp(i64::from_be_bytes(*end), 0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    fn sealer(byte: u8) -> ImageLinkSealer {
        ImageLinkSealer::new(Vault::for_test(byte))
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn link() -> ImageLink {
        let request_id = "0193f3c0-0000-7000-8000-000000000000".into();
        ImageLink { scope: [7; 32], request_id, key: "0123456789ab".into(), index: 3, expires_at: at(2_000_000_000) }
    }

    fn token(sealer: &ImageLinkSealer, link: &ImageLink) -> String {
        sealer.path(link).unwrap().strip_prefix(IMAGE_FILES_PATH).unwrap().to_owned()
    }

    #[test]
    fn a_token_gives_back_its_link_until_the_link_ends() {
        let token = token(&sealer(1), &link());
        assert_eq!(sealer(1).open(&token, at(1_999_999_999)), Some(link()), "another process of the installation");
        assert_eq!(sealer(1).open(&token, at(2_000_000_000)), None, "the link has ended");
        assert_eq!(sealer(2).open(&token, at(1)), None, "another installation");
        assert!(token.len() <= TOKEN_MAX_LENGTH / 2 && token.bytes().all(|byte| ALPHABET.contains(&byte)));
    }

    #[test]
    fn a_token_shows_nothing_and_is_never_the_same() {
        let (first, second) = (token(&sealer(1), &link()), token(&sealer(1), &link()));
        assert_ne!(first, second);
        let bytes = URL_SAFE_NO_PAD.decode(&first).unwrap();
        for part in
            [&link().scope[..4], &link().key.as_str().as_bytes()[..4], &link().request_id.as_str().as_bytes()[..4]]
        {
            assert!(!bytes.windows(part.len()).any(|window| window == part));
        }
    }

    #[test]
    fn a_token_with_any_changed_bit_or_character_is_refused() {
        let (sealer, now) = (sealer(1), at(1));
        let token = token(&sealer, &link());
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&URL_SAFE_NO_PAD.encode(changed), now), None, "bit {bit}");
        }
        for index in 0..token.len() {
            for letter in ALPHABET.iter().filter(|letter| **letter != token.as_bytes()[index]) {
                let mut changed = token.clone().into_bytes();
                changed[index] = *letter;
                assert_eq!(sealer.open(std::str::from_utf8(&changed).unwrap(), now), None, "character {index}");
            }
            assert_eq!(sealer.open(&token[..index], now), None, "cut at {index}");
        }
        for changed in [format!("{token}="), format!("{token}A"), format!(" {token}"), token.repeat(3)] {
            assert_eq!(sealer.open(&changed, now), None, "{changed}");
        }
    }

    #[test]
    fn a_value_that_was_sealed_for_another_purpose_is_no_token() {
        let sealed = Vault::for_test(1).seal("another purpose", &link().to_bytes()).unwrap();
        assert_eq!(sealer(1).open(&URL_SAFE_NO_PAD.encode(sealed), at(1)), None);
    }

    #[test]
    fn a_million_guesses_find_no_link() {
        let (sealer, now) = (sealer(1), at(1));
        let mut guess = URL_SAFE_NO_PAD.decode(token(&sealer, &link())).unwrap();
        // A linear congruential generator: the guesses must differ, and need not be unpredictable.
        let mut state: u64 = 20_261_127;
        for _ in 0..1_000_000 {
            for byte in guess.iter_mut().skip(1) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = state.to_be_bytes()[0];
            }
            assert_eq!(sealer.open(&URL_SAFE_NO_PAD.encode(&guess), now), None);
        }
    }

    #[test]
    fn a_link_ends_after_an_hour_or_with_the_answer() {
        let now = Timestamp::from(at(1_000_000));
        assert_eq!(link_end(now, Timestamp::LAST), at(1_003_600));
        assert_eq!(link_end(now, at(1_000_060).into()), at(1_000_060));
    }
}
