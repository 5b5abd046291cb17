//! Tar archives with false metadata: in headers, and in pax and GNU records before headers.

use super::{TarEntry, pax_records, skill_tar_entry};

type NamedTar = (&'static str, Vec<TarEntry>);

pub(super) fn malformed() -> Vec<NamedTar> {
    [header_faults(), records()].concat()
}

fn header_faults() -> Vec<NamedTar> {
    let with_changed_entry = |change: fn(&mut TarEntry)| {
        let mut member = TarEntry::file("notes.md", "notes ".repeat(20));
        change(&mut member);
        vec![skill_tar_entry(), member]
    };
    vec![
        ("an old tar format", with_changed_entry(|member| member.magic = [0; 8])),
        ("a wrong checksum", with_changed_entry(|member| member.checksum = Some(b"000001\0 ".to_vec()))),
        ("a checksum that is not a number", with_changed_entry(|member| member.checksum = Some(b"zzzzzz\0 ".to_vec()))),
        ("a size that is not a number", with_changed_entry(|member| member.size = Some(b"zzzzzzzzzzz\0".to_vec()))),
        ("a negative size", with_changed_entry(|member| member.size = Some(vec![0xff; 12]))),
        (
            "a size of 64 bits",
            with_changed_entry(|member| member.size = Some(vec![0x80, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])),
        ),
        ("a size beyond the end", with_changed_entry(|member| member.size = Some(b"77777777777\0".to_vec()))),
        ("a size too small", with_changed_entry(|member| member.size = Some(b"00000000001\0".to_vec()))),
        ("a set-user-id program", with_changed_entry(|member| member.mode = 0o4755)),
        ("a set-group-id program", with_changed_entry(|member| member.mode = 0o2755)),
        ("a sticky file", with_changed_entry(|member| member.mode = 0o1755)),
        ("a file with the name of a folder", with_changed_entry(|member| member.name = b"notes/".to_vec())),
        ("a folder with contents", with_changed_entry(|member| member.kind = b'5')),
        ("a prefix that leads out", with_changed_entry(|member| member.prefix = b"../..".to_vec())),
        ("a prefix that is absolute", with_changed_entry(|member| member.prefix = b"/tmp".to_vec())),
        (
            "a prefix in the time fields of GNU tar",
            with_changed_entry(|member| (member.magic, member.prefix) = (*b"ustar  \0", b"other".to_vec())),
        ),
        (
            "a prefix after a zero byte",
            with_changed_entry(|member| (member.magic, member.prefix) = (*b"ustar  \0", b"\0other".to_vec())),
        ),
        (
            "a prefix with another ustar version",
            with_changed_entry(|member| (member.magic, member.prefix) = (*b"ustar\0  ", b"other".to_vec())),
        ),
        (
            "the signature of another format",
            with_changed_entry(|member| member.prefix = [&[0; 163][..], b"tar\0"].concat()),
        ),
        ("a size after a zero byte", with_changed_entry(|member| member.size = Some(b"\x000000000170\0".to_vec()))),
        ("a size between zero bytes", with_changed_entry(|member| member.size = Some(b"\0\0\0\x000170\0\0".to_vec()))),
        (
            "a size that a zero byte splits",
            with_changed_entry(|member| member.size = Some(b"0000000\x00170\0".to_vec())),
        ),
        ("a size that a space splits", with_changed_entry(|member| member.size = Some(b"00000000 170".to_vec()))),
        ("an empty size", with_changed_entry(|member| (member.data, member.size) = (Vec::new(), Some(vec![0; 12])))),
        ("a blank size", with_changed_entry(|member| (member.data, member.size) = (Vec::new(), Some(vec![b' '; 12])))),
        (
            "a size with a digit that is not octal",
            with_changed_entry(|member| member.size = Some(b"00000000178\0".to_vec())),
        ),
        ("an old entry with the name of a folder and a pax path of a file", {
            let old = TarEntry::new(0, "notes/", "notes ".repeat(20));
            vec![skill_tar_entry(), TarEntry::new(b'x', "x", pax_records(&[("path", "notes.md")])), old]
        }),
        ("a name that is not UTF-8", with_changed_entry(|member| member.name = b"caf\xe9.md".to_vec())),
    ]
}

fn records() -> Vec<NamedTar> {
    let with_record = |kind: u8, records: &[u8]| {
        vec![skill_tar_entry(), TarEntry::new(kind, "x", records), TarEntry::file("notes.md", "notes")]
    };
    vec![
        ("a pax path that leads out", with_record(b'x', &pax_records(&[("path", "../escape.txt")]))),
        ("an absolute pax path", with_record(b'x', &pax_records(&[("path", "/tmp/escape.txt")]))),
        ("a pax path with a zero byte", with_record(b'x', &pax_records(&[("path", "notes.md\0/../escape")]))),
        ("a link target in pax records", with_record(b'x', &pax_records(&[("linkpath", "/etc/passwd")]))),
        ("another size in pax records", with_record(b'x', &pax_records(&[("size", "1")]))),
        ("a huge size in pax records", with_record(b'x', &pax_records(&[("size", "99999999999999999999")]))),
        (
            "a sparse file in pax records",
            with_record(b'x', &pax_records(&[("GNU.sparse.major", "1"), ("GNU.sparse.name", "../escape.txt")])),
        ),
        ("two paths in pax records", with_record(b'x', &pax_records(&[("path", "a.md"), ("path", "b.md")]))),
        ("truncated pax records", with_record(b'x', b"99 path=a\n")),
        ("pax records without a length", with_record(b'x', b"path=a\n")),
        ("pax records of length zero", with_record(b'x', b"0 path=a\n")),
        ("a global pax path", with_record(b'g', &pax_records(&[("path", "../escape.txt")]))),
        ("a GNU long name that leads out", with_record(b'L', b"../../escape.txt\0")),
        ("an absolute GNU long name", with_record(b'L', b"/tmp/escape.txt\0")),
        ("a GNU long name that is too long", with_record(b'L', &[b'a'; 5000])),
        ("a GNU long name of one megabyte", with_record(b'L', &[b'a'; 1_000_000])),
        ("pax records of one megabyte", with_record(b'x', &[b'1'; 1_000_000])),
        ("two GNU long names", {
            let long = |name: &str| TarEntry::new(b'L', "x", name);
            vec![skill_tar_entry(), long("a.md\0"), long("b.md\0"), TarEntry::file("c.md", "c")]
        }),
        ("a GNU long name without an entry", vec![skill_tar_entry(), TarEntry::new(b'L', "x", "a.md\0")]),
        ("an entry without a name", {
            let mut unnamed = TarEntry::file("x", "");
            unnamed.name = Vec::new();
            vec![skill_tar_entry(), unnamed]
        }),
    ]
}
