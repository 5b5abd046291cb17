//! The seeds of each target: findings, inputs of the stored corpus, and archives and texts made for these tests.

use std::fs;
use std::path::Path;

use xtask::corpus;

use crate::hostile::{self, TarEntry, Zip, ZipEntry, gzip, pax_records, skill_tar_entry, skill_zip_entry, tar};

const FOUND: &str = "tests/fuzz/found";

/// Inputs that once broke something, each in a file named after its fault.
pub(crate) fn findings(target: &str) -> Vec<Vec<u8>> {
    below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(FOUND).join(target), |_| true)
}

/// The stored corpus of cargo-fuzz.
pub(crate) fn corpus(target: &str) -> Vec<Vec<u8>> {
    let stored = corpus::stored(Path::new(env!("CARGO_MANIFEST_DIR")), target);
    stored.unwrap_or_else(|error| panic!("{error:#}")).into_iter().map(|input| input.bytes).collect()
}

/// Writes the seeds as files, with which cargo-fuzz begins.
pub(crate) fn write(folder: &Path, seeds: &[Vec<u8>]) {
    fs::create_dir_all(folder).expect("a folder");
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number:04}")), seed).expect("a file");
    }
}

/// Zips and gzipped tars: valid archives, and the small hostile archives.
pub(crate) fn archives() -> Vec<Vec<u8>> {
    let folder = ZipEntry { mode: 0o040_755, stored: true, ..ZipEntry::file("docs/", "") };
    let long = format!("{}/{}.md", "folder".repeat(12), "name".repeat(20));
    let mut archives = vec![
        Zip::of(vec![skill_zip_entry(), folder, ZipEntry::file("docs/more.md", "More.\n".repeat(99))]).build(),
        Zip::of(vec![ZipEntry { stored: true, ..skill_zip_entry() }]).build(),
        Zip::default().build(),
        gzip(&tar(&[
            skill_tar_entry(),
            TarEntry::new(b'5', "docs/", ""),
            TarEntry::file("docs/more.md", "More.\n".repeat(99)),
        ])),
        gzip(&tar(&[
            TarEntry::new(b'x', "x", pax_records(&[("path", &long), ("mtime", "1.5")])),
            TarEntry::file("x", "x"),
            skill_tar_entry(),
        ])),
        gzip(&tar(&[TarEntry::new(b'L', "x", format!("{long}\0")), TarEntry::file("x", "x"), skill_tar_entry()])),
    ];
    let small = hostile::archives().into_iter().filter(|archive| archive.bytes.len() < 20_000);
    archives.extend(small.map(|archive| archive.bytes));
    archives
}

/// Tars before compression, some of them valid.
pub(crate) fn tars() -> Vec<Vec<u8>> {
    let long = format!("{}/{}.md", "folder".repeat(12), "name".repeat(20));
    let link = TarEntry { link: b"../x".to_vec(), ..TarEntry::new(b'2', "link", "") };
    let members = [
        vec![skill_tar_entry()],
        vec![skill_tar_entry(), TarEntry::new(b'5', "docs/", ""), TarEntry::file("docs/more.md", "More.\n".repeat(99))],
        vec![TarEntry::new(b'g', "g", pax_records(&[("comment", "x")])), skill_tar_entry()],
        vec![
            TarEntry::new(b'x', "x", pax_records(&[("path", &long), ("mtime", "1.5"), ("size", "1")])),
            TarEntry::file("x", "x"),
        ],
        vec![TarEntry::new(b'L', "x", format!("{long}\0")), TarEntry::file("x", "x"), skill_tar_entry()],
        vec![skill_tar_entry(), link],
    ];
    members.iter().map(|members| tar(members)).collect()
}

/// Descriptions of zips, in the binary form that [`targets::zip`](crate::targets::zip) reads.
pub(crate) fn zip_descriptions() -> Vec<Vec<u8>> {
    let recipe = |part: &[&[u8]]| part.concat();
    vec![
        recipe(&[b"\0\0\x08SKILL.md\x10---\nname: demo\n--", b"\0\0\x01a\x01b"]),
        recipe(&[b"\x01\0\x05docs/\0", b"\0\0\x08docs/a.b\x03abc", b"\0\0\x08docs/A.c\x03abc"]),
        recipe(&[b"\0\x01\x04../x\x01y", b"\x02\x07\x01z\x02yy", b"\0\0\x03a/b\x01y"]),
        (0..200).collect(),
    ]
}

/// Packages in each of the forms that [`install`](crate::install::install) reads: a first byte for the form, then the
/// input.
pub(crate) fn packages() -> Vec<Vec<u8>> {
    let forms = [(0, archives()), (2, tars()), (4, zip_descriptions())];
    let seeds = forms.into_iter().flat_map(|(form, inputs)| inputs.into_iter().take(6).map(move |input| (form, input)));
    seeds.flat_map(|(form, input)| [form, form + 1].map(|form| [&[form], &input[..]].concat())).collect()
}

/// Skills with valid, unusual and invalid front matter.
pub(crate) fn skills() -> Vec<Vec<u8>> {
    let yaml = [
        "name: demo\ndescription: >-\n  folded\n  text\n",
        "name: 'demo'\ndescription: \"esc\\u00e4ped\\n\"\nlicense: MIT\n",
        "name: demo\ndescription: |\n  lines\nmetadata:\n  version: \"1.0.0\"\n  x: [1, {a: b}]\n",
        "? complex\n: key\nname: !!str demo\n",
        "name: &a demo\ndescription: *a\n<<: *a\n",
        "{name: demo, description: flow}\n",
        "name: demo\ndescription: ä日本\u{202e}\nallowed-tools: Read Grep\ncompatibility: any # comment\n",
    ];
    let mut skills: Vec<Vec<u8>> = yaml.iter().map(|yaml| format!("---\n{yaml}---\n# Text\n").into_bytes()).collect();
    skills.push(hostile::SKILL.as_bytes().to_vec());
    skills.extend(examples(|name| name == "SKILL.md"));
    skills
}

pub(crate) fn manifests() -> Vec<Vec<u8>> {
    examples(|name| name.ends_with(".json")).into_iter().filter(|bytes| bytes.len() < 20_000).collect()
}

/// Valid JSON, texts that are almost JSON, and texts at the limits.
pub(crate) fn json() -> Vec<Vec<u8>> {
    let nested = |depth: usize, open: &str, value: &str, close: &str| {
        [open.repeat(depth), value.to_owned(), close.repeat(depth)].concat().into_bytes()
    };
    let mut texts: Vec<Vec<u8>> = JSON.iter().map(|text| text.as_bytes().to_vec()).collect();
    texts.extend(NOT_ASCII.iter().map(|text| text.to_vec()));
    for depth in [5, 6, 126, 127, 128, 129] {
        texts.push(nested(depth, "[", "", "]"));
        texts.push(nested(depth, "{\"a\":", "1", "}"));
    }
    texts.push(format!("{{\"{}\":1}}", "k".repeat(300)).into_bytes());
    texts
}

/// Texts, many of them no JSON.
const JSON: &[&str] = &[
    "{}",
    "[]",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-0.0",
    "1e2",
    "1E+2",
    "1.5e-3",
    "12345678901234567890123",
    "\"\"",
    " [ 1 , {} ] \n",
    r#"{"a":{"b":[1,2,{"c":null}]},"a":2}"#,
    r#""\"\\\/\b\f\n\r\t\u0041\u00e9\uD83E\uDD80""#,
    "\"caf\u{e9} \u{1F980} \u{7f}\"",
    "",
    " ",
    "{",
    "[",
    "\"",
    "\"a",
    "\"\\",
    "\"\\u00",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "[1",
    "[1,",
    "nul",
    "nulll",
    "tru",
    "truex",
    "01",
    "-",
    "-a",
    "1.",
    ".5",
    "1e",
    "1e+",
    "+1",
    "0x1",
    "00",
    "1 2",
    "{}}",
    "[]]",
    "[,]",
    "[1,]",
    "{,}",
    "{\"a\":1,}",
    "{1:2}",
    "{a:1}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
    "[1 2]",
    "[}",
    "{]",
    "'a'",
    r#""\x""#,
    r#""\u12g4""#,
    r#""\ud800""#,
    r#""\ud800a""#,
    r#""\ud800\n""#,
    r#""\ud800\u0041""#,
    r#""\udc00""#,
    r#""\ud83e\udd8""#,
    "\"\n\"",
    "\"\u{1f}\"",
    "\"a\tb\"",
    "NaN",
    "Infinity",
    "// x\n1",
    "\u{feff}1",
    "\u{a0}1",
    r#"{"a":[1, -2.5e3 , true,null,{"b":"c\n\u00e9\ud83e\udd80d"}],"e":{"f":[ [],{} ]} ,"g":"h\"i"}"#,
    r#"{"a":NaN,"b":-Infinity}"#,
    r#"[1e999,-1e999]"#,
    r#"{"a":{"b":{"c":{"d":{"e":[{"f":1}]}}}}}"#,
    r#"{"\ud83e\udd80\u00e9":"x","a.b":1,"":{"":[]}}"#,
    r#"{"a\ud800":1}"#,
    r#"["\ud7ff","\ue000","\udbff\udfff","\ud800\udc00"]"#,
    r#""\udbff""#,
    r#""\udfff""#,
    r#""\udbff\ue000""#,
];

/// Texts with bytes outside of ASCII: some are valid UTF-8, the others are not.
const NOT_ASCII: &[&[u8]] = &[
    b"\"\xff\"",
    b"\"\xc3\"",
    b"\"\xe2\x82\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xf0\x9f\xa6",
    b"\"a\xc3\xa9\"",
    b"\xff",
    b"{\"\xff\":1}",
];

fn examples(wanted: fn(&str) -> bool) -> Vec<Vec<u8>> {
    below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/skills/corpus"), wanted)
}

/// The contents of the files below a folder whose names are wanted, sorted by path, so that runs are the same on every
/// machine.
fn below(folder: &Path, wanted: fn(&str) -> bool) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort_unstable();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(below(&path, wanted));
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(wanted) {
            found.push(fs::read(&path).expect("a file"));
        }
    }
    found
}

/// A run would never use an input of an unknown target.
#[test]
fn every_stored_input_belongs_to_a_target() {
    for (folder, ending) in [("tests/fuzz/corpus", ".tar"), (FOUND, "")] {
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name().into_string().expect("a name")) {
            let target = name.strip_suffix(ending);
            assert!(target.is_some_and(|target| corpus::TARGETS.contains(&target)), "{folder}/{name}");
        }
    }
}

/// HTTP/1.1 answers with every framing, some of them invalid.
pub(crate) fn http_answers() -> Vec<Vec<u8>> {
    const BODIES: [&str; 12] = [
        "content-length: 4\r\n\r\ndata",
        "content-length: 4\r\n\r\ndatamore",
        "content-length: 4\r\nContent-Length: 4\r\n\r\nda",
        "content-length: 4, 5\r\n\r\ndata",
        "\r\nup to the end",
        "transfer-encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n",
        "transfer-encoding: gzip, Chunked\r\ncontent-length: 4\r\n\r\n4;a=b\r\ndata\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n00A \t;a\r\n0123456789\r\n1\r\nx\r\n0\r\nt: 1\r\nu: 2\r\n\r\nmore",
        "transfer-encoding: chunked, gzip\r\n\r\n4\r\ndata\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\nfffffffffffffff0\r\ndata",
        "transfer-encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\nno trailer\r\n\r\n",
        "connection: close\r\na: \u{e4}\r\ncontent-length: 0\r\n\r\n",
    ];
    let statuses = ["1.1 200 OK", "1.1 204", "1.1 304 Not Modified", "1.1 101 Other", "1.0 200 OK", "1.1 413 Large"];
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let heads =
        statuses.into_iter().flat_map(|status| ["", interim].map(|before| format!("{before}HTTP/{status}\r\n")));
    heads.flat_map(|head| BODIES.map(|body| [&head, body].concat().into_bytes())).collect()
}
