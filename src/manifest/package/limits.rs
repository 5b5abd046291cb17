//! How large a package may be. Decides the numbers; refuses to know how they are counted.
//!
//! The defaults are those of the large public registry that states any, so that what passes here passes there.

const MIB: u64 = 1024 * 1024;

/// The limits that an archive is read under.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the archive itself.
    pub archive_bytes: u64,
    /// Files and folders in it.
    pub entries: u64,
    /// Bytes of one file, unpacked.
    pub file_bytes: u64,
    /// Bytes of all files, unpacked.
    pub unpacked_bytes: u64,
    /// How many times larger the files may be than the archive.
    pub ratio: u64,
    /// Names on the way from the root to a file, its own included.
    pub depth: usize,
    /// Bytes of one path.
    pub path_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            archive_bytes: 10 * MIB,
            entries: 10_000,
            file_bytes: 100 * MIB,
            unpacked_bytes: 500 * MIB,
            ratio: 100,
            depth: 8,
            path_bytes: 512,
        }
    }
}
