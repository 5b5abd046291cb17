//! The chores of this repository, as a library of pure functions.
//!
//! `generate` turns the documents into the files under `generated/` and into the tables of the README.
//! It knows nothing of the crate it generates for, so that it can be built while that crate does not compile.

pub mod ci;
mod docs;
mod document;
mod fingerprint;
mod manifest;
mod print;
mod readme;
mod schemas;
mod sdk;
mod server;
pub mod tidy;
pub mod tree;

use anyhow::{Context as _, Result};

pub use document::Document;

/// The text of every file that generation reads.
#[derive(Clone, Debug)]
pub struct Sources {
    /// `openapi/gateway.json`.
    pub openapi: String,
    /// `schemas/skills-registry.schema.json`.
    pub manifest_schema: String,
    /// `README.md`, whose marked tables are written anew.
    pub readme: String,
}

/// A file to be written: the path from the root of the repository, and all of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// From the root of the repository, with `/`.
    pub path: String,
    /// Newlines are `\n`, and the last line ends with one.
    pub contents: String,
}

/// The document of the public API.
pub const OPENAPI: &str = "openapi/gateway.json";
/// The schema of the skills registry manifest.
pub const MANIFEST_SCHEMA: &str = "schemas/skills-registry.schema.json";
/// The page whose tables come from the documents.
pub const README: &str = "README.md";

/// Every generated file, sorted by path.
///
/// # Errors
///
/// A document that is not JSON, breaks the house rules, or says something no generator understands.
pub fn generate(sources: &Sources) -> Result<Vec<Output>> {
    let document = Document::parse(&sources.openapi).context(OPENAPI)?;
    let sdk = sdk::generate(&document).context("client and types")?;
    let mut outputs = vec![
        output("generated/client.rs", print::rust(OPENAPI, &sdk.client)),
        output("generated/manifest.rs", print::rust(MANIFEST_SCHEMA, &manifest::generate(&sources.manifest_schema)?)),
        output("generated/schemas.rs", print::rust(OPENAPI, &schemas::generate(&document)?)),
        output("generated/server.rs", print::rust(OPENAPI, &server::generate(&document).context("server trait")?)),
        output("generated/types.rs", print::rust(OPENAPI, &sdk.types)),
    ];
    outputs.push(output("generated/FINGERPRINT", fingerprint::generate(sources, &outputs)));
    let readme = readme::generate(&document, &sources.readme).context(README)?;
    outputs.push(output(README, readme));
    outputs.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(outputs)
}

fn output(path: &str, contents: String) -> Output {
    Output { path: path.to_owned(), contents }
}
