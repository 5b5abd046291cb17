//! The maximum sizes of a package. The module decides the numbers, and must not know how they are counted.
//!
//! The defaults are the limits that a large public registry publishes, so a package that passes here passes there.

const MIB: u64 = 1024 * 1024;

/// The limits for reading an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackageLimits {
    /// The maximum size of the archive, in bytes.
    pub archive_bytes: u64,
    /// The maximum number of files and folders.
    pub entries: u64,
    /// The maximum size of one unpacked file, in bytes.
    pub file_bytes: u64,
    /// The maximum size of all unpacked files, in bytes.
    pub unpacked_bytes: u64,
    /// The maximum ratio of the size of the files to the size of the archive.
    pub ratio: u64,
    /// The maximum number of names in a path, including that of the file.
    pub depth: usize,
    /// The maximum length of a path, in bytes.
    pub path_bytes: usize,
}

impl Default for PackageLimits {
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
