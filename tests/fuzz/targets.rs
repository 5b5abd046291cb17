//! What must hold of any input.

use std::convert::Infallible;

use imagate::manifest::package::archive::{ArchiveEntry, ArchiveSink, WalkError, fold, path_fault, walk};
use imagate::manifest::package::{PackageContents, PackageLimits, front, skill};
use imagate::manifest::{CheckOptions, Manifest, MemoryFiles, SourceFile, check, discovery, format, verify};

use crate::hostile::{Part, Zip, crc32, gzip};
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

/// Counts what comes, and holds it against what may come.
#[derive(Default)]
struct Watch {
    seen: std::collections::BTreeSet<String>,
    entries: u64,
    file: u64,
    all: u64,
}

impl ArchiveSink for Watch {
    type Error = Infallible;

    fn entry(&mut self, entry: &ArchiveEntry) -> Result<(), Infallible> {
        assert_eq!(path_fault(&entry.path, &limits()), None, "{entry:?}");
        assert!(self.seen.insert(fold(&entry.path)), "{entry:?} twice");
        self.entries += 1;
        self.file = 0;
        assert!(self.entries <= limits().entries);
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), Infallible> {
        let length = u64::try_from(piece.len()).expect("a length");
        self.file += length;
        self.all += length;
        assert!(self.file <= limits().file_bytes && self.all <= limits().unpacked_bytes);
        Ok(())
    }
}

pub(crate) fn archive(input: &[u8]) -> bool {
    let mut watch = Watch::default();
    let (walked, held) = peak(|| walk(input, &limits(), &mut watch));
    assert!(held < MIB + 8 * input.len(), "{held} bytes were held for {} bytes of input", input.len());
    let read = PackageContents::read(input, &limits());
    match walked {
        Ok(()) => {
            let contents = read.expect("what is safe once is safe again");
            assert!(watch.all <= limits().ratio * u64::try_from(input.len()).expect("a length"));
            assert_eq!(contents.files.values().map(|content| content.size).sum::<u64>(), watch.all);
            true
        }
        Err(WalkError::Unsafe(faults)) => {
            assert!(!faults.is_empty() && faults.len() <= 20 && read.is_err());
            false
        }
    }
}

/// Takes the input for a tar, makes the checksums of its headers right, and packs it.
pub(crate) fn tar(input: &[u8]) -> bool {
    archive(&gzip(&with_sums(input)))
}

/// A tar in which the checksum of every header is right.
pub(crate) fn with_sums(input: &[u8]) -> Vec<u8> {
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

/// Takes the input for a list of what to put into a zip: how to lie, how it is stored, its name, its bytes.
pub(crate) fn parts(input: &[u8]) -> Vec<Part> {
    let mut rest = input.iter().copied();
    let mut parts = Vec::new();
    while let (Some(kind), Some(lie)) = (rest.next(), rest.next()) {
        let length = usize::from(rest.next().unwrap_or_default());
        let name: Vec<u8> = rest.by_ref().take(length).collect();
        let length = usize::from(rest.next().unwrap_or_default());
        let data: Vec<u8> = rest.by_ref().take(length).collect();
        let mut part = Part { flags: u16::from(kind & 4 != 0) << 11, stored: kind & 1 != 0, ..Part::file(name, data) };
        lies(&mut part, lie);
        parts.push(part);
    }
    parts
}

/// Half of the parts are honest.
fn lies(part: &mut Part, lie: u8) {
    let size = u32::try_from(part.data.len()).expect("a size");
    match lie {
        1 => part.size = Some(size + 1),
        2 => part.crc = Some(7),
        3 => part.local_name = Some(b"other".to_vec()),
        4 => part.before = b"x".to_vec(),
        5 => part.behind = b"x".to_vec(),
        6 => part.offset = Some(size),
        7 => part.no_local = true,
        8 => part.no_record = true,
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
    let (read, held) = peak(|| front::read(input).map(|file| (file.front.clone(), skill::faults(&file, Some("demo")))));
    assert!(held < 16 * MIB, "{held} bytes were held for {} bytes of input", input.len());
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
    let (report, held) = peak(|| check(source.clone(), &options));
    assert!(held < 16 * MIB + 200 * input.len(), "{held} bytes were held for {} bytes of input", input.len());
    for finding in report.findings() {
        let span = finding.span().expect("a place");
        let bytes = report.source(span.file).expect("a file").bytes().len();
        assert!(span.start <= span.end && span.end <= bytes, "{finding:?}");
    }
    let _ = (verify(source.clone(), &options), discovery(&source, None));
    if let Ok(text) = format(&source, true) {
        let again = format(&SourceFile::new("m", text.clone()), true).expect("what was written can be read");
        assert_eq!(text, again);
    }
    match Manifest::read(&source) {
        Ok(manifest) => {
            let text = manifest.to_text();
            let again = Manifest::read(&SourceFile::new("m", text.clone())).expect("what was written can be read");
            assert_eq!(again.to_text(), text);
            true
        }
        Err(_) => false,
    }
}
