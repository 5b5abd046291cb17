use bytes::Buf as _;
use serde_json::Value;

use super::*;
use crate::gateway::relay::event::MemberScope;

/// The largest size in bytes of a member that is pushed.
const CAPTURED: usize = 128 * 1024;

/// Notes the content: one line for each event, and one line for all bytes of an image.
#[derive(Default)]
struct EventLog {
    lines: Vec<String>,
    image: Vec<u8>,
}

impl RelayEventSink for EventLog {
    fn push(&mut self, event: RelayEvent<'_>) {
        let prefix = |scope| if scope == MemberScope::Item { "item." } else { "" };
        self.lines.push(match event {
            RelayEvent::ItemBegun { event: None } => "item".to_owned(),
            RelayEvent::ItemBegun { event: Some(name) } => format!("event {name}"),
            RelayEvent::Member { scope, name, value } => format!("{}{name}={value}", prefix(scope)),
            RelayEvent::MemberDropped { scope, name } => format!("{}{name}?", prefix(scope)),
            RelayEvent::ImageBytes { base64, .. } => {
                assert!(!base64.is_empty());
                return self.image.extend_from_slice(&base64);
            }
            RelayEvent::ImageEnded { .. } => {
                format!("image {}", String::from_utf8_lossy(&std::mem::take(&mut self.image)))
            }
            RelayEvent::Ended { .. } => "end".to_owned(),
            RelayEvent::FrameEnded { name, content: FrameContent::Object } => format!("frame {name}"),
            RelayEvent::ElementBegun => "element".to_owned(),
            RelayEvent::UnfinishedStatus { .. }
            | RelayEvent::PaddingAbsent { .. }
            | RelayEvent::FrameEnded { .. }
            | RelayEvent::AnswerEnded => return,
        });
    }
}

fn read(body: &str, cut: usize) -> Result<Vec<String>, MalformedAnswer> {
    let (mut decoder, mut log) = (AnswerDecoder::new(AnswerSchema::Images), EventLog::default());
    for piece in body.as_bytes().chunks(cut) {
        let mut piece = Bytes::copy_from_slice(piece);
        while !piece.is_empty() {
            let length = decoder.read(&piece, &mut log)?;
            piece.advance(length);
        }
    }
    decoder.finish()?;
    Ok(log.lines)
}

#[track_caller]
fn check(body: &str, expected: Result<&[&str], MalformedAnswer>) {
    for cut in [1, 2, 3, 7, 4096] {
        let found = read(body, cut);
        let found = found.as_ref().map(|lines| lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found.as_deref().map_err(|error| **error), expected, "cut into {cut}: {body}");
    }
}

#[test]
fn a_usual_answer_is_split_into_its_members() {
    check(
        r#"{"created":1776000000,"data":[{"b64_json":"iVBORw0=","revised_prompt":"a \"red\" } square"}],"usage":{"a":[1,{"b":"}"}]},"x":true}"#,
        Ok(&[
            "created=1776000000",
            "item",
            "image iVBORw0=",
            r#"item.revised_prompt="a \"red\" } square""#,
            "end",
            r#"usage={"a":[1,{"b":"}"}]}"#,
            "x=true",
        ]),
    );
}

#[test]
fn order_white_space_and_number_of_images_do_not_matter() {
    check(
        " { \"usage\" : null ,\n\"data\" : [ { \"b64_json\" : \"AA==\" } , {\"b64_json\":\"BB\\/=\" , \"n\" : -1.5e3 }\t]\r\n} \n",
        Ok(&["usage=null", "item", "image AA==", "end", "item", "image BB/=", "item.n=-1500.0", "end"]),
    );
}

#[test]
fn answers_without_an_image_are_read_to_their_end() {
    check(r#"{"data":[]}"#, Ok(&[]));
    check("{}", Ok(&[]));
    check(r#"{"data":null}"#, Ok(&["data=null"]));
    check(r#"{"data":[null,1]}"#, Ok(&[]));
    check(r#"{"data":[{"b64_json":null}]}"#, Ok(&["item", "item.b64_json=null", "end"]));
    check(r#"{"data":[{"b64_json":""}]}"#, Ok(&["item", "image ", "end"]));
    check(r#"{"data":[{}]}"#, Ok(&["item", "end"]));
}

#[test]
fn an_answer_may_begin_with_a_byte_order_mark() {
    check("\u{feff}{\"data\":[{\"b64_json\":\"AA==\"}]}", Ok(&["item", "image AA==", "end"]));
    check("\u{feff}data: {\"a\":1}\n\n", Ok(&["event ", "item.a=1", "end", "frame "]));
    check("\u{feff}", Err(MalformedAnswer::Json(JsonSyntaxError::Truncated)));
}

#[test]
fn other_json_and_invalid_json_are_refused() {
    check("<html>", Err(MalformedAnswer::Json(JsonSyntaxError::NotAnObject)));
    check("[]", Err(MalformedAnswer::Json(JsonSyntaxError::NotAnObject)));
    check("", Err(MalformedAnswer::Json(JsonSyntaxError::Truncated)));
    check(r#"{"data":[{"b64_json":"AAAA"#, Err(MalformedAnswer::Json(JsonSyntaxError::Truncated)));
    check(r#"{"data":[{"b64_json":"AAAA"}]"#, Err(MalformedAnswer::Json(JsonSyntaxError::Truncated)));
    check(r#"{"data":[{"b64_json":"AAAA"}]}}"#, Err(MalformedAnswer::Json(JsonSyntaxError::Surplus)));
    check(r#"{"a":1,}"#, Err(MalformedAnswer::Json(JsonSyntaxError::Unexpected(b'}'))));
    check(r#"{"data":[{"b64_json":"A"},]}"#, Err(MalformedAnswer::Json(JsonSyntaxError::Unexpected(b']'))));
    check(r#"{"data":[{"b64_json":"A"}}"#, Err(MalformedAnswer::Json(JsonSyntaxError::Unexpected(b'}'))));
    check(r#"{"a" 1}"#, Err(MalformedAnswer::Json(JsonSyntaxError::Unexpected(b'1'))));
    for key in ["data", "error", "type", "usage"] {
        for value in ["nul", "01", r#"{"b":]}"#, r#"{"b":NaN}"#] {
            check(&format!(r#"{{"{key}":{value}}}"#), Err(MalformedAnswer::Json(JsonSyntaxError::Value)));
            check(&format!(r#"{{"data":[{{"{key}":{value}}}]}}"#), Err(MalformedAnswer::Json(JsonSyntaxError::Value)));
        }
    }
    check(r#"{"data":[nul]}"#, Err(MalformedAnswer::Json(JsonSyntaxError::Value)));
}

#[test]
fn a_member_that_is_too_large_is_dropped_and_others_stay() {
    let big = "x".repeat(CAPTURED - 20);
    for (value, is_dropped) in [
        (format!(r#""{big}\"""#), false),
        (format!(r#""{big}\"0123456789abcdefghi""#), true),
        (format!(r#"{{"k":["{big}\"",{{"}}":1}}]}}"#), false),
        (format!(r#"{{"k":["{big}\"",{{"}}]":12345}}]}}"#), true),
    ] {
        let body = format!(r#"{{"big":{value},"small":1}}"#);
        let mut expected = vec![format!("big={value}"), "small=1".to_owned()];
        if is_dropped {
            expected[0] = "big?".to_owned();
        }
        for cut in [1, 7, 4096, CAPTURED * 2] {
            let found = read(&body, cut).expect("JSON");
            assert!(found == expected, "cut into {cut}: {:?}", found[0].get(..80));
        }
    }
}

#[test]
fn members_that_are_dropped_leave_space_for_the_token_counts() {
    let element = format!(r#"{{"b64_json":"AA==","url":"{}"}}"#, "x".repeat(CAPTURED + 20));
    let body = format!(r#"{{"data":[{element},{element},{element}],"usage":{{"a":1}}}}"#);
    for cut in [7, 100, 4096] {
        let found = read(&body, cut).expect("JSON");
        assert_eq!(found.last().map(String::as_str), Some(r#"usage={"a":1}"#), "cut into {cut}");
    }
}

#[test]
fn an_invalid_member_does_not_lose_the_image() {
    let deep = format!("{}{}", "[".repeat(4000), "]".repeat(4000));
    for value in [
        "1e999",
        "NaN",
        "-Infinity",
        r#""\ud800""#,
        r#"{"a":[-1e999,"\udc00"]}"#,
        &deep,
        "nul",
        r#"{"fps":NaN}"#,
        "[1,]",
    ] {
        let body = format!(r#"{{"x":{value},"data":[{{"y":{value},"b64_json":"AAAA","z":1}}],"w":2}}"#);
        check(&body, Ok(&["x?", "item", "item.y?", "image AAAA", "item.z=1", "end", "w=2"]));
    }
}

#[test]
fn the_decoder_agrees_with_serde_json_on_mutated_bodies() {
    let valid = r#"{"created":17,"data":[{"b64_json":"iVBO","revised_prompt":"p"}],"usage":{"n":[1,2]}}"#;
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut body = valid.as_bytes().to_vec();
        // The first byte shows that the body is JSON, so it stays.
        let position = 1 + usize::try_from(seed >> 33).unwrap() % (body.len() - 1);
        body[position] = b"{}[],:\"\\ 0a"[usize::try_from(seed >> 20 & 0xff).unwrap() % 11];
        let body = String::from_utf8(body).unwrap();
        // The decoder also accepts a body in which the value of `created` or `revised_prompt` is invalid.
        let must_be_json = !["17", r#""p""#]
            .iter()
            .any(|value| valid.find(value).is_some_and(|from| (from..from + value.len()).contains(&position)));
        if read(&body, 5).is_ok() {
            let is_json = serde_json::from_str::<Value>(&body).is_ok();
            assert!(is_json || !must_be_json, "accepted although not JSON: {body}");
        } else if let Ok(object) = serde_json::from_str::<serde_json::Map<String, Value>>(&body) {
            // The decoder refused a body that is JSON. The image must then have a character that base64 excludes.
            let image = object["data"][0]["b64_json"].as_str().expect("a body without an image is accepted");
            assert!(image.bytes().any(|byte| b"{}[],: ".contains(&byte)), "refused although JSON: {body}");
        }
    }
}

#[test]
fn every_line_end_and_spacing_is_read() {
    let expected: &[&str] = &["event a.b", "image AA==", "item.n=1", "end", "frame a.b"];
    for end in ["\n", "\r\n", "\r"] {
        for space in ["", " "] {
            let stream =
                format!(": hi{end}event:{space}a.b{end}data:{space}{{\"b64_json\":\"AA==\",\"n\":1}}{end}{end}");
            check(&stream, Ok(expected));
        }
    }
    check("event: a.b\ndata: {\"b64_json\":\"AA==\",\ndata: \"n\":1}\n\n", Ok(expected));
    check("\u{feff}event: a.b\ndata: {\"b64_json\":\"AA==\",\"n\":1}\n\n", Ok(expected));
}

#[test]
fn data_without_an_object_and_other_fields_are_skipped() {
    check("data: [DONE]\n\nid: 7\nretry: 10\ndata\ndata:\n\n: comment\n\n", Ok(&[]));
    check(
        "data: {\"a\":1}\n\ndata: [DONE]\n\ndata: {\"a\":2}\n\n",
        Ok(&["event ", "item.a=1", "end", "frame ", "event ", "item.a=2", "end", "frame "]),
    );
}

#[test]
fn an_incomplete_event_is_an_error() {
    check("data: {\"b64_json\":\"AAAA\n\n", Err(MalformedAnswer::Json(JsonSyntaxError::Truncated)));
    check("data: {\"a\":1}{\n\n", Err(MalformedAnswer::Json(JsonSyntaxError::Surplus)));
}

#[test]
fn a_heartbeat_is_no_progress() {
    let mut decoder = AnswerDecoder::new(AnswerSchema::Images);
    let mut has_progressed = |stream: &str| {
        let mut piece = Bytes::copy_from_slice(stream.as_bytes());
        while !piece.is_empty() {
            let length = decoder.read(&piece, &mut EventLog::default()).unwrap();
            piece.advance(length);
        }
        decoder.take_progress()
    };
    assert!(!has_progressed(": keep-alive\n\nevent: x\n"));
    assert!(has_progressed("data: {}"));
    assert!(!has_progressed("\n\n"));
}

#[test]
fn an_image_is_found_however_its_text_is_written_and_cut() {
    let plain = "iVBORw0KGgo".repeat(200);
    for (text, expected) in [
        (plain.clone(), Ok(plain.clone())),
        (format!("{plain}\\/{plain}\\u002f\\/{plain}"), Ok(format!("{plain}/{plain}//{plain}"))),
        (format!("{plain}\\r\\n{plain}\\n"), Ok(format!("{plain}{plain}"))),
        (format!("data:image/png;base64,{plain}"), Ok(plain.clone())),
        (format!("data:image\\/png;base64,{plain}\\n{plain}"), Ok(format!("{plain}{plain}"))),
        (format!("data{plain}"), Ok(format!("data{plain}"))),
        ("data".to_owned(), Ok("data".to_owned())),
        (format!("data:{plain}"), Err(MalformedAnswer::Base64)),
        (format!("data:image/svg+xml,<{plain}"), Err(MalformedAnswer::Base64)),
        (format!("{plain}\\u0000{plain}"), Err(MalformedAnswer::Base64)),
        (format!("{plain}\t{plain}"), Err(MalformedAnswer::Base64)),
        (format!("{plain}\r{plain}"), Err(MalformedAnswer::Base64)),
        (format!("{plain}\u{e9}{plain}"), Err(MalformedAnswer::Base64)),
        (format!("{plain}\\x{plain}"), Err(MalformedAnswer::Json(JsonSyntaxError::Escape))),
    ] {
        for cut in [1, 2, 3, 63, 64, 65, 255, 256, 257, 700, 4096] {
            let found = read(&format!(r#"{{"data":[{{"b64_json":"{text}","n":1}}]}}"#), cut);
            let padding = |image: &String| ["", "", "==", "="][image.len() % 4];
            let image = expected.clone().map(|image| format!("image {image}{}", padding(&image)));
            let lines = image.map(|image| vec!["item".to_owned(), image, "item.n=1".to_owned(), "end".to_owned()]);
            assert_eq!(found, lines, "cut into {cut}: {text}");
        }
    }
}
