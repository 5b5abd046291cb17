//! Zip archives with false metadata: of an entry, of the whole archive, and of the type of an entry.

use miniz_oxide::deflate::compress_to_vec;

use super::{Part, Zip, crc32, skill_part};

type NamedZip = (&'static str, Zip);

/// A valid zip with one changed entry.
fn with_changed_entry(change: fn(&mut Part)) -> Zip {
    let mut part = Part::file("notes.md", "notes ".repeat(20));
    change(&mut part);
    Zip::of(vec![skill_part(), part])
}

/// A valid zip with a change to the archive itself.
fn with_changed_archive(change: fn(&mut Zip)) -> Zip {
    let mut zip = Zip::of(vec![skill_part(), Part::file("notes.md", "notes ".repeat(20))]);
    change(&mut zip);
    zip
}

pub(super) fn lies() -> Vec<NamedZip> {
    [header_faults(), entry_faults(), data_faults(), archive_faults()].concat()
}

fn header_faults() -> Vec<NamedZip> {
    vec![
        ("another name before the file", with_changed_entry(|part| part.local_name = Some(b"../escape.txt".to_vec()))),
        ("a shorter name before the file", with_changed_entry(|part| part.local_name = Some(b"notes".to_vec()))),
        ("another size before the file", with_changed_entry(|part| part.local_size = Some(1))),
        ("another checksum before the file", with_changed_entry(|part| part.local_crc = Some(1))),
        ("other flags before the file", with_changed_entry(|part| part.local_flags = Some(0x0800))),
        ("another method before the file", with_changed_entry(|part| part.local_method = Some(0))),
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
        ("a packed size too small", with_changed_entry(|part| part.packed = Some(3))),
        ("a packed size too large", with_changed_entry(|part| part.packed = Some(100_000))),
        ("a packed size of four gigabytes", with_changed_entry(|part| part.packed = Some(u32::MAX - 1))),
        ("a wrong checksum", with_changed_entry(|part| part.crc = Some(7))),
        ("sizes in zip64", with_changed_entry(|part| part.size = Some(u32::MAX))),
        ("an offset in zip64", with_changed_entry(|part| part.offset = Some(u32::MAX))),
        ("an extra field of zip64", with_changed_entry(|part| part.extra = vec![1, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0])),
        (
            "an extra field of zip64 before the file",
            with_changed_entry(|part| part.local_extra = vec![1, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("an extra field that is cut off", with_changed_entry(|part| part.extra = vec![1, 2, 200, 0])),
        ("an extra field of three bytes", with_changed_entry(|part| part.extra = vec![1, 2, 3])),
        (
            "a second name in an extra field",
            with_changed_entry(|part| part.extra = b"\x75\x70\x0b\x00\x01\0\0\0\0../esc".to_vec()),
        ),
        ("another disk", with_changed_entry(|part| part.disk = 1)),
        ("bytes before a file", with_changed_entry(|part| part.before = b"hidden".to_vec())),
        ("bytes behind a file", with_changed_entry(|part| part.behind = b"hidden".to_vec())),
        ("a descriptor without its flag", with_changed_entry(|part| part.behind = vec![0; 16])),
        (
            "a descriptor that lies",
            with_changed_entry(|part| {
                part.flags = 8;
                part.behind = b"PK\x07\x08\x01\0\0\0\x02\0\0\0\x03\0\0\0".to_vec();
            }),
        ),
        ("a flag without its descriptor", with_changed_entry(|part| part.flags = 8)),
    ]
}

fn entry_faults() -> Vec<NamedZip> {
    vec![
        (
            "a descriptor of zip64",
            with_changed_entry(|part| {
                part.flags = 8;
                part.behind = vec![0; 24];
            }),
        ),
        ("the same bytes for two files", with_changed_entry(|part| part.offset = Some(0))),
        ("an offset behind the end", with_changed_entry(|part| part.offset = Some(1_000_000))),
        ("an offset inside another file", with_changed_entry(|part| part.offset = Some(12))),
        ("a file that only the directory knows", with_changed_entry(|part| part.no_local = true)),
        ("a file that the directory does not know", with_changed_entry(|part| part.no_record = true)),
        (
            "a stored file of two sizes",
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
        ("a folder of DOS with the name of a file", with_changed_entry(|part| part.attributes = 0x10)),
        ("the name of a volume", with_changed_entry(|part| part.attributes = 0x08)),
        ("a name that is not UTF-8", with_changed_entry(|part| part.name = b"caf\xe9.md".to_vec())),
        (
            "a name that says it is UTF-8",
            with_changed_entry(|part| {
                part.flags = 0x0800;
                part.name = b"caf\xe9.md".to_vec();
            }),
        ),
        (
            "a name that is UTF-8 and does not say so",
            with_changed_entry(|part| part.name = "caf\u{e9}.md".as_bytes().to_vec()),
        ),
        ("an empty name", with_changed_entry(|part| part.name = Vec::new())),
        ("a name of a slash", with_changed_entry(|part| part.name = b"/".to_vec())),
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
            "damaged deflate",
            with_changed_entry(|part| {
                part.stored = true;
                part.method = Some(8);
                part.data = vec![0xff; 64];
            }),
        ),
        (
            "deflate and more",
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
            "deflate cut off",
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
        ("bytes before the directory", with_changed_archive(|zip| zip.before_directory = b"hidden".to_vec())),
        ("bytes behind the directory", with_changed_archive(|zip| zip.before_end = b"hidden".to_vec())),
        ("bytes behind the end", with_changed_archive(|zip| zip.behind = b"hidden".to_vec())),
        (
            "a second end in the comment",
            with_changed_archive(|zip| zip.comment = Zip::of(vec![Part::file("other.md", "x")]).build()),
        ),
        ("a mark of an end in the comment", with_changed_archive(|zip| zip.comment = b"see PK\x05\x06 there".to_vec())),
        ("a count too small", with_changed_archive(|zip| zip.count = Some(1))),
        ("a count too large", with_changed_archive(|zip| zip.count = Some(3))),
        ("a count of zip64", with_changed_archive(|zip| zip.count = Some(u16::MAX))),
        ("two counts", with_changed_archive(|zip| zip.count_here = Some(1))),
        ("a directory too short", with_changed_archive(|zip| zip.directory_size = Some(10))),
        ("a directory too long", with_changed_archive(|zip| zip.directory_size = Some(100_000))),
        ("a directory that begins elsewhere", with_changed_archive(|zip| zip.directory_start = Some(0))),
        ("a directory behind the end", with_changed_archive(|zip| zip.directory_start = Some(u32::MAX - 1))),
        ("several disks", with_changed_archive(|zip| zip.disk = 3)),
        (
            "a locator of zip64",
            with_changed_archive(|zip| {
                zip.before_end = b"PK\x06\x07".to_vec();
                zip.before_end.resize(20, 0);
            }),
        ),
        ("bytes in front", with_changed_archive(|zip| zip.parts[0].before = b"#!/bin/sh\n".to_vec())),
    ]
}

pub(super) fn kinds() -> Vec<(String, Zip)> {
    let modes = [
        ("a symbolic link", 0o120_777, "../../escape"),
        ("a symbolic link to nowhere", 0o120_777, "/etc/passwd"),
        ("a pipe", 0o010_644, ""),
        ("a character device", 0o020_644, ""),
        ("a block device", 0o060_644, ""),
        ("a socket", 0o140_644, ""),
        ("a set-user-id program", 0o104_755, "#!/bin/sh"),
        ("a set-group-id program", 0o102_755, "#!/bin/sh"),
        ("a sticky file", 0o101_755, "#!/bin/sh"),
    ];
    let with_and_without_file = |(name, mode, data): (&str, u32, &str)| {
        let part = Part { mode, ..Part::file("link", data) };
        let behind_link = Part::file("link/escape.txt", "x");
        [
            (name.to_owned(), Zip::of(vec![skill_part(), part.clone()])),
            (format!("{name}, and a file through it"), Zip::of(vec![skill_part(), part, behind_link])),
        ]
    };
    modes.into_iter().flat_map(with_and_without_file).collect()
}
