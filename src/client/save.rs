//! An image as a file: written beside its place, and moved there when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{Error, decode};
use crate::image::Format;

/// The path with the ending of the format, unless it has one that says nothing of a format.
pub(super) fn with_ending(path: &Path, format: Option<Format>) -> PathBuf {
    let Some(format) = format else { return path.to_owned() };
    let has_ending = path.extension().is_some();
    if has_ending && format_of_name(path).is_none_or(|named| named == format) {
        return path.to_owned();
    }
    path.with_extension(format.extension())
}

/// The format that the ending of a file name stands for.
pub(crate) fn format_of_name(path: &Path) -> Option<Format> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "jpg" | "jpe" => Some(Format::Jpeg),
        word => word.parse().ok(),
    }
}

/// Writes an image where its format wants it, and says where that is.
pub(super) async fn image(
    path: &Path,
    format: Option<Format>,
    write: impl FnOnce(&Path) -> Result<(), Error> + Send + 'static,
) -> Result<PathBuf, Error> {
    let path = with_ending(path, format);
    // Files block, and an image is megabytes.
    let written = tokio::task::spawn_blocking(move || {
        write(&path)?;
        Ok(path)
    });
    written.await.unwrap_or_else(|stopped| Err(Error::file("writing was given up", io::Error::other(stopped))))
}

/// Decodes straight into the file. It appears whole or not at all.
pub(super) fn write(base64: &str, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::file(format!("{} cannot be written", path.display()), source);
    let draft = Draft::create(path).map_err(failed)?;
    decode::pieces(base64, |piece| (&draft.file).write_all(piece).map_err(failed))?;
    draft.publish(path).map_err(failed)
}

/// Writes a file that appears whole or not at all.
#[cfg(feature = "cli")]
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = Draft::create(path)?;
    (&draft.file).write_all(bytes)?;
    draft.publish(path)
}

/// A file that is not yet what it is to be. Dropped before it is published, it is gone.
struct Draft {
    file: File,
    path: PathBuf,
    is_published: bool,
}

// === impl Draft ===

impl Draft {
    /// In the same folder, because a file can be moved at once only within a file system.
    fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
        let path = target.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), Uuid::new_v4().simple()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { file, path, is_published: false })
    }

    fn publish(mut self, target: &Path) -> io::Result<()> {
        // The image is paid for: it should survive the power going out just after we said that it is there.
        self.file.sync_all()?;
        fs::rename(&self.path, target)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // Nothing can be done about a leftover, and the reason why it is one is on its way already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, format: Option<Format>, expected: &str) {
        assert_eq!(with_ending(Path::new(path), format), Path::new(expected));
    }

    #[test]
    fn the_ending_fits_the_format() {
        check("fox", Some(Format::Jpeg), "fox.jpg");
        check("fox.png", Some(Format::Png), "fox.png");
        check("fox.jpeg", Some(Format::Jpeg), "fox.jpeg");
        check("fox.PNG", Some(Format::Png), "fox.PNG");
        check("fox.png", Some(Format::Webp), "fox.webp");
        check("a.b/fox", Some(Format::Webp), "a.b/fox.webp");
        check("fox.img", Some(Format::Webp), "fox.img");
        check("fox", None, "fox");
    }

    #[test]
    fn a_file_is_written_whole_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        fs::write(&path, "old").unwrap();
        write("aGVsbG8=", &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_breaks_off_leaves_the_old_file_and_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        fs::write(&path, "old").unwrap();
        assert!(write("aGVsbG8", &path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = write("aGVsbG8=", &folder.path().join("none/a.png")).unwrap_err();
        assert!(error.to_string().contains("a.png"), "{error}");
    }
}
