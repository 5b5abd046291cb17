//! The repository that packages are made in: what git knows of it, links in it, and what is written there.

use std::fs;
use std::process::Command;

use super::Shop;

#[test]
fn a_package_that_git_does_not_know_is_told() {
    let shop = Shop::new();
    shop.build();
    let git = |arguments: &[&str]| {
        let status = Command::new("git").current_dir(shop.at("")).args(arguments).status();
        assert!(status.expect("git starts").success(), "{arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "packages/other-0.3.0.zip"]);
    let validate = ["validate", "skills.json", "--root", "."];
    let said = shop.good(&validate);
    assert!(said.contains("`packages/demo-1.0.0.zip` is not committed"), "{said}");
    assert!(!said.contains("`packages/other-0.3.0.zip` is not committed"), "{said}");
    git(&["add", "packages"]);
    assert!(!shop.good(&validate).contains("M075"));
}

/// A repository that is looked at may be that of a stranger.
#[cfg(unix)]
#[test]
fn nothing_that_a_repository_configures_is_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let shop = Shop::new();
    shop.build();
    shop.put("hook.sh", "#!/bin/sh\ntouch \"${0%/*}/was-run\"\n");
    fs::set_permissions(shop.at("hook.sh"), fs::Permissions::from_mode(0o755)).expect("permissions");
    let hook = shop.at("hook.sh");
    for arguments in
        [&["init", "--quiet"][..], &["add", "packages"], &["config", "core.fsmonitor", hook.to_str().expect("UTF-8")]]
    {
        let status = Command::new("git").current_dir(shop.at("")).args(arguments).status();
        assert!(status.expect("git starts").success(), "{arguments:?}");
    }
    shop.good(&["validate", "skills.json", "--root", "."]);
    assert!(!shop.at("was-run").exists());
}

#[test]
fn the_time_that_is_given_is_the_one_that_is_written() {
    let (one, other) = (Shop::new(), Shop::new());
    one.build();
    let facts =
        ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
    other.good(&[&["build", "--source-date-epoch", "1700000000"][..], &facts].concat());
    assert_eq!(other.manifest()["generated_at"], "2023-11-14T22:13:20Z");
    assert_eq!(other.manifest()["skills"][0]["updated_at"], "2023-11-14T22:13:20Z");
    let package = |shop: &Shop| fs::read(shop.at("packages/demo-1.0.0.zip")).expect("a package");
    assert_ne!(package(&one), package(&other));
}

#[cfg(unix)]
#[test]
fn what_is_written_anew_is_a_new_file_that_all_may_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let shop = Shop::new();
    shop.build();
    let package = shop.at("packages/demo-1.0.0.zip");
    fs::hard_link(&package, shop.at("pinned.zip")).expect("a link");
    let before = fs::read(&package).expect("a package");
    shop.put("skills/demo/docs/more.md", "Other.\n");
    shop.good(&["build", "--overwrite"]);
    assert_ne!(fs::read(&package).expect("a package"), before);
    assert_eq!(fs::read(shop.at("pinned.zip")).expect("a package"), before);
    for path in ["packages/demo-1.0.0.zip", "skills.json"] {
        assert_eq!(fs::metadata(shop.at(path)).expect("it is there").permissions().mode() & 0o777, 0o644);
    }
}

#[cfg(unix)]
#[test]
fn no_file_is_built_in_the_place_of_a_link() {
    let outside = tempfile::tempdir().expect("a folder");
    for path in ["skills.json", "packages/demo-1.0.0.zip"] {
        let shop = Shop::new();
        shop.build();
        fs::rename(shop.at(path), outside.path().join("theirs")).expect("it moves");
        let theirs = fs::read(outside.path().join("theirs")).expect("a file");
        std::os::unix::fs::symlink(outside.path().join("theirs"), shop.at(path)).expect("a link");
        let facts =
            ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
        let said = shop.bad(&[&["build", "--overwrite"][..], &facts].concat(), 1);
        assert!(said.contains(&format!("{path} is a symbolic link")), "{said}");
        assert_eq!(fs::read(outside.path().join("theirs")).expect("a file"), theirs);
        assert!(shop.at(path).is_symlink());
    }
}
