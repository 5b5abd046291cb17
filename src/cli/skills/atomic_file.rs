//! Writes files atomically: at its path, a reader finds the complete new file or what was there before.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;

/// Writes a temporary file beside the target and renames it; missing folders are created.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_file_with_prefix(path, bytes, ".tmp")
}

/// Works like [`write_file`], but the temporary file has this prefix, so that the program can recognise it after an
/// interruption.
pub(super) fn write_file_with_prefix(path: &Path, bytes: &[u8], prefix: &str) -> anyhow::Result<()> {
    try_write(path, bytes, prefix).with_context(|| format!("{} cannot be written", path.display()))
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
