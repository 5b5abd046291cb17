//! Writes files atomically: at its path, a reader finds the complete new file or what was there before.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::manifest::{FileKind, RepositoryFiles};

/// Writes a temporary file beside the target and renames it; missing folders are created.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_file_with_prefix(path, bytes, ".tmp")
}

/// Works like [`write_file`], but the temporary file has this prefix, so that the program can recognise it after an
/// interruption.
pub(super) fn write_file_with_prefix(path: &Path, bytes: &[u8], prefix: &str) -> anyhow::Result<()> {
    try_write(path, bytes, prefix).with_context(|| format!("{} cannot be written", path.display()))
}

/// Replaces a file completely or not at all. A symbolic link and the permissions are preserved.
pub(super) fn replace_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let path: PathBuf = fs::canonicalize(path)?;
    let folder = path.parent().context("the path has no parent folder")?;
    let permissions = fs::metadata(&path)?.permissions();
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

/// Returns an error if a part of the path is a symbolic link, because files must not be written through a link.
pub(super) fn refuse_symlinks(files: &dyn RepositoryFiles, path: &str) -> anyhow::Result<()> {
    let mut prefix = String::new();
    for part in path.split('/') {
        prefix.push_str(part);
        if let Some(FileKind::Link(_)) = files.metadata(&prefix)?.map(|metadata| metadata.kind) {
            bail!("{prefix} is a symbolic link; files are never written through a link");
        }
        prefix.push('/');
    }
    Ok(())
}

fn try_write(path: &Path, bytes: &[u8], prefix: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(prefix).tempfile_in(folder)?;
    file.write_all(bytes)?;
    make_readable(file.as_file())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Makes a temporary file readable for everyone who may read its folder. By default only its owner can read it.
#[cfg(unix)]
fn make_readable(file: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_file: &fs::File) -> io::Result<()> {
    Ok(())
}
