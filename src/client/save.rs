//! Saves an image as a file: writes it beside its final path, and moves it there when it is whole.
//!
//! This module decides the file name. An image has been paid for, and an existing file may hold another one: no file is
//! replaced unless the caller asks for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Error;
use super::retry::random_bits;
use crate::image::Format;

/// The number of bytes that are written to find out if a disk is full (our choice): a block of most file systems.
const PROBE_BYTES: usize = 4096;

/// Returns the path with the extension of the format. The path stays as it is if its extension already stands for that
/// format or stands for no image format, or if the format is unknown.
pub(crate) fn with_format_extension(path: &Path, format: Option<Format>) -> PathBuf {
    let Some(format) = format else { return path.to_owned() };
    let has_extension = path.extension().is_some();
    if has_extension && format_from_extension(path).is_none_or(|named| named == format) {
        return path.to_owned();
    }
    path.with_extension(format.extension())
}

/// Returns the format that the extension of a file name stands for.
pub(crate) fn format_from_extension(path: &Path) -> Option<Format> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "jpg" | "jpe" => Some(Format::Jpeg),
        extension => extension.parse().ok(),
    }
}

/// The rule for the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileNaming {
    /// The path itself, replacing an existing file.
    Replacing,
    /// The path itself if it is free, else with the first of `-2`, `-3` and so on that is free.
    Free,
    /// The path with the first of `-1`, `-2` and so on that is free, for one image of several.
    Numbered,
}

/// An image that can be saved as a file.
pub(super) trait EncodedImage: Clone + Send + 'static {
    /// The format found in the bytes; `None` if it is not known.
    fn format(&self) -> Option<Format>;

    /// Passes the bytes of the file to `sink`, in chunks.
    fn write(&self, sink: ImageByteSink<'_>) -> Result<(), Error>;
}

/// A function that takes the next bytes of a file.
pub(super) type ImageByteSink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Error>;

/// Writes an image and returns its path.
pub(super) async fn save_image(image: &impl EncodedImage, path: &Path, naming: FileNaming) -> Result<PathBuf, Error> {
    let (image_copy, path) = (image.clone(), path.to_owned());
    // The image is written on a blocking thread, because file access blocks and an image has megabytes.
    let written = tokio::task::spawn_blocking(move || {
        let path = with_format_extension(&path, image_copy.format());
        write(&image_copy, &path, naming)
    });
    written.await.unwrap_or_else(|error| Err(Error::file("writing was cancelled", io::Error::other(error))))
}

/// Writes all images and returns their paths. An image that cannot be written does not stop the others; the first error
/// is returned.
pub(super) async fn save_all<P: EncodedImage>(
    images: impl Iterator<Item = P>,
    path: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let images: Vec<P> = images.collect();
    let naming = if images.len() > 1 { FileNaming::Numbered } else { FileNaming::Free };
    let (mut written, mut failure) = (Vec::with_capacity(images.len()), None);
    for image in &images {
        match save_image(image, path, naming).await {
            Ok(path) => written.push(path),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(written), Err)
}

/// Writes an image to a file, which appears whole or not at all.
fn write(image: &impl EncodedImage, path: &Path, naming: FileNaming) -> Result<PathBuf, Error> {
    let to_error = |source| Error::file(format!("{} cannot be written", path.display()), source);
    let temporary = TemporaryFile::create(path).map_err(to_error)?;
    image.write(&mut |chunk| (&temporary.file).write_all(chunk).map_err(to_error))?;
    temporary.publish(path, naming).map_err(to_error)
}

/// Adds a number to the name: `fox.png` becomes `fox-2.png`.
pub(crate) fn numbered_path(path: &Path, number: usize) -> PathBuf {
    path_with_suffix(path, &format!("-{number}"))
}

/// Returns the path with a suffix before its extension.
pub(crate) fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(suffix);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Writes a file, which appears whole or not at all, and replaces an existing one.
#[cfg(feature = "cli")]
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = TemporaryFile::create(path)?;
    (&temporary.file).write_all(bytes)?;
    temporary.publish(path, FileNaming::Replacing).map(drop)
}

/// Writes a file, which appears whole or not at all, under this name or else the first of `-2`, `-3` and so on that is
/// free. Returns its path.
#[cfg(feature = "cli")]
pub(crate) fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let temporary = TemporaryFile::create(path)?;
    (&temporary.file).write_all(bytes)?;
    temporary.publish(path, FileNaming::Free)
}

/// Finds out if a file with this path can be written: writes a temporary one to its folder, and lets the file system
/// check the name. An existing file is no error, because it may be replaced or get another name.
pub(crate) fn check_writable(path: &Path) -> io::Result<()> {
    let temporary = TemporaryFile::create(path)?;
    // A full disk still takes an empty file.
    (&temporary.file).write_all(&[0; PROBE_BYTES])?;
    // An image gets an extension if its path has none.
    let named = path.extension().is_none().then(|| with_format_extension(path, Some(Format::Webp)));
    match fs::symlink_metadata(named.as_deref().unwrap_or(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A file that is still being written, under a temporary name that is removed on drop.
pub(super) struct TemporaryFile {
    file: File,
    path: PathBuf,
    is_renamed: bool,
}

// === impl TemporaryFile ===

impl TemporaryFile {
    /// Creates the file in the folder of the target, because a file can be moved in one step only within a file system.
    pub(super) fn create(target: &Path) -> io::Result<Self> {
        if target.file_name().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        }
        // The name of the target is no part of the temporary one, which would be too long where the target just fits.
        let path = target.with_file_name(format!(".{:016x}.part", random_bits()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { file, path, is_renamed: false })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Moves the whole file to its final path, and returns that path.
    pub(super) fn publish(mut self, target: &Path, naming: FileNaming) -> io::Result<PathBuf> {
        // The image is paid for: it must survive a power failure right after its path was returned.
        self.file.sync_all()?;
        let first = match naming {
            FileNaming::Replacing => {
                self.rename(target)?;
                return Ok(target.to_owned());
            }
            FileNaming::Free if self.claim_name(target)? => return Ok(target.to_owned()),
            FileNaming::Free => 2,
            FileNaming::Numbered => 1,
        };
        let mut number = first;
        loop {
            let path = numbered_path(target, number);
            if self.claim_name(&path)? {
                return Ok(path);
            }
            number += 1;
        }
    }

    /// Moves the file to a free name; `false` if the name is taken. No two programs get the same name.
    fn claim_name(&mut self, target: &Path) -> io::Result<bool> {
        match fs::hard_link(&self.path, target) {
            // The temporary name is removed on drop.
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(_) => {}
        }
        // Some file systems have no hard links; there an empty file reserves the name first.
        match OpenOptions::new().write(true).create_new(true).open(target) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(error),
        }
        self.rename(target).inspect_err(|_| {
            // The error of the rename is returned.
            let _ = fs::remove_file(target);
        })?;
        Ok(true)
    }

    fn rename(&mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            // A failure to remove the temporary file cannot be reported here.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::decode;

    impl EncodedImage for &'static str {
        fn format(&self) -> Option<Format> {
            None
        }

        fn write(&self, sink: ImageByteSink<'_>) -> Result<(), Error> {
            decode::decode_chunks(self, sink)
        }
    }

    #[track_caller]
    fn check(path: &str, format: Option<Format>, expected: &str) {
        assert_eq!(with_format_extension(Path::new(path), format), Path::new(expected));
    }

    #[test]
    fn the_extension_matches_the_format() {
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
    fn a_file_is_replaced_and_no_temporary_file_remains() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        fs::write(&path, "old").unwrap();
        assert_eq!(write(&"aGVsbG8=", &path, FileNaming::Replacing).unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_file_is_kept_and_the_next_free_number_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        fs::write(&path, "old").unwrap();
        let names = [FileNaming::Free, FileNaming::Free, FileNaming::Numbered, FileNaming::Numbered]
            .map(|naming| write(&"aGVsbG8=", &path, naming).unwrap().file_name().unwrap().to_owned());
        assert_eq!(names, ["a-2.png", "a-3.png", "a-1.png", "a-4.png"]);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn concurrent_writers_get_different_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| write(&"aGVsbG8=", &path, FileNaming::Free).unwrap());
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 8);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        fs::write(&path, "old").unwrap();
        assert!(write(&"aGVsbG8!", &path, FileNaming::Free).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_name_that_the_file_system_accepts_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        for length in [1, 232, 233, 240, 251] {
            let path = folder.path().join(format!("{}.png", "a".repeat(length)));
            check_writable(&path).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing remains of the check");
            assert_eq!(write(&"aGVsbG8=", &path, FileNaming::Free).unwrap(), path);
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_path_that_cannot_be_written_is_found_without_an_image() {
        let folder = tempfile::tempdir().unwrap();
        let long = ["a".repeat(252) + ".png", "a".repeat(252)];
        for name in ["none/a.png", "..", &long[0], &long[1]] {
            assert!(check_writable(&folder.path().join(name)).is_err(), "{name}");
        }
        fs::write(folder.path().join("a.png"), "old").unwrap();
        check_writable(&folder.path().join("a.png")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&"aGVsbG8=", &folder.path().join("none/a.png"), FileNaming::Free).unwrap_err();
        assert!(error.to_string().contains("a.png"), "{error}");
    }
}
