//! The folder into which skills are installed: concurrent and repeated installs, links, and the lock file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{SkillRepository, files, text};
use crate::hostile;

#[test]
fn concurrent_installs_are_all_written_to_the_lock_file() {
    let shop = SkillRepository::new();
    shop.build();
    for round in 0..8 {
        let into = format!("agent-{round}");
        let children = ["demo", "other", "demo", "other"].map(|skill| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
            command.current_dir(shop.folder.path()).args(["skills", "install", skill, "--from", "skills.json"]);
            command.args(["--into", &into]).stderr(Stdio::null()).spawn().expect("the program starts")
        });
        for mut child in children {
            assert!(child.wait().expect("a child that ends").success(), "round {round}");
        }
        let lock = fs::read(shop.path(&into).join("skills.lock.json")).expect("a lock file");
        let lock: serde_json::Value = serde_json::from_slice(&lock).expect("JSON");
        let names: Vec<&String> = lock["skills"].as_object().expect("skills").keys().collect();
        assert_eq!(names, ["demo", "other"], "round {round}");
    }
}

#[test]
fn a_lock_file_that_is_not_a_regular_file_is_an_error() {
    let shop = SkillRepository::new();
    shop.build();
    fs::create_dir_all(shop.path("agent/skills.lock.json")).expect("a folder");
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    assert!(shop.run_failing(&install, 1).contains("not a regular file"));
    #[cfg(unix)]
    {
        fs::remove_dir(shop.path("agent/skills.lock.json")).expect("an existing folder");
        shop.write_file("elsewhere.json", "mine");
        std::os::unix::fs::symlink("../elsewhere.json", shop.path("agent/skills.lock.json")).expect("a link");
        assert!(shop.run_failing(&install, 1).contains("not a regular file"));
        assert_eq!(fs::read(shop.path("elsewhere.json")).expect("an existing file"), b"mine");
    }
    assert!(!shop.path("agent/demo").exists());
}

#[cfg(unix)]
#[test]
fn an_added_link_is_a_change_and_a_linked_skill_is_not_replaced() {
    let shop = SkillRepository::new();
    shop.build();
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    shop.run_ok(&install);
    std::os::unix::fs::symlink("SKILL.md", shop.path("agent/demo/link.md")).expect("a link");
    assert!(shop.run_failing(&install, 1).contains("was changed since"));
    fs::rename(shop.path("agent/demo"), shop.path("agent/mine")).expect("a renamed folder");
    std::os::unix::fs::symlink("mine", shop.path("agent/demo")).expect("a link");
    assert!(shop.run_failing(&[&install[..], &["--force"]].concat(), 1).contains("is not a folder"));
    assert!(shop.path("agent/demo").is_symlink());
}

#[test]
fn another_release_is_installed_even_if_little_differs() {
    let shop = SkillRepository::new();
    shop.build();
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    shop.run_ok(&install);
    shop.write_file("skills/demo/docs/more.md", "Other.\n");
    shop.run_ok(&["build", "--overwrite"]);
    shop.run_ok(&install);
    assert_eq!(files(&shop.path("agent/demo")), files(&shop.path("skills/demo")));
    let mut manifest = shop.manifest();
    let sum = manifest["skills"][0]["sha256"].as_str().expect("a sum").to_owned();
    manifest["skills"][0]["version"] = "1.0.1".into();
    manifest["skills"][0]["sha256"] = sum.to_uppercase().into();
    shop.write_file("skills.json", &manifest.to_string());
    for message in ["installed demo 1.0.1", "demo 1.0.1 is already installed"] {
        let output = shop.run(&install);
        assert!(output.status.success() && text(&output.stderr).contains(message), "{}", text(&output.stderr));
    }
    let lock = fs::read(shop.path("agent/skills.lock.json")).expect("a lock file");
    let lock: serde_json::Value = serde_json::from_slice(&lock).expect("JSON");
    assert_eq!(lock["skills"]["demo"]["version"], "1.0.1");
    assert_eq!(lock["skills"]["demo"]["sha256"], sum.as_str());
}

#[test]
fn the_outer_folder_of_a_package_is_not_installed() {
    use imagate::manifest::package::Sha256Sum;
    let shop = SkillRepository::new();
    shop.build();
    let parts = ["demo/SKILL.md", "demo/docs/more.md"].map(|name| hostile::ZipEntry::file(name, hostile::SKILL));
    let package = hostile::Zip::of(parts.to_vec()).build();
    let mut manifest = shop.manifest();
    manifest["skills"][0]["sha256"] = Sha256Sum::of(&package).to_string().into();
    manifest["skills"][0]["size_bytes"] = package.len().into();
    fs::write(shop.path("packages/demo-1.0.0.zip"), package).expect("a package");
    shop.write_file("skills.json", &manifest.to_string());
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    shop.run_ok(&install);
    let installed = files(&shop.path("agent/demo"));
    assert_eq!(installed.keys().collect::<Vec<_>>(), [Path::new("SKILL.md"), Path::new("docs/more.md")]);
    let second = shop.run(&install);
    assert!(
        second.status.success() && text(&second.stderr).contains("is already installed"),
        "{}",
        text(&second.stderr)
    );
}
