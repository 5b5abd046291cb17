//! The text form of keys: bech32 (BIP 173), as age uses it. Pure.

const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// The length of the checksum, in characters.
const CHECKSUM: usize = 6;

/// Returns the text of 32 bytes with this prefix, which is in lower case.
pub(super) fn encode(prefix: &str, bytes: &[u8; 32]) -> String {
    let mut digits = regroup(bytes, 8, 5).unwrap_or_default();
    let sum = checksum(prefix, [&digits[..], &[0; CHECKSUM]].concat()) ^ 1;
    digits.extend((0..CHECKSUM).map(|place| low_bits(sum >> (5 * (CHECKSUM - 1 - place)), 5)));
    let text: String = digits.iter().map(|digit| char::from(CHARACTERS[usize::from(*digit)])).collect();
    format!("{prefix}1{text}")
}

/// Returns the 32 bytes of a text with this prefix; `None` if it is not exactly the text that [`encode`] returns, in lower
/// or in upper case.
pub(super) fn decode(prefix: &str, text: &str) -> Option<[u8; 32]> {
    let lowercase = text.to_ascii_lowercase();
    if text != lowercase && text != text.to_ascii_uppercase() {
        return None;
    }
    let encoded = lowercase.strip_prefix(prefix)?.strip_prefix('1')?;
    let digit = |character: u8| CHARACTERS.iter().position(|known| *known == character)?.try_into().ok();
    let digits: Vec<u8> = encoded.bytes().map(digit).collect::<Option<_>>()?;
    let data = digits.len().checked_sub(CHECKSUM)?;
    if checksum(prefix, digits.clone()) != 1 {
        return None;
    }
    regroup(&digits[..data], 5, 8)?.try_into().ok()
}

fn checksum(prefix: &str, digits: Vec<u8>) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    high.chain([0]).chain(low).chain(digits).fold(1_u32, |sum, digit| {
        let next = (sum & 0x1ff_ffff) << 5 ^ u32::from(digit);
        (0..5).filter(|bit| sum >> (25 + bit) & 1 == 1).fold(next, |next, bit| next ^ GENERATOR[bit])
    })
}

/// Regroups bits. The last group of a text is filled with zeros; those are dropped, and nothing but zeros is.
fn regroup(groups: &[u8], from: u32, to: u32) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut regrouped) = (0_u32, 0, Vec::new());
    for group in groups {
        bits = bits << from | u32::from(*group);
        count += from;
        while count >= to {
            count -= to;
            regrouped.push(low_bits(bits >> count, to));
        }
        bits &= (1 << count) - 1;
    }
    match (count > 0, from < to) {
        (true, false) => regrouped.push(low_bits(bits << (to - count), to)),
        (true, true) if bits != 0 || count >= from => return None,
        _ => {}
    }
    Some(regrouped)
}

fn low_bits(bits: u32, count: u32) -> u8 {
    let [.., byte] = (bits & ((1 << count) - 1)).to_be_bytes();
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_that_of_other_programs_and_has_one_form() {
        // A key of the specification of age: https://age-encryption.org/v1
        let text = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
        let bytes = decode("age", text).expect("a key");
        assert_eq!(encode("age", &bytes), text);
        assert_eq!(decode("age", &text.to_uppercase()), Some(bytes));
        for changed in
            [&text[..text.len() - 1], &text.replace("zvk", "zvq"), &text.replace("age1z", "age1Z"), "age1", ""]
        {
            assert_eq!(decode("age", changed), None, "{changed}");
        }
        assert_eq!(decode("age-secret-key-", text), None);
    }
}
