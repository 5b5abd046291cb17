//! A file of sealed (encrypted and authenticated) frames. It is written frame by frame, and can be read from any frame,
//! but not without its key.
//!
//! Each file has a key of its own, which is never used for another file, so the number of a frame can be its nonce. A
//! frame that was changed, moved or truncated cannot be opened.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::answer_folder::PARTIAL_EXTENSION;
use crate::gateway::spool::{blocking_io, positioned_io};

/// The length of a frame before it is sealed, in bytes. Only the last frame may be shorter.
pub(super) const FRAME_BYTES: usize = 64 * 1024;
/// The bytes that sealing adds to a frame: the AES-GCM tag.
const TAG_BYTES: usize = 16;
/// The distance from the beginning of one sealed frame to the next.
const SEALED_FRAME_BYTES: u64 = (FRAME_BYTES + TAG_BYTES) as u64;
/// The associated data of every frame, so that a frame cannot be opened as data of another kind.
const FRAME_ASSOCIATED_DATA: &[u8] = b"imagate replay frame v1";

/// The key of one file.
pub(super) struct FileKey([u8; 32]);

/// A file of sealed frames.
pub(super) struct SealedFile {
    /// `None` only while it is being dropped.
    file: Option<File>,
    key: LessSafeKey,
    path: PathBuf,
    /// True if the file has its final name. Before that, its extension marks it as incomplete.
    is_finished: AtomicBool,
    /// True if the file is removed when this value is dropped, even if it has its final name.
    is_discarded: AtomicBool,
}

// === impl FileKey ===

impl FileKey {
    fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// Restores a key from its unsealed bytes; `None` if their number is wrong.
    pub(super) fn from_bytes(mut bytes: Vec<u8>) -> Option<Self> {
        let key = <[u8; 32]>::try_from(bytes.as_slice()).ok().map(Self);
        bytes.fill(0);
        key
    }

    /// Returns the bytes of the key, to be sealed.
    pub(super) fn expose(&self) -> &[u8] {
        &self.0
    }

    fn cipher(&self) -> io::Result<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, &self.0)
            .map(LessSafeKey::new)
            .map_err(|_| invalid_data("the cipher does not accept the key"))
    }
}

impl Drop for FileKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without this use the compiler may remove the write.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FileKey([redacted])")
    }
}

// === impl SealedFile ===

impl SealedFile {
    const fn new(file: Option<File>, key: LessSafeKey, path: PathBuf, is_finished: bool) -> Self {
        Self { file, key, path, is_finished: AtomicBool::new(is_finished), is_discarded: AtomicBool::new(false) }
    }

    /// Creates a file that only its owner can read, and its key. [`SealedFile::finish`] gives it its final name.
    pub(super) fn create(path: PathBuf) -> io::Result<(Self, FileKey)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let key = FileKey::random()?;
        let cipher = key.cipher()?;
        blocking_io::note_disk_access();
        let file = Some(options.open(partial_path(&path))?);
        Ok((Self::new(file, cipher, path, false), key))
    }

    /// Opens a finished file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is missing or has the wrong length.
    pub(super) fn open(path: PathBuf, key: &FileKey, size: u64) -> io::Result<Self> {
        blocking_io::note_disk_access();
        let file = File::open(&path)?;
        if file.metadata()?.len() != sealed_length(size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self::new(Some(file), key.cipher()?, path, true))
    }

    /// Seals a frame and writes it. The caller must write each number only once: its nonce must not be used twice.
    pub(super) fn write(&self, number: u64, mut frame: Vec<u8>) -> io::Result<()> {
        let sealed = self.key.seal_in_place_append_tag(nonce(number), Aad::from(FRAME_ASSOCIATED_DATA), &mut frame);
        sealed.map_err(|_| invalid_data("a frame could not be encrypted"))?;
        positioned_io::write_all(self.file()?, &frame, number * SEALED_FRAME_BYTES)
    }

    /// Reads a frame of this length.
    ///
    /// # Errors
    ///
    /// Returns an error if the frame is truncated or has been changed.
    pub(super) fn read(&self, number: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut frame = vec![0; length + TAG_BYTES];
        positioned_io::read_exact(self.file()?, &mut frame, number * SEALED_FRAME_BYTES)?;
        let plaintext = self.key.open_in_place(nonce(number), Aad::from(FRAME_ASSOCIATED_DATA), &mut frame);
        let length = plaintext.map_err(|_| invalid_data("a frame was changed after it was written"))?.len();
        frame.truncate(length);
        Ok(frame)
    }

    /// Gives the complete file its final name, and waits until neither a kill nor a power failure can lose it. This
    /// blocks, so async code must not call it.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails, or if the file was discarded in the meantime. A discarded file is removed.
    pub(super) fn finish(&self) -> io::Result<()> {
        blocking_io::note_disk_access();
        self.file()?.sync_data()?;
        std::fs::rename(partial_path(&self.path), &self.path)?;
        // Either this call sees that the file was discarded, or `spawn_unlink` or the drop after it sees the final name.
        self.is_finished.store(true, Ordering::SeqCst);
        if self.is_discarded() {
            remove(&self.path);
            return Err(io::ErrorKind::NotFound.into());
        }
        // The name must be durable too. On systems other than Unix, a directory cannot be opened as a file, and the
        // file system journals its entries.
        #[cfg(unix)]
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    fn is_discarded(&self) -> bool {
        self.is_discarded.load(Ordering::SeqCst)
    }

    /// Removes the file's name on another thread, without waiting for it. Present readers can still read the file.
    pub(super) fn spawn_unlink(&self) {
        self.is_discarded.store(true, Ordering::SeqCst);
        let path = self.current_path();
        blocking_io::spawn_detached(move || remove(&path));
    }

    /// Returns the current name of the file.
    fn current_path(&self) -> PathBuf {
        if self.is_finished.load(Ordering::SeqCst) { self.path.clone() } else { partial_path(&self.path) }
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for SealedFile {
    fn drop(&mut self) {
        // The store gets the key only of a finished file, so an unfinished file could never be read again.
        let must_remove = !self.is_finished.load(Ordering::SeqCst) || self.is_discarded();
        let path_to_remove = must_remove.then(|| self.current_path());
        let file = self.file.take();
        // Closing a removed file frees its space, which can take as long as unlinking a file with a name.
        blocking_io::spawn_detached(move || {
            if let Some(path) = &path_to_remove {
                remove(path);
            }
            drop(file);
        });
    }
}

/// Returns the name of a file that is being written.
fn partial_path(path: &Path) -> PathBuf {
    path.with_added_extension(PARTIAL_EXTENSION)
}

/// Returns the length of the sealed file of this number of unsealed bytes.
pub(super) fn sealed_length(size: u64) -> u64 {
    size + size.div_ceil(FRAME_BYTES as u64) * TAG_BYTES as u64
}

/// Removes a file, if it still exists. This blocks, so async code must not call it.
pub(super) fn remove(path: &Path) {
    blocking_io::note_disk_access();
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::error!(%error, "the file of a stored answer could not be deleted");
        }
        Ok(()) | Err(_) => {}
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn invalid_data(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_file_has_the_computed_length() {
        let dir = tempfile::tempdir().unwrap();
        let (frames, key) = SealedFile::create(dir.path().join("a")).unwrap();
        frames.write(0, vec![7; FRAME_BYTES]).unwrap();
        frames.write(1, vec![8; 3]).unwrap();
        let size = FRAME_BYTES as u64 + 3;
        assert!(SealedFile::open(dir.path().join("a"), &key, size).is_err(), "the file is not finished");
        frames.finish().unwrap();
        let reopened = SealedFile::open(dir.path().join("a"), &key, size).unwrap();
        assert_eq!(reopened.read(1, 3).unwrap(), [8; 3]);
        assert_eq!(reopened.read(0, FRAME_BYTES).unwrap(), vec![7; FRAME_BYTES]);
        assert!(SealedFile::open(dir.path().join("a"), &key, size + 1).is_err());
    }

    #[test]
    fn a_file_that_is_removed_during_its_rename_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, aside) = (dir.path().join("a"), dir.path().join("aside"));
        let (frames, _) = SealedFile::create(path.clone()).unwrap();
        // The file is moved away during the removal, as if it were just being renamed.
        std::fs::rename(partial_path(&path), &aside).unwrap();
        frames.spawn_unlink();
        std::fs::rename(&aside, partial_path(&path)).unwrap();
        assert!(frames.finish().is_err(), "a removed file cannot be finished");
        drop(frames);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_cannot_be_read_without_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (frames, _) = SealedFile::create(path.clone()).unwrap();
        frames.write(0, b"a canary in a file".to_vec()).unwrap();
        frames.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"canary"));
        let (_, other_key) = SealedFile::create(dir.path().join("b")).unwrap();
        assert!(SealedFile::open(path, &other_key, 18).unwrap().read(0, 18).is_err());
    }

    #[test]
    fn a_changed_or_moved_frame_cannot_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (frames, key) = SealedFile::create(path.clone()).unwrap();
        frames.write(0, vec![1; FRAME_BYTES]).unwrap();
        frames.write(1, vec![2; FRAME_BYTES]).unwrap();
        frames.finish().unwrap();
        let (original, second_frame_start) = (std::fs::read(&path).unwrap(), FRAME_BYTES + TAG_BYTES);
        let open = || SealedFile::open(path.clone(), &key, 2 * FRAME_BYTES as u64).unwrap();
        std::fs::write(&path, [&original[second_frame_start..], &original[..second_frame_start]].concat()).unwrap();
        assert!(open().read(0, FRAME_BYTES).is_err());
        let mut changed = original.clone();
        changed[5] ^= 1;
        std::fs::write(&path, changed).unwrap();
        assert!(open().read(0, FRAME_BYTES).is_err());
        assert!(open().read(1, FRAME_BYTES).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_a_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        SealedFile::create(path.clone()).unwrap().0.finish().unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
