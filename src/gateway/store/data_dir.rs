//! The directory that holds the database: its permissions, and the locks for opening it and for serving from it.
//!
//! The locks are kernel locks (`File::lock`): they end with their process, so a `kill -9` leaves nothing to clean up.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{NodeId, StoreError};

/// The longest time that a second process waits while a first one creates or migrates the database.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// An existing directory. It is closed to other users if this program created it.
#[derive(Debug, Clone)]
pub(super) struct DataDir(PathBuf);

/// The right to serve from a data directory. It ends when the lock is dropped or when the process ends.
#[derive(Debug)]
pub(crate) struct ServeLock(File);

/// The state that a serving process publishes in its data directory.
#[derive(Debug)]
pub(crate) struct ServingStatus {
    /// The id of the process.
    pub(crate) process_id: i32,
    /// The namespace to which the id belongs, as Linux names it; `None` if it is not known.
    pid_namespace: Option<String>,
    /// The number of times that the process has read its configuration again.
    pub(crate) reloads: u64,
    /// The result of the last reload: the changes, or the reason why nothing has changed.
    pub(crate) last_reload: Result<String, String>,
}

/// The file with the id of a node that shares its database with other nodes.
const NODE_FILE: &str = "node.id";

const OPEN_LOCK_FILE: &str = "open.lock";
const SERVE_LOCK_FILE: &str = "serve.lock";
/// The lock files. They hold no data, so a directory with nothing else counts as empty.
pub(super) const LOCK_FILES: [&str; 2] = [OPEN_LOCK_FILE, SERVE_LOCK_FILE];

/// A file beside every database that was created, so that a loss of the database is noticed even if there is no
/// `master.key`.
pub(super) const MARKER_FILE: &str = "imagate.db.marker";
const MARKER_TEXT: &str =
    "imagate.db belongs here. If it is missing, remove this file only to start with an empty database.\n";

/// Files of an installation beside its database: the master key, the write-ahead log, and stored answers. If one of them
/// exists without the database, the database was lost.
const FILES_OF_DATABASE: [&str; 3] = ["master.key", "imagate.db-wal", "replays"];

// === impl ServeLock ===

impl ServeLock {
    /// Publishes the process id, the number of reloads, and the result of the last one.
    ///
    /// Only `config reload` needs this, so a failure to write it is logged and otherwise ignored.
    pub(crate) fn publish_status(&self, reloads: u64, last: &Result<String, String>) {
        let (word, text) = match last {
            Ok(text) => ("done", text),
            Err(text) => ("refused", text),
        };
        let process = std::process::id();
        let process = own_pid_namespace().map_or(process.to_string(), |namespace| format!("{process} {namespace}"));
        let text = format!("{process}\n{reloads}\n{word}\n{text}\n");
        let written = self.0.set_len(0).and_then(|()| {
            let mut file = &self.0;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(text.as_bytes())
        });
        if let Err(error) = written {
            tracing::warn!(%error, "the lock file cannot be written to");
        }
    }
}

// === impl ServingStatus ===

impl ServingStatus {
    /// True if a process serves from this directory, or is just starting or ending.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock file cannot be read.
    pub(crate) fn is_served(data_dir: &Path) -> std::io::Result<bool> {
        Ok(locked_file(data_dir)?.is_some())
    }

    /// Returns the status of the process that serves from this directory; `None` if there is no such process, or it is
    /// just starting and has published nothing yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the lock file cannot be read.
    pub(crate) fn find(data_dir: &Path) -> std::io::Result<Option<Self>> {
        let Some(mut file) = locked_file(data_dir)? else { return Ok(None) };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.splitn(4, '\n');
        let (process, reloads, word) = (lines.next()?, lines.next()?.parse().ok()?, lines.next()?);
        let text = lines.next()?.trim_end().to_owned();
        let (process, namespace) = process.split_once(' ').map_or((process, None), |(id, name)| (id, Some(name)));
        Some(Self {
            process_id: process.parse().ok()?,
            pid_namespace: namespace.map(str::to_owned),
            reloads,
            last_reload: if word == "done" { Ok(text) } else { Err(text) },
        })
    }

    /// True if the process is in another process namespace, such as that of a container: its id then names no process
    /// here, or another one.
    pub(crate) fn is_in_other_namespace(&self) -> bool {
        self.pid_namespace.is_some() && own_pid_namespace().is_some_and(|own| self.pid_namespace != Some(own))
    }

    /// True if this status was published after `earlier`: by a reload, or by a process that has started since.
    pub(crate) fn is_newer_than(&self, earlier: &Self) -> bool {
        self.process_id != earlier.process_id || self.reloads != earlier.reloads
    }
}

/// The process namespace of this process, as Linux names it.
#[cfg(target_os = "linux")]
fn own_pid_namespace() -> Option<String> {
    std::fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
}

#[cfg(not(target_os = "linux"))]
const fn own_pid_namespace() -> Option<String> {
    None
}

/// True if a node that shares its database with others has run from this directory.
pub(crate) fn has_node_id(data_dir: &Path) -> bool {
    data_dir.join(NODE_FILE).is_file()
}

/// Runs work that waits for the disk on a thread of its own.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(source) => Err(StoreError::Unavailable { doing: "opening the data directory", source: source.into() }),
    }
}

/// Returns the lock file for serving if a process holds its lock. Without one, the text of the file is from a process
/// that has ended.
fn locked_file(data_dir: &Path) -> std::io::Result<Option<File>> {
    let file = match File::open(data_dir.join(SERVE_LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(file)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl DataDir {
    /// Returns a directory without looking whether it exists.
    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Creates the directory if it is missing. The permissions of an existing directory are not changed.
    pub(super) fn create_or_open(path: &Path) -> Result<Self, StoreError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(StoreError::io("creating the data directory"))?;
        Ok(Self(path.to_owned()))
    }

    pub(super) fn database_path(&self) -> PathBuf {
        self.0.join("imagate.db")
    }

    /// The path of the write-ahead log of a database file.
    pub(super) fn log_of_database(database: &Path) -> PathBuf {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        log.into()
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn master_key_path(&self) -> PathBuf {
        self.0.join("master.key")
    }

    /// Returns the id of this node, and makes one if the directory is new. Must be called under the lock for opening.
    ///
    /// The id must not be copied to another node: the records of two nodes with one id are confused at a start.
    pub(super) fn load_or_create_node_id(&self) -> Result<NodeId, StoreError> {
        let path = self.0.join(NODE_FILE);
        let read = || -> std::io::Result<String> {
            let (mut file, mut text) = (open_private(&path)?, String::new());
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(StoreError::io("reading the id of the node"))?;
        if !text.trim().is_empty() {
            return Ok(NodeId::from(text.trim()));
        }
        let node = NodeId::random()?;
        let write = || {
            let mut file = open_private(&path)?;
            file.write_all(node.as_str().as_bytes())?;
            file.sync_all()?;
            self.sync()
        };
        write().map_err(StoreError::io("writing the id of the node"))?;
        Ok(node)
    }

    /// Marks that a database was created here. A failure is only logged: without the marker, a loss of the database may
    /// stay unnoticed, but nothing else changes.
    pub(super) fn write_marker(&self) {
        let path = self.0.join(MARKER_FILE);
        if path.exists() {
            return;
        }
        let write = || {
            let mut file = open_private(&path)?;
            file.write_all(MARKER_TEXT.as_bytes())?;
            file.sync_all()?;
            self.sync()
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "{MARKER_FILE} cannot be written");
        }
    }

    /// Returns the names of the files that prove that a database was here.
    pub(super) fn files_of_lost_database(&self) -> Vec<&'static str> {
        let is_present = |name: &&str| {
            let path = self.0.join(name);
            // An empty folder was created but never used, so it proves nothing.
            std::fs::read_dir(&path).map_or_else(|_| path.exists(), |mut entries| entries.next().is_some())
        };
        [MARKER_FILE].into_iter().chain(FILES_OF_DATABASE).filter(is_present).collect()
    }

    /// Takes the lock for opening: only one process at a time creates or migrates the database, or makes or changes the
    /// master key. Waiting blocks the thread, so async code must not call it.
    #[expect(
        clippy::disallowed_methods,
        reason = "runs on a blocking thread; the kernel's lock has no timeout of its own"
    )]
    pub(super) fn lock_for_opening(&self) -> Result<File, StoreError> {
        let file = self.lock_file(OPEN_LOCK_FILE)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if begun.elapsed() < OPEN_TIMEOUT => {
                    std::thread::sleep(LOCK_RETRY_INTERVAL);
                }
                Err(TryLockError::WouldBlock) => return Err(StoreError::Busy),
                Err(TryLockError::Error(source)) => return Err(StoreError::io("locking the data directory")(source)),
            }
        }
    }

    /// Takes the lock for serving: only one process at a time serves.
    pub(super) fn lock_for_serving(&self) -> Result<ServeLock, StoreError> {
        let file = self.lock_file(SERVE_LOCK_FILE)?;
        match file.try_lock() {
            Ok(()) => {
                // The status of a process that has ended must not be taken for that of this one.
                file.set_len(0).map_err(StoreError::io("clearing the lock file"))?;
                Ok(ServeLock(file))
            }
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse { data_dir: self.0.clone() }),
            Err(TryLockError::Error(source)) => Err(StoreError::io("locking the data directory")(source)),
        }
    }

    fn lock_file(&self, name: &str) -> Result<File, StoreError> {
        open_private(&self.0.join(name)).map_err(StoreError::io("opening a lock file in the data directory"))
    }

    /// Makes the entries of the directory as durable as the files that they name.
    #[cfg(unix)]
    pub(super) fn sync(&self) -> std::io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    /// Does nothing: a directory cannot be opened as a file here, and the system journals its entries.
    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "the same signature everywhere")]
    pub(super) fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Opens a file for reading and writing. A new file can be read only by its owner from the first moment.
///
/// If other users may access an existing file, it is closed to them, because such permissions are never intended.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    #[cfg(unix)]
    restrict_to_owner(&file)?;
    Ok(file)
}

#[cfg(unix)]
fn restrict_to_owner(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mut permissions = file.metadata()?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o600);
        file.set_permissions(permissions)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_does_not_have_the_status_of_the_one_before_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let find = || ServingStatus::find(dir.path()).unwrap();
        std::fs::write(dir.path().join(SERVE_LOCK_FILE), "4242\n7\ndone\nnothing has changed\n").unwrap();
        assert!(find().is_none());
        let lock = DataDir::at(dir.path()).lock_for_serving().unwrap();
        assert!(find().is_none());
        lock.publish_status(3, &Err("line 1\nline 2".to_owned()));
        let status = find().unwrap();
        assert_eq!((status.process_id.unsigned_abs(), status.reloads), (std::process::id(), 3));
        assert_eq!(status.last_reload.as_ref().unwrap_err(), "line 1\nline 2");
        assert!(!status.is_in_other_namespace());
    }

    #[test]
    fn a_status_is_newer_after_a_reload_and_after_a_new_start() {
        let status = |text: &str| ServingStatus::parse(text).unwrap();
        let before = status("1 pid:[1]\n4\ndone\n\n");
        assert_eq!(before.is_in_other_namespace(), cfg!(target_os = "linux"));
        assert!(!before.is_newer_than(&before));
        for newer in ["1 pid:[1]\n5\ndone\n\n", "1 pid:[1]\n0\ndone\n\n", "2 pid:[1]\n4\ndone\n\n"] {
            assert!(status(newer).is_newer_than(&before), "{newer}");
        }
        // Only Linux has namespaces.
        let without_namespace = status("1\n4\ndone\n\n");
        assert!(without_namespace.process_id == 1 && !without_namespace.is_in_other_namespace());
    }
}
