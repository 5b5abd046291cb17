//! `imagate skills install`
//!
//! A package is held against size and checksum before anything of it is read, then read whole under the limits, and only then
//! unpacked: into a new folder, which takes its place by one rename. Nothing of it is ever run.

mod place;
mod unpack;

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use super::input::{Input, fetch};
use super::verify::folder_of;
use crate::checkout::Checkout;
use crate::cli::failure::Failure;
use crate::cli::output::remark;
use crate::manifest::package::{Contents, Limits, front};
use crate::manifest::{Files as _, Locked, Manifest, Skill, SkillsRegistry, Wanted, package_address, package_fault};
use place::Place;

/// Arguments of `skills install`.
#[derive(Debug, Args)]
pub(super) struct Install {
    /// The skills: a name, or a name with the versions that are good: `images@^1.2`, `images@1.2.3`.
    #[arg(value_name = "NAME[@VERSION]", required = true)]
    skills: Vec<Wanted>,
    /// The manifest: a file, beside which the packages are, or an https address.
    #[arg(long, value_name = "FILE|URL")]
    from: Input,
    /// The folder of skills of an agent.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Take the place of a folder that was changed, or that something else made.
    #[arg(long)]
    force: bool,
}

// === impl Install ===

impl Install {
    pub(super) fn run(self) -> Result<(), Failure> {
        // Whoever types an address wants it to be asked.
        let source = self.from.read(true)?;
        let manifest = Manifest::read(&source)?;
        let mut place = Place::open(&self.into)?;
        for wanted in &self.skills {
            let skill = wanted.choose(manifest.registry())?;
            self.one(&mut place, manifest.registry(), skill).with_context(|| format!("`{}`", wanted.name()))?;
        }
        Ok(())
    }

    fn one(&self, place: &mut Place, registry: &SkillsRegistry, skill: &Skill) -> anyhow::Result<()> {
        if place.has(skill)? {
            remark(&format!("{} {} is there", skill.name, skill.version));
            return Ok(());
        }
        place.may_write(&skill.name, self.force)?;
        let bytes = self.package(registry, skill)?;
        if let Some(fault) = package_fault(skill, &bytes) {
            bail!("{} is not the package that the manifest promises: {fault}", skill.package);
        }
        let limits = Limits::default();
        let contents = Contents::read(&bytes, &limits).map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{} is not safe to unpack: {}", skill.package, faults.join("; "))
        })?;
        let root = root_of(&contents, skill)?.to_owned();
        let new = unpack::unpack(&bytes, &limits, &root, place.folder())?;
        let files = contents.files.iter().filter_map(|(path, content)| {
            Some((path.strip_prefix(root.as_str())?.to_owned(), content.sum.to_string()))
        });
        let locked = Locked {
            version: skill.version.clone(),
            package: skill.package.clone(),
            sha256: skill.sha256.to_ascii_lowercase(),
            size_bytes: bytes.len() as u64,
            files: files.collect(),
        };
        place.put(&skill.name, &new, locked)?;
        remark(&format!("installed {} {}", skill.name, skill.version));
        Ok(())
    }

    fn package(&self, registry: &SkillsRegistry, skill: &Skill) -> anyhow::Result<Vec<u8>> {
        let limit = Limits::default().archive_bytes;
        match &self.from {
            Input::Stdin => {
                bail!("packages cannot come from standard input; give the manifest as a file or an address")
            }
            Input::File(path) => {
                let root = folder_of(path);
                let checkout = Checkout::open(&root).with_context(|| root.display().to_string())?;
                let bytes = checkout.read(&skill.package, limit)?;
                bytes.with_context(|| format!("there is no {} beside the manifest", skill.package))
            }
            Input::Address(_) => {
                let address = package_address(registry, skill);
                fetch(&address, limit).with_context(|| address.clone())
            }
        }
    }
}

/// Where the skill is in its package. It has to be the one that was asked for.
fn root_of<'a>(contents: &'a Contents, skill: &Skill) -> anyhow::Result<&'a str> {
    let root = contents.root().context("the package has no SKILL.md at its root or in its one folder")?;
    let path = format!("{root}SKILL.md");
    let bytes = contents.skills.get(&path).context("the package has no SKILL.md")?;
    let file = front::read(bytes).with_context(|| path.clone())?;
    let name = file.front.name.map(|word| word.text).unwrap_or_default();
    ensure!(name.trim() == skill.name, "the package holds the skill `{name}`");
    Ok(root)
}
