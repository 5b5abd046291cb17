//! The command `imagate skills remove`.
//!
//! The command removes entries from a manifest, and leaves the folders and packages of the skills; with `--into`, it
//! removes installed skills with their folders.

use std::path::PathBuf;

use anyhow::Context as _;
use chrono::SecondsFormat;
use clap::Args;

use super::atomic_file::replace_file;
use super::install::SkillsFolder;
use super::manifest_input::ManifestInput;
use super::source_date::SourceDate;
use super::verify::folder_of;
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_message;
use crate::manifest::{Manifest, RepositoryFiles as _, Skill, SkillRequirement, SkillsRegistry};

/// Arguments of `skills remove`.
#[derive(Debug, Args)]
pub(super) struct RemoveCommand {
    /// The skills to remove: a name, or a name with versions, such as `images@1.2.3` or `images@<2`.
    #[arg(value_name = "NAME[@VERSION]", required = true)]
    skills: Vec<SkillRequirement>,
    /// The manifest. The folder and the packages of a skill are kept.
    #[arg(long, value_name = "FILE", default_value = "skills.json")]
    manifest: PathBuf,
    /// Remove skills that are installed in this folder, with their files, instead of entries of a manifest.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["manifest", "source_date_epoch"])]
    into: Option<PathBuf>,
    /// Remove an installed skill even if its files were changed.
    #[arg(long, requires = "into")]
    force: bool,
    #[command(flatten)]
    source_date: SourceDate,
}

// === impl RemoveCommand ===

impl RemoveCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        match &self.into {
            Some(folder) => self.remove_installed(&mut SkillsFolder::open_existing(folder)?),
            None => self.remove_entries(),
        }
    }

    /// Removes the skills, after it has found that all of them can be removed.
    fn remove_installed(&self, folder: &mut SkillsFolder) -> Result<(), CommandFailure> {
        let problems: Vec<String> = self
            .skills
            .iter()
            .filter_map(|skill| folder.check_removable(skill, self.force).err())
            .map(|error| format!("{error:#}"))
            .collect();
        if !problems.is_empty() {
            return Err(CommandFailure::Problems(problems));
        }
        for skill in &self.skills {
            if let Some(version) = folder.remove(skill.name())? {
                print_message(&format!("removed {} {version}", skill.name()));
            }
        }
        Ok(())
    }

    fn remove_entries(&self) -> Result<(), CommandFailure> {
        let mut manifest = Manifest::read(&ManifestInput::File(self.manifest.clone()).read(false)?)?;
        let problems: Vec<String> = self
            .skills
            .iter()
            .filter_map(|requirement| requirement.check_listed(manifest.registry()).err())
            .map(|error| error.to_string())
            .collect();
        if !problems.is_empty() {
            return Err(CommandFailure::Problems(problems));
        }
        let now = self.source_date.now()?.to_rfc3339_opts(SecondsFormat::Secs, true);
        let mut removed = Vec::new();
        manifest.edit(|registry| {
            removed = registry.skills.extract_if(.., |skill| self.is_selected(skill)).collect();
            registry.generated_at = now;
        })?;
        let name = self.manifest.display().to_string();
        replace_file(&self.manifest, &manifest.to_text()).with_context(|| name.clone())?;
        for skill in &removed {
            print_message(&format!("removed {} {} from {name}", skill.name, skill.version));
        }
        self.print_remaining_files(&removed, manifest.registry())
    }

    fn is_selected(&self, skill: &Skill) -> bool {
        let accepts = |requirement: &SkillRequirement| {
            requirement.name() == skill.name && requirement.matches_version(&skill.version)
        };
        self.skills.iter().any(accepts)
    }

    /// Says which skills the next build would add again, because their folders still exist.
    fn print_remaining_files(&self, removed: &[Skill], registry: &SkillsRegistry) -> Result<(), CommandFailure> {
        let checkout = Checkout::open(&folder_of(&self.manifest))?;
        let mut paths: Vec<&str> = removed.iter().map(|skill| skill.path.trim_end_matches('/')).collect();
        paths.dedup();
        for path in paths {
            let is_listed = registry.skills.iter().any(|skill| skill.path.trim_end_matches('/') == path);
            if !is_listed && matches!(checkout.metadata(path), Ok(Some(_))) {
                print_message(&format!(
                    "{path} still exists, and `imagate skills build` would add the skill again; delete the folder to \
                     prevent that"
                ));
            }
        }
        Ok(())
    }
}
