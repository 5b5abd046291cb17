//! The chores of this repository, as a library of pure functions.
//!
//! `generate` turns the documents into the files under `generated/` and into the tables of the README and of the API reference
//! that the skills registry publishes.
//! It knows nothing of the crate it generates for, so that it can be built while that crate does not compile.

mod api;
pub mod bench;
pub mod ci;
pub mod corpus;
mod docs;
mod document;
mod fingerprint;
mod manifest;
pub mod mutations;
mod open;
mod print;
mod readme;
mod schemas;
mod sdk;
mod server;
pub mod tidy;
pub mod tree;

use anyhow::{Context as _, Result};

use api::{ADMIN, Api, GATEWAY};
pub use document::Document;

/// The text of every file that generation reads.
#[derive(Clone, Debug)]
pub struct Sources {
    /// `openapi/gateway.json`.
    pub openapi: String,
    /// `openapi/admin.json`.
    pub admin: String,
    /// `schemas/skills-registry.schema.json`.
    pub manifest_schema: String,
    /// `README.md`, whose marked tables are written anew.
    pub readme: String,
    /// The API reference of the skills registry, whose tables are too.
    pub reference: String,
}

/// A file to be written: the path from the root of the repository, and all of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// From the root of the repository, with `/`.
    pub path: String,
    /// Newlines are `\n`, and the last line ends with one.
    pub contents: String,
}

/// The schema of the skills registry manifest.
pub const MANIFEST_SCHEMA: &str = "schemas/skills-registry.schema.json";
/// The page whose tables come from the documents.
pub const README: &str = "README.md";
/// The API reference that our own skills registry publishes.
pub const REFERENCE: &str = "schemas/skills/apis/imagate-http.md";

/// Every generated file, sorted by path.
///
/// # Errors
///
/// A document that is not JSON, breaks the house rules, or says something no generator understands.
pub fn generate(sources: &Sources) -> Result<Vec<Output>> {
    let document = Document::parse(&sources.openapi).context(GATEWAY.document)?;
    let admin = Document::parse(&sources.admin).context(ADMIN.document)?;
    let manifest = manifest::generate(&sources.manifest_schema)?;
    let mut outputs = vec![output("generated/manifest.rs", print::rust(MANIFEST_SCHEMA, &manifest))];
    outputs.extend(code(&GATEWAY, &document).context(GATEWAY.document)?);
    outputs.extend(code(&ADMIN, &admin).context(ADMIN.document)?);
    // In the fingerprint too, so that it does not depend on the order of these lines.
    outputs.sort_by(|one, other| one.path.cmp(&other.path));
    outputs.push(output("generated/FINGERPRINT", fingerprint::generate(sources, &outputs)));
    for (path, text) in [(README, &sources.readme), (REFERENCE, &sources.reference)] {
        outputs.push(output(path, readme::generate(&document, text).context(path)?));
    }
    outputs.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(outputs)
}

/// The files of one document: client, schemas, server and types.
fn code(api: &Api, document: &Document) -> Result<Vec<Output>> {
    let sdk = sdk::generate(api, document).context("client and types")?;
    let files = [
        ("client", sdk.client),
        ("schemas", schemas::generate(document)?),
        ("server", server::generate(api, document).context("server trait")?),
        ("types", sdk.types),
    ];
    let path = |part: &str| format!("generated/{}{part}.rs", api.prefix);
    Ok(files.into_iter().map(|(part, file)| output(&path(part), print::rust(api.document, &file))).collect())
}

fn output(path: &str, contents: String) -> Output {
    Output { path: path.to_owned(), contents }
}
