//! Answers of upstreams: every coding alone and in a row, those that are not what they say, and the memory.

use std::sync::Arc;

use http::HeaderValue;

use super::super::answer_decoder::DecodedStep;
use super::*;

/// [`RED_CUBES`] in the coding `br`, as the reference encoder writes it.
const BROTLI: &[u8] =
    b"\x1b\x35\x00\xf8\x2d\x12\x78\x13\xd6\xab\x8e\x84\x36\x30\xe2\xde\x6b\x10\x91\xb0\x3d\x35\x26\x57\x3a\x7d\x2d\xc2\x22\x46\x26\xcb\x40\xea\x12\x05\x49\x8a\x8a\x05\x6c\x3a\xd2\x39\x12\x01";
const RED_CUBES: &[u8] = br#"{"a":"a red cube, a red cube, a red cube, a red cube"}"#;

/// Writes a text in the coding `br`, uncompressed (RFC 7932, section 9.2).
fn brotli(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (at, block) in text.chunks(1 << 16).enumerate() {
        // The first block follows the bit that states the window.
        let head = (u32::try_from(block.len() - 1).expect("a short block") << 3 | 1 << 19) << u32::from(at == 0);
        encoded.extend_from_slice(&head.to_le_bytes()[..3]);
        encoded.extend_from_slice(block);
    }
    encoded.push(0b11);
    encoded
}

fn headers(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value))).collect()
}

fn deflate(text: &[u8], is_zlib: bool) -> Vec<u8> {
    let level = flate2::Compression::default();
    if is_zlib {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
        encoder.write_all(text).expect("encoded");
        encoder.finish().expect("encoded")
    } else {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(text).expect("encoded");
        encoder.finish().expect("encoded")
    }
}

fn decode_answer(codings: &[&'static str], body: &[u8], chunk_size: usize) -> io::Result<Vec<u8>> {
    let budgets = RequestBudgets::default_for_test();
    let mut decoder = AnswerDecoder::from_headers(&headers(codings), &budgets).expect("known").expect("a coding");
    let (mut chunks, mut output) = (body.chunks(chunk_size), Vec::new());
    loop {
        match decoder.step()? {
            DecodedStep::Data(data) => output.extend_from_slice(&data),
            DecodedStep::End => return Ok(output),
            DecodedStep::NeedsInput => match chunks.next() {
                Some(chunk) => decoder.feed(Bytes::copy_from_slice(chunk)),
                None => decoder.end_source(),
            },
        }
    }
}

#[test]
fn an_answer_is_decoded_whatever_its_codings_and_pieces() {
    let text = text();
    for (codings, body) in [
        (&["gzip"][..], gzip(&text)),
        (&["ZSTD"], zstd(&text)),
        (&["deflate"], deflate(&text, true)),
        (&["deflate"], deflate(&text, false)),
        (&["br"], brotli(&text)),
        (&["gzip, zstd"], zstd(&gzip(&text))),
        (&["br, gzip"], gzip(&brotli(&text))),
        (&["zstd", "identity", "deflate"], deflate(&zstd(&text), true)),
        (&["gzip, gzip, x-gzip"], gzip(&gzip(&gzip(&text)))),
    ] {
        for chunk_size in [1, 7, 4096, usize::MAX] {
            let decoded = decode_answer(codings, &body, chunk_size).expect("a complete body");
            assert!(decoded == text, "{codings:?}, in chunks of {chunk_size}");
        }
        let cut = decode_answer(codings, &body[..body.len() - 9], usize::MAX);
        assert!(cut.is_err(), "{codings:?}");
    }
    for chunk_size in [1, 3, usize::MAX] {
        assert_eq!(decode_answer(&["br"], BROTLI, chunk_size).expect("complete"), RED_CUBES);
    }
    assert!(decode_answer(&["br"], &BROTLI[..8], 1).is_err());
}

#[test]
fn an_answer_without_its_stated_coding_is_plain() {
    for codings in [&["gzip"][..], &["deflate"], &["br"], &["zstd"], &["gzip, br"]] {
        for chunk_size in [1, usize::MAX] {
            assert_eq!(decode_answer(codings, b"{\"a\":1}", chunk_size).expect("plain"), b"{\"a\":1}", "{codings:?}");
        }
        assert_eq!(decode_answer(codings, b"", 1).expect("empty"), b"", "{codings:?}");
    }
    assert_eq!(decode_answer(&["gzip, br"], &gzip(b"{}"), 1).ok(), None, "a gzip body is no plain text");
}

#[test]
fn unknown_codings_and_too_many_are_refused() {
    let budgets = RequestBudgets::default_for_test();
    for known in [&[][..], &["identity"], &["", " , "]] {
        assert!(AnswerDecoder::from_headers(&headers(known), &budgets).is_ok_and(|decoder| decoder.is_none()));
    }
    for unknown in [&["compress"][..], &["gzip, x-unknown"], &["g zip"], &["gzip", "gzip", "gzip, gzip"]] {
        assert!(AnswerDecoder::from_headers(&headers(unknown), &budgets).is_err(), "{unknown:?}");
    }
}

#[test]
fn the_memory_of_the_decoders_of_answers_counts_and_is_never_refused() {
    let budgets = RequestBudgets::with_limits(|limits| limits.memory = 1);
    let decoder = AnswerDecoder::from_headers(&headers(&["br, zstd"]), &budgets).expect("known").expect("a coding");
    assert!(Arc::clone(&budgets).usage().memory > ZSTD_DECODER_BYTES);
    drop(decoder);
    assert_eq!(budgets.usage().memory, 0);
}
