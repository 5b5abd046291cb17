//! The step `openapi`: two linters that do not know the rules of this project find nothing in the API documents.
//!
//! The rules of this project are for its own generators. Those of the linters are for every other tool that reads the
//! documents: they hold examples against schemas, for instance, and report components that nothing uses.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::external_tools::{prepare_node, run_command};
use super::run_all_checks;

const PACKAGES: &str = "@redocly/cli@2.77.0 @stoplight/spectral-cli@6.16.3";
const DOCUMENTS: [&str; 2] = ["openapi/gateway.json", "openapi/admin.json"];
/// The rules of Spectral for OpenAPI. Without a file that names them, it has none.
const RULESET: &str = "extends: [\"spectral:oas\"]\n";

pub(super) fn check(root: &Path) -> Result<()> {
    let folder = prepare_node(&root.join("target").join("clients").join("openapi-linters"), PACKAGES)?;
    let ruleset = folder.join("spectral.yaml");
    fs::write(&ruleset, RULESET)?;
    let programs = folder.join("node_modules").join(".bin");
    let spectral = || {
        let mut command = Command::new(programs.join("spectral"));
        run_command(
            command.args(["lint", "--fail-severity=hint", "-r"]).arg(&ruleset).args(DOCUMENTS).current_dir(root),
        )
    };
    let redocly = DOCUMENTS.map(|document| {
        let mut command = Command::new(programs.join("redocly"));
        command.args(["lint", "--format=json", document]).current_dir(root);
        command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
        read_report(document, &mut command)
    });
    run_all_checks(redocly.into_iter().chain([spectral()]))
}

/// Fails if the report of Redocly has a problem. Its exit code is 0 if there are only warnings.
fn read_report(document: &str, command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("redocly")?;
    let report: Value = serde_json::from_slice(&output.stdout).context("the report of Redocly")?;
    let problems = report["problems"].as_array().context("the report of Redocly has no problems")?;
    ensure!(problems.is_empty(), "{document}: {:#}", report["problems"]);
    println!("{document}: Redocly finds nothing");
    Ok(())
}
