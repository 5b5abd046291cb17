//! Builds a package: a zip whose bytes depend only on its files and the time stamp.
//!
//! Names are sorted by their bytes, all times are one fixed stamp, and permissions follow from the contents: a file
//! that begins with `#!` is executable. Nothing depends on the machine, so a checkout on Windows gives the same
//! package. This module chooses the deflate implementation, so that no features of other crates change it.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike as _, Timelike as _};
use miniz_oxide::deflate::compress_to_vec;

use super::PackageLimits;
use super::archive::{Crc32, PathFault, path_fault};

/// The best compression level. Another level would change the bytes of existing packages.
const LEVEL: u8 = 9;
/// Version 2.0: folders and deflate.
const VERSION: u16 = 20;
/// Unix, so that programs read the permissions.
const MADE_BY: u16 = (3 << 8) | VERSION;
/// The flag for a name in UTF-8.
const UTF8: u16 = 0x0800;

/// The time stamp of all files of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZipTimestamp {
    date: u16,
    time: u16,
}

impl Default for ZipTimestamp {
    /// Returns 1980-01-01, the first date that a zip can state.
    fn default() -> Self {
        Self { date: (1 << 5) | 1, time: 0 }
    }
}

impl ZipTimestamp {
    /// Converts seconds since 1970 in UTC, as in `SOURCE_DATE_EPOCH`. A time outside of the years that a zip can state
    /// (1980 to 2107) becomes 1980-01-01.
    #[must_use]
    pub fn from_epoch(seconds: i64) -> Self {
        const YEARS: std::ops::RangeInclusive<i32> = 1980..=2107;
        let Some(at) = DateTime::from_timestamp(seconds, 0).filter(|at| YEARS.contains(&at.year())) else {
            return Self::default();
        };
        let word = |value: u32| u16::try_from(value).unwrap_or_default();
        let years = u16::try_from(at.year() - YEARS.start()).unwrap_or_default();
        Self {
            date: (years << 9) | (word(at.month()) << 5) | word(at.day()),
            time: (word(at.hour()) << 11) | (word(at.minute()) << 5) | (word(at.second()) / 2),
        }
    }
}

/// The reason why files cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A path is not valid on all systems or exceeds a limit, or its file is too large.
    #[error("`{path}` {why}")]
    Path {
        /// The path inside the package.
        path: String,
        /// The problem of the path.
        why: &'static str,
    },
    /// The package is too large or has too many files.
    #[error("the package {0}")]
    TooLarge(String),
}

/// Builds a package from files: paths inside it, with their contents.
///
/// # Errors
///
/// Returns an error if a path is not valid on all systems, or if a limit is exceeded.
pub fn pack(
    files: &BTreeMap<String, Vec<u8>>,
    stamp: ZipTimestamp,
    limits: &PackageLimits,
) -> Result<Vec<u8>, PackError> {
    if files.len() as u64 > limits.entries.min(u64::from(u16::MAX) - 1) {
        return Err(PackError::TooLarge(format!("has more than {} files", limits.entries)));
    }
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    for (path, contents) in files {
        if let Some(PathFault::Unsafe(why) | PathFault::TooLarge(why)) = path_fault(path, limits) {
            return Err(PackError::Path { path: path.clone(), why });
        }
        if contents.len() as u64 > limits.file_bytes {
            let why = "is larger than a file of a package may be";
            return Err(PackError::Path { path: path.clone(), why });
        }
        let offset = as_u32(archive.len())?;
        let header = ZipEntry::new(path, contents, stamp)?;
        header.write_local_header(&mut archive);
        archive.extend_from_slice(&header.body);
        header.write_directory_record(&mut directory, offset);
        if (archive.len() + directory.len()) as u64 > limits.archive_bytes {
            return Err(PackError::TooLarge(format!("is larger than {} bytes", limits.archive_bytes)));
        }
    }
    write_end_record(&mut archive, &directory, files.len())?;
    Ok(archive)
}

struct ZipEntry<'a> {
    path: &'a str,
    stamp: ZipTimestamp,
    crc: u32,
    size: u32,
    method: u16,
    body: Vec<u8>,
    mode: u32,
}

impl<'a> ZipEntry<'a> {
    fn new(path: &'a str, contents: &[u8], stamp: ZipTimestamp) -> Result<Self, PackError> {
        let deflated = compress_to_vec(contents, LEVEL);
        let (method, body) = if deflated.len() < contents.len() { (8, deflated) } else { (0, contents.to_vec()) };
        let mode = if contents.starts_with(b"#!") { 0o100_755 } else { 0o100_644 };
        Ok(Self { path, stamp, crc: Crc32::checksum(contents), size: as_u32(contents.len())?, method, body, mode })
    }

    /// Writes the fields that the local header and the directory share: from the version needed to the length of the
    /// extra field.
    fn write_common_fields(&self, out: &mut Vec<u8>) {
        let flags = if self.path.is_ascii() { 0 } else { UTF8 };
        for word in [VERSION, flags, self.method, self.stamp.time, self.stamp.date] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let packed = u32::try_from(self.body.len()).unwrap_or(u32::MAX);
        for long in [self.crc, packed, self.size] {
            out.extend_from_slice(&long.to_le_bytes());
        }
        let name = u16::try_from(self.path.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&name.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
    }

    fn write_local_header(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PK\x03\x04");
        self.write_common_fields(out);
        out.extend_from_slice(self.path.as_bytes());
    }

    fn write_directory_record(&self, out: &mut Vec<u8>, offset: u32) {
        out.extend_from_slice(b"PK\x01\x02");
        out.extend_from_slice(&MADE_BY.to_le_bytes());
        self.write_common_fields(out);
        // No comment, disk 0, and no text flag.
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&(self.mode << 16).to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(self.path.as_bytes());
    }
}

fn write_end_record(archive: &mut Vec<u8>, directory: &[u8], count: usize) -> Result<(), PackError> {
    let start = as_u32(archive.len())?;
    let count = u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes();
    archive.extend_from_slice(directory);
    archive.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    archive.extend_from_slice(&count);
    archive.extend_from_slice(&count);
    archive.extend_from_slice(&as_u32(directory.len())?.to_le_bytes());
    archive.extend_from_slice(&start.to_le_bytes());
    archive.extend_from_slice(&[0, 0]);
    Ok(())
}

fn as_u32(count: usize) -> Result<u32, PackError> {
    u32::try_from(count).map_err(|_| PackError::TooLarge("is larger than a zip can be".to_owned()))
}
