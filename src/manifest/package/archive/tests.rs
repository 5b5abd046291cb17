//! Tests: valid archives give their contents, and all other archives are refused.
#![expect(clippy::cast_possible_truncation, reason = "the archives of the tests are small")]

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;
use crate::manifest::package::hostile::{
    self, TarEntry, Zip, ZipEntry, gzip, pax_records, skill_tar_entry, skill_zip_entry, tar,
};

/// A sink that keeps all entries.
#[derive(Default)]
struct CollectedEntries(Vec<(ArchiveEntry, Vec<u8>)>);

impl ArchiveSink for CollectedEntries {
    type Error = Infallible;

    fn entry(&mut self, entry: &ArchiveEntry) -> Result<(), Infallible> {
        self.0.push((entry.clone(), Vec::new()));
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> Result<(), Infallible> {
        assert!(!piece.is_empty() && piece.len() <= 10 * 1024 * 1024);
        self.0.last_mut().expect("an entry comes first").1.extend_from_slice(piece);
        Ok(())
    }
}

fn faults(bytes: &[u8], limits: &PackageLimits) -> Vec<ArchiveFault> {
    let mut sink = CollectedEntries::default();
    let faults = match walk(bytes, limits, &mut sink) {
        Ok(()) => Vec::new(),
        Err(WalkError::Unsafe(faults)) => faults,
    };
    for (entry, contents) in &sink.0 {
        assert_eq!(path_fault(&entry.path, limits), None, "{entry:?}");
        assert!(contents.len() as u64 <= limits.file_bytes);
    }
    faults
}

fn files(bytes: &[u8]) -> BTreeMap<String, (bool, Vec<u8>)> {
    let mut sink = CollectedEntries::default();
    walk(bytes, &PackageLimits::default(), &mut sink).expect("a good archive");
    sink.0
        .into_iter()
        .filter(|(entry, _)| !entry.folder)
        .map(|(entry, bytes)| (entry.path, (entry.executable, bytes)))
        .collect()
}

#[test]
fn no_hostile_archive_is_accepted() {
    let archives = hostile::archives();
    assert!(archives.len() >= 200, "{}", archives.len());
    let limits = PackageLimits::default();
    let accepted: Vec<&str> = archives
        .iter()
        .filter(|archive| faults(&archive.bytes, &limits).is_empty())
        .map(|archive| archive.name.as_str())
        .collect();
    assert_eq!(accepted, Vec::<&str>::new());
}

#[test]
fn a_zip_gives_its_contents() {
    let streamed = {
        let mut part = ZipEntry::file("streamed.md", "streamed");
        let body = miniz_oxide::deflate::compress_to_vec(&part.data, 6);
        part.flags = 8;
        part.behind =
            [hostile::crc32(&part.data), body.len() as u32, part.data.len() as u32].map(u32::to_le_bytes).concat();
        part
    };
    let folder = ZipEntry { mode: 0o040_755, stored: true, ..ZipEntry::file("scripts/", "") };
    let script = ZipEntry { mode: 0o100_755, stored: true, ..ZipEntry::file("scripts/run.sh", "#!/bin/sh\n") };
    let unicode = ZipEntry { flags: 0x0800, ..ZipEntry::file("grüße.md", "x".repeat(100)) };
    let times = ZipEntry {
        extra: vec![0x55, 0x54, 1, 0, 0],
        local_extra: vec![0x55, 0x54, 1, 0, 1],
        ..ZipEntry::file("t", "t")
    };
    let mut zip =
        Zip::of(vec![skill_zip_entry(), folder, script, streamed, unicode, times, ZipEntry::file("empty", "")]);
    zip.comment = b"0123456789abcdef".to_vec();
    let read = files(&zip.build());
    assert_eq!(read["scripts/run.sh"], (true, b"#!/bin/sh\n".to_vec()));
    assert_eq!(read["SKILL.md"], (false, hostile::SKILL.as_bytes().to_vec()));
    assert_eq!(read["streamed.md"].1, b"streamed");
    assert_eq!(read["grüße.md"].1.len(), 100);
    assert_eq!(read.len(), 6);
    assert_eq!(files(&Zip::default().build()).len(), 0);
}

#[test]
fn a_data_descriptor_may_have_a_signature() {
    let mut part = ZipEntry::file("streamed.md", "streamed ".repeat(9));
    let body = miniz_oxide::deflate::compress_to_vec(&part.data, 6);
    let numbers =
        [hostile::crc32(&part.data), body.len() as u32, part.data.len() as u32].map(u32::to_le_bytes).concat();
    part.flags = 8;
    part.behind = [b"PK\x07\x08".to_vec(), numbers].concat();
    assert_eq!(files(&Zip::of(vec![part, skill_zip_entry()]).build()).len(), 2);
}

#[test]
fn a_tar_gives_its_contents() {
    let mut script = TarEntry::file("./scripts/run.sh", "#!/bin/sh\n");
    script.mode = 0o755;
    let long = format!("{}/{}.md", "folder".repeat(10), "name".repeat(20));
    let mut split = TarEntry::file("split.md", "y");
    split.prefix = b"docs".to_vec();
    let members = [
        TarEntry::new(b'g', "pax_global_header", pax_records(&[("comment", "0123456789abcdef")])),
        TarEntry::new(b'5', "./", ""),
        TarEntry::new(b'5', "./scripts/", ""),
        script,
        TarEntry::new(b'x', "x", pax_records(&[("mtime", "1700000000.5"), ("path", &long)])),
        TarEntry::file("cut off", "z".repeat(40_000)),
        TarEntry::new(b'L', "././@LongLink", "gnu/long.md\0"),
        TarEntry::file("cut", ""),
        split,
        skill_tar_entry(),
    ];
    let read = files(&gzip(&tar(&members)));
    assert_eq!(read["scripts/run.sh"], (true, b"#!/bin/sh\n".to_vec()));
    assert_eq!(read[&long].1.len(), 40_000);
    assert_eq!(read["gnu/long.md"].1, b"");
    assert_eq!(read["docs/split.md"].1, b"y");
    assert_eq!(read["SKILL.md"].1, hostile::SKILL.as_bytes());
    assert_eq!(read.len(), 5);
}

#[test]
fn every_limit_is_exact_in_both_formats() {
    let data = "0123456789abcdefghij";
    let with_limit = |change: fn(&mut PackageLimits)| {
        let mut limits = PackageLimits { ratio: 1_000_000, ..PackageLimits::default() };
        change(&mut limits);
        limits
    };
    for bytes in [
        Zip::of(vec![ZipEntry::file("a/b", data), ZipEntry::file("c", data)]).build(),
        gzip(&tar(&[TarEntry::file("a/b", data), TarEntry::file("c", data)])),
    ] {
        let is_accepted = |limits: &PackageLimits| faults(&bytes, limits).is_empty();
        let exceeds_limit = |limits: &PackageLimits| {
            faults(&bytes, limits).iter().all(|fault| fault.kind == ArchiveFaultKind::Limit) && !is_accepted(limits)
        };
        assert!(
            is_accepted(&with_limit(|limits| limits.entries = 2))
                && exceeds_limit(&with_limit(|limits| limits.entries = 1))
        );
        assert!(
            is_accepted(&with_limit(|limits| limits.file_bytes = 20))
                && exceeds_limit(&with_limit(|limits| limits.file_bytes = 19))
        );
        assert!(
            is_accepted(&with_limit(|limits| limits.unpacked_bytes = 40))
                && exceeds_limit(&with_limit(|limits| limits.unpacked_bytes = 39))
        );
        assert!(
            is_accepted(&with_limit(|limits| limits.depth = 2))
                && exceeds_limit(&with_limit(|limits| limits.depth = 1))
        );
        assert!(
            is_accepted(&with_limit(|limits| limits.path_bytes = 3))
                && exceeds_limit(&with_limit(|limits| limits.path_bytes = 2))
        );
        let size = bytes.len() as u64;
        assert!(is_accepted(&PackageLimits { archive_bytes: size, ..PackageLimits::default() }));
        assert!(exceeds_limit(&PackageLimits { archive_bytes: size - 1, ..PackageLimits::default() }));
    }
}

/// The entries of a zip must follow each other without gap or overlap from the first byte to the directory. If they do
/// not, this is the only fault that is reported, whatever else is wrong with the zip.
#[test]
fn a_wrong_offset_in_the_directory_is_reported_as_ambiguous() {
    let whole = Zip::of(vec![skill_zip_entry(), ZipEntry::file("x", "x")]).build();
    let directory = whole.windows(4).position(|mark| mark == b"PK\x01\x02").expect("a directory") as u32;
    let second = ZipEntry { offset: Some(directory + 1), ..ZipEntry::file("x", "x") };
    for (zip, name) in [
        // The directory states offset 1, so only a reader of local headers finds the file, which begins at offset 0.
        (Zip::of(vec![ZipEntry { offset: Some(1), ..skill_zip_entry() }]), "SKILL.md"),
        // The directory states an offset inside itself for the second file, so the first would end there as well.
        (Zip::of(vec![skill_zip_entry(), second]), "SKILL.md"),
    ] {
        let found = faults(&zip.build(), &PackageLimits::default());
        let [ArchiveFault { kind: ArchiveFaultKind::Ambiguous, entry: Some(entry), message }] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(entry == name && message.contains("does not begin where the previous entry ends"), "{found:?}");
    }
}

#[test]
fn an_error_of_the_sink_ends_the_walk() {
    struct Full;
    impl ArchiveSink for Full {
        type Error = &'static str;
        fn entry(&mut self, _: &ArchiveEntry) -> Result<(), Self::Error> {
            Ok(())
        }
        fn data(&mut self, _: &[u8]) -> Result<(), Self::Error> {
            Err("the disk is full")
        }
    }
    for bytes in [Zip::of(vec![skill_zip_entry()]).build(), gzip(&tar(&[skill_tar_entry()]))] {
        assert!(matches!(walk(&bytes, &PackageLimits::default(), &mut Full), Err(WalkError::Sink("the disk is full"))));
    }
}

#[test]
fn the_number_of_reported_faults_is_limited() {
    let parts = (0..5000).map(|number| ZipEntry::file(format!("../{number}"), "x")).collect();
    let found = faults(&Zip::of(parts).build(), &PackageLimits::default());
    assert!((2..=20).contains(&found.len()), "{}", found.len());
}
