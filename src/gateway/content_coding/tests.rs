//! Tests of content codings: bodies in chunks of any size, damaged ones, and the memory of decoders.

use super::*;
use crate::gateway::admission::RequestBudgets;

mod answers;

/// A decoder that may have large windows.
fn decoder_of(coding: &str) -> BodyDecoder {
    let memory = RequestBudgets::default_for_test().admit_for_test("usr_a", "key_a").memory();
    let coding = ContentCoding::from_name(coding.as_bytes()).expect("a known coding");
    let mut decoder = BodyDecoder::new(coding, memory).expect("a decoder");
    decoder.allow_large_windows();
    decoder
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).expect("encoded");
    encoder.finish().expect("encoded")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
    // Without a checksum, zstd does not detect damaged content.
    encoder.include_checksum(true).expect("a checksum");
    encoder.write_all(text).expect("encoded");
    encoder.finish().expect("encoded")
}

/// Decodes a body that arrives in chunks of this size; returns the size of the largest decoded chunk, and the whole
/// output.
fn decode(coding: &'static str, encoded: &[u8], chunk_size: usize) -> io::Result<(usize, Vec<u8>)> {
    let mut decoder = decoder_of(coding);
    let (mut largest, mut output) = (0, Vec::new());
    let mut add = |chunk: &Bytes| {
        largest = largest.max(chunk.len());
        output.extend_from_slice(chunk);
    };
    for chunk in encoded.chunks(chunk_size) {
        decoder.feed(Bytes::copy_from_slice(chunk));
        while let Some(chunk) = decoder.next()? {
            add(&chunk);
        }
    }
    decoder.finish()?.iter().for_each(add);
    Ok((largest, output))
}

fn text() -> Vec<u8> {
    (0..300_000_u32).flat_map(|number| (number.wrapping_mul(number) % 977).to_string().into_bytes()).collect()
}

#[test]
fn a_body_is_decoded_in_chunks_of_any_size() {
    let text = text();
    for (coding, encoded) in [("gzip", gzip(&text)), ("ZSTD", zstd(&text)), ("X-Gzip", gzip(&text))] {
        for chunk_size in [1, 7, 4096, usize::MAX] {
            let (_, decoded) = decode(coding, &encoded, chunk_size).expect("a complete body");
            assert!(decoded == text, "{coding}, in chunks of {chunk_size}");
        }
    }
}

#[test]
fn consecutive_members_or_frames_form_one_body() {
    for (coding, encode) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        let parts = [encode(b"{\"a\":"), encode(b""), encode(b"1}")].concat();
        for chunk_size in [1, 5, usize::MAX] {
            assert_eq!(
                decode(coding, &parts, chunk_size).expect("a complete body").1,
                b"{\"a\":1}",
                "{coding}, in chunks of {chunk_size}"
            );
        }
    }
}

#[test]
fn a_body_of_many_almost_empty_parts_is_refused() {
    for (coding, encode) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
        for (content, chunk_size) in [(&b""[..], 1), (b"", 16 * 1024), (b"1", 1), (b"0123456789", 16 * 1024)] {
            let many_parts = encode(content).repeat(5_000);
            let refused = decode(coding, &many_parts, chunk_size).is_err();
            assert!(
                refused,
                "{coding}: {} bytes in {} bytes, in chunks of {chunk_size}",
                content.len(),
                many_parts.len()
            );
        }
        let few_parts = [encode(b"").repeat(16), encode(b"{}")].concat();
        assert_eq!(decode(coding, &few_parts, usize::MAX).expect("a complete body").1, b"{}", "{coding}");
        let text = text();
        let large_parts: Vec<u8> = text.chunks(2048).flat_map(encode).collect();
        assert!(decode(coding, &large_parts, 4096).expect("a complete body").1 == text, "{coding}");
    }
}

#[test]
fn a_decoded_chunk_is_small_whatever_the_expansion_ratio() {
    let zeros = vec![0; 40_000_000];
    for (coding, encoded) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
        let (largest, decoded) = decode(coding, &encoded, usize::MAX).expect("a complete body");
        assert!(decoded.len() == zeros.len() && largest <= 2 * OUTPUT_BUFFER_BYTES, "{coding}: {largest}");
    }
}

#[test]
fn truncated_and_damaged_bodies_are_refused() {
    for (coding, encoded) in [("gzip", gzip(&text())), ("zstd", zstd(&text()))] {
        let mut damaged = encoded.clone();
        damaged[encoded.len() / 2] ^= 0x55;
        let surplus = [&encoded[..], b"surplus"].concat();
        let cases = [
            ("empty", &[][..]),
            ("its first bytes", &encoded[..3]),
            ("a half", &encoded[..encoded.len() / 2]),
            ("all but a byte", &encoded[..encoded.len() - 1]),
            ("damaged", &damaged),
            ("surplus", &surplus),
            ("plain", b"{\"model\":\"gpt-5.5\"}"),
        ];
        for (case, body) in cases {
            assert!(decode(coding, body, 1).is_err(), "{coding}, {case}, byte by byte");
            assert!(decode(coding, body, usize::MAX).is_err(), "{coding}, {case}");
        }
    }
}

fn zstd_with_window(log: u32) -> Bytes {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(log).expect("a window");
    encoder.write_all(b"{}").expect("encoded");
    encoder.finish().expect("encoded").into()
}

#[test]
fn a_zstd_window_above_the_limit_is_refused_in_any_frame() {
    let admission = RequestBudgets::default_for_test().admit_for_test("usr_a", "key_a");
    for (has_large_windows, accepted, refused) in [(false, 20, 21), (true, 23, 24)] {
        for (logs, is_accepted) in [(&[accepted][..], true), (&[10, refused], false), (&[accepted, refused], false)] {
            let mut decoder = BodyDecoder::new(ContentCoding::Zstd, admission.memory()).unwrap();
            if has_large_windows {
                decoder.allow_large_windows();
            }
            decoder.feed(logs.iter().flat_map(|log| zstd_with_window(*log)).collect());
            let error = std::iter::from_fn(|| decoder.next().transpose()).find_map(Result::err);
            let is_window =
                error.as_ref().and_then(io::Error::get_ref).is_some_and(|error| error.is::<WindowTooLarge>());
            assert_eq!((error.is_none(), is_window), (is_accepted, !is_accepted), "{logs:?}");
        }
    }
}

#[test]
fn the_memory_of_a_decoder_is_charged_before_it_is_fed() {
    let budgets = RequestBudgets::with_limits(|limits| limits.memory_per_key = 10 << 20);
    let admission = budgets.admit_for_test("usr_a", "key_a");
    let begin = |coding| {
        let mut decoder = BodyDecoder::new(coding, admission.memory()).unwrap();
        decoder.allow_large_windows();
        decoder
    };
    let mut first = begin(ContentCoding::Zstd);
    assert_eq!(budgets.usage().memory, ZSTD_DECODER_BYTES);
    // One byte of the head after the other: only the whole head states the window.
    for byte in zstd_with_window(23) {
        first.feed(Bytes::copy_from_slice(&[byte]));
        while first.next().unwrap().is_some() {}
    }
    assert_eq!(budgets.usage().memory, ZSTD_DECODER_BYTES + (8 << 20));
    let mut second = begin(ContentCoding::Zstd);
    second.feed(zstd_with_window(23));
    assert_eq!(second.next().unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    drop((first, second));
    let _gzip = begin(ContentCoding::Gzip);
    assert_eq!(budgets.usage().memory, GZIP_DECODER_BYTES);
}
