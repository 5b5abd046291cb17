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

/// The key file of a data directory. The directory's lock for opening must be held as long as this value exists, except
/// for the methods that change nothing.
pub(super) struct KeyFile<'a>(pub(super) &'a DataDir);

/// The key that unwraps the data keys of the database.
pub(super) struct FittingKey {
    pub(super) master_key: MasterKey,
    pub(super) data_keys: DataKeys,
    /// True if the master key is that of `master.key`, and false if it is that of `master.key.new`.
    pub(super) is_current: bool,
}

impl KeyFile<'_> {
    /// Reads the key without changing anything. Returns `None` if there is no file.
    pub(super) fn find_current(&self) -> Result<Option<MasterKey>, StoreError> {
        let Some(bytes) = read_key_bytes(&self.0.master_key_path())? else { return Ok(None) };
        bytes.map(|bytes| Some(MasterKey::from_bytes(bytes))).ok_or_else(|| {
            StoreError::damaged("master.key does not have exactly 32 bytes: restore it from the backup of the database")
        })
    }

    /// Returns the key of a new data directory: an existing one is from a start that was interrupted. After a crash,
    /// `master.key` is complete and durable, or does not exist.
    pub(super) fn read_or_create(&self) -> Result<MasterKey, StoreError> {
        self.restrict_permissions()?;
        if let Some(key) = self.find_current()? {
            return Ok(key);
        }
        let key = MasterKey::random()?;
        self.write_next_key(&key)?;
        self.promote_next_key()?;
        Ok(key)
    }

    /// Returns the data keys, unwrapped with `master.key` or else with `master.key.new`. Completes or reverts a change
    /// of the master key that was interrupted.
    pub(super) fn unlock(&self, wrapped: &WrappedDataKeys) -> Result<DataKeys, StoreError> {
        self.restrict_permissions()?;
        let FittingKey { data_keys, is_current, .. } = self.find_fitting(wrapped)?;
        if is_current {
            // A next key, if there is one, is from a change that was interrupted before it reached the database.
            self.remove_next_key()?;
        } else {
            self.promote_next_key()?;
        }
        Ok(data_keys)
    }

    /// Returns the key that unwraps the data keys: that of `master.key`, or else that of `master.key.new`. Changes
    /// nothing.
    pub(super) fn find_fitting(&self, wrapped: &WrappedDataKeys) -> Result<FittingKey, StoreError> {
        let current = self.find_current()?;
        let is_missing = current.is_none();
        if let Some(master_key) = current
            && let Some(data_keys) = DataKeys::unwrap(&master_key, wrapped)?
        {
            return Ok(FittingKey { master_key, data_keys, is_current: true });
        }
        let next = read_key_bytes(&self.next_path())?.flatten().map(MasterKey::from_bytes);
        if let Some(master_key) = next
            && let Some(data_keys) = DataKeys::unwrap(&master_key, wrapped)?
        {
            return Ok(FittingKey { master_key, data_keys, is_current: false });
        }
        Err(StoreError::damaged(if is_missing {
            "master.key is missing, and nothing in the database can be decrypted or checked without it: restore it from a backup, or set `master_key`"
        } else {
            "master.key is not the key that the database was encrypted with: restore the master.key that belongs to this database, or both from one backup"
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

    /// Closes the key files to other users, because such permissions are never intended.
    fn restrict_permissions(&self) -> Result<(), StoreError> {
        for path in [self.0.master_key_path(), self.next_path()] {
            if path.exists() {
                // Opening the file this way removes the permissions of other users.
                open_private(&path).map_err(StoreError::io("opening the master key"))?;
            }
        }
        Ok(())
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
    let key = <[u8; KEY_LENGTH]>::try_from(bytes.as_slice()).ok();
    bytes.fill(0);
    Ok(Some(key))
}
