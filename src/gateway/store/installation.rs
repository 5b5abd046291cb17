//! The files of an installation as a whole: a copy of one moment, for a backup, and the directory that a copy is put
//! into.
//!
//! A copy has the database, the marker beside it, the note of the first key, and the master key. Stored answers are left
//! out: they are images of callers that are kept for a day at most, may be as large as the rest of the disk, and a
//! repeated request whose answer is missing gets an error and never costs anything again. Lock files and spooled uploads
//! hold nothing that outlives the process.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use super::data_dir::{DataDir, LOCK_FILES, MARKER_FILE, ServeLock, open_private};
use super::data_keys::DataKeys;
use super::key_file::KeyFile;
use super::sqlite::DatabaseFile;
use super::{MasterKey, ServingStatus, StoreError};

/// The files of a copy, in the order in which they are put into a directory. The database is the last: without it, the
/// other files show that the directory is incomplete, and it is never taken for that of a new installation.
pub(crate) const INSTALLATION_FILES: [&str; 3] = [MASTER_KEY_FILE, MARKER_FILE, DATABASE_FILE];
const MASTER_KEY_FILE: &str = "master.key";
const DATABASE_FILE: &str = "imagate.db";
/// The folder of an ext4 file system that `fsck` uses. A new volume has it.
const VOLUME_FOLDER: &str = "lost+found";
/// The number of copies that are made until one has the master key that is in force (our choice). The key can change
/// while the database is copied, but not several times in a row.
const COPY_ATTEMPTS: usize = 3;

/// The place of the master key of an installation.
#[derive(Debug)]
pub(crate) enum MasterKeySource {
    /// The settings name it.
    Settings,
    /// It is in the data directory.
    DataDir(MasterKey),
    /// There is none, because the database holds nothing that is sealed.
    Absent,
}

/// The tables that lists of the console and of commands show, and the condition for the rows that they show. The others
/// are deleted, or belong to the program itself.
pub(super) const LISTED_TABLES: [(&str, &str); 7] = [
    ("accounts", "TRUE"),
    ("audit", "TRUE"),
    ("groups", "deleted_at IS NULL"),
    ("keys", "deleted_at IS NULL"),
    ("prices", "TRUE"),
    ("records", "TRUE"),
    ("users", "id <> 'usr_nobody'"),
];

/// A description of a copy.
#[derive(Debug)]
pub(crate) struct InstallationFacts {
    /// The version of the schema.
    pub(crate) schema_version: i64,
    /// The number of rows of each table.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The number of rows of each table that lists show.
    pub(crate) listed_counts: BTreeMap<String, u64>,
    /// The place of the master key.
    pub(crate) master_key: MasterKeySource,
}

/// Copies the installation in `data_dir` to the empty directory `target`, whether a server runs or not. Nothing in
/// `data_dir` is changed. Returns `None` if there is no installation.
///
/// The copy of the database has been checked. It has the master key only if `with_master_key` is true and the key is in
/// the data directory, but the key was checked in any case.
///
/// # Errors
///
/// Returns an error if the installation is damaged, or if the copy cannot be written.
pub(crate) fn copy_installation(
    data_dir: &Path,
    configured_key: Option<&MasterKey>,
    with_master_key: bool,
    target: &Path,
) -> Result<Option<InstallationFacts>, StoreError> {
    let Some(database) = DatabaseFile::open(data_dir)? else { return Ok(None) };
    let copy = target.join(DATABASE_FILE);
    let mut attempts = COPY_ATTEMPTS;
    let facts = loop {
        open_private(&copy).and_then(|file| file.set_len(0)).map_err(StoreError::io("writing the copy"))?;
        database.copy_to(&copy)?;
        let copied = DatabaseFile::open(target)?.ok_or_else(|| StoreError::damaged("the copy is empty"))?;
        attempts -= 1;
        match find_facts(&copied, data_dir, configured_key) {
            // The master key may have changed between the copy and this check.
            Err(StoreError::Damaged { .. }) if attempts > 0 => {}
            facts => break facts?,
        }
    };
    if let MasterKeySource::DataDir(key) = &facts.master_key
        && with_master_key
    {
        write_new(&target.join(MASTER_KEY_FILE), key.expose()).map_err(StoreError::io("writing the copy"))?;
    }
    match fs::read(data_dir.join(MARKER_FILE)) {
        Ok(bytes) => write_new(&target.join(MARKER_FILE), &bytes).map_err(StoreError::io("writing the copy"))?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(StoreError::io("reading the data directory")(error)),
    }
    Ok(Some(facts))
}

/// Reads the whole database.
///
/// # Errors
///
/// Returns an error if it is damaged.
pub(crate) fn check_undamaged(database: &DatabaseFile) -> Result<(), StoreError> {
    match database.find_damage()?.first() {
        None => Ok(()),
        Some(first) => Err(StoreError::damaged(format!("imagate.db is damaged: {first}; restore it from a backup"))),
    }
}

/// Returns the place of the master key of a database, after a check that the key fits. Changes nothing.
///
/// # Errors
///
/// Returns an error if the key does not fit or is missing.
pub(crate) fn find_master_key(
    database: &DatabaseFile,
    data_dir: &Path,
    configured_key: Option<&MasterKey>,
) -> Result<MasterKeySource, StoreError> {
    let data_dir = DataDir::at(data_dir);
    let key_file = KeyFile(&data_dir);
    match (database.wrapped_data_keys()?, configured_key) {
        (Some(wrapped), Some(key)) if DataKeys::unwrap(key, &wrapped)?.is_some() => Ok(MasterKeySource::Settings),
        (Some(_), Some(_)) => {
            Err(StoreError::damaged("the setting master_key is not the key that imagate.db was encrypted with"))
        }
        (Some(wrapped), None) => Ok(MasterKeySource::DataDir(key_file.find_fitting(&wrapped)?.master_key)),
        // An installation from before there were data keys hashes its API keys with this key.
        (None, _) => Ok(key_file.find_current()?.map_or(MasterKeySource::Absent, MasterKeySource::DataDir)),
    }
}

fn find_facts(
    database: &DatabaseFile,
    data_dir: &Path,
    configured_key: Option<&MasterKey>,
) -> Result<InstallationFacts, StoreError> {
    let master_key = find_master_key(database, data_dir, configured_key)?;
    check_undamaged(database)?;
    let (counts, listed_counts) = (database.row_counts()?, database.listed_row_counts()?);
    Ok(InstallationFacts { schema_version: database.schema_version()?, counts, listed_counts, master_key })
}

/// Creates a file that only its owner can read.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_private(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Creates a file that only its owner can read, and never opens one that is there already.
///
/// # Errors
///
/// Returns the error of the file system.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// An empty data directory. As long as this value exists, no other program opens it or serves from it.
#[derive(Debug)]
pub(crate) struct EmptyDataDir {
    dir: DataDir,
    _open_lock: File,
    _serve_lock: ServeLock,
}

/// The reason why a directory cannot be used as a new data directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmptyDataDirError {
    /// There are files in it.
    #[error("it is not empty: it has {0}")]
    NotEmpty(String),
    /// It cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl EmptyDataDir ===

impl EmptyDataDir {
    /// Checks that a directory is missing or empty, and that nobody serves from it. Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory is in use, is not empty, or cannot be read.
    pub(crate) fn check(path: &Path) -> Result<(), EmptyDataDirError> {
        let reading = "reading the data directory";
        if ServingStatus::is_served(path).map_err(StoreError::io(reading))? {
            return Err(StoreError::InUse { data_dir: path.to_owned() }.into());
        }
        match find_data(path) {
            Ok(None) => Ok(()),
            Ok(Some(name)) => Err(EmptyDataDirError::NotEmpty(name)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io(reading)(error).into()),
        }
    }

    /// Creates the directory if it is missing, and takes its locks. It is closed to other users, if this user may do so.
    ///
    /// # Errors
    ///
    /// Returns an error like [`EmptyDataDir::check`].
    pub(crate) fn claim(path: &Path) -> Result<Self, EmptyDataDirError> {
        Self::check(path)?;
        let dir = DataDir::create_or_open(path)?;
        let claimed = Self { _open_lock: dir.lock_for_opening()?, _serve_lock: dir.lock_for_serving()?, dir };
        // Another program may have used the directory before its locks were taken.
        if let Some(name) = find_data(path).map_err(StoreError::io("reading the data directory"))? {
            return Err(EmptyDataDirError::NotEmpty(name));
        }
        #[cfg(unix)]
        if let Err(error) = fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)) {
            // A volume may belong to another user, and be open to a group for that reason.
            tracing::debug!(%error, "the permissions of the data directory cannot be changed");
        }
        Ok(claimed)
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Moves the files of an installation from a folder in this directory to their places. The database comes last.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be moved. The files that were moved before it are then moved back.
    pub(crate) fn install(&self, staging: &Path) -> Result<(), StoreError> {
        let present = INSTALLATION_FILES.into_iter().filter(|name| staging.join(name).exists());
        let mut moved = Vec::new();
        for name in present {
            if let Err(error) = fs::rename(staging.join(name), self.path().join(name)) {
                self.move_back(&moved, staging);
                return Err(StoreError::io("moving the restored files to their places")(error));
            }
            moved.push(name);
        }
        self.dir.sync().map_err(StoreError::io("writing the data directory"))
    }

    /// Moves files back. If this fails too, the remaining files show that the directory is incomplete.
    fn move_back(&self, names: &[&str], staging: &Path) {
        for name in names {
            let _ = fs::rename(self.path().join(name), staging.join(name));
        }
    }
}

/// Returns the name of an entry of a directory that may hold data; `None` if there is none.
fn find_data(path: &Path) -> io::Result<Option<String>> {
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != VOLUME_FOLDER && !LOCK_FILES.contains(&name.as_str()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
