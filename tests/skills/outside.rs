//! What comes from outside of Rust: the environment, and Pythons with reference validators.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "a test is told about its surroundings here")]
pub(crate) fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// An interpreter with a package: given by a variable, or made once under the target folder.
pub(crate) fn python(package: &str, variable: &str) -> PathBuf {
    if let Some(given) = setting(variable) {
        return given.into();
    }
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").join("venv");
    std::fs::create_dir_all(&shelf).expect("a folder");
    let lock = File::create(shelf.join(format!("{package}.lock"))).expect("a lock file");
    lock.lock().expect("the lock");
    let home = shelf.join(package);
    let done = home.join("imagate-finished");
    if std::fs::read_to_string(&done).ok().as_deref() != Some(package) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
        run(Command::new(home.join("bin/python")).args(pip));
        std::fs::write(done, package).expect("a mark");
    }
    home.join("bin/python")
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}");
}
