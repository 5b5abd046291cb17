//! Tests of the JSON reader with input that is cut at different places. `tests/fuzz` compares it with `serde_json`.

use serde_json::Value;

use super::*;

const LIMITS: CaptureLimits = CaptureLimits { value: 64 * 1024, total: u64::MAX };

/// Writes down the values and texts that it receives.
#[derive(Default)]
struct VisitLog {
    lines: Vec<String>,
    text: String,
    limit_exceeded: bool,
}

impl JsonVisitor for VisitLog {
    type Error = JsonSyntaxError;

    fn start(&mut self, at: JsonPosition<'_>, _: u8) -> Result<ValueInterest, JsonSyntaxError> {
        Ok(match at.path.rsplit('.').next() {
            Some("image") => ValueInterest::Text,
            Some("usage" | "type" | "list[]" | "?") => ValueInterest::Value,
            Some("other") => ValueInterest::Optional,
            Some("scalar") => ValueInterest::Scalar,
            _ => ValueInterest::Skip,
        })
    }

    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), JsonSyntaxError> {
        let value = value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let key = if at.path.ends_with('?') { at.key } else { "" };
        self.lines.push(format!("{}{key}={value}", at.path));
        Ok(())
    }

    fn text(&mut self, _: JsonPosition<'_>, text: &[u8]) -> Result<(), JsonSyntaxError> {
        assert!(!text.is_empty());
        self.text.push_str(str::from_utf8(text).expect("text"));
        Ok(())
    }

    fn escaped(&mut self, _: JsonPosition<'_>, unit: u16) -> Result<(), JsonSyntaxError> {
        self.text.push_str(&format!("<{unit:x}>"));
        Ok(())
    }

    fn text_end(&mut self, at: JsonPosition<'_>) -> Result<(), JsonSyntaxError> {
        self.lines.push(format!("{}:{}", at.path, std::mem::take(&mut self.text)));
        Ok(())
    }

    fn exceeded(&mut self) -> Result<(), JsonSyntaxError> {
        self.limit_exceeded = true;
        Ok(())
    }
}

fn read(text: &str, cut: usize) -> Result<Vec<String>, JsonSyntaxError> {
    let (mut reader, mut log) = (JsonReader::new("", LIMITS), VisitLog::default());
    text.as_bytes().chunks(cut).try_for_each(|piece| reader.push_last(piece, &mut log))?;
    reader.finish().map(|()| log.lines)
}

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    for cut in [1, 2, 3, 7, 4096] {
        assert_eq!(read(text, cut).expect(text), expected, "cut into {cut}: {text}");
    }
}

#[test]
fn a_wanted_value_is_found_by_its_path() {
    check(
        r#"{"type":"a","x":{"type":"b","usage":{"n":[1,{"type":"no"}]}}}"#,
        &["type=\"a\"", "x.type=\"b\"", "x.usage={\"n\":[1,{\"type\":\"no\"}]}"],
    );
    check(
        r#"{"out":[{"image":"AAAA","type":1},null,[{"image":"BB\/B"}],{"image":null}],"z":-1.5e3}"#,
        &["out[].image:AAAA", "out[].type=1", "out[][].image:BB<2f>B"],
    );
    check(
        r#"{ "list" : [ 1 , "a]}" , {"b":"\"}"} ] , "usage" : null }"#,
        &["list[]=1", "list[]=\"a]}\"", r#"list[]={"b":"\"}"}"#, "usage=null"],
    );
    check(r#"{"a\"type":1,"q":{"":{"type":2}},"e":{},"f":[],"usage":[]}"#, &["q..type=2", "usage=[]"]);
}

#[test]
fn a_key_is_decoded_and_cannot_pretend_to_be_a_path() {
    check(r#"{"t\u0079pe":1,"x":{"a.type":2,"list[]":3}}"#, &["type=1", "x.?a.type=2", "x.?list[]=3"]);
    for key in ["\\ud800", "\u{1}", "\\q"] {
        assert!(read(&format!(r#"{{"{key}":1}}"#), 2).is_err(), "{key}");
    }
    check(&format!(r#"{{"{}":1,"type":2}}"#, "k".repeat(tokenizer::KEY_MAX * 2)), &["type=2"]);
}

#[test]
fn an_escape_of_a_wanted_text_is_decoded() {
    check(r#"{"image":"a\u0041\n\"\\\/\b\f\r\t\ud83d"}"#, &["image:a<41><a><22><5c><2f><8><c><d><9><d83d>"]);
    for escape in ["\\x", "\\u12g4", "\\u\""] {
        assert_eq!(read(&format!(r#"{{"image":"{escape}"}}"#), 1), Err(JsonSyntaxError::Escape), "{escape}");
    }
}

#[test]
fn a_text_that_is_not_wanted_is_not_checked() {
    check(
        "{\"x\":\"\\q\\ud800\u{1}\",\"other\":\"\\q\",\"a\":{\"b\":[[[[[[{\"\\q\":[}}]]]]]]},\"type\":1}",
        &["other=-", "type=1"],
    );
}

#[test]
fn a_control_character_is_found_at_every_position() {
    for length in [1, 15, 16, 17, 33, 200] {
        for (index, byte) in (0..length).flat_map(|index| [0x00, 0x1f, 0x20, 0x7f].map(|byte| (index, byte))) {
            let mut text = vec![b'x'; length];
            text[index] = byte;
            let decoded = TextDecoder::default().push(&text, |_| {});
            assert_eq!(decoded.is_ok(), byte >= 0x20, "{byte:#04x} at {index} of {length}");
        }
    }
    assert_eq!(TextDecoder::default().push("é\u{1F980}\u{ff}\u{80}".repeat(20).as_bytes(), |_| {}), Ok(()));
}

#[test]
fn of_a_scalar_interest_an_object_is_checked_and_not_kept() {
    check(
        r#"{"scalar":{"a":[1]},"x":{"scalar":[[1]]},"y":{"scalar":"s"}}"#,
        &["scalar={}", "x.scalar=[]", "y.scalar=\"s\""],
    );
    assert!(read(r#"{"scalar":{"a":[1,]}}"#, 3).is_err());
}

#[test]
fn a_deep_value_has_no_path_and_a_large_one_is_not_kept() {
    check(r#"{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"type":1}}}}}}},"type":2}"#, &["type=2"]);
    let large = format!(r#"{{"usage":"{}","type":1}}"#, "x".repeat(64 * 1024));
    check(&large, &["usage=-", "type=1"]);
    let deep = format!(r#"{{"a":{}1{},"type":1}}"#, "[".repeat(4000), "]".repeat(4000));
    check(&deep, &["type=1"]);
}

#[test]
fn the_limit_of_all_values_is_reported_once_for_each_value_beyond_it() {
    let (mut reader, mut log) = (JsonReader::new("", CaptureLimits { value: 5, total: 8 }), VisitLog::default());
    reader.push(br#"{"type":"abc","x":{"type":"d","#, &mut log).expect("so far");
    assert!(!log.limit_exceeded);
    reader.push(br#""usage":1}}"#, &mut log).expect("an object");
    assert!(log.limit_exceeded && reader.is_done());
    assert_eq!(
        (log.lines, reader.captured_total()),
        (vec!["type=\"abc\"".into(), "x.type=\"d\"".into(), "x.usage=-".into()], 8)
    );
}

#[test]
fn an_unreadable_optional_value_is_left_out() {
    for value in ["NaN", "1e999", "{\"a\":NaN}", "\"\\ud800\"", "-", "{]", "nul"] {
        check(&format!(r#"{{"other":{value},"type":1}}"#), &["other=-", "type=1"]);
    }
    check(r#"{"other":{"a":[1]},"usage":1e999,"type":NaN}"#, &[r#"other={"a":[1]}"#, "usage=-", "type=-"]);
}

#[test]
fn a_text_that_is_not_a_json_object_is_refused() {
    for text in [
        "[]",
        "1",
        r#"{"a":1,}"#,
        r#"{"a" 1}"#,
        r#"{"a":1]"#,
        r#"{"a":[1}"#,
        r#"{,}"#,
        r#"{"a":}"#,
        "{}x",
        r#"{"usage":tru}"#,
        r#"{"a":"b"#,
        "",
    ] {
        assert!(read(text, 1).is_err(), "{text}");
    }
}

#[test]
fn an_object_that_ends_within_a_wanted_text_can_be_completed() {
    let mut reader = JsonReader::new("", LIMITS);
    let begun = r#"{"type":"t","out":[1,{"image":"AAAA"#;
    reader.push(begun.as_bytes(), &mut VisitLog::default()).expect("so far");
    let whole = format!("{begun}{}}}", reader.closing_text().expect("in a wanted text"));
    assert!(serde_json::from_str::<Value>(&whole).is_ok(), "{whole}");
    let mut reader = JsonReader::new("", LIMITS);
    reader.push(br#"{"type":"t"#, &mut VisitLog::default()).expect("so far");
    assert_eq!(reader.closing_text(), None);
}
