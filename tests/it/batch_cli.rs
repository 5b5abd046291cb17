//! `imagate batch`: nothing is paid for twice, however often it is interrupted, and every line is accounted for.
//! `costs` tests the cost that it prints, and `retries` its event `retry`, both also for `generate`.

mod costs;
mod retries;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kit::{
    Account, CommandOutput, FakeUpstream, Gateway, Program, SmallDisk, TEST_TIMEOUT, alpha_png, ends_within,
    format_and_size,
};

const USAGE: Option<i32> = Some(2);
const INCOMPLETE: Option<i32> = Some(3);

/// The number of lines of the long batch.
const LINES: usize = 200;

fn batch(gateway: &Gateway, words: &[&str]) -> Program {
    let (base_url, key) = (gateway.base_url(), gateway.secret());
    Program::new(gateway.home()).args(["batch", "--base-url", &base_url, "--api-key", key]).args(words)
}

fn run(gateway: &Gateway, input: &str, words: &[&str]) -> CommandOutput {
    std::fs::write(gateway.home().join("batch.jsonl"), input).expect("the input is written");
    batch(gateway, &[&["batch.jsonl"], words].concat()).run()
}

/// The images in a folder, without the temporary files of a process that was killed.
fn images(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let mut images: Vec<PathBuf> = entries.filter(|path| !is_hidden(path)).collect();
    images.sort();
    images
}

#[test]
fn a_batch_that_is_killed_three_times_pays_for_each_image_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let lines = (1..=LINES).map(|number| json!({"prompt": format!("boat {number}"), "quality": "low"}).to_string());
    let input = lines.collect::<Vec<_>>().join("\n");
    std::fs::write(gateway.home().join("batch.jsonl"), &input).expect("the input is written");
    let folder = gateway.home().join("boats");
    let words = ["batch.jsonl", "-o", "boats", "--concurrency", "6"];
    for sent in [30, 80, 140] {
        let output = File::create(gateway.home().join("output")).expect("a file");
        let mut child = batch(&gateway, &words).spawn_printing_to(output);
        upstream.wait_until("enough requests", |attempts| attempts.len() >= sent);
        child.kill().expect("the batch is running");
        assert!(ends_within(&mut child, TEST_TIMEOUT));
        assert!(images(&folder).len() < LINES, "the batch was killed before its end");
    }
    let done = batch(&gateway, &words).run();
    assert_eq!(done.code, Some(0), "{done:#?}");
    let images = images(&folder);
    assert_eq!((images.len(), upstream.attempt_count()), (LINES, LINES), "{}", done.stderr);
    for (number, image) in (1..).zip(&images) {
        assert_eq!(image.file_name().expect("a name").to_string_lossy(), format!("{number:04}-boat-{number}.png"));
        assert_eq!(format_and_size(&std::fs::read(image).expect("the image")).0, "png");
    }
    let again = batch(&gateway, &words).run();
    assert!(again.code == Some(0) && again.stderr.contains("existing 200"), "{again:#?}");
    assert_eq!((again.stdout.as_str(), upstream.attempt_count()), ("", LINES));
}

#[test]
fn failed_lines_are_reported_and_the_others_are_kept() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let input = [
        json!({"prompt": "one", "file": "one.png"}),
        json!({"prompt": "two", "size": "1000x1000"}),
        json!({"prompt": "three", "n": 2, "output_format": "jpeg"}),
    ];
    let input = input.map(|line| line.to_string()).join("\n");
    let done = run(&gateway, &input, &["--json", "--concurrency", "1"]);
    assert_eq!(done.code, INCOMPLETE, "{done:#?}");
    let mut reports: Vec<Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    reports.sort_by_key(|report| report["line"].as_u64());
    let facts: Vec<_> = reports.iter().map(|report| (report["result"].as_str(), &report["files"])).collect();
    let expected = [
        (Some("written"), &json!(["./one.png"])),
        (Some("failed"), &json!([])),
        (Some("written"), &json!(["./0003-three-1.jpg", "./0003-three-2.jpg"])),
    ];
    assert_eq!(facts, expected, "{done:#?}");
    assert_eq!((reports[1]["param"].as_str(), reports[0]["replayed"].as_bool()), (Some("size"), Some(false)));
    assert!(done.stderr.contains("1 of 3 lines have no images"), "{done:#?}");
    let files = ["one.png", "0003-three-1.jpg", "0003-three-2.jpg"];
    assert!(files.iter().all(|name| gateway.home().join(name).is_file()));
}

#[test]
fn lines_that_cannot_be_read_are_refused_together_before_anything_is_sent() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let done = run(&gateway, "{\"prompt\": \"a\"}\n[]\n{\"size\": \"auto\"}", &[]);
    assert_eq!((done.code, upstream.attempt_count()), (USAGE, 0), "{done:#?}");
    assert!(done.stderr.contains("line 2: ") && done.stderr.contains("line 3: `prompt` is missing"), "{done:#?}");
}

#[test]
fn faults_of_all_requests_are_reported_together_before_anything_is_sent() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let png = |name: &str, width: u32, height: u32| {
        std::fs::write(gateway.home().join(name), &alpha_png(width, height)[..]).expect("a file");
    };
    png("in.png", 64, 64);
    png("mask.png", 32, 32);
    let lines = [
        json!({"prompt": "good", "image": "in.png", "file": "good"}),
        json!({"prompt": "a", "image": "none.png"}),
        json!({"prompt": "a", "image": "in.png", "mask": "mask.png"}),
        json!({"prompt": "a", "image": vec!["in.png"; 17]}),
        json!({"prompt": "a".repeat(32_001)}),
        json!({"prompt": "a", "file": "a".repeat(256)}),
        json!({"prompt": "a", "image": "none.png", "file": "made"}),
    ];
    let input = lines.map(|line| line.to_string()).join("\n");
    // A line whose files exist is not sent, so its faults do not matter.
    std::fs::write(gateway.home().join("made.png"), "mine").expect("a file");
    let done = run(&gateway, &input, &[]);
    assert_eq!((done.code, upstream.attempt_count()), (USAGE, 0), "{done:#?}");
    let expected = [
        "error: line 2: `image`: none.png cannot be read: ",
        "error: line 3: `mask`: the mask has 32x32 px",
        "error: line 4: `image`: expected at most 16 images",
        "error: line 5: `prompt`: the prompt is longer than",
        "error: line 6: `file`: ",
    ];
    let problems: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(problems.len(), expected.len(), "{done:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
    let good = run(&gateway, &format!("\u{feff}{}", input.lines().next().expect("a line")), &[]);
    assert_eq!(good.ok_stdout(), "./good.png\n", "a byte order mark is no fault");
}

#[test]
fn nothing_is_sent_if_no_file_can_be_written_to_the_folder() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    // Nobody can make a file there, not even root.
    let done = run(&gateway, "{\"prompt\": \"a boat\"}", &["-o", "/proc"]);
    assert_eq!((done.code, upstream.attempt_count()), (USAGE, 0), "{done:#?}");
    assert!(done.stderr.contains("no file can be written to /proc: "), "{done:#?}");
}

#[test]
fn a_full_disk_ends_the_batch() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let folder = gateway.home().join("small");
    let Some(disk) = SmallDisk::mount(&folder, 2) else { return };
    disk.fill_except(1);
    let lines: Vec<String> =
        (1..=20).map(|number| json!({"prompt": format!("boat {number} [[b64=800000]]")}).to_string()).collect();
    let done = run(&gateway, &lines.join("\n"), &["-o", "small", "--concurrency", "1"]);
    assert_eq!((done.code, upstream.attempt_count()), (INCOMPLETE, 2), "{done:#?}");
    assert!(done.stderr.contains("made 1 (before: 0), existing 0, failed 1, not sent 18"), "{done:#?}");
    assert!(done.stderr.contains("note: the image is kept in "), "{done:#?}");
    disk.clear();
    disk.fill();
    let refused = run(&gateway, &lines.join("\n"), &["-o", "small"]);
    assert_eq!((refused.code, upstream.attempt_count()), (USAGE, 2), "a full disk is found before: {refused:#?}");
}

#[test]
fn a_refused_key_ends_the_batch() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let lines: Vec<String> = (1..=20).map(|number| json!({"prompt": format!("{number}")}).to_string()).collect();
    std::fs::write(gateway.home().join("batch.jsonl"), lines.join("\n")).expect("the input is written");
    let words =
        ["batch", "batch.jsonl", "--base-url", &gateway.base_url(), "--api-key", "sk-img-no", "--concurrency", "1"];
    let done = Program::new(gateway.home()).args(words).run();
    assert_eq!((done.code, upstream.attempt_count()), (INCOMPLETE, 0), "{done:#?}");
    assert!(done.stderr.contains("failed 1, not sent 19"), "{done:#?}");
}
