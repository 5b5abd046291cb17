//! The steps that run tests, and the tasks with tests that no step runs.

use std::env;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use anyhow::Result;

use super::features::EVERYTHING;
use super::test_run::{TestCommand, TestReport};
use super::{build_release, cargo, external_tools, run_all_checks, test_program};
use crate::postgres::PostgresServer;

/// The arguments that all test steps share, so that a step reuses the build results of another step.
const TESTS: [&str; 5] = ["test", "--workspace", "--features", EVERYTHING, "--no-fail-fast"];

pub(super) fn unit(root: &Path, report: &mut TestReport) -> Result<()> {
    TestCommand::new(root, &[&TESTS[..], &["--lib", "--bins"]].concat(), variables([]))?.run(report)
}

pub(super) fn test(root: &Path, report: &mut TestReport) -> Result<()> {
    let mut clients = external_tools::prepare_clients(root)?;
    let server = PostgresServer::start()?;
    clients.push(server.variable());
    let variables = variables(clients);
    let programs = TestCommand::new(root, &[&TESTS[..], &["--tests"]].concat(), variables.clone())?.run(report);
    let documentation = TestCommand::of_documentation(root, &[&TESTS[..], &["--doc"]].concat(), variables).run(report);
    run_all_checks([programs, documentation])
}

/// The tests of the inputs that cargo-fuzz has stored; the step `test` repeats only earlier findings.
pub(super) fn corpora(root: &Path) -> Result<()> {
    let stored = (OsString::from("IMAGATE_FUZZ_CORPUS"), OsString::from("1"));
    cargo(root, &["test", "--workspace", "--features", EVERYTHING, "--test", "fuzz"], &[stored])
}

fn variables(given: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    given.into_iter().chain(test_threads()).collect()
}

/// Sets three test threads for each core, because most tests wait for a program, a time or a lock.
#[expect(clippy::disallowed_methods, reason = "a number of threads that the user sets is kept")]
fn test_threads() -> Option<(OsString, OsString)> {
    const NAME: &str = "RUST_TEST_THREADS";
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    env::var_os(NAME).is_none().then(|| (NAME.into(), (cores * 3).to_string().into()))
}

/// Runs the tests of further real clients that `cargo xtask test` omits, because they need large installations or take
/// long.
///
/// # Errors
///
/// A test that failed.
pub fn tours(root: &Path) -> Result<()> {
    let arguments = [
        "test",
        "--features",
        EVERYTHING,
        "--test",
        "it",
        "--",
        "--ignored",
        "clients::kept",
        "agents::",
        "--test-threads=1",
    ];
    cargo(root, &arguments, &[])
}

/// Measures the effect of hostile callers on other callers of a release build: each kind alone, then all kinds together.
///
/// # Errors
///
/// Returns an error if a bound is exceeded.
pub fn abuse(root: &Path) -> Result<()> {
    let program = test_program(build_release(root)?);
    let arguments = ["test", "--features", EVERYTHING, "--test", "it", "--", "--ignored", "abuse::", "--nocapture"];
    cargo(root, &arguments, &[program])
}

/// Takes a screenshot of every page in every state, light and dark, for the desktop and for a phone.
///
/// # Errors
///
/// A page that cannot be rendered.
pub fn screenshots(root: &Path, folder: Option<&str>) -> Result<()> {
    let folder = folder.map_or_else(|| root.join("target").join("screenshots"), |folder| root.join(folder));
    let variable = (OsString::from("IMAGATE_SCREENSHOTS"), folder.clone().into_os_string());
    let arguments = ["test", "--features", EVERYTHING, "--test", "it", "--", "--ignored", "pages::album"];
    cargo(root, &arguments, &[variable])?;
    println!("{}", folder.display());
    Ok(())
}
