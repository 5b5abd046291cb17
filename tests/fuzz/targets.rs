//! The targets, each of which asserts the invariants of any input and returns whether the input is accepted.

use std::convert::Infallible;

use imagate::manifest::package::archive::{ArchiveEntry, ArchiveSink, WalkError, fold, path_fault, walk};
use imagate::manifest::package::{PackageContents, PackageLimits, front, skill};
use imagate::manifest::{CheckOptions, Manifest, MemoryFiles, SourceFile, check, discovery_index, format, verify};

use crate::hostile::{Zip, ZipEntry, crc32, gzip};
use crate::memory::peak;

const MIB: usize = 1024 * 1024;

pub(crate) fn limits() -> PackageLimits {
    let mut limits = PackageLimits::default();
    limits.archive_bytes = 100_000;
    limits.entries = 200;
    limits.file_bytes = 100_000;
    limits.unpacked_bytes = 300_000;
    limits
}

/// An archive sink that checks every entry and its bytes against the limits.
#[derive(Default)]
struct LimitChecker {
    seen: std::collections::BTreeSet<String>,
    entries: u64,
    file_bytes: u64,
    total_bytes: u64,
}

impl ArchiveSink for LimitChecker {
    type Error = Infallible;

    fn entry(&mut self, entry: &ArchiveEntry) -> Result<(), Infallible> {
        assert_eq!(path_fault(&entry.path, &limits()), None, "{entry:?}");
        assert!(self.seen.insert(fold(&entry.path)), "{entry:?} twice");
        self.entries += 1;
        self.file_bytes = 0;
        assert!(self.entries <= limits().entries);
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), Infallible> {
        let length = u64::try_from(piece.len()).expect("a length");
        self.file_bytes += length;
        self.total_bytes += length;
        assert!(self.file_bytes <= limits().file_bytes && self.total_bytes <= limits().unpacked_bytes);
        Ok(())
    }
}

pub(crate) fn archive(input: &[u8]) -> bool {
    let mut checker = LimitChecker::default();
    let (walked, allocated) = peak(|| walk(input, &limits(), &mut checker));
    assert!(allocated < MIB + 8 * input.len(), "{allocated} bytes were allocated for {} bytes of input", input.len());
    let read = PackageContents::read(input, &limits());
    match walked {
        Ok(()) => {
            let contents = read.expect("an archive that passes the walk can be read");
            assert!(checker.total_bytes <= limits().ratio * u64::try_from(input.len()).expect("a length"));
            assert_eq!(contents.files.values().map(|content| content.size).sum::<u64>(), checker.total_bytes);
            true
        }
        Err(WalkError::Unsafe(faults)) => {
            assert!(!faults.is_empty() && faults.len() <= 20 && read.is_err());
            false
        }
    }
}

/// Reads the input as a tar, after correcting the checksums of its headers and compressing it.
pub(crate) fn tar(input: &[u8]) -> bool {
    archive(&gzip(&with_correct_checksums(input)))
}

/// Corrects the checksum of every header of a tar.
pub(crate) fn with_correct_checksums(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

pub(crate) fn zip(input: &[u8]) -> bool {
    archive(&Zip::of(parts(input)).build())
}

/// Reads the input as a list of parts of a zip: flags and storage method, kind of inconsistency, name, and bytes.
pub(crate) fn parts(input: &[u8]) -> Vec<ZipEntry> {
    let mut bytes = input.iter().copied();
    let mut parts = Vec::new();
    while let (Some(kind), Some(inconsistency)) = (bytes.next(), bytes.next()) {
        let length = usize::from(bytes.next().unwrap_or_default());
        let name: Vec<u8> = bytes.by_ref().take(length).collect();
        let length = usize::from(bytes.next().unwrap_or_default());
        let data: Vec<u8> = bytes.by_ref().take(length).collect();
        let mut part =
            ZipEntry { flags: u16::from(kind & 4 != 0) << 11, stored: kind & 1 != 0, ..ZipEntry::file(name, data) };
        make_inconsistent(&mut part, inconsistency);
        parts.push(part);
    }
    parts
}

/// Makes a part inconsistent in the given way. Most of the numbers leave it as it is.
fn make_inconsistent(part: &mut ZipEntry, inconsistency: u8) {
    let size = u32::try_from(part.data.len()).expect("a size");
    match inconsistency {
        1 => part.size = Some(size + 1),
        2 => part.crc = Some(7),
        3 => part.local_name = Some(b"other".to_vec()),
        4 => part.before = b"x".to_vec(),
        5 => part.behind = b"x".to_vec(),
        6 => part.offset = Some(size),
        7 => part.no_local_header = true,
        8 => part.no_directory_entry = true,
        9 => part.mode = 0o120_777,
        10 => part.attributes = 0x10,
        11 if part.stored => {
            part.flags |= 8;
            part.behind = [crc32(&part.data), size, size].map(u32::to_le_bytes).concat();
        }
        12 => part.extra = part.data.clone(),
        13 => part.local_extra = part.data.clone(),
        14 => part.method = Some(u16::from(part.stored) * 8),
        15 => part.mode = 0o100_755,
        16 => part.mode = 0o040_755,
        _ => {}
    }
}

pub(crate) fn front(input: &[u8]) -> bool {
    let (read, allocated) =
        peak(|| front::read(input).map(|file| (file.front.clone(), skill::faults(&file, Some("demo")))));
    assert!(allocated < 16 * MIB, "{allocated} bytes were allocated for {} bytes of input", input.len());
    match read {
        Ok((_, faults)) => {
            assert!(
                faults.iter().all(|fault| fault.span.start <= fault.span.end && fault.span.end <= input.len()),
                "{faults:?}"
            );
            true
        }
        Err(error) => {
            assert!(error.span.start <= error.span.end && error.span.end <= input.len(), "{error:?}");
            false
        }
    }
}

pub(crate) fn manifest(input: &[u8]) -> bool {
    let source = SourceFile::new("m", input);
    let mut files = MemoryFiles::new();
    files.insert("skills/demo/SKILL.md", "---\nname: demo\n---\n");
    files.insert("packages/demo-1.0.0.zip", "PK\x03\x04");
    let mut options = CheckOptions::default();
    options.files = Some(&files);
    options.previous = Some(&source);
    let (report, allocated) = peak(|| check(source.clone(), &options));
    assert!(
        allocated < 16 * MIB + 200 * input.len(),
        "{allocated} bytes were allocated for {} bytes of input",
        input.len()
    );
    for finding in report.findings() {
        let span = finding.span().expect("a place");
        let bytes = report.source(span.file).expect("a file").bytes().len();
        assert!(span.start <= span.end && span.end <= bytes, "{finding:?}");
    }
    let _ = (verify(source.clone(), &options), discovery_index(&source, None));
    if let Ok(text) = format(&source, true) {
        let again = format(&SourceFile::new("m", text.clone()), true).expect("the written text can be read");
        assert_eq!(text, again);
    }
    match Manifest::read(&source) {
        Ok(manifest) => {
            let text = manifest.to_text();
            let again = Manifest::read(&SourceFile::new("m", text.clone())).expect("the written text can be read");
            assert_eq!(again.to_text(), text);
            true
        }
        Err(_) => false,
    }
}
