//! The files on disk: reads the sources, writes the outputs, and finds stale outputs.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::api::{ADMIN, GATEWAY};
use crate::pages::BEGIN;
use crate::{MANIFEST_SCHEMA, Output, PAGES, README, REFERENCE, SETTINGS_SCHEMA, Sources, rules};

/// The root of the repository, independent of the working directory.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Reads the inputs of generation.
///
/// # Errors
///
/// A document that is missing or unreadable.
pub fn read(root: &Path) -> Result<Sources> {
    let text = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    Ok(Sources {
        openapi: text(GATEWAY.document)?,
        admin: text(ADMIN.document)?,
        manifest_schema: text(MANIFEST_SCHEMA)?,
        manifest_rules: text(rules::DOCUMENT)?,
        settings_schema: text(SETTINGS_SCHEMA)?,
        pages: pages(root)?,
    })
}

/// The pages with a marked table, by path: among the README, the API reference and the pages in `docs/`.
fn pages(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut paths = vec![README.to_owned(), REFERENCE.to_owned()];
    for entry in fs::read_dir(root.join(PAGES)).context(PAGES)? {
        let name = entry.context(PAGES)?.file_name().to_string_lossy().into_owned();
        paths.extend(name.ends_with(".md").then(|| format!("{PAGES}/{name}")));
    }
    let mut pages = BTreeMap::new();
    for path in paths {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        if text.contains(BEGIN) {
            pages.insert(path, text);
        }
    }
    Ok(pages)
}

/// The outputs that differ from the files on disk or do not exist there.
///
/// # Errors
///
/// An existing file cannot be read.
pub fn stale_outputs<'a>(root: &Path, outputs: &'a [Output]) -> Result<Vec<&'a Output>> {
    let mut stale = Vec::new();
    for output in outputs {
        let present = match fs::read_to_string(root.join(&output.path)) {
            Ok(text) => Some(text.replace("\r\n", "\n")),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| output.path.clone()),
        };
        if present.as_ref() != Some(&output.contents) {
            stale.push(output);
        }
    }
    Ok(stale)
}

/// Writes the outputs that differ, and returns their paths. Other files keep their times, so that cargo does not
/// rebuild.
///
/// # Errors
///
/// A file that cannot be read or written.
pub fn write(root: &Path, outputs: &[Output]) -> Result<Vec<String>> {
    let mut written = Vec::new();
    for output in stale_outputs(root, outputs)? {
        let path = root.join(&output.path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| output.path.clone())?;
        }
        fs::write(&path, &output.contents).with_context(|| output.path.clone())?;
        written.push(output.path.clone());
    }
    Ok(written)
}
