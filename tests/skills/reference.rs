//! The package reader and the reference validator of Agent Skills (`skills-ref`) accept the same skills, apart from the
//! exceptions that this file lists with their reasons.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use imagate::manifest::package::{front, skill};

/// Front matter that only this crate accepts, by a word of the validator's message: the validator supports less of
/// YAML.
const ONLY_THIS_CRATE: [(&str, &str); 2] =
    [("flow", "a mapping or list on one line, `{a: b}`"), ("tag", "a type that is written out, `!!str MIT`")];

/// Front matter that only the validator accepts, by a part of the text: the format demands texts, but the validator
/// does not check it.
const ONLY_VALIDATOR: [(&str, &str); 5] = [
    ("description: null", "no description; the validator reads the text `null`"),
    ("allowed-tools:\n  - Read", "a list instead of a text"),
    ("deep:\n    er: x", "a mapping instead of a text in `metadata`"),
    ("metadata: text", "a text instead of a mapping"),
    ("metadata:\n---", "nothing instead of a mapping"),
];

/// Returns whether this crate accepts the skill.
fn accepted(text: &str) -> bool {
    front::read(text.as_bytes()).is_ok_and(|file| skill::faults(&file, Some("demo")).is_empty())
}

/// The verdict of the reference validator on each text: `1`, or the message of an error.
fn validator_verdicts(texts: &[String]) -> Vec<String> {
    let script = crate::corpus::folder().parent().expect("tests").join("clients/skill_verdicts.py");
    let mut command = Command::new(crate::outside::python("skills-ref", "IMAGATE_PY_SKILLS_REF"));
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut input = child.stdin.take().expect("a pipe");
    let lines: String = texts.iter().map(|text| STANDARD.encode(text) + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the output of the child");
    writer.join().expect("the writer").expect("the child reads all of its input");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

const NAMES: &[&str] = &[
    "demo",
    "'demo'",
    "\"demo\"",
    " demo ",
    "Demo",
    "de--mo",
    "-demo",
    "other",
    "",
    "demo # comment",
    "[demo]",
    "{a: b}",
    "1",
    "~",
    "&a demo",
];

const FURTHER_FIELDS: &[&str] = &[
    "",
    "license: MIT\n",
    "license: 1.0\n",
    "compatibility: any\n",
    "allowed-tools: Read Grep\n",
    "allowed-tools: Bash(git:*) Read\n",
    "allowed-tools: [Read]\n",
    "allowed-tools:\n  - Read\n",
    "metadata:\n  version: 1.10\n",
    "metadata:\n  version: \"1.0\"\n  author: me\n",
    "metadata: {version: \"1\"}\n",
    "metadata:\n  deep:\n    er: x\n",
    "metadata: text\n",
    "metadata:\n",
    "version: 1\n",
    "name: demo\n",
    "# comment\n",
    "\n",
    "x: &a y\n",
    "license: !!str MIT\n",
];

fn descriptions() -> Vec<String> {
    let long = |length: usize| "x".repeat(length);
    vec![
        "Plain text.".to_owned(),
        "'it''s'".to_owned(),
        "\"a \\u00e9 b\"".to_owned(),
        ">-\n  folded\n  text".to_owned(),
        "|\n  lines\n  more".to_owned(),
        "two: colons".to_owned(),
        long(1024),
        long(1025),
        "ü".repeat(1024),
        "\"\"".to_owned(),
        "' '".to_owned(),
        "123".to_owned(),
        "true".to_owned(),
        "2024-01-01".to_owned(),
        "null".to_owned(),
        "a - b".to_owned(),
        "with --- inside".to_owned(),
        "- list".to_owned(),
        "plain\n  continued".to_owned(),
    ]
}

/// Front matter of every kind: each value of each field, with valid values of the other fields.
fn texts() -> Vec<String> {
    let long = |length: usize| "x".repeat(length);
    let front_matter = |name: &str, description: &str, further_fields: &str| {
        format!("---\nname: {name}\ndescription: {description}\n{further_fields}---\n\n# Demo\n")
    };
    let mut texts: Vec<String> = NAMES.iter().map(|name| front_matter(name, "Good.", "")).collect();
    texts.extend(descriptions().iter().map(|description| front_matter("demo", description, "")));
    texts.extend(FURTHER_FIELDS.iter().map(|further_fields| front_matter("demo", "Good.", further_fields)));
    texts.push(format!("---\nname: demo\ndescription: d\ncompatibility: {}\n---\n", long(500)));
    texts.push(format!("---\nname: demo\ndescription: d\ncompatibility: {}\n---\n", long(501)));
    texts.extend(
        [
            "---\r\nname: demo\r\ndescription: d\r\n---\r\n",
            "\u{feff}---\nname: demo\ndescription: d\n---\n",
            "--- \nname: demo\ndescription: d\n--- \n",
        ]
        .map(str::to_owned),
    );
    texts
}

#[test]
fn this_crate_and_the_reference_validator_accept_the_same_skills() {
    let texts = texts();
    let verdicts = validator_verdicts(&texts);
    assert_eq!(verdicts.len(), texts.len());
    let is_known_difference = |verdict: &str| ONLY_THIS_CRATE.iter().any(|(word, _)| verdict.contains(word));
    let is_known_gap = |text: &str| ONLY_VALIDATOR.iter().any(|(part, _)| text.contains(part));
    let mut accepted_by_both = 0;
    let mut differences = Vec::new();
    for (text, verdict) in texts.iter().zip(&verdicts) {
        match (accepted(text), verdict == "1") {
            (true, true) => accepted_by_both += 1,
            (true, false) if !is_known_difference(verdict) => {
                differences.push(format!("only accepted by this crate: {text:?}: {verdict}"));
            }
            (false, true) if !is_known_gap(text) => {
                differences.push(format!("only accepted by the validator: {text:?}"));
            }
            _ => {}
        }
    }
    assert!(accepted_by_both > 20, "{accepted_by_both}");
    assert_eq!(differences, Vec::<String>::new());
}
