//! A disk of its own that is small, so that a test can fill it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory, gone when this is dropped.
pub(crate) struct SmallDisk(PathBuf);

// === impl SmallDisk ===

impl SmallDisk {
    /// Nothing where this machine does not let a test mount anything, which is said.
    pub(crate) fn mount(folder: &Path, megabytes: usize) -> Option<Self> {
        std::fs::create_dir_all(folder).expect("a folder");
        let size = format!("size={megabytes}m,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(Self(folder.to_owned()));
        }
        eprintln!("skipped: this machine does not let a test mount a small disk");
        None
    }

    /// Takes every byte that is left.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).expect("a file");
        let mut piece = vec![b'-'; 1 << 20];
        while piece.len() > 1 {
            if file.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
    }

    /// Gives back what [`SmallDisk::fill`] took.
    pub(crate) fn clear(&self) {
        std::fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
