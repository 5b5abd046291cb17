//! Compares the walker with `serde_json`: both must accept the same texts, wherever a body is cut into pieces.

use bytes::Bytes;
use serde_json::Value;

use super::*;

/// Returns a body whose first piece ends after `before` bytes of the text. White space fills the piece before them.
fn body_across_pieces(text: &[u8], before: usize) -> SpooledBytes {
    let mut body = vec![b' '; PIECE_BYTES - before.min(PIECE_BYTES)];
    body.extend_from_slice(text);
    SpooledBytes::from(Bytes::from(body))
}

fn skip_whole_body(body: &SpooledBytes) -> Result<JsonType, Error> {
    let mut walker = JsonWalker::new(body);
    let span = walker.skip_value()?;
    walker.finish()?;
    assert_eq!((span.end, walker.peek()?), (span.end.min(body.len()), None));
    Ok(span.json_type)
}

/// Checks that the walker accepts the text if, and only if, `serde_json` does, wherever the text is cut into pieces.
#[track_caller]
fn check_like_serde_json(text: &[u8]) {
    let is_valid = serde_json::from_slice::<Value>(text).is_ok();
    for before in (0..=text.len().min(40)).chain([text.len()]) {
        let excerpt = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
        assert_eq!(
            skip_whole_body(&body_across_pieces(text, before)).is_ok(),
            is_valid,
            "{before} bytes before the cut: {excerpt}"
        );
    }
}

/// Valid JSON, and texts that are almost JSON.
const TEXTS: &[&str] = &[
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-0.0",
    "1e2",
    "1E+2",
    "1.5e-3",
    "12345678901234567890123",
    "\"\"",
    " [ 1 , {} ] \n",
    r#"{"a":{"b":[1,2,{"c":null}]},"a":2}"#,
    r#""\"\\\/\b\f\n\r\t\u0041\u00e9\uD83E\uDD80""#,
    "\"caf\u{e9} \u{1F980} \u{7f}\"",
    "",
    " ",
    "{",
    "[",
    "\"",
    "\"a",
    "\"\\",
    "\"\\u00",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "[1",
    "[1,",
    "nul",
    "nulll",
    "tru",
    "truex",
    "01",
    "-",
    "-a",
    "1.",
    ".5",
    "1e",
    "1e+",
    "+1",
    "0x1",
    "00",
    "1 2",
    "{}}",
    "[]]",
    "[,]",
    "[1,]",
    "{,}",
    "{\"a\":1,}",
    "{1:2}",
    "{a:1}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
    "[1 2]",
    "[}",
    "{]",
    "'a'",
    r#""\x""#,
    r#""\u12g4""#,
    r#""\ud800""#,
    r#""\ud800a""#,
    r#""\ud800\n""#,
    r#""\ud800\u0041""#,
    r#""\udc00""#,
    r#""\ud83e\udd8""#,
    "\"\n\"",
    "\"\u{1f}\"",
    "\"a\tb\"",
    "NaN",
    "Infinity",
    "// x\n1",
    "\u{feff}1",
    "\u{a0}1",
];
/// Texts with bytes outside of ASCII: some are valid UTF-8, the others are not.
const BYTES: &[&[u8]] = &[
    b"\"\xff\"",
    b"\"\xc3\"",
    b"\"\xe2\x82\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xf0\x9f\xa6",
    b"\"a\xc3\xa9\"",
    b"\xff",
    b"{\"\xff\":1}",
];

#[test]
fn the_walker_accepts_the_same_texts_as_serde_json() {
    for text in TEXTS {
        check_like_serde_json(text.as_bytes());
    }
    for bytes in BYTES {
        check_like_serde_json(bytes);
    }
}

#[test]
fn the_depth_limit_is_that_of_serde_json() {
    for depth in [100, 126, 127, 128, 129, 1000] {
        check_like_serde_json(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
        check_like_serde_json(format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)).as_bytes());
    }
    assert!(skip_whole_body(&SpooledBytes::from(Bytes::from(vec![b'['; 5_000_000]))).is_err());
}

#[test]
fn a_control_character_is_found_at_every_position() {
    for length in [1, 15, 16, 17, 33, 200] {
        for index in 0..length {
            for (byte, is_legal) in [(0x00, false), (0x1f, false), (0x20, true), (0x7f, true)] {
                let mut text = vec![b'x'; length + 2];
                (text[0], text[length + 1], text[1 + index]) = (b'"', b'"', byte);
                assert_eq!(
                    skip_whole_body(&SpooledBytes::from(Bytes::from(text))).is_ok(),
                    is_legal,
                    "{byte:#04x} at {index} of {length}"
                );
            }
        }
    }
    assert!(!has_control("é\u{1F980}\u{ff}\u{80}".repeat(20).as_bytes()));
}

#[test]
fn a_string_is_decoded_wherever_it_is_cut() {
    let text = r#""caf\u00e9 \uD83E\uDD80 \/ \"x\" \\ é🦀""#;
    for before in 0..=text.len() {
        let (body, mut decoded) = (body_across_pieces(text.as_bytes(), before), String::new());
        let mut walker = JsonWalker::new(&body);
        walker.visit_text(&mut |piece| decoded.push_str(piece)).expect("valid JSON");
        assert_eq!(decoded, "café 🦀 / \"x\" \\ é🦀", "{before} bytes before the cut");
    }
}

#[test]
fn only_small_members_are_captured() {
    let long = "x".repeat(CAPTURE_MAX);
    let text = format!(r#"{{"small":[1, 2],"large":"{long}","sm\u0061ll" : {{"b":1}} }}"#);
    let body = SpooledBytes::from(Bytes::from(text));
    let (known, object_start) =
        crate::gateway::rules::response::body_members::read_members(&body, &["small", "large"]).expect("valid JSON");
    let (small, large) = (known.get("small").expect("a member"), known.get("large").expect("a member"));
    assert_eq!(
        (object_start, small.raw(), large.raw()),
        (0, Some(&br#"{"b":1}"#[..]), None),
        "the last duplicate counts"
    );
    assert_eq!((small.json_type(), large.json_type()), (JsonType::Object, JsonType::Text));
    assert_eq!(large.span.end - large.span.start, CAPTURE_MAX as u64 + 2);
}

#[test]
fn the_walker_agrees_with_serde_json_on_10000_mutated_bodies() {
    const VALID: &str =
        r#"{"a":[1, -2.5e3 , true,null,{"b":"c\n\u00e9\ud83e\udd80d"}],"e":{"f":[ [],{} ]} ,"g":"h\"i"}"#;
    const BYTES: &[u8] = b"{}[]\",:\\ \tutfne0-.x\x00\x1f\x80\xc3\xa9\xff/";
    let mut seed = 0x1234_5678_9abc_def0_u64;
    let mut random = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).expect("a number") % limit
    };
    let mut valid_count = 0;
    for _ in 0..10_000 {
        let mut text = VALID.as_bytes().to_vec();
        for _ in 0..=random(2) {
            let (index, byte) = (random(text.len()), BYTES[random(BYTES.len())]);
            match random(3) {
                0 => text[index] = byte,
                1 => text.insert(index, byte),
                _ => drop(text.remove(index)),
            }
        }
        let is_valid = serde_json::from_slice::<Value>(&text).is_ok();
        valid_count += u32::from(is_valid);
        let result = skip_whole_body(&SpooledBytes::from(Bytes::from(text.clone())));
        assert_eq!(result.is_ok(), is_valid, "{}", String::from_utf8_lossy(&text));
    }
    assert!((500..9_500).contains(&valid_count), "{valid_count} bodies were valid");
}
