//! What the tests need from outside of Rust: a C compiler, curl, and Python with the official SDK.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// How a tool is looked for, and how it is installed where it is missing.
struct Tool {
    name: &'static str,
    probe: &'static [&'static str],
    debian: &'static str,
    fedora: &'static str,
    mac: &'static str,
}

const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

const TOOLS: [Tool; 3] = [
    Tool {
        name: "a C compiler (for SQLite, WebP and TLS)",
        probe: if cfg!(windows) { &["cl"] } else { &["cc", "--version"] },
        debian: "gcc libc6-dev",
        fedora: "gcc",
        mac: "xcode-select --install",
    },
    Tool {
        name: "Python 3 with venv and pip (for the official SDK)",
        probe: &[PYTHON, "-c", "import ensurepip, venv"],
        debian: "python3-venv",
        fedora: "python3",
        mac: "brew install python",
    },
    Tool {
        name: "curl (for the README's own command)",
        probe: &["curl", "--version"],
        debian: "curl",
        fedora: "curl",
        mac: "brew install curl",
    },
];

/// A version of the official SDK, and the variable in which the tests find its Python.
struct Sdk {
    folder: &'static str,
    requirement: &'static str,
    variable: &'static str,
}

const SDKS: [Sdk; 2] = [
    Sdk { folder: "openai-newest", requirement: "openai", variable: "IMAGATE_PY_NEWEST" },
    Sdk { folder: "openai-2", requirement: "openai<3", variable: "IMAGATE_PY_2" },
];

/// The file that says that an environment was finished, and for what.
const FINISHED: &str = "imagate-finished";

/// Names every missing tool with the way to install it.
pub(super) fn tools(_: &Path) -> Result<()> {
    match advice(succeeds) {
        None => Ok(()),
        Some(advice) => bail!("{advice}"),
    }
}

fn advice(is_there: impl Fn(&[&str]) -> bool) -> Option<String> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !is_there(tool.probe)).collect();
    if missing.is_empty() {
        return None;
    }
    let list = |pick: fn(&Tool) -> &'static str, glue: &str| {
        missing.iter().map(|tool| pick(tool)).collect::<Vec<_>>().join(glue)
    };
    Some(format!(
        "missing: {}\n  Debian, Ubuntu: apt-get install {}\n  Fedora: dnf install {}\n  macOS: {}",
        list(|tool| tool.name, ", "),
        list(|tool| tool.debian, " "),
        list(|tool| tool.fedora, " "),
        list(|tool| tool.mac, " && "),
    ))
}

fn succeeds(probe: &[&str]) -> bool {
    let Some((program, arguments)) = probe.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Makes an environment for each version of the SDK, unless it is there, and tells where its Python is.
pub(super) fn pythons(root: &Path) -> Result<Vec<(OsString, OsString)>> {
    let place = root.join("target").join("venv");
    let mut variables = Vec::new();
    for sdk in &SDKS {
        let python = environment(&place.join(sdk.folder), sdk.requirement).with_context(|| sdk.folder)?;
        println!("{}={}", sdk.variable, python.display());
        variables.push((OsString::from(sdk.variable), python.into_os_string()));
    }
    Ok(variables)
}

fn environment(folder: &Path, requirement: &str) -> Result<PathBuf> {
    let python =
        if cfg!(windows) { folder.join("Scripts").join("python.exe") } else { folder.join("bin").join("python") };
    let finished = folder.join(FINISHED);
    let is_finished = fs::read_to_string(&finished).is_ok_and(|text| text == requirement);
    // The system's Python may have been replaced since, which breaks what was made with it.
    if is_finished && python.to_str().is_some_and(|python| succeeds(&[python, "-c", "import openai"])) {
        return Ok(python);
    }
    // `--clear` drops what a run that was interrupted left behind.
    let folder_name = folder.to_str().context("the path of this repository is not UTF-8")?;
    execute(Path::new(PYTHON), &["-m", "venv", "--clear", folder_name])?;
    execute(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", requirement])?;
    fs::write(&finished, requirement)?;
    Ok(python)
}

fn execute(program: &Path, arguments: &[&str]) -> Result<()> {
    let line = format!("{} {}", program.display(), arguments.join(" "));
    println!("$ {line}");
    let status = Command::new(program).args(arguments).stdin(Stdio::null()).status().with_context(|| line.clone())?;
    ensure!(status.success(), "`{line}` failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_for() {
        assert_eq!(advice(|_| true), None);
        let advice = advice(|probe| probe.first() != Some(&PYTHON)).unwrap();
        assert!(advice.contains("apt-get install python3-venv\n") && !advice.contains("curl"), "{advice}");
    }

    #[test]
    fn everything_that_is_missing_is_asked_for_at_once() {
        let advice = advice(|_| false).unwrap();
        assert!(advice.contains("apt-get install gcc libc6-dev python3-venv curl\n"), "{advice}");
    }

    #[test]
    fn a_program_that_is_not_there_does_not_succeed() {
        assert!(!succeeds(&["imagate-has-no-such-program"]));
    }
}
