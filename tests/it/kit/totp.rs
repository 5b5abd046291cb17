//! An authenticator app: the codes of RFC 6238, from a secret as a page shows it.

use aws_lc_rs::hmac;

/// The code of a secret in base 32 at a time.
#[track_caller]
pub(crate) fn totp_code(secret: &str, unix_seconds: u64) -> String {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let (mut bytes, mut buffer, mut bits) = (Vec::new(), 0_u64, 0);
    for character in secret.chars() {
        buffer = buffer << 5 | digits.find(character).expect("base 32") as u64;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 0xff) as u8);
        }
    }
    let tag =
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &bytes), &(unix_seconds / 30).to_be_bytes());
    let offset = usize::from(tag.as_ref()[19] & 15);
    let number = u32::from_be_bytes(tag.as_ref()[offset..offset + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

#[test]
fn codes_are_those_of_the_rfc() {
    let secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    assert_eq!(totp_code(secret, 59), "287082");
    assert_eq!(totp_code(secret, 1_234_567_890), "005924");
}
