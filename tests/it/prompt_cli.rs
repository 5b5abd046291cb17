//! `imagate generate` and `edit` before anything is sent: the source of the prompt, refusals, and names of files.

use serde_json::json;

use crate::kit::{CommandOutput, FakeUpstream, Gateway, Program};

const USAGE: Option<i32> = Some(2);

/// Runs a command with the address and the key of the gateway, and these environment variables.
fn run(gateway: &Gateway, variables: &[(&str, &str)], words: &[&str]) -> CommandOutput {
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    let program = Program::new(gateway.home()).args(words).args(["--base-url", &base_url, "--api-key", key]);
    variables.iter().fold(program, |program, (name, value)| program.env(name, value)).run()
}

#[test]
fn refusals_name_the_option_and_come_before_the_wait() {
    let gateway = Gateway::simulated();
    for (words, expected) in [
        (&["generate", "a", "-n", "2", "--stream"][..], "error: --count: a stream can carry only one image\n"),
        (&["generate", ""], "error: PROMPT: the prompt is empty\n"),
        (&["generate", "a", "--model", ""], "error: --model: the name of the model is empty\n"),
        (&["generate", "a", "--idempotency-key", "a b"], "error: --idempotency-key: an idempotency key has "),
        (&["edit", "a", "--image", "none.png"], "error: --image: none.png cannot be read: "),
        (&["edit", "a", "--image", "none.png", "--stream"], "error: --image: none.png cannot be read: "),
    ] {
        let done = run(&gateway, &[], words);
        assert_eq!(done.code, USAGE, "{words:?}: {done:#?}");
        assert!(done.stderr.starts_with(expected), "{words:?}: {done:#?}");
        assert_eq!(done.stderr.lines().count(), 1, "no progress is shown: {done:#?}");
    }
    assert!(gateway.records().is_empty());
}

/// The prompts that the upstream got.
fn prompts(upstream: &FakeUpstream) -> Vec<serde_json::Value> {
    upstream.received_attempts().iter().map(|attempt| attempt.fields()["prompt"].clone()).collect()
}

#[test]
fn a_prompt_is_read_from_a_file_or_from_standard_input() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    std::fs::write(gateway.home().join("prompt.txt"), "a red boat\non a lake\n\n").expect("a file");
    assert_eq!(
        run(&gateway, &[], &["generate", "--prompt-file", "prompt.txt"]).ok_stdout(),
        "a-red-boat-on-a-lake.png\n"
    );
    for words in [&["generate", "-"][..], &["generate", "--prompt-file", "-"]] {
        let (base_url, key) = (gateway.base_url(), gateway.secret());
        let program = Program::new(gateway.home()).args(words).args(["--base-url", &base_url, "--api-key", key]);
        program.stdin(&gateway.home().join("prompt.txt")).run().ok_stdout();
    }
    assert_eq!(prompts(&upstream), vec![json!("a red boat\non a lake"); 3]);
    for words in
        [&["generate"][..], &["generate", "a", "--prompt-file", "prompt.txt"], &["generate", "--prompt-file", "no"]]
    {
        let done = run(&gateway, &[], words);
        assert_eq!(done.code, USAGE, "{words:?}: {done:#?}");
    }
    assert!(
        run(&gateway, &[], &["generate", "--prompt-file", "no"]).stderr.contains("--prompt-file: no cannot be read")
    );
    assert_eq!(upstream.attempt_count(), 3);
}

#[cfg(unix)]
#[test]
fn a_prompt_is_written_in_the_editor_of_the_environment() {
    use std::os::unix::fs::PermissionsExt as _;
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let script = |name: &str, text: &str| {
        let path = gateway.home().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        path.to_str().expect("UTF-8").to_owned()
    };
    // Like many editors, the first one replaces the file. Its argument comes from the setting.
    let adding =
        script("adding", "sed \"s/\\$/ $1/\" \"$2\" > \"$2.new\" && echo >> \"$2.new\" && mv \"$2.new\" \"$2\"");
    let (emptying, failing) = (script("emptying", ": > \"$1\""), script("failing", "exit 3"));
    let adding = format!("{adding} afloat");
    run(&gateway, &[("EDITOR", &adding)], &["generate", "a boat", "--editor", "-o", "boat.png"]).ok_stdout();
    run(&gateway, &[("VISUAL", &adding), ("EDITOR", &failing)], &["generate", "a hut", "--editor"]).ok_stdout();
    assert_eq!(prompts(&upstream), ["a boat afloat", "a hut afloat"].map(|prompt| json!(prompt)));
    for (editor, expected) in [(&*emptying, "the prompt is empty"), (&*failing, "failed"), ("", "VISUAL or EDITOR")] {
        let done = run(&gateway, &[("EDITOR", editor)], &["generate", "--editor"]);
        assert!(done.code != Some(0) && done.stderr.contains(expected), "{editor}: {done:#?}");
    }
    assert_eq!(upstream.attempt_count(), 2);
    let left = std::fs::read_dir(gateway.home()).expect("a folder").filter_map(Result::ok);
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("imagate-prompt-")), "{left:?}");
}

#[test]
fn files_are_named_by_a_template() {
    let gateway = Gateway::simulated();
    let words = ["generate", "A boat!", "--size", "1024x640", "--format", "jpeg", "-n", "2"];
    let named = |output: &str| run(&gateway, &[], &[&words[..], &["-o", output]].concat());
    assert_eq!(
        named("{prompt}_{model}_{size}_{n}.{ext}").ok_stdout(),
        "a-boat_gpt-image-2_1024x640_1.jpg\na-boat_gpt-image-2_1024x640_2.jpg\n"
    );
    let dated = named("{date}.{ext}").ok_stdout().to_owned();
    let day = dated.split_once("-1.jpg").expect("a numbered file").0.to_owned();
    assert!(day.len() == 10 && day.starts_with("20") && dated.contains(&format!("{day}-2.jpg")), "{dated}");
    let records = gateway.records().len();
    for (output, expected) in [
        ("{promt}.png", "--output: the placeholder {promt} is unknown; there are {prompt}"),
        ("{date}/boat.png", "--output: placeholders can stand only in the name of the file"),
        ("{prompt.png", "--output: `{prompt.png` has a single brace"),
        ("{prompt}_{model}_{size}_{n}.{ext}", "a-boat_gpt-image-2_1024x640_1.jpg already exists"),
    ] {
        let done = named(output);
        assert!(done.code == USAGE && done.stderr.contains(expected), "{output}: {done:#?}");
    }
    assert_eq!(gateway.records().len(), records, "no request was sent");
}
