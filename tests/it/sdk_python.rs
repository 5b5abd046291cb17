//! The official Python SDK, newest and newest 2.x, unchanged and with its strictest validation, as a caller.
//!
//! The checks stand in `tests/clients/openai_tour.py`; here are the interpreters, the two gateways it talks to, and the
//! judgement of the ledger on what it did.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{FakeUpstream, Gateway, setting};

/// An interpreter with this release of the package: given by the environment, or made once under the target folder.
fn python(variable: &str, name: &str, requirement: &str) -> PathBuf {
    if let Some(given) = setting(variable) {
        return given.into();
    }
    let shelf = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").join("venv");
    std::fs::create_dir_all(&shelf).expect("a folder");
    // Two test processes must not build the same folder at once.
    let lock = File::create(shelf.join("lock")).expect("a lock file");
    lock.lock().expect("the lock");
    let home = shelf.join(name);
    let interpreter = home.join("bin/python");
    let done = home.join("done");
    if !done.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        run(Command::new(&interpreter).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            requirement,
        ]));
        File::create(done).expect("a mark");
    }
    interpreter
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("python3 is installed");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn tour(interpreter: &Path) {
    let upstream = FakeUpstream::start();
    let (simulated, scripted) = (Gateway::simulated(), Gateway::before(&upstream));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/openai_tour.py");
    let output = Command::new(interpreter)
        .arg(script)
        .env_remove("OPENAI_ORG_ID")
        .env_remove("OPENAI_PROJECT_ID")
        .env("SIMULATED_BASE_URL", simulated.base_url())
        .env("SIMULATED_API_KEY", simulated.secret())
        .env("SCRIPTED_BASE_URL", scripted.base_url())
        .env("SCRIPTED_API_KEY", scripted.secret())
        .output()
        .expect("the script runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{printed}");
    assert!(output.status.success(), "{printed}\n{complaint}");

    // The SDK retries by itself where it may. What it was told not to repeat must have cost exactly one attempt.
    let ledger = upstream.ledger();
    let users: std::collections::BTreeSet<_> = ledger.iter().map(crate::kit::Attempt::user).collect();
    assert_eq!(users.len(), 8, "{users:?}");
    for user in users {
        let attempts = ledger.iter().filter(|attempt| attempt.user() == user).count();
        assert_eq!(attempts, 1, "{user}: {attempts} attempts for one call of the SDK");
    }
}

#[test]
fn the_newest_release_is_content_with_every_answer() {
    tour(&python("IMAGATE_PY_NEWEST", "openai-newest", "openai"));
}

#[test]
fn the_newest_2x_release_is_content_with_every_answer() {
    tour(&python("IMAGATE_PY_2", "openai-2", "openai<3"));
}
