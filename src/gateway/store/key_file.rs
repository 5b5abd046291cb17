//! The file that holds the master key if the configuration does not give it.
//!
//! When the key changes, the next key is first written to `master.key.new`, which is renamed to `master.key` only after
//! the data keys in the database have been wrapped with it. So one of the two files always holds the key of the
//! database, whenever the process dies.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::data_dir::{DataDir, open_private};
use super::data_keys::{DataKeys, WrappedDataKeys};
use super::secret_bytes::KEY_LENGTH;
use super::{MasterKey, StoreError};

/// The key file of a data directory. The directory's lock for opening must be held as long as this value exists.
pub(super) struct KeyFile<'a>(pub(super) &'a DataDir);

impl KeyFile<'_> {
    /// Reads the key. Returns `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<MasterKey>, StoreError> {
        let Some(bytes) = read_key_bytes(&self.0.master_key_path())? else { return Ok(None) };
        bytes.map(|bytes| Some(MasterKey::from_bytes(bytes))).ok_or_else(|| {
            StoreError::damaged("master.key does not have exactly 32 bytes: restore it from the backup of the database")
        })
    }

    /// Creates the key of a new data directory. After a crash, `master.key` is complete and durable, or does not exist.
    pub(super) fn create(&self) -> Result<MasterKey, StoreError> {
        let key = MasterKey::random()?;
        self.write_next_key(&key)?;
        self.promote_next_key()?;
        Ok(key)
    }

    /// Returns the data keys, unwrapped with `master.key` or else with `master.key.new`. Completes or reverts a change
    /// of the master key that was interrupted.
    pub(super) fn unlock(&self, wrapped: &WrappedDataKeys) -> Result<DataKeys, StoreError> {
        let current = self.read()?;
        if let Some(key) = &current
            && let Some(keys) = DataKeys::unwrap(key, wrapped)?
        {
            // A next key, if there is one, is from a change that was interrupted before it reached the database.
            self.remove_next_key()?;
            return Ok(keys);
        }
        let next = read_key_bytes(&self.next_path())?.flatten().map(MasterKey::from_bytes);
        if let Some(key) = next
            && let Some(keys) = DataKeys::unwrap(&key, wrapped)?
        {
            self.promote_next_key()?;
            return Ok(keys);
        }
        Err(StoreError::damaged(match current {
            None => {
                "master.key is missing, and nothing in imagate.db can be decrypted or checked without it: restore it from a backup"
            }
            Some(_) => {
                "master.key is not the key that imagate.db was encrypted with: restore the master.key that belongs to this database, or both from one backup"
            }
        }))
    }

    /// Writes the next key to `master.key.new`, and waits until it is durable.
    pub(super) fn write_next_key(&self, key: &MasterKey) -> Result<(), StoreError> {
        let write = || {
            let mut file = open_private(&self.next_path())?;
            file.set_len(0)?;
            file.write_all(key.expose())?;
            file.sync_all()?;
            self.0.sync()
        };
        write().map_err(StoreError::io("writing master.key.new"))
    }

    /// Renames the file of the next key to the name of the current key.
    pub(super) fn promote_next_key(&self) -> Result<(), StoreError> {
        let rename = || {
            fs::rename(self.next_path(), self.0.master_key_path())?;
            self.0.sync()
        };
        rename().map_err(StoreError::io("writing master.key"))
    }

    fn remove_next_key(&self) -> Result<(), StoreError> {
        match fs::remove_file(self.next_path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io("removing master.key.new")(error)),
            _ => Ok(()),
        }
    }

    fn next_path(&self) -> PathBuf {
        self.0.master_key_path().with_extension("key.new")
    }
}

/// Returns `None` if there is no such file, and `Some(None)` if it does not hold a key.
#[expect(clippy::option_option, reason = "a missing file and an invalid file are different results")]
fn read_key_bytes(path: &Path) -> Result<Option<Option<[u8; KEY_LENGTH]>>, StoreError> {
    let mut bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("reading the master key")(error)),
    };
    // Opening the file this way removes the permissions of other users.
    open_private(path).map_err(StoreError::io("opening the master key"))?;
    let key = <[u8; KEY_LENGTH]>::try_from(bytes.as_slice()).ok();
    bytes.fill(0);
    Ok(Some(key))
}
