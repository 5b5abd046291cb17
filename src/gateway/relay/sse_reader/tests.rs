use super::*;
use serde_json::Value;

use crate::stream::json::JsonSyntaxError;

#[derive(Default)]
struct SseEventLog {
    lines: Vec<String>,
    image: Vec<u8>,
}

impl AnswerSink for SseEventLog {
    fn member(&mut self, key: String, _: Value) {
        panic!("an event has no member {key} outside its item");
    }
    fn announce_event(&mut self, name: Option<String>) {
        self.lines.push(format!("event {}", name.as_deref().unwrap_or("-")));
    }
    fn item_start(&mut self) {}
    fn item_member(&mut self, key: String, value: Value) {
        self.lines.push(format!("{key}={value}"));
    }
    fn image(&mut self, base64: Bytes) {
        self.image.extend_from_slice(&base64);
    }
    fn image_end(&mut self) {
        let image = std::mem::take(&mut self.image);
        self.lines.push(format!("image {}", String::from_utf8_lossy(&image)));
    }
    fn item_end(&mut self) {
        self.lines.push("end".to_owned());
    }
}

#[track_caller]
fn check(stream: &str, expected: Result<&[&str], AnswerSyntaxError>) {
    for cut in [1, 2, 3, 7, 4096] {
        let mut reader = SseAnswerReader::new();
        let mut log = SseEventLog::default();
        let mut pieces = stream.as_bytes().chunks(cut).map(Bytes::copy_from_slice);
        let result = pieces.try_for_each(|piece| reader.push(&piece, &mut log)).and_then(|()| reader.finish());
        let lines: Vec<&str> = log.lines.iter().map(String::as_str).collect();
        assert_eq!(result.map(|()| lines.as_slice()), expected, "cut into {cut}: {stream:?}");
    }
}

#[test]
fn every_line_end_and_spacing_is_read() {
    let expected: &[&str] = &["event a.b", "image AA==", "n=1", "end"];
    for end in ["\n", "\r\n", "\r"] {
        for space in ["", " "] {
            let stream =
                format!(": hi{end}event:{space}a.b{end}data:{space}{{\"b64_json\":\"AA==\",\"n\":1}}{end}{end}");
            check(&stream, Ok(expected));
        }
    }
    check("event: a.b\ndata: {\"b64_json\":\"AA==\",\ndata: \"n\":1}\n\n", Ok(expected));
    check("\u{feff}event: a.b\ndata: {\"b64_json\":\"AA==\",\"n\":1}", Ok(expected));
}

#[test]
fn data_without_an_object_and_other_fields_are_skipped() {
    check("data: [DONE]\n\nid: 7\nretry: 10\ndata\ndata:\n\n: comment\n\n", Ok(&[]));
    check(
        "data: {\"a\":1}\n\ndata: [DONE]\n\ndata: {\"a\":2}\n\n",
        Ok(&["event -", "a=1", "end", "event -", "a=2", "end"]),
    );
}

#[test]
fn an_incomplete_event_is_an_error() {
    check("data: {\"b64_json\":\"AAAA\n\n", Err(AnswerSyntaxError::Json(JsonSyntaxError::Truncated)));
    check("data: {\"b64_json\":\"AAAA", Err(AnswerSyntaxError::Json(JsonSyntaxError::Truncated)));
    check("data: {\"a\":1}{\n\n", Err(AnswerSyntaxError::Json(JsonSyntaxError::Surplus)));
}

#[test]
fn a_heartbeat_is_no_progress() {
    let mut reader = SseAnswerReader::new();
    let mut log = SseEventLog::default();
    reader.push(&Bytes::from_static(b": keep-alive\n\nevent: x\n"), &mut log).unwrap();
    assert!(!reader.take_progress());
    reader.push(&Bytes::from_static(b"data: {}"), &mut log).unwrap();
    assert!(reader.take_progress());
    assert!(!reader.take_progress());
}
