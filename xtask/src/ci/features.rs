//! The features of the crate: the set with which the other steps build, and the check that each feature builds alone.

use std::path::Path;

use anyhow::Result;

use super::{cargo, external_tools, metadata, run_all_checks, wasm};

/// The features that make up everything but the other ways of TLS. `--all-features` would link the system's OpenSSL, too.
pub(crate) const EVERYTHING: &str = "cli,admin,testing";

/// The feature that works without an operating system.
pub(super) const MANIFEST_ARGUMENTS: [&str; 3] = ["--no-default-features", "--features", "manifest"];

/// Builds each feature alone.
pub(super) fn check(root: &Path) -> Result<()> {
    let features = ["", "client", "admin", "testing", "manifest", "gateway"];
    let feature_checks = features.into_iter().map(|feature| check_alone(root, feature));
    let further_checks: [fn(&Path) -> Result<()>; 4] =
        [native_tls, rustls_without_provider, manifest_alone, manifest_in_wasm];
    run_all_checks(feature_checks.chain(further_checks.into_iter().map(|check| check(root))))
}

fn check_alone(root: &Path, feature: &str) -> Result<()> {
    println!("\n--- {}", if feature.is_empty() { "no feature" } else { feature });
    // Clippy includes `cargo check`, and `-D warnings` after `--` does not rebuild the dependencies.
    cargo(root, &["clippy", "--no-default-features", "--features", feature, "--", "-D", "warnings"], &[])
}

fn native_tls(root: &Path) -> Result<()> {
    if cfg!(target_os = "linux") && !external_tools::succeeds(&["pkg-config", "--exists", "openssl"]) {
        println!("\n--- native-tls: omitted. It needs OpenSSL: apt-get install libssl-dev pkg-config");
        return Ok(());
    }
    check_alone(root, "client,native-tls")
}

fn rustls_without_provider(root: &Path) -> Result<()> {
    println!("\n--- client,rustls-no-provider: a program without a provider; the workspace has one");
    run_outside_workspace(root, "tests/no_provider/Cargo.toml")
}

fn manifest_alone(root: &Path) -> Result<()> {
    println!("\n--- manifest, alone: reports and packages byte for byte; the step `test` has all features");
    run_outside_workspace(root, "tests/wasm/Cargo.toml")
}

/// Runs the program of a package that is not of the workspace, so that no other feature changes its dependencies.
fn run_outside_workspace(root: &Path, manifest: &str) -> Result<()> {
    let target = ("CARGO_TARGET_DIR".into(), metadata::target_folder(root)?.into());
    cargo(root, &["run", "--quiet", "--locked", "--manifest-path", manifest], &[target])
}

fn manifest_in_wasm(root: &Path) -> Result<()> {
    if wasm::is_installed(root)? {
        return wasm::run_manifest(root);
    }
    println!(
        "{} is not installed: omitted. `cargo xtask wasm` runs it; the step `tree` checks its dependencies",
        wasm::TARGET
    );
    Ok(())
}
