//! The tools outside of Rust that the tests need: a C compiler, curl, Chromium, Node with the official SDK, a coding
//! agent, a browser driver and a provider of OpenID Connect, and Python with the official SDK, two agent frameworks, a
//! fuzzer and two validators.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};

const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

pub(super) const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };

/// A virtual environment of Python: its packages, the modules that prove that they work, and the environment variables
/// with the path of its interpreter.
pub(crate) struct ToolPackage {
    pub(crate) folder: &'static str,
    pub(crate) requirements: &'static str,
    pub(crate) module: &'static str,
    /// Empty if no test reads one.
    pub(crate) variables: &'static [&'static str],
}

const PACKAGES: [ToolPackage; 5] = [
    ToolPackage {
        folder: "reuse",
        requirements: "openai requests httpx aiohttp httpx-sse",
        module: "openai, requests, httpx, aiohttp, httpx_sse",
        variables: &["IMAGATE_PY_NEWEST", "IMAGATE_PY_REUSE"],
    },
    ToolPackage { folder: "openai-2", requirements: "openai<3", module: "openai", variables: &["IMAGATE_PY_2"] },
    ToolPackage {
        folder: "schemathesis",
        requirements: "schemathesis jsonschema",
        module: "schemathesis, jsonschema",
        variables: &["IMAGATE_PY_SCHEMATHESIS", "IMAGATE_PY_JSONSCHEMA"],
    },
    ToolPackage {
        folder: "agents",
        requirements: "langchain-openai openai-agents",
        module: "agents, langchain_openai",
        variables: &["IMAGATE_PY_AGENTS"],
    },
    ToolPackage {
        folder: "skills-ref",
        requirements: "skills-ref",
        module: "skills_ref",
        variables: &["IMAGATE_PY_SKILLS_REF"],
    },
];

/// Folders with packages of Node: the name, the packages, and the environment variables with the path of the folder.
const NODE: [(&str, &str, &[&str]); 4] = [
    ("sse", "openai eventsource-parser", &["IMAGATE_NODE_OPENAI", "IMAGATE_NODE_SSE"]),
    ("codex", "@openai/codex", &["IMAGATE_NODE_CODEX"]),
    ("browser", "playwright-core@1.65.1 axe-core@4.14.1", &["IMAGATE_NODE_BROWSER"]),
    ("oidc-provider", "oidc-provider@8.8.1", &["IMAGATE_NODE_OIDC_PROVIDER"]),
];

/// The file that marks an environment as complete; it contains the installed packages.
pub(super) const FINISHED_MARKER: &str = "imagate-finished";

/// The script with the list of programs. `.ci/run` starts it before there is a compiler for this program.
const SCRIPT: &str = ".ci/tools";

/// Installs missing programs; the error says how to install those that cannot be installed from here.
pub(super) fn install_for_tests(root: &Path) -> Result<()> {
    install(root, "test")
}

/// The same with the programs that only the steps for a release need.
pub(super) fn install_for_release(root: &Path) -> Result<()> {
    install(root, "release")
}

fn install(root: &Path, task: &str) -> Result<()> {
    let mut script = Command::new("sh");
    script.args([SCRIPT, task]).current_dir(root).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = script.output().context(SCRIPT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout).trim_end());
    Ok(())
}

pub(super) fn succeeds(probe: &[&str]) -> bool {
    let Some((program, arguments)) = probe.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Creates the environment of each client, unless it exists. Returns the environment variables with their paths.
pub(super) fn prepare_clients(root: &Path) -> Result<Vec<(OsString, OsString)>> {
    let (python, node) = (root.join("target").join("venv"), root.join("target").join("clients"));
    // The package managers wait for the network most of the time, so they run at the same time.
    let prepared = thread::scope(|scope| {
        let python = PACKAGES.iter().map(|package| {
            let prepare = || prepare_python(&python.join(package.folder), package).context(package.folder);
            (package.variables, scope.spawn(prepare))
        });
        let node = NODE.into_iter().map(|(name, packages, variables)| {
            let folder = node.join(name);
            (variables, scope.spawn(move || prepare_node(&folder, packages).context(packages)))
        });
        let threads: Vec<_> = python.chain(node).collect();
        threads.into_iter().map(|(variables, thread)| (variables, thread.join())).collect::<Vec<_>>()
    });
    let mut result = Vec::new();
    for (variables, path) in prepared {
        let path = path.map_err(|_| anyhow!("a client could not be prepared"))??;
        for variable in variables {
            println!("{variable}={}", path.display());
            result.push((OsString::from(variable), path.clone().into_os_string()));
        }
    }
    Ok(result)
}

pub(crate) fn prepare_python(folder: &Path, package: &ToolPackage) -> Result<PathBuf> {
    let python =
        if cfg!(windows) { folder.join("Scripts").join("python.exe") } else { folder.join("bin").join("python") };
    // An update of the system's Python can break the environment, so the modules are imported as a test.
    let imports = format!("import {}", package.module);
    if is_finished(folder, package.requirements)
        && python.to_str().is_some_and(|python| succeeds(&[python, "-c", &imports]))
    {
        return Ok(python);
    }
    // `--clear` removes the remains of an interrupted run.
    let folder_name = folder.to_str().context("the path of this repository is not UTF-8")?;
    execute(Path::new(PYTHON), &["-m", "venv", "--clear", folder_name])?;
    let mut install = vec!["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"];
    install.extend(package.requirements.split(' '));
    execute(&python, &install)?;
    fs::write(folder.join(FINISHED_MARKER), package.requirements)?;
    Ok(python)
}

pub(crate) fn prepare_node(folder: &Path, packages: &str) -> Result<PathBuf> {
    if !is_finished(folder, packages) {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("package.json"), r#"{"private":true,"type":"module"}"#)?;
        let folder_name = folder.to_str().context("the path of this repository is not UTF-8")?;
        let mut install = vec!["install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", folder_name];
        install.extend(packages.split(' '));
        execute(Path::new(NPM), &install)?;
        fs::write(folder.join(FINISHED_MARKER), packages)?;
    }
    Ok(folder.to_owned())
}

fn is_finished(folder: &Path, packages: &str) -> bool {
    fs::read_to_string(folder.join(FINISHED_MARKER)).is_ok_and(|text| text == packages)
}

fn execute(program: &Path, arguments: &[&str]) -> Result<()> {
    run_command(Command::new(program).args(arguments))
}

/// Prints a command and runs it to its end.
pub(crate) fn run_command(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    println!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| line.clone())?;
    ensure!(status.success(), "{line} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of the script on a machine without any program.
    fn advice(task: &str) -> String {
        let mut script = Command::new("/bin/sh");
        script.args([SCRIPT, task]).current_dir(crate::tree::root()).env("PATH", "/nonexistent");
        let output = script.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn all_missing_programs_are_named_at_once() {
        let packages = "gcc libc6-dev make git curl ca-certificates python3-venv chromium postgresql nodejs npm";
        let text = advice("test");
        assert!(text.starts_with("missing: a C compiler, make, git, curl, Python 3 with venv and pip, "), "{text}");
        assert!(text.contains(&format!("  Debian, Ubuntu: sudo apt-get install {packages}\n")), "{text}");
        assert!(text.contains("  Fedora: sudo dnf install gcc ") && text.contains("brew install chromium"), "{text}");
        assert!(advice("release").contains(&format!("{packages} valgrind systemd nginx haproxy ")));
    }

    #[test]
    fn a_missing_program_does_not_succeed() {
        assert!(!succeeds(&["imagate-has-no-such-program"]));
    }
}
