//! Tests of images in scripted responses: the bytes that go out, and the outcome.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::gateway::relay::image_relay::{AnswerWithoutImage, RelayError};
use crate::gateway::relay::{
    AnswerSummary, AnswerTimeouts, AnswerUsage, ProofError, ProvenAnswer, RelayBody, RelayOutcome, RequestedAnswer,
    SpooledImageError, TokenCounts, combine_images, prove_image_tool, spool_image,
};
use crate::gateway::spool::Spool;
use crate::gateway::spool::blocking_io::tests::disk_accesses;
use crate::gateway::upstream::{ReplyBody, ReplyError};

const ERROR: &str = r#"{"type":"error","message":"m"}"#;
const PNG_HEAD: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zU";
const OTHER: &str = "iVBORw0KGgoAAAANSUhEUgAAAgAAAAIACAIAAAB7GkOt";

fn asked(stream: bool) -> RequestedAnswer {
    RequestedAnswer {
        model: "gpt-image-2".to_owned(),
        prompt: "a red square".to_owned(),
        count: 1,
        partials: 2 * u32::from(stream),
        event_prefix: "image_generation",
        stream,
        is_single_element: false,
        quality: None,
        size: Some("1024x1024".to_owned()),
        output_format: "png",
        now: 17,
    }
}

fn limits() -> AnswerTimeouts {
    let seconds = Duration::from_secs;
    AnswerTimeouts { idle: seconds(60), event_idle: seconds(150), deadline: Instant::now() + seconds(360) }
}

fn pieces(body: &str, cut: usize) -> ReplyBody {
    ReplyBody::Scripted(body.as_bytes().chunks(cut).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect())
}

fn event(kind: &str, members: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":1{members}}}\n\n")
}

/// Returns the event of an image, with its type after it, as some upstreams send it.
fn done(image: &str) -> String {
    let item = format!(
        r#","item":{{"id":"ig_1","quality":"high","result":"{image}","revised_prompt":"r\"p","size":"7x7","status":"completed","type":"image_generation_call"}}"#
    );
    event("response.output_item.done", &item)
}

fn partial(image: &str) -> String {
    event("response.image_generation_call.partial_image", &format!(r#","partial_image_b64":"{image}","quality":"low""#))
}

const USAGE: &str = r#""usage":{"input_tokens":30,"output_tokens":50,"total_tokens":80},
    "tool_usage":{"image_gen":{"input_tokens":17,"output_tokens":196,"total_tokens":213}}"#;

fn completed(output: &str) -> String {
    let usage = USAGE.replace('\n', "");
    event(
        "response.completed",
        &format!(r#","response":{{"created_at":99,"output":[{output}],"status":"completed",{usage}}}"#),
    )
}

fn item(image: &str) -> String {
    format!(r#"{{"result":"{image}","type":"image_generation_call","status":"completed","revised_prompt":"r\"p"}}"#)
}

/// Returns the answer, which must be the same at every cut of the body, and its outcome.
async fn told(body: &str, stream: bool) -> (String, RelayOutcome, AnswerSummary) {
    let mut seen: Option<String> = None;
    let mut last = None;
    for cut in [1, 2, 3, 7, 50, 100_000] {
        let proven = prove_image_tool(pieces(body, cut), asked(stream), limits()).await.expect("an image");
        let (text, ending, summary) = read(proven).await;
        assert!(seen.as_ref().is_none_or(|seen| *seen == text), "cut into {cut}: {text}");
        seen = Some(text.clone());
        last = Some((text, ending, summary));
    }
    last.expect("several cuts")
}

async fn read(proven: ProvenAnswer) -> (String, RelayOutcome, AnswerSummary) {
    let told = Arc::new(Mutex::new(None));
    let to = Arc::clone(&told);
    let on_end = Box::new(move |ending, summary| {
        *to.lock().unwrap() = Some((ending, summary));
        Box::pin(std::future::ready(())) as crate::gateway::relay::ClosingFuture
    });
    let body = RelayBody::new(proven, ERROR.to_owned(), on_end);
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (ending, summary) = told.lock().unwrap().take().expect("told");
    (String::from_utf8(bytes.to_vec()).expect("text"), ending, summary)
}

#[tokio::test]
async fn the_image_of_a_response_becomes_an_answer_with_the_tokens_of_the_image() {
    let story = [
        event("response.created", r#","response":{"created_at":99,"model":"gpt-5.5-x","output":[],"tools":[{"type":"image_generation","model":"drawer"}]}"#),
        ": comment\n\n".to_owned(),
        partial(OTHER),
        done(PNG_HEAD),
        event("response.output_text.delta", r#","delta":"Here it is.""#),
        completed(&item(PNG_HEAD)),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let usage = USAGE.replace('\n', "");
    let plain = format!(r#"{{"id":"r","created_at":99,"output":[{{"type":"reasoning"}},{}],{usage}}}"#, item(PNG_HEAD));
    let (named, silent) = (("drawer", Some("high"), Some("gpt-5.5-x")), ("gpt-image-2", None, None));
    let lines = story.replace('\n', "\r\n");
    for (body, (model, quality, host)) in [(&story, named), (&lines, named), (&plain, silent)] {
        let (text, ending, summary) = told(body, false).await;
        let mut expected = json!({"data": [{"b64_json": PNG_HEAD, "revised_prompt": "r\"p"}], "created": 99,
            "background": "opaque", "model": model, "output_format": "png",
            "size": "1024x1024", "usage": {"input_tokens": 17, "output_tokens": 196, "total_tokens": 213,
                "input_tokens_details": {"image_tokens": 0, "text_tokens": 17},
                "output_tokens_details": {"image_tokens": 196, "text_tokens": 0}}});
        quality.into_iter().for_each(|quality| expected["quality"] = json!(quality));
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), expected);
        let counted = summary.usage.expect("tokens");
        let output = |tokens: Option<TokenCounts>| tokens.map(|tokens| tokens.output);
        assert_eq!((ending, counted.total), (RelayOutcome::Complete, 293));
        assert_eq!((output(counted.image), output(counted.host)), (Some(196), Some(50)));
        assert_eq!((summary.delivered.len(), summary.delivered[0].quality.as_deref()), (1, quality));
        let models = (summary.image_model.as_deref(), summary.host_model.as_deref());
        assert_eq!(models, (host.map(|_| model), host));
    }
}

#[tokio::test]
async fn members_of_the_item_that_no_document_has_pass_and_those_of_other_items_do_not() {
    let large = "x".repeat(60_000);
    let later = format!(
        r#""svg":{{"n":[1]}},"complexity":"high","a":"{large}","b":"{large}","odd":NaN,"user_id":"u","result":"#
    );
    let other = event("response.output_item.done", r#","item":{"type":"reasoning","depth":9}"#);
    let image = done(PNG_HEAD).replace(r#""result":"#, &later);
    let copy = completed(&item(PNG_HEAD).replace(r#""result":"#, r#""complexity":"low","result":"#));
    let in_copy_alone = completed(&item(PNG_HEAD).replace(r#""result":"#, &later));
    for story in [[other.clone(), image, copy].concat(), [other, in_copy_alone].concat()] {
        for stream in [false, true] {
            let (text, ending, _) = told(&story, stream).await;
            let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
            let json: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(
                (ending, &json["svg"], &json["complexity"]),
                (RelayOutcome::Complete, &json!({"n": [1]}), &json!("high"))
            );
            let kept = ["a", "b", "odd", "user_id", "depth", "id", "status"].map(|name| json.get(name).is_some());
            assert_eq!(kept, [true, false, false, false, false, false, false], "so much is kept: {stream}");
        }
    }
}

#[tokio::test]
async fn an_image_that_stands_only_at_the_end_is_found_there_and_only_the_first_counts() {
    let (text, ..) = told(&completed(&format!("{},{}", item(PNG_HEAD), item(OTHER))), false).await;
    assert!(text.contains(PNG_HEAD) && !text.contains(OTHER), "{text}");
    let (text, _, summary) = told(&[done(PNG_HEAD), done(OTHER), completed("")].concat(), false).await;
    assert!(text.contains(PNG_HEAD) && !text.contains(OTHER), "{text}");
    assert_eq!(summary.delivered.len(), 1);
}

#[tokio::test]
async fn a_stream_has_its_partial_images_and_one_final_one() {
    let story = [partial(OTHER), partial(OTHER), partial(OTHER), done(PNG_HEAD), completed(&item(PNG_HEAD))].concat();
    let (text, ending, _) = told(&story, true).await;
    let frames: Vec<&str> = text.trim_end().split("\n\n").collect();
    assert_eq!((frames.len(), ending), (3, RelayOutcome::Complete), "no more than were asked for: {text}");
    for (index, frame) in frames[..2].iter().enumerate() {
        let begin =
            "event: image_generation.partial_image\ndata: {\"type\":\"image_generation.partial_image\",\"b64_json\":";
        assert!(frame.starts_with(begin) && frame.contains(&format!("\"partial_image_index\":{index}")), "{frame}");
    }
    assert!(frames[2].starts_with("event: image_generation.completed\n") && frames[2].contains("\"total_tokens\":213"));
}

#[tokio::test]
async fn a_partial_image_of_a_later_call_touches_nothing() {
    let story = [partial(OTHER), done(PNG_HEAD), partial(OTHER), partial(OTHER), completed(&item(PNG_HEAD))].concat();
    for count in [1, 2] {
        let (text, ending, summary) = told(&story[partial(OTHER).len() * (2 - count)..], true).await;
        let frames: Vec<&str> = text.trim_end().split("\n\n").collect();
        assert_eq!((frames.len(), ending), (count, RelayOutcome::Complete), "{text}");
        let last = frames[count - 1].split_once("\ndata: ").expect("data").1;
        let last: Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(
            (&last["b64_json"], &last["usage"]["total_tokens"], &last["quality"]),
            (&json!(PNG_HEAD), &json!(213), &json!("high"))
        );
        assert_eq!((summary.delivered.len(), summary.usage.map(|usage| usage.total)), (1, Some(293)));
    }
    let (text, ending, summary) = told(&story, false).await;
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&json["data"][0]["b64_json"], &json["usage"]["total_tokens"]), (&json!(PNG_HEAD), &json!(213)));
    assert_eq!((ending, summary.delivered.len()), (RelayOutcome::Complete, 1));
    // In one event with a final image it does not count either.
    let both = done(PNG_HEAD).replacen("\"item\":", &format!("\"partial_image_b64\":\"{OTHER}\",\"item\":"), 1);
    let (text, ..) = told(&[both, done(PNG_HEAD), completed("")].concat(), true).await;
    assert!(text.trim_end().split("\n\n").all(|frame| frame.matches("b64_json").count() == 1), "{text}");
}

/// Returns a body that pauses for this number of seconds.
fn pausing(before: String, seconds: u64, behind: String) -> ReplyBody {
    let (sender, body) = tokio::sync::mpsc::channel(4);
    let told = async move {
        sender.send(before.into()).await.expect("somebody reads");
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let _ = sender.send(behind.into()).await;
    };
    drop(tokio::runtime::Handle::current().spawn(told));
    ReplyBody::Channel(body)
}

#[tokio::test(start_paused = true)]
async fn a_text_behind_the_image_may_take_its_time_and_the_image_may_not() {
    let whole = [done(PNG_HEAD), completed("")].concat();
    let (half, end) = (done("").len() / 2 + 40, done(PNG_HEAD).len());
    for (cut, seconds, expected) in [
        (end, 100, (RelayOutcome::Complete, Some(293))),
        (end - 1, 100, (RelayOutcome::Complete, Some(293))),
        (end, 151, (RelayOutcome::Complete, None)),
        (half, 59, (RelayOutcome::Complete, Some(293))),
        (half, 61, (RelayOutcome::Broken(RelayError::Timeout), None)),
    ] {
        let body = pausing(whole[..cut].to_owned(), seconds, whole[cut..].to_owned());
        let (_, ending, summary) = read(prove_image_tool(body, asked(false), limits()).await.expect("an image")).await;
        assert_eq!((ending, summary.usage.map(|usage| usage.total)), expected, "{seconds} s behind {cut} bytes");
    }
}

#[tokio::test]
async fn white_space_behind_the_data_of_an_event_is_nothing() {
    let story = [event("response.created", ""), partial(OTHER), done(PNG_HEAD), completed("")].concat();
    for white in ["}  \n\n", "}\t\n\n", "} \ndata:  \ndata:\n\n"] {
        let (text, ending, summary) = told(&story.replace("}\n\n", white), false).await;
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((ending, &json["data"][0]["b64_json"]), (RelayOutcome::Complete, &json!(PNG_HEAD)), "{white:?}");
        assert_eq!(summary.usage.map(|usage| usage.total), Some(293), "{white:?}");
    }
    for surplus in ["} x\n\n", "}{}\n\n", "} \ndata: {}\n\n"] {
        let body = pieces(&story.replace("}\n\n", surplus), 5);
        let found = prove_image_tool(body, asked(false), limits()).await;
        assert!(matches!(found, Err(ProofError::Malformed)), "{surplus:?}: {found:?}");
    }
}

#[tokio::test]
async fn what_breaks_behind_a_whole_image_takes_nothing_back() {
    let failed = event("response.failed", r#","response":{"error":{"code":"server_error","message":"m"}}"#);
    for behind in ["", ": comment\n\n", failed.as_str(), "data: {\"type\":]}\n\n", &completed("")[..40]] {
        let (text, ending, _) = told(&format!("{}{behind}", done(PNG_HEAD)), false).await;
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((ending, &json["data"][0]["b64_json"]), (RelayOutcome::Complete, &json!(PNG_HEAD)), "{behind}");
        assert_eq!(json["usage"], Value::Null, "{behind}");
    }
}

#[tokio::test]
async fn a_slash_may_be_escaped_and_nothing_else_is_an_image() {
    let (text, ..) = told(&[done(r"iVBORw0KGgo\/AAAA"), completed("")].concat(), false).await;
    assert!(text.contains(r#""b64_json":"iVBORw0KGgo/AAAA""#), "{text}");
    for image in ["https://a.example/1.png?x", r"iVBO\u0020", "iVBO Rw0K", "iVBO\\nRw0K"] {
        for cut in [1, 100_000] {
            let story = [done(image), completed("")].concat();
            let body = pieces(&story, cut);
            let found = match prove_image_tool(body, asked(false), limits()).await {
                Ok(proven) => read(proven).await.1,
                Err(ProofError::Malformed) => continue,
                Err(other) => panic!("{image}: {other:?}"),
            };
            assert!(matches!(found, RelayOutcome::Broken(_)), "{image}: {found:?}");
        }
    }
    let foreign =
        done("QUJD").replace("\"id\":\"ig_1\"", "\"type\":\"mcp_call\"").replace("image_generation_call", "mcp_call");
    let found = prove_image_tool(pieces(&[foreign, completed("")].concat(), 9), asked(false), limits()).await;
    assert!(matches!(found, Err(ProofError::NoImage(_))), "another item's result is no image");
}

/// Returns the content of a whole response without an image.
async fn without_image(story: &str, cut: usize) -> AnswerWithoutImage {
    match prove_image_tool(pieces(story, cut), asked(false), limits()).await {
        Err(ProofError::NoImage(without)) => without,
        other => panic!("{story}: it says why, but {other:?}"),
    }
}

#[tokio::test]
async fn a_response_without_an_image_says_why() {
    let refusal = r#"{"type":"message","content":[{"type":"refusal","refusal":"I can't."}]}"#;
    let parameter = r#","error":{"code":"invalid_value","param":"tools[0].size","message":"m"}"#;
    for (story, pointer, expected) in [
        (completed(refusal), "/output/0/content/0/refusal", json!("I can't.")),
        (event("error", parameter), "/error/param", json!("size")),
        (event("error", r#","error":{"param":"model","message":"m"}"#), "/error/param", Value::Null),
        (event("response.failed", r#","response":{"error":{"code":"c"}}"#), "/error/code", json!("c")),
        (
            event("response.incomplete", r#","response":{"incomplete_details":{"reason":"content_filter"}}"#),
            "/incomplete_details/reason",
            json!("content_filter"),
        ),
        (r#"{"error":{"code":"c"}}"#.to_owned(), "/error/code", json!("c")),
    ] {
        for cut in [1, 5, 100_000] {
            let without = without_image(&story, cut).await;
            let said = Value::Object(without.members);
            assert_eq!(said.pointer(pointer).cloned().unwrap_or_default(), expected, "{said}");
            assert!(!without.has_image_substitute, "{said}");
        }
    }
    let story = [partial(OTHER), completed("")].concat();
    let without = without_image(&story, 9).await;
    assert!(
        without.has_image_substitute && without.usage.is_some_and(|usage| usage.total == 293),
        "work was done and paid"
    );
    for (story, broken) in
        [("", false), (": comment\n\n", false), (&completed("")[..30], false), ("data: {}\n\n", true)]
    {
        let mut body = pieces(story, 100);
        if let (true, ReplyBody::Scripted(pieces)) = (broken, &mut body) {
            pieces.push_back(Err(ReplyError));
        }
        let found = prove_image_tool(body, asked(false), limits()).await;
        let as_expected =
            matches!((&found, broken), (Err(ProofError::Malformed), false) | (Err(ProofError::Broken), true));
        assert!(as_expected, "{story}: {found:?}");
    }
}

#[tokio::test]
async fn an_image_that_the_disk_does_not_take_is_counted_all_the_same() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::new(folder.path()).expect("a spool");
    let long = format!("{PNG_HEAD}{}", "A".repeat(200_000));
    for (behind, expected) in [(completed(""), Some(293)), (String::new(), None)] {
        let body = pieces(&[done(&long), behind].concat(), 4096);
        let proven = prove_image_tool(body, RequestedAnswer { is_single_element: true, ..asked(false) }, limits())
            .await
            .expect("an image");
        let unkept = spool_image(proven, spool.begin_full().expect("a place")).await.expect_err("not kept");
        let SpooledImageError::Disk(_, usage) = unkept else { panic!("{unkept:?}") };
        assert_eq!(usage.map(|usage| usage.total), expected);
    }
}

#[tokio::test]
async fn several_kept_images_are_one_answer() {
    let folder = TempDir::new().expect("a folder");
    let spool = Spool::new(folder.path()).expect("a spool");
    let long = format!("{PNG_HEAD}{}", "A".repeat(200_000));
    let mut images = Vec::new();
    for image in [long.as_str(), OTHER] {
        let part = RequestedAnswer { is_single_element: true, ..asked(false) };
        let later = format!(r#""frame_index":{},"quality":"#, images.len());
        let usage = completed("").replace(r#""total_tokens":213"#, r#""svg_tokens":7,"total_tokens":213"#);
        let body = pieces(&[done(image).replace(r#""quality":"#, &later), usage].concat(), 4096);
        let proven = prove_image_tool(body, part, limits()).await.expect("an image");
        images.push(spool_image(proven, spool.create_writer_blocking().expect("a place")).await.expect("kept"));
    }
    let answer = RequestedAnswer { count: 2, ..asked(false) };
    let lost = AnswerUsage::from_models(
        Some(TokenCounts { input: 5, input_text: 5, total: 5, ..TokenCounts::default() }),
        None,
    );
    let before = disk_accesses();
    let (text, ending, summary) = read(combine_images(images, answer, lost)).await;
    assert_eq!(disk_accesses(), before, "no file is read on a thread of the runtime");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let found: Vec<&Value> = json["data"].as_array().expect("images").iter().map(|image| &image["b64_json"]).collect();
    assert!(found == [&json!(long), &json!(OTHER)], "the images, in their order");
    assert_eq!(
        (&json["usage"]["total_tokens"], &json["quality"], &json["created"]),
        (&json!(426), &json!("high"), &json!(99))
    );
    assert_eq!((&json["data"][1]["revised_prompt"], &json["usage"]["svg_tokens"]), (&json!("r\"p"), &json!(14)));
    let told = [&json["data"][0]["frame_index"], &json["data"][1]["frame_index"], &json["frame_index"]];
    assert_eq!(told, [&json!(0), &json!(1), &Value::Null], "what is said of an image stands with it");
    assert_eq!((ending, summary.delivered.len()), (RelayOutcome::Complete, 2));
    assert_eq!(summary.usage.map(|usage| usage.total), Some(2 * 293 + 5), "what failed was charged too");
}
