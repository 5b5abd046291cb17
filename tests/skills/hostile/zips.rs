//! Zip archives with false metadata: of an entry, of the whole archive, and of the type of an entry.

use miniz_oxide::deflate::compress_to_vec;

use super::{Zip, ZipEntry, crc32, skill_zip_entry};

type NamedZip = (&'static str, Zip);

/// A valid zip with one changed entry.
fn with_changed_entry(change: fn(&mut ZipEntry)) -> Zip {
    let mut part = ZipEntry::file("notes.md", "notes ".repeat(20));
    change(&mut part);
    Zip::of(vec![skill_zip_entry(), part])
}

/// A valid zip with a change to the archive itself.
fn with_changed_archive(change: fn(&mut Zip)) -> Zip {
    let mut zip = Zip::of(vec![skill_zip_entry(), ZipEntry::file("notes.md", "notes ".repeat(20))]);
    change(&mut zip);
    zip
}

pub(super) fn malformed() -> Vec<NamedZip> {
    [header_faults(), entry_faults(), data_faults(), archive_faults()].concat()
}

fn header_faults() -> Vec<NamedZip> {
    vec![
        (
            "another name in the local header",
            with_changed_entry(|part| part.local_name = Some(b"../escape.txt".to_vec())),
        ),
        ("a shorter name in the local header", with_changed_entry(|part| part.local_name = Some(b"notes".to_vec()))),
        ("another size in the local header", with_changed_entry(|part| part.local_size = Some(1))),
        ("another checksum in the local header", with_changed_entry(|part| part.local_crc = Some(1))),
        ("other flags in the local header", with_changed_entry(|part| part.local_flags = Some(0x0800))),
        ("another method in the local header", with_changed_entry(|part| part.local_method = Some(0))),
        ("encrypted", with_changed_entry(|part| part.flags = 1)),
        ("encrypted strongly", with_changed_entry(|part| part.flags = 0x41)),
        ("masked headers", with_changed_entry(|part| part.flags = 0x2001)),
        ("encrypted by an extra field", with_changed_entry(|part| part.extra = vec![0x01, 0x99, 2, 0, 1, 0])),
        ("bzip2", with_changed_entry(|part| part.method = Some(12))),
        ("lzma", with_changed_entry(|part| part.method = Some(14))),
        ("zstd", with_changed_entry(|part| part.method = Some(93))),
        ("shrunk", with_changed_entry(|part| part.method = Some(1))),
        ("deflate64", with_changed_entry(|part| part.method = Some(9))),
        ("a size too small", with_changed_entry(|part| part.size = Some(3))),
        ("a size too large", with_changed_entry(|part| part.size = Some(1_000_000))),
        ("a compressed size too small", with_changed_entry(|part| part.compressed_size = Some(3))),
        ("a compressed size too large", with_changed_entry(|part| part.compressed_size = Some(100_000))),
        ("a compressed size of four gigabytes", with_changed_entry(|part| part.compressed_size = Some(u32::MAX - 1))),
        ("a wrong checksum", with_changed_entry(|part| part.crc = Some(7))),
        ("sizes in zip64", with_changed_entry(|part| part.size = Some(u32::MAX))),
        ("an offset in zip64", with_changed_entry(|part| part.offset = Some(u32::MAX))),
        ("an extra field of zip64", with_changed_entry(|part| part.extra = vec![1, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0])),
        (
            "an extra field of zip64 in the local header",
            with_changed_entry(|part| part.local_extra = vec![1, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("a truncated extra field", with_changed_entry(|part| part.extra = vec![1, 2, 200, 0])),
        ("an extra field of three bytes", with_changed_entry(|part| part.extra = vec![1, 2, 3])),
        (
            "a second name in an extra field",
            with_changed_entry(|part| part.extra = b"\x75\x70\x0b\x00\x01\0\0\0\0../esc".to_vec()),
        ),
        ("another disk", with_changed_entry(|part| part.disk = 1)),
        ("bytes before a file", with_changed_entry(|part| part.before = b"hidden".to_vec())),
        ("bytes after a file", with_changed_entry(|part| part.behind = b"hidden".to_vec())),
        ("a data descriptor without its flag", with_changed_entry(|part| part.behind = vec![0; 16])),
        (
            "a data descriptor with false values",
            with_changed_entry(|part| {
                part.flags = 8;
                part.behind = b"PK\x07\x08\x01\0\0\0\x02\0\0\0\x03\0\0\0".to_vec();
            }),
        ),
        ("a flag without its data descriptor", with_changed_entry(|part| part.flags = 8)),
    ]
}

fn entry_faults() -> Vec<NamedZip> {
    vec![
        (
            "a data descriptor of zip64",
            with_changed_entry(|part| {
                part.flags = 8;
                part.behind = vec![0; 24];
            }),
        ),
        ("the same bytes for two files", with_changed_entry(|part| part.offset = Some(0))),
        ("an offset after the end", with_changed_entry(|part| part.offset = Some(1_000_000))),
        ("an offset inside another file", with_changed_entry(|part| part.offset = Some(12))),
        ("an entry only in the central directory", with_changed_entry(|part| part.no_local_header = true)),
        ("a file without an entry in the central directory", with_changed_entry(|part| part.no_directory_entry = true)),
        (
            "a stored file with two sizes",
            with_changed_entry(|part| {
                part.stored = true;
                part.size = Some(4);
            }),
        ),
        ("a folder with contents", with_changed_entry(|part| part.name = b"folder/".to_vec())),
        ("a folder with the name of a file", with_changed_entry(|part| part.mode = 0o040_755)),
        (
            "a file with the name of a folder",
            with_changed_entry(|part| {
                part.name = b"folder/".to_vec();
                part.data = Vec::new();
                part.mode = 0o100_644;
            }),
        ),
        ("a folder by DOS attribute with the name of a file", with_changed_entry(|part| part.attributes = 0x10)),
        ("a volume label", with_changed_entry(|part| part.attributes = 0x08)),
        ("a name that is not UTF-8", with_changed_entry(|part| part.name = b"caf\xe9.md".to_vec())),
        (
            "an invalid name with the UTF-8 flag",
            with_changed_entry(|part| {
                part.flags = 0x0800;
                part.name = b"caf\xe9.md".to_vec();
            }),
        ),
        (
            "a UTF-8 name without the UTF-8 flag",
            with_changed_entry(|part| part.name = "caf\u{e9}.md".as_bytes().to_vec()),
        ),
        ("an empty name", with_changed_entry(|part| part.name = Vec::new())),
        ("a slash as name", with_changed_entry(|part| part.name = b"/".to_vec())),
    ]
}

fn data_faults() -> Vec<NamedZip> {
    vec![
        (
            "an overlong encoding of a slash",
            with_changed_entry(|part| {
                part.flags = 0x0800;
                part.name = b"..\xc0\xafescape.txt".to_vec();
            }),
        ),
        ("a name that is too long", with_changed_entry(|part| part.name = vec![b'a'; 4000])),
        (
            "a damaged deflate stream",
            with_changed_entry(|part| {
                part.stored = true;
                part.method = Some(8);
                part.data = vec![0xff; 64];
            }),
        ),
        (
            "bytes after the deflate stream",
            with_changed_entry(|part| {
                let mut body = compress_to_vec(&part.data, 6);
                body.extend(b"hidden");
                part.crc = Some(crc32(&part.data));
                part.size = Some(part.data.len() as u32);
                part.stored = true;
                part.method = Some(8);
                part.data = body;
            }),
        ),
        (
            "a truncated deflate stream",
            with_changed_entry(|part| {
                let body = compress_to_vec(&part.data, 6);
                part.crc = Some(crc32(&part.data));
                part.size = Some(part.data.len() as u32);
                part.stored = true;
                part.method = Some(8);
                part.data = body[..body.len() / 2].to_vec();
            }),
        ),
    ]
}

fn archive_faults() -> Vec<NamedZip> {
    vec![
        ("bytes before the central directory", with_changed_archive(|zip| zip.before_directory = b"hidden".to_vec())),
        ("bytes after the central directory", with_changed_archive(|zip| zip.before_end = b"hidden".to_vec())),
        ("bytes after the end record", with_changed_archive(|zip| zip.behind = b"hidden".to_vec())),
        (
            "a second end record in the comment",
            with_changed_archive(|zip| zip.comment = Zip::of(vec![ZipEntry::file("other.md", "x")]).build()),
        ),
        (
            "the signature of an end record in the comment",
            with_changed_archive(|zip| zip.comment = b"see PK\x05\x06 there".to_vec()),
        ),
        ("a count too small", with_changed_archive(|zip| zip.count = Some(1))),
        ("a count too large", with_changed_archive(|zip| zip.count = Some(3))),
        ("a count of zip64", with_changed_archive(|zip| zip.count = Some(u16::MAX))),
        ("two different counts", with_changed_archive(|zip| zip.count_on_disk = Some(1))),
        ("a central directory too short", with_changed_archive(|zip| zip.directory_size = Some(10))),
        ("a central directory too long", with_changed_archive(|zip| zip.directory_size = Some(100_000))),
        ("a central directory that begins elsewhere", with_changed_archive(|zip| zip.directory_start = Some(0))),
        ("a central directory after the end", with_changed_archive(|zip| zip.directory_start = Some(u32::MAX - 1))),
        ("several disks", with_changed_archive(|zip| zip.disk = 3)),
        (
            "a locator of zip64",
            with_changed_archive(|zip| {
                zip.before_end = b"PK\x06\x07".to_vec();
                zip.before_end.resize(20, 0);
            }),
        ),
        ("bytes before the archive", with_changed_archive(|zip| zip.entries[0].before = b"#!/bin/sh\n".to_vec())),
    ]
}

pub(super) fn special_files() -> Vec<(String, Zip)> {
    let modes = [
        ("a symbolic link", 0o120_777, "../../escape"),
        ("a symbolic link to an absolute path", 0o120_777, "/etc/passwd"),
        ("a pipe", 0o010_644, ""),
        ("a character device", 0o020_644, ""),
        ("a block device", 0o060_644, ""),
        ("a socket", 0o140_644, ""),
        ("a set-user-id program", 0o104_755, "#!/bin/sh"),
        ("a set-group-id program", 0o102_755, "#!/bin/sh"),
        ("a sticky file", 0o101_755, "#!/bin/sh"),
    ];
    let with_and_without_file = |(name, mode, data): (&str, u32, &str)| {
        let part = ZipEntry { mode, ..ZipEntry::file("link", data) };
        let behind_link = ZipEntry::file("link/escape.txt", "x");
        [
            (name.to_owned(), Zip::of(vec![skill_zip_entry(), part.clone()])),
            (format!("{name}, and a file below it"), Zip::of(vec![skill_zip_entry(), part, behind_link])),
        ]
    };
    modes.into_iter().flat_map(with_and_without_file).collect()
}
