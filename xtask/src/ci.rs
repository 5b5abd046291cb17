//! `cargo xtask test`: everything that must hold before a change lands, one step after another, on any machine.
//!
//! Decides on the steps and their order. A failing step does not keep the others from running, except those that need
//! its result; at the end all failures are listed. Needs only programs that it can find, build under `target/`, or name
//! together with how to install them.

mod dependencies;
mod external_tools;
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

use crate::{tidy, tree};
use test_run::PassedAlone;

/// The feature that works without an operating system.
const MANIFEST: [&str; 3] = ["--no-default-features", "--features", "manifest"];

/// One thing that must hold.
struct Step {
    name: &'static str,
    about: &'static str,
    /// The step that checks if this one can run at all.
    needs: Option<&'static str>,
    /// The step that does all of this one and more: where it runs, this one does not.
    part_of: Option<&'static str>,
    run: fn(&Path) -> Result<()>,
}

/// Cheap steps first; each builds on what the ones before have built.
const STEPS: [Step; 11] = [
    Step::new("tools", "what the other steps need is installed", external_tools::check_tools),
    Step::new("fmt", "the code is formatted", fmt),
    Step::new("generate", "generated/ and the tables are what the documents say", generate),
    Step::new("tidy", "ARCHITECTURE.md and docs/specification.md are true, sizes within bounds", tidy_up),
    Step::new("clippy", "no lint speaks, with everything switched on", clippy),
    Step::new("unit", "the unit tests", unit).part_of("test"),
    Step::new("test", "all tests, also those with real clients in Python, Node and curl", test).needs("tools"),
    Step::new("features", "each feature stands alone", features),
    Step::new("doc", "the documentation builds without a warning", doc),
    Step::new("package", "the package builds from what it ships", package),
    Step::new("tree", "the SDK brings nothing of the server, and manifests no I/O", dependencies::check_trees),
];

/// The steps to run before each commit. They need no network, and take less than three minutes if everything is built.
const CHECK: [&str; 5] = ["fmt", "generate", "tidy", "clippy", "unit"];

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Ok(Duration),
    /// Some tests passed only when nothing ran beside them.
    PassedAlone(Duration, PassedAlone),
    Failed(Duration, String),
    /// A step that this one needs has failed.
    NotRun(&'static str),
}

/// The outcomes of the steps, in order.
type Outcomes = Vec<(&'static str, Outcome)>;

// === impl Step ===

impl Step {
    const fn new(name: &'static str, about: &'static str, run: fn(&Path) -> Result<()>) -> Self {
        Self { name, about, needs: None, part_of: None, run }
    }

    const fn needs(self, needs: &'static str) -> Self {
        Self { needs: Some(needs), ..self }
    }

    const fn part_of(self, whole: &'static str) -> Self {
        Self { part_of: Some(whole), ..self }
    }
}

/// Runs the steps that the arguments choose; `true` means that all of them hold.
///
/// # Errors
///
/// An argument that nobody knows.
pub fn run(root: &Path, arguments: &[&str]) -> Result<bool> {
    if arguments == ["--list"] {
        for step in STEPS {
            println!("{:10} {}", step.name, step.about);
        }
        return Ok(true);
    }
    Ok(report(&run_all(root, &selected_steps(arguments)?)))
}

/// Runs the steps that are quick once everything is built; `true` means that all of them hold.
pub fn check(root: &Path) -> bool {
    report(&run_all(root, &steps(&CHECK)))
}

/// Prints how each step ended; `true` means that all of them hold.
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
    for pair in arguments.chunks(2) {
        let ["--only", name] = pair else { bail!("expected `--only STEP` or `--list`, not `{}`", pair.join(" ")) };
        ensure!(STEPS.iter().any(|step| step.name == *name), "there is no step `{name}`; `--list` shows them");
        names.push(*name);
    }
    Ok(if names.is_empty() { steps(&STEPS.map(|step| step.name)) } else { steps(&names) })
}

/// The steps of these names, without those that another one of them does as well.
fn steps(names: &[&str]) -> Vec<&'static Step> {
    const ALL: &[Step] = &STEPS;
    let is_done_elsewhere = |step: &Step| step.part_of.is_some_and(|whole| names.contains(&whole));
    ALL.iter().filter(|step| names.contains(&step.name) && !is_done_elsewhere(step)).collect()
}

fn run_step(root: &Path, step: &Step) -> Outcome {
    println!("\n=== {}: {}", step.name, step.about);
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
    cargo(root, &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"], &[])
}

/// The arguments that all test steps share, so that no step builds again what another one has built.
const TESTS: [&str; 4] = ["test", "--workspace", "--all-features", "--no-fail-fast"];

fn unit(root: &Path) -> Result<()> {
    run_tests(root, &[&TESTS[..], &["--lib", "--bins"]].concat(), Vec::new())
}

fn test(root: &Path) -> Result<()> {
    run_tests(root, &TESTS, external_tools::prepare_clients(root)?)
}

fn run_tests(root: &Path, arguments: &[&str], mut variables: Vec<(OsString, OsString)>) -> Result<()> {
    variables.extend(test_threads());
    test_run::run(root, arguments, &variables)
}

/// Most tests wait for a program or for a moment, and some for their turn: two on a core keep it busy.
#[expect(clippy::disallowed_methods, reason = "whoever sets the number of threads gets it")]
fn test_threads() -> Option<(OsString, OsString)> {
    const NAME: &str = "RUST_TEST_THREADS";
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    env::var_os(NAME).is_none().then(|| (NAME.into(), (cores * 2).to_string().into()))
}

/// Runs the tours that are kept beside the tests: clients that need much to be installed, or take long.
///
/// # Errors
///
/// A tour that failed.
pub fn tours(root: &Path) -> Result<()> {
    let arguments =
        ["test", "--all-features", "--test", "it", "--", "--ignored", "clients::kept", "agents::", "--test-threads=1"];
    cargo(root, &arguments, &[])
}

/// Measures the cost of hostile callers for everybody else: each kind alone, then all of them together.
///
/// # Errors
///
/// Returns an error if a bound is exceeded.
pub fn abuse(root: &Path) -> Result<()> {
    let arguments = ["test", "--all-features", "--test", "it", "--", "--ignored", "abuse::", "--nocapture"];
    cargo(root, &arguments, &[])
}

/// Makes a picture of every page in every state, light and dark, on a desk and on a phone.
///
/// # Errors
///
/// A page that cannot be shown.
pub fn screenshots(root: &Path, folder: Option<&str>) -> Result<()> {
    let folder = folder.map_or_else(|| root.join("target").join("screenshots"), |folder| root.join(folder));
    let variable = (OsString::from("IMAGATE_SCREENSHOTS"), folder.clone().into_os_string());
    let arguments = ["test", "--all-features", "--test", "it", "--", "--ignored", "pages::album"];
    cargo(root, &arguments, &[variable])?;
    println!("{}", folder.display());
    Ok(())
}

fn features(root: &Path) -> Result<()> {
    // Clippy checks all that `cargo check` does, and its warnings can fail without building every dependency anew.
    let alone = ["", "client", "admin", "manifest", "gateway"].into_iter().map(|feature| {
        println!("\n--- {}", if feature.is_empty() { "no feature" } else { feature });
        cargo(root, &["clippy", "--no-default-features", "--features", feature, "--", "-D", "warnings"], &[])
    });
    let manifest: [fn(&Path) -> Result<()>; 2] = [manifest_alone, manifest_in_wasm];
    run_all_checks(alone.chain(manifest.into_iter().map(|check| check(root))))
}

fn manifest_alone(root: &Path) -> Result<()> {
    println!(
        "\n--- manifest, alone: among its tests are the bytes of a package, which the step `test` makes with everything"
    );
    cargo(root, &[&["test"], &MANIFEST[..], &["--lib", "manifest::"]].concat(), &[])
}

fn manifest_in_wasm(root: &Path) -> Result<()> {
    if wasm::is_installed(root)? {
        return wasm::run(root);
    }
    println!(
        "{} is not installed: `cargo xtask wasm` takes longer; what it needs is looked at in `tree`",
        wasm::TARGET
    );
    Ok(())
}

fn doc(root: &Path) -> Result<()> {
    let strict = (OsString::from("RUSTDOCFLAGS"), OsString::from("-D warnings"));
    cargo(root, &["doc", "--no-deps", "--all-features"], &[strict])
}

fn package(root: &Path) -> Result<()> {
    cargo(root, &["package", "--allow-dirty"], &[])
}

pub(crate) fn cargo(root: &Path, arguments: &[&str], variables: &[(OsString, OsString)]) -> Result<()> {
    println!("$ cargo {}", arguments.join(" "));
    let mut command = command(root, arguments);
    let status = command.envs(variables.iter().map(|(name, value)| (name, value))).status().context("cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the cargo that runs this program says so only in the environment")]
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
    fn one_step_or_several_or_all_are_chosen() {
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
    fn a_step_that_fails_keeps_only_those_from_running_that_need_it() {
        let steps = [
            Step::new("tools", "", |_| bail!("missing: curl")),
            Step::new("fmt", "", |_| Ok(())),
            Step::new("clippy", "", |_| bail!("a lint speaks")),
            Step::new("test", "", |_| bail!("not reached")).needs("tools"),
            Step::new("doc", "", |_| Ok(())),
            Step::new("unit", "", |_| Err(PassedAlone(vec!["a::b".to_owned()]).into())),
        ];
        let outcomes = run_all(Path::new(""), &steps.iter().collect::<Vec<_>>());
        let ended = |at: usize| match &outcomes[at].1 {
            Outcome::Ok(_) => "ok",
            Outcome::PassedAlone(..) => "ok, alone",
            Outcome::Failed(_, reason) => reason,
            Outcome::NotRun(needs) => needs,
        };
        let ends: Vec<&str> = (0..outcomes.len()).map(ended).collect();
        assert_eq!(ends, ["missing: curl", "ok", "a lint speaks", "tools", "ok", "ok, alone"]);
    }

    #[test]
    fn a_step_that_is_not_chosen_keeps_nobody_from_running() {
        let alone = Step::new("test", "", |_| Ok(())).needs("tools");
        assert!(matches!(run_all(Path::new(""), &[&alone])[0].1, Outcome::Ok(_)));
    }

    #[test]
    fn the_unit_tests_run_alone_or_among_all_tests_and_never_twice() {
        assert_eq!(names(&["--only", "unit"]).unwrap(), ["unit"]);
        assert_eq!(names(&["--only", "unit", "--only", "test"]).unwrap(), ["test"]);
        assert_eq!(steps(&CHECK).into_iter().map(|step| step.name).collect::<Vec<_>>(), CHECK);
    }

    #[test]
    fn each_step_needs_an_earlier_one() {
        for (at, step) in STEPS.iter().enumerate() {
            assert!(step.needs.is_none_or(|needs| STEPS[..at].iter().any(|step| step.name == needs)), "{}", step.name);
        }
    }

    #[test]
    fn every_check_is_done_and_every_failure_is_told() {
        let mut done = 0;
        let result = run_all_checks((0..3).map(|number| {
            done += 1;
            if number == 1 { Ok(()) } else { Err(anyhow::anyhow!("check {number}")) }
        }));
        assert_eq!((result.unwrap_err().to_string().as_str(), done), ("check 0\ncheck 2", 3));
    }

    #[test]
    fn the_summary_ends_with_what_failed() {
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
        let alone = Outcome::PassedAlone(second, PassedAlone(vec!["a::b".to_owned()]));
        assert_eq!(
            summary(&[("fmt", Outcome::Ok(second)), ("test", alone)]),
            "ok       fmt            1 s\n\
             ok       test           1 s  failed beside other tests and passed alone: a::b\n"
        );
    }
}
