//! Compiles the SDK with the oldest Rust that it promises, which rustup installs.
//!
//! The dependencies are those that cargo chooses for that compiler; that the newest ones keep to the version is a check of
//! [`rust_version`].

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::external_tools::{run_command, succeeds};
use super::{command, is_ci, rust_version, stdout_of, target_folder};
use crate::readme;

/// The features that are compiled. A dependency of `resize` itself needs a newer Rust than the SDK.
const FEATURES: &str = "admin,testing";

/// Compiles the package that would be published. Without rustup, the check is omitted; it fails if `CI` is set.
pub(super) fn check(root: &Path) -> Result<()> {
    let (major, minor) = rust_version::package_version(root)?;
    let version = format!("{major}.{minor}");
    if !succeeds(&["rustup", "--version"]) {
        ensure!(!is_ci(), "rustup is missing (https://rustup.rs), which installs Rust {version}");
        println!("omitted: rustup (https://rustup.rs) installs Rust {version}");
        return Ok(());
    }
    run_command(Command::new("rustup").args(["toolchain", "install", &version, "--profile", "minimal"]))?;
    let rustc = stdout_of(Command::new("rustup").args(["which", "rustc", "--toolchain", &version]))?;
    let folder = target_folder(root)?.join("oldest_rust");
    let packages = folder.join("package");
    if packages.exists() {
        fs::remove_dir_all(&packages)?;
    }
    fs::create_dir_all(&packages)?;
    let package = readme::pack(root, &packages)?;
    let manifest = package.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).context("the manifest of the package")?;
    // The target folder can be inside of this workspace.
    fs::write(&manifest, text + "\n[workspace]\n")?;
    fs::remove_file(package.join("Cargo.lock")).context("the lock file of the package")?;
    let mut resolve = command(&package, &["generate-lockfile", "--quiet"]);
    run_command(resolve.env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "fallback"))?;
    let mut check = command(&package, &["check", "--lib", "--locked", "--ignore-rust-version", "--features", FEATURES]);
    run_command(check.env("RUSTC", rustc.trim()).env("CARGO_TARGET_DIR", folder.join("target")))
}
