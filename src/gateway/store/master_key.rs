//! The secret of an installation, from which every other stored secret is derived.
//!
//! It lies beside the database and not in it, so that a stolen dump alone says nothing about keys.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;

use super::StoreError;
use super::data_dir::{DataDir, open_private};

const LENGTH: usize = 32;

/// 32 bytes that never leave the process.
pub(crate) struct MasterKey([u8; LENGTH]);

impl MasterKey {
    /// The bytes, for deriving other keys. They belong in no log and no row.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Reads the key of a data directory. The directory must be locked for opening.
    pub(super) fn read(data_dir: &DataDir) -> Result<Self, StoreError> {
        let path = data_dir.master_key();
        // Opening closes the file to others if it stood open.
        open_existing(&path).map_err(StoreError::io("opening master.key"))?;
        let mut bytes = fs::read(&path).map_err(StoreError::io("reading master.key"))?;
        let key = <[u8; LENGTH]>::try_from(bytes.as_slice());
        bytes.fill(0);
        key.map(Self).map_err(|_| {
            StoreError::damaged("master.key does not hold exactly 32 bytes: restore it from the backup of the database")
        })
    }

    /// Makes the key of a new data directory: it appears under its name whole and durable, or not at all.
    pub(super) fn make(data_dir: &DataDir) -> Result<Self, StoreError> {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).map_err(|source| StoreError::Unavailable {
            doing: "asking the system for random bytes",
            source: source.into(),
        })?;
        let path = data_dir.master_key();
        write_whole(data_dir, &path, &bytes).map_err(StoreError::io("writing master.key"))?;
        Ok(Self(bytes))
    }

    #[cfg(test)]
    pub(crate) fn for_test(byte: u8) -> Self {
        Self([byte; LENGTH])
    }
}

impl Drop for MasterKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without somebody looking at it the compiler may leave the write out.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MasterKey([redacted])")
    }
}

fn open_existing(path: &Path) -> std::io::Result<()> {
    fs::metadata(path)?;
    open_private(path).map(drop)
}

fn write_whole(data_dir: &DataDir, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let unfinished = path.with_extension("key.new");
    let mut file = open_private(&unfinished)?;
    file.set_len(0)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    data_dir.sync()
}
