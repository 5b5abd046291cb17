//! The repository in which packages are built: its state in git, symbolic links in it, and the written files.

use std::fs;
use std::process::Command;

use super::SkillRepository;

#[test]
fn a_package_that_git_does_not_track_is_reported() {
    let repo = SkillRepository::new();
    repo.build();
    let git = |arguments: &[&str]| {
        let status = Command::new("git").current_dir(repo.path("")).args(arguments).status();
        assert!(status.expect("git starts").success(), "{arguments:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "packages/other-0.3.0.zip"]);
    let validate = ["validate", "skills.json", "--root", "."];
    let output = repo.run_ok(&validate);
    assert!(output.contains("`packages/demo-1.0.0.zip` is not committed"), "{output}");
    assert!(!output.contains("`packages/other-0.3.0.zip` is not committed"), "{output}");
    git(&["add", "packages"]);
    assert!(!repo.run_ok(&validate).contains("M075"));
}

/// A checked repository may be untrusted.
#[cfg(unix)]
#[test]
fn programs_configured_in_a_repository_are_not_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let repo = SkillRepository::new();
    repo.build();
    repo.write_file("hook.sh", "#!/bin/sh\ntouch \"${0%/*}/was-run\"\n");
    fs::set_permissions(repo.path("hook.sh"), fs::Permissions::from_mode(0o755)).expect("permissions");
    let hook = repo.path("hook.sh");
    for arguments in
        [&["init", "--quiet"][..], &["add", "packages"], &["config", "core.fsmonitor", hook.to_str().expect("UTF-8")]]
    {
        let status = Command::new("git").current_dir(repo.path("")).args(arguments).status();
        assert!(status.expect("git starts").success(), "{arguments:?}");
    }
    repo.run_ok(&["validate", "skills.json", "--root", "."]);
    assert!(!repo.path("was-run").exists());
}

#[test]
fn a_given_source_date_epoch_is_written() {
    let (first, second) = (SkillRepository::new(), SkillRepository::new());
    first.build();
    let repository_arguments =
        ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
    second.run_ok(&[&["build", "--source-date-epoch", "1700000000"][..], &repository_arguments].concat());
    assert_eq!(second.manifest()["generated_at"], "2023-11-14T22:13:20Z");
    assert_eq!(second.manifest()["skills"][0]["updated_at"], "2023-11-14T22:13:20Z");
    let package = |repo: &SkillRepository| fs::read(repo.path("packages/demo-1.0.0.zip")).expect("a package");
    assert_ne!(package(&first), package(&second));
}

#[cfg(unix)]
#[test]
fn overwriting_creates_new_files_readable_by_all() {
    use std::os::unix::fs::PermissionsExt as _;
    let repo = SkillRepository::new();
    repo.build();
    let package = repo.path("packages/demo-1.0.0.zip");
    fs::hard_link(&package, repo.path("pinned.zip")).expect("a link");
    let before = fs::read(&package).expect("a package");
    repo.write_file("skills/demo/docs/more.md", "Other.\n");
    repo.run_ok(&["build", "--overwrite"]);
    assert_ne!(fs::read(&package).expect("a package"), before);
    assert_eq!(fs::read(repo.path("pinned.zip")).expect("a package"), before);
    for path in ["packages/demo-1.0.0.zip", "skills.json"] {
        assert_eq!(fs::metadata(repo.path(path)).expect("an existing file").permissions().mode() & 0o777, 0o644);
    }
}

#[cfg(unix)]
#[test]
fn a_build_does_not_replace_a_symbolic_link() {
    let outside = tempfile::tempdir().expect("a folder");
    for path in ["skills.json", "packages/demo-1.0.0.zip"] {
        let repo = SkillRepository::new();
        repo.build();
        fs::rename(repo.path(path), outside.path().join("theirs")).expect("a renamed file");
        let original = fs::read(outside.path().join("theirs")).expect("a file");
        std::os::unix::fs::symlink(outside.path().join("theirs"), repo.path(path)).expect("a link");
        let repository_arguments =
            ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
        let output = repo.run_failing(&[&["build", "--overwrite"][..], &repository_arguments].concat(), 1);
        assert!(output.contains(&format!("{path} is a symbolic link")), "{output}");
        assert_eq!(fs::read(outside.path().join("theirs")).expect("a file"), original);
        assert!(repo.path(path).is_symlink());
    }
}
