//! Runs the tests. If only a few fail, each of them runs a second time, alone.
//!
//! The end-to-end tests start several programs at a time, and some of them measure times. A stall of the machine can
//! make such a test fail. A test that also fails alone has failed; a test that passes alone is named at the end of the
//! run. If many tests fail, the change is probably the reason, and no test runs again.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use super::command;

/// The largest number of failed tests that run again (our choice).
const MAX_RERUNS: usize = 3;

/// The tests that failed beside others and passed alone. It has the type of an error, but the summary counts it as
/// success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PassedAlone(pub(super) Vec<String>);

/// The result of one run: the names of the tests by outcome, and counts that show whether every failure has a name.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestNames {
    passed: Vec<String>,
    failed: Vec<String>,
    /// The number of failed tests in the summaries of the test programs.
    failures: usize,
    /// Test programs that started and printed no summary: each may hide failed tests.
    unfinished: usize,
    /// Test programs whose summary says that a test failed.
    failed_programs: usize,
    /// Test programs that `cargo` reports as failed.
    reported_programs: usize,
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
/// A test that failed twice, more than [`MAX_RERUNS`] that failed once, tests that did not compile, or [`PassedAlone`].
pub(super) fn run(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<()> {
    let (succeeded, names) = run_once(root, arguments, variables)?;
    if succeeded && names.unfinished == 0 {
        return Ok(());
    }
    let line = format!("`cargo {}` failed", arguments.join(" "));
    if !names.names_every_failure() || names.failed.is_empty() || names.failed.len() > MAX_RERUNS {
        bail!("{}", [vec![line], names.failed].concat().join("\n"));
    }
    let mut second = TestNames::default();
    for name in &names.failed {
        println!("\n--- once more, alone: {name}");
        // With one thread, libtest prints the name of a test before it runs, and output may separate it from the
        // outcome.
        let rerun_arguments = [arguments, &["--", "--exact", "--test-threads=2", name]].concat();
        let (succeeded, outcome) = run_once(root, &rerun_arguments, variables)?;
        if succeeded && outcome.unfinished == 0 {
            second.passed.extend(outcome.passed);
        }
        second.failed.extend(outcome.failed);
    }
    let failed = failed_again(&names.failed, &second);
    ensure!(failed.is_empty(), "{}", [vec![line], failed].concat().join("\n"));
    Err(PassedAlone(names.failed).into())
}

impl TestNames {
    /// Returns whether the named tests explain every failure.
    fn names_every_failure(&self) -> bool {
        self.unfinished == 0 && self.failures == self.failed.len() && self.failed_programs == self.reported_programs
    }

    /// Reads one line of the test programs or of `cargo`.
    fn read_line(&mut self, line: &str) {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.unfinished += 1;
        } else if let Some(summary) = line.strip_prefix("test result: ") {
            self.unfinished = self.unfinished.saturating_sub(1);
            self.failed_programs += usize::from(summary.starts_with("FAILED"));
            let counts = summary.split(['.', ';']).filter_map(|part| part.trim().strip_suffix(" failed"));
            self.failures += counts.filter_map(|count| count.parse::<usize>().ok()).sum::<usize>();
        } else if line.starts_with("error: ") && line.contains("test failed, to rerun pass") {
            self.reported_programs += 1;
        } else if let Some((name, outcome)) = line.strip_prefix("test ").and_then(|test| test.rsplit_once(" ... ")) {
            let name = name.trim_end_matches(" - should panic");
            match outcome {
                "ok" => self.passed.push(name.to_owned()),
                "FAILED" => self.failed.push(name.to_owned()),
                _ => {}
            }
        }
    }
}

/// The tests of the first run that did not pass when they ran alone.
fn failed_again(failed: &[String], second: &TestNames) -> Vec<String> {
    failed.iter().filter(|name| !second.passed.contains(name) || second.failed.contains(name)).cloned().collect()
}

/// Runs `cargo` once. Returns whether it succeeded, and the results of the tests.
fn run_once(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<(bool, TestNames)> {
    println!("$ cargo {}", arguments.join(" "));
    let mut command = command(root, arguments);
    command.envs(variables.iter().map(|(name, value)| (name, value))).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cargo")?;
    let (output, errors) = (child.stdout.take().context("cargo")?, child.stderr.take().context("cargo")?);
    let names = Mutex::new(TestNames::default());
    thread::scope(|scope| {
        let stderr_reader = scope.spawn(|| read_lines(errors, &names, |line| eprintln!("{line}")));
        let read_result = read_lines(output, &names, |line| println!("{line}"));
        stderr_reader
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the reader of cargo's messages has failed")))
            .and(read_result)
    })
    .context("cargo")?;
    Ok((child.wait().context("cargo")?.success(), names.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Prints each line and collects the results of tests.
fn read_lines(output: impl Read, names: &Mutex<TestNames>, print: impl Fn(&str)) -> io::Result<()> {
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        print(&line);
        names.lock().unwrap_or_else(PoisonError::into_inner).read_line(&line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> TestNames {
        let names = Mutex::default();
        read_lines(output.as_bytes(), &names, |_| {}).unwrap();
        names.into_inner().unwrap()
    }

    #[test]
    fn the_names_of_tests_are_kept_by_their_outcome() {
        let output = "running 3 tests\ntest a::b ... ok\ntest a::c - should panic ... FAILED\ntest a::d ... ignored, slow\nfailures:\n    a::c\n";
        let names = read(output);
        assert_eq!((names.passed, names.failed), (vec!["a::b".to_owned()], vec!["a::c".to_owned()]));
        assert_eq!(names.unfinished, 1);
    }

    #[test]
    fn a_failure_without_a_name_is_noticed() {
        let passed = "running 1 test\ntest a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
        let failed = "running 1 test\ntest b ... FAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        let reported = "error: test failed, to rerun pass `--test it`\n";
        assert!(read(passed).names_every_failure());
        assert!(read(&format!("{failed}{passed}{reported}")).names_every_failure());
        let aborted = format!("{passed}running 2 tests\ntest b ... FAILED\n");
        let unnamed = failed.replace("test b", "some output of it, test b");
        let after_summary = format!("{failed}{passed}{reported}{reported}");
        let before_tests = format!("{failed}{reported}error: doctest failed, to rerun pass `--doc`\n");
        for output in [aborted, unnamed + reported, after_summary, before_tests] {
            assert!(!read(&output).names_every_failure(), "{output}");
        }
    }

    #[test]
    fn a_test_that_did_not_pass_the_second_time_has_failed() {
        let failed = ["a", "b", "c"].map(str::to_owned);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        // `a` passed in one test program and failed in another, and `c` did not run.
        let second = TestNames { passed: names(&["a", "b"]), failed: names(&["a"]), ..TestNames::default() };
        assert_eq!(failed_again(&failed, &second), ["a", "c"]);
    }
}
