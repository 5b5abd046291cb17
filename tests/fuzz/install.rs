//! Installs packages of unknown origin with the code that `imagate skills install` runs after the download.

use std::fs;
use std::path::Path;

use imagate::manifest::package::Sha256Sum;
use imagate::manifest::package::archive::ArchiveFormat;
use imagate::manifest::{MemoryFiles, Skill, SourceFile};
use tempfile::TempDir;

use crate::hostile::{SKILL, Zip, ZipEntry, gzip, skill_zip_entry};
use crate::package_install;
use crate::skills_folder::SkillsFolder;
use crate::targets::{limits, parts, with_correct_checksums};

/// The release that is already installed if the package replaces one.
const INSTALLED: &str = "0.9.0";

/// Installs the package that the input describes, and returns whether the installation succeeds. The lowest bit of the
/// first byte says whether a release is installed already, its other bits how the other bytes become a package.
pub(crate) fn install(input: &[u8]) -> bool {
    let Some((form, content)) = input.split_first() else { return false };
    let bytes = match form >> 1 {
        0 => content.to_vec(),
        1 => gzip(&with_correct_checksums(content)),
        _ => Zip::of([vec![skill_zip_entry()], parts(content)].concat()).build(),
    };
    // An installation syncs to disk several times, which costs nothing on a file system in memory.
    let root = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a folder");
    let folder = root.path().join("up/to/here/agent");
    fs::create_dir_all(folder.parent().expect("a parent")).expect("a folder");
    fs::write(root.path().join("up/to/note"), "before").expect("a file");
    let replaces = form & 1 == 1;
    if replaces {
        let mut skills = SkillsFolder::open(&folder).expect("a folder");
        let document = SKILL.replace("1.0.0", INSTALLED);
        let bytes = Zip::of(vec![ZipEntry::file("SKILL.md", document)]).build();
        install_release(&mut skills, &skill(INSTALLED, &bytes), &bytes).expect("a good package");
    }
    let wanted = skill("1.0.0", &bytes);
    let mut skills = SkillsFolder::open(&folder).expect("a folder");
    skills.check_replaceable("demo", false).expect("an unchanged skill");
    let succeeded = install_release(&mut skills, &wanted, &bytes).is_ok();
    assert_eq!(skills.is_installed(&wanted), succeeded);
    drop(skills);
    check_outside(root.path());
    check_inside(&folder, succeeded || replaces);
    succeeded
}

/// Installs the release from a manifest that lists only this release.
fn install_release(skills: &mut SkillsFolder, skill: &Skill, bytes: &[u8]) -> anyhow::Result<()> {
    let manifest = serde_json::json!({
        "schema_version": "1.0", "generated_at": "2026-01-01T00:00:00Z", "apis": [], "skills": [skill],
        "repository": {
            "name": "e/s", "git_url": "https://example.com/e/s.git", "raw_base_url": "https://example.com/raw",
            "branch": "main",
        },
    });
    let source = SourceFile::new("skills.json", manifest.to_string());
    let mut files = MemoryFiles::new();
    files.insert(&*skill.package, bytes);
    package_install::install_package(skills, &source, 0, skill, &files)
}

fn skill(version: &str, bytes: &[u8]) -> Skill {
    let is_tar = ArchiveFormat::of(bytes) == Some(ArchiveFormat::TarGz);
    let entry = serde_json::json!({
        "name": "demo", "version": version, "title": "Demo", "description": "A demo.", "path": "skills/demo",
        "package": if is_tar { "packages/demo.tar.gz" } else { "packages/demo.zip" }, "sha256": Sha256Sum::of(bytes).to_string(), "size_bytes": bytes.len(),
    });
    serde_json::from_value(entry).expect("an entry")
}

/// Nothing outside the skills folder has changed.
fn check_outside(root: &Path) {
    assert_eq!(names(root), ["up"]);
    assert_eq!(names(&root.join("up")), ["to"]);
    assert_eq!(names(&root.join("up/to")), ["here", "note"]);
    assert_eq!(names(&root.join("up/to/here")), ["agent"]);
    assert_eq!(fs::read(root.join("up/to/note")).expect("a file"), b"before");
}

/// The skills folder has one complete skill or none. The skill consists of plain files and folders within the limits.
fn check_inside(folder: &Path, has_skill: bool) {
    let expected: &[&str] = if has_skill { &["demo", "skills.lock.json"] } else { &[] };
    assert_eq!(names(folder), expected);
    let (mut pending, mut bytes, mut entries) = (vec![folder.join("demo")], 0, 0);
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let entry = entry.expect("an entry");
            let metadata = entry.path().symlink_metadata().expect("metadata");
            assert!(metadata.is_dir() || metadata.is_file(), "{}", entry.path().display());
            bytes += if metadata.is_file() { metadata.len() } else { 0 };
            entries += 1;
            if metadata.is_dir() {
                pending.push(entry.path());
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
