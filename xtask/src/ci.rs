//! The checks that must pass, one step after another, on any machine: `cargo xtask test` has the steps for a change, and
//! `cargo xtask release-checks` those for a release.
//!
//! This module defines the steps and their order. A failed step prevents only those steps that need it; at the end all
//! failures are listed. The step `tools` installs missing programs where it can, or says how to install them.

mod dependencies;
mod deployment;
pub(crate) mod external_tools;
pub(crate) mod features;
mod linters;
mod metadata;
mod oldest_rust;
mod outcomes;
mod rust_version;
mod test_run;
mod test_steps;
pub mod wasm;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{tidy, tree};
use features::EVERYTHING;
pub(crate) use metadata::{docs_rs_features, package_version, target_folder};
use outcomes::run_all;
use test_run::TestReport;
pub use test_steps::{abuse, screenshots, tours};

/// The steps of a task.
#[derive(Clone, Copy)]
pub struct CheckSuite {
    /// The name of the task.
    task: &'static str,
    steps: &'static [Step],
}

/// One check.
struct Step {
    name: &'static str,
    description: &'static str,
    /// The step that checks the prerequisites of this step.
    needs: Option<&'static str>,
    /// The step that includes this step: if both are chosen, only that one runs.
    part_of: Option<&'static str>,
    run: StepFunction,
}

/// The function of a step.
#[derive(Clone, Copy)]
enum StepFunction {
    Check(fn(&Path) -> Result<()>),
    /// It also adds the results of tests to the report.
    Tests(fn(&Path, &mut TestReport) -> Result<()>),
}

/// The steps for each change. Cheap steps come first; later steps reuse the build results of earlier ones.
pub const TEST: CheckSuite = CheckSuite {
    task: "test",
    steps: &[
        Step::new("tools", "the programs that the other steps need are installed", external_tools::install_for_tests),
        Step::new("fmt", "the code is formatted", fmt),
        Step::new("generate", "generated/ and the tables are up to date with the documents", generate),
        Step::new("tidy", "ARCHITECTURE.md and docs/specification.md are correct, sizes within bounds", tidy_up),
        Step::new("statements", "the sentences are those that were accepted", crate::statements::check),
        Step::new("openapi", "two linters find nothing in the API documents", linters::check).needs("tools"),
        Step::of_tests("unit", "the unit tests", test_steps::unit).part_of("test"),
        Step::of_tests("test", "all tests, also those with real clients in Python, Node and curl", test_steps::test)
            .needs("tools"),
        Step::new(
            "tree",
            "the dependencies of each feature: which, how many, and the Rust that they need",
            dependencies::check_trees,
        ),
    ],
};

/// The steps that a release needs, too, and a change does not.
pub const RELEASE: CheckSuite = CheckSuite {
    task: "release-checks",
    steps: &[
        Step::new("tools", "the programs that the other steps need are installed", external_tools::install_for_release),
        Step::new("clippy", "clippy reports nothing", clippy),
        Step::new("public-api", "the public API is that of tests/golden/public_api.txt", crate::public_api::check),
        Step::new("deploy", "the files of docs/deploy are valid for the programs that read them", deployment::check)
            .needs("tools"),
        Step::new("corpora", "the stored inputs of cargo-fuzz are complete, and break nothing", test_steps::corpora),
        Step::new("mutations", "a test detects each of some seeded changes", crate::mutations::check),
        Step::new("examples", "the programs of examples/ make images with the simulator", crate::examples::run),
        Step::new(
            "instructions",
            "the code in the way of a request has no more instructions than recorded",
            crate::instructions::check,
        ),
        Step::new("features", "each feature builds alone", features::check),
        Step::new("doc", "the documentation builds without a warning", doc),
        Step::new("package", "the package builds from the files that it contains, and could be published", package),
        Step::new("msrv", "the SDK compiles with the oldest Rust that it promises", oldest_rust::check),
    ],
};

/// The steps to run before each commit. They need no network, and take less than three minutes if everything is built.
const CHECK: [&str; 6] = ["fmt", "generate", "tidy", "statements", "clippy", "unit"];

// === impl Step ===

impl Step {
    const fn new(name: &'static str, description: &'static str, run: fn(&Path) -> Result<()>) -> Self {
        Self { name, description, needs: None, part_of: None, run: StepFunction::Check(run) }
    }

    const fn of_tests(
        name: &'static str,
        description: &'static str,
        run: fn(&Path, &mut TestReport) -> Result<()>,
    ) -> Self {
        Self { name, description, needs: None, part_of: None, run: StepFunction::Tests(run) }
    }

    const fn needs(self, needs: &'static str) -> Self {
        Self { needs: Some(needs), ..self }
    }

    const fn part_of(self, containing_step: &'static str) -> Self {
        Self { part_of: Some(containing_step), ..self }
    }
}

// === impl CheckSuite ===

impl CheckSuite {
    /// Runs the steps that the arguments choose; `true` means that all of them passed.
    ///
    /// # Errors
    ///
    /// An unknown argument.
    pub fn run(self, root: &Path, arguments: &[&str]) -> Result<bool> {
        if arguments == ["--list"] {
            for step in self.steps {
                println!("{:10} {}", step.name, step.description);
            }
            return Ok(true);
        }
        self.run_steps(root, &self.selected_steps(arguments)?)
    }

    fn run_steps(self, root: &Path, steps: &[&Step]) -> Result<bool> {
        let outcomes = run_all(root, steps);
        print!("\n{}", outcomes.summary(self.task));
        println!("lines of code in src/: {}", tidy::CodeLines::from_sources(&tidy::read(root)?).total());
        print!("{}", outcomes.tests);
        Ok(outcomes.passed())
    }

    /// All steps, or those that `--only` names.
    fn selected_steps(self, arguments: &[&str]) -> Result<Vec<&'static Step>> {
        ensure!(arguments.len().is_multiple_of(2), "expected `--only STEP` or `--list`");
        let mut names = Vec::new();
        for option in arguments.chunks(2) {
            let ["--only", name] = option else {
                bail!("expected `--only STEP` or `--list`, not `{}`", option.join(" "))
            };
            ensure!(
                self.steps.iter().any(|step| step.name == *name),
                "unknown step `{name}`; `--list` shows all steps"
            );
            names.push(*name);
        }
        if names.is_empty() {
            names.extend(self.steps.iter().map(|step| step.name));
        }
        Ok(self.steps_named(&names))
    }

    /// The steps with these names, without those that are part of another chosen step.
    fn steps_named(self, names: &[&str]) -> Vec<&'static Step> {
        let is_done_elsewhere =
            |step: &Step| step.part_of.is_some_and(|containing_step| names.contains(&containing_step));
        self.steps.iter().filter(|step| names.contains(&step.name) && !is_done_elsewhere(step)).collect()
    }
}

/// Runs the steps that are quick once everything is built; `true` means that all of them passed.
///
/// # Errors
///
/// The sources cannot be read.
pub fn check(root: &Path) -> Result<bool> {
    TEST.run_steps(root, &steps_before_commit())
}

fn steps_before_commit() -> Vec<&'static Step> {
    let steps = || TEST.steps.iter().chain(RELEASE.steps);
    CHECK.iter().filter_map(|name| steps().find(|step| step.name == *name)).collect()
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

fn doc(root: &Path) -> Result<()> {
    let deny_warnings = (OsString::from("RUSTDOCFLAGS"), OsString::from("-D warnings"));
    cargo(root, &["doc", "--no-deps", "--features", EVERYTHING], &[deny_warnings])?;
    crate::public_api::check_docs_rs(root)
}

fn package(root: &Path) -> Result<()> {
    // It includes `cargo package`, and checks also what the registry would refuse.
    cargo(root, &["publish", "--package", "imagate", "--dry-run", "--allow-dirty"], &[])
}

/// Returns whether this is a machine of the CI, on which no check may be omitted.
#[expect(clippy::disallowed_methods, reason = "a machine of the CI says so only in the environment")]
fn is_ci() -> bool {
    env::var_os("CI").is_some()
}

pub(crate) fn cargo(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<()> {
    println!("$ cargo {}", arguments.join(" "));
    let mut command = command(root, arguments);
    let status = command.envs(variables.iter().map(|(name, value)| (name, value))).status().context("cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

/// Builds the program as users run it, and returns its path.
pub(crate) fn build_release(root: &Path) -> Result<PathBuf> {
    cargo(root, &["build", "--release", "--features", "cli", "--bin", "imagate"], &[])?;
    Ok(crate::examples::program(&target_folder(root)?.join("release"), "imagate"))
}

/// The variable with which the end-to-end tests start this program in place of a debug build.
pub(crate) fn test_program(program: PathBuf) -> (OsString, OsString) {
    ("IMAGATE_TEST_PROGRAM".into(), program.into())
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
        Ok(TEST.selected_steps(arguments)?.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn arguments_choose_one_several_or_all_steps() {
        let all: Vec<&str> = TEST.steps.iter().map(|step| step.name).filter(|name| *name != "unit").collect();
        assert_eq!(names(&[]).unwrap(), all);
        assert_eq!(names(&["--only", "tidy", "--only", "fmt"]).unwrap(), ["fmt", "tidy"]);
        for wrong in [&["--only"] as &[&str], &["--only", "doc"], &["fmt", "doc"], &["--list", "fmt"]] {
            assert!(names(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_unit_tests_run_alone_or_among_all_tests_and_never_twice() {
        assert_eq!(names(&["--only", "unit"]).unwrap(), ["unit"]);
        assert_eq!(names(&["--only", "unit", "--only", "test"]).unwrap(), ["test"]);
        assert_eq!(steps_before_commit().into_iter().map(|step| step.name).collect::<Vec<_>>(), CHECK);
    }

    #[test]
    fn each_step_needs_an_earlier_one() {
        for suite in [TEST, RELEASE] {
            for (index, step) in suite.steps.iter().enumerate() {
                let earlier = &suite.steps[..index];
                assert!(step.needs.is_none_or(|needs| earlier.iter().any(|step| step.name == needs)), "{}", step.name);
            }
        }
    }

    #[test]
    fn only_the_step_for_tools_is_in_both_suites() {
        let both = RELEASE.steps.iter().filter(|step| TEST.steps.iter().any(|other| other.name == step.name));
        assert_eq!(both.map(|step| step.name).collect::<Vec<_>>(), ["tools"]);
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
}
