//! The command `imagate skills list`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::install::{InstalledState, SkillsFolder};
use super::manifest_input::ManifestInput;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print, print_json, table};
use crate::manifest::text::JsonNode;
use crate::manifest::{ApiReference, LockFileEntry, Manifest, Skill};

/// Arguments of `skills list`.
#[derive(Debug, Args)]
pub(super) struct ListCommand {
    /// The manifest: a file, `-` for standard input, or an https URL.
    #[arg(value_name = "FILE", default_value = "skills.json")]
    manifest: ManifestInput,
    /// List the API references instead of the skills.
    #[arg(long)]
    apis: bool,
    /// List the skills that are installed in this folder instead of a manifest.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["manifest", "apis", "allow_network"])]
    into: Option<PathBuf>,
    /// Print one JSON array: the entries as they are in the manifest, or the installed skills.
    #[arg(long)]
    json: bool,
    /// Allow downloading the manifest.
    #[arg(long)]
    allow_network: bool,
}

// === impl ListCommand ===

impl ListCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        if let Some(folder) = &self.into {
            return self.print_installed(&SkillsFolder::open_existing(folder)?);
        }
        let manifest = Manifest::read(&self.manifest.read(self.allow_network)?)?;
        if self.json {
            let key = if self.apis { "apis" } else { "skills" };
            let entries = manifest.root().get(key).map(JsonNode::to_json);
            return Ok(print_json(&entries.unwrap_or_default())?);
        }
        let registry = manifest.registry();
        Ok(print(&if self.apis { api_table(&registry.apis) } else { skill_table(&registry.skills) })?)
    }

    fn print_installed(&self, folder: &SkillsFolder) -> Result<(), CommandFailure> {
        let skills = folder.installed()?;
        if self.json {
            let entry = |(name, locked, state): &(&str, &LockFileEntry, InstalledState)| {
                json!({
                    "name": name, "version": locked.version, "package": locked.package, "sha256": locked.sha256,
                    "size_bytes": locked.size_bytes, "state": state.as_str(),
                })
            };
            return Ok(print_json(&skills.iter().map(entry).collect::<Vec<_>>())?);
        }
        let rows: Vec<[String; 3]> = skills
            .iter()
            .map(|(name, locked, state)| [name, &*locked.version, state.as_str()].map(str::to_owned))
            .collect();
        Ok(print(&table(["NAME".into(), "VERSION".into(), Column::state("STATE")], &rows))?)
    }
}

fn skill_table(skills: &[Skill]) -> String {
    let row = |skill: &Skill| {
        let day = skill.updated_at.as_deref().map(day_of);
        [skill.name.clone(), skill.version.clone(), cell(day), skill.title.clone()]
    };
    let [name, version, updated] = ["NAME", "VERSION", "UPDATED"].map(Column::from);
    table([name, version, updated, Column::name("TITLE")], &skills.iter().map(row).collect::<Vec<_>>())
}

fn api_table(apis: &[ApiReference]) -> String {
    let row = |api: &ApiReference| [api.id.clone(), api.product.clone(), api.language.clone(), api.title.clone()];
    let [id, product, language] = ["ID", "PRODUCT", "LANGUAGE"].map(Column::from);
    table([id, product, language, Column::name("TITLE")], &apis.iter().map(row).collect::<Vec<_>>())
}

/// Returns the day of a time; a text that is no time is returned as it is.
fn day_of(time: &str) -> &str {
    match time.split_once('T') {
        Some((day, _)) if day.len() == "2026-11-27".len() => day,
        _ => time,
    }
}
