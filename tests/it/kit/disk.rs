//! A small disk, so that a test can fill it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system in memory, unmounted on drop.
pub(crate) struct SmallDisk(PathBuf);

// === impl SmallDisk ===

impl SmallDisk {
    /// Mounts it at `folder`. Prints a line and returns `None` if this machine does not let a test mount a file system.
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

    /// Fills the disk completely.
    pub(crate) fn fill(&self) {
        self.fill_except(0);
    }

    /// Fills the disk except for this many megabytes.
    pub(crate) fn fill_except(&self, megabytes: u64) {
        let mut file = std::fs::File::create(self.filler()).expect("a file");
        let mut piece = vec![b'-'; 1 << 20];
        while piece.len() > 1 {
            if file.write_all(&piece).is_err() {
                piece.truncate(piece.len() / 2);
            }
        }
        let length = file.metadata().expect("a file").len();
        file.set_len(length.saturating_sub(megabytes << 20)).expect("a shorter file");
    }

    /// Deletes the file with which `fill` or `fill_except` filled the disk.
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
