//! Installing what a stranger has packed: the very code of `imagate skills install`, from the bytes of the package on.

use std::fs;
use std::path::Path;

use imagate::manifest::Skill;
use imagate::manifest::package::Sha256Sum;
use tempfile::TempDir;

use crate::hostile::{Zip, gzip, skill_part};
use crate::package_install;
use crate::skills_folder::SkillsFolder;
use crate::targets::{limits, parts, with_sums};

/// The release that is installed before, so that there is something to replace.
const BEFORE: &str = "0.9.0";

/// The first byte says how the rest becomes a package, and whether another release is there.
pub(crate) fn install(input: &[u8]) -> bool {
    let Some((how, rest)) = input.split_first() else { return false };
    let bytes = match how >> 1 {
        0 => rest.to_vec(),
        1 => gzip(&with_sums(rest)),
        _ => Zip::of([vec![skill_part()], parts(rest)].concat()).build(),
    };
    // Each waits for the disk several times; a file system in memory, where there is one, does not.
    let around = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
    let folder = around.path().join("up/to/here/agent");
    fs::create_dir_all(folder.parent().expect("a parent")).expect("a folder");
    fs::write(around.path().join("up/to/note"), "before").expect("a file");
    let replaces = how & 1 == 1;
    if replaces {
        let mut place = SkillsFolder::open(&folder).expect("a folder");
        let bytes = Zip::of(vec![skill_part()]).build();
        package_install::install_package(&mut place, &skill(BEFORE, &bytes), &bytes, &limits())
            .expect("a good package");
    }
    let wanted = skill("1.0.0", &bytes);
    let mut place = SkillsFolder::open(&folder).expect("a folder");
    place.check_replaceable("demo", false).expect("nobody changed it");
    let is_in = package_install::install_package(&mut place, &wanted, &bytes, &limits()).is_ok();
    assert_eq!(place.is_installed(&wanted).expect("a folder"), is_in);
    drop(place);
    outside(around.path());
    inside(&folder, is_in || replaces);
    is_in
}

fn skill(version: &str, bytes: &[u8]) -> Skill {
    let entry = serde_json::json!({
        "name": "demo", "version": version, "title": "Demo", "description": "A demo.", "path": "skills/demo",
        "package": "packages/demo.zip", "sha256": Sha256Sum::of(bytes).to_string(), "size_bytes": bytes.len(),
    });
    serde_json::from_value(entry).expect("an entry")
}

/// Above the folder everything is as it was.
fn outside(around: &Path) {
    assert_eq!(names(around), ["up"]);
    assert_eq!(names(&around.join("up")), ["to"]);
    assert_eq!(names(&around.join("up/to")), ["here", "note"]);
    assert_eq!(names(&around.join("up/to/here")), ["agent"]);
    assert_eq!(fs::read(around.join("up/to/note")).expect("a file"), b"before");
}

/// In it is the skill, whole, or nothing; and of the skill only plain files and folders, below the limits.
fn inside(folder: &Path, is_there: bool) {
    let expected: &[&str] = if is_there { &["demo", "skills.lock.json"] } else { &[] };
    assert_eq!(names(folder), expected);
    let (mut left, mut bytes, mut entries) = (vec![folder.join("demo")], 0, 0);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let entry = entry.expect("an entry");
            let metadata = entry.path().symlink_metadata().expect("metadata");
            assert!(metadata.is_dir() || metadata.is_file(), "{}", entry.path().display());
            bytes += if metadata.is_file() { metadata.len() } else { 0 };
            entries += 1;
            if metadata.is_dir() {
                left.push(entry.path());
            }
        }
    }
    assert!(bytes <= limits().unpacked_bytes && entries <= limits().entries * 8, "{bytes} bytes, {entries} entries");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort_unstable();
    names
}
