//! The head of a zstd frame (RFC 8878, section 3.1.1), which states how much memory its decoder needs.

const MAGIC: u32 = 0xfd2f_b528;

/// Returns the window in bytes that the frame with these first bytes needs; 0 if the decoder skips the frame, or refuses
/// the bytes because they are no frame. Returns `None` if more bytes are needed.
pub(super) fn window_bytes(head: &[u8]) -> Option<u64> {
    let magic = u32::from_le_bytes(*head.first_chunk()?);
    if magic != MAGIC {
        return Some(0);
    }
    let (descriptor, rest) = head[4..].split_first()?;
    let is_single_segment = descriptor & 0x20 != 0;
    if !is_single_segment {
        let byte = *rest.first()?;
        let base = 1_u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * u64::from(byte & 7));
    }
    // Without a window, the content is the window.
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let field = rest.get(dictionary_bytes..dictionary_bytes + size_bytes)?;
    let size = field.iter().rev().fold(0, |size, byte| size << 8 | u64::from(*byte));
    // RFC 8878, section 3.1.1.1.4: a field of two bytes begins at 256.
    Some(size.saturating_add(if size_bytes == 2 { 256 } else { 0 }))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn frame(window_log: u32, content: &[u8], states_size: bool) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.window_log(window_log).expect("a window");
        encoder.include_contentsize(states_size).expect("a parameter");
        if states_size {
            encoder.set_pledged_src_size(Some(content.len() as u64)).expect("a size");
        }
        encoder.write_all(content).expect("encoded");
        encoder.finish().expect("encoded")
    }

    #[test]
    fn the_window_is_that_of_the_encoder() {
        for window_log in [10, 17, 23, 27] {
            assert_eq!(window_bytes(&frame(window_log, &[7; 300_000], false)), Some(1 << window_log));
        }
        for length in [1, 255, 256, 300, 65_791, 65_792, 300_000] {
            let window = window_bytes(&frame(27, &vec![7; length], true)).expect("a window");
            assert!(window >= length as u64 && window <= 2 * length as u64 + 1024, "{length}: {window}");
        }
    }

    #[test]
    fn a_head_that_is_cut_needs_more_bytes() {
        for frame in [frame(20, &[7; 300], false), frame(20, &[7; 300_000], true)] {
            let needed = (0..18).find(|length| window_bytes(&frame[..*length]).is_some());
            assert!(needed.is_some_and(|needed| needed > 5), "{needed:?}");
        }
        assert_eq!(window_bytes(&0x184d_2a50_u32.to_le_bytes()), Some(0), "a frame that decoders skip");
        assert_eq!(window_bytes(b"{\"a\""), Some(0));
    }
}
