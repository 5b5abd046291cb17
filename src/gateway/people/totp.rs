//! Time-based one-time passwords (RFC 6238), with the parameters that every authenticator app supports: HMAC-SHA-1, six
//! digits, and a new code every 30 seconds. Pure: the time is an argument.
//!
//! This is no crate, because it is a few lines on top of the HMAC that the gateway has already, and the RFC has vectors to
//! test them with.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

/// The length of a secret in bytes, as RFC 4226 recommends it.
pub(super) const SECRET_BYTES: usize = 20;
/// The seconds of one step.
const STEP_SECONDS: i64 = 30;
/// The number of digits of a code.
const DIGITS: usize = 6;
/// The number of steps by which the clock of the app may differ, in both directions.
const CLOCK_STEPS: i64 = 1;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The secret that the gateway and an authenticator app share.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TotpSecret([u8; SECRET_BYTES]);

// === impl TotpSecret ===

impl TotpSecret {
    pub(super) const fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) const fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// Returns the step whose code this is, if it is one of the current ones and later than `last_step`, the step of the
    /// last code that was used: a code works once. Spaces in the code are ignored, because apps show them.
    pub(super) fn matching_step(&self, code: &str, seconds: i64, last_step: Option<i64>) -> Option<i64> {
        let code: String = code.chars().filter(|character| !character.is_whitespace()).collect();
        let current = seconds.div_euclid(STEP_SECONDS);
        let steps = (current - CLOCK_STEPS)..=(current + CLOCK_STEPS);
        // Every step is compared, so that the time does not depend on the code.
        let is_match = |step: &i64| verify_slices_are_equal(self.code(*step).as_bytes(), code.as_bytes()).is_ok();
        let latest_match = steps.filter(is_match).fold(None, |_, step| Some(step));
        latest_match.filter(|step| last_step.is_none_or(|last| *step > last))
    }

    /// Returns the code of a step (RFC 4226, section 5.3).
    pub(super) fn code(&self, step: i64) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let offset = tag.last().map_or(0, |last| usize::from(last & 0x0f));
        let number = tag.iter().skip(offset).take(4).fold(0_u32, |number, byte| (number << 8) | u32::from(*byte));
        let code = (number & 0x7fff_ffff) % 1_000_000;
        format!("{code:0DIGITS$}")
    }

    /// Returns the secret as text, in the form in which people enter it into an app (RFC 4648, base 32).
    pub(super) fn to_base32(&self) -> String {
        base32(&self.0)
    }

    /// Returns the address that an app reads from a QR code. `issuer` and `account` name the entry in the app.
    pub(super) fn to_uri(&self, issuer: &str, account: &str) -> String {
        let encode =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let (issuer, account) = (encode(issuer), encode(account));
        format!(
            "otpauth://totp/{issuer}:{account}?secret={}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period={STEP_SECONDS}",
            self.to_base32()
        )
    }
}

impl fmt::Debug for TotpSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TotpSecret([redacted])")
    }
}

/// Returns bytes in base 32, without padding: five bytes become eight characters.
pub(super) fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(base32_digit(buffer >> bits));
        }
    }
    if bits > 0 {
        text.push(base32_digit(buffer << (5 - bits)));
    }
    text
}

fn base32_digit(value: u32) -> char {
    BASE32.get((value & 31) as usize).map_or('A', |digit| char::from(*digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of the test vectors of RFC 6238, appendix B.
    fn secret_of_the_rfc() -> TotpSecret {
        TotpSecret::new(*b"12345678901234567890")
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        // The RFC has eight digits; the code of six digits is their end.
        for (seconds, code) in [
            (59, "94287082"),
            (1_111_111_109, "07081804"),
            (1_111_111_111, "14050471"),
            (1_234_567_890, "89005924"),
            (2_000_000_000, "69279037"),
            (20_000_000_000, "65353130"),
        ] {
            assert_eq!(secret_of_the_rfc().code(seconds / STEP_SECONDS), code[2..], "{seconds}");
        }
    }

    #[test]
    fn a_code_is_accepted_one_step_early_or_late_and_once() {
        let secret = secret_of_the_rfc();
        let step = 1_234_567_890 / STEP_SECONDS;
        for (difference, is_accepted) in [(-2, false), (-1, true), (0, true), (1, true), (2, false)] {
            let seconds = (step + difference) * STEP_SECONDS;
            assert_eq!(secret.matching_step("005924", seconds, None).is_some(), is_accepted, "{difference}");
        }
        let now = step * STEP_SECONDS;
        assert_eq!(secret.matching_step("005 924", now, Some(step - 1)), Some(step));
        assert_eq!(secret.matching_step("005924", now, Some(step)), None, "a code works once");
        for wrong in ["", "5924", "0059240", "００5924", "89005924", "005925", "-05924"] {
            assert_eq!(secret.matching_step(wrong, now, None), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_are_written_in_base_32() {
        for (bytes, text) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
        let uri = secret_of_the_rfc().to_uri("imagate images.example", "ada & co");
        assert_eq!(
            uri,
            "otpauth://totp/imagate%20images%2Eexample:ada%20%26%20co?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=imagate%20images%2Eexample&algorithm=SHA1&digits=6&period=30"
        );
        assert_eq!(format!("{:?}", secret_of_the_rfc()), "TotpSecret([redacted])");
    }
}
