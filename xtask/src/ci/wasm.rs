//! `cargo xtask wasm`: builds the feature `manifest` and the SDK for WebAssembly and runs them in Node.
//!
//! The results of `manifest` have to equal the golden files and the packages in the repository; the SDK calls a server of
//! the test.
//!
//! The command `wasm-bindgen` makes the module that Node loads. It must have the version of the library, so it is
//! installed below `target/` unless it is there.
//!
//! The standard library comes from `rustup target add`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::external_tools::run_command;
use super::{command, stdout_of};

pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// Builds both modules, runs them, and compares their results.
///
/// # Errors
///
/// A result differs, or a module cannot be built on this machine.
pub fn run(root: &Path) -> Result<()> {
    run_manifest(root)?;
    run_client(root)
}

/// Runs the module of the feature `manifest`.
pub(super) fn run_manifest(root: &Path) -> Result<()> {
    let program = build(root, "wasm")?.join("imagate_wasm.wasm");
    run_command(Command::new("node").arg("tests/wasm/run.mjs").arg(program).arg(root).current_dir(root))
}

/// Runs the module of the SDK.
fn run_client(root: &Path) -> Result<()> {
    let program = build(root, "wasm_client")?.join("imagate_wasm_client.wasm");
    let bindings = folder(root).join("client");
    let mut bindgen = Command::new(install_wasm_bindgen(root)?);
    run_command(bindgen.args(["--target", "nodejs", "--out-dir"]).arg(&bindings).arg(program).current_dir(root))?;
    let module = bindings.join("imagate_wasm_client.js");
    run_command(Command::new("node").arg("tests/wasm_client/run.mjs").arg(module).current_dir(root))
}

fn folder(root: &Path) -> PathBuf {
    root.join("target").join("wasm")
}

/// Builds a package of `tests/`; returns the folder of its module.
fn build(root: &Path, package: &str) -> Result<PathBuf> {
    let folder = folder(root);
    let manifest = format!("tests/{package}/Cargo.toml");
    let arguments = ["build", "--locked", "--manifest-path", &manifest, "--target", TARGET];
    let mut build = command(root, &arguments);
    build.env("CARGO_TARGET_DIR", &folder);
    if !is_installed(root)? {
        run_command(Command::new("rustup").args(["target", "add", TARGET]).current_dir(root))?;
    }
    run_command(&mut build)?;
    Ok(folder.join(TARGET).join("debug"))
}

/// Installs `wasm-bindgen` in the version of the library, unless it is there; returns its path.
fn install_wasm_bindgen(root: &Path) -> Result<PathBuf> {
    const LOCK: &str = "tests/wasm_client/Cargo.lock";
    let lock = fs::read_to_string(root.join(LOCK)).context(LOCK)?;
    let version = version_in_lock(&lock, "wasm-bindgen").with_context(|| format!("{LOCK} has no wasm-bindgen"))?;
    let tools = folder(root).join("tools");
    let program = tools.join("bin").join("wasm-bindgen");
    let present = Command::new(&program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    if String::from_utf8_lossy(&present).trim() != format!("wasm-bindgen {version}") {
        let install = ["install", "wasm-bindgen-cli", "--version", version, "--root"];
        run_command(command(root, &install).arg(&tools))?;
    }
    Ok(program)
}

/// The version of a crate in the text of a `Cargo.lock`.
fn version_in_lock<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, entry) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    Some(entry.split_once('"')?.0)
}

/// Returns whether the standard library for [`TARGET`] is installed.
pub(super) fn is_installed(root: &Path) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    let folder = stdout_of(rustc.args(["--print", "target-libdir", "--target", TARGET]).current_dir(root))?;
    Ok(Path::new(folder.trim()).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_crate_is_read_from_the_lock_file() {
        let lock =
            "name = \"wasm-bindgen-futures\"\nversion = \"0.4.1\"\n\nname = \"wasm-bindgen\"\nversion = \"0.2.9\"\n";
        assert_eq!(version_in_lock(lock, "wasm-bindgen"), Some("0.2.9"));
        assert_eq!(version_in_lock(lock, "wasm"), None);
    }
}
