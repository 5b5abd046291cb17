//! From a package that is known to be safe to a new folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;

use crate::manifest::package::Limits;
use crate::manifest::package::archive::{Entry, Sink, WalkError, walk};

/// How the name of a folder begins in which a skill waits to take its place.
pub(super) const PREFIX: &str = ".installing-";

/// Where a skill waits, and what belongs to it.
#[derive(Debug)]
pub(super) struct Waiting {
    around: PathBuf,
}

impl Waiting {
    /// The name of the file that says what it is.
    pub(super) const NOTE: &str = "note.json";

    pub(super) fn new(around: PathBuf) -> Self {
        Self { around }
    }

    /// The folder with the files of the skill.
    pub(super) fn folder(&self) -> PathBuf {
        self.around.join("new")
    }

    /// Where what it replaces waits until that is certain.
    pub(super) fn old(&self) -> PathBuf {
        self.around.join("old")
    }

    /// Where the lock file is written before it takes its place, so that nothing is left elsewhere.
    pub(super) fn lock(&self) -> PathBuf {
        self.around.join("lock.json")
    }

    /// What it is, for whoever finds it.
    pub(super) fn note(&self) -> PathBuf {
        self.around.join(Self::NOTE)
    }
}

/// A skill that waits to take its place. Dropped, it is gone, with whatever it replaced.
#[derive(Debug)]
pub(super) struct New {
    around: TempDir,
}

impl New {
    pub(super) fn waiting(&self) -> Waiting {
        Waiting::new(self.around.path().to_owned())
    }

    /// Leaves everything where it is, for the next one to settle.
    pub(super) fn leave(self) {
        let _ = self.around.keep();
    }
}

/// Unpacks what is below `root` in the package, into a new folder inside of `beside`.
pub(super) fn unpack(bytes: &[u8], limits: &Limits, root: &str, beside: &Path) -> anyhow::Result<New> {
    let around = tempfile::Builder::new().prefix(PREFIX).tempdir_in(beside);
    let new = New { around: around.with_context(|| beside.display().to_string())? };
    let folder = new.waiting().folder();
    fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut writer = Writer { folder: &folder, root, open: None };
    match walk(bytes, limits, &mut writer) {
        Ok(()) => {}
        Err(WalkError::Sink(error)) => return Err(anyhow!(error).context("the skill cannot be written")),
        Err(WalkError::Unsafe(faults)) => {
            return Err(anyhow!("the package changed while it was read: {}", faults.len()));
        }
    }
    writer.close().context("the skill cannot be written")?;
    Ok(new)
}

/// Writes each file as new: what is there already, a link above all, is never followed.
struct Writer<'a> {
    folder: &'a Path,
    root: &'a str,
    open: Option<File>,
}

impl Writer<'_> {
    fn close(&mut self) -> io::Result<()> {
        self.open.take().map_or(Ok(()), |file| file.sync_all())
    }
}

impl Sink for Writer<'_> {
    type Error = io::Error;

    fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.close()?;
        let Some(path) = entry.path.strip_prefix(self.root) else { return Ok(()) };
        let path = path.split('/').fold(self.folder.to_owned(), |path, part| path.join(part));
        if entry.folder {
            return fs::create_dir_all(path);
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        self.open = Some(create(&path, entry.executable)?);
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> io::Result<()> {
        self.open.as_mut().map_or(Ok(()), |file| file.write_all(piece))
    }
}

#[cfg(unix)]
fn create(path: &Path, executable: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mode = if executable { 0o755 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path, _executable: bool) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}
