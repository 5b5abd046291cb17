//! Reads the files of a checkout on disk. A symbolic link is followed only if it stands for a folder in the middle of a
//! path and its target lies within the checkout; a link at the end of a path is reported as a link.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::manifest::{FileKind, FileMetadata, FilesError, FolderEntry, RepositoryFiles};

/// A folder on disk that holds a repository.
#[derive(Debug)]
pub(crate) struct Checkout {
    root: PathBuf,
    /// The paths that git tracks, listed when they are first needed; `None` if git cannot list them.
    tracked_files: OnceLock<Option<HashSet<String>>>,
    /// The folders that have been resolved, by path. They are cached, because one folder may hold thousands of files.
    resolved_folders: Mutex<HashMap<String, PathBuf>>,
    /// Folders whose path below the root contains no link.
    link_free_folders: Mutex<HashSet<String>>,
}

// === impl Checkout ===

impl Checkout {
    /// Opens a checkout; the folder must exist.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let root = fs::canonicalize(root)?;
        if root.is_dir() {
            Ok(Self {
                root,
                tracked_files: OnceLock::new(),
                resolved_folders: Mutex::default(),
                link_free_folders: Mutex::default(),
            })
        } else {
            Err(io::Error::from(io::ErrorKind::NotADirectory))
        }
    }

    /// Returns the location of a path on disk, or `None` if one of its folders does not exist. A path that leads out of
    /// the root, also through a link to a folder, is an error.
    fn locate(&self, path: &str) -> Result<Option<PathBuf>, FilesError> {
        let outside = || FilesError::Outside { path: path.to_owned() };
        if path.is_empty() {
            return Ok(Some(self.root.clone()));
        }
        let is_plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(['\\', '\0']);
        if !path.split('/').all(is_plain) || Path::new(path).is_absolute() {
            return Err(outside());
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.resolve_folder(folder) {
            Ok(Some(folder)) => Ok(Some(folder.join(name))),
            Ok(None) => Err(outside()),
            Err(error) => ignore_missing(path, &error).map(|()| None),
        }
    }

    /// Returns the location of a folder, or `None` if it is outside the root.
    fn resolve_folder(&self, folder: &str) -> io::Result<Option<PathBuf>> {
        if folder.is_empty() {
            return Ok(Some(self.root.clone()));
        }
        if let Some(location) = lock(&self.resolved_folders).get(folder) {
            return Ok(Some(location.clone()));
        }
        let location = self.root.join(folder);
        // `canonicalize` inspects each component of a path from the root of the disk, so it is called only if the path
        // may contain a link.
        let location = if self.has_no_link(folder)? { location } else { fs::canonicalize(location)? };
        if !location.starts_with(&self.root) {
            return Ok(None);
        }
        lock(&self.resolved_folders).insert(folder.to_owned(), location.clone());
        Ok(Some(location))
    }

    /// Returns true if no component of the path from the root to the folder is a link.
    fn has_no_link(&self, folder: &str) -> io::Result<bool> {
        let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
        for prefix in ends.map(|end| &folder[..end]) {
            if lock(&self.link_free_folders).contains(prefix) {
                continue;
            }
            let metadata = fs::symlink_metadata(self.root.join(prefix))?;
            if !metadata.is_dir() {
                return Ok(false);
            }
            lock(&self.link_free_folders).insert(prefix.to_owned());
        }
        Ok(true)
    }

    fn tracked_files(&self) -> Option<&HashSet<String>> {
        self.tracked_files.get_or_init(|| list_tracked_files(&self.root)).as_ref()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accepts an error that says that the file does not exist; returns every other error.
fn ignore_missing(path: &str, error: &io::Error) -> Result<(), FilesError> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(()),
        _ => Err(unreadable(path, error)),
    }
}

fn unreadable(path: &str, error: &io::Error) -> FilesError {
    FilesError::Unreadable { path: path.to_owned(), reason: error.to_string() }
}

/// Returns the paths that git tracks in a folder, or `None` if the folder is not a git checkout or git is not
/// installed. Git's file system monitor is switched off, because the configuration of the repository could make git run
/// any program as that monitor.
fn list_tracked_files(root: &Path) -> Option<HashSet<String>> {
    let mut command = Command::new("git");
    command.args(["-c", "core.fsmonitor=false", "-C"]).arg(root).args(["ls-files", "-z", "--cached"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let names = output.stdout.split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
    output.status.success().then(|| names.filter(|name| !name.is_empty()).collect())
}

fn file_metadata(path: &Path, metadata: &fs::Metadata) -> io::Result<FileMetadata> {
    let kind = if metadata.is_symlink() {
        FileKind::Link(fs::read_link(path)?.to_string_lossy().into_owned())
    } else if metadata.is_file() {
        FileKind::File
    } else if metadata.is_dir() {
        FileKind::Folder
    } else {
        FileKind::Other
    };
    let size = if kind == FileKind::File { metadata.len() } else { 0 };
    Ok(FileMetadata { kind, size, is_executable: is_executable(metadata) })
}

#[cfg(unix)]
fn is_executable(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_metadata: &fs::Metadata) -> bool {
    false
}

/// Opens a file only if it is still the file that was inspected: a link may have replaced that file since. On systems
/// other than Unix, only a target that is no regular file is detected.
fn open_unchanged(path: &Path, inspected: &fs::Metadata) -> io::Result<File> {
    let file = File::open(path)?;
    if is_same_file(inspected, &file.metadata()?) {
        Ok(file)
    } else {
        Err(io::Error::other("the file was replaced while it was read"))
    }
}

#[cfg(unix)]
fn is_same_file(left: &fs::Metadata, right: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (left.dev(), left.ino()) == (right.dev(), right.ino())
}

#[cfg(not(unix))]
fn is_same_file(_left: &fs::Metadata, right: &fs::Metadata) -> bool {
    right.is_file()
}

impl RepositoryFiles for Checkout {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        let Some(location) = self.locate(path)? else { return Ok(None) };
        let metadata = match fs::symlink_metadata(&location) {
            Ok(metadata) if metadata.is_file() => metadata,
            Ok(_) => return Ok(None),
            Err(error) => return ignore_missing(path, &error).map(|()| None),
        };
        let too_large = |size| FilesError::TooLarge { path: path.to_owned(), size, limit };
        if metadata.len() > limit {
            return Err(too_large(metadata.len()));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default().saturating_add(1));
        let file = open_unchanged(&location, &metadata).map_err(|error| unreadable(path, &error))?;
        // The file may have grown since its size was read.
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
        if bytes.len() as u64 > limit { Err(too_large(bytes.len() as u64)) } else { Ok(Some(bytes)) }
    }

    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError> {
        let (Some(location), Some(FileMetadata { kind: FileKind::Folder, .. })) =
            (self.locate(path)?, self.metadata(path)?)
        else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        for entry in fs::read_dir(location).map_err(|error| unreadable(path, &error))? {
            let entry = entry.map_err(|error| unreadable(path, &error))?;
            let name = entry.file_name().into_string().map_err(|_| FilesError::Name { path: path.to_owned() })?;
            let metadata = entry.metadata().and_then(|metadata| file_metadata(&entry.path(), &metadata));
            entries.push(FolderEntry { name, metadata: metadata.map_err(|error| unreadable(path, &error))? });
        }
        entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
        Ok(Some(entries))
    }

    fn metadata(&self, path: &str) -> Result<Option<FileMetadata>, FilesError> {
        let Some(location) = self.locate(path)? else { return Ok(None) };
        match fs::symlink_metadata(&location).and_then(|metadata| file_metadata(&location, &metadata)) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) => ignore_missing(path, &error).map(|()| None),
        }
    }

    fn is_tracked(&self, path: &str) -> Option<bool> {
        Some(self.tracked_files()?.contains(path))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_is_never_followed_out_of_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("inside")).unwrap();
        fs::write(folder.path().join("secret"), "s").unwrap();
        fs::write(root.join("inside/file"), "f").unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("../secret", root.join("link")).unwrap();
        symlink("inside", root.join("alias")).unwrap();
        let checkout = Checkout::open(&root).unwrap();
        let outside = |path: &str| Err(FilesError::Outside { path: path.to_owned() });
        for path in ["up/secret", "../secret", "/etc/passwd", "inside/../../secret", "a//b", "a/./b", "a\\b", "a\0b"] {
            assert_eq!(checkout.read(path, 9), outside(path), "{path}");
        }
        assert_eq!(checkout.read("link", 9), Ok(None));
        assert_eq!(checkout.metadata("link").unwrap().unwrap().kind, FileKind::Link("../secret".to_owned()));
        assert_eq!(checkout.read("alias/file", 9), Ok(Some(b"f".to_vec())));
        assert_eq!(checkout.read("inside/none", 9), Ok(None));
        assert_eq!(checkout.read("inside/file/none", 9), Ok(None));
        assert_eq!(checkout.list(".."), Err(FilesError::Outside { path: "..".to_owned() }));
        assert!(Checkout::open(&root.join("inside/file")).is_err());
    }

    #[test]
    fn a_file_that_was_replaced_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(folder.path().join("secret"), "s").unwrap();
        fs::write(&path, "f").unwrap();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(open_unchanged(&path, &metadata).is_ok());
        fs::remove_file(&path).unwrap();
        symlink("secret", &path).unwrap();
        assert!(open_unchanged(&path, &metadata).is_err());
    }

    #[test]
    fn a_file_above_the_limit_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "12345").unwrap();
        let checkout = Checkout::open(folder.path()).unwrap();
        assert!(checkout.read("file", 5).is_ok());
        assert_eq!(checkout.read("file", 3), Err(FilesError::TooLarge { path: "file".to_owned(), size: 5, limit: 3 }));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn reading_stops_above_the_limit_if_the_metadata_reports_no_size() {
        let checkout = Checkout::open(Path::new("/proc/self")).unwrap();
        assert!(matches!(checkout.read("status", 5), Err(FilesError::TooLarge { size: 6, .. })));
    }

    #[test]
    fn a_folder_is_listed_by_name_with_its_executable_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("b", 0o755), ("a", 0o644), ("d", 0o644), ("c", 0o700)] {
            fs::write(folder.path().join(name), "").unwrap();
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let listed = Checkout::open(folder.path()).unwrap().list("").unwrap().unwrap();
        let listed: Vec<_> = listed.iter().map(|entry| (entry.name.as_str(), entry.metadata.is_executable)).collect();
        assert_eq!(listed, [("a", false), ("b", true), ("c", true), ("d", false)]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_that_is_not_unicode_is_an_error() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"a\xff")), "").unwrap();
        let listed = Checkout::open(folder.path()).unwrap().list("");
        assert_eq!(listed, Err(FilesError::Name { path: String::new() }));
    }
}
