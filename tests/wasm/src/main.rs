//! Runs the feature `manifest` on this machine without any other feature of the crate, whose dependencies change those of
//! `manifest`. The results must equal the golden files and the packages in the repository, byte for byte.
#![allow(clippy::expect_used, clippy::panic, reason = "a failed assumption fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, NaiveDate};
use imagate_wasm::{FORMATS, FileTree, corpus, errors, index, manifest, package, read_output, set_input};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    compare_reports(&root.join("tests/skills"));
    compare_packages(&read_tree(&root.join("schemas/skills")));
}

fn compare_reports(skills: &Path) {
    set_input(&read_tree(&skills.join("corpus")));
    assert_eq!(fs::read_dir(skills.join("golden")).expect("golden files").count(), FORMATS.len());
    for (number, format) in FORMATS.iter().enumerate() {
        let golden = fs::read(skills.join(format!("golden/{format}.txt"))).expect("a golden file");
        assert_eq!(corpus(number), golden.len(), "{format}: the length");
        assert!(read_output() == golden, "{format}: it differs from tests/skills/golden/{format}.txt");
        println!("{format}: {} bytes, as in the golden file", golden.len());
    }
}

fn compare_packages(own: &FileTree) {
    let packages: Vec<&String> = own.keys().filter(|path| path.ends_with(".zip")).collect();
    assert!(!packages.is_empty(), "no packages");
    set_input(own);
    assert_eq!(errors(), 0, "the packages of this repository are sound");
    index();
    let discovered: serde_json::Value = serde_json::from_slice(&read_output()).expect("JSON");
    assert_eq!(discovered["skills"].as_array().map(Vec::len), Some(packages.len()));
    let mut changed = own.clone();
    changed.get_mut(packages[0]).expect("a package").pop();
    set_input(&changed);
    assert!(errors() > 0, "a missing byte is found");

    set_input(
        &own.iter()
            .filter(|(path, _)| !path.starts_with("packages/"))
            .map(|(path, bytes)| (path.clone(), bytes.clone()))
            .collect(),
    );
    for (number, path) in packages.iter().enumerate() {
        let file = &own[*path];
        package(number, time_of(file));
        assert!(read_output() == *file, "{path}: other bytes");
        println!("{path}: built again, the same bytes");
    }
    set_input(own);
    let document = &own["skills.json"];
    let text: serde_json::Value = serde_json::from_slice(document).expect("JSON");
    let generated_at = text["generated_at"].as_str().expect("a time");
    manifest(DateTime::parse_from_rfc3339(generated_at).expect("a time").timestamp());
    assert!(read_output() == *document, "skills.json: other bytes");
    println!("skills.json: built again, the same bytes");
}

/// The time of the first file of an archive, which all of its files have, in Unix seconds: packages are of different times.
fn time_of(archive: &[u8]) -> i64 {
    let number = |at: usize| u32::from(u16::from_le_bytes([archive[at], archive[at + 1]]));
    let (time, date) = (number(10), number(12));
    let day = NaiveDate::from_ymd_opt(i32::try_from(date >> 9).expect("a year") + 1980, (date >> 5) & 15, date & 31);
    let time = day.and_then(|day| day.and_hms_opt(time >> 11, (time >> 5) & 63, (time & 31) * 2));
    time.expect("a time").and_utc().timestamp()
}

/// The files below a folder, by their relative paths.
fn read_tree(folder: &Path) -> FileTree {
    let mut tree = FileTree::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("a file of the folder");
            let name: Vec<_> = name.iter().map(|part| part.to_str().expect("a name in UTF-8")).collect();
            tree.insert(name.join("/"), fs::read(&path).expect("a file"));
        }
    }
    tree
}
