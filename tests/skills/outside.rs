//! The environment variables of the tests, and the Python interpreters that run the reference validators.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "tests read their environment variables only here")]
pub(crate) fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The path of a Python interpreter that has `package`: from the environment variable `variable`, or from a virtual
/// environment that is created once below the target folder.
pub(crate) fn python(package: &str, variable: &str) -> PathBuf {
    if let Some(path) = environment_variable(variable) {
        return path.into();
    }
    let environments = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").join("venv");
    std::fs::create_dir_all(&environments).expect("a folder");
    let lock = File::create(environments.join(format!("{package}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let environment = environments.join(package);
    let marker = environment.join("imagate-finished");
    if std::fs::read_to_string(&marker).ok().as_deref() != Some(package) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
        run(Command::new(environment.join("bin/python")).args(pip));
        std::fs::write(marker, package).expect("a marker file");
    }
    environment.join("bin/python")
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}");
}
