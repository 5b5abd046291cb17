//! `cargo xtask wasm`: builds the feature `manifest` for WebAssembly and runs it in Node. Its results have to equal the
//! golden files and the packages in the repository.
//!
//! The standard library comes from `rustup target add`. If it is missing, it is built from the sources of Debian's
//! compiler for browsers (`rustc-web`); those packages are unpacked below `target/`, and nothing is installed.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::command;
use super::external_tools::{FINISHED_MARKER, run_command};

pub(super) const TARGET: &str = "wasm32-unknown-unknown";

/// The Debian packages of the compiler and of its sources.
const PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];

/// Builds the module, runs it, and compares its results.
///
/// # Errors
///
/// A result differs, or the module cannot be built on this machine.
pub fn run(root: &Path) -> Result<()> {
    let folder = root.join("target").join("wasm");
    let arguments = ["build", "--locked", "--manifest-path", "tests/wasm/Cargo.toml", "--target", TARGET];
    let mut build = command(root, &arguments);
    build.env("CARGO_TARGET_DIR", &folder);
    if !is_installed(root)? {
        let advice = || format!("{TARGET} is not installed: `rustup target add {TARGET}`");
        let sources = unpack_debian_compiler(&folder.join("debian")).with_context(advice)?;
        build_std_from_sources(root, &mut build, &sources)?;
    }
    run_command(&mut build)?;
    let program = folder.join(TARGET).join("debug").join("imagate_wasm.wasm");
    run_command(Command::new("node").arg("tests/wasm/run.mjs").arg(program).arg(root).current_dir(root))
}

/// Returns whether the standard library for [`TARGET`] is installed.
pub(super) fn is_installed(root: &Path) -> Result<bool> {
    Ok(target_libdir(root, TARGET)?.is_dir())
}

/// The folder in which `rustc` expects the standard library of a target.
fn target_libdir(root: &Path, target: &str) -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    Ok(stdout_of(rustc.args(["--print", "target-libdir", "--target", target]).current_dir(root))?.trim().into())
}

/// Makes `build` compile the standard library, too, with Debian's compiler and the linker of the usual compiler.
fn build_std_from_sources(root: &Path, build: &mut Command, debian: &Path) -> Result<()> {
    let host = format!("{ARCH}-unknown-linux-gnu");
    let linker = target_libdir(root, &host)?.with_file_name("bin").join("rust-lld");
    ensure!(linker.is_file(), "{} is missing", linker.display());
    build.arg("-Zbuild-std=std,panic_abort").env("RUSTC_BOOTSTRAP", "1");
    build.env("RUSTC", debian.join("usr/bin/rustc"));
    build.env("LD_LIBRARY_PATH", debian.join(format!("usr/lib/{ARCH}-linux-gnu")));
    build.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    Ok(())
}

/// Downloads and unpacks Debian's compiler and its missing dependencies. Returns the folder.
fn unpack_debian_compiler(folder: &Path) -> Result<PathBuf> {
    let marker = folder.join(FINISHED_MARKER);
    if marker.is_file() {
        return Ok(folder.to_owned());
    }
    fs::create_dir_all(folder)?;
    // The update needs root. Without it, the existing package lists are used.
    let _ = Command::new("apt-get").args(["update", "--quiet"]).stdin(Stdio::null()).status();
    let mut simulate = Command::new("apt-get");
    let simulation = stdout_of(simulate.args(["install", "--simulate", "--no-install-recommends"]).args(PACKAGES))?;
    run_command(
        Command::new("apt-get")
            .args(["download", "--quiet"])
            .args(packages_to_install(&simulation))
            .current_dir(folder),
    )?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            run_command(Command::new("dpkg-deb").arg("--extract").args([&path, folder]))?;
            fs::remove_file(path)?;
        }
    }
    fs::write(marker, "")?;
    Ok(folder.to_owned())
}

/// The packages that a simulated `apt-get install` lists.
fn packages_to_install(simulation: &str) -> Vec<&str> {
    simulation.lines().filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next()).collect()
}

fn stdout_of(command: &mut Command) -> Result<String> {
    let line = format!("{command:?}");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().with_context(|| line.clone())?;
    ensure!(output.status.success(), "{line} failed");
    String::from_utf8(output.stdout).context(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_to_install_are_read_from_the_simulation() {
        let simulation = "Reading package lists...\nInst libllvm22 (1:22.1.8-1 Debian:12 [amd64])\n\
                    Inst rustc-web (1.96.0 Debian:12 [amd64])\nConf rustc-web (1.96.0 Debian:12 [amd64])\n";
        assert_eq!(packages_to_install(simulation), ["libllvm22", "rustc-web"]);
    }
}
