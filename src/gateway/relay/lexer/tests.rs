use super::*;

/// The largest size in bytes of a member that is passed to the sink.
const CAPTURED: usize = 128 * 1024;

/// A sink that notes its calls: one line for each, and one line for all pieces of an image.
#[derive(Default, Debug, PartialEq)]
struct LexerEventLog {
    lines: Vec<String>,
    image: Vec<u8>,
}

impl AnswerSink for LexerEventLog {
    fn member(&mut self, key: String, value: Value) {
        self.lines.push(format!("{key}={value}"));
    }
    fn announce_event(&mut self, name: Option<String>) {
        self.lines.push(format!("event {}", name.as_deref().unwrap_or("-")));
    }
    fn item_start(&mut self) {
        self.lines.push("item".to_owned());
    }
    fn item_member(&mut self, key: String, value: Value) {
        self.lines.push(format!("item.{key}={value}"));
    }
    fn item_member_dropped(&mut self, key: &str) {
        self.lines.push(format!("item.{key}?"));
    }
    fn image(&mut self, base64: Bytes) {
        assert!(!base64.is_empty());
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

fn read(body: &str, cut: usize) -> Result<Vec<String>, AnswerSyntaxError> {
    let mut lexer = AnswerLexer::new();
    let mut log = LexerEventLog::default();
    for piece in body.as_bytes().chunks(cut) {
        lexer.push(&Bytes::copy_from_slice(piece), &mut log)?;
    }
    lexer.finish()?;
    Ok(log.lines)
}

#[track_caller]
fn check(body: &str, expected: Result<&[&str], AnswerSyntaxError>) {
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
fn other_json_and_invalid_json_are_refused() {
    check("<html>", Err(AnswerSyntaxError::Json(JsonSyntaxError::NotAnObject)));
    check("[]", Err(AnswerSyntaxError::Json(JsonSyntaxError::NotAnObject)));
    check("", Err(AnswerSyntaxError::Json(JsonSyntaxError::Truncated)));
    check(r#"{"data":[{"b64_json":"AAAA"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Truncated)));
    check(r#"{"data":[{"b64_json":"AAAA"}]"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Truncated)));
    check(r#"{"data":[{"b64_json":"AAAA"}]}}"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Surplus)));
    check(r#"{"a":1,}"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Unexpected(b'}'))));
    check(r#"{"data":[{"b64_json":"A"},]}"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Unexpected(b']'))));
    check(r#"{"data":[{"b64_json":"A"}}"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Unexpected(b'}'))));
    check(r#"{"a" 1}"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Unexpected(b'1'))));
    for key in ["data", "error", "type", "usage"] {
        for value in ["nul", "01", r#"{"b":]}"#, r#"{"b":NaN}"#] {
            check(&format!(r#"{{"{key}":{value}}}"#), Err(AnswerSyntaxError::Json(JsonSyntaxError::Value)));
            check(
                &format!(r#"{{"data":[{{"{key}":{value}}}]}}"#),
                Err(AnswerSyntaxError::Json(JsonSyntaxError::Value)),
            );
        }
    }
    check(r#"{"data":[nul]}"#, Err(AnswerSyntaxError::Json(JsonSyntaxError::Value)));
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
            expected.remove(0);
        }
        for cut in [1, 7, 4096, CAPTURED * 2] {
            let found = read(&body, cut).expect("JSON");
            assert!(found == expected, "cut into {cut}: {:?}", found[0].get(..80));
        }
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
        check(&body, Ok(&["item", "item.y?", "image AAAA", "item.z=1", "end", "w=2"]));
    }
}

#[test]
fn the_lexer_agrees_with_serde_json_on_mutated_bodies() {
    let valid = r#"{"created":17,"data":[{"b64_json":"iVBO","revised_prompt":"p"}],"usage":{"n":[1,2]}}"#;
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut body = valid.as_bytes().to_vec();
        let position = usize::try_from(seed >> 33).unwrap() % body.len();
        body[position] = b"{}[],:\"\\ 0a"[usize::try_from(seed >> 20 & 0xff).unwrap() % 11];
        let body = String::from_utf8(body).unwrap();
        // The lexer also accepts a body in which the value of `created` or `revised_prompt` is invalid.
        let must_be_json = !["17", r#""p""#]
            .iter()
            .any(|value| valid.find(value).is_some_and(|from| (from..from + value.len()).contains(&position)));
        if read(&body, 5).is_ok() {
            let is_json = serde_json::from_str::<Value>(&body).is_ok();
            assert!(is_json || !must_be_json, "accepted although not JSON: {body}");
        } else if let Ok(object) = serde_json::from_str::<serde_json::Map<String, Value>>(&body) {
            // The lexer refused a body that is JSON. The image must then have a character that base64 excludes.
            let image = object["data"][0]["b64_json"].as_str().expect("a body without an image is accepted");
            assert!(image.bytes().any(|byte| b"{}[],: ".contains(&byte)), "refused although JSON: {body}");
        }
    }
}
