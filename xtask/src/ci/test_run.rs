//! Runs the tests. If only a few fail, each of them runs a second time, alone.
//!
//! The end-to-end tests start several programs at a time, and some of them measure times. A stall of the machine can
//! make such a test fail. A test that also fails alone has failed; a test that passes alone is named at the end of the
//! run, and has failed if `tests/flaky_tests.txt` names it. If many tests fail, the change is probably the reason, and
//! no test runs again.
//!
//! The time of each test comes from the test program itself (`--report-time`), an unstable option that
//! `RUSTC_BOOTSTRAP` allows. Cargo must not see that variable, or it would build everything again, so it is set by the
//! program that runs the test program. A runner with a process for each test, such as cargo-nextest, would also report
//! times, but the tests of one program share recordings, the data folder, the browser and locks.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::{command, stdout_of};

/// The largest number of failed tests that run again (our choice).
const MAX_RERUNS: usize = 3;
/// The number of tests whose times the summary shows (our choice).
const SLOWEST_TESTS: usize = 10;
/// The tests that have failed beside other tests and passed alone before: a line for each, with the reason.
const FLAKY_TESTS: &str = "tests/flaky_tests.txt";
/// The arguments of a test program that reports the time of each test.
const REPORT_TIMES: [&str; 3] = ["-Z", "unstable-options", "--report-time"];

/// The results of test programs that the summary shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TestReport {
    /// Empty if no step has run tests.
    times: Vec<(Duration, String)>,
    /// The tests that failed beside others and passed alone.
    passed_alone: Vec<String>,
    /// True if tests failed and none of them ran again, so it is not known which of them are flaky.
    has_unrepeated_failures: bool,
}

/// `cargo test` with the arguments and variables of a step.
pub(super) struct TestCommand<'a> {
    root: PathBuf,
    arguments: Vec<&'a str>,
    /// The arguments of each test program.
    program_arguments: Vec<&'static str>,
    variables: Vec<(OsString, OsString)>,
}

/// The result of one run: the names of the tests by outcome, and counts that show whether every failure has a name.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestNames {
    passed: Vec<String>,
    failed: Vec<String>,
    times: Vec<(Duration, String)>,
    /// The number of failed tests in the summaries of the test programs.
    failures: usize,
    /// Test programs that started and printed no summary: each may hide failed tests.
    unfinished: usize,
    /// Test programs whose summary says that a test failed.
    failed_programs: usize,
    /// Test programs that `cargo` reports as failed.
    reported_programs: usize,
}

impl fmt::Display for TestReport {
    /// The slowest tests, and a last line with the tests that passed only alone.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.times.is_empty() {
            return Ok(());
        }
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by(|first, second| second.cmp(first));
        writeln!(formatter, "slowest of {} tests:", times.len())?;
        for (time, name) in times.into_iter().take(SLOWEST_TESTS) {
            writeln!(formatter, "{:>8.1} s  {name}", time.as_secs_f64())?;
        }
        let names = if self.passed_alone.is_empty() { "none".to_owned() } else { self.passed_alone.join(", ") };
        let more =
            if self.has_unrepeated_failures { "; unknown for the failed tests that did not run again" } else { "" };
        let count = self.passed_alone.len();
        writeln!(formatter, "flaky tests (failed beside others, passed alone): {count}: {names}{more}")
    }
}

// === impl TestCommand ===

impl<'a> TestCommand<'a> {
    /// The tests in programs of their own, which report the time of each test.
    pub(super) fn new(root: &Path, arguments: &[&'a str], mut variables: Vec<(OsString, OsString)>) -> Result<Self> {
        let mut program_arguments = Vec::new();
        if cfg!(unix) {
            let host = stdout_of(Command::new("rustc").args(["--print", "host-tuple"]).current_dir(root))?;
            let host = host.trim().to_uppercase().replace('-', "_");
            variables.push((format!("CARGO_TARGET_{host}_RUNNER").into(), "env RUSTC_BOOTSTRAP=1".into()));
            program_arguments.extend(REPORT_TIMES);
        }
        Ok(Self { root: root.to_owned(), arguments: arguments.to_vec(), program_arguments, variables })
    }

    /// The examples in the documentation, which rustdoc runs. It reports no times.
    pub(super) fn of_documentation(root: &Path, arguments: &[&'a str], variables: Vec<(OsString, OsString)>) -> Self {
        Self { root: root.to_owned(), arguments: arguments.to_vec(), program_arguments: Vec::new(), variables }
    }

    /// Runs the tests, and adds their results to the report.
    ///
    /// # Errors
    ///
    /// A test that failed twice, or once and is known to be flaky; more than [`MAX_RERUNS`] tests that failed once; tests
    /// that did not compile.
    pub(super) fn run(&self, report: &mut TestReport) -> Result<()> {
        let list = fs::read_to_string(self.root.join(FLAKY_TESTS)).context(FLAKY_TESTS)?;
        let known = known_flaky_tests(&list)?;
        let (succeeded, mut names) = self.run_once(&[])?;
        report.times.append(&mut names.times);
        if succeeded && names.unfinished == 0 {
            return Ok(());
        }
        let line = format!("`cargo {}` failed", self.arguments.join(" "));
        if !names.names_every_failure() || names.failed.is_empty() || names.failed.len() > MAX_RERUNS {
            report.has_unrepeated_failures = true;
            bail!("{}", [vec![line], names.failed].concat().join("\n"));
        }
        let mut second = TestNames::default();
        for name in &names.failed {
            println!("\n--- once more, alone: {name}");
            // With one thread, libtest prints the name of a test before it runs, and output may separate it from the
            // outcome.
            let (succeeded, outcome) = self.run_once(&["--exact", "--test-threads=2", name])?;
            if succeeded && outcome.unfinished == 0 {
                second.passed.extend(outcome.passed);
            }
            second.failed.extend(outcome.failed);
        }
        let failed = failed_again(&names.failed, &second);
        let flaky: Vec<String> = names.failed.into_iter().filter(|name| !failed.contains(name)).collect();
        report.passed_alone.extend(flaky.iter().cloned());
        ensure!(failed.is_empty(), "{}", [vec![line], failed].concat().join("\n"));
        let again: Vec<&str> = flaky.iter().map(String::as_str).filter(|name| known.contains(name)).collect();
        ensure!(again.is_empty(), "flaky before ({FLAKY_TESTS}), and again: {}", again.join(", "));
        println!("\nmend the flaky tests, or add them with a reason to {FLAKY_TESTS}: {}", flaky.join(", "));
        Ok(())
    }

    /// Runs `cargo` once. Returns whether it succeeded, and the results of the tests.
    fn run_once(&self, filter: &[&str]) -> Result<(bool, TestNames)> {
        let program_arguments = [&self.program_arguments[..], filter].concat();
        let separator: &[&str] = if program_arguments.is_empty() { &[] } else { &["--"] };
        let arguments = [&self.arguments[..], separator, &program_arguments].concat();
        println!("$ cargo {}", arguments.join(" "));
        let mut command = command(&self.root, &arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cargo")?;
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
}

/// The names in the list of flaky tests. Lines that begin with `#` explain it.
fn known_flaky_tests(list: &str) -> Result<Vec<&str>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let names = lines.map(|line| {
        let (name, reason) = line.split_once(' ').unwrap_or((line, ""));
        ensure!(!reason.trim().is_empty(), "{FLAKY_TESTS}: `{name}` has no reason");
        Ok(name)
    });
    names.collect()
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
            let (outcome, time) = split_time(outcome);
            self.times.extend(time.map(|time| (time, name.to_owned())));
            match outcome {
                "ok" => self.passed.push(name.to_owned()),
                "FAILED" => self.failed.push(name.to_owned()),
                _ => {}
            }
        }
    }
}

/// Splits `ok <1.234s>`, the outcome of a test with its time.
fn split_time(outcome: &str) -> (&str, Option<Duration>) {
    let Some((word, time)) = outcome.split_once(" <") else { return (outcome, None) };
    let seconds = time.strip_suffix("s>").and_then(|seconds| seconds.parse().ok());
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(time) => (word, Some(time)),
        None => (outcome, None),
    }
}

/// The tests of the first run that did not pass when they ran alone.
fn failed_again(failed: &[String], second: &TestNames) -> Vec<String> {
    failed.iter().filter(|name| !second.passed.contains(name) || second.failed.contains(name)).cloned().collect()
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

    #[test]
    fn the_time_of_a_test_is_kept() {
        let names = read("test a::b ... ok <1.250s>\ntest a::c ... FAILED <0.500s>\ntest a::d ... ignored\n");
        assert_eq!((names.passed, names.failed), (vec!["a::b".to_owned()], vec!["a::c".to_owned()]));
        let times = [(1250, "a::b"), (500, "a::c")];
        assert_eq!(names.times, times.map(|(time, name)| (Duration::from_millis(time), name.to_owned())));
    }

    #[test]
    fn the_report_has_the_slowest_tests_and_ends_with_the_flaky_ones() {
        let times: Vec<_> = (1..=12).map(|number| (Duration::from_secs(number), format!("t{number}"))).collect();
        let mut report = TestReport { times, passed_alone: vec!["a::b".to_owned()], ..TestReport::default() };
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[1]), (12, "slowest of 12 tests:", "    12.0 s  t12"));
        assert_eq!(lines[10..], ["     3.0 s  t3", "flaky tests (failed beside others, passed alone): 1: a::b"]);
        report.has_unrepeated_failures = true;
        assert!(report.to_string().ends_with("1: a::b; unknown for the failed tests that did not run again\n"));
        assert_eq!(TestReport::default().to_string(), "");
    }

    #[test]
    fn a_flaky_test_is_known_only_with_a_reason() {
        let list = "# a comment\n\na::b issue 12: it waits for a disk\n";
        assert_eq!(known_flaky_tests(list).unwrap(), ["a::b"]);
        assert!(known_flaky_tests("a::b\n").is_err());
    }

    /// The list grows only together with this number, so that a review sees it.
    #[test]
    fn the_list_of_flaky_tests_has_not_grown() {
        const KNOWN: usize = 0;
        let list = fs::read_to_string(crate::tree::root().join(FLAKY_TESTS)).unwrap();
        assert_eq!(known_flaky_tests(&list).unwrap().len(), KNOWN);
    }
}
