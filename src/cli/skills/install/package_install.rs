//! Installs a package as a folder, if [`verify_package`] has passed it.
//!
//! The package is unpacked from the same bytes that were verified, into a new folder, which is moved into place by one
//! rename. No file of the package is ever run.

use anyhow::anyhow;

use super::skills_folder::SkillsFolder;
use super::unpack;
use crate::manifest::{CheckReport, LockFileEntry, RepositoryFiles, Skill, SourceFile, verify_package};

/// The maximum number of findings in a message (our choice); `imagate skills verify` prints all of them.
const MAX_SHOWN: usize = 5;

/// Installs the skill that is at this index in the manifest `source`; its package is in `files`.
pub(super) fn install_package(
    skills_folder: &mut SkillsFolder,
    source: &SourceFile,
    index: usize,
    skill: &Skill,
    files: &dyn RepositoryFiles,
) -> anyhow::Result<()> {
    let (report, package) = verify_package(source.clone(), index, files);
    let package = package.ok_or_else(|| anyhow!("{} is not safe to install: {}", skill.package, errors(&report)))?;
    let staged = unpack::unpack(&package, skills_folder.folder())?;
    let lock_entry = LockFileEntry {
        version: skill.version.clone(),
        package: skill.package.clone(),
        sha256: skill.sha256.to_ascii_lowercase(),
        size_bytes: package.size_bytes(),
        files: package.files().map(|(path, file)| (path.to_owned(), file.sum.to_string())).collect(),
    };
    skills_folder.move_into_place(&skill.name, staged, lock_entry)
}

/// Returns the errors of a report in one text.
fn errors(report: &CheckReport) -> String {
    let errors: Vec<String> = report
        .findings()
        .iter()
        .filter(|finding| finding.is_error())
        .map(|finding| format!("{}: {}", finding.rule().id, finding.message()))
        .collect();
    let more = errors.len().saturating_sub(MAX_SHOWN);
    let shown = errors.into_iter().take(MAX_SHOWN).collect::<Vec<_>>().join("; ");
    if more == 0 { shown } else { format!("{shown}; and {more} more") }
}
