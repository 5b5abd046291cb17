//! The command `imagate skills update`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::atomic_file::{refuse_symlinks, replace_file, write_file};
use super::diff::difference_text;
use super::manifest_input::ManifestInput;
use super::source_date::SourceDate;
use super::verify::{folder_of, shown_path, with_shown_paths};
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_message};
use crate::manifest::{Manifest, SkillRequirement, SourceFile, UpdateInput, UpdateOutput, diff, update};

/// Arguments of `skills update`.
#[derive(Debug, Args)]
pub(super) struct UpdateCommand {
    /// The skills to update. Without a name, all skills and API references are updated.
    #[arg(value_name = "NAME")]
    names: Vec<SkillRequirement>,
    /// The manifest. Its folder is the root of the repository.
    #[arg(long, value_name = "FILE", default_value = "skills.json")]
    manifest: PathBuf,
    /// The folder with the API references as Markdown files, relative to the root.
    #[arg(long, value_name = "PATH", default_value = "apis")]
    apis: String,
    /// Allow content to change without a new version. Use it only for versions that are not published.
    #[arg(long)]
    overwrite: bool,
    /// Write nothing, and fail if an entry or a package would change.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    source_date: SourceDate,
}

// === impl UpdateCommand ===

impl UpdateCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let manifest = Manifest::read(&ManifestInput::File(self.manifest.clone()).read(false)?)?;
        let root = folder_of(&self.manifest);
        let checkout = Checkout::open(&root).with_context(|| root.display().to_string())?;
        let input = UpdateInput {
            files: &checkout,
            manifest: &manifest,
            names: self.selected_names(&manifest)?,
            apis: self.apis.trim_end_matches('/').to_owned(),
            now: self.source_date.now()?,
            timestamp: self.source_date.zip_timestamp(),
            overwrite: self.overwrite,
        };
        let updated = update(&input).map_err(|error| with_shown_paths(error, &root))?;
        for path in &updated.left_out {
            print_message(&format!("left out {}", shown_path(&root, path)));
        }
        if let Some(text) = &updated.manifest {
            let new = Manifest::read(&SourceFile::new(self.manifest.display().to_string(), text.as_bytes()))?;
            print(&difference_text(&diff(&manifest, &new)))?;
        }
        if self.check { report_check(&updated, &root) } else { self.write(&checkout, &updated) }
    }

    /// Returns the names of the skills, which must be in the manifest. A version after a name is wrong usage.
    fn selected_names(&self, manifest: &Manifest) -> Result<Option<BTreeSet<String>>, CommandFailure> {
        for requirement in &self.names {
            if requirement.has_version() {
                let message = format!("write `{}` without a version", requirement.name());
                return Err(CommandFailure::Usage(message));
            }
            requirement.check_listed(manifest.registry())?;
        }
        let names = self.names.iter().map(|requirement| requirement.name().to_owned());
        Ok(Some(names.collect()).filter(|names: &BTreeSet<String>| !names.is_empty()))
    }

    /// Writes the packages before the manifest, so that the manifest never names a missing package.
    fn write(&self, checkout: &Checkout, updated: &UpdateOutput) -> Result<(), CommandFailure> {
        let root = folder_of(&self.manifest);
        for (path, bytes) in &updated.packages {
            refuse_symlinks(checkout, path)?;
            write_file(&root.join(path), bytes)?;
            print_message(&format!("wrote {}", shown_path(&root, path)));
        }
        let manifest = self.manifest.display().to_string();
        match &updated.manifest {
            Some(text) => {
                replace_file(&self.manifest, text).with_context(|| manifest.clone())?;
                print_message(&format!("wrote {manifest}"));
            }
            None => print_message(&format!("{manifest} is up to date")),
        }
        Ok(())
    }
}

/// Prints the packages that would be written, and fails if anything would be.
fn report_check(updated: &UpdateOutput, root: &Path) -> Result<(), CommandFailure> {
    for (path, _) in &updated.packages {
        print_message(&format!("would write {}", shown_path(root, path)));
    }
    if updated.packages.is_empty() && updated.manifest.is_none() { Ok(()) } else { Err(CommandFailure::HasFindings) }
}
