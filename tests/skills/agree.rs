//! The check, the Rust types and a JSON Schema validator in Python agree on the shape of manifests.

use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use imagate::manifest::rules::RuleClass;
use imagate::manifest::{CheckOptions, Manifest, SourceFile, check};

use crate::corpus::{cases, folder};
use crate::mutate::{RandomNumbers, mutated, seeds};

const MUTATIONS: usize = 10_000;

/// Returns whether the check finds no error of shape, or `None` if the manifest exceeds a limit (rule M007).
fn verdict(bytes: &[u8]) -> Option<bool> {
    let report = check(SourceFile::new("", bytes), &CheckOptions::default());
    let mut shape =
        report.findings().iter().map(imagate::manifest::Finding::rule).filter(|rule| rule.class == RuleClass::Shape);
    let is_limit = shape.clone().any(|rule| rule.id == "M007");
    (!is_limit).then(|| shape.next().is_none())
}

/// Returns for each document whether the reference validator accepts it.
fn reference_verdicts(documents: &[Vec<u8>]) -> Vec<bool> {
    let script = folder().parent().expect("tests").join("clients/schema_verdicts.py");
    let schema = folder().join("../../schemas/skills-registry.schema.json");
    let mut command = Command::new(crate::outside::python("jsonschema", "IMAGATE_PY_JSONSCHEMA"));
    let mut child = command
        .arg(script)
        .arg(schema)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut input = child.stdin.take().expect("a pipe");
    let lines: String = documents.iter().map(|bytes| STANDARD.encode(bytes) + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the output of the child");
    writer.join().expect("the writer").expect("the child reads all of its input");
    assert!(output.status.success(), "{command:?}");
    output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| line == b"1").collect()
}

/// Compares the three verdicts on each document. Returns the numbers of valid and of invalid documents.
fn compare(documents: &[Vec<u8>]) -> (usize, usize) {
    let expected = reference_verdicts(documents);
    assert_eq!(expected.len(), documents.len());
    let mut counts = (0, 0);
    for (bytes, reference_verdict) in documents.iter().zip(expected) {
        let Some(verdict) = verdict(bytes) else { continue };
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(verdict, reference_verdict, "the check and the validator do not agree on {shown}");
        let is_readable = Manifest::read(&SourceFile::new("", bytes.as_slice())).is_ok();
        assert_eq!(verdict, is_readable, "the check and the types do not agree on {shown}");
        if verdict { counts.0 += 1 } else { counts.1 += 1 }
    }
    counts
}

#[test]
fn the_reference_validator_agrees_on_the_corpus() {
    let documents: Vec<Vec<u8>> = cases().iter().map(|case| case.source.bytes().to_vec()).collect();
    let (valid, invalid) = compare(&documents);
    assert!(valid > 50 && invalid > 30, "{valid} {invalid}");
}

#[test]
fn the_reference_validator_agrees_on_ten_thousand_mutations() {
    let (seeds, mut dice) = (seeds(), RandomNumbers::new(7));
    let documents: Vec<Vec<u8>> = (0..MUTATIONS).map(|_| mutated(&seeds, &mut dice)).collect();
    let (valid, invalid) = compare(&documents);
    println!("{valid} valid documents, {invalid} invalid ones");
    assert!(valid > MUTATIONS / 10 && invalid > MUTATIONS / 10, "{valid} {invalid}");
}
