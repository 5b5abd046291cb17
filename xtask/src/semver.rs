//! `cargo xtask semver`: compares the public API with that of an earlier revision, with cargo-semver-checks.
//!
//! The tool is installed below `target/` unless it is there, which takes minutes. Therefore it is a part of the release
//! checklist and not a step of `cargo xtask test`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::ci;
use crate::public_api::FEATURES;

const TOOL: &str = "cargo-semver-checks";
/// It reads what rustdoc of Rust 1.95 writes.
const VERSION: &str = "0.51.0";

/// Compares with a revision of git, or with the newest tag.
///
/// # Errors
///
/// A change that the version number does not allow, or no tool.
pub fn run(root: &Path, revision: Option<&str>) -> Result<()> {
    let revision = revision.map_or_else(|| newest_tag(root), |revision| Ok(revision.to_owned()))?;
    let tools = root.join("target").join("semver");
    if !tools.join("bin").join(TOOL).exists() {
        let tools = tools.to_str().context("the path of this repository is not UTF-8")?;
        ci::cargo(root, &["install", TOOL, "--version", VERSION, "--locked", "--root", tools], &[])?;
    }
    let mut check = Command::new(tools.join("bin").join(TOOL));
    check.args(["semver-checks", "--package", "imagate", "--only-explicit-features", "--features", FEATURES]);
    let status =
        check.args(["--baseline-rev", &revision]).current_dir(root).stdin(Stdio::null()).status().context(TOOL)?;
    ensure!(status.success(), "the API has changed since {revision} more than the version in Cargo.toml allows");
    Ok(())
}

fn newest_tag(root: &Path) -> Result<String> {
    let mut git = Command::new("git");
    let output = git.args(["describe", "--tags", "--abbrev=0"]).current_dir(root).output().context("git")?;
    ensure!(output.status.success(), "there is no tag of a version: name the revision to compare with");
    Ok(String::from_utf8(output.stdout).context("git")?.trim().to_owned())
}
