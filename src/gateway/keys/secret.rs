//! The format of an API key: `sk-img-<public id>-<secret><checksum>`. Admin tokens have the same format with `sk-adm-`.
//!
//! The prefix lets scanners find leaked keys. The public id may be shown. The secret has 190 bits of entropy. The
//! checksum lets the gateway refuse a mistyped or invented key without a query.

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

/// A well-formed API key or admin token. It may still be unknown, expired or disabled.
pub(crate) struct BearerSecret([u8; LENGTH]);

impl BearerSecret {
    /// Generates a new secret.
    pub(crate) fn generate(kind: BearerSecretKind) -> Result<Self, StoreError> {
        Self::with_public_id(kind, random_base62()?)
    }

    /// Generates a new API key with this public id.
    pub(super) fn generate_for_public_id(public_id: &PublicId) -> Result<Self, StoreError> {
        let id_bytes = public_id.as_str().as_bytes().try_into();
        let id_bytes = id_bytes.map_err(|_| StoreError::Refused("the public id of a key has another length".into()))?;
        Self::with_public_id(BearerSecretKind::Key, id_bytes)
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

    /// Parses a presented text; `None` if it is not well formed or its checksum is wrong.
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

    /// Returns the complete secret, to be shown once to its owner.
    pub(crate) fn expose(&self) -> &str {
        ascii(&self.0)
    }

    /// Returns the checksum of a text, so that tests can forge keys.
    #[cfg(test)]
    pub(crate) fn checksum_of(text: &str) -> String {
        ascii(&checksum(text.as_bytes())).to_owned()
    }
}

impl Drop for BearerSecret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without this use of the bytes, the compiler may remove the write.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for BearerSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BearerSecret({}, [redacted])", self.public_id())
    }
}

/// Returns bytes of a [`BearerSecret`] as text; they are always ASCII.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Returns the CRC-32 as six base62 digits, so that a scanner can verify a leaked key without the gateway.
fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LENGTH] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut remaining = crc32(bytes) as usize;
    let mut digits = [b'0'; CHECKSUM_LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[remaining % DIGITS.len()];
        remaining /= DIGITS.len();
    }
    digits
}

/// Computes the CRC-32 of IEEE 802.3 without a lookup table, because the input is short.
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
    fn the_checksum_is_the_standard_crc_32() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(checksum(b""), *b"000000");
        // 0xCBF43926 = 3421780262 written in base62 with the digits first.
        assert_eq!(checksum(b"123456789"), *b"3jZRME");
    }

    #[test]
    fn a_new_key_has_the_documented_format() {
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
    fn a_key_with_a_changed_or_missing_character_is_rejected() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let valid = secret.expose().as_bytes();
        for index in 0..valid.len() {
            for byte in [b'0', b'Z', b'-', b' ', 0, 0xff] {
                let mut text = valid.to_vec();
                text[index] = byte;
                assert!(
                    text == valid || BearerSecret::parse(BearerSecretKind::Key, &text).is_none(),
                    "{byte} at {index}"
                );
            }
            assert!(BearerSecret::parse(BearerSecretKind::Key, &valid[..index]).is_none(), "cut at {index}");
        }
        assert!(BearerSecret::parse(BearerSecretKind::Key, &[valid, b"0"].concat()).is_none());
    }

    #[test]
    fn a_malformed_text_with_a_correct_checksum_is_rejected() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let body = &secret.expose()[..CHECKSUM_START];
        for malformed in
            [body.replacen("sk-img-", "sk-xyz-", 1), body.replacen("-", "_", 3), body.replacen("sk", "SK", 1)]
        {
            let forged = format!("{malformed}{}", BearerSecret::checksum_of(&malformed));
            assert!(BearerSecret::parse(BearerSecretKind::Key, forged.as_bytes()).is_none(), "{forged}");
        }
        let mut malformed = body.to_owned();
        malformed.replace_range(PUBLIC_ID_END..=PUBLIC_ID_END, "x");
        let forged = format!("{malformed}{}", BearerSecret::checksum_of(&malformed));
        assert!(BearerSecret::parse(BearerSecretKind::Key, forged.as_bytes()).is_none(), "{forged}");
    }

    #[test]
    fn random_text_in_the_format_of_a_key_fails_the_checksum() {
        for _ in 0..20_000 {
            let characters = random_base62::<50>().unwrap();
            let (public_id, secret_and_checksum) = characters.split_at(PUBLIC_ID_LENGTH);
            assert!(
                BearerSecret::parse(
                    BearerSecretKind::Key,
                    &[BearerSecretKind::Key.prefix(), public_id, b"-", secret_and_checksum].concat()
                )
                .is_none()
            );
        }
    }

    #[test]
    fn keys_and_admin_tokens_are_not_interchangeable() {
        for (kind, other_kind) in [
            (BearerSecretKind::Key, BearerSecretKind::AdminToken),
            (BearerSecretKind::AdminToken, BearerSecretKind::Key),
        ] {
            let secret = BearerSecret::generate(kind).unwrap();
            assert!(BearerSecret::parse(kind, secret.expose().as_bytes()).is_some());
            assert!(BearerSecret::parse(other_kind, secret.expose().as_bytes()).is_none());
        }
    }

    #[test]
    fn the_debug_output_shows_only_the_public_id() {
        let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
        let shown = format!("{secret:?}");
        assert!(shown.contains(secret.public_id().as_str()));
        assert!(!shown.contains(&secret.expose()[PUBLIC_ID_END..]));
        assert_eq!(shown, format!("BearerSecret({}, [redacted])", secret.public_id()));
    }
}
