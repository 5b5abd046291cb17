//! The folder into which skills are installed: concurrent and repeated installs, links, and the lock file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{SkillRepository, files, text};
use crate::hostile;

#[test]
fn concurrent_installs_are_all_written_to_the_lock_file() {
    let repo = SkillRepository::new();
    repo.build();
    for round in 0..8 {
        let into = format!("agent-{round}");
        let children = ["demo", "other", "demo", "other"].map(|skill| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
            command.current_dir(repo.folder.path()).args(["skills", "install", skill, "--from", "skills.json"]);
            command.args(["--into", &into]).stderr(Stdio::null()).spawn().expect("the program starts")
        });
        for mut child in children {
            assert!(child.wait().expect("a child that ends").success(), "round {round}");
        }
        let lock = fs::read(repo.path(&into).join("skills.lock.json")).expect("a lock file");
        let lock: serde_json::Value = serde_json::from_slice(&lock).expect("JSON");
        let names: Vec<&String> = lock["skills"].as_object().expect("skills").keys().collect();
        assert_eq!(names, ["demo", "other"], "round {round}");
    }
}

/// Programs that agents run leave files beside a skill.
#[test]
fn leftovers_of_programs_are_no_change_and_large_files_stop_no_command() {
    let repo = SkillRepository::new();
    repo.build();
    let install = ["install", "demo", "other", "--from", "skills.json", "--into", "agent"];
    repo.run_ok(&install);
    repo.write_file("agent/demo/scripts/__pycache__/run.pyc", "junk");
    repo.write_file("agent/demo/.DS_Store", "junk");
    let list = || repo.run_ok(&["list", "--into", "agent"]);
    assert_eq!(list(), "NAME   VERSION  STATE\ndemo   1.0.0    unchanged\nother  0.3.0    unchanged\n");
    repo.write_file("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    repo.run_ok(&["build"]);
    repo.run_ok(&install);
    repo.write_file("agent/demo/model.bin", "");
    let file = fs::File::options().write(true).open(repo.path("agent/demo/model.bin")).expect("a file");
    file.set_len((100 << 20) + 1).expect("a sparse file");
    assert_eq!(list(), "NAME   VERSION  STATE\ndemo   1.1.0    changed\nother  0.3.0    unchanged\n");
    assert!(repo.run_failing(&install, 1).contains("agent/demo was changed since"));
    repo.run_ok(&[&install[..], &["--force"]].concat());
    assert_eq!(files(&repo.path("agent/demo")), files(&repo.path("skills/demo")));
    let file = fs::File::create(repo.path("agent/demo/model.bin")).expect("a file");
    file.set_len((100 << 20) + 1).expect("a sparse file");
    assert!(repo.run_failing(&["remove", "demo", "--into", "agent"], 1).contains("pass --force"));
    repo.run_ok(&["remove", "demo", "--into", "agent", "--force"]);
    assert!(!repo.path("agent/demo").exists());
}

#[test]
fn a_lock_file_that_is_not_a_regular_file_is_an_error() {
    let repo = SkillRepository::new();
    repo.build();
    fs::create_dir_all(repo.path("agent/skills.lock.json")).expect("a folder");
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    assert!(repo.run_failing(&install, 1).contains("not a regular file"));
    #[cfg(unix)]
    {
        fs::remove_dir(repo.path("agent/skills.lock.json")).expect("an existing folder");
        repo.write_file("elsewhere.json", "mine");
        std::os::unix::fs::symlink("../elsewhere.json", repo.path("agent/skills.lock.json")).expect("a link");
        assert!(repo.run_failing(&install, 1).contains("not a regular file"));
        assert_eq!(fs::read(repo.path("elsewhere.json")).expect("an existing file"), b"mine");
    }
    assert!(!repo.path("agent/demo").exists());
}

#[cfg(unix)]
#[test]
fn an_added_link_is_a_change_and_a_linked_skill_is_not_replaced() {
    let repo = SkillRepository::new();
    repo.build();
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    repo.run_ok(&install);
    std::os::unix::fs::symlink("SKILL.md", repo.path("agent/demo/link.md")).expect("a link");
    assert!(repo.run_failing(&install, 1).contains("was changed since"));
    fs::rename(repo.path("agent/demo"), repo.path("agent/mine")).expect("a renamed folder");
    std::os::unix::fs::symlink("mine", repo.path("agent/demo")).expect("a link");
    assert!(repo.run_failing(&[&install[..], &["--force"]].concat(), 1).contains("is not a folder"));
    assert!(repo.path("agent/demo").is_symlink());
}

#[test]
fn another_release_is_installed_even_if_little_differs() {
    let repo = SkillRepository::new();
    repo.build();
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    repo.run_ok(&install);
    repo.write_file("skills/demo/docs/more.md", "Other.\n");
    repo.run_ok(&["build", "--overwrite"]);
    repo.run_ok(&install);
    assert_eq!(files(&repo.path("agent/demo")), files(&repo.path("skills/demo")));
    repo.write_file("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.0.1"));
    repo.run_ok(&["build"]);
    let mut manifest = repo.manifest();
    let sum = manifest["skills"][0]["sha256"].as_str().expect("a sum").to_owned();
    manifest["skills"][0]["sha256"] = sum.to_uppercase().into();
    repo.write_file("skills.json", &manifest.to_string());
    for message in ["installed demo 1.0.1", "demo 1.0.1 is already installed"] {
        let output = repo.command(&install).output().expect("the program starts");
        assert!(output.status.success() && text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    let lock = fs::read(repo.path("agent/skills.lock.json")).expect("a lock file");
    let lock: serde_json::Value = serde_json::from_slice(&lock).expect("JSON");
    assert_eq!(lock["skills"]["demo"]["version"], "1.0.1");
    assert_eq!(lock["skills"]["demo"]["sha256"], sum.as_str());
}

/// The front matter of a package may have another Unicode form than the manifest.
#[test]
fn a_name_is_installed_in_any_unicode_form() {
    let repo = SkillRepository::new();
    repo.write_file("skills/größe/SKILL.md", &hostile::SKILL.replace("demo", "gro\u{308}ße"));
    repo.build();
    repo.run_ok(&["validate", "--root", "."]);
    repo.run_ok(&["install", "größe", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&repo.path("agent/größe")), files(&repo.path("skills/größe")));
}

#[test]
fn the_outer_folder_of_a_package_is_not_installed() {
    use imagate::manifest::package::Sha256Sum;
    let repo = SkillRepository::new();
    repo.build();
    let parts = ["demo/SKILL.md", "demo/docs/more.md"].map(|name| hostile::ZipEntry::file(name, hostile::SKILL));
    let package = hostile::Zip::of(parts.to_vec()).build();
    let mut manifest = repo.manifest();
    manifest["skills"][0]["sha256"] = Sha256Sum::of(&package).to_string().into();
    manifest["skills"][0]["size_bytes"] = package.len().into();
    fs::write(repo.path("packages/demo-1.0.0.zip"), package).expect("a package");
    repo.write_file("skills.json", &manifest.to_string());
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    repo.run_ok(&install);
    let installed = files(&repo.path("agent/demo"));
    assert_eq!(installed.keys().collect::<Vec<_>>(), [Path::new("SKILL.md"), Path::new("docs/more.md")]);
    let second = repo.command(&install).output().expect("the program starts");
    assert!(
        second.status.success() && text(&second.stderr).contains("is already installed"),
        "{}",
        text(&second.stderr)
    );
}
