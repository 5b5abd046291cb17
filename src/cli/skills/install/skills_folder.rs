//! The folder that skills are installed into, and its lock file.
//!
//! Only one program at a time works in a folder. The next program completes or reverts an installation that was
//! interrupted: each new skill has a note beside it, which is written before anything is moved.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::unpack::{STAGING_PREFIX, StagedSkill, StagingPaths};
use crate::checkout::Checkout;
use crate::cli::skills::atomic_file;
use crate::manifest::package::{PackageLimits, Sha256Sum, UnwantedFileKind, unwanted};
use crate::manifest::{
    FileKind, FileMetadata, FilesError, LockFile, LockFileEntry, RepositoryFiles, Skill, SkillRequirement,
};

/// The maximum size of a lock file or of an installation note; a larger file is an error.
const MAX_LOCK_BYTES: u64 = 16 * 1024 * 1024;

/// The checksum of each file of a skill, by path.
type LockedFiles = BTreeMap<String, String>;

pub(crate) struct SkillsFolder {
    folder: PathBuf,
    files: Checkout,
    lock_file: LockFile,
    /// The lock on the folder: other programs wait until this file is closed.
    _folder_lock: File,
}

/// The state of the files of an installed skill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstalledState {
    /// The files are those of the release.
    Unchanged,
    /// A file was changed, added or removed since.
    Changed,
    /// The folder does not exist.
    Missing,
}

/// The note beside a new skill, which exists until the skill is installed.
#[derive(Debug, Serialize, Deserialize)]
struct InstallNote {
    name: String,
    locked: LockFileEntry,
}

// === impl InstalledState ===

impl InstalledState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Missing => "missing",
        }
    }
}

// === impl SkillsFolder ===

impl SkillsFolder {
    /// Opens the folder, which must exist.
    pub(crate) fn open_existing(folder: &Path) -> anyhow::Result<Self> {
        ensure!(folder.is_dir(), "{} is not a folder", folder.display());
        Self::open(folder)
    }

    /// Returns the installed skills with the state of their files, sorted by name.
    pub(crate) fn installed(&self) -> anyhow::Result<Vec<(&str, &LockFileEntry, InstalledState)>> {
        self.lock_file.skills().map(|(name, locked)| Ok((name, locked, self.state(name, locked)?))).collect()
    }

    fn state(&self, name: &str, locked: &LockFileEntry) -> anyhow::Result<InstalledState> {
        Ok(match self.files.metadata(name)? {
            None => InstalledState::Missing,
            Some(_) if self.has_files(name, &locked.files) => InstalledState::Unchanged,
            Some(_) => InstalledState::Changed,
        })
    }

    /// Returns an error if the skill is not installed. Unless `force` is set, also returns an error if its files were
    /// changed.
    pub(crate) fn check_removable(&self, skill: &SkillRequirement, force: bool) -> anyhow::Result<()> {
        let locked = self.lock_file.find(skill)?;
        let target = self.folder.join(skill.name());
        let is_changed = self.state(skill.name(), locked)? == InstalledState::Changed;
        ensure!(
            force || !is_changed,
            "{} was changed since it was installed; pass --force to remove it",
            target.display()
        );
        Ok(())
    }

    /// Removes an installed skill, and returns its version, or `None` if it is not installed. If the program is
    /// interrupted, the skill is still installed, or its files are missing; it can be removed again in both cases.
    pub(crate) fn remove(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        let Some(version) = self.lock_file.get(name).map(|locked| locked.version.clone()) else { return Ok(None) };
        let target = self.folder.join(name);
        let failure_text = || format!("{} cannot be removed", target.display());
        let staging = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(&self.folder);
        let staging = staging.with_context(failure_text)?;
        let paths = StagingPaths::new(staging.path().to_owned());
        match fs::rename(&target, paths.replaced()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(failure_text),
            _ => {}
        }
        self.lock_file.remove(name);
        self.write_lock_file(&paths)?;
        staging.close().with_context(failure_text)?;
        Ok(Some(version))
    }

    /// Opens the folder, and creates it if it does not exist.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let path_text = || folder.display().to_string();
        fs::create_dir_all(folder).with_context(path_text)?;
        let folder_lock = lock_folder(folder).with_context(path_text)?;
        let files = Checkout::open(folder).with_context(path_text)?;
        let lock = read_lock_file(&files).with_context(|| folder.join(LockFile::FILE).display().to_string())?;
        let mut skills_folder = Self { folder: folder.to_owned(), files, lock_file: lock, _folder_lock: folder_lock };
        skills_folder.recover().with_context(path_text)?;
        Ok(skills_folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if exactly this release is installed and unchanged.
    pub(super) fn is_installed(&self, skill: &Skill) -> bool {
        let Some(locked) = self.lock_file.get(&skill.name) else { return false };
        let is_same_release = locked.version == skill.version && locked.sha256.eq_ignore_ascii_case(&skill.sha256);
        is_same_release && self.has_files(&skill.name, &locked.files)
    }

    /// Returns an error if something other than a folder has the name. Unless `force` is set, also returns an error if
    /// the folder was not installed by this program or was changed since.
    pub(super) fn check_replaceable(&self, name: &str, force: bool) -> anyhow::Result<()> {
        let Some(metadata) = self.files.metadata(name)? else { return Ok(()) };
        let target = self.folder.join(name);
        let target = target.display();
        ensure!(metadata.kind == FileKind::Folder, "{target} exists and is not a folder");
        if force {
            return Ok(());
        }
        let not_installed =
            || format!("{target} exists and was not installed by this program; pass --force to replace it");
        let locked = self.lock_file.get(name).with_context(not_installed)?;
        ensure!(
            self.has_files(name, &locked.files),
            "{target} was changed since it was installed; pass --force to replace it"
        );
        Ok(())
    }

    /// Moves a skill to its final folder, and records it in the lock file.
    pub(super) fn move_into_place(
        &mut self,
        name: &str,
        staged: StagedSkill,
        lock_entry: LockFileEntry,
    ) -> anyhow::Result<()> {
        let target = self.folder.join(name);
        let failure_text = || format!("{} cannot be replaced", target.display());
        let note = InstallNote { name: name.to_owned(), locked: lock_entry };
        let staging = staged.paths();
        atomic_file::write_file(&staging.note(), serde_json::to_string(&note)?.as_bytes())?;
        let has_former = match fs::rename(&target, staging.replaced()) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(failure_text),
        };
        if let Err(error) = fs::rename(staging.folder(), &target) {
            if has_former {
                // The former folder is restored; if that fails too, the first error is reported.
                let _ = fs::rename(staging.replaced(), &target);
            }
            return Err(error).with_context(failure_text);
        }
        self.record_installed(note, &staging).inspect_err(|_| staged.keep_files())
    }

    fn record_installed(&mut self, note: InstallNote, staging: &StagingPaths) -> anyhow::Result<()> {
        self.lock_file.set(note.name, note.locked);
        self.write_lock_file(staging)
    }

    fn write_lock_file(&self, staging: &StagingPaths) -> anyhow::Result<()> {
        atomic_file::write_file(&staging.new_lock_file(), self.lock_file.to_text()?.as_bytes())?;
        let file = self.folder.join(LockFile::FILE);
        fs::rename(staging.new_lock_file(), &file).with_context(|| file.display().to_string())
    }

    /// Completes or reverts the installations that interrupted programs left. The folder is locked, so no other program
    /// works in it.
    fn recover(&mut self) -> anyhow::Result<()> {
        for entry in self.files.list("")?.unwrap_or_default() {
            if entry.metadata.kind == FileKind::Folder && entry.name.starts_with(STAGING_PREFIX) {
                self.finish_interrupted(&entry.name)?;
                fs::remove_dir_all(self.folder.join(&entry.name))?;
            }
        }
        Ok(())
    }

    /// Reverts a replacement that was interrupted, or records in the lock file one that was completed.
    fn finish_interrupted(&mut self, staging_name: &str) -> anyhow::Result<()> {
        let staging = StagingPaths::new(self.folder.join(staging_name));
        let bytes = self.files.read(&join_path(staging_name, StagingPaths::NOTE), MAX_LOCK_BYTES)?;
        // Without a complete note, nothing has been moved.
        let Some(note) = bytes.and_then(|bytes| serde_json::from_slice::<InstallNote>(&bytes).ok()) else {
            return Ok(());
        };
        note.name.parse::<SkillRequirement>().context("it holds an installation note with an invalid skill name")?;
        let exists = self.files.metadata(&note.name)?.is_some();
        if !exists && staging.replaced().exists() {
            return Ok(fs::rename(staging.replaced(), self.folder.join(&note.name))?);
        }
        if exists && !staging.folder().exists() && self.has_files(&note.name, &note.locked.files) {
            return self.record_installed(note, &staging);
        }
        Ok(())
    }

    /// Returns true if a folder holds exactly these files, which are given with their checksums, and otherwise at most
    /// junk of systems and tools, such as `__pycache__`. False if an entry is a link, cannot be read, or is larger than
    /// any file of a package: such an entry is not the one that was installed.
    fn has_files(&self, name: &str, expected: &LockedFiles) -> bool {
        self.file_checksums(name, expected).is_ok_and(|sums| sums.as_ref() == Some(expected))
    }

    /// Returns the checksum of each file below a folder except junk that is not expected. Returns `None` if the folder
    /// does not exist or holds anything other than files and folders.
    fn file_checksums(&self, name: &str, expected: &LockedFiles) -> Result<Option<LockedFiles>, FilesError> {
        let mut sums = LockedFiles::new();
        let mut pending = vec![String::new()];
        while let Some(subfolder) = pending.pop() {
            let Some(entries) = self.files.list(&join_path(name, &subfolder))? else { return Ok(None) };
            let entries = entries.into_iter().map(|entry| (join_path(&subfolder, &entry.name), entry));
            for (path, entry) in entries.filter(|(path, _)| !is_surplus_junk(path, expected)) {
                match entry.metadata.kind {
                    FileKind::Folder => pending.push(path),
                    FileKind::File => drop(sums.insert(path.clone(), self.file_checksum(&join_path(name, &path))?)),
                    FileKind::Link(_) | FileKind::Other => return Ok(None),
                }
            }
        }
        Ok(Some(sums))
    }

    fn file_checksum(&self, path: &str) -> Result<String, FilesError> {
        let bytes = self.files.read(path, PackageLimits::default().file_bytes)?;
        Ok(Sha256Sum::of(&bytes.unwrap_or_default()).to_string())
    }
}

/// Returns true for junk of systems and tools that is not expected.
fn is_surplus_junk(path: &str, expected: &LockedFiles) -> bool {
    unwanted(path) == Some(UnwantedFileKind::Junk) && !is_expected(path, expected)
}

/// Returns true if the path is an expected file, or a folder of one.
fn is_expected(path: &str, expected: &LockedFiles) -> bool {
    let is_at_or_below =
        |file: &String| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    expected
        .range(path.to_owned()..)
        .take_while(|(file, _)| file.starts_with(path))
        .any(|(file, _)| is_at_or_below(file))
}

/// Waits until no other program works in the folder.
#[cfg(unix)]
fn lock_folder(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

/// Waits until no other program works in the folder. The lock is on a file in the folder, because this platform cannot
/// lock a folder; the file is not deleted.
#[cfg(not(unix))]
fn lock_folder(folder: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(folder.join(".skills.lock"))?;
    file.lock()?;
    Ok(file)
}

fn read_lock_file(files: &Checkout) -> anyhow::Result<LockFile> {
    match files.metadata(LockFile::FILE)? {
        None => Ok(LockFile::new()),
        Some(FileMetadata { kind: FileKind::File, .. }) => {
            let bytes =
                files.read(LockFile::FILE, MAX_LOCK_BYTES)?.context("it disappeared while it was being read")?;
            Ok(LockFile::read(&bytes)?)
        }
        Some(_) => bail!("it is a link or not a regular file, so the installed skills cannot be determined"),
    }
}

/// Joins two relative paths; either may be empty, which stands for the root.
fn join_path(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", path) | (path, "") => path.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}

// The tests in `tests/fuzz` include this file under another path.
#[cfg(unix)]
#[cfg(test)]
#[path = "skills_folder/tests.rs"]
mod tests;
