//! docs/operating.md: its commands from top to bottom, and the metrics and options that its text names.

use serde_json::Value;
use tempfile::TempDir;

use super::machine::{TestMachine, blocks_of};
use crate::kit::Program;

/// The source that names the metrics.
const METRICS: &str = include_str!("../../../src/gateway/telemetry/metrics.rs");
const PAGE: &str = include_str!("../../../docs/operating.md");

/// The texts in backticks outside of blocks.
fn inline_code() -> Vec<String> {
    let prose: String = PAGE.split("\n```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_page_run_from_top_to_bottom() {
    let machine = TestMachine::new();
    let settings = blocks_of(PAGE, "toml");
    let [settings] = settings.as_slice() else { panic!("not one block of settings: {settings:?}") };
    let commands = blocks_of(PAGE, "sh");
    assert!(commands.len() >= 15, "{}", commands.len());
    for block in commands {
        let is_first_key = block.starts_with("KEY=$(");
        let shown = if is_first_key { format!("{block}\nprintf %s \"$KEY\" > key.txt") } else { block.to_owned() };
        let output = machine.run(&shown);
        if block.contains("/etc/imagate\n") || block.ends_with("/etc/imagate") {
            std::fs::write(machine.path("etc/imagate/imagate.toml"), machine.localize(settings)).expect("a file");
        }
        if block.contains("--online") {
            let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
            assert!(
                report["checks"].as_array().is_some_and(|checks| checks.iter().any(|one| one["check"] == "upstream"))
            );
        }
    }
    let first: Value =
        serde_json::from_slice(&std::fs::read(machine.path("first.json")).expect("a file")).expect("JSON");
    assert!(first["data"][0]["b64_json"].as_str().is_some_and(|image| !image.is_empty()));
    let key = std::fs::read_to_string(machine.path("key.txt")).expect("a file");
    assert_eq!(machine.status_of_image("127.0.0.1:8080", &key), 200, "the key works after every restore");
}

#[test]
fn the_metrics_in_the_text_exist() {
    let mut checked = 0;
    for code in inline_code() {
        let words = code.split(|letter: char| letter != '_' && !letter.is_ascii_lowercase());
        for metric in words.filter_map(|word| word.strip_prefix("imagate_")) {
            // A metric that has not been counted yet is not in the answer of the gateway.
            let is_registered = METRICS.contains(&format!("\"{}\"", metric.trim_end_matches("_total")));
            assert!(is_registered, "imagate_{metric} is no metric");
            checked += 1;
        }
    }
    assert!(checked > 5, "{checked}");
}

#[test]
fn the_commands_in_the_text_and_their_options_exist() {
    let home = TempDir::new().expect("a directory");
    let mut checked = 0;
    for code in inline_code().iter().filter_map(|code| code.strip_prefix("imagate ")) {
        let words: Vec<&str> = code.split_whitespace().collect();
        let names = words.iter().take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
        let names: Vec<&str> = names.copied().take_while(|word| !word.starts_with('-')).collect();
        // The command `help` is the option of all others.
        let option = if names.first() == Some(&"help") { None } else { Some("--help") };
        let help = Program::new(home.path()).args(&names).args(option.as_slice()).run();
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.ok_stdout().contains(option), "`imagate {code}` has no {option}");
        }
        help.ok_stdout();
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}
