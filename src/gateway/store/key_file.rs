//! The file that holds the master key if the configuration does not give it.
//!
//! A new key is first written beside it as `master.key.new`, and gets its name only after the database is wrapped by
//! it. So one of the two files opens the database, whenever a process dies.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::data_dir::{DataDir, open_private};
use super::data_keys::{DataKeys, WrappedDataKeys};
use super::secret_bytes::LENGTH;
use super::{MasterKey, StoreError};

/// The key file of a data directory. The directory must be locked for opening as long as this lives.
pub(super) struct KeyFile<'a>(pub(super) &'a DataDir);

impl KeyFile<'_> {
    /// Reads the key. Returns `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<MasterKey>, StoreError> {
        let Some(bytes) = read_key_bytes(&self.0.master_key_path())? else { return Ok(None) };
        bytes.map(|bytes| Some(MasterKey::from_bytes(bytes))).ok_or_else(|| {
            StoreError::damaged("master.key does not have exactly 32 bytes: restore it from the backup of the database")
        })
    }

    /// Makes the key of a new data directory: it appears under its name complete and durable, or not at all.
    pub(super) fn create(&self) -> Result<MasterKey, StoreError> {
        let key = MasterKey::random()?;
        self.write_next(&key)?;
        self.promote_next()?;
        Ok(key)
    }

    /// Returns the data keys, opened by whichever file opens them. Completes the change that a process left unfinished.
    pub(super) fn unlock(&self, wrapped: &WrappedDataKeys) -> Result<DataKeys, StoreError> {
        let current = self.read()?;
        if let Some(key) = &current
            && let Some(keys) = DataKeys::unwrap(key, wrapped)?
        {
            // The database was never wrapped by the other key.
            self.remove_next()?;
            return Ok(keys);
        }
        let next = read_key_bytes(&self.next_path())?.flatten().map(MasterKey::from_bytes);
        if let Some(key) = next
            && let Some(keys) = DataKeys::unwrap(&key, wrapped)?
        {
            self.promote_next()?;
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

    /// Writes the next key beside the present one, complete and durable.
    pub(super) fn write_next(&self, key: &MasterKey) -> Result<(), StoreError> {
        let write = || {
            let mut file = open_private(&self.next_path())?;
            file.set_len(0)?;
            file.write_all(key.expose())?;
            file.sync_all()?;
            self.0.sync()
        };
        write().map_err(StoreError::io("writing master.key.new"))
    }

    /// Renames the file of the next key to the name of the present one.
    pub(super) fn promote_next(&self) -> Result<(), StoreError> {
        let rename = || {
            fs::rename(self.next_path(), self.0.master_key_path())?;
            self.0.sync()
        };
        rename().map_err(StoreError::io("writing master.key"))
    }

    fn remove_next(&self) -> Result<(), StoreError> {
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
#[expect(clippy::option_option, reason = "no file and no key are two findings")]
fn read_key_bytes(path: &Path) -> Result<Option<Option<[u8; LENGTH]>>, StoreError> {
    let mut bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("reading the master key")(error)),
    };
    // Closes the file to other users if it was open to them.
    open_private(path).map_err(StoreError::io("opening the master key"))?;
    let key = <[u8; LENGTH]>::try_from(bytes.as_slice()).ok();
    bytes.fill(0);
    Ok(Some(key))
}
