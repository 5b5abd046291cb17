//! From the bytes of a package to a folder in its place: what is asked of them, and in which order.
//!
//! Size and checksum come before anything of them is read, then the whole is read under the limits, and only then it is
//! unpacked: into a new folder, which takes its place by one rename. Nothing of it is ever run.

use anyhow::{Context as _, bail, ensure};

use super::place::Place;
use super::unpack;
use crate::manifest::package::{Contents, Limits, front};
use crate::manifest::{Locked, Skill, package_fault};

/// Installs what the manifest calls this skill, if the bytes are its package and safe.
pub(super) fn put(place: &mut Place, skill: &Skill, bytes: &[u8], limits: &Limits) -> anyhow::Result<()> {
    if let Some(fault) = package_fault(skill, bytes) {
        bail!("{} is not the package that the manifest promises: {fault}", skill.package);
    }
    let contents = Contents::read(bytes, limits).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{} is not safe to unpack: {}", skill.package, faults.join("; "))
    })?;
    let root = root_of(&contents, skill)?;
    let new = unpack::unpack(bytes, limits, root, place.folder())?;
    let files = contents
        .files
        .iter()
        .filter_map(|(path, content)| Some((path.strip_prefix(root)?.to_owned(), content.sum.to_string())));
    let locked = Locked {
        version: skill.version.clone(),
        package: skill.package.clone(),
        sha256: skill.sha256.to_ascii_lowercase(),
        size_bytes: bytes.len() as u64,
        files: files.collect(),
    };
    place.put(&skill.name, new, locked)
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
