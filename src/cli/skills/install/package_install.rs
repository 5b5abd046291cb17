//! Installs the bytes of a package as a folder, after a fixed sequence of checks.
//!
//! Size and checksum are checked first. Then the whole package is checked against the limits. Only then is it unpacked
//! into a new folder, which is moved into place by one rename. No file of the package is ever run.

use anyhow::{Context as _, bail, ensure};

use super::skills_folder::SkillsFolder;
use super::unpack;
use crate::manifest::package::skill::is_same_name;
use crate::manifest::package::{PackageContents, PackageLimits, front};
use crate::manifest::{LockFileEntry, Skill, package_fault};

/// Installs the skill if the bytes are the package that the manifest names, and if it is safe to unpack.
pub(super) fn install_package(
    skills_folder: &mut SkillsFolder,
    skill: &Skill,
    bytes: &[u8],
    limits: &PackageLimits,
) -> anyhow::Result<()> {
    if let Some(fault) = package_fault(skill, bytes) {
        bail!("{} is not the package that the manifest promises: {fault}", skill.package);
    }
    let contents = PackageContents::read(bytes, limits).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{} is not safe to unpack: {}", skill.package, faults.join("; "))
    })?;
    let root = skill_root(&contents, skill)?;
    let staged = unpack::unpack(bytes, limits, root, skills_folder.folder())?;
    let files = contents
        .files
        .iter()
        .filter_map(|(path, content)| Some((path.strip_prefix(root)?.to_owned(), content.sum.to_string())));
    let lock_entry = LockFileEntry {
        version: skill.version.clone(),
        package: skill.package.clone(),
        sha256: skill.sha256.to_ascii_lowercase(),
        size_bytes: bytes.len() as u64,
        files: files.collect(),
    };
    skills_folder.move_into_place(&skill.name, staged, lock_entry)
}

/// Returns the folder of the skill in its package. An error is returned if the package holds another skill.
fn skill_root<'a>(contents: &'a PackageContents, skill: &Skill) -> anyhow::Result<&'a str> {
    let root = contents.root().context("the package has no SKILL.md at its root or in its only top-level folder")?;
    let path = format!("{root}SKILL.md");
    let bytes = contents.skills.get(&path).context("the package has no SKILL.md")?;
    let file = front::read(bytes).with_context(|| path.clone())?;
    let name = file.front.name.map(|word| word.text).unwrap_or_default();
    ensure!(is_same_name(&name, &skill.name), "the package holds the skill `{name}`, not `{}`", skill.name);
    Ok(root)
}
