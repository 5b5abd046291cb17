//! What the tests need from outside of Rust: a C compiler, curl, Chromium, Node with the official SDK, a coding agent and
//! what drives the browser, and Python with the official SDKs, two frameworks on top of them, and a fuzzer.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// How a tool is looked for, and how it is installed where it is missing.
struct Tool {
    name: &'static str,
    /// One of these must succeed.
    probes: &'static [&'static [&'static str]],
    debian: &'static str,
    fedora: &'static str,
    mac: &'static str,
}

const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };

const TOOLS: [Tool; 5] = [
    Tool {
        name: "a C compiler (for SQLite, WebP and TLS)",
        probes: if cfg!(windows) { &[&["cl"]] } else { &[&["cc", "--version"]] },
        debian: "gcc libc6-dev",
        fedora: "gcc",
        mac: "xcode-select --install",
    },
    Tool {
        name: "Python 3 with venv and pip (for the official SDK and the fuzz)",
        probes: &[&[PYTHON, "-c", "import ensurepip, venv"]],
        debian: "python3-venv",
        fedora: "python3",
        mac: "brew install python",
    },
    Tool {
        name: "Node 20 or newer with npm (for the official SDK and the browser)",
        probes: &[&[NPM, "--version"]],
        debian: "nodejs npm",
        fedora: "nodejs-npm",
        mac: "brew install node",
    },
    Tool {
        name: "curl (for the README's own command and a tour)",
        probes: &[&["curl", "--version"]],
        debian: "curl",
        fedora: "curl",
        mac: "brew install curl",
    },
    Tool {
        name: "Chromium (for the pages)",
        probes: &[&["chromium", "--version"], &["chromium-browser", "--version"]],
        debian: "chromium",
        fedora: "chromium",
        mac: "brew install chromium",
    },
];

/// Python packages, the modules that show that they are there, and the variable in which the tests find their Python.
struct Package {
    folder: &'static str,
    requirements: &'static str,
    module: &'static str,
    variable: &'static str,
}

const PACKAGES: [Package; 7] = [
    Package { folder: "openai-newest", requirements: "openai", module: "openai", variable: "IMAGATE_PY_NEWEST" },
    Package { folder: "openai-2", requirements: "openai<3", module: "openai", variable: "IMAGATE_PY_2" },
    Package {
        folder: "reuse",
        requirements: "openai requests httpx",
        module: "openai, requests, httpx",
        variable: "IMAGATE_PY_REUSE",
    },
    Package {
        folder: "schemathesis",
        requirements: "schemathesis",
        module: "schemathesis",
        variable: "IMAGATE_PY_SCHEMATHESIS",
    },
    Package {
        folder: "agents",
        requirements: "langchain-openai openai-agents",
        module: "agents, langchain_openai",
        variable: "IMAGATE_PY_AGENTS",
    },
    Package {
        folder: "jsonschema",
        requirements: "jsonschema",
        module: "jsonschema",
        variable: "IMAGATE_PY_JSONSCHEMA",
    },
    Package {
        folder: "skills-ref",
        requirements: "skills-ref",
        module: "skills_ref",
        variable: "IMAGATE_PY_SKILLS_REF",
    },
];

/// Folders with packages of Node, and the variables in which the tests find them.
const NODE: [(&str, &str, &str); 3] = [
    ("openai", "openai", "IMAGATE_NODE_OPENAI"),
    ("codex", "@openai/codex", "IMAGATE_NODE_CODEX"),
    ("browser", "playwright-core@1.65.1 axe-core@4.14.1", "IMAGATE_NODE_BROWSER"),
];

/// The file that says that an environment was finished, and for what.
pub(super) const FINISHED_MARKER: &str = "imagate-finished";

/// Names every missing tool with the way to install it.
pub(super) fn check_tools(_: &Path) -> Result<()> {
    match installation_advice(succeeds) {
        None => Ok(()),
        Some(advice) => bail!("{advice}"),
    }
}

fn installation_advice(is_there: impl Fn(&[&str]) -> bool) -> Option<String> {
    let missing: Vec<&Tool> = TOOLS.iter().filter(|tool| !tool.probes.iter().any(|probe| is_there(probe))).collect();
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

/// Makes a place for each client, unless it is there, and tells the tests where it is.
pub(super) fn prepare_clients(root: &Path) -> Result<Vec<(OsString, OsString)>> {
    let folder = root.join("target").join("venv");
    let mut variables = Vec::new();
    for package in &PACKAGES {
        let python = prepare_python(&folder.join(package.folder), package).with_context(|| package.folder)?;
        println!("{}={}", package.variable, python.display());
        variables.push((OsString::from(package.variable), python.into_os_string()));
    }
    for (name, packages, variable) in NODE {
        let modules =
            prepare_node(&root.join("target").join("clients").join(name), packages).with_context(|| packages)?;
        println!("{variable}={}", modules.display());
        variables.push((OsString::from(variable), modules.into_os_string()));
    }
    Ok(variables)
}

fn prepare_python(folder: &Path, package: &Package) -> Result<PathBuf> {
    let python =
        if cfg!(windows) { folder.join("Scripts").join("python.exe") } else { folder.join("bin").join("python") };
    // The system's Python may have been replaced since, which breaks what was made with it.
    let imports = format!("import {}", package.module);
    if is_finished(folder, package.requirements)
        && python.to_str().is_some_and(|python| succeeds(&[python, "-c", &imports]))
    {
        return Ok(python);
    }
    // `--clear` drops what a run that was interrupted left behind.
    let folder_name = folder.to_str().context("the path of this repository is not UTF-8")?;
    execute(Path::new(PYTHON), &["-m", "venv", "--clear", folder_name])?;
    let mut install = vec!["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"];
    install.extend(package.requirements.split(' '));
    execute(&python, &install)?;
    fs::write(folder.join(FINISHED_MARKER), package.requirements)?;
    Ok(python)
}

fn prepare_node(folder: &Path, packages: &str) -> Result<PathBuf> {
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

fn is_finished(folder: &Path, what: &str) -> bool {
    fs::read_to_string(folder.join(FINISHED_MARKER)).is_ok_and(|text| text == what)
}

fn execute(program: &Path, arguments: &[&str]) -> Result<()> {
    run_command(Command::new(program).args(arguments))
}

/// Runs a command to its end, after saying which.
pub(super) fn run_command(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    println!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| line.clone())?;
    ensure!(status.success(), "{line} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_asked_for() {
        assert_eq!(installation_advice(|_| true), None);
        let advice = installation_advice(|probe| probe.first() != Some(&PYTHON)).unwrap();
        assert!(advice.contains("apt-get install python3-venv\n") && !advice.contains("curl"), "{advice}");
    }

    #[test]
    fn everything_that_is_missing_is_asked_for_at_once() {
        let advice = installation_advice(|_| false).unwrap();
        assert!(advice.contains("apt-get install gcc libc6-dev python3-venv nodejs npm curl chromium\n"), "{advice}");
    }

    #[test]
    fn a_browser_may_have_either_name() {
        assert_eq!(installation_advice(|probe| probe.first() != Some(&"chromium")), None);
        let without = |probe: &[&str]| !probe.first().is_some_and(|program| program.starts_with("chromium"));
        assert!(installation_advice(without).unwrap().contains("apt-get install chromium\n"));
    }

    #[test]
    fn a_program_that_is_not_there_does_not_succeed() {
        assert!(!succeeds(&["imagate-has-no-such-program"]));
    }
}
