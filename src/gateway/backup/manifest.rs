//! The manifest of a backup: a JSON document that describes the other files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::gateway::store::{INSTALLATION_FILES, InstallationFacts, MasterKeySource, Timestamp};

/// The version of the form of a backup. Another form must use a greater number.
pub(super) const FORMAT: i64 = 1;

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupManifest {
    /// The version of the form of the backup.
    pub(super) format: i64,
    /// The version of the program that made it.
    pub(crate) version: String,
    /// The version of the schema of the database.
    pub(crate) schema_version: i64,
    /// The time at which it was made. Later changes are not part of it.
    pub(crate) created_at: String,
    /// The master key: whether it is part of the backup.
    pub(crate) master_key: MasterKeyInclusion,
    /// The number of rows of each table, also of those that no list shows. A restore compares it.
    pub(super) counts: BTreeMap<String, u64>,
    /// The number of rows of each table that lists show.
    pub(crate) listed_counts: BTreeMap<String, u64>,
    /// The files, in their order.
    pub(super) files: Vec<BackupFile>,
}

/// Says whether a backup has the master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MasterKeyInclusion {
    /// It is part of the backup.
    Included,
    /// It was left out on request.
    LeftOut,
    /// The settings name it, so it is not in the data directory.
    Settings,
    /// The installation has none.
    Absent,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupFile {
    /// The name, one of [`INSTALLATION_FILES`].
    pub(super) name: String,
    /// The length.
    pub(super) bytes: u64,
    /// The SHA-256 digest, in hexadecimal digits.
    pub(super) sha256: String,
}

/// Computes the SHA-256 digest of the bytes that pass through it.
pub(super) struct HashingReader<R> {
    reader: R,
    context: Context,
    bytes: u64,
}

// === impl BackupManifest ===

impl BackupManifest {
    /// Describes the files of an installation in a folder.
    pub(super) fn of_folder(folder: &Path, facts: InstallationFacts) -> io::Result<Self> {
        let is_present = |name: &&str| folder.join(name).exists();
        let names: Vec<&str> = INSTALLATION_FILES.into_iter().filter(is_present).collect();
        let has_key_file = names.contains(&INSTALLATION_FILES[0]);
        let files: io::Result<Vec<BackupFile>> = names.into_iter().map(|name| BackupFile::read(folder, name)).collect();
        Ok(Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema_version: facts.schema_version,
            created_at: Timestamp::now().to_string(),
            master_key: match facts.master_key {
                MasterKeySource::Settings => MasterKeyInclusion::Settings,
                MasterKeySource::DataDir(_) if has_key_file => MasterKeyInclusion::Included,
                MasterKeySource::DataDir(_) => MasterKeyInclusion::LeftOut,
                MasterKeySource::Absent => MasterKeyInclusion::Absent,
            },
            counts: facts.counts,
            listed_counts: facts.listed_counts,
            files: files?,
        })
    }

    /// The manifest as it is written.
    pub(super) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

// === impl BackupFile ===

impl BackupFile {
    fn read(folder: &Path, name: &str) -> io::Result<Self> {
        let mut reader = HashingReader::new(File::open(folder.join(name))?);
        io::copy(&mut reader, &mut io::sink())?;
        let (bytes, sha256) = reader.finish();
        Ok(Self { name: name.to_owned(), bytes, sha256 })
    }
}

// === impl HashingReader ===

impl<R: Read> HashingReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, context: Context::new(&SHA256), bytes: 0 }
    }

    /// Copies everything, and returns the number of bytes and their digest.
    pub(super) fn copy_to(mut self, target: &mut dyn Write) -> io::Result<(u64, String)> {
        io::copy(&mut self, target)?;
        Ok(self.finish())
    }

    fn finish(self) -> (u64, String) {
        (self.bytes, hex::encode(self.context.finish().as_ref()))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.context.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Returns the SHA-256 digest of bytes, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex::encode(aws_lc_rs::digest::digest(&SHA256, bytes).as_ref())
}
