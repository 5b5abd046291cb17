//! Interpreters and packages for the tours. Environment variables give their paths; otherwise they are installed once
//! under the target folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::env_setting;

/// A script of `tests/clients`.
pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// The target folder.
pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").to_owned()
}

/// A folder below `parent` in the target folder. `fill` makes its content, unless this has been done before with the
/// same `version`. A lock file prevents two test processes from doing this concurrently.
fn install_once(parent: &str, name: &str, version: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let parent = target().join(parent);
    std::fs::create_dir_all(&parent).expect("a folder");
    let lock = File::create(parent.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let home = parent.join(name);
    let marker = home.join("imagate-finished");
    if std::fs::read_to_string(&marker).ok().as_deref() != Some(version) {
        fill(&home);
        std::fs::write(marker, version).expect("a marker file");
    }
    home
}

/// The path of a Python interpreter with these packages.
pub(crate) fn python(variable: &str, name: &str, requirements: &str) -> PathBuf {
    if let Some(given) = env_setting(variable) {
        return given.into();
    }
    let home = install_once("venv", name, requirements, |home| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(home.join("bin/python")).args(pip).args(requirements.split(' ')));
    });
    home.join("bin/python")
}

/// A Python interpreter with the HTTP clients of Python and a reader of events.
pub(crate) fn reuse_python() -> PathBuf {
    python("IMAGATE_PY_REUSE", "reuse", "openai requests httpx aiohttp httpx-sse")
}

/// A folder with these npm packages.
pub(crate) fn modules(variable: &str, name: &str, packages: &[&str]) -> PathBuf {
    if let Some(given) = env_setting(variable) {
        return given.into();
    }
    install_once("clients", name, &packages.join(" "), |home| {
        std::fs::create_dir_all(home).expect("a folder");
        std::fs::write(home.join("package.json"), r#"{"private":true,"type":"module"}"#).expect("a package");
        let install = ["install", "--no-audit", "--no-fund", "--loglevel=error"];
        run(Command::new("npm").args(install).args(packages).current_dir(home));
    })
}

/// A folder with these npm packages and copies of these scripts: Node resolves packages beside a script.
pub(crate) fn node(variable: &str, name: &str, packages: &[&str], scripts: &[&str]) -> PathBuf {
    let home = modules(variable, name, packages);
    for name in scripts {
        std::fs::copy(script(name), home.join(name)).expect("a copy of the script");
    }
    home
}

#[track_caller]
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
