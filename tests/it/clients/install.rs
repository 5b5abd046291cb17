//! Interpreters and packages for the tours: given by the environment, or made once under the target folder.

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

/// A folder of its own in the target folder, made by `fill` unless it has been before with the same `mark`. Two test
/// processes do not build it at once.
fn once(shelf: &str, name: &str, mark: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let shelf = target().join(shelf);
    std::fs::create_dir_all(&shelf).expect("a folder");
    let lock = File::create(shelf.join(format!("{name}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let home = shelf.join(name);
    let done = home.join("imagate-finished");
    if std::fs::read_to_string(&done).ok().as_deref() != Some(mark) {
        fill(&home);
        std::fs::write(done, mark).expect("a mark");
    }
    home
}

/// An interpreter with these packages.
pub(crate) fn python(variable: &str, name: &str, requirements: &str) -> PathBuf {
    if let Some(given) = env_setting(variable) {
        return given.into();
    }
    let home = once("venv", name, requirements, |home| {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(home.join("bin/python")).args(pip).args(requirements.split(' ')));
    });
    home.join("bin/python")
}

/// A folder with these packages of Node.
pub(crate) fn modules(variable: &str, name: &str, packages: &[&str]) -> PathBuf {
    if let Some(given) = env_setting(variable) {
        return given.into();
    }
    once("clients", name, &packages.join(" "), |home| {
        std::fs::create_dir_all(home).expect("a folder");
        std::fs::write(home.join("package.json"), r#"{"private":true,"type":"module"}"#).expect("a package");
        let install = ["install", "--no-audit", "--no-fund", "--loglevel=error"];
        run(Command::new("npm").args(install).args(packages).current_dir(home));
    })
}

/// The same with copies of these scripts: a module finds only packages beside itself.
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
