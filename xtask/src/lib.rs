//! The development tasks of this repository, as a library.
//!
//! `generate` turns the documents into the files under `generated/`, and into the tables of the pages under `docs/` and
//! of the API reference that the skills registry publishes.
//! This crate does not depend on `imagate`, so it builds even if `imagate` does not compile.

mod api;
pub mod bench;
mod calls;
pub mod ci;
pub mod corpus;
mod demands;
mod docs;
mod document;
mod error_codes;
pub mod examples;
mod fingerprint;
pub mod generated_clients;
pub mod instructions;
mod limit_fields;
mod manifest;
pub mod mutations;
mod open_words;
mod pages;
pub mod postgres;
mod print;
mod progenitor_copy;
pub mod public_api;
pub mod readme;
mod record_columns;
mod reference_pages;
pub mod release;
mod rules;
mod schemas;
mod sdk;
pub mod semver;
mod server;
mod settings;
mod simulator;
pub mod soak;
pub mod statements;
mod surface;
pub mod tidy;
pub mod tree;
pub mod zoo;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use api::{ADMIN, Api, GATEWAY};
pub use document::Document;
use pages::TableSources;

/// The text of every file that generation reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// `openapi/gateway.json`.
    pub openapi: String,
    /// `openapi/admin.json`.
    pub admin: String,
    /// `schemas/skills-registry.schema.json`.
    pub manifest_schema: String,
    /// `schemas/skills-rules.json`.
    pub manifest_rules: String,
    /// `schemas/config.schema.json`.
    pub settings_schema: String,
    /// The pages whose marked tables are generated, by path.
    pub pages: BTreeMap<String, String>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The path from the root of the repository, with `/`.
    pub path: String,
    /// The complete text. Each line ends with `\n`, also the last one.
    pub contents: String,
}

/// The schema of the skills registry manifest.
pub const MANIFEST_SCHEMA: &str = "schemas/skills-registry.schema.json";
/// The schema of the settings.
pub const SETTINGS_SCHEMA: &str = "schemas/config.schema.json";
/// The README.
pub const README: &str = "README.md";
/// The folder of the reference pages.
pub const PAGES: &str = "docs";
/// The API reference that the skills registry of this repository publishes.
pub const REFERENCE: &str = "schemas/skills/apis/imagate-http.md";

/// Every generated file, sorted by path.
///
/// # Errors
///
/// A document is not JSON, breaks a rule of this project, or uses a construct that no generator supports.
pub fn generate(sources: &Sources) -> Result<Vec<Output>> {
    let document = Document::parse(&sources.openapi).context(GATEWAY.document)?;
    let admin = Document::parse(&sources.admin).context(ADMIN.document)?;
    let manifest = manifest::generate(&sources.manifest_schema)?;
    let rules = rules::generate(&sources.manifest_rules)?;
    let mut outputs = vec![
        output("generated/manifest.rs", print::rust(MANIFEST_SCHEMA, &manifest)),
        output("generated/manifest_rules.rs", print::rust(rules::DOCUMENT, &rules)),
    ];
    outputs.extend(generate_code(&GATEWAY, &document).context(GATEWAY.document)?);
    outputs.extend(generate_code(&ADMIN, &admin).context(ADMIN.document)?);
    let codes = error_codes::generate([&document, &admin])?;
    outputs.push(output("generated/error_codes.rs", print::rust("openapi/*.json", &codes)));
    let columns = record_columns::generate(&admin)?;
    outputs.push(output("generated/record_columns.rs", print::rust("openapi/admin.json", &columns)));
    let limits = limit_fields::generate(&admin)?;
    outputs.push(output("generated/limit_fields.rs", print::rust("openapi/admin.json", &limits)));
    let reference = reference_pages::generate([(&GATEWAY, &document), (&ADMIN, &admin)])?;
    outputs.push(output(reference_pages::OUTPUT, reference));
    // Sorted before the fingerprint is made, so that the fingerprint does not depend on the order of the lines above.
    outputs.sort_by(|first, second| first.path.cmp(&second.path));
    outputs.push(output("generated/FINGERPRINT", fingerprint::generate(sources, &outputs)));
    let settings = serde_json::from_str(&sources.settings_schema).context(SETTINGS_SCHEMA)?;
    let tables = TableSources { document: &document, settings: &settings };
    for (path, text) in &sources.pages {
        outputs.push(output(path, pages::generate(tables, text).with_context(|| path.clone())?));
    }
    outputs.sort_by(|first, second| first.path.cmp(&second.path));
    Ok(outputs)
}

/// The files of one document: client, schemas, server and types.
fn generate_code(api: &Api, document: &Document) -> Result<Vec<Output>> {
    let sdk = sdk::generate(api, document).context("client and types")?;
    let files = [
        ("client", sdk.client),
        ("schemas", schemas::generate(document)?),
        ("server", server::generate(api, document).context("server trait")?),
        ("types", sdk.types),
    ];
    let open_types = sdk.open_types.map(|types| ("open_types", types));
    let endpoints = api.endpoints.map(|name| server::endpoints(api, name, document)).transpose()?;
    let path = |part: &str| format!("generated/{}{part}.rs", api.prefix);
    Ok(files
        .into_iter()
        .chain(open_types)
        .chain(endpoints.map(|endpoints| ("endpoints", endpoints)))
        .map(|(part, file)| output(&path(part), print::rust(api.document, &file)))
        .collect())
}

fn output(path: &str, contents: String) -> Output {
    Output { path: path.to_owned(), contents }
}
