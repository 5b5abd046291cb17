//! Backups of an installation: one file with everything that the data directory needs, made while a server runs.
//!
//! This module decides the form of the file and the checks before a restore. It must not know which files an
//! installation has, which the store decides, nor the meaning of their bytes.
//!
//! Rules: a backup is complete or does not exist, can be read only by its owner, and never takes the place of another
//! file unasked. A restore checks every byte before it changes anything, writes only files of its own list, never into a
//! directory that is in use, and puts the database in place last.

mod archive;
mod bech32;
mod error;
mod manifest;
mod sealing;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::TempDir;

use archive::{BackupArchive, write_archive};
pub(crate) use error::BackupError;
pub(crate) use manifest::{BackupManifest, MasterKeyInclusion};
pub(crate) use sealing::{BackupIdentity, BackupRecipient};

use super::store::{
    DatabaseFile, EmptyDataDir, MasterKey, StoreError, check_undamaged, copy_installation, create_private,
    find_master_key,
};

/// The prefix of the folder that holds the parts of a backup until it is complete.
const BACKUP_STAGING: &str = ".imagate-backup-";
/// The prefix of the folder that holds restored files until all of them are there.
const RESTORE_STAGING: &str = ".imagate-restore-";

/// The choices for a new backup.
#[derive(Clone, Debug)]
pub(crate) struct BackupOptions {
    /// True if the file may replace an existing one.
    pub(crate) overwrite: bool,
    /// True if the master key is part of the backup, provided that it is in the data directory.
    pub(crate) with_master_key: bool,
    /// The keys that can open the file; empty if it is not sealed.
    pub(crate) recipients: Vec<BackupRecipient>,
}

/// A backup that was made.
#[derive(Debug)]
pub(crate) struct BackupReport {
    /// The contents.
    pub(crate) manifest: BackupManifest,
    /// The length of the file.
    pub(crate) bytes: u64,
}

/// An installation that was restored.
#[derive(Debug)]
pub(crate) struct RestoreReport {
    /// The contents of the backup.
    pub(crate) manifest: BackupManifest,
    /// The id and name of each API key that is valid again, also if it was revoked after the backup.
    pub(crate) valid_keys: Vec<(String, String)>,
}

/// Writes a backup of the installation in `data_dir` to `file`. Blocks, and needs room for two copies of the database
/// beside the file.
///
/// # Errors
///
/// Returns an error if there is no installation, if it is damaged, or if the file exists or cannot be written.
pub(crate) fn create(
    data_dir: &Path,
    master_key: Option<&MasterKey>,
    file: &Path,
    options: &BackupOptions,
) -> Result<BackupReport, BackupError> {
    if !options.overwrite && fs::symlink_metadata(file).is_ok() {
        return Err(BackupError::FileExists(file.to_owned()));
    }
    let folder = parent_of(file);
    let staging = private_folder(BACKUP_STAGING, folder).map_err(BackupError::io("writing to", folder))?;
    // Nothing that is to be sealed is written beside the file before it is sealed.
    let copies = if options.recipients.is_empty() || !data_dir.is_dir() {
        None
    } else {
        Some(private_folder(BACKUP_STAGING, data_dir).map_err(BackupError::io("writing to", data_dir))?)
    };
    let copies = copies.as_ref().unwrap_or(&staging).path();
    let facts = copy_installation(data_dir, master_key, options.with_master_key, copies)?;
    let facts = facts.ok_or_else(|| BackupError::NoInstallation(data_dir.to_owned()))?;
    let writing = |error| BackupError::io("writing", file)(error);
    let manifest = BackupManifest::of_folder(copies, facts).map_err(writing)?;
    let unfinished = staging.path().join("backup.tar");
    let archive = create_private(&unfinished).map_err(writing)?;
    let bytes = write_archive(&archive, copies, &manifest, &options.recipients).map_err(writing)?;
    move_into_place(&unfinished, file, options.overwrite).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::FileExists(file.to_owned()),
        _ => writing(error),
    })?;
    sync_folder(folder).map_err(writing)?;
    Ok(BackupReport { manifest, bytes })
}

/// Reads the keys of a file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or has something else than keys.
pub(crate) fn read_identities(file: &Path) -> Result<Vec<BackupIdentity>, BackupError> {
    let text = fs::read_to_string(file).map_err(BackupError::io("reading", file))?;
    BackupIdentity::parse_file(&text).ok_or_else(|| BackupError::NotIdentities(file.to_owned()))
}

/// Writes a new key to a file that only its owner can read, and returns the public key.
///
/// # Errors
///
/// Returns an error if the file exists or cannot be written.
pub(crate) fn create_identity(file: &Path) -> Result<BackupRecipient, BackupError> {
    let writing = |error| BackupError::io("writing", file)(error);
    let identity = BackupIdentity::random().map_err(writing)?;
    let recipient = identity.recipient().map_err(writing)?;
    let mut target = create_private(file).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::FileExists(file.to_owned()),
        _ => writing(error),
    })?;
    let text = format!("# public key: {recipient}\n{}\n", identity.to_text());
    io::Write::write_all(&mut target, text.as_bytes()).and_then(|()| target.sync_all()).map_err(writing)?;
    Ok(recipient)
}

/// Restores a backup into a data directory that is missing or empty; `identities` are the keys for a sealed one. Blocks.
///
/// # Errors
///
/// Returns an error if the file is not a complete and unchanged backup that this program can read, or if the directory
/// cannot be used. Nothing was restored then.
pub(crate) fn restore(
    file: &Path,
    identities: &[BackupIdentity],
    data_dir: &Path,
    master_key: Option<&MasterKey>,
) -> Result<RestoreReport, BackupError> {
    EmptyDataDir::check(data_dir).map_err(|error| BackupError::target(data_dir, error))?;
    let archive = BackupArchive::open(file, identities)?;
    archive.check()?;
    let target = EmptyDataDir::claim(data_dir).map_err(|error| BackupError::target(data_dir, error))?;
    let writing = |error| BackupError::io("writing to", data_dir)(error);
    let staging = private_folder(RESTORE_STAGING, target.path()).map_err(writing)?;
    archive.unpack(staging.path())?;
    let BackupArchive { manifest, .. } = archive;
    let valid_keys = check_restored(staging.path(), &manifest, master_key).map_err(|error| match error {
        StoreError::Damaged { detail } | StoreError::ForeignDatabase { detail } => BackupError::Unusable(detail),
        error => error.into(),
    })?;
    target.install(staging.path())?;
    Ok(RestoreReport { manifest, valid_keys })
}

/// Checks that the unpacked files are the installation that the manifest describes. The master key is checked if it is
/// part of the backup or of the settings. Returns the API keys that are valid.
fn check_restored(
    folder: &Path,
    manifest: &BackupManifest,
    master_key: Option<&MasterKey>,
) -> Result<Vec<(String, String)>, StoreError> {
    let is_key_known = match manifest.master_key {
        MasterKeyInclusion::Included => true,
        MasterKeyInclusion::Settings => master_key.is_some(),
        MasterKeyInclusion::LeftOut | MasterKeyInclusion::Absent => false,
    };
    let database = DatabaseFile::open(folder)?.ok_or_else(|| StoreError::damaged("imagate.db is empty"))?;
    if is_key_known {
        // The key of the settings must not stand in for the one of the backup.
        let master_key = master_key.filter(|_| manifest.master_key == MasterKeyInclusion::Settings);
        find_master_key(&database, folder, master_key)?;
    }
    check_undamaged(&database)?;
    if (database.schema_version()?, database.row_counts()?) == (manifest.schema_version, manifest.counts.clone()) {
        database.enabled_keys()
    } else {
        Err(StoreError::damaged("imagate.db is not the database that the manifest describes"))
    }
}

/// Creates a folder that only its owner can enter, and that is removed when it is dropped.
fn private_folder(prefix: &str, parent: &Path) -> io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder.tempdir_in(parent)
}

/// Gives a complete file its name. Without `overwrite`, an existing file is never replaced, even if it is only a moment
/// old.
fn move_into_place(unfinished: &Path, file: &Path, overwrite: bool) -> io::Result<()> {
    if overwrite {
        return fs::rename(unfinished, file);
    }
    match fs::hard_link(unfinished, file) {
        // A file system without hard links: nobody else writes this file, except in that moment.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !file.exists() => fs::rename(unfinished, file),
        linked => linked,
    }
}

/// Makes the entries of a folder as durable as the files that they name.
fn sync_folder(folder: &Path) -> io::Result<()> {
    // A directory cannot be opened as a file on other systems, which journal their entries.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn parent_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
