//! Files that are there whole, or not at all.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;

/// Writes a file through a new one beside it; folders on the way are made.
pub(super) fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    put_by(path, bytes, ".tmp")
}

/// As [`put`]; the new file has a name that begins so, by which its writer knows it where it was cut off.
pub(super) fn put_by(path: &Path, bytes: &[u8], prefix: &str) -> anyhow::Result<()> {
    write(path, bytes, prefix).with_context(|| format!("{} cannot be written", path.display()))
}

fn write(path: &Path, bytes: &[u8], prefix: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(prefix).tempfile_in(folder)?;
    file.write_all(bytes)?;
    readable(file.as_file())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Temporary files are for their owner alone; these are for whoever may read the folder.
#[cfg(unix)]
fn readable(file: &fs::File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_file: &fs::File) -> io::Result<()> {
    Ok(())
}
