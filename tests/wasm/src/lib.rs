//! What a browser would ask of the feature `manifest`, asked by `run.mjs`: the corpus in every format, and the packages of
//! the skills that this repository ships. Of its host it is given random numbers and nothing else, so it cannot reach out.
//!
//! A call reads what lies in the input and leaves what it has to say in the output.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

#[path = "../../skills/cases.rs"]
#[allow(dead_code, reason = "the tests of the corpus use the rest")]
mod cases;

use std::sync::{Mutex, MutexGuard};

use chrono::DateTime;
use imagate::manifest::package::ZipTimestamp;
use imagate::manifest::{BuildOutput, RepositoryFields, MemoryFiles, CheckOptions, BuildInput, SourceFile, build, discovery, verify};

use cases::{FORMATS, Tree};

static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn hold(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().expect("one thread")
}

/// Makes room for the input, and says where.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    let mut input = hold(&INPUT);
    *input = vec![0; length];
    input.as_mut_ptr()
}

/// Where the output is.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    hold(&OUTPUT).as_ptr()
}

/// The golden text of one of the formats, from the files of the corpus; the output's length.
#[unsafe(no_mangle)]
pub extern "C" fn corpus(format: usize) -> usize {
    say(cases::printed(FORMATS[format], &cases::cases(&files())).into_bytes())
}

/// The package of a skill, made from its folder, with a time in seconds since 1970.
#[unsafe(no_mangle)]
pub extern "C" fn package(index: usize, time: i64) -> usize {
    say(built(time).packages.swap_remove(index).1)
}

/// The manifest that is built beside the packages.
#[unsafe(no_mangle)]
pub extern "C" fn manifest(time: i64) -> usize {
    say(built(time).manifest.into_bytes())
}

/// How many errors there are in the packages of `skills.json`.
#[unsafe(no_mangle)]
pub extern "C" fn errors() -> usize {
    let tree = files();
    let files = in_memory(&tree);
    let mut options = CheckOptions::default();
    options.files = Some(&files);
    let report = verify(document(&tree), &options);
    report.findings().iter().filter(|finding| finding.is_error()).count()
}

/// The discovery index of `skills.json`.
#[unsafe(no_mangle)]
pub extern "C" fn index() -> usize {
    say(discovery(&document(&files()), None).expect("an index").into_bytes())
}

fn built(time: i64) -> BuildOutput {
    let tree = files();
    let recipe = BuildInput {
        files: &in_memory(&tree),
        previous: Some(&document(&tree)),
        skills: "skills".to_owned(),
        apis: "apis".to_owned(),
        packages: "packages".to_owned(),
        facts: RepositoryFields::default(),
        now: DateTime::from_timestamp(time, 0).expect("a time"),
        stamp: ZipTimestamp::from_epoch(time),
        overwrite: false,
    };
    build(&recipe).expect("skills that can be built")
}

fn say(bytes: Vec<u8>) -> usize {
    let length = bytes.len();
    *hold(&OUTPUT) = bytes;
    length
}

/// The input is a JSON object, the bytes of each file as a list of numbers.
fn files() -> Tree {
    serde_json::from_slice(&hold(&INPUT)).expect("files")
}

fn in_memory(tree: &Tree) -> MemoryFiles {
    let mut files = MemoryFiles::new();
    for (path, bytes) in tree {
        files.insert(path.as_str(), bytes.as_slice());
    }
    files
}

fn document(tree: &Tree) -> SourceFile {
    SourceFile::new("skills.json", tree.get("skills.json").expect("skills.json").clone())
}
