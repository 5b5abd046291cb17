//! The folder that skills are installed into: by several at once.

use std::fs;
use std::process::{Command, Stdio};

use super::Shop;

#[test]
fn two_installs_into_one_folder_are_both_remembered() {
    let shop = Shop::new();
    shop.build();
    for round in 0..8 {
        let into = format!("agent-{round}");
        let children = ["demo", "other", "demo", "other"].map(|skill| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
            command.current_dir(shop.folder.path()).args(["skills", "install", skill, "--from", "skills.json"]);
            command.args(["--into", &into]).stderr(Stdio::null()).spawn().expect("the program starts")
        });
        for mut child in children {
            assert!(child.wait().expect("it ends").success(), "round {round}");
        }
        let lock = fs::read(shop.at(&into).join("skills.lock.json")).expect("a lock file");
        let lock: serde_json::Value = serde_json::from_slice(&lock).expect("JSON");
        let names: Vec<&String> = lock["skills"].as_object().expect("skills").keys().collect();
        assert_eq!(names, ["demo", "other"], "round {round}");
    }
}

#[test]
fn a_lock_file_that_is_no_plain_file_is_not_passed_over() {
    let shop = Shop::new();
    shop.build();
    fs::create_dir_all(shop.at("agent/skills.lock.json")).expect("a folder");
    let install = ["install", "demo", "--from", "skills.json", "--into", "agent"];
    assert!(shop.bad(&install, 1).contains("no plain file"));
    #[cfg(unix)]
    {
        fs::remove_dir(shop.at("agent/skills.lock.json")).expect("it was there");
        shop.put("elsewhere.json", "mine");
        std::os::unix::fs::symlink("../elsewhere.json", shop.at("agent/skills.lock.json")).expect("a link");
        assert!(shop.bad(&install, 1).contains("no plain file"));
        assert_eq!(fs::read(shop.at("elsewhere.json")).expect("it is there"), b"mine");
    }
    assert!(!shop.at("agent/demo").exists());
}
