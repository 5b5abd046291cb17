//! The functions of the feature `manifest` that a browser would use, called by `run.mjs` and by `main.rs`: the reports of
//! the corpus in every format, and the packages of the skills that this repository ships. The only import is a source of
//! random numbers, so the module has no other access to its host.
//!
//! Each function reads its input from a buffer and writes its result to another one.
#![allow(clippy::expect_used, clippy::panic, reason = "a failed assumption fails the test")]

#[path = "../../skills/cases.rs"]
#[allow(dead_code, reason = "the tests of the corpus use the other items")]
mod cases;

use std::sync::{Mutex, MutexGuard};

use chrono::DateTime;
use imagate::manifest::package::ZipTimestamp;
use imagate::manifest::{
    BuildInput, BuildOutput, CheckOptions, MemoryFiles, RepositoryFields, SourceFile, build, discovery_index, verify,
};

/// The files of a folder, by their relative paths.
pub type FileTree = cases::FileTree;

/// The formats of the reports, in the order of their numbers.
pub const FORMATS: [&str; 5] = cases::FORMATS;

static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().expect("one thread")
}

/// Allocates an input buffer of `length` bytes and returns its address.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    let mut input = lock(&INPUT);
    *input = vec![0; length];
    input.as_mut_ptr()
}

/// Replaces the input.
pub fn set_input(files: &FileTree) {
    *lock(&INPUT) = serde_json::to_vec(files).expect("paths and bytes");
}

/// The output of the last call.
pub fn read_output() -> Vec<u8> {
    lock(&OUTPUT).clone()
}

/// The address of the output.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    lock(&OUTPUT).as_ptr()
}

/// Writes the reports of the corpus in one format to the output. Returns the length of the output.
#[unsafe(no_mangle)]
pub extern "C" fn corpus(format: usize) -> usize {
    set_output(cases::printed(FORMATS[format], &cases::cases(&files())).into_bytes())
}

/// Builds the skills at `time` (Unix time, seconds) and writes one package to the output. Returns its length.
#[unsafe(no_mangle)]
pub extern "C" fn package(index: usize, time: i64) -> usize {
    set_output(build_skills(time).packages.swap_remove(index).1)
}

/// Builds the skills at `time` (Unix time, seconds) and writes the manifest to the output. Returns its length.
#[unsafe(no_mangle)]
pub extern "C" fn manifest(time: i64) -> usize {
    set_output(build_skills(time).manifest.into_bytes())
}

/// The number of errors in the packages of `skills.json`.
#[unsafe(no_mangle)]
pub extern "C" fn errors() -> usize {
    let tree = files();
    let files = memory_files(&tree);
    let mut options = CheckOptions::default();
    options.files = Some(&files);
    let report = verify(document(&tree), &options);
    report.findings().iter().filter(|finding| finding.is_error()).count()
}

/// Writes the discovery index of `skills.json` to the output. Returns its length.
#[unsafe(no_mangle)]
pub extern "C" fn index() -> usize {
    set_output(discovery_index(&document(&files()), None).expect("an index").into_bytes())
}

fn build_skills(time: i64) -> BuildOutput {
    let tree = files();
    let input = BuildInput {
        files: &memory_files(&tree),
        previous: Some(&document(&tree)),
        skills: "skills".to_owned(),
        apis: "apis".to_owned(),
        packages: "packages".to_owned(),
        repository: RepositoryFields::default(),
        now: DateTime::from_timestamp(time, 0).expect("a time"),
        timestamp: ZipTimestamp::from_epoch(time),
        // A package of another time has other bytes, and not all packages of the repository are of the same time.
        overwrite: true,
    };
    build(&input).expect("skills that can be built")
}

fn set_output(bytes: Vec<u8>) -> usize {
    let length = bytes.len();
    *lock(&OUTPUT) = bytes;
    length
}

/// Reads the files from the input: a JSON object from paths to lists of bytes.
fn files() -> FileTree {
    serde_json::from_slice(&lock(&INPUT)).expect("files")
}

fn memory_files(tree: &FileTree) -> MemoryFiles {
    let mut files = MemoryFiles::new();
    for (path, bytes) in tree {
        files.insert(path.as_str(), bytes.as_slice());
    }
    files
}

fn document(tree: &FileTree) -> SourceFile {
    SourceFile::new("skills.json", tree.get("skills.json").expect("skills.json").clone())
}
