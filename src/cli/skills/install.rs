//! The command `imagate skills install`.
//!
//! This module selects the package and its source; [`release`] installs it.

mod place;
mod release;
mod unpack;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;

use super::input::{ManifestInput, fetch};
use super::verify::folder_of;
use super::web::HostPolicy;
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::remark;
use crate::manifest::package::PackageLimits;
use crate::manifest::{Manifest, RepositoryFiles as _, Skill, SkillRequirement, SkillsRegistry, package_address};
use place::SkillsFolder;

/// Arguments of `skills install`.
#[derive(Debug, Args)]
pub(super) struct InstallCommand {
    /// The skills to install: a name, or a name with accepted versions, such as `images@^1.2` or `images@1.2.3`.
    #[arg(value_name = "NAME[@VERSION]", required = true)]
    skills: Vec<SkillRequirement>,
    /// The manifest: a file with the packages next to it, or an https URL.
    #[arg(long, value_name = "FILE|URL")]
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
        // An address that the user has typed may be downloaded.
        let source = self.from.read(true)?;
        let manifest = Manifest::read(&source)?;
        let mut place = SkillsFolder::open(&self.into)?;
        for wanted in &self.skills {
            let skill = wanted.choose(manifest.registry())?;
            self.one(&mut place, manifest.registry(), skill).with_context(|| format!("`{}`", wanted.name()))?;
        }
        Ok(())
    }

    fn one(&self, place: &mut SkillsFolder, registry: &SkillsRegistry, skill: &Skill) -> anyhow::Result<()> {
        if place.has(skill)? {
            remark(&format!("{} {} is already installed", skill.name, skill.version));
            return Ok(());
        }
        place.may_write(&skill.name, self.force)?;
        let bytes = self.package(registry, skill)?;
        release::put(place, skill, &bytes, &PackageLimits::default())?;
        remark(&format!("installed {} {}", skill.name, skill.version));
        Ok(())
    }

    fn package(&self, registry: &SkillsRegistry, skill: &Skill) -> anyhow::Result<Vec<u8>> {
        let limit = PackageLimits::default().archive_bytes;
        match &self.from {
            ManifestInput::Stdin => {
                bail!("packages cannot be read from standard input; give the manifest as a file or a URL")
            }
            ManifestInput::File(path) => {
                let root = folder_of(path);
                let checkout = Checkout::open(&root).with_context(|| root.display().to_string())?;
                let bytes = checkout.read(&skill.package, limit)?;
                bytes.with_context(|| format!("{} does not exist next to the manifest", skill.package))
            }
            ManifestInput::Address(_) => {
                let address = package_address(registry, skill);
                fetch(&address, limit, HostPolicy::allowed(self.allow_private_hosts)).with_context(|| address.clone())
            }
        }
    }
}
