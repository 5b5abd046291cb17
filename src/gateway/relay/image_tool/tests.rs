//! Tests of images in scripted responses: the bytes that the caller gets, and the outcome.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::gateway::relay::fixtures::{self, PNG_HEAD, broken_body, channel_body, pieces, timeouts};
use crate::gateway::relay::{
    AnswerSummary, AnswerUsage, ProofError, ProvenAnswer, RelayError, RelayOutcome, RequestedAnswer, SpooledImageError,
    TokenCounts, UpstreamRelay, combine_images, spool_image,
};
use crate::gateway::spool::Spool;
use crate::gateway::spool::blocking_io::tests::disk_accesses;
use crate::gateway::upstream::{FailureCause, ReplyBody};

const ERROR: &str = r#"{"type":"error","message":"m"}"#;
const OTHER_PNG_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAAAgAAAAIACAIAAAB7GkOt";

fn requested(stream: bool) -> RequestedAnswer {
    RequestedAnswer { partials: 2 * u32::from(stream), stream, now: 17, ..fixtures::requested_answer() }
}

async fn prove(body: ReplyBody, requested: RequestedAnswer) -> Result<ProvenAnswer, ProofError> {
    fixtures::prove(UpstreamRelay::for_image_tool(body, requested, timeouts())).await
}

fn event(kind: &str, members: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":1{members}}}\n\n")
}

/// Returns the event of an item with an image. The type of the item comes last, as some upstreams send it.
fn item_done(image: &str) -> String {
    let item = format!(
        r#","item":{{"id":"ig_1","quality":"high","result":"{image}","revised_prompt":"r\"p","size":"7x7","status":"completed","type":"image_generation_call"}}"#
    );
    event("response.output_item.done", &item)
}

fn partial_image(image: &str) -> String {
    event("response.image_generation_call.partial_image", &format!(r#","partial_image_b64":"{image}","quality":"low""#))
}

const USAGE: &str = r#""usage":{"input_tokens":30,"output_tokens":50,"total_tokens":80},
    "tool_usage":{"image_gen":{"input_tokens":17,"output_tokens":196,"total_tokens":213}}"#;

fn response_completed(output: &str) -> String {
    let usage = USAGE.replace('\n', "");
    event(
        "response.completed",
        &format!(r#","response":{{"created_at":99,"output":[{output}],"status":"completed",{usage}}}"#),
    )
}

fn image_item(image: &str) -> String {
    format!(r#"{{"result":"{image}","type":"image_generation_call","status":"completed","revised_prompt":"r\"p"}}"#)
}

/// Returns the answer, its outcome and its summary. The answer must be the same for every size of the body's pieces.
async fn relay_in_pieces(body: &str, stream: bool) -> (String, RelayOutcome, AnswerSummary) {
    let mut first_text: Option<String> = None;
    let mut last_result = None;
    for cut in [1, 2, 3, 7, 50, 100_000] {
        let proven = prove(pieces(body, cut), requested(stream)).await.expect("an image");
        let (text, outcome, summary) = read(proven).await;
        let expected = first_text.get_or_insert_with(|| text.clone());
        assert_eq!(*expected, text, "pieces of {cut} bytes");
        last_result = Some((text, outcome, summary));
    }
    last_result.expect("at least one size of pieces")
}

/// Returns the text that the caller gets, empty if the answer breaks off, the outcome and the summary.
async fn read(proven: ProvenAnswer) -> (String, RelayOutcome, AnswerSummary) {
    let (text, outcome, summary) = fixtures::read(proven, || ERROR.to_owned()).await;
    (text.unwrap_or_default(), outcome, summary)
}

#[tokio::test]
async fn the_image_of_a_response_becomes_an_answer_with_the_tokens_of_the_image() {
    let stream_text = [
        event("response.created", r#","response":{"created_at":99,"model":"gpt-5.5-x","output":[],"tools":[{"type":"image_generation","model":"drawer"}]}"#),
        ": comment\n\n".to_owned(),
        partial_image(OTHER_PNG_HEAD),
        item_done(PNG_HEAD),
        event("response.output_text.delta", r#","delta":"Here it is.""#),
        response_completed(&image_item(PNG_HEAD)),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let usage = USAGE.replace('\n', "");
    let plain =
        format!(r#"{{"id":"r","created_at":99,"output":[{{"type":"reasoning"}},{}],{usage}}}"#, image_item(PNG_HEAD));
    let (named, unnamed) = (("drawer", Some("high"), Some("gpt-5.5-x")), ("gpt-image-2", None, None));
    let with_crlf = stream_text.replace('\n', "\r\n");
    for (body, (model, quality, host)) in [(&stream_text, named), (&with_crlf, named), (&plain, unnamed)] {
        let (text, outcome, summary) = relay_in_pieces(body, false).await;
        let mut expected = json!({"data": [{"b64_json": PNG_HEAD, "revised_prompt": "r\"p"}], "created": 99,
            "background": "opaque", "model": model, "output_format": "png",
            "size": "1024x1024", "usage": {"input_tokens": 17, "output_tokens": 196, "total_tokens": 213,
                "input_tokens_details": {"image_tokens": 0, "text_tokens": 17},
                "output_tokens_details": {"image_tokens": 196, "text_tokens": 0}}});
        quality.into_iter().for_each(|quality| expected["quality"] = json!(quality));
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);
        let usage = summary.usage.clone().expect("tokens");
        let output = |tokens: Option<TokenCounts>| tokens.map(|tokens| tokens.output);
        assert_eq!((outcome, usage.total), (RelayOutcome::Complete, 293));
        assert_eq!((output(usage.image), output(usage.host)), (Some(196), Some(50)));
        assert_eq!((summary.delivered.len(), summary.delivered[0].quality.as_deref()), (1, quality));
        let models = (summary.image_model.as_deref(), summary.host_model.as_deref());
        assert_eq!(models, (host.map(|_| model), host));
    }
}

#[tokio::test]
async fn undocumented_members_of_the_image_item_are_passed_on() {
    let large = "x".repeat(60_000);
    let later = format!(
        r#""svg":{{"n":[1]}},"complexity":"high","a":"{large}","b":"{large}","odd":NaN,"user_id":"u","result":"#
    );
    let other = event("response.output_item.done", r#","item":{"type":"reasoning","depth":9}"#);
    let image = item_done(PNG_HEAD).replace(r#""result":"#, &later);
    let copy = response_completed(&image_item(PNG_HEAD).replace(r#""result":"#, r#""complexity":"low","result":"#));
    let in_copy_alone = response_completed(&image_item(PNG_HEAD).replace(r#""result":"#, &later));
    for stream_text in [[other.clone(), image, copy].concat(), [other, in_copy_alone].concat()] {
        for stream in [false, true] {
            let (text, outcome, _) = relay_in_pieces(&stream_text, stream).await;
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
            let json: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(
                (outcome, &json["svg"], &json["complexity"]),
                (RelayOutcome::Complete, &json!({"n": [1]}), &json!("high"))
            );
            let kept = ["a", "b", "odd", "user_id", "depth", "id", "status"].map(|name| json.get(name).is_some());
            assert_eq!(
                kept,
                [true, false, false, false, false, false, false],
                "only members of the image within the size limit are passed on; stream: {stream}"
            );
        }
    }
}

#[tokio::test]
async fn the_first_image_counts_even_if_only_the_response_has_it() {
    let (text, ..) = relay_in_pieces(
        &response_completed(&format!("{},{}", image_item(PNG_HEAD), image_item(OTHER_PNG_HEAD))),
        false,
    )
    .await;
    assert!(text.contains(PNG_HEAD) && !text.contains(OTHER_PNG_HEAD), "{text}");
    let (text, _, summary) =
        relay_in_pieces(&[item_done(PNG_HEAD), item_done(OTHER_PNG_HEAD), response_completed("")].concat(), false)
            .await;
    assert!(text.contains(PNG_HEAD) && !text.contains(OTHER_PNG_HEAD), "{text}");
    assert_eq!(summary.delivered.len(), 1);
}

#[tokio::test]
async fn a_stream_has_the_requested_partial_images_and_one_final_image() {
    let stream_text = [
        partial_image(OTHER_PNG_HEAD),
        partial_image(OTHER_PNG_HEAD),
        partial_image(OTHER_PNG_HEAD),
        item_done(PNG_HEAD),
        response_completed(&image_item(PNG_HEAD)),
    ]
    .concat();
    let (text, outcome, _) = relay_in_pieces(&stream_text, true).await;
    let frames: Vec<&str> = text.trim_end().split("\n\n").collect();
    assert_eq!((frames.len(), outcome), (3, RelayOutcome::Complete), "no more partial images than requested: {text}");
    for (index, frame) in frames[..2].iter().enumerate() {
        let begin = "event: image_generation.partial_image\ndata: {\"b64_json\":";
        assert!(
            frame.starts_with(begin)
                && frame.contains("\",\"type\":\"image_generation.partial_image\",\"")
                && frame.contains(&format!("\"partial_image_index\":{index}")),
            "{frame}"
        );
    }
    assert!(frames[2].starts_with("event: image_generation.completed\n") && frames[2].contains("\"total_tokens\":213"));
}

#[tokio::test]
async fn a_partial_image_after_the_final_image_is_ignored() {
    let stream_text = [
        partial_image(OTHER_PNG_HEAD),
        item_done(PNG_HEAD),
        partial_image(OTHER_PNG_HEAD),
        partial_image(OTHER_PNG_HEAD),
        response_completed(&image_item(PNG_HEAD)),
    ]
    .concat();
    for count in [1, 2] {
        let (text, outcome, summary) =
            relay_in_pieces(&stream_text[partial_image(OTHER_PNG_HEAD).len() * (2 - count)..], true).await;
        let frames: Vec<&str> = text.trim_end().split("\n\n").collect();
        assert_eq!((frames.len(), outcome), (count, RelayOutcome::Complete), "{text}");
        let last = frames[count - 1].split_once("\ndata: ").expect("data").1;
        let last: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(
            (&last["b64_json"], &last["usage"]["total_tokens"], &last["quality"]),
            (&json!(PNG_HEAD), &json!(213), &json!("high"))
        );
        assert_eq!((summary.delivered.len(), summary.usage.as_ref().map(|usage| usage.total)), (1, Some(293)));
    }
    let (text, outcome, summary) = relay_in_pieces(&stream_text, false).await;
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&json["data"][0]["b64_json"], &json["usage"]["total_tokens"]), (&json!(PNG_HEAD), &json!(213)));
    assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::Complete, 1));
    // An intermediate image in the event of a final image is ignored too.
    let with_both =
        item_done(PNG_HEAD).replacen("\"item\":", &format!("\"partial_image_b64\":\"{OTHER_PNG_HEAD}\",\"item\":"), 1);
    let (text, ..) = relay_in_pieces(&[with_both, item_done(PNG_HEAD), response_completed("")].concat(), true).await;
    assert!(text.trim_end().split("\n\n").all(|frame| frame.matches("b64_json").count() == 1), "{text}");
}

/// Returns a body that pauses for this number of seconds between two parts.
fn body_with_pause(first_part: String, seconds: u64, second_part: String) -> ReplyBody {
    let (sender, body) = channel_body();
    let sending = async move {
        sender.send(first_part.into()).await.expect("the body is read");
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let _ = sender.send(second_part.into()).await;
    };
    drop(tokio::runtime::Handle::current().spawn(sending));
    body
}

#[tokio::test(start_paused = true)]
async fn silence_may_be_longer_after_an_image_than_within_it() {
    let full_text = [item_done(PNG_HEAD), response_completed("")].concat();
    let (in_image, image_end) = (item_done("").len() / 2 + 40, item_done(PNG_HEAD).len());
    for (cut, seconds, expected) in [
        (image_end, 100, (RelayOutcome::Complete, Some(293))),
        (image_end - 1, 100, (RelayOutcome::Complete, Some(293))),
        (image_end, 151, (RelayOutcome::Complete, None)),
        (in_image, 59, (RelayOutcome::Complete, Some(293))),
        (in_image, 61, (RelayOutcome::Broken(RelayError::Timeout), None)),
    ] {
        let body = body_with_pause(full_text[..cut].to_owned(), seconds, full_text[cut..].to_owned());
        let (_, outcome, summary) = read(prove(body, requested(false)).await.expect("an image")).await;
        assert_eq!(
            (outcome, summary.usage.as_ref().map(|usage| usage.total)),
            expected,
            "{seconds} s after {cut} bytes"
        );
    }
}

#[tokio::test]
async fn only_white_space_may_follow_the_data_of_an_event() {
    let stream_text =
        [event("response.created", ""), partial_image(OTHER_PNG_HEAD), item_done(PNG_HEAD), response_completed("")]
            .concat();
    for white in ["}  \n\n", "}\t\n\n", "} \ndata:  \ndata:\n\n"] {
        let (text, outcome, summary) = relay_in_pieces(&stream_text.replace("}\n\n", white), false).await;
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((outcome, &json["data"][0]["b64_json"]), (RelayOutcome::Complete, &json!(PNG_HEAD)), "{white:?}");
        assert_eq!(summary.usage.as_ref().map(|usage| usage.total), Some(293), "{white:?}");
    }
    for surplus in ["} x\n\n", "}{}\n\n", "} \ndata: {}\n\n"] {
        let body = pieces(&stream_text.replace("}\n\n", surplus), 5);
        let found = prove(body, requested(false)).await;
        assert!(matches!(found, Err(ProofError::Unusable(FailureCause::NoImage))), "{surplus:?}: {found:?}");
    }
}

#[tokio::test]
async fn a_failure_after_a_complete_image_does_not_revoke_it() {
    let failed = event("response.failed", r#","response":{"error":{"code":"server_error","message":"m"}}"#);
    for suffix in ["", ": comment\n\n", failed.as_str(), "data: {\"type\":]}\n\n", &response_completed("")[..40]] {
        let (text, outcome, _) = relay_in_pieces(&format!("{}{suffix}", item_done(PNG_HEAD)), false).await;
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((outcome, &json["data"][0]["b64_json"]), (RelayOutcome::Complete, &json!(PNG_HEAD)), "{suffix}");
        assert_eq!(json["usage"], Value::Null, "{suffix}");
    }
}

#[tokio::test]
async fn base64_may_contain_an_escaped_slash_white_space_and_letters_for_urls_and_nothing_else() {
    let (text, ..) =
        relay_in_pieces(&[item_done(r"iVBORw0KGgo\/\nAAAA"), response_completed("")].concat(), false).await;
    assert!(text.contains(r#""b64_json":"iVBORw0KGgo/AAAA""#), "{text}");
    let (text, ..) =
        relay_in_pieces(&[item_done(r"iVBO Rw0K\u0020Ggo-_A"), response_completed("")].concat(), false).await;
    assert!(text.contains(r#""b64_json":"iVBORw0KGgo+/A=="#), "{text}");
    for image in ["https://a.example/1.png?x", r"iVBO\u000bRw0K"] {
        for cut in [1, 100_000] {
            let stream_text = [item_done(image), response_completed("")].concat();
            let body = pieces(&stream_text, cut);
            let found = match prove(body, requested(false)).await {
                Ok(proven) => read(proven).await.1,
                Err(ProofError::Unusable(FailureCause::NoImage)) => continue,
                Err(error) => panic!("{image}: {error:?}"),
            };
            assert!(matches!(found, RelayOutcome::Broken(_)), "{image}: {found:?}");
        }
    }
    let tool_call = item_done("QUJD")
        .replace("\"id\":\"ig_1\"", "\"type\":\"mcp_call\"")
        .replace("image_generation_call", "mcp_call");
    let found = prove(pieces(&[tool_call, response_completed("")].concat(), 9), requested(false)).await;
    assert!(matches!(found, Err(ProofError::NoImage(_))), "the result of another item is not an image");
}

/// Returns what was read from a response that ended without an image.
async fn without_image(stream_text: &str, cut: usize) -> AnswerWithoutImage {
    match prove(pieces(stream_text, cut), requested(false)).await {
        Err(ProofError::NoImage(answer)) => *answer,
        result => panic!("{stream_text}: {result:?} instead of an answer without an image"),
    }
}

#[tokio::test]
async fn a_response_without_an_image_states_the_reason() {
    let refusal = r#"{"type":"message","content":[{"type":"refusal","refusal":"I can't."}]}"#;
    let parameter = r#","error":{"code":"invalid_value","param":"tools[0].size","message":"m"}"#;
    for (stream_text, pointer, expected) in [
        (response_completed(refusal), "/output/0/content/0/refusal", json!("I can't.")),
        (event("error", parameter), "/error/param", json!("size")),
        (event("error", r#","error":{"param":"tools[0].type","message":"m"}"#), "/error/param", json!("tools[0].type")),
        (event("response.failed", r#","response":{"error":{"code":"c"}}"#), "/error/code", json!("c")),
        (
            event("response.incomplete", r#","response":{"incomplete_details":{"reason":"content_filter"}}"#),
            "/incomplete_details/reason",
            json!("content_filter"),
        ),
        (r#"{"error":{"code":"c"}}"#.to_owned(), "/error/code", json!("c")),
    ] {
        for cut in [1, 5, 100_000] {
            let answer = without_image(&stream_text, cut).await;
            let members = Value::Object(answer.members);
            assert_eq!(members.pointer(pointer).cloned().unwrap_or_default(), expected, "{members}");
            assert!(!answer.has_image_substitute, "{members}");
        }
    }
    let stream_text = [partial_image(OTHER_PNG_HEAD), response_completed("")].concat();
    let answer = without_image(&stream_text, 9).await;
    assert!(
        answer.has_image_substitute && answer.usage.as_ref().is_some_and(|usage| usage.total == 293),
        "the intermediate image was charged"
    );
    for (stream_text, is_broken) in
        [("", false), (": comment\n\n", false), (&response_completed("")[..30], false), ("data: {}\n\n", true)]
    {
        let body = if is_broken { broken_body(stream_text, 100) } else { pieces(stream_text, 100) };
        let found = prove(body, requested(false)).await;
        let as_expected = matches!(
            (&found, is_broken),
            (Err(ProofError::Unusable(FailureCause::NoImage)), false)
                | (Err(ProofError::Unusable(FailureCause::Broken)), true)
        );
        assert!(as_expected, "{stream_text}: {found:?}");
    }
}

#[tokio::test]
async fn an_image_that_cannot_be_spooled_has_its_tokens_counted() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::new(folder.path()).expect("a spool");
    let long = format!("{PNG_HEAD}{}", "A".repeat(200_000));
    for (end, expected) in [(response_completed(""), Some(293)), (String::new(), None)] {
        let body = pieces(&[item_done(&long), end].concat(), 4096);
        let proven =
            prove(body, RequestedAnswer { is_single_element: true, ..requested(false) }).await.expect("an image");
        let error =
            spool_image(proven, spool.writer_with_room(0).expect("a writer")).await.expect_err("the disk is full");
        let SpooledImageError::Disk(_, usage) = error else { panic!("{error:?}") };
        assert_eq!(usage.map(|usage| usage.total), expected);
    }
}

#[tokio::test]
async fn several_spooled_images_become_one_answer() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::new(folder.path()).expect("a spool");
    let long = format!("{PNG_HEAD}{}", "A".repeat(200_000));
    let mut images = Vec::new();
    for image in [long.as_str(), OTHER_PNG_HEAD] {
        let element = RequestedAnswer { is_single_element: true, ..requested(false) };
        let later = format!(r#""frame_index":{},"quality":"#, images.len());
        let usage = response_completed("").replace(r#""total_tokens":213"#, r#""svg_tokens":7,"total_tokens":213"#);
        let body = pieces(&[item_done(image).replace(r#""quality":"#, &later), usage].concat(), 4096);
        let proven = prove(body, element).await.expect("an image");
        images.push(
            spool_image(proven, spool.create_writer_blocking().expect("a writer")).await.expect("a spooled image"),
        );
    }
    let answer = RequestedAnswer { count: 2, ..requested(false) };
    let undelivered_usage = AnswerUsage::new(
        Some(TokenCounts { input: 5, input_text: 5, total: 5, ..TokenCounts::default() }),
        None,
        crate::gateway::store::AnswerCharges::default(),
    );
    let accesses = disk_accesses();
    let (text, outcome, summary) = read(combine_images(images, answer, undelivered_usage)).await;
    assert_eq!(disk_accesses(), accesses, "no file is read on a thread of the runtime");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let found: Vec<&Value> = json["data"].as_array().expect("images").iter().map(|image| &image["b64_json"]).collect();
    assert!(found == [&json!(long), &json!(OTHER_PNG_HEAD)], "the images are in their order");
    assert_eq!(
        (&json["usage"]["total_tokens"], &json["quality"], &json["created"]),
        (&json!(426), &json!("high"), &json!(99))
    );
    assert_eq!((&json["data"][1]["revised_prompt"], &json["usage"]["svg_tokens"]), (&json!("r\"p"), &json!(14)));
    let indexes = [&json["data"][0]["frame_index"], &json["data"][1]["frame_index"], &json["frame_index"]];
    assert_eq!(indexes, [&json!(0), &json!(1), &Value::Null], "undocumented members stay with their image");
    assert_eq!((outcome, summary.delivered.len()), (RelayOutcome::Complete, 2));
    assert_eq!(
        summary.usage.as_ref().map(|usage| usage.total),
        Some(2 * 293 + 5),
        "the calls without an image are charged too"
    );
}
