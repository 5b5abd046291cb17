//! End-to-end tests of the commands that build, verify and install packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::hostile;

#[path = "packages/checkout.rs"]
mod checkout;
#[path = "packages/hostile_packages.rs"]
mod hostile_packages;
#[path = "packages/install_folder.rs"]
mod install_folder;

/// A temporary repository of skills.
pub(crate) struct SkillRepository {
    folder: tempfile::TempDir,
}

impl SkillRepository {
    /// Creates a repository with the skills `demo` and `other`, without packages and manifest.
    pub(crate) fn new() -> Self {
        let repo = Self { folder: tempfile::tempdir().expect("a folder") };
        repo.write_file("skills/demo/SKILL.md", hostile::SKILL);
        repo.write_file("skills/demo/scripts/run.sh", "#!/bin/sh\nexit 0\n");
        repo.write_file("skills/demo/docs/more.md", &"More of it.\n".repeat(200));
        repo.write_file("skills/other/SKILL.md", &hostile::SKILL.replace("demo", "other").replace("1.0.0", "0.3.0"));
        repo
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn write_file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        command.current_dir(self.folder.path()).env_remove("SOURCE_DATE_EPOCH").arg("skills").args(arguments);
        command
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn run_ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("the program starts");
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must end with this exit code, and returns its standard output and error.
    pub(crate) fn run_failing(&self, arguments: &[&str], code: i32) -> String {
        let output = self.command(arguments).output().expect("the program starts");
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        printed
    }

    fn build(&self) {
        self.build_for("https://example.com");
    }

    pub(crate) fn build_for(&self, host: &str) {
        let (git, raw) = (format!("{host}/e/s.git"), format!("{host}/e/s/raw/main"));
        let repository_arguments = ["--repository", "e/s", "--git-url", &git];
        let further_arguments = ["--raw-base-url", &raw, "--branch", "main"];
        self.run_ok(&[&["build"][..], &repository_arguments, &further_arguments].concat());
    }

    pub(crate) fn manifest(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.path("skills.json")).expect("a manifest")).expect("JSON")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The bytes of every file below a folder, by relative path.
pub(crate) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            match path.symlink_metadata().expect("metadata") {
                metadata if metadata.is_dir() => folders.push(path),
                metadata if metadata.is_file() => {
                    found.insert(path.strip_prefix(root).expect("below").to_owned(), fs::read(&path).expect("a file"));
                }
                _ => panic!("{} is not a regular file", path.display()),
            }
        }
    }
    found
}

#[test]
fn builds_are_valid_and_reproducible() {
    let (first, second) = (SkillRepository::new(), SkillRepository::new());
    first.build();
    second.build();
    let without_time = |repo: &SkillRepository| {
        let mut files = files(repo.folder.path());
        files.remove(Path::new("skills.json"));
        files
    };
    assert_eq!(without_time(&first), without_time(&second));
    assert_eq!(first.manifest()["skills"][0]["sha256"], second.manifest()["skills"][0]["sha256"]);
    first.run_ok(&["validate", "skills.json", "--root", ".", "--strict"]);
    first.run_ok(&["verify"]);
    assert_eq!(first.run_ok(&["build", "--check"]), "");
    let before = files(first.folder.path());
    first.run_ok(&["build"]);
    assert_eq!(files(first.folder.path()), before);
}

#[test]
fn build_check_lists_stale_files_and_writes_nothing() {
    let repo = SkillRepository::new();
    repo.build();
    repo.write_file("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    let before = files(repo.folder.path());
    let stale = "packages/demo-1.1.0.zip\nskills.json\npackages: new 1, unchanged 1\n";
    assert_eq!(repo.run_failing(&["build", "--check"], 1), stale);
    assert_eq!(files(repo.folder.path()), before);
    repo.run_ok(&["build"]);
    assert_eq!(repo.run_ok(&["build", "--check"]), "");
    // The previous package is kept for users who have pinned it.
    assert!(repo.path("packages/demo-1.0.0.zip").exists() && repo.path("packages/demo-1.1.0.zip").exists());
}

#[test]
fn build_check_covers_the_api_references() {
    let repo = SkillRepository::new();
    let document = |title: &str| format!("---\ntitle: {title}\nproduct: images\nlanguage: http\n---\n");
    repo.write_file("apis/images.md", &document("Images"));
    repo.build();
    assert_eq!(repo.run_ok(&["build", "--check"]), "");
    repo.run_ok(&["validate", "skills.json", "--root", ".", "--strict"]);
    repo.write_file("apis/images.md", &document("Pictures"));
    let before = files(repo.folder.path());
    assert_eq!(repo.run_failing(&["build", "--check"], 1), "skills.json\npackages: new 0, unchanged 2\n");
    assert_eq!(files(repo.folder.path()), before);
    repo.run_ok(&["build"]);
    assert_eq!(repo.manifest()["apis"][0]["title"], "Pictures");
    repo.write_file("apis/images.md", "---\ntitle: Pictures\nproduct: images\n---\n");
    let output = repo.run_failing(&["build", "--check"], 1);
    assert!(output.contains("apis/images.md:2:1: has no `language`"), "{output}");
    fs::remove_file(repo.path("apis/images.md")).expect("an existing file");
    assert!(
        repo.run_failing(&["build", "--check"], 1)
            .contains("`images` no longer exists and is removed from the manifest")
    );
    repo.write_file("docs/images.md", &document("Elsewhere"));
    repo.run_ok(&["build", "--apis", "docs/"]);
    assert_eq!(repo.manifest()["apis"][0]["path"], "docs/images.md");
}

#[test]
fn changed_content_needs_a_new_version_and_changed_packages_are_found() {
    let repo = SkillRepository::new();
    repo.build();
    fs::remove_file(repo.path("skills/demo/docs/more.md")).expect("an existing file");
    assert!(repo.run_failing(&["build"], 1).contains("raise `metadata.version`"));
    repo.write_file("skills/demo/docs/more.md", "Other.\n");
    assert!(repo.run_failing(&["build"], 1).contains("raise `metadata.version`"));
    assert!(repo.run_failing(&["validate", "skills.json", "--root", "."], 1).contains("M090"));
    repo.run_ok(&["verify"]);
    let mut bytes = fs::read(repo.path("packages/demo-1.0.0.zip")).expect("a package");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(repo.path("packages/demo-1.0.0.zip"), bytes).expect("a written file");
    assert!(repo.run_failing(&["verify"], 1).contains("M073"));
    let mut manifest = repo.manifest();
    for key in ["sha256", "size_bytes"] {
        manifest["skills"][0].as_object_mut().expect("an entry").remove(key);
    }
    repo.write_file("skills.json", &manifest.to_string());
    assert!(repo.run_failing(&["verify"], 1).contains("sha256"));
}

#[test]
fn a_build_removes_the_byte_order_mark_of_a_manifest() {
    let repo = SkillRepository::new();
    repo.build();
    let text = fs::read_to_string(repo.path("skills.json")).expect("a manifest");
    repo.write_file("skills.json", &format!("\u{feff}{text}"));
    repo.run_ok(&["build"]);
    assert_eq!(fs::read_to_string(repo.path("skills.json")).expect("a manifest"), text);
}

/// A package that cannot be read is an error, whatever its path looks like.
#[test]
fn a_package_with_an_invalid_path_is_always_an_error() {
    let repo = SkillRepository::new();
    repo.build();
    let deep_path = format!("{}demo-1.0.0.zip", "a/".repeat(64));
    let paths = [
        "../packages/demo-1.0.0.zip",
        "/tmp/demo-1.0.0.zip",
        "packages//demo-1.0.0.zip",
        "packages/./demo-1.0.0.zip",
        "packages\\demo-1.0.0.zip",
        "packages/a:b.zip",
        "packages/con.zip",
        "packages/com0.zip",
        "packages/a\u{200b}.zip",
        "packages/\u{202e}piz.zip",
        "packages/a\u{1b}[2J.zip",
        deep_path.as_str(),
        "",
    ];
    let valid = repo.manifest();
    for path in paths {
        let mut manifest = valid.clone();
        manifest["skills"][0]["package"] = path.into();
        repo.write_file("skills.json", &manifest.to_string());
        for command in [&["verify"][..], &["validate", "skills.json", "--root", "."]] {
            let output = repo.run_failing(command, 1);
            assert!(output.contains("M071") && !output.contains('\u{1b}'), "{path:?}: {output}");
        }
    }
}

#[cfg(unix)]
#[test]
fn nothing_is_built_through_a_symbolic_link() {
    let repo = SkillRepository::new();
    let outside = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(outside.path(), repo.path("packages")).expect("a link");
    let repository_arguments =
        ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
    let output = repo.run_failing(&[&["build"][..], &repository_arguments].concat(), 1);
    assert!(output.contains("packages"), "{output}");
    assert_eq!(files(outside.path()).len(), 0);
    std::os::unix::fs::symlink("demo", repo.path("skills/alias")).expect("a link");
    let output = repo.run_failing(&[&["build"][..], &repository_arguments].concat(), 1);
    assert!(output.contains("skills/alias: is a symbolic link"), "{output}");
}

#[test]
fn an_installed_skill_equals_its_package_and_is_locked() {
    let repo = SkillRepository::new();
    repo.build();
    repo.run_ok(&["install", "demo", "other@^0.3", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&repo.path("agent/demo")), files(&repo.path("skills/demo")));
    let lock: serde_json::Value =
        serde_json::from_slice(&fs::read(repo.path("agent/skills.lock.json")).unwrap()).unwrap();
    assert_eq!(lock["skills"]["demo"]["sha256"], repo.manifest()["skills"][0]["sha256"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &str| fs::metadata(repo.path(path)).expect("an existing path").permissions().mode() & 0o777;
        assert_eq!(mode("agent/demo/scripts/run.sh") & 0o100, 0o100);
        assert_eq!(mode("agent/demo/SKILL.md") & 0o111, 0);
    }
    let before = files(&repo.path("agent"));
    repo.run_ok(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&repo.path("agent")), before);
    repo.write_file("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    repo.run_ok(&["build"]);
    repo.run_ok(&["install", "demo@^1", "--from", "skills.json", "--into", "agent"]);
    assert!(text(&files(&repo.path("agent"))[Path::new("demo/SKILL.md")]).contains("1.1.0"));
    assert_eq!(fs::read_dir(repo.path("agent")).expect("an existing path").count(), 3);
}

#[test]
fn folders_made_or_changed_by_users_are_not_replaced() {
    let repo = SkillRepository::new();
    repo.build();
    repo.write_file("agent/other/SKILL.md", "mine");
    let output = repo.run_failing(&["install", "other", "--from", "skills.json", "--into", "agent"], 1);
    assert!(output.contains("was not installed by this program"), "{output}");
    repo.run_ok(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    repo.write_file("agent/demo/docs/more.md", "changed by hand");
    let output = repo.run_failing(&["install", "demo", "--from", "skills.json", "--into", "agent"], 1);
    assert!(output.contains("was changed since"), "{output}");
    repo.run_ok(&["install", "demo", "other", "--force", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&repo.path("agent/demo")), files(&repo.path("skills/demo")));
    assert!(
        repo.run_failing(&["install", "none", "--from", "skills.json", "--into", "agent"], 1)
            .contains("no skill `none`")
    );
    assert!(repo.run_failing(&["install", "../demo", "--from", "skills.json", "--into", "agent"], 2).contains("NAME"));
}

#[test]
fn a_package_with_a_wrong_checksum_is_not_installed() {
    let repo = SkillRepository::new();
    repo.build();
    let package = repo.path("packages/demo-1.0.0.zip");
    let bytes = fs::read(&package).expect("a package");
    for wrong_bytes in [b"not an archive".to_vec(), bytes[..bytes.len() - 1].to_vec(), [bytes, b"x".to_vec()].concat()]
    {
        fs::write(&package, wrong_bytes).expect("a written file");
        let output = repo.run_failing(&["install", "demo", "--from", "skills.json", "--into", "agent"], 1);
        assert!(output.contains("is not safe to install: ") && output.contains("M073"), "{output}");
        assert_eq!(files(&repo.path("agent")).len(), 0);
    }
}

/// A manifest and a `SKILL.md` are untrusted input.
#[test]
fn text_of_a_manifest_sends_no_escapes_to_a_terminal() {
    let repo = SkillRepository::new();
    repo.build();
    let valid = repo.manifest();
    let version = "1.0.0+\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}";
    let run_without_escapes = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        // `CLICOLOR_FORCE` keeps the escape sequences in the output, as on a terminal.
        command.current_dir(repo.folder.path()).env("CLICOLOR_FORCE", "1").arg("skills").args(arguments);
        let output = command.output().expect("the program starts").stderr;
        let own_escapes = ["\u{1b}[1m", "\u{1b}[31m", "\u{1b}[0m"];
        let output = own_escapes.iter().fold(text(&output), |text, escape| text.replace(escape, ""));
        assert!(!output.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{arguments:?}: {output:?}");
        assert!(output.contains("\\u{1b}"), "{arguments:?}: {output:?}");
    };
    let replace_package = |document: &str, version: &str| {
        let package = hostile::Zip::of(vec![hostile::ZipEntry::file("SKILL.md", document)]).build();
        let mut manifest = valid.clone();
        manifest["skills"][0]["version"] = version.into();
        manifest["skills"][0]["sha256"] = imagate::manifest::package::Sha256Sum::of(&package).to_string().into();
        manifest["skills"][0]["size_bytes"] = package.len().into();
        fs::write(repo.path("packages/demo-1.0.0.zip"), package).expect("a package");
        repo.write_file("skills.json", &manifest.to_string());
    };
    replace_package(&hostile::SKILL.replace("metadata:\n  version: \"1.0.0\"\n", ""), version);
    for _ in ["installed", "it is there"] {
        run_without_escapes(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    }
    run_without_escapes(&["install", "demo@^2", "--from", "skills.json", "--into", "agent"]);
    // The refusal names the version of the manifest, which is not that of `SKILL.md`.
    replace_package(hostile::SKILL, version);
    run_without_escapes(&["install", "demo", "--from", "skills.json", "--into", "another"]);
}

/// An install that is killed at a critical moment and started again succeeds without `--force`, and leaves one complete
/// release.
#[cfg(unix)]
#[test]
fn a_killed_install_is_completed_or_rolled_back() {
    let repo = SkillRepository::new();
    repo.build();
    let install = |version: &str| repo.command(&["install", version, "--from", "skills.json", "--into", "agent"]);
    repo.write_file("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    fs::rename(repo.path("skills.json"), repo.path("old.json")).expect("a renamed file");
    fs::copy(repo.path("old.json"), repo.path("skills.json")).expect("a copy");
    repo.run_ok(&["build"]);
    let mut manifest = repo.manifest();
    let old: serde_json::Value =
        serde_json::from_slice(&fs::read(repo.path("old.json")).expect("a file")).expect("JSON");
    manifest["skills"].as_array_mut().expect("a list").push(old["skills"][0].clone());
    repo.write_file("skills.json", &manifest.to_string());
    let mut killed = 0;
    let moments: [fn(&[PathBuf]) -> bool; 4] = [
        |paths| !paths.is_empty(),
        |paths| paths.iter().any(|path| path.ends_with("new/SKILL.md")),
        |paths| paths.iter().any(|path| path.ends_with("note.json")),
        |paths| paths.iter().any(|path| path.ends_with("old")),
    ];
    for (round, is_reached) in moments.iter().cycle().take(24).enumerate() {
        let version = ["demo@1.0.0", "demo@1.1.0"][round % 2];
        let mut child = install(version).stderr(std::process::Stdio::null()).spawn().expect("the program starts");
        let staged_paths = || -> Vec<PathBuf> {
            let all = paths_below(&repo.path("agent"));
            all.into_iter().filter(|path| path.to_string_lossy().contains(".installing-")).collect()
        };
        while child.try_wait().expect("a child").is_none() && !is_reached(&staged_paths()) {}
        killed += usize::from(child.try_wait().expect("a child").is_none());
        child.kill().expect("a child that is killed or has ended");
        child.wait().expect("a child that ends");
        let output = install(version).output().expect("the program starts");
        assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
        let paths =
            fs::read_dir(repo.path("agent")).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable();
        assert_eq!(paths, ["demo", "skills.lock.json"]);
        assert!(text(&files(&repo.path("agent/demo"))[Path::new("SKILL.md")]).contains(&version["demo@".len()..]));
    }
    assert!(killed > 0, "no install was killed before its end");
}

fn paths_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            // Another program may delete the entry at the same time.
            let Ok(path) = entry.map(|entry| entry.path()) else { continue };
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn the_index_is_printed_or_written() {
    let repo = SkillRepository::new();
    repo.build();
    let printed = repo.run_ok(&["export"]);
    let index: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let sum = repo.manifest()["skills"][0]["sha256"].as_str().expect("a sum").to_owned();
    assert_eq!(index["skills"][0]["digest"], format!("sha256:{sum}"));
    repo.run_ok(&[
        "export",
        "skills.json",
        "--base-url",
        "/skills",
        "-o",
        "public/.well-known/agent-skills/index.json",
    ]);
    let written =
        fs::read_to_string(repo.path("public/.well-known/agent-skills/index.json")).expect("an existing path");
    assert!(written.contains("\"/skills/packages/demo-1.0.0.zip\""));
}
