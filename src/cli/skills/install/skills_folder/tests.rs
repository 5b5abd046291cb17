//! Tests of the folder of installed skills: interrupted installations, and the state of the files.

use super::*;

/// Creates a folder in which `demo` is installed with `text` as its content, or nothing if `text` is `None`.
fn folder_with_skill(text: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    if let Some(text) = text {
        fs::create_dir(folder.path().join("demo")).unwrap();
        fs::write(folder.path().join("demo/SKILL.md"), text).unwrap();
        let staging = StagingPaths::new(folder.path().to_owned());
        SkillsFolder::open(folder.path()).unwrap().record_installed(note("demo", text), &staging).unwrap();
    }
    folder
}

fn note(name: &str, text: &str) -> InstallNote {
    let files = BTreeMap::from([("SKILL.md".to_owned(), Sha256Sum::of(text.as_bytes()).to_string())]);
    let (version, package, sha256) = (text.to_owned(), String::new(), String::new());
    InstallNote { name: name.to_owned(), locked: LockFileEntry { version, package, sha256, size_bytes: 0, files } }
}

/// Creates the files that an interrupted installation leaves: `files` by path, and the note.
fn write_interrupted(folder: &Path, note: Option<&InstallNote>, files: &[(&str, &str)]) {
    let staging = folder.join(".installing-x");
    for (path, text) in files {
        let path = staging.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    if let Some(note) = note {
        fs::write(staging.join(StagingPaths::NOTE), serde_json::to_string(note).unwrap()).unwrap();
    }
}

fn stage_skill(folder: &Path, text: &str) -> StagedSkill {
    let staged = StagedSkill::new_in(folder).unwrap();
    fs::write(staged.paths().folder().join("SKILL.md"), text).unwrap();
    staged
}

/// Opens the folder again, and returns the text of the skill and the recorded version.
fn reopened_state(folder: &Path) -> (Option<String>, Option<String>) {
    let skills_folder = SkillsFolder::open(folder).unwrap();
    assert!(!folder.join(".installing-x").exists());
    skills_folder.check_replaceable("demo", false).unwrap();
    let recorded_version = skills_folder.lock_file.get("demo").map(|locked| locked.version.clone());
    (fs::read_to_string(folder.join("demo/SKILL.md")).ok(), recorded_version)
}

fn expected_state(text: &str) -> (Option<String>, Option<String>) {
    (Some(text.to_owned()), Some(text.to_owned()))
}

#[test]
fn an_interruption_before_the_first_rename_changes_nothing() {
    let same = InstallNote {
        locked: LockFileEntry { version: "two".to_owned(), ..note("demo", "one").locked },
        ..note("demo", "one")
    };
    for note in [None, Some(note("demo", "two")), Some(same)] {
        let folder = folder_with_skill(Some("one"));
        write_interrupted(folder.path(), note.as_ref(), &[("new/SKILL.md", "two")]);
        assert_eq!(reopened_state(folder.path()), expected_state("one"));
    }
}

#[test]
fn an_interrupted_replacement_is_reverted() {
    let folder = folder_with_skill(Some("one"));
    write_interrupted(folder.path(), Some(&note("demo", "two")), &[("new/SKILL.md", "two")]);
    fs::rename(folder.path().join("demo"), folder.path().join(".installing-x/old")).unwrap();
    assert_eq!(reopened_state(folder.path()), expected_state("one"));
}

#[test]
fn a_completed_replacement_is_recorded() {
    for before in [None, Some("one")] {
        let folder = folder_with_skill(before);
        write_interrupted(folder.path(), Some(&note("demo", "two")), &[("old/SKILL.md", "one")]);
        fs::create_dir_all(folder.path().join("demo")).unwrap();
        fs::write(folder.path().join("demo/SKILL.md"), "two").unwrap();
        assert_eq!(reopened_state(folder.path()), expected_state("two"));
    }
}

#[test]
fn a_failed_replacement_keeps_the_former_skill() {
    let folder = folder_with_skill(Some("one"));
    let mut skills_folder = SkillsFolder::open(folder.path()).unwrap();
    let staged = stage_skill(folder.path(), "two");
    fs::remove_dir_all(staged.paths().folder()).unwrap();
    assert!(skills_folder.move_into_place("demo", staged, note("demo", "two").locked).is_err());
    drop(skills_folder);
    assert_eq!(reopened_state(folder.path()), expected_state("one"));
}

#[test]
fn the_next_program_records_an_unrecorded_skill() {
    let folder = folder_with_skill(Some("one"));
    let mut skills_folder = SkillsFolder::open(folder.path()).unwrap();
    let staged = stage_skill(folder.path(), "two");
    let blocking_folder = staged.paths().new_lock_file();
    fs::create_dir_all(&blocking_folder).unwrap();
    assert!(skills_folder.move_into_place("demo", staged, note("demo", "two").locked).is_err());
    drop(skills_folder);
    fs::remove_dir(blocking_folder).unwrap();
    assert_eq!(reopened_state(folder.path()), expected_state("two"));
}

#[test]
fn a_folder_with_foreign_content_is_not_recorded() {
    let folder = folder_with_skill(None);
    write_interrupted(folder.path(), Some(&note("demo", "two")), &[("old/SKILL.md", "one")]);
    fs::create_dir(folder.path().join("demo")).unwrap();
    fs::write(folder.path().join("demo/SKILL.md"), "mine").unwrap();
    let skills_folder = SkillsFolder::open(folder.path()).unwrap();
    assert!(skills_folder.lock_file.get("demo").is_none() && skills_folder.check_replaceable("demo", false).is_err());
}

/// A staging folder may come with a repository, so its note is not trusted.
#[test]
fn a_note_with_an_invalid_skill_name_moves_nothing() {
    for name in ["../moved", ".moved", "a/moved"] {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("agent");
        fs::create_dir_all(folder.join("a")).unwrap();
        write_interrupted(&folder, Some(&note(name, "two")), &[("old/SKILL.md", "one")]);
        assert!(SkillsFolder::open(&folder).is_err(), "{name}");
        assert!(!folder.join(name).exists(), "{name}");
    }
}

#[test]
fn junk_of_tools_is_no_change() {
    let folder = folder_with_skill(Some("one"));
    let demo = folder.path().join("demo");
    let skills_folder = SkillsFolder::open(folder.path()).unwrap();
    let state = || skills_folder.installed().unwrap()[0].2;
    for junk in [".DS_Store", "__pycache__/a.pyc", "scripts/__pycache__/a.pyc", "node_modules/a/b.js"] {
        fs::create_dir_all(demo.join(junk).parent().unwrap()).unwrap();
        fs::write(demo.join(junk), "junk").unwrap();
    }
    std::os::unix::fs::symlink("/", demo.join(".venv")).unwrap();
    assert_eq!(state(), InstalledState::Unchanged);
    for change in ["more.md", "scripts/more.py", ".env"] {
        fs::write(demo.join(change), "").unwrap();
        assert_eq!(state(), InstalledState::Changed, "{change}");
        fs::remove_file(demo.join(change)).unwrap();
    }
    assert_eq!(state(), InstalledState::Unchanged);
}

/// A package may contain files that are junk elsewhere.
#[test]
fn junk_of_the_release_belongs_to_the_skill() {
    let folder = folder_with_skill(Some("one"));
    let note = |path: &str| {
        let mut note = note("demo", "one");
        note.locked.files.insert(path.to_owned(), Sha256Sum::of(b"junk").to_string());
        note
    };
    for path in [".gitignore", "__pycache__/a.pyc"] {
        let mut skills_folder = SkillsFolder::open(folder.path()).unwrap();
        skills_folder.record_installed(note(path), &StagingPaths::new(folder.path().to_owned())).unwrap();
        let file = folder.path().join("demo").join(path);
        assert_eq!(skills_folder.installed().unwrap()[0].2, InstalledState::Changed, "{path} is missing");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (text, state) in [("other", InstalledState::Changed), ("junk", InstalledState::Unchanged)] {
            fs::write(&file, text).unwrap();
            assert_eq!(skills_folder.installed().unwrap()[0].2, state, "{path}: {text}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_entry_that_cannot_be_read_is_a_change_of_its_skill_alone() {
    use std::os::unix::ffi::OsStrExt as _;
    for name in [&b"big.bin"[..], b"not-unicode-\xff"] {
        let folder = folder_with_skill(Some("one"));
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::write(folder.path().join("other/SKILL.md"), "one").unwrap();
        let mut skills_folder = SkillsFolder::open(folder.path()).unwrap();
        let staging = StagingPaths::new(folder.path().to_owned());
        skills_folder.record_installed(note("other", "one"), &staging).unwrap();
        let file = File::create(folder.path().join("demo").join(std::ffi::OsStr::from_bytes(name))).unwrap();
        file.set_len(PackageLimits::default().file_bytes + 1).unwrap();
        let states: Vec<InstalledState> =
            skills_folder.installed().unwrap().into_iter().map(|(_, _, state)| state).collect();
        assert_eq!(states, [InstalledState::Changed, InstalledState::Unchanged], "{name:?}");
        let demo: SkillRequirement = "demo".parse().unwrap();
        assert!(skills_folder.check_removable(&demo, false).is_err());
        skills_folder.check_removable(&demo, true).unwrap();
        assert!(skills_folder.check_replaceable("demo", false).is_err());
        skills_folder.move_into_place("demo", stage_skill(folder.path(), "two"), note("demo", "two").locked).unwrap();
        assert_eq!(skills_folder.remove("demo").unwrap().as_deref(), Some("two"));
    }
}

#[test]
fn an_open_folder_is_locked_for_other_programs() {
    let folder = folder_with_skill(None);
    let skills_folder = SkillsFolder::open(folder.path()).unwrap();
    let second_handle = File::open(folder.path()).unwrap();
    assert!(second_handle.try_lock().is_err());
    drop(skills_folder);
    assert!(second_handle.try_lock().is_ok());
}
