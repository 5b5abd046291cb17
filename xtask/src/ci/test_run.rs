//! Runs the tests, and each of a few that failed once more, alone.
//!
//! The end-to-end tests start several programs at a time, and some of them measure how long something takes. A machine that
//! stalls can break one of those. A test that fails again when nothing runs beside it has failed; one that passes is named at
//! the end of the run, so that nobody overlooks it. If many tests fail, the change is the reason, and none is run again.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};

use super::command;

/// The largest number of failed tests that are run again.
const MOST_AGAIN: usize = 3;

/// The tests that passed only when nothing ran beside them. It is an error to everybody but the summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PassedAlone(pub(super) Vec<String>);

/// The names of the tests of one run, by their outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestNames {
    passed: Vec<String>,
    failed: Vec<String>,
    /// Test programs that began and did not come to their end: each may hide tests that failed.
    unfinished: usize,
}

impl fmt::Display for PassedAlone {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "failed beside other tests and passed alone: {}", self.0.join(", "))
    }
}

impl std::error::Error for PassedAlone {}

/// Runs `cargo` with these arguments and variables.
///
/// # Errors
///
/// A test that failed twice, more than [`MOST_AGAIN`] that failed once, tests that did not compile, or [`PassedAlone`].
pub(super) fn run(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<()> {
    let (succeeded, names) = run_once(root, arguments, variables)?;
    if succeeded {
        return Ok(());
    }
    let line = format!("`cargo {}` failed", arguments.join(" "));
    if names.unfinished > 0 || names.failed.is_empty() || names.failed.len() > MOST_AGAIN {
        bail!("{}", [vec![line], names.failed].concat().join("\n"));
    }
    let mut second = TestNames::default();
    for name in &names.failed {
        println!("\n--- once more, alone: {name}");
        // With one thread the name and the outcome of a long test stand in two lines.
        let again = [arguments, &["--", "--exact", "--test-threads=2", name]].concat();
        let (_, outcome) = run_once(root, &again, variables)?;
        second.passed.extend(outcome.passed);
        second.failed.extend(outcome.failed);
    }
    let failed = failed_again(&names.failed, &second);
    ensure!(failed.is_empty(), "{}", [vec![line], failed].concat().join("\n"));
    Err(PassedAlone(names.failed).into())
}

/// The tests of the first run that did not pass when they ran alone.
fn failed_again(failed: &[String], second: &TestNames) -> Vec<String> {
    failed.iter().filter(|name| !second.passed.contains(name) || second.failed.contains(name)).cloned().collect()
}

/// `true` if everything passed, and the names of the tests.
fn run_once(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<(bool, TestNames)> {
    println!("$ cargo {}", arguments.join(" "));
    let mut command = command(root, arguments);
    command.envs(variables.iter().map(|(name, value)| (name, value))).stdout(Stdio::piped());
    let mut child = command.spawn().context("cargo")?;
    let names = child.stdout.take().map(test_names).transpose().context("cargo")?.unwrap_or_default();
    Ok((child.wait().context("cargo")?.success(), names))
}

/// Prints the output of the tests, and collects their names, which would be lost in it.
fn test_names(output: impl Read) -> io::Result<TestNames> {
    let mut names = TestNames::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            names.unfinished += 1;
        } else if line.starts_with("test result: ") {
            names.unfinished = names.unfinished.saturating_sub(1);
        }
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|test| test.rsplit_once(" ... ")) else {
            continue;
        };
        let name = name.trim_end_matches(" - should panic");
        match outcome {
            "ok" => names.passed.push(name.to_owned()),
            "FAILED" => names.failed.push(name.to_owned()),
            _ => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_tests_are_kept_by_their_outcome() {
        let output = "running 3 tests\ntest a::b ... ok\ntest a::c - should panic ... FAILED\ntest a::d ... ignored, slow\nfailures:\n    a::c\n";
        let names = test_names(output.as_bytes()).unwrap();
        assert_eq!((names.passed, names.failed), (vec!["a::b".to_owned()], vec!["a::c".to_owned()]));
        assert_eq!(names.unfinished, 1);
    }

    #[test]
    fn a_program_that_ends_early_is_noticed() {
        let whole = "running 1 test\ntest a ... ok\ntest result: ok. 1 passed\n";
        let unfinished = |output: &str| test_names(output.as_bytes()).unwrap().unfinished;
        assert_eq!(unfinished(whole), 0);
        assert_eq!(unfinished(&format!("{whole}running 2 tests\ntest b ... FAILED\n{whole}")), 1);
    }

    #[test]
    fn a_test_that_did_not_pass_the_second_time_has_failed() {
        let failed = ["a", "b", "c"].map(str::to_owned);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        // `a` passed in one test program and failed in another, and `c` did not run.
        let second = TestNames { passed: names(&["a", "b"]), failed: names(&["a"]), unfinished: 0 };
        assert_eq!(failed_again(&failed, &second), ["a", "c"]);
    }
}
