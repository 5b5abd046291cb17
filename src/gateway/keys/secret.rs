//! The form of a key: `sk-img-<public id>-<secret><checksum>`; admin tokens begin with `sk-adm-`.
//!
//! The prefix lets scanners find leaked keys, the public id can be shown, the secret carries 190 bits, and the checksum
//! lets the gateway refuse a mistyped or invented key without a query.

use std::fmt;

use crate::gateway::store::{PublicId, StoreError, random_base62};

const PREFIX_LENGTH: usize = 7;
const PUBLIC_ID_LENGTH: usize = 12;
const SECRET_LENGTH: usize = 32;
const CHECKSUM_LENGTH: usize = 6;

const PUBLIC_ID_START: usize = PREFIX_LENGTH;
const PUBLIC_ID_END: usize = PUBLIC_ID_START + PUBLIC_ID_LENGTH;
const CHECKSUM_START: usize = PUBLIC_ID_END + 1 + SECRET_LENGTH;
const LENGTH: usize = CHECKSUM_START + CHECKSUM_LENGTH;

/// The use of a secret. A secret of one kind is never accepted as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BearerSecretKind {
    /// The key of a caller.
    Key,
    /// An admin token.
    AdminToken,
}

impl BearerSecretKind {
    const fn prefix(self) -> &'static [u8; PREFIX_LENGTH] {
        match self {
            Self::Key => b"sk-img-",
            Self::AdminToken => b"sk-adm-",
        }
    }
}

/// A well-formed key. It may still be an invalid one.
pub(crate) struct BearerSecret([u8; LENGTH]);

impl BearerSecret {
    /// Generates a new key.
    pub(crate) fn generate(kind: BearerSecretKind) -> Result<Self, StoreError> {
        Self::with_public_id(kind, random_base62()?)
    }

    /// Generates another key with the same public id.
    pub(super) fn generate_for_public_id(public_id: &PublicId) -> Result<Self, StoreError> {
        let letters = public_id.as_str().as_bytes().try_into();
        let letters = letters.map_err(|_| StoreError::Refused("the public id of a key has another length".into()))?;
        Self::with_public_id(BearerSecretKind::Key, letters)
    }

    fn with_public_id(kind: BearerSecretKind, public_id: [u8; PUBLIC_ID_LENGTH]) -> Result<Self, StoreError> {
        let mut text = [b'-'; LENGTH];
        text[..PUBLIC_ID_START].copy_from_slice(kind.prefix());
        text[PUBLIC_ID_START..PUBLIC_ID_END].copy_from_slice(&public_id);
        text[PUBLIC_ID_END + 1..CHECKSUM_START].copy_from_slice(&random_base62::<SECRET_LENGTH>()?);
        let checksum = checksum(&text[..CHECKSUM_START]);
        text[CHECKSUM_START..].copy_from_slice(&checksum);
        Ok(Self(text))
    }

    /// Parses a presented text. If the text cannot be a key, only its length is examined.
    pub(crate) fn parse(kind: BearerSecretKind, text: &[u8]) -> Option<Self> {
        let text: &[u8; LENGTH] = text.try_into().ok()?;
        let well_formed = text.starts_with(kind.prefix())
            && text[PUBLIC_ID_START..PUBLIC_ID_END].iter().all(u8::is_ascii_alphanumeric)
            && text[PUBLIC_ID_END] == b'-'
            && text[PUBLIC_ID_END + 1..].iter().all(u8::is_ascii_alphanumeric)
            && checksum(&text[..CHECKSUM_START]) == text[CHECKSUM_START..];
        well_formed.then_some(Self(*text))
    }

    /// Returns the part that may be shown.
    pub(crate) fn public_id(&self) -> PublicId {
        PublicId::from(ascii(&self.0[PUBLIC_ID_START..PUBLIC_ID_END]))
    }

    /// Returns the whole key, to be shown once to its owner.
    pub(crate) fn expose(&self) -> &str {
        ascii(&self.0)
    }

    /// Returns the checksum for such a text, so that tests can forge keys.
    #[cfg(test)]
    pub(crate) fn checksum_of(text: &str) -> String {
        ascii(&checksum(text.as_bytes())).to_owned()
    }
}

impl Drop for BearerSecret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without this use of it the compiler may remove the write.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for BearerSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BearerSecret({}, [redacted])", self.public_id())
    }
}

/// Returns the bytes as text. Only well-formed text gets into a [`BearerSecret`], and that is ASCII.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Returns the CRC-32 in six letters of base62, so that a scanner can check a find without the gateway.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LENGTH] {
    const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = crc32(bytes) as usize;
    let mut letters = [b'0'; CHECKSUM_LENGTH];
    for letter in letters.iter_mut().rev() {
        *letter = LETTERS[rest % LETTERS.len()];
        rest /= LETTERS.len();
    }
    letters
}

/// Computes the CRC-32 of IEEE 802.3, bit by bit: 52 bytes do not justify a table.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xEDB8_8320;
    let mut remainder = u32::MAX;
    for byte in bytes {
        remainder ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = remainder & 1;
            remainder = (remainder >> 1) ^ (POLYNOMIAL * carry);
        }
    }
    !remainder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_crc_that_everybody_knows() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(checksum(b""), *b"000000");
        // 0xCBF43926 = 3421780262 written in base62 with the digits first.
        assert_eq!(checksum(b"123456789"), *b"3jZRME");
    }

    #[test]
    fn a_new_key_has_the_published_form_and_parses() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let text = secret.expose();
        let (public_id, tail) = text.strip_prefix("sk-img-").unwrap().split_once('-').unwrap();
        assert_eq!((public_id.len(), tail.len()), (12, 38));
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        assert_eq!(
            BearerSecret::parse(BearerSecretKind::Key, text.as_bytes()).unwrap().public_id(),
            secret.public_id()
        );
    }

    #[test]
    fn no_changed_or_missing_letter_parses() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let good = secret.expose().as_bytes();
        for place in 0..good.len() {
            for other in [b'0', b'Z', b'-', b' ', 0, 0xff] {
                let mut text = good.to_vec();
                text[place] = other;
                assert!(
                    text == good || BearerSecret::parse(BearerSecretKind::Key, &text).is_none(),
                    "{other} at {place}"
                );
            }
            assert!(BearerSecret::parse(BearerSecretKind::Key, &good[..place]).is_none(), "cut at {place}");
        }
        assert!(BearerSecret::parse(BearerSecretKind::Key, &[good, b"0"].concat()).is_none());
    }

    #[test]
    fn a_right_checksum_does_not_make_up_for_a_wrong_form() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let body = &secret.expose()[..CHECKSUM_START];
        for wrong in [body.replacen("sk-img-", "sk-xyz-", 1), body.replacen("-", "_", 3), body.replacen("sk", "SK", 1)]
        {
            let forged = format!("{wrong}{}", BearerSecret::checksum_of(&wrong));
            assert!(BearerSecret::parse(BearerSecretKind::Key, forged.as_bytes()).is_none(), "{forged}");
        }
        let mut wrong = body.to_owned();
        wrong.replace_range(PUBLIC_ID_END..=PUBLIC_ID_END, "x");
        let forged = format!("{wrong}{}", BearerSecret::checksum_of(&wrong));
        assert!(BearerSecret::parse(BearerSecretKind::Key, forged.as_bytes()).is_none(), "{forged}");
    }

    #[test]
    fn invented_keys_of_the_right_shape_do_not_pass_the_checksum() {
        for _ in 0..20_000 {
            let letters = random_base62::<50>().unwrap();
            let (public_id, rest) = letters.split_at(PUBLIC_ID_LENGTH);
            assert!(
                BearerSecret::parse(
                    BearerSecretKind::Key,
                    &[BearerSecretKind::Key.prefix(), public_id, b"-", rest].concat()
                )
                .is_none()
            );
        }
    }

    #[test]
    fn an_admin_token_is_no_key_and_a_key_no_admin_token() {
        for (kind, other) in [
            (BearerSecretKind::Key, BearerSecretKind::AdminToken),
            (BearerSecretKind::AdminToken, BearerSecretKind::Key),
        ] {
            let secret = BearerSecret::generate(kind).unwrap();
            assert!(BearerSecret::parse(kind, secret.expose().as_bytes()).is_some());
            assert!(BearerSecret::parse(other, secret.expose().as_bytes()).is_none());
        }
    }

    #[test]
    fn debug_shows_the_public_id_alone() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let shown = format!("{secret:?}");
        assert!(shown.contains(secret.public_id().as_str()));
        assert!(!shown.contains(&secret.expose()[PUBLIC_ID_END..]));
        assert_eq!(shown, format!("BearerSecret({}, [redacted])", secret.public_id()));
    }
}
