//! `cargo xtask test`: all checks that must pass before a change is merged, one step after another, on any machine.
//!
//! This module defines the steps and their order. A failed step prevents only those steps that need it; at the end all
//! failures are listed. The steps use only programs that are installed or can be built under `target/`; if a program is
//! missing, the step `tools` says how to install it.

mod debian_compiler;
mod dependencies;
mod deployment;
pub(crate) mod external_tools;
pub(crate) mod features;
mod linters;
mod metadata;
mod oldest_rust;
mod rust_version;
mod test_run;
pub mod wasm;

use std::env;
use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::postgres::PostgresServer;
use crate::{tidy, tree};
use features::EVERYTHING;
pub(crate) use metadata::{docs_rs_features, package_version, target_folder};
use test_run::PassedAlone;

/// One check.
struct Step {
    name: &'static str,
    description: &'static str,
    /// The step that checks the prerequisites of this step.
    needs: Option<&'static str>,
    /// The step that includes this step: if both are chosen, only that one runs.
    part_of: Option<&'static str>,
    run: fn(&Path) -> Result<()>,
}

/// Cheap steps come first; later steps reuse the build results of earlier ones.
const STEPS: [Step; 19] = [
    Step::new("tools", "the programs that the other steps need are installed", external_tools::check_tools),
    Step::new("fmt", "the code is formatted", fmt),
    Step::new("generate", "generated/ and the tables are up to date with the documents", generate),
    Step::new("tidy", "ARCHITECTURE.md and docs/specification.md are correct, sizes within bounds", tidy_up),
    Step::new("statements", "the sentences are those that were accepted", crate::statements::check),
    Step::new("deploy", "the files of docs/deploy are valid for the programs that read them", deployment::check)
        .needs("tools"),
    Step::new("openapi", "two linters find nothing in the API documents", linters::check).needs("tools"),
    Step::new("clippy", "clippy reports nothing", clippy),
    Step::new("unit", "the unit tests", unit).part_of("test"),
    Step::new("test", "all tests, also those with real clients in Python, Node and curl", test).needs("tools"),
    Step::new("mutations", "a test detects each of some seeded changes", crate::mutations::check),
    Step::new("examples", "the programs of examples/ make images with the simulator", crate::examples::run),
    Step::new(
        "instructions",
        "the code in the way of a request has no more instructions than recorded",
        crate::instructions::check,
    ),
    Step::new("features", "each feature builds alone", features::check),
    Step::new("public-api", "the public API is that of tests/golden/public_api.txt", crate::public_api::check),
    Step::new("doc", "the documentation builds without a warning", doc),
    Step::new("package", "the package builds from the files that it contains, and could be published", package),
    Step::new(
        "tree",
        "the dependencies of each feature: which, how many, and the Rust that they need",
        dependencies::check_trees,
    ),
    Step::new("msrv", "the SDK compiles with the oldest Rust that it promises", oldest_rust::check),
];

/// The steps to run before each commit. They need no network, and take less than three minutes if everything is built.
const CHECK: [&str; 6] = ["fmt", "generate", "tidy", "statements", "clippy", "unit"];

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Ok(Duration),
    /// Some tests failed beside other tests and passed alone.
    PassedAlone(Duration, PassedAlone),
    Failed(Duration, String),
    /// The named step, which this step needs, has failed.
    NotRun(&'static str),
}

/// The outcomes of the steps, in order.
type Outcomes = Vec<(&'static str, Outcome)>;

// === impl Step ===

impl Step {
    const fn new(name: &'static str, description: &'static str, run: fn(&Path) -> Result<()>) -> Self {
        Self { name, description, needs: None, part_of: None, run }
    }

    const fn needs(self, needs: &'static str) -> Self {
        Self { needs: Some(needs), ..self }
    }

    const fn part_of(self, containing_step: &'static str) -> Self {
        Self { part_of: Some(containing_step), ..self }
    }
}

/// Runs the steps that the arguments choose; `true` means that all of them passed.
///
/// # Errors
///
/// An unknown argument.
pub fn run(root: &Path, arguments: &[&str]) -> Result<bool> {
    if arguments == ["--list"] {
        for step in STEPS {
            println!("{:10} {}", step.name, step.description);
        }
        return Ok(true);
    }
    Ok(report(&run_all(root, &selected_steps(arguments)?)))
}

/// Runs the steps that are quick once everything is built; `true` means that all of them passed.
pub fn check(root: &Path) -> bool {
    report(&run_all(root, &steps(&CHECK)))
}

/// Prints the result of each step; `true` means that all of them passed.
fn report(outcomes: &Outcomes) -> bool {
    print!("\n{}", summary(outcomes));
    outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Ok(_) | Outcome::PassedAlone(..)))
}

/// Runs each step, even after a failure, unless the step that it needs failed.
fn run_all(root: &Path, steps: &[&Step]) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for step in steps {
        let has_failed =
            |name: &str| outcomes.iter().any(|(step, outcome)| *step == name && matches!(outcome, Outcome::Failed(..)));
        let outcome = match step.needs.filter(|name| has_failed(name)) {
            Some(needs) => Outcome::NotRun(needs),
            None => run_step(root, step),
        };
        outcomes.push((step.name, outcome));
    }
    outcomes
}

/// All steps, or those that `--only` names.
fn selected_steps(arguments: &[&str]) -> Result<Vec<&'static Step>> {
    ensure!(arguments.len().is_multiple_of(2), "expected `--only STEP` or `--list`");
    let mut names = Vec::new();
    for option in arguments.chunks(2) {
        let ["--only", name] = option else { bail!("expected `--only STEP` or `--list`, not `{}`", option.join(" ")) };
        ensure!(STEPS.iter().any(|step| step.name == *name), "unknown step `{name}`; `--list` shows all steps");
        names.push(*name);
    }
    Ok(if names.is_empty() { steps(&STEPS.map(|step| step.name)) } else { steps(&names) })
}

/// The steps with these names, without those that are part of another chosen step.
fn steps(names: &[&str]) -> Vec<&'static Step> {
    const ALL: &[Step] = &STEPS;
    let is_done_elsewhere = |step: &Step| step.part_of.is_some_and(|containing_step| names.contains(&containing_step));
    ALL.iter().filter(|step| names.contains(&step.name) && !is_done_elsewhere(step)).collect()
}

fn run_step(root: &Path, step: &Step) -> Outcome {
    println!("\n=== {}: {}", step.name, step.description);
    let start = Instant::now();
    match (step.run)(root) {
        Ok(()) => Outcome::Ok(start.elapsed()),
        Err(error) => {
            println!("\n{}: {error:#}", step.name);
            match error.downcast::<PassedAlone>() {
                Ok(tests) => Outcome::PassedAlone(start.elapsed(), tests),
                Err(error) => Outcome::Failed(start.elapsed(), format!("{error:#}")),
            }
        }
    }
}

/// One line for each step, then the failures with their reasons.
fn summary(outcomes: &[(&'static str, Outcome)]) -> String {
    let line = |(name, outcome): &(&str, Outcome)| match outcome {
        Outcome::Ok(time) => format!("ok       {name:10} {:>5} s\n", time.as_secs()),
        Outcome::PassedAlone(time, tests) => format!("ok       {name:10} {:>5} s  {tests}\n", time.as_secs()),
        Outcome::Failed(time, _) => format!("FAILED   {name:10} {:>5} s\n", time.as_secs()),
        Outcome::NotRun(needs) => format!("not run  {name:10}         needs {needs}, which failed\n"),
    };
    let reason = |(name, outcome): &(&str, Outcome)| match outcome {
        Outcome::Failed(_, reason) => {
            Some(format!("\n{name} (again: cargo xtask test --only {name})\n  {}\n", reason.replace('\n', "\n  ")))
        }
        Outcome::Ok(_) | Outcome::PassedAlone(..) | Outcome::NotRun(_) => None,
    };
    let lines: String = outcomes.iter().map(line).collect();
    let reasons: String = outcomes.iter().filter_map(reason).collect();
    if reasons.is_empty() { lines } else { format!("{lines}\nfailed:\n{reasons}") }
}

/// Runs every check, even after a failure.
fn run_all_checks(checks: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let failures: Vec<String> = checks.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn fmt(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all", "--check"], &[])
}

fn generate(root: &Path) -> Result<()> {
    let outputs = crate::generate(&tree::read(root)?)?;
    let stale: Vec<&str> =
        tree::stale_outputs(root, &outputs)?.into_iter().map(|output| output.path.as_str()).collect();
    ensure!(stale.is_empty(), "stale: {}; run `cargo xtask generate`", stale.join(", "));
    Ok(())
}

fn tidy_up(root: &Path) -> Result<()> {
    let findings = tidy::check(&tidy::read(root)?)?;
    for finding in &findings {
        println!("{finding}");
    }
    ensure!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}

fn clippy(root: &Path) -> Result<()> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--features", EVERYTHING, "--", "-D", "warnings"], &[])
}

/// The arguments that all test steps share, so that a step reuses the build results of another step.
const TESTS: [&str; 5] = ["test", "--workspace", "--features", EVERYTHING, "--no-fail-fast"];

fn unit(root: &Path) -> Result<()> {
    run_tests(root, &[&TESTS[..], &["--lib", "--bins"]].concat(), Vec::new())
}

fn test(root: &Path) -> Result<()> {
    let mut variables = external_tools::prepare_clients(root)?;
    let server = PostgresServer::start()?;
    variables.push(server.variable());
    run_tests(root, &TESTS, variables)
}

fn run_tests(root: &Path, arguments: &[&str], mut variables: Vec<(OsString, OsString)>) -> Result<()> {
    variables.extend(test_threads());
    test_run::run(root, arguments, &variables)
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

/// Measures the effect of hostile callers on other callers: each kind alone, then all kinds together.
///
/// # Errors
///
/// Returns an error if a bound is exceeded.
pub fn abuse(root: &Path) -> Result<()> {
    let arguments = ["test", "--features", EVERYTHING, "--test", "it", "--", "--ignored", "abuse::", "--nocapture"];
    cargo(root, &arguments, &[])
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

fn doc(root: &Path) -> Result<()> {
    let deny_warnings = (OsString::from("RUSTDOCFLAGS"), OsString::from("-D warnings"));
    cargo(root, &["doc", "--no-deps", "--features", EVERYTHING], &[deny_warnings])?;
    crate::public_api::check_docs_rs(root)
}

fn package(root: &Path) -> Result<()> {
    // It includes `cargo package`, and checks also what the registry would refuse.
    cargo(root, &["publish", "--package", "imagate", "--dry-run", "--allow-dirty"], &[])
}

pub(crate) fn cargo(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<()> {
    println!("$ cargo {}", arguments.join(" "));
    let mut command = command(root, arguments);
    let status = command.envs(variables.iter().map(|(name, value)| (name, value))).status().context("cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Runs a command, and returns its standard output.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().with_context(|| line.clone())?;
    ensure!(output.status.success(), "{line} failed");
    String::from_utf8(output.stdout).context(line)
}

#[expect(clippy::disallowed_methods, reason = "cargo passes its own path only in the environment")]
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Command {
    let cargo = env::var_os("CARGO");
    let mut command = Command::new(cargo.as_deref().unwrap_or_else(|| OsStr::new("cargo")));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Result<Vec<&'static str>> {
        Ok(selected_steps(arguments)?.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn arguments_choose_one_several_or_all_steps() {
        assert_eq!(
            names(&[]).unwrap(),
            STEPS.map(|step| step.name).into_iter().filter(|name| *name != "unit").collect::<Vec<_>>()
        );
        assert_eq!(names(&["--only", "doc", "--only", "fmt"]).unwrap(), ["fmt", "doc"]);
        for wrong in [&["--only"] as &[&str], &["--only", "all"], &["fmt", "doc"], &["--list", "fmt"]] {
            assert!(names(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_failed_step_prevents_only_steps_that_need_it() {
        let steps = [
            Step::new("tools", "", |_| bail!("missing: curl")),
            Step::new("fmt", "", |_| Ok(())),
            Step::new("clippy", "", |_| bail!("a lint")),
            Step::new("test", "", |_| bail!("not reached")).needs("tools"),
            Step::new("doc", "", |_| Ok(())),
            Step::new("unit", "", |_| Err(PassedAlone(vec!["a::b".to_owned()]).into())),
        ];
        let outcomes = run_all(Path::new(""), &steps.iter().collect::<Vec<_>>());
        let label = |index: usize| match &outcomes[index].1 {
            Outcome::Ok(_) => "ok",
            Outcome::PassedAlone(..) => "ok, alone",
            Outcome::Failed(_, reason) => reason,
            Outcome::NotRun(needs) => needs,
        };
        let labels: Vec<&str> = (0..outcomes.len()).map(label).collect();
        assert_eq!(labels, ["missing: curl", "ok", "a lint", "tools", "ok", "ok, alone"]);
    }

    #[test]
    fn a_step_that_is_not_chosen_prevents_no_other_step() {
        let step = Step::new("test", "", |_| Ok(())).needs("tools");
        assert!(matches!(run_all(Path::new(""), &[&step])[0].1, Outcome::Ok(_)));
    }

    #[test]
    fn the_unit_tests_run_alone_or_among_all_tests_and_never_twice() {
        assert_eq!(names(&["--only", "unit"]).unwrap(), ["unit"]);
        assert_eq!(names(&["--only", "unit", "--only", "test"]).unwrap(), ["test"]);
        assert_eq!(steps(&CHECK).into_iter().map(|step| step.name).collect::<Vec<_>>(), CHECK);
    }

    #[test]
    fn each_step_needs_an_earlier_one() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(
                step.needs.is_none_or(|needs| STEPS[..index].iter().any(|step| step.name == needs)),
                "{}",
                step.name
            );
        }
    }

    #[test]
    fn every_check_runs_and_every_failure_is_reported() {
        let mut done = 0;
        let result = run_all_checks((0..3).map(|number| {
            done += 1;
            if number == 1 { Ok(()) } else { Err(anyhow::anyhow!("check {number}")) }
        }));
        assert_eq!((result.unwrap_err().to_string().as_str(), done), ("check 0\ncheck 2", 3));
    }

    #[test]
    fn the_summary_ends_with_the_failures() {
        let second = Duration::from_secs(1);
        let text = summary(&[
            ("fmt", Outcome::Ok(second)),
            ("clippy", Outcome::Failed(second, "two\nlines".to_owned())),
            ("test", Outcome::NotRun("tools")),
        ]);
        assert_eq!(
            text,
            "ok       fmt            1 s\n\
             FAILED   clippy         1 s\n\
             not run  test               needs tools, which failed\n\n\
             failed:\n\n\
             clippy (again: cargo xtask test --only clippy)\n  two\n  lines\n"
        );
        let passed_alone = Outcome::PassedAlone(second, PassedAlone(vec!["a::b".to_owned()]));
        assert_eq!(
            summary(&[("fmt", Outcome::Ok(second)), ("test", passed_alone)]),
            "ok       fmt            1 s\n\
             ok       test           1 s  failed beside other tests and passed alone: a::b\n"
        );
    }
}
