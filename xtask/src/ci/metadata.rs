//! The metadata of the package, from cargo.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::command;

/// The folder in which cargo builds.
pub(crate) fn target_folder(root: &Path) -> Result<PathBuf> {
    Ok(metadata(root)?["target_directory"].as_str().context("cargo metadata names no target folder")?.into())
}

/// The version of the package.
pub(crate) fn package_version(root: &Path) -> Result<String> {
    Ok(package(root)?["version"].as_str().context("the package has no version")?.to_owned())
}

/// The features with which docs.rs builds the documentation, separated by commas.
pub(crate) fn docs_rs_features(root: &Path) -> Result<String> {
    let package = package(root)?;
    let features = package["metadata"]["docs"]["rs"]["features"].as_array().context("no features for docs.rs")?;
    Ok(features.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
}

pub(super) fn package(root: &Path) -> Result<Value> {
    let mut metadata = metadata(root)?;
    let packages = metadata["packages"].as_array_mut().map(std::mem::take).unwrap_or_default();
    packages.into_iter().find(|package| package["name"] == "imagate").context("there is no package imagate")
}

fn metadata(root: &Path) -> Result<Value> {
    let output = command(root, &["metadata", "--no-deps", "--format-version=1"]).output().context("cargo metadata")?;
    ensure!(output.status.success(), "`cargo metadata` failed");
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}
