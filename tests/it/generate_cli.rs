//! `imagate generate` as paying users need it: no file is lost, no key goes to the wrong address, and missing images
//! are reported. `files` tests the names of the files, and what becomes of an image that cannot be written; `stopped` tests signals.

mod files;
mod stopped;

use serde_json::json;
use tempfile::TempDir;

use crate::kit::{
    Account, CommandOutput, FakeUpstream, Gateway, Program, RefusingPort, TEST_TIMEOUT, VerbatimUpstream, ends_within,
    format_and_size, image_file,
};

const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);
const INCOMPLETE: Option<i32> = Some(3);

/// Environment variables, arguments, and words of the refusal.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a str);

/// Runs `generate` with the address and the key of the gateway.
fn generate(gateway: &Gateway, words: &[&str]) -> CommandOutput {
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let program = Program::new(gateway.home()).args(["generate", "a boat", "--base-url", &base_url, "--api-key", key]);
    program.args(words).run()
}

#[test]
fn an_existing_file_is_replaced_only_with_force() {
    let gateway = Gateway::simulated();
    let keep = gateway.home().join("keep.png");
    std::fs::write(&keep, "mine").expect("a file");
    for words in [&["-o", "keep.png"][..], &["-o", "keep"], &["--format", "png", "-o", "keep"]] {
        let done = generate(&gateway, words);
        assert_eq!(
            (done.code, std::fs::read(&keep).expect("the file")),
            (USAGE, b"mine".to_vec()),
            "{words:?} {done:#?}"
        );
        assert!(done.stderr.contains("keep.png already exists") && done.stderr.contains("--force"), "{done:#?}");
    }
    assert!(gateway.records().is_empty(), "no request was sent");
    assert_eq!(generate(&gateway, &["-o", "keep.png", "--force"]).ok_stdout(), "keep.png\n");
    assert!(std::fs::read(&keep).expect("the file").starts_with(b"\x89PNG"));
}

#[test]
fn several_images_are_several_files_and_a_second_run_leaves_them_alone() {
    let gateway = Gateway::simulated();
    let words = ["--size", "1024x640", "--quality", "low", "--format", "jpeg", "-n", "3"];
    assert_eq!(generate(&gateway, &[&words[..], &["-o", "b.jpg"]].concat()).ok_stdout(), "b-1.jpg\nb-2.jpg\nb-3.jpg\n");
    assert_eq!(generate(&gateway, &[&words[..], &["-o", "b.jpg"]].concat()).code, USAGE);
    assert_eq!(generate(&gateway, &words).ok_stdout(), "a-boat.jpg\na-boat-2.jpg\na-boat-3.jpg\n");
    assert_eq!(generate(&gateway, &words).ok_stdout(), "a-boat-4.jpg\na-boat-5.jpg\na-boat-6.jpg\n");
}

#[test]
fn a_draft_is_a_jpeg_of_low_quality() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    assert_eq!(generate(&gateway, &["--draft"]).ok_stdout(), "a-boat.jpg\n");
    let fields = upstream.received_attempts()[0].fields();
    assert_eq!((&fields["output_format"], &fields["quality"]), (&json!("jpeg"), &json!("low")));
}

#[test]
fn missing_images_are_reported_and_the_others_are_kept() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_responses_protocol()]);
    upstream.script_sequence("sk-upstream-only", &["", "status=400 body=policy", ""]);
    let done = generate(&gateway, &["-n", "3", "--json", "-o", "boat.png"]);
    assert_eq!(done.code, INCOMPLETE, "{done:#?}");
    assert!(done.stderr.contains("1 of 3 images are missing"), "{done:#?}");
    let report: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!((&report["missing"], &report["files"]), (&json!(1), &json!(["boat-1.png", "boat-2.png"])), "{report}");
    assert!(report["delivered"].as_str().is_some_and(|delivered| delivered.ends_with(" png")), "{report}");
    assert!(["boat-1.png", "boat-2.png"].iter().all(|name| gateway.home().join(name).is_file()));
}

#[test]
fn images_that_were_paid_for_are_kept_when_standard_output_is_closed() {
    let gateway = Gateway::simulated();
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let words = ["generate", "a boat", "-n", "3", "-o", "boat.png", "--base-url", &base_url, "--api-key", key];
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = Program::new(gateway.home()).args(words).spawn_printing_to(writer);
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    for name in ["boat-1.png", "boat-2.png", "boat-3.png"] {
        assert!(gateway.home().join(name).is_file(), "{name}");
    }
}

#[test]
fn images_that_were_paid_for_are_kept_when_a_sidecar_cannot_be_written() {
    let gateway = Gateway::simulated();
    std::fs::create_dir(gateway.home().join("boat-1.png.json")).expect("a folder");
    let done = generate(&gateway, &["-n", "3", "-o", "boat.png", "--sidecar", "--force"]);
    assert_eq!((done.code, done.stdout.as_str()), (FAILED, "boat-1.png\nboat-2.png\nboat-3.png\n"), "{done:#?}");
    for name in ["boat-1.png", "boat-2.png", "boat-3.png", "boat-2.png.json", "boat-3.png.json"] {
        assert!(gateway.home().join(name).is_file(), "{name}");
    }
}

#[test]
fn a_key_goes_only_to_the_address_of_its_own_pair() {
    let upstream = FakeUpstream::start();
    let home = TempDir::new().expect("a directory");
    let (ours, theirs) = ("sk-upstream-of-imagate", "sk-upstream-of-openai");
    let address = upstream.base_url();
    let run = |variables: &[(&str, &str)], words: &[&str]| {
        let program = Program::new(home.path()).args(["generate", "a boat"]).args(words);
        variables.iter().fold(program, |program, (name, value)| program.env(name, value)).run()
    };
    // A key alone is no case here: the request would go to the default address, where a service may be running.
    let cases: [Case<'_>; 3] = [
        (
            &[("OPENAI_API_KEY", theirs), ("IMAGATE_BASE_URL", &address)],
            &[],
            "OPENAI_API_KEY is used only with OPENAI_BASE_URL",
        ),
        (&[("OPENAI_API_KEY", theirs)], &["--base-url", &address], "OPENAI_API_KEY is used only with OPENAI_BASE_URL"),
        (
            &[("IMAGATE_API_KEY", ours), ("IMAGATE_BASE_URL", "https://ours.invalid/v1")],
            &["--base-url", &address],
            "IMAGATE_API_KEY belongs to IMAGATE_BASE_URL",
        ),
    ];
    for (variables, words, expected) in cases {
        let done = run(variables, words);
        assert_eq!(done.code, USAGE, "{variables:?} {words:?}: {done:#?}");
        assert!(done.stderr.contains(expected) && !done.stderr.contains("sk-upstream"), "{done:#?}");
    }
    assert_eq!(upstream.attempt_count(), 0, "{:?}", upstream.received_attempts());
    run(&[("OPENAI_API_KEY", theirs), ("OPENAI_BASE_URL", &address)], &["-o", "whole-pair.png"]).ok_stdout();
}

#[test]
fn a_key_goes_over_plain_http_only_to_this_machine_or_where_that_is_allowed() {
    let home = TempDir::new().expect("a directory");
    let run = |words: &[&str]| {
        let program = Program::new(home.path()).env("IMAGATE_API_KEY", "sk-img-canary");
        program.args(["generate", "a boat", "--base-url", "http://gateway.invalid/v1"]).args(words).run()
    };
    let done = run(&[]);
    assert_eq!(done.code, USAGE, "{done:#?}");
    assert!(done.stderr.contains("use https") && !done.stderr.contains("canary"), "{done:#?}");
    assert_eq!(run(&["--allow-http"]).code, FAILED, "the host does not exist");
}

#[test]
fn a_key_for_a_gateway_on_this_machine_does_not_go_through_a_proxy() {
    let (gateway, proxy) = (Gateway::simulated(), FakeUpstream::start());
    let nowhere = RefusingPort::new();
    for address in [proxy.base_url(), nowhere.base_url()] {
        let address = address.trim_end_matches("/v1");
        let program = Program::new(gateway.home()).env("http_proxy", address).env("HTTP_PROXY", address);
        let program = program.env("IMAGATE_BASE_URL", gateway.base_url()).env("IMAGATE_API_KEY", gateway.secret());
        program.args(["generate", "a boat"]).run().ok_stdout();
    }
    assert_eq!(proxy.accepted(), 0);
}

/// Runs `generate --upscale` with an upstream that follows this script; returns its gateway and its output.
fn upscaled(script: &str, words: &[&str]) -> (Gateway, CommandOutput) {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    upstream.always_for_token("sk-upstream-only", script);
    let done = generate(&gateway, &[&["--upscale"], words].concat());
    assert_eq!(upstream.attempt_count(), 1, "no second attempt is made: {done:#?}");
    (gateway, done)
}

#[test]
fn a_smaller_image_is_resized_to_the_requested_size_and_reported() {
    for (format, name) in [("png", "boat.png"), ("jpeg", "boat.jpg"), ("webp", "boat.webp")] {
        let words = ["--size", "3840x2160", "--format", format, "-o", name, "--json", "--sidecar"];
        let (gateway, done) = upscaled("size=1536x1024", &words);
        let report: serde_json::Value = serde_json::from_str(done.ok_stdout()).expect("JSON");
        assert_eq!((&report["upscaled_from"], &report["files"]), (&json!("1536x1024"), &json!([name])));
        assert!(done.stderr.contains("resized from 1536x1024 to 3840x2160"), "{done:#?}");
        let file = std::fs::read(gateway.home().join(name)).expect("the image");
        assert_eq!(format_and_size(&file), (format.to_owned(), "3840x2160".to_owned()));
        let sidecar = std::fs::read(gateway.home().join(format!("{name}.json"))).expect("the sidecar");
        let sidecar: serde_json::Value = serde_json::from_slice(&sidecar).expect("JSON");
        assert_eq!(sidecar["upscaled_from"], "1536x1024");
    }
}

#[test]
fn an_image_that_comes_as_asked_for_or_larger_stays_as_it_is() {
    for script in ["", "size=2048x1536"] {
        let (gateway, done) = upscaled(script, &["--size", "1536x1024", "-o", "boat.png", "--json"]);
        let report: serde_json::Value = serde_json::from_str(done.ok_stdout()).expect("JSON");
        assert_eq!(report["upscaled_from"], json!(null));
        let size = if script.is_empty() { "1536x1024" } else { "2048x1536" };
        let file = std::fs::read(gateway.home().join("boat.png")).expect("the image");
        assert_eq!(format_and_size(&file).1, size);
        assert!(!done.stderr.contains("resized"), "{done:#?}");
    }
}

#[test]
fn an_image_that_cannot_be_resized_is_kept_as_it_came() {
    let upstream = VerbatimUpstream::start();
    let file = &image_file(1024, 640, "png")[..];
    let broken = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &file[..file.len() - 20]);
    upstream.set_answer("application/json", json!({"created": 1, "data": [{"b64_json": broken}]}).to_string());
    let home = TempDir::new().expect("a directory");
    let program =
        Program::new(home.path()).env("IMAGATE_API_KEY", "sk-test").env("IMAGATE_BASE_URL", upstream.base_url());
    let done = program.args(["generate", "a boat", "--size", "1536x1024", "--upscale", "-o", "boat.png"]).run();
    assert_eq!(done.code, FAILED, "{done:#?}");
    assert!(
        done.stderr.contains("written as it was delivered") && done.stderr.contains("cannot be resized"),
        "{done:#?}"
    );
    assert_eq!(std::fs::read(home.path().join("boat.png")).expect("the image"), file[..file.len() - 20]);
}

/// Runs `generate` against a service that gives this answer.
fn answered(body: &serde_json::Value, words: &[&str]) -> (TempDir, CommandOutput) {
    let upstream = VerbatimUpstream::start();
    upstream.set_answer("application/json", body.to_string());
    let home = TempDir::new().expect("a directory");
    let program =
        Program::new(home.path()).env("IMAGATE_API_KEY", "sk-test").env("IMAGATE_BASE_URL", upstream.base_url());
    let done = program.args(["generate", "a boat", "-o", "boat.png"]).args(words).run();
    (home, done)
}

#[test]
fn an_image_that_is_only_an_address_is_no_success() {
    let body = json!({"created": 1, "data": [{"url": "https://cdn.example/paid.png"}], "usage": {"cost": 0.1 + 0.2}});
    let (_home, done) = answered(&body, &["--json"]);
    assert_eq!(done.code, FAILED, "{done:#?}");
    assert!(done.stderr.contains("https://cdn.example/paid.png") && !done.stderr.contains("done:"), "{done:#?}");
    let report: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!((&report["urls"], &report["files"]), (&json!(["https://cdn.example/paid.png"]), &json!([])));
    assert_eq!(report["cost_usd"], json!(0.3));
}

#[test]
fn an_answer_that_is_not_understood_is_kept_in_a_file() {
    let (home, done) = answered(&json!({"pictures": ["aGVsbG8="]}), &[]);
    assert!(done.code == FAILED && done.stderr.contains("boat.answer.txt"), "{done:#?}");
    let kept = std::fs::read_to_string(home.path().join("boat.answer.txt")).expect("the answer");
    assert_eq!(kept, r#"{"pictures":["aGVsbG8="]}"#);
}

#[test]
fn words_that_only_the_service_knows_and_headers_are_sent() {
    let upstream = FakeUpstream::start();
    let home = TempDir::new().expect("a directory");
    let program = Program::new(home.path()).env("IMAGATE_API_KEY", "sk-upstream-only");
    let program = program.env("IMAGATE_BASE_URL", upstream.base_url()).args(["generate", "a boat", "-o", "boat.png"]);
    let words = ["--background", "transparent", "--quality", "hd", "--header", "X-Project: p-1"];
    program.args(words).run().ok_stdout();
    let attempts = upstream.received_attempts();
    let attempt = attempts.iter().find(|attempt| attempt.method == "POST").expect("the request for the image");
    let fields = attempt.fields();
    assert_eq!((&fields["background"], &fields["quality"]), (&json!("transparent"), &json!("hd")));
    assert_eq!(attempt.header("x-project"), Some("p-1"));
}

#[test]
fn a_size_that_upscaling_cannot_reach_is_refused_before_any_request() {
    let gateway = Gateway::simulated();
    for words in [&["--upscale"][..], &["--upscale", "--size", "auto"], &["--upscale", "--size", "100x100"]] {
        let done = generate(&gateway, words);
        assert_eq!(done.code, USAGE, "{words:?} {done:#?}");
    }
    assert!(gateway.records().is_empty());
}

#[test]
fn a_fallback_is_used_only_as_far_as_the_user_accepts_it() {
    let (smaller, none) = (json!("3840x2160 medium"), serde_json::Value::Null);
    for (words, script, fallback) in [
        // After a failure that made nothing, the client itself sends the request again.
        (&[][..], "status=500", Some(&none)),
        (&["--fallback=never"], "status=500", Some(&none)),
        (&["--fallback"], "status=500", Some(&smaller)),
        (&["--fallback=unpaid"], "status=500", Some(&smaller)),
        (&["--fallback"], "status=502", None),
        (&["--fallback=always"], "status=502", Some(&smaller)),
    ] {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        upstream.script_next(script);
        let asked = ["--size", "3840x2160", "--quality", "high", "--json", "-o", "boat.png"];
        let done = generate(&gateway, &[&asked[..], words].concat());
        match fallback {
            Some(fallback) => assert_eq!(&done.json()["fallback"], fallback, "{words:?} {script}"),
            None => assert_eq!((done.code, upstream.attempt_count()), (FAILED, 1), "{words:?} {script} {done:#?}"),
        }
    }
    let done = generate(&Gateway::simulated(), &["--fallback=perhaps"]);
    assert_eq!(done.code, USAGE, "{done:#?}");
}
