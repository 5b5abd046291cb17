//! The idempotency key of a command whose outcome is unknown, kept in a file of the user.
//!
//! The same command takes the key again, so that a gateway sends the image that it has made. A command that has its
//! images, or knows that there are none, removes the file: the same command then makes other images. While a command
//! runs it holds a lock on its file, so the same command at another terminal makes images of its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::managed_gateway::profile::create_private_folder;
use crate::gateway::config::{HostEnvironment as _, Platform, SystemEnvironment};

/// The time for which a key is kept: the time for which a gateway keeps answers by default.
const KEY_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The beginning of each key, which is also the name of its file.
const KEY_PREFIX: &str = "imagate-";

/// A request with its idempotency key.
pub(super) struct UnfinishedRequest {
    key: String,
    /// The file of the key, and its lock; `None` if no file can be kept.
    file: Option<(PathBuf, File)>,
    /// True if an earlier command has sent the request, and its outcome is unknown.
    is_repeat: bool,
}

// === impl UnfinishedRequest ===

impl UnfinishedRequest {
    /// Returns the request of an earlier command with this digest, unless a new image is asked for, or else a new one.
    pub(super) fn find_or_create(digest: &str, asks_for_new: bool) -> io::Result<Self> {
        match folder() {
            Some(folder) => Self::in_folder(&folder, digest, asks_for_new),
            None => Ok(Self { key: new_key(digest)?, file: None, is_repeat: false }),
        }
    }

    fn in_folder(folder: &Path, digest: &str, asks_for_new: bool) -> io::Result<Self> {
        let earlier = if asks_for_new { None } else { take_earlier(folder, digest) };
        if let Some((key, path, file)) = earlier {
            return Ok(Self { key, file: Some((path, file)), is_repeat: true });
        }
        let key = new_key(digest)?;
        // A command without a file still has its image if nothing happens to it.
        let file = create_locked(folder, &key).ok();
        Ok(Self { key, file, is_repeat: false })
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns true if the same command finds the key again.
    pub(super) fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn is_repeat(&self) -> bool {
        self.is_repeat
    }

    /// Removes the key, because the outcome is known.
    pub(super) fn forget(self) {
        if let Some((path, _lock)) = self.file {
            // If the file stays, the same command gets this image again within a day.
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the folder of the keys; `None` if the environment names no place for it.
fn folder() -> Option<PathBuf> {
    let folder = |variable: &str| SystemEnvironment.variable(variable).map(PathBuf::from);
    let state = match SystemEnvironment.platform() {
        Platform::Windows => folder("LOCALAPPDATA"),
        Platform::MacOs => folder("HOME").map(|home| home.join("Library").join("Application Support")),
        // The XDG Base Directory Specification says that a relative path must be ignored.
        Platform::Unix => folder("XDG_STATE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| folder("HOME").map(|home| home.join(".local").join("state"))),
    };
    Some(state?.join("imagate").join("requests"))
}

/// Finds the key of an earlier command with this digest that no running command holds, and locks its file. Keys that are
/// too old are removed.
fn take_earlier(folder: &Path, digest: &str) -> Option<(String, PathBuf, File)> {
    let mut found = None;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(key) = name.to_str().filter(|name| name.starts_with(KEY_PREFIX)) else { continue };
        let is_same = key.strip_prefix(KEY_PREFIX).is_some_and(|rest| rest.starts_with(digest));
        if is_old(&path) {
            let _ = fs::remove_file(&path);
        } else if is_same && found.is_none() {
            found = lock(&path).map(|file| (key.to_owned(), path, file));
        }
    }
    found
}

fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age >= KEY_LIFETIME))
}

/// Locks the file; returns `None` if a running command holds it or has just removed it.
fn lock(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    (file.try_lock().is_ok() && path.exists()).then_some(file)
}

/// Creates the file of a key. It is locked before it has its name, so that no other command takes the key.
fn create_locked(folder: &Path, key: &str) -> io::Result<(PathBuf, File)> {
    create_private_folder(folder)?;
    let file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    file.as_file().try_lock()?;
    let path = folder.join(key);
    let file = file.persist_noclobber(&path).map_err(|error| error.error)?;
    Ok((path, file))
}

fn new_key(digest: &str) -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{KEY_PREFIX}{digest}-{:016x}", u64::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(folder: &Path, digest: &str) -> UnfinishedRequest {
        UnfinishedRequest::in_folder(folder, digest, false).unwrap()
    }

    #[test]
    fn one_command_takes_the_key_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = &folder.path().join("a").join("b");
        let first = request(folder, "d1");
        let key = first.key().to_owned();
        assert!(first.is_kept() && !first.is_repeat());
        let beside = request(folder, "d1");
        assert!(beside.key() != key && !beside.is_repeat(), "the first one still runs");
        beside.forget();
        drop(first);
        assert_ne!(request(folder, "d2").key(), key);
        let new = UnfinishedRequest::in_folder(folder, "d1", true).unwrap();
        assert_ne!(new.key(), key);
        new.forget();
        let again = request(folder, "d1");
        assert!(again.key() == key && again.is_repeat());
        again.forget();
        assert_ne!(request(folder, "d1").key(), key);
    }

    #[test]
    fn a_key_is_forgotten_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let key = request(folder, "d1").key().to_owned();
        let file = File::options().write(true).open(folder.join(&key)).unwrap();
        file.set_modified(std::time::SystemTime::now() - KEY_LIFETIME).unwrap();
        assert_ne!(request(folder, "d2").key(), key);
        assert!(!folder.join(&key).exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let request = request(&folder.path().join("file").join("requests"), "d1");
        assert!(!request.is_kept() && request.key().starts_with("imagate-d1-"));
    }
}
