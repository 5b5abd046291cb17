//! The command `imagate skills install`.
//!
//! This module selects the package and its source; [`package_install`] installs it.

mod package_install;
mod skills_folder;
mod unpack;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use super::manifest_input::{ManifestInput, download_file};
use super::verify::folder_of;
use super::web_client::HostPolicy;
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_message;
use crate::manifest::package::PackageLimits;
use crate::manifest::{
    Manifest, MemoryFiles, RepositoryFiles, Skill, SkillRequirement, SkillsRegistry, SourceFile, package_address,
};
pub(super) use skills_folder::{InstalledState, SkillsFolder};

/// Arguments of `skills install`.
#[derive(Debug, Args)]
pub(super) struct InstallCommand {
    /// The skills to install: a name, or a name with accepted versions, such as `images@^1.2` or `images@1.2.3`.
    #[arg(value_name = "NAME[@VERSION]", required = true)]
    skills: Vec<SkillRequirement>,
    /// The manifest: a file with the packages next to it, or an https URL.
    #[arg(long, value_name = "FILE|URL", default_value = "skills.json")]
    from: ManifestInput,
    /// The skills folder of the agent.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Replace a folder that was changed, or that this tool did not install.
    #[arg(long)]
    force: bool,
    /// Allow packages from hosts in private networks.
    #[arg(long)]
    allow_private_hosts: bool,
}

// === impl InstallCommand ===

impl InstallCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        // The user has typed the address, so a download needs no further permission.
        let source = self.from.read(true)?;
        let manifest = Manifest::read(&source)?;
        let mut skills_folder = SkillsFolder::open(&self.into)?;
        for requirement in &self.skills {
            let chosen = requirement.choose(manifest.registry())?;
            self.install_skill(&mut skills_folder, &source, manifest.registry(), chosen)
                .with_context(|| format!("`{}`", requirement.name()))?;
        }
        Ok(())
    }

    fn install_skill(
        &self,
        skills_folder: &mut SkillsFolder,
        source: &SourceFile,
        registry: &SkillsRegistry,
        (index, skill): (usize, &Skill),
    ) -> anyhow::Result<()> {
        if skills_folder.is_installed(skill) {
            print_message(&format!("{} {} is already installed", skill.name, skill.version));
            return Ok(());
        }
        skills_folder.check_replaceable(&skill.name, self.force)?;
        let files = self.package_files(registry, skill)?;
        package_install::install_package(skills_folder, source, index, skill, files.as_ref())?;
        print_message(&format!("installed {} {}", skill.name, skill.version));
        Ok(())
    }

    /// Returns the files that contain the package: those next to the manifest, or only the downloaded package.
    fn package_files(&self, registry: &SkillsRegistry, skill: &Skill) -> anyhow::Result<Box<dyn RepositoryFiles>> {
        match &self.from {
            ManifestInput::Stdin => {
                bail!("packages cannot be read from standard input; give the manifest as a file or a URL")
            }
            ManifestInput::File(path) => {
                let root = folder_of(path);
                Ok(Box::new(Checkout::open(&root).with_context(|| root.display().to_string())?))
            }
            ManifestInput::Address(_) => {
                let hosts = HostPolicy::from_allow_private(self.allow_private_hosts);
                let limit = PackageLimits::default().archive_bytes;
                let mut files = MemoryFiles::new();
                files.insert(&*skill.package, download_file(&package_address(registry, skill), limit, hosts)?);
                Ok(Box::new(files))
            }
        }
    }
}
