//! `generate` and `edit` that are stopped: they say what may have been paid for, and the same command gets the image.

use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::kit::{
    CommandOutput, FakeUpstream, Gateway, Program, RefusingPort, TEST_TIMEOUT, TerminalSession, UnresponsivePort,
    alpha_png, ends_within, pause, signal,
};

const INTERRUPTED: Option<i32> = Some(130);
const TERMINATED: Option<i32> = Some(143);
const CTRL_C: &str = "\u{3}";
const MAY_BE_PAID: &str = "stopped; the image may still be made and paid for";
const NOTHING_SENT: &str = "stopped before anything was sent that could be paid for";

/// The words of a command for this service.
fn command<'a>(words: &[&'a str], base_url: &'a str, key: &'a str) -> Vec<&'a str> {
    [words, &["--base-url", base_url, "--api-key", key]].concat()
}

/// The text of a terminal without the line ends that the width of the terminal has added.
fn unwrapped(output: &str) -> String {
    output.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end, as a person does after a stop.
fn run(gateway: &Gateway, words: &[&str]) -> CommandOutput {
    Program::new(gateway.home()).args(command(words, &gateway.base_url(), gateway.secret())).run()
}

/// Starts a command, waits until the upstream has been asked for this number of images, and sends the signal. Returns
/// its exit code and its messages.
fn stop(gateway: &Gateway, upstream: &FakeUpstream, asked: usize, words: &[&str], name: &str) -> (Option<i32>, String) {
    let base_url = gateway.base_url();
    let program = Program::new(gateway.home()).args(command(words, &base_url, gateway.secret()));
    let stderr = gateway.home().join("stderr");
    let file = std::fs::File::create(&stderr).expect("a file");
    let mut child = program.spawn_with(Stdio::null(), Stdio::null(), file.into());
    upstream.wait_until("the attempt", |attempts| attempts.len() == asked);
    signal(&child, name);
    assert!(ends_within(&mut child, TEST_TIMEOUT), "it does not end");
    (child.wait().expect("a status").code(), std::fs::read_to_string(stderr).expect("messages"))
}

#[test]
fn ctrl_c_says_what_may_be_paid_and_the_same_command_gets_the_image_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    std::fs::write(gateway.home().join("in.png"), &alpha_png(64, 64)[..]).expect("a file");
    let cases: [&[&str]; 5] = [
        &["generate", "a fox [[gate=1]]", "-o", "fox.png"],
        &["generate", "two foxes [[gate=2]]", "-n", "2", "-o", "foxes.png"],
        &["generate", "a den [[events=p,@3,c]]", "--stream", "--partials", "1", "-o", "den.png"],
        &["edit", "a hat [[gate=4]]", "--image", "in.png", "-o", "hat.png"],
        &["generate", "named after the prompt [[gate=5]]"],
    ];
    for (number, words) in (1..).zip(cases) {
        let session = TerminalSession::start(&command(words, &gateway.base_url(), gateway.secret()), gateway.home());
        upstream.wait_until("the attempt", |attempts| attempts.len() == number);
        session.type_text(CTRL_C);
        let end = session.end();
        let output = unwrapped(&end.output);
        assert_eq!((end.code, end.has_echo), (INTERRUPTED, true), "{words:?}: {output}");
        for text in [MAY_BE_PAID, "the same command within 24 hours gets that image", "`--new` asks for another image"]
        {
            assert!(output.contains(text), "{words:?}: {output}");
        }
        upstream.open_gate(&number.to_string());
        let done = run(&gateway, words);
        assert!(done.stderr.contains("made before, not paid again"), "{words:?}: {done:#?}");
        assert!(done.stderr.contains("note: this command has lost its answer before"), "{words:?}: {done:#?}");
        for file in done.ok_stdout().lines() {
            assert!(gateway.home().join(file).is_file(), "{file}");
        }
        assert_eq!(upstream.attempt_count(), number, "{words:?}");
    }
    // A command that has its image makes another one when it is repeated.
    for number in 6..=7 {
        let done = run(&gateway, &["generate", "named after the prompt [[gate=5]]"]);
        assert!(!done.stderr.contains("note: this command") && !done.stderr.contains("made before"), "{done:#?}");
        assert_eq!((done.ok_stdout().lines().count(), upstream.attempt_count()), (1, number));
    }
}

#[test]
fn a_stop_before_anything_was_sent_says_that_nothing_is_paid() {
    let home = tempfile::tempdir().expect("a directory");
    let (refusing, unresponsive, upstream) = (RefusingPort::new(), UnresponsivePort::new(), FakeUpstream::start());
    upstream.always_for_token("sk-upstream-busy", "status=429 retry-after=50");
    let (nobody, silent, busy) = (refusing.base_url(), unresponsive.base_url(), upstream.base_url());
    for (base_url, is_busy) in [(&nobody, false), (&silent, false), (&busy, true)] {
        let words = ["generate", "a fox", "-o", "fox.png", "--progress", "jsonl"];
        let session = TerminalSession::start(&command(&words, base_url, "sk-upstream-busy"), home.path());
        if is_busy {
            session.wait_for("\"retry\"");
        } else {
            session.wait_for("\"started\"");
            pause(Duration::from_millis(100));
        }
        session.type_text(CTRL_C);
        let end = session.end();
        let output = unwrapped(&end.output);
        assert_eq!(end.code, INTERRUPTED, "{base_url}: {output}");
        assert!(output.contains(NOTHING_SENT) && output.contains("\"exit_code\":130"), "{base_url}: {output}");
        assert!(!output.contains("24 hours") && !output.contains("may still be made"), "{base_url}: {output}");
    }
}

#[test]
fn a_signal_a_closed_terminal_and_a_kill_leave_the_image_to_the_same_command() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    for (number, name, code) in [(1, "TERM", TERMINATED), (2, "HUP", None), (3, "KILL", None), (4, "INT", INTERRUPTED)]
    {
        let (prompt, file) = (format!("fox {number} [[gate={number}]]"), format!("fox-{number}.png"));
        let words = ["generate", &*prompt, "-o", &*file];
        let (ended, messages) = stop(&gateway, &upstream, number, &words, name);
        assert_eq!(ended, code, "{name}: {messages}");
        assert_eq!(messages.contains(MAY_BE_PAID), code.is_some(), "{name}: {messages}");
        upstream.open_gate(&number.to_string());
        let done = run(&gateway, &words);
        assert!(done.stderr.contains("made before, not paid again"), "{name}: {done:#?}");
        assert!(gateway.home().join(done.ok_stdout().trim()).is_file());
        assert_eq!(upstream.attempt_count(), number, "{name}");
    }
}

#[test]
fn another_image_is_made_with_new_and_for_another_command() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let image = gateway.home().join("in.png");
    std::fs::write(&image, &alpha_png(64, 64)[..]).expect("a file");
    let words = ["edit", "a fox [[gate=open]]", "--image", "in.png"];
    assert_eq!(stop(&gateway, &upstream, 1, &words, "INT").0, INTERRUPTED);
    upstream.open_gate("open");
    std::fs::write(&image, &alpha_png(32, 32)[..]).expect("a file");
    let others: [&[&str]; 4] = [&["--new"], &[], &["--quality", "low"], &["-o", "other.png"]];
    for (number, other) in (2..).zip(others) {
        // The first one has the original image.
        std::fs::write(&image, &alpha_png(if number == 2 { 64 } else { 32 }, 64)[..]).expect("a file");
        let done = run(&gateway, &[&words[..], other].concat());
        assert!(!done.stderr.contains("made before"), "{other:?}: {done:#?}");
        assert_eq!((done.code, upstream.attempt_count()), (Some(0), number), "{other:?}: {done:#?}");
    }
    std::fs::write(&image, &alpha_png(64, 64)[..]).expect("a file");
    let done = run(&gateway, &words);
    assert!(done.stderr.contains("made before, not paid again"), "{done:#?}");
    assert_eq!(upstream.attempt_count(), 5);
    let both = run(&gateway, &[&words[..], &["--new", "--idempotency-key", "mine"]].concat());
    assert_eq!(both.code, Some(2), "{both:#?}");
}

#[test]
fn the_same_command_in_two_terminals_makes_two_images() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let (words, base_url) = (["generate", "a fox [[gate=open]]"], gateway.base_url());
    let words = command(&words, &base_url, gateway.secret());
    let sessions = [0, 1].map(|_| TerminalSession::start(&words, gateway.home()));
    upstream.wait_until("both attempts", |attempts| attempts.len() == 2);
    for session in sessions {
        session.type_text(CTRL_C);
        assert_eq!(session.end().code, INTERRUPTED);
    }
    upstream.open_gate("open");
    for attempts in [2, 2, 3] {
        let done = Program::new(gateway.home()).args(&words).run();
        assert_eq!(done.stderr.contains("made before, not paid again"), attempts == 2, "{done:#?}");
        assert_eq!((done.code, upstream.attempt_count()), (Some(0), attempts), "{done:#?}");
    }
}

#[test]
fn an_error_that_leaves_the_outcome_unknown_keeps_the_image_for_the_same_command() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let words = ["generate", "a fox [[gate=open]]", "--timeout", "1", "-o", "fox.png"];
    let late = run(&gateway, &words);
    assert_eq!(late.code, Some(1), "{late:#?}");
    assert!(
        late.stderr.contains("within 1 s") && late.stderr.contains("the same command within 24 hours"),
        "{late:#?}"
    );
    upstream.open_gate("open");
    let done = run(&gateway, &words);
    assert!(done.code == Some(0) && done.stderr.contains("made before, not paid again"), "{done:#?}");
    assert_eq!(upstream.attempt_count(), 1);
    // An error that is certain is no reason to ask for the same image again.
    let refused = ["generate", "a fox [[status=400 body=policy]]", "-o", "refused.png"];
    for attempts in [2, 3] {
        let done = run(&gateway, &refused);
        assert!(done.code == Some(1) && !done.stderr.contains("24 hours"), "{done:#?}");
        assert_eq!(upstream.attempt_count(), attempts, "{done:#?}");
    }
}

#[test]
fn a_command_that_can_keep_nothing_tells_its_key() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    std::fs::write(gateway.home().join("file"), "").expect("a file");
    let words = ["generate", "a fox [[gate=open]]", "-o", "-"];
    let base_url = gateway.base_url();
    let program = |words: &[&str]| {
        let program = Program::new(gateway.home()).args(command(words, &base_url, gateway.secret()));
        program.env("XDG_STATE_HOME", gateway.home().join("file"))
    };
    let stderr = gateway.home().join("stderr");
    let file = std::fs::File::create(&stderr).expect("a file");
    let mut child = program(&words).spawn_with(Stdio::null(), Stdio::null(), file.into());
    upstream.wait_until("the attempt", |attempts| attempts.len() == 1);
    signal(&child, "INT");
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    let messages = unwrapped(&std::fs::read_to_string(stderr).expect("messages"));
    let key = messages.split("`--idempotency-key ").nth(1).and_then(|rest| rest.split('`').next());
    let key = key.unwrap_or_else(|| panic!("no key: {messages}"));
    upstream.open_gate("open");
    let image = gateway.home().join("fox.png");
    let out = std::fs::File::create(&image).expect("a file");
    let words = [&words[..], &["--idempotency-key", key]].concat();
    let mut child = program(&words).spawn_with(Stdio::null(), out.into(), Stdio::null());
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    assert!(std::fs::read(image).expect("the image").starts_with(b"\x89PNG"));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_further_signal_ends_a_command_that_is_blocked() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let words = ["generate", "a fox [[b64=4000000]]", "-o", "-"];
    let base_url = gateway.base_url();
    let program = Program::new(gateway.home()).args(command(&words, &base_url, gateway.secret()));
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut child = program.spawn_with(Stdio::null(), writer.into(), Stdio::null());
    // The rest of the image is larger than the pipe.
    reader.read_exact(&mut [0]).expect("the first byte of the image");
    signal(&child, "INT");
    pause(Duration::from_millis(700));
    assert!(child.try_wait().expect("a status").is_none(), "nobody reads the pipe");
    signal(&child, "INT");
    assert!(ends_within(&mut child, TEST_TIMEOUT), "it does not end");
    assert_eq!(child.wait().expect("a status").code(), INTERRUPTED);
    drop(reader);
}

#[test]
fn a_service_that_knows_no_keys_is_not_promised_to_keep_an_image() {
    let upstream = FakeUpstream::start();
    let home = tempfile::tempdir().expect("a directory");
    let base_url = upstream.base_url();
    let words = ["generate", "a fox [[gate=open]]", "-o", "fox.png", "--json"];
    let words = command(&words, &base_url, "sk-upstream-only");
    let images = |upstream: &FakeUpstream| {
        upstream.received_attempts().iter().filter(|attempt| attempt.method == "POST").count()
    };
    let session = TerminalSession::start(&words, home.path());
    upstream.wait_until("the attempt", |attempts| attempts.iter().any(|attempt| attempt.method == "POST"));
    session.type_text(CTRL_C);
    let end = session.end();
    let output = unwrapped(&end.output);
    assert!(end.code == INTERRUPTED && output.contains("another service may make and charge for another"), "{output}");
    upstream.open_gate("open");
    let report: Value = Program::new(home.path()).args(&words).run().json();
    assert_eq!((&report["replayed"], images(&upstream)), (&Value::Bool(false), 2), "{report}");
}
