//! Archives that are dangerous to unpack, built entry by entry: each kind of false or contradictory metadata, in each
//! field that can hold it.
//!
//! The tests of the archive reader and the tests of `imagate skills install` share this module.
#![expect(clippy::cast_possible_truncation, reason = "the archives are small, and some values are wrong on purpose")]

#[path = "hostile/tars.rs"]
mod tars;
#[path = "hostile/whole.rs"]
mod whole;
#[path = "hostile/zips.rs"]
mod zips;

use miniz_oxide::deflate::compress_to_vec;

/// A hostile archive; the name describes its fault.
pub(crate) struct HostileArchive {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// One entry of a zip. A field that is `None` is computed from the others; `local_…` fields are of the local header.
#[derive(Clone, Default)]
pub(crate) struct ZipEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) stored: bool,
    pub(crate) mode: u32,
    pub(crate) attributes: u32,
    pub(crate) flags: u16,
    pub(crate) method: Option<u16>,
    pub(crate) size: Option<u32>,
    pub(crate) compressed_size: Option<u32>,
    pub(crate) crc: Option<u32>,
    pub(crate) offset: Option<u32>,
    pub(crate) disk: u16,
    pub(crate) extra: Vec<u8>,
    pub(crate) local_name: Option<Vec<u8>>,
    pub(crate) local_size: Option<u32>,
    pub(crate) local_crc: Option<u32>,
    pub(crate) local_flags: Option<u16>,
    pub(crate) local_method: Option<u16>,
    pub(crate) local_extra: Vec<u8>,
    /// Bytes before the local header.
    pub(crate) before: Vec<u8>,
    /// Bytes after the data.
    pub(crate) behind: Vec<u8>,
    /// Omits the local header and the data.
    pub(crate) no_local_header: bool,
    /// Omits the entry in the central directory.
    pub(crate) no_directory_entry: bool,
}

impl ZipEntry {
    pub(crate) fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        Self { name: name.as_ref().to_vec(), data: data.as_ref().to_vec(), ..Self::default() }
    }
}

/// A zip archive. A field that is `None` is computed from the entries.
#[derive(Clone, Default)]
pub(crate) struct Zip {
    pub(crate) entries: Vec<ZipEntry>,
    pub(crate) before_directory: Vec<u8>,
    pub(crate) before_end: Vec<u8>,
    pub(crate) comment: Vec<u8>,
    pub(crate) behind: Vec<u8>,
    pub(crate) count: Option<u16>,
    /// The number of entries on this disk.
    pub(crate) count_on_disk: Option<u16>,
    pub(crate) directory_size: Option<u32>,
    pub(crate) directory_start: Option<u32>,
    pub(crate) disk: u16,
}

pub(crate) const SKILL: &str = "---\nname: demo\ndescription: Shows a thing when it is asked to.\nmetadata:\n  version: \"1.0.0\"\n---\n\n# Demo\n";

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

fn put16(out: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|value| out.extend(value.to_le_bytes()));
}

fn put32(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|value| out.extend(value.to_le_bytes()));
}

impl Zip {
    pub(crate) fn of(entries: Vec<ZipEntry>) -> Self {
        Self { entries, ..Self::default() }
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        let mut records = 0;
        for part in &self.entries {
            let body = if part.stored { part.data.clone() } else { compress_to_vec(&part.data, 6) };
            let method = part.method.unwrap_or(if part.stored { 0 } else { 8 });
            let crc = part.crc.unwrap_or_else(|| crc32(&part.data));
            let packed = part.compressed_size.unwrap_or(body.len() as u32);
            let size = part.size.unwrap_or(part.data.len() as u32);
            out.extend(&part.before);
            let offset = out.len() as u32;
            if !part.no_local_header {
                let name = part.local_name.as_ref().unwrap_or(&part.name);
                out.extend(b"PK\x03\x04");
                put16(
                    &mut out,
                    &[20, part.local_flags.unwrap_or(part.flags), part.local_method.unwrap_or(method), 0, 33],
                );
                put32(&mut out, &[part.local_crc.unwrap_or(crc), packed, part.local_size.unwrap_or(size)]);
                put16(&mut out, &[name.len() as u16, part.local_extra.len() as u16]);
                out.extend(name);
                out.extend(&part.local_extra);
                out.extend(&body);
                out.extend(&part.behind);
            }
            if part.no_directory_entry {
                continue;
            }
            records += 1;
            directory.extend(b"PK\x01\x02");
            put16(&mut directory, &[(3 << 8) | 20, 20, part.flags, method, 0, 33]);
            put32(&mut directory, &[crc, packed, size]);
            put16(&mut directory, &[part.name.len() as u16, part.extra.len() as u16, 0, part.disk, 0]);
            put32(&mut directory, &[(part.mode << 16) | part.attributes, part.offset.unwrap_or(offset)]);
            directory.extend(&part.name);
            directory.extend(&part.extra);
        }
        out.extend(&self.before_directory);
        let start = out.len() as u32;
        let size = directory.len() as u32;
        out.extend(directory);
        out.extend(&self.before_end);
        out.extend(b"PK\x05\x06");
        put16(
            &mut out,
            &[
                self.disk,
                self.disk,
                self.count_on_disk.or(self.count).unwrap_or(records),
                self.count.unwrap_or(records),
            ],
        );
        put32(&mut out, &[self.directory_size.unwrap_or(size), self.directory_start.unwrap_or(start)]);
        put16(&mut out, &[self.comment.len() as u16]);
        out.extend(&self.comment);
        out.extend(&self.behind);
        out
    }
}

/// One entry of a tar.
#[derive(Clone)]
pub(crate) struct TarEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) link: Vec<u8>,
    /// The raw bytes of the size field.
    pub(crate) size: Option<Vec<u8>>,
    pub(crate) magic: [u8; 8],
    pub(crate) prefix: Vec<u8>,
    pub(crate) checksum: Option<Vec<u8>>,
}

impl TarEntry {
    pub(crate) fn new(kind: u8, name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        Self {
            name: name.as_ref().to_vec(),
            data: data.as_ref().to_vec(),
            kind,
            mode: 0o644,
            link: Vec::new(),
            size: None,
            magic: *b"ustar\x0000",
            prefix: Vec::new(),
            checksum: None,
        }
    }

    pub(crate) fn file(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        Self::new(b'0', name, data)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut block = vec![0; 512];
        let mut set = |offset: usize, bytes: &[u8], limit: usize| {
            let bytes = &bytes[..bytes.len().min(limit)];
            block[offset..offset + bytes.len()].copy_from_slice(bytes);
        };
        set(0, &self.name, 100);
        set(100, format!("{:07o}\0", self.mode).as_bytes(), 8);
        set(108, b"0000000\0", 8);
        set(116, b"0000000\0", 8);
        let size = self.size.clone().unwrap_or_else(|| format!("{:011o}\0", self.data.len()).into_bytes());
        set(124, &size, 12);
        set(136, b"00000000000\0", 12);
        set(148, b"        ", 8);
        set(156, &[self.kind], 1);
        set(157, &self.link, 100);
        set(257, &self.magic, 8);
        // Longer than the prefix field of ustar (155 bytes): some formats use the 12 bytes of padding after it.
        set(345, &self.prefix, 167);
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let sum = self.checksum.clone().unwrap_or_else(|| format!("{sum:06o}\0 ").into_bytes());
        block[148..148 + sum.len()].copy_from_slice(&sum);
        out.extend(block);
        out.extend(&self.data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
}

pub(crate) fn tar(members: &[TarEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    members.iter().for_each(|member| member.write(&mut out));
    out.resize(out.len() + 1024, 0);
    out
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    out.extend(compress_to_vec(bytes, 6));
    put32(&mut out, &[crc32(bytes), bytes.len() as u32]);
    out
}

/// The records of a pax extended header.
pub(crate) fn pax_records(records: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let without_length = key.len() + value.len() + 3;
        let length =
            (without_length..).find(|length| length.to_string().len() + without_length == *length).expect("a length");
        out.extend(format!("{length} {key}={value}\n").bytes());
    }
    out
}

pub(crate) fn skill_zip_entry() -> ZipEntry {
    ZipEntry::file("SKILL.md", SKILL)
}

pub(crate) fn skill_tar_entry() -> TarEntry {
    TarEntry::file("SKILL.md", SKILL)
}

/// Paths that lead out of a folder, or name another file than they seem to.
pub(crate) const DANGEROUS_PATHS: &[&str] = &[
    "../escape.txt",
    "../../../../../../tmp/escape.txt",
    "a/../../escape.txt",
    "a/..",
    "..",
    ".",
    "/escape.txt",
    "//escape.txt",
    "/",
    "C:/escape.txt",
    "C:escape.txt",
    "C:\\escape.txt",
    "\\\\host\\share\\escape.txt",
    "..\\escape.txt",
    "a\\..\\..\\escape.txt",
    "a//escape.txt",
    "a/./escape.txt",
    "CON",
    "nul.txt",
    "a/COM1.md",
    "LPT9",
    "aux",
    "CONIN$",
    "escape.txt.",
    "escape.txt ",
    "a /b",
    "escape.txt:stream",
    "esc\0ape.txt",
    "esc\nape.txt",
    "\u{202e}txt.sh",
    "a\u{200b}b",
    "a|b",
    "a?b",
    "a*b",
    "a<b",
    "a\"b",
    "~/../../escape.txt",
    "a/b/c/d/e/f/g/h/i.txt",
    "\u{7f}",
    "\u{1b}[2J",
];

/// Pairs of paths that name one file on some systems, or a file and a folder at the same path.
pub(crate) const CONFLICTING_PATHS: &[(&str, &str)] = &[
    ("a.txt", "a.txt"),
    ("a.txt", "A.TXT"),
    ("skill.md", "SKILL.MD"),
    ("\u{e9}", "e\u{301}"),
    ("\u{c9}", "\u{e9}"),
    ("stra\u{df}e", "STRASSE"),
    ("a", "a/b"),
    ("a/b", "a"),
    ("docs/x", "Docs/y"),
    ("d/e/f", "d/E/g"),
];

/// Every hostile archive. The archive reader must refuse each of them.
pub(crate) fn archives() -> Vec<HostileArchive> {
    let mut all = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>| all.push(HostileArchive { name, bytes });
    for path in DANGEROUS_PATHS {
        let mut part = ZipEntry::file(path, "x");
        part.flags = 0x0800;
        add(format!("zip, path {path:?}"), Zip::of(vec![skill_zip_entry(), part]).build());
        let member = if path.contains('\0') {
            vec![TarEntry::new(b'x', "x", pax_records(&[("path", path)])), TarEntry::file("y", "x")]
        } else {
            vec![TarEntry::file(path, "x")]
        };
        add(format!("tar, path {path:?}"), gzip(&tar(&[vec![skill_tar_entry()], member].concat())));
    }
    for (first, second) in CONFLICTING_PATHS {
        let part = |name: &str| ZipEntry { flags: 0x0800, ..ZipEntry::file(name, "x") };
        add(
            format!("zip, {first:?} and {second:?}"),
            Zip::of(vec![skill_zip_entry(), part(first), part(second)]).build(),
        );
        let members = [skill_tar_entry(), TarEntry::file(first, "x"), TarEntry::file(second, "y")];
        add(format!("tar, {first:?} and {second:?}"), gzip(&tar(&members)));
    }
    zips::malformed().into_iter().for_each(|(name, zip)| add(format!("zip, {name}"), zip.build()));
    zips::special_files().into_iter().for_each(|(name, zip)| add(format!("zip, {name}"), zip.build()));
    tars::malformed().into_iter().for_each(|(name, members)| add(format!("tar, {name}"), gzip(&tar(&members))));
    for kind in [b'1', b'2', b'3', b'4', b'6', b'7', b'S', b'K', b'D', b'M', b'N', b'V', b'A', b'~'] {
        let mut link = TarEntry::new(kind, "link", "");
        link.link = b"../../escape".to_vec();
        let name = char::from(kind);
        add(format!("tar, an entry of kind {name}"), gzip(&tar(&[skill_tar_entry(), link.clone()])));
        let members = [skill_tar_entry(), link, TarEntry::file("link/escape.txt", "x")];
        add(format!("tar, a file below an entry of kind {name}"), gzip(&tar(&members)));
    }
    whole::bombs(&mut add);
    whole::damaged_files(&mut add);
    all
}
