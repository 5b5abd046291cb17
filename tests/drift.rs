//! Tests that the documents and the code agree, with one check for each way in which they could differ.
//!
//! Each check is a function that compares two sides and returns a list of differences. A second test for each check
//! changes one side and expects the difference, which proves that the check can fail.
#![cfg(feature = "gateway")]
#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "drift/accessors.rs"]
mod accessors;
#[cfg(feature = "cli")]
#[path = "drift/addresses.rs"]
mod addresses;
#[path = "drift/admin.rs"]
mod admin;
#[path = "drift/answers.rs"]
mod answers;
#[path = "drift/contract_snapshot.rs"]
mod contract_snapshot;
#[path = "drift/deployment.rs"]
mod deployment;
#[path = "drift/descriptions.rs"]
mod descriptions;
#[path = "drift/difference.rs"]
mod difference;
#[path = "drift/errors.rs"]
mod errors;
#[path = "drift/facts.rs"]
mod facts;
#[path = "drift/fields.rs"]
mod fields;
#[path = "drift/fresh.rs"]
mod fresh;
#[path = "drift/headers.rs"]
mod headers;
#[path = "drift/limits.rs"]
mod limits;
#[path = "drift/models.rs"]
mod models;
#[path = "drift/pages.rs"]
mod pages;
#[path = "drift/phrases.rs"]
mod phrases;
#[path = "drift/prose.rs"]
mod prose;
#[cfg(feature = "cli")]
#[path = "drift/recording.rs"]
mod recording;
#[path = "drift/request_headers.rs"]
mod request_headers;
#[path = "drift/schema.rs"]
mod schema;
#[path = "drift/served.rs"]
mod served;
#[path = "drift/setters.rs"]
mod setters;
#[path = "drift/settings.rs"]
mod settings;
#[path = "drift/specified.rs"]
mod specified;
#[path = "drift/statuses.rs"]
mod statuses;
#[path = "drift/values.rs"]
mod values;
#[cfg(feature = "cli")]
#[path = "drift/wire.rs"]
mod wire;

use imagate::tables;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The folder of the documents, the pages and the skills: the repository, or a changed copy by `cargo xtask mutations`.
#[expect(clippy::disallowed_methods, reason = "`cargo xtask mutations` passes its copy only in the environment")]
fn folder() -> PathBuf {
    std::env::var_os("IMAGATE_DOCUMENTS").map_or_else(root, PathBuf::from)
}

fn json(path: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(path)).expect("the document is there");
    serde_json::from_str(&text).expect("the document is JSON")
}

/// The document of the public API.
fn document() -> Value {
    json("openapi/gateway.json")
}

/// The document of the admin API.
fn admin_document() -> Value {
    json("openapi/admin.json")
}

/// Fails if there is a difference.
#[track_caller]
fn assert_no_difference(differences: &[String]) {
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Fails if no line of the differences contains this text.
#[track_caller]
fn assert_mentions(differences: &[String], place: &str) {
    let named = differences.iter().any(|line| line.contains(place));
    assert!(named, "no line names '{place}':\n{}", differences.join("\n"));
}
