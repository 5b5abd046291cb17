//! Compares the walk with `serde_json`: both must accept the same texts, at every cut of a body into pieces.

use bytes::Bytes;
use serde_json::Value;

use super::*;

/// Returns a body in which these bytes lie across the end of the first piece, `before` of them before it.
fn across(text: &[u8], before: usize) -> SpooledBytes {
    let mut body = vec![b' '; PIECE - before.min(PIECE)];
    body.extend_from_slice(text);
    SpooledBytes::from(Bytes::from(body))
}

fn walked(body: &SpooledBytes) -> Result<JsonType, Error> {
    let mut walk = JsonWalker::new(body);
    let part = walk.skip_value()?;
    walk.finish()?;
    assert_eq!((part.end, walk.peek()?), (part.end.min(body.len()), None));
    Ok(part.json_type)
}

/// Checks that the result is that of `serde_json`, at every cut of the text.
#[track_caller]
fn agrees(text: &[u8]) {
    let judged = serde_json::from_slice::<Value>(text).is_ok();
    for before in (0..=text.len().min(40)).chain([text.len()]) {
        let shown = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
        assert_eq!(walked(&across(text, before)).is_ok(), judged, "{before} bytes before the cut: {shown}");
    }
}

/// Valid JSON, and texts that are nearly JSON.
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
/// Texts in UTF-8, and some that are not.
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
fn what_is_json_is_walked_over_and_nothing_else_is() {
    for text in TEXTS {
        agrees(text.as_bytes());
    }
    for bytes in BYTES {
        agrees(bytes);
    }
}

#[test]
fn it_goes_as_deep_as_others_and_no_deeper() {
    for depth in [100, 126, 127, 128, 129, 1000] {
        agrees(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
        agrees(format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)).as_bytes());
    }
    assert!(walked(&SpooledBytes::from(Bytes::from(vec![b'['; 5_000_000]))).is_err());
}

#[test]
fn a_control_character_is_found_wherever_it_stands() {
    for length in [1, 15, 16, 17, 33, 200] {
        for at in 0..length {
            for (byte, legal) in [(0x00, false), (0x1f, false), (0x20, true), (0x7f, true)] {
                let mut text = vec![b'x'; length + 2];
                (text[0], text[length + 1], text[1 + at]) = (b'"', b'"', byte);
                assert_eq!(
                    walked(&SpooledBytes::from(Bytes::from(text))).is_ok(),
                    legal,
                    "{byte:#04x} at {at} of {length}"
                );
            }
        }
    }
    assert!(!has_control("é\u{1F980}\u{ff}\u{80}".repeat(20).as_bytes()));
}

#[test]
fn a_text_is_heard_as_it_is_meant_across_every_cut() {
    let text = r#""caf\u00e9 \uD83E\uDD80 \/ \"x\" \\ é🦀""#;
    for before in 0..=text.len() {
        let (body, mut heard) = (across(text.as_bytes(), before), String::new());
        let mut walk = JsonWalker::new(&body);
        walk.visit_text(&mut |piece| heard.push_str(piece)).expect("legal");
        assert_eq!(heard, "café 🦀 / \"x\" \\ é🦀", "{before} bytes before the cut");
    }
}

#[test]
fn members_are_kept_as_text_only_while_they_are_small() {
    let long = "x".repeat(CAPTURE_MAX);
    let text = format!(r#"{{"small":[1, 2],"large":"{long}","sm\u0061ll" : {{"b":1}} }}"#);
    let body = SpooledBytes::from(Bytes::from(text));
    let (known, begin) =
        crate::gateway::rules::response::body_members::read_members(&body, &["small", "large"]).expect("legal");
    let (small, large) = (known.get("small").expect("a member"), known.get("large").expect("a member"));
    assert_eq!((begin, small.raw(), large.raw()), (0, Some(&br#"{"b":1}"#[..]), None), "of duplicates the last");
    assert_eq!((small.json_type(), large.json_type()), (JsonType::Object, JsonType::Text));
    assert_eq!(large.span.end - large.span.start, CAPTURE_MAX as u64 + 2);
}

#[test]
fn ten_thousand_damaged_bodies_get_the_same_verdict_as_from_serde_json() {
    const WHOLE: &str =
        r#"{"a":[1, -2.5e3 , true,null,{"b":"c\n\u00e9\ud83e\udd80d"}],"e":{"f":[ [],{} ]} ,"g":"h\"i"}"#;
    const BYTES: &[u8] = b"{}[]\",:\\ \tutfne0-.x\x00\x1f\x80\xc3\xa9\xff/";
    let mut seed = 0x1234_5678_9abc_def0_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).expect("a number") % below
    };
    let mut good = 0;
    for _ in 0..10_000 {
        let mut text = WHOLE.as_bytes().to_vec();
        for _ in 0..=random(2) {
            let (at, byte) = (random(text.len()), BYTES[random(BYTES.len())]);
            match random(3) {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
        }
        let judged = serde_json::from_slice::<Value>(&text).is_ok();
        good += u32::from(judged);
        let found = walked(&SpooledBytes::from(Bytes::from(text.clone())));
        assert_eq!(found.is_ok(), judged, "{}", String::from_utf8_lossy(&text));
    }
    assert!((500..9_500).contains(&good), "{good} of them were whole");
}
