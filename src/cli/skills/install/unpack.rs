//! Unpacks a verified package into a new folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;

use crate::manifest::package::VerifiedPackage;
use crate::manifest::package::archive::{ArchiveEntry, ArchiveSink, WalkError};

/// The prefix of the folder that holds a staged skill.
pub(super) const STAGING_PREFIX: &str = ".installing-";

/// The paths of a staged skill and of the files that belong to it.
#[derive(Debug)]
pub(super) struct StagingPaths {
    root: PathBuf,
}

impl StagingPaths {
    /// The name of the note about the installation.
    pub(super) const NOTE: &str = "note.json";

    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the folder with the files of the skill.
    pub(super) fn folder(&self) -> PathBuf {
        self.root.join("new")
    }

    /// Returns the folder for the replaced skill, which is kept until the exchange is complete.
    pub(super) fn replaced(&self) -> PathBuf {
        self.root.join("old")
    }

    /// Returns the path at which the new lock file is written before it replaces the old one. It is in the staging
    /// folder, so that an interruption leaves no file elsewhere.
    pub(super) fn new_lock_file(&self) -> PathBuf {
        self.root.join("lock.json")
    }

    /// Returns the path of the note, which the next program reads after an interruption.
    pub(super) fn note(&self) -> PathBuf {
        self.root.join(Self::NOTE)
    }
}

/// A skill that is unpacked but not yet installed. If it is dropped, its folder is deleted, together with the
/// skill that it replaced.
#[derive(Debug)]
pub(super) struct StagedSkill {
    folder: TempDir,
}

impl StagedSkill {
    /// Creates an empty folder for the files of a skill in `parent`.
    pub(super) fn new_in(parent: &Path) -> anyhow::Result<Self> {
        let staging = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(parent);
        let staged = Self { folder: staging.with_context(|| parent.display().to_string())? };
        let folder = staged.paths().folder();
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(staged)
    }

    pub(super) fn paths(&self) -> StagingPaths {
        StagingPaths::new(self.folder.path().to_owned())
    }

    /// Leaves all files in place, so that the next program can complete the installation.
    pub(super) fn keep_files(self) {
        let _ = self.folder.keep();
    }
}

/// Unpacks the files of the skill into a new folder in `parent`.
pub(super) fn unpack(package: &VerifiedPackage, parent: &Path) -> anyhow::Result<StagedSkill> {
    let staged = StagedSkill::new_in(parent)?;
    let folder = staged.paths().folder();
    let mut writer = SkillFileWriter { folder: &folder, open_file: None };
    match package.unpack(&mut writer) {
        Ok(()) => {}
        Err(WalkError::Sink(error)) => return Err(anyhow!(error).context("the skill cannot be written")),
        Err(WalkError::Unsafe(faults)) => {
            return Err(anyhow!("the package changed while it was being read: {} faults", faults.len()));
        }
    }
    writer.close().context("the skill cannot be written")?;
    Ok(staged)
}

/// Writes the files of a skill. Each file is created anew, so an existing file or link is never opened.
struct SkillFileWriter<'a> {
    folder: &'a Path,
    open_file: Option<File>,
}

impl SkillFileWriter<'_> {
    fn close(&mut self) -> io::Result<()> {
        self.open_file.take().map_or(Ok(()), |file| file.sync_all())
    }
}

impl ArchiveSink for SkillFileWriter<'_> {
    type Error = io::Error;

    fn entry(&mut self, entry: &ArchiveEntry) -> io::Result<()> {
        self.close()?;
        let path = entry.path.split('/').fold(self.folder.to_owned(), |path, part| path.join(part));
        if entry.folder {
            return fs::create_dir_all(path);
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        self.open_file = Some(create_file(&path, entry.executable)?);
        Ok(())
    }

    fn data(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.open_file.as_mut().map_or(Ok(()), |file| file.write_all(chunk))
    }
}

#[cfg(unix)]
fn create_file(path: &Path, executable: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mode = if executable { 0o755 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

#[cfg(not(unix))]
fn create_file(path: &Path, _executable: bool) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}
