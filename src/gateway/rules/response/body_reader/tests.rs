//! Bodies that are cut into pieces at every byte, or that the reader refuses. `tests/fuzz` compares the grammar with
//! `serde_json`.

use bytes::Bytes;

use super::*;
use crate::gateway::rules::response::body_members;

/// Returns a body whose first piece ends after `before` bytes of the text. White space fills the piece before them.
fn body_across_pieces(text: &str, before: usize) -> SpooledBytes {
    let mut body = vec![b' '; PIECE_BYTES - before];
    body.extend_from_slice(text.as_bytes());
    SpooledBytes::from(Bytes::from(body))
}

fn skip_body(body: &SpooledBytes) -> Result<ValueSpan, Error> {
    let (mut reader, value) = BodyReader::over_body(body)?;
    let span = reader.skip(value)?;
    reader.finish().map(|()| span)
}

#[test]
fn a_value_is_skipped_wherever_it_is_cut() {
    let space = PIECE_BYTES as u64;
    for (text, json_type) in [
        (r#"{"a":{"b":[1,2,{"c":null}]},"a":2}"#, JsonType::Object),
        (r#"[ 1 , {} , -2.5E+3, true ,"\ud83e\udd80" ]"#, JsonType::Array),
        (r#""\"\\\/\b\f\n\r\t\u0041\u00e9é🦀""#, JsonType::Text),
        ("false", JsonType::Boolean),
        ("null", JsonType::Null),
        ("-120", JsonType::Integer),
        ("1.5", JsonType::Decimal),
        ("1E2", JsonType::Decimal),
    ] {
        for before in 0..=text.len() {
            let (start, length) = (space - before as u64, text.len() as u64);
            let span = ValueSpan { start, end: start + length, json_type };
            assert_eq!(skip_body(&body_across_pieces(text, before)), Ok(span), "{before} bytes before the cut: {text}");
        }
    }
}

#[test]
fn a_value_that_ends_too_early_is_refused() {
    let text = r#"{"a":[1,{"b":null}],"c":"\u0041"}"#;
    let beginnings = (0..text.len()).map(|end| &text[..end]);
    for text in beginnings.chain(["tru", "-", "1.", "1e+"]) {
        assert!(skip_body(&body_across_pieces(text, text.len() / 2)).is_err(), "{text}");
    }
}

#[test]
fn the_error_names_the_position_of_the_fault() {
    for (text, problem) in [
        ("", "it ends too early, at byte 65536"),
        ("{\"a\" 1}", "unexpected byte 0x31 between values, at byte 65541"),
        ("[1 , nulx]", "a number or word is invalid, at byte 65545"),
        ("{} {}", "it has data after its end, at byte 65538"),
        ("[\"\u{1f}\"]", "a string contains a control character, at byte 65538"),
        (r#"["\ud800"]"#, "a surrogate is escaped without its pair, at byte 65544"),
        (r#"["\x"]"#, "an escape sequence is invalid, at byte 65539"),
    ] {
        let error = skip_body(&body_across_pieces(text, 0)).expect_err(text);
        assert_eq!(error.to_string(), format!("The request body is not valid JSON: {problem}."), "{text}");
    }
    assert!(skip_body(&SpooledBytes::from(Bytes::from(vec![b'['; 5_000_000]))).is_err());
}

#[test]
fn a_string_is_decoded_wherever_it_is_cut() {
    let text = r#""caf\u00e9 \uD83E\uDD80 \/ \"x\" \\ é🦀""#;
    for before in 0..=text.len() {
        let (body, mut decoded) = (body_across_pieces(text, before), String::new());
        let (mut reader, _) = BodyReader::over_body(&body).expect("valid JSON");
        reader.visit_text(|piece| decoded.push_str(piece)).expect("valid JSON");
        assert_eq!(decoded, "café 🦀 / \"x\" \\ é🦀", "{before} bytes before the cut");
    }
}

#[test]
fn only_small_members_are_captured() {
    let long = "x".repeat(CAPTURE_MAX);
    let text = format!(r#"{{"sm\u0061ll" : {{"b":1}} ,"large":"{long}"}}"#);
    let body = SpooledBytes::from(Bytes::from(text));
    let (mut reader, value) = BodyReader::over_body(&body).expect("valid JSON");
    let known = body_members::read_members(&mut reader, value, &["small", "large"]).expect("valid JSON");
    let (small, large) = (known.get("small").expect("a member"), known.get("large").expect("a member"));
    assert_eq!((known.span.start, small.raw(), large.raw()), (0, Some(&br#"{"b":1}"#[..]), None));
    assert_eq!((small.json_type(), large.json_type()), (JsonType::Object, JsonType::Text));
    assert_eq!(large.span.end - large.span.start, CAPTURE_MAX as u64 + 2);
}
