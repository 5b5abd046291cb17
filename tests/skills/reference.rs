//! What is built here is accepted by the reference validator of Agent Skills (`skills-ref`), except where this file says why not.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use imagate::manifest::package::{front, skill};

/// What is read here and not there, by a word of what it says: its YAML is a smaller one.
const ONLY_HERE: [(&str, &str); 2] =
    [("flow", "a mapping or list on one line, `{a: b}`"), ("tag", "a type that is written out, `!!str MIT`")];

/// What is accepted there and not here, where the format asks for texts and the validator does not look.
const ONLY_THERE: [(&str, &str); 5] = [
    ("description: null", "no description; there it is the text `null`"),
    ("allowed-tools:\n  - Read", "a list instead of a text"),
    ("deep:\n    er: x", "a mapping instead of a text in `metadata`"),
    ("metadata: text", "a text instead of a mapping"),
    ("metadata:\n---", "nothing instead of a mapping"),
];

fn accepted(text: &str) -> bool {
    front::read(text.as_bytes()).is_ok_and(|file| skill::faults(&file, Some("demo")).is_empty())
}

fn opinions(texts: &[String]) -> Vec<String> {
    let script = crate::corpus::folder().parent().expect("tests").join("clients/skill_verdicts.py");
    let mut command = Command::new(crate::outside::python("skills-ref", "IMAGATE_PY_SKILLS_REF"));
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut input = child.stdin.take().expect("a pipe");
    let lines: String = texts.iter().map(|text| STANDARD.encode(text) + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("its output");
    writer.join().expect("the writer").expect("all was read");
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

const REST: &[&str] = &[
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

/// Front matters of every kind: each value of each field with good values of the others.
fn texts() -> Vec<String> {
    let long = |length: usize| "x".repeat(length);
    let front = |name: &str, description: &str, rest: &str| {
        format!("---\nname: {name}\ndescription: {description}\n{rest}---\n\n# Demo\n")
    };
    let mut texts: Vec<String> = NAMES.iter().map(|name| front(name, "Good.", "")).collect();
    texts.extend(descriptions().iter().map(|description| front("demo", description, "")));
    texts.extend(REST.iter().map(|rest| front("demo", "Good.", rest)));
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
fn the_reference_validator_accepts_the_skills_that_are_accepted_here() {
    let texts = texts();
    let opinions = opinions(&texts);
    assert_eq!(opinions.len(), texts.len());
    let known_here = |opinion: &str| ONLY_HERE.iter().any(|(word, _)| opinion.contains(word));
    let known_there = |text: &str| ONLY_THERE.iter().any(|(part, _)| text.contains(part));
    let mut both = 0;
    let mut differ = Vec::new();
    for (text, opinion) in texts.iter().zip(&opinions) {
        match (accepted(text), opinion == "1") {
            (true, true) => both += 1,
            (true, false) if !known_here(opinion) => differ.push(format!("only here: {text:?}: {opinion}")),
            (false, true) if !known_there(text) => differ.push(format!("only there: {text:?}")),
            _ => {}
        }
    }
    assert!(both > 20, "{both}");
    assert_eq!(differ, Vec::<String>::new());
}
