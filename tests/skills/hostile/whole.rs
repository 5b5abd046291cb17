//! Files that are too large, truncated, wrapped wrongly, or not an archive.

use super::{TarEntry, Zip, ZipEntry, gzip, pax_records, skill_tar_entry, skill_zip_entry, tar};

pub(super) fn bombs(add: &mut impl FnMut(String, Vec<u8>)) {
    let zeros = vec![0; 512 * 1024];
    add("zip, a bomb".into(), Zip::of(vec![skill_zip_entry(), ZipEntry::file("zeros", &zeros)]).build());
    let mut understated = ZipEntry::file("zeros", &zeros);
    understated.size = Some(10);
    add("zip, a bomb with a false size".into(), Zip::of(vec![skill_zip_entry(), understated]).build());
    add("tar, a bomb".into(), gzip(&tar(&[skill_tar_entry(), TarEntry::file("zeros", &zeros)])));
    add("tar, a bomb after the end".into(), gzip(&[tar(&[skill_tar_entry()]), zeros.clone()].concat()));
    let records: Vec<TarEntry> =
        (0..4000).map(|_| TarEntry::new(b'g', "x", pax_records(&[("comment", "x")]))).collect();
    add("tar, thousands of records".into(), gzip(&tar(&records)));
    let names = |count: usize| (0..count).map(|number| format!("f{number}"));
    add("zip, too many entries".into(), Zip::of(names(10_001).map(|name| ZipEntry::file(name, "")).collect()).build());
    let members: Vec<TarEntry> = names(10_001).map(|name| TarEntry::file(name, "")).collect();
    add("tar, too many entries".into(), gzip(&tar(&members)));
    add("an archive that is too large".into(), {
        let mut part = ZipEntry::file("zeros", vec![0; 11 * 1024 * 1024]);
        part.stored = true;
        part.crc = Some(0);
        Zip::of(vec![skill_zip_entry(), part]).build()
    });
}

pub(super) fn damaged_files(add: &mut impl FnMut(String, Vec<u8>)) {
    let zip = Zip::of(vec![skill_zip_entry()]).build();
    let plain = tar(&[skill_tar_entry()]);
    let good = gzip(&plain);
    for cut in [1, 4, 10, 22, 30, zip.len() / 2, zip.len() - 1] {
        add(format!("zip, the first {cut} bytes"), zip[..cut].to_vec());
    }
    for cut in [2, 9, 10, 18, good.len() / 2, good.len() - 8, good.len() - 1] {
        add(format!("tar, the first {cut} bytes"), good[..cut].to_vec());
    }
    for length in [512, 1024, 1536] {
        add(format!("tar, truncated to {length} bytes"), gzip(&plain[..length.min(plain.len() - 1024)]));
    }
    add("tar, with one empty block at the end".into(), gzip(&plain[..plain.len() - 512]));
    add("tar, two gzip members".into(), [good.clone(), good.clone()].concat());
    add("tar, bytes after the gzip stream".into(), [good.clone(), b"hidden".to_vec()].concat());
    add("tar, bytes after the end of the tar".into(), gzip(&[plain.clone(), b"hidden".to_vec()].concat()));
    add("tar, a wrong gzip checksum".into(), {
        let mut bytes = good.clone();
        let at = bytes.len() - 8;
        bytes[at] ^= 1;
        bytes
    });
    add("tar, a wrong gzip length".into(), {
        let mut bytes = good.clone();
        let at = bytes.len() - 1;
        bytes[at] ^= 1;
        bytes
    });
    for flags in [0x20, 0x40, 0x80, 0xff] {
        let mut bytes = good.clone();
        bytes[3] = flags;
        add(format!("tar, gzip flags {flags:#x}"), bytes);
    }
    add("nothing".into(), Vec::new());
    add("a script".into(), b"#!/bin/sh\necho hello\n".to_vec());
    add("a tar that is not compressed".into(), plain);
    add("a gzip of a zip".into(), gzip(&zip));
    add("bzip2".into(), b"BZh91AY&SY".to_vec());
    add("xz".into(), b"\xfd7zXZ\0".to_vec());
    add("7z".into(), b"7z\xbc\xaf\x27\x1c".to_vec());
    add("rar".into(), b"Rar!\x1a\x07\x01\0".to_vec());
    add("an empty gzip".into(), gzip(b""));
}
