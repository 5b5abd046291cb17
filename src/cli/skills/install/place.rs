//! The folder that skills are installed into, and the lock file in it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::unpack::New;
use crate::checkout::Checkout;
use crate::cli::skills::disk;
use crate::manifest::package::{Limits, Sha256Sum};
use crate::manifest::{Files, Kind, Lock, Locked, Skill};

/// More of a lock file than this is not read.
const MAX_LOCK_BYTES: u64 = 16 * 1024 * 1024;

pub(super) struct Place {
    folder: PathBuf,
    files: Checkout,
    lock: Lock,
}

impl Place {
    /// The folder is made if it is not there.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let shown = || folder.display().to_string();
        fs::create_dir_all(folder).with_context(shown)?;
        let files = Checkout::open(folder).with_context(shown)?;
        let lock = match files.read(Lock::FILE, MAX_LOCK_BYTES)? {
            Some(bytes) => Lock::read(&bytes).with_context(|| folder.join(Lock::FILE).display().to_string())?,
            None => Lock::new(),
        };
        Ok(Self { folder: folder.to_owned(), files, lock })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether exactly this release is there, as it was unpacked.
    pub(super) fn has(&self, skill: &Skill) -> anyhow::Result<bool> {
        let Some(locked) = self.lock.get(&skill.name) else { return Ok(false) };
        let is_this = locked.version == skill.version && locked.sha256.eq_ignore_ascii_case(&skill.sha256);
        Ok(is_this && self.sums(&skill.name)?.as_ref() == Some(&locked.files))
    }

    /// A folder that was not installed, or was changed since, belongs to somebody.
    pub(super) fn may_write(&self, name: &str, force: bool) -> anyhow::Result<()> {
        let Some(metadata) = self.files.metadata(name)? else { return Ok(()) };
        let shown = self.folder.join(name);
        let shown = shown.display();
        ensure!(metadata.kind == Kind::Folder, "{shown} is there, and is no folder");
        if force {
            return Ok(());
        }
        let locked = self.lock.get(name);
        ensure!(
            locked.is_some(),
            "{shown} is there, and was not installed by this program; pass --force to replace it"
        );
        let is_whole = self.sums(name)?.as_ref() == locked.map(|locked| &locked.files);
        ensure!(is_whole, "{shown} was changed since it was installed; pass --force to replace it");
        Ok(())
    }

    /// Puts a skill where it belongs, and remembers it.
    pub(super) fn put(&mut self, name: &str, new: &New, locked: Locked) -> anyhow::Result<()> {
        let target = self.folder.join(name);
        let shown = || format!("{} cannot be replaced", target.display());
        let is_there = match fs::rename(&target, new.old()) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error).with_context(shown),
        };
        if let Err(error) = fs::rename(new.folder(), &target) {
            if is_there {
                // What was there comes back; if that fails too, the first error is the one to tell.
                let _ = fs::rename(new.old(), &target);
            }
            return Err(error).with_context(shown);
        }
        self.lock.set(name, locked);
        disk::put(&self.folder.join(Lock::FILE), self.lock.to_text()?.as_bytes())
    }

    /// The checksum of each file below a folder, if it is there and holds only files.
    fn sums(&self, name: &str) -> anyhow::Result<Option<BTreeMap<String, String>>> {
        let mut sums = BTreeMap::new();
        let mut left = vec![String::new()];
        while let Some(below) = left.pop() {
            let at = joined(name, &below);
            let Some(listed) = self.files.list(&at)? else { return Ok(None) };
            for entry in listed {
                let path = joined(&below, &entry.name);
                match entry.metadata.kind {
                    Kind::Folder => left.push(path),
                    Kind::File => drop(sums.insert(path.clone(), self.sum(&joined(name, &path))?)),
                    Kind::Link(_) | Kind::Other => return Ok(None),
                }
            }
        }
        Ok(Some(sums))
    }

    fn sum(&self, path: &str) -> anyhow::Result<String> {
        let bytes = self.files.read(path, Limits::default().file_bytes)?;
        Ok(Sha256Sum::of(&bytes.unwrap_or_default()).to_string())
    }
}

/// A path below another one, which may be that of the root.
fn joined(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", path) | (path, "") => path.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}
