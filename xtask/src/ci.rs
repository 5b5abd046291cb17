//! `cargo xtask test`: everything that must hold before a change lands, one step after another, on any machine.
//!
//! Decides which steps there are and in which order. Stops at the first that fails, and says what the others would have
//! been. Needs nothing that it does not either find, make under `target/`, or name together with how to install it.

mod outside;
pub mod wasm;

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{tidy, tree};

/// Crates that nobody who wants the SDK should have to build.
const SERVER_CRATES: [&str; 14] = [
    "async-trait",
    "axum",
    "clap",
    "dropshot",
    "jpeg-encoder",
    "jsonschema",
    "libsqlite3-sys",
    "libwebp-sys",
    "png",
    "schemars",
    "slog",
    "sqlx",
    "sqlx-core",
    "toml",
];

/// Crates that reach for files, connections or C, which checking a manifest must not.
const CRATES_WITH_IO: [&str; 8] =
    ["aws-lc-sys", "hyper", "mio", "reqwest", "rustls", "socket2", "tokio", "libsqlite3-sys"];

/// Crates that need a system below them: what checks a manifest has to run in a browser, too. `getrandom` and `uuid` find no
/// source of randomness there, unless a crate asks for the one of the browser.
const CRATES_WITHOUT_WASM: [&str; 12] = [
    "errno",
    "fs4",
    "iana-time-zone",
    "libc",
    "mio",
    "nix",
    "openssl-sys",
    "rustix",
    "socket2",
    "tokio",
    "uuid",
    "windows-sys",
];

const MANIFEST: [&str; 3] = ["--no-default-features", "--features", "manifest"];

/// One thing that must hold.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Path) -> Result<()>,
}

/// Cheap steps first; each builds on what the ones before have built.
const STEPS: [Step; 10] = [
    Step { name: "tools", about: "what the other steps need is installed", run: outside::tools },
    Step { name: "fmt", about: "the code is formatted", run: fmt },
    Step { name: "generate", about: "generated/ and the tables are what the documents say", run: generate },
    Step { name: "tidy", about: "rooms, imports and sizes are what ARCHITECTURE.md says", run: tidy_up },
    Step { name: "clippy", about: "no lint speaks, with everything switched on", run: clippy },
    Step { name: "test", about: "all tests, also those with real clients in Python, Node and curl", run: test },
    Step { name: "features", about: "each feature stands alone", run: features },
    Step { name: "doc", about: "the documentation builds without a warning", run: doc },
    Step { name: "package", about: "the package builds from what it ships", run: package },
    Step { name: "tree", about: "the SDK brings nothing of the server, and manifests no I/O", run: trees },
];

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ok(Duration),
    Failed(Duration),
    NotRun,
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
    let chosen = choose(arguments)?;
    let mut outcomes: Vec<(&str, Outcome)> = Vec::new();
    for step in chosen {
        let failed = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        let outcome = if failed { Outcome::NotRun } else { perform(root, step) };
        outcomes.push((step.name, outcome));
    }
    print!("\n{}", summary(&outcomes));
    Ok(outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Ok(_))))
}

/// All steps, or those that `--only` names.
fn choose(arguments: &[&str]) -> Result<Vec<&'static Step>> {
    ensure!(arguments.len().is_multiple_of(2), "expected `--only STEP` or `--list`");
    let mut names = Vec::new();
    for pair in arguments.chunks(2) {
        let ["--only", name] = pair else { bail!("expected `--only STEP` or `--list`, not `{}`", pair.join(" ")) };
        ensure!(STEPS.iter().any(|step| step.name == *name), "there is no step `{name}`; `--list` shows them");
        names.push(*name);
    }
    const ALL: &[Step] = &STEPS;
    Ok(ALL.iter().filter(|step| names.is_empty() || names.contains(&step.name)).collect())
}

fn perform(root: &Path, step: &Step) -> Outcome {
    println!("\n=== {}: {}", step.name, step.about);
    let start = Instant::now();
    match (step.run)(root) {
        Ok(()) => Outcome::Ok(start.elapsed()),
        Err(error) => {
            println!("\n{}: {error:#}", step.name);
            Outcome::Failed(start.elapsed())
        }
    }
}

fn summary(outcomes: &[(&str, Outcome)]) -> String {
    let line = |(name, outcome): &(&str, Outcome)| match outcome {
        Outcome::Ok(time) => format!("ok       {name:10} {:>5} s\n", time.as_secs()),
        Outcome::Failed(time) => {
            format!("FAILED   {name:10} {:>5} s   (again: cargo xtask test --only {name})\n", time.as_secs())
        }
        Outcome::NotRun => format!("not run  {name}\n"),
    };
    outcomes.iter().map(line).collect()
}

fn fmt(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all", "--check"], &[])
}

fn generate(root: &Path) -> Result<()> {
    let outputs = crate::generate(&tree::read(root)?)?;
    let stale: Vec<&str> = tree::stale(root, &outputs)?.into_iter().map(|output| output.path.as_str()).collect();
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

fn test(root: &Path) -> Result<()> {
    let mut variables = outside::clients(root)?;
    variables.extend(test_threads());
    cargo(root, &["test", "--workspace", "--all-features", "--no-fail-fast"], &variables)
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
    for feature in ["", "client", "admin", "manifest", "gateway"] {
        println!("\n--- {}", if feature.is_empty() { "no feature" } else { feature });
        cargo(root, &["clippy", "--no-default-features", "--features", feature, "--", "-D", "warnings"], &[])?;
    }
    println!(
        "\n--- manifest, alone: among its tests are the bytes of a package, which the step `test` makes with everything"
    );
    cargo(root, &[&["test"], &MANIFEST[..], &["--lib", "manifest::"]].concat(), &[])?;
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

fn trees(root: &Path) -> Result<()> {
    none_of(&SERVER_CRATES, root, &[])?;
    none_of(&CRATES_WITH_IO, root, &MANIFEST)?;
    none_of(&CRATES_WITHOUT_WASM, root, &[&MANIFEST[..], &["--target", wasm::TARGET]].concat())
}

fn none_of(forbidden: &[&'static str], root: &Path, features: &[&str]) -> Result<()> {
    let arguments = [&["tree", "--package", "imagate", "--edges", "normal", "--prefix", "none"], features].concat();
    let output = command(root, &arguments).stderr(Stdio::inherit()).output().context("cargo tree")?;
    ensure!(output.status.success(), "`cargo tree` failed");
    let listing = String::from_utf8(output.stdout).context("cargo tree")?;
    let found = named(&listing, forbidden);
    ensure!(found.is_empty(), "`cargo {}` shows {}", arguments.join(" "), found.join(", "));
    let crates: BTreeSet<&str> = listing.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    println!("{} crates, none of them forbidden", crates.len());
    Ok(())
}

/// The forbidden crates in the listing of `cargo tree --prefix none`.
fn named(listing: &str, forbidden: &[&'static str]) -> Vec<&'static str> {
    let names: Vec<&str> = listing.lines().filter_map(|line| line.split_whitespace().next()).collect();
    forbidden.iter().filter(|name| names.contains(name)).copied().collect()
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
        Ok(choose(arguments)?.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn one_step_or_several_or_all_are_chosen() {
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(names(&["--only", "doc", "--only", "fmt"]).unwrap(), ["fmt", "doc"]);
        for wrong in [&["--only"] as &[&str], &["--only", "all"], &["fmt", "doc"], &["--list", "fmt"]] {
            assert!(names(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_server_crate_in_the_tree_is_found() {
        let found = |listing| named(listing, &SERVER_CRATES);
        assert_eq!(found("imagate v0.1.0 (x)\nhyper v1.11.0\nslog-term v2.9.0\n"), [""; 0]);
        assert_eq!(found("imagate v0.1.0 (x)\nsqlx v0.9.0\nslog v2.8.0 (*)\n"), ["slog", "sqlx"]);
    }

    #[test]
    fn the_summary_says_what_failed_and_what_was_left_out() {
        let second = Duration::from_secs(1);
        let text =
            summary(&[("fmt", Outcome::Ok(second)), ("clippy", Outcome::Failed(second)), ("test", Outcome::NotRun)]);
        assert_eq!(
            text,
            "ok       fmt            1 s\n\
             FAILED   clippy         1 s   (again: cargo xtask test --only clippy)\n\
             not run  test\n"
        );
    }
}
