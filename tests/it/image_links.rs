//! Links to images: answers with `response_format` `url`, and who gets an image by its link for how long.

use std::path::Path;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, Random, alpha_png, eventually, format_and_size};

const DIALECT: &str = "[[groups]]\nname = \"default\"\ndialects = [\"url\"]\n";
const PATH: &str = "/v1/images/files/";

/// A gateway whose group may ask for links, and whose configuration begins with these lines.
fn gateway(top: &str, upstream: &FakeUpstream) -> Gateway {
    Gateway::with(&format!("{top}\n{DIALECT}"), &[Account::for_upstream("only", upstream)])
}

/// A generation that asks for links.
fn generate(gateway: &Gateway, with: Value) -> Answer {
    let mut fields = json!({"response_format": "url"});
    fields.as_object_mut().expect("an object").extend(with.as_object().expect("an object").clone());
    gateway.call(fields).without_document_check().send(gateway.address())
}

/// The paths of the links of an answer, which have the address of the gateway.
#[track_caller]
fn link_paths(gateway: &Gateway, answer: &Answer) -> Vec<String> {
    let base = format!("http://{}", gateway.address());
    let images = answer.ok_json()["data"].as_array().expect("images").clone();
    let path = |image: &Value| {
        assert!(image.get("b64_json").is_none(), "an answer with links has no images");
        image["url"].as_str().and_then(|url| url.strip_prefix(&base)).expect("a link").to_owned()
    };
    images.iter().map(path).collect()
}

fn fetch(gateway: &Gateway, path: &str) -> Answer {
    Call::get(path).without_document_check().send(gateway.address())
}

/// The bytes of all stored answers.
fn stored_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.metadata().map_or(0, |facts| facts.len())).sum()
}

#[test]
fn an_answer_with_links_leads_to_the_images_of_the_usual_answer() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    let answer = generate(&gateway, json!({"prompt": "a cube", "n": 2}));
    assert_eq!(answer.header("x-imagate-adapted"), Some("response_format url"));
    assert!(answer.header("x-imagate-delivered").is_some(), "the headers are the usual ones");
    let body = answer.ok_json();
    assert!(body["created"].is_u64() && body["usage"]["total_tokens"].is_u64(), "{body}");
    let paths = link_paths(&gateway, &answer);
    assert_eq!(paths.len(), 2);
    for path in &paths {
        let image = fetch(&gateway, path);
        assert_eq!((image.status, image.complete), (200, true));
        assert_eq!(format_and_size(&image.body), ("png".to_owned(), "1024x1024".to_owned()));
        assert_eq!(image.header("content-type"), Some("image/png"));
        assert_eq!(image.header("x-content-type-options"), Some("nosniff"));
        assert!(image.header("content-security-policy").is_some_and(|policy| policy.contains("sandbox")));
        let age =
            image.header("cache-control").and_then(|text| text.strip_prefix("private, max-age=")).expect("an age");
        assert!((1..=3600).contains(&age.parse::<u32>().expect("seconds")), "{age}");
        let head = Call::head_of(path).without_document_check().send(gateway.address());
        assert_eq!((head.status, head.body.len(), head.header("content-type")), (200, 0, Some("image/png")));
    }
    assert_eq!(upstream.attempt_count(), 1);
    assert_eq!(gateway.final_records(1).len(), 1);
}

#[test]
fn each_link_leads_to_its_own_image() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    // The first image of such an answer has a size of its own.
    let answer = generate(&gateway, json!({"prompt": "a cube [[b64=40000]]", "n": 2}));
    let lengths: Vec<_> = link_paths(&gateway, &answer).iter().map(|path| fetch(&gateway, path).body.len()).collect();
    assert!(lengths[0] == 30_000 && lengths[1] != lengths[0] && lengths[1] > 0, "{lengths:?}");
}

#[test]
fn an_edit_and_a_request_with_an_idempotency_key_have_links_too() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    let form = Form::with_required_fields().text("response_format", "url").file("image", &alpha_png(1024, 1024));
    let edited = form.call().key(gateway.secret()).without_document_check().send(gateway.address());
    assert_eq!(fetch(&gateway, &link_paths(&gateway, &edited)[0]).status, 200);
    let call = || {
        let call = gateway.call(json!({"response_format": "url"})).header("idempotency-key", "order-1");
        call.without_document_check().send(gateway.address())
    };
    let (first, again) = (call(), call());
    assert_eq!(again.header("x-imagate-replayed"), Some("true"));
    let images = [first, again].map(|answer| fetch(&gateway, &link_paths(&gateway, &answer)[0]).body);
    assert!(!images[0].is_empty() && images[0] == images[1], "the same image");
    assert_eq!(upstream.attempt_count(), 2, "one for the edit, one for both repeats");
}

#[test]
fn an_edit_with_the_key_of_a_generation_has_links_to_its_own_image() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    let call = gateway.call(json!({"size": "1024x1024"})).header("idempotency-key", "job-1");
    call.send(gateway.address()).ok_json();
    let form = Form::with_required_fields().text("response_format", "url").text("size", "1536x1024");
    let call = form.file("image", &alpha_png(64, 64)).call().key(gateway.secret()).header("idempotency-key", "job-1");
    let edited = call.without_document_check().send(gateway.address());
    let image = fetch(&gateway, &link_paths(&gateway, &edited)[0]);
    assert_eq!(format_and_size(&image.body).1, "1536x1024");
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn a_stream_with_links_is_refused_and_so_are_links_without_the_dialect() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    let error = generate(&gateway, json!({"stream": true})).error_object(400);
    assert_eq!(error["param"], "stream");
    let strict = Gateway::with_upstream(&upstream);
    let error = strict.generate(json!({"response_format": "url"})).error_object(400);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("'url'")), "{error}");
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_failed_generation_has_the_usual_error() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    generate(&gateway, json!({"prompt": "a cube [[status=500]]"})).error_object(502);
    generate(&gateway, json!({"prompt": "a cube", "size": "17x17"})).error_object(400);
}

#[test]
fn a_caller_that_leaves_and_marks_its_retry_pays_once() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    let call = |count: &str| {
        let call = gateway.call(json!({"prompt": "a cube [[gate=open]]", "response_format": "url"}));
        call.header("x-stainless-retry-count", count).without_document_check()
    };
    let first = call("0").dispatch(gateway.address()).expect("a connection");
    upstream.wait_until("the attempt has begun", |attempts| !attempts.is_empty());
    drop(first);
    let retry = std::thread::scope(|scope| {
        let retry = scope.spawn(|| call("1").send(gateway.address()));
        gateway.wait_until_busy(1);
        upstream.open_gate("open");
        retry.join().expect("an answer")
    });
    assert_eq!(fetch(&gateway, &link_paths(&gateway, &retry)[0]).status, 200);
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn links_survive_a_restart_and_are_never_logged() {
    let upstream = FakeUpstream::start();
    let mut gateway = gateway("", &upstream);
    gateway.keep_address();
    let paths = link_paths(&gateway, &generate(&gateway, json!({"prompt": "a cube"})));
    let token = paths[0].strip_prefix(PATH).expect("a token");
    assert_eq!(fetch(&gateway, &paths[0]).status, 200);
    fetch(&gateway, &format!("{}A", paths[0])).error_object(404);
    assert!(!gateway.output().contains(token), "the log has the token of a link");
    gateway.terminate();
    gateway.start_again();
    assert_eq!(fetch(&gateway, &paths[0]).status, 200, "valid after a restart");
}

#[test]
fn a_link_ends_with_its_key() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream);
    let paths = link_paths(&gateway, &generate(&gateway, json!({"prompt": "a cube"})));
    assert_eq!(fetch(&gateway, &paths[0]).status, 200);
    let id = gateway.key_id().to_owned();
    for (command, status) in [("disable", 404), ("enable", 200), ("delete", 404)] {
        gateway.run_command(&["key", command, &id]);
        eventually(command, || (fetch(&gateway, &paths[0]).status == status).then_some(()));
    }
}

#[test]
fn changed_links_and_guesses_find_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("", &upstream).with_quiet_log();
    let paths = link_paths(&gateway, &generate(&gateway, json!({"prompt": "a cube", "n": 2})));
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let token = paths[0].strip_prefix(PATH).expect("a token").as_bytes();
    let mut random = Random::seeded(20_261_127);
    let mut changed: Vec<Vec<u8>> = (0..token.len())
        .map(|index| {
            let mut changed = token.to_vec();
            changed[index] = letters[(letters.iter().position(|letter| *letter == token[index]).unwrap_or(0) + 1) % 64];
            changed
        })
        .collect();
    changed.extend(
        (0..2000)
            .map(|_| (0..token.len()).map(|_| letters[usize::from(random.between(0, 64).to_le_bytes()[0])]).collect()),
    );
    for token in changed {
        let path = format!("{PATH}{}", String::from_utf8_lossy(&token));
        fetch(&gateway, &path).error_object(404);
    }
    for path in [PATH.to_owned(), format!("{PATH}%00"), format!("{}/", paths[0]), format!("{PATH}{}", "A".repeat(5000))]
    {
        let status = fetch(&gateway, &path).status;
        assert!((400..500).contains(&status) || path.ends_with('/'), "{path}: {status}");
    }
    assert_eq!(fetch(&gateway, &paths[1]).status, 200);
}

#[test]
fn many_answers_with_links_stay_within_the_disk_space_of_stored_answers() {
    let upstream = FakeUpstream::start();
    let gateway = gateway("[replay]\nmax_megabytes = 4\n", &upstream);
    let paths: Vec<String> = (0..8)
        .map(|number| {
            let with = json!({"prompt": "a cube [[b64=1500000]]", "user": format!("u-{number}")});
            link_paths(&gateway, &generate(&gateway, with)).remove(0)
        })
        .collect();
    let folder = gateway.home().join("data/replays");
    eventually("the stored answers are within the limit", || (stored_bytes(&folder) <= 5 << 20).then_some(()));
    fetch(&gateway, &paths[0]).error_object(404);
    assert_eq!(fetch(&gateway, &paths[7]).status, 200, "the newest one is kept");
}
