//! End-to-end tests of the commands that build, verify and install packages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::hostile;

#[path = "packages/checkout.rs"]
mod checkout;
#[path = "packages/place.rs"]
mod place;

/// A temporary repository of skills.
pub(crate) struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    /// Creates a repository with the skills `demo` and `other`, without packages and manifest.
    pub(crate) fn new() -> Self {
        let shop = Self { folder: tempfile::tempdir().expect("a folder") };
        shop.put("skills/demo/SKILL.md", hostile::SKILL);
        shop.put("skills/demo/scripts/run.sh", "#!/bin/sh\nexit 0\n");
        shop.put("skills/demo/docs/more.md", &"More of it.\n".repeat(200));
        shop.put("skills/other/SKILL.md", &hostile::SKILL.replace("demo", "other").replace("1.0.0", "0.3.0"));
        shop
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        command.current_dir(self.folder.path()).env_remove("SOURCE_DATE_EPOCH").arg("skills").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must end with this exit code, and returns its standard output and error.
    pub(crate) fn bad(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
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
        self.good(&[&["build"][..], &repository_arguments, &further_arguments].concat());
    }

    pub(crate) fn manifest(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.at("skills.json")).expect("a manifest")).expect("JSON")
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
    let (first, second) = (Shop::new(), Shop::new());
    first.build();
    second.build();
    let without_time = |shop: &Shop| {
        let mut files = files(shop.folder.path());
        files.remove(Path::new("skills.json"));
        files
    };
    assert_eq!(without_time(&first), without_time(&second));
    assert_eq!(first.manifest()["skills"][0]["sha256"], second.manifest()["skills"][0]["sha256"]);
    first.good(&["validate", "skills.json", "--root", ".", "--strict"]);
    first.good(&["verify"]);
    assert_eq!(first.good(&["build", "--check"]), "");
    let before = files(first.folder.path());
    first.good(&["build"]);
    assert_eq!(files(first.folder.path()), before);
}

#[test]
fn build_check_lists_stale_files_and_writes_nothing() {
    let shop = Shop::new();
    shop.build();
    shop.put("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    let before = files(shop.folder.path());
    assert_eq!(shop.bad(&["build", "--check"], 1), "packages/demo-1.1.0.zip\nskills.json\n");
    assert_eq!(files(shop.folder.path()), before);
    shop.good(&["build"]);
    assert_eq!(shop.good(&["build", "--check"]), "");
    // The previous package is kept for users who have pinned it.
    assert!(shop.at("packages/demo-1.0.0.zip").exists() && shop.at("packages/demo-1.1.0.zip").exists());
}

#[test]
fn build_check_covers_the_api_references() {
    let shop = Shop::new();
    let document = |title: &str| format!("---\ntitle: {title}\nproduct: images\nlanguage: http\n---\n");
    shop.put("apis/images.md", &document("Images"));
    shop.build();
    assert_eq!(shop.good(&["build", "--check"]), "");
    shop.good(&["validate", "skills.json", "--root", ".", "--strict"]);
    shop.put("apis/images.md", &document("Pictures"));
    let before = files(shop.folder.path());
    assert_eq!(shop.bad(&["build", "--check"], 1), "skills.json\n");
    assert_eq!(files(shop.folder.path()), before);
    shop.good(&["build"]);
    assert_eq!(shop.manifest()["apis"][0]["title"], "Pictures");
    shop.put("apis/images.md", "---\ntitle: Pictures\nproduct: images\n---\n");
    let output = shop.bad(&["build", "--check"], 1);
    assert!(output.contains("apis/images.md:2:1: has no `language`"), "{output}");
    fs::remove_file(shop.at("apis/images.md")).expect("an existing file");
    assert!(shop.bad(&["build", "--check"], 1).contains("`images` no longer exists and is removed from the manifest"));
    shop.put("docs/images.md", &document("Elsewhere"));
    shop.good(&["build", "--apis", "docs/"]);
    assert_eq!(shop.manifest()["apis"][0]["path"], "docs/images.md");
}

#[test]
fn changed_content_needs_a_new_version_and_changed_packages_are_found() {
    let shop = Shop::new();
    shop.build();
    fs::remove_file(shop.at("skills/demo/docs/more.md")).expect("an existing file");
    assert!(shop.bad(&["build"], 1).contains("raise `metadata.version`"));
    shop.put("skills/demo/docs/more.md", "Other.\n");
    assert!(shop.bad(&["build"], 1).contains("raise `metadata.version`"));
    assert!(shop.bad(&["validate", "skills.json", "--root", "."], 1).contains("M090"));
    shop.good(&["verify"]);
    let mut bytes = fs::read(shop.at("packages/demo-1.0.0.zip")).expect("a package");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(shop.at("packages/demo-1.0.0.zip"), bytes).expect("a written file");
    assert!(shop.bad(&["verify"], 1).contains("M073"));
    let mut manifest = shop.manifest();
    for key in ["sha256", "size_bytes"] {
        manifest["skills"][0].as_object_mut().expect("an entry").remove(key);
    }
    shop.put("skills.json", &manifest.to_string());
    assert!(shop.bad(&["verify"], 1).contains("sha256"));
}

#[test]
fn a_build_removes_the_byte_order_mark_of_a_manifest() {
    let shop = Shop::new();
    shop.build();
    let text = fs::read_to_string(shop.at("skills.json")).expect("a manifest");
    shop.put("skills.json", &format!("\u{feff}{text}"));
    shop.good(&["build"]);
    assert_eq!(fs::read_to_string(shop.at("skills.json")).expect("a manifest"), text);
}

/// A package that cannot be read is an error, whatever its path looks like.
#[test]
fn a_package_with_an_invalid_path_is_always_an_error() {
    let shop = Shop::new();
    shop.build();
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
    let valid = shop.manifest();
    for path in paths {
        let mut manifest = valid.clone();
        manifest["skills"][0]["package"] = path.into();
        shop.put("skills.json", &manifest.to_string());
        for command in [&["verify"][..], &["validate", "skills.json", "--root", "."]] {
            let output = shop.bad(command, 1);
            assert!(output.contains("M071") && !output.contains('\u{1b}'), "{path:?}: {output}");
        }
    }
}

#[cfg(unix)]
#[test]
fn nothing_is_built_through_a_symbolic_link() {
    let shop = Shop::new();
    let outside = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(outside.path(), shop.at("packages")).expect("a link");
    let repository_arguments =
        ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
    let output = shop.bad(&[&["build"][..], &repository_arguments].concat(), 1);
    assert!(output.contains("packages"), "{output}");
    assert_eq!(files(outside.path()).len(), 0);
    std::os::unix::fs::symlink("demo", shop.at("skills/alias")).expect("a link");
    let output = shop.bad(&[&["build"][..], &repository_arguments].concat(), 1);
    assert!(output.contains("skills/alias: is a symbolic link"), "{output}");
}

#[test]
fn an_installed_skill_equals_its_package_and_is_locked() {
    let shop = Shop::new();
    shop.build();
    shop.good(&["install", "demo", "other@^0.3", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&shop.at("agent/demo")), files(&shop.at("skills/demo")));
    let lock: serde_json::Value =
        serde_json::from_slice(&fs::read(shop.at("agent/skills.lock.json")).unwrap()).unwrap();
    assert_eq!(lock["skills"]["demo"]["sha256"], shop.manifest()["skills"][0]["sha256"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &str| fs::metadata(shop.at(path)).expect("an existing path").permissions().mode() & 0o777;
        assert_eq!(mode("agent/demo/scripts/run.sh") & 0o100, 0o100);
        assert_eq!(mode("agent/demo/SKILL.md") & 0o111, 0);
    }
    let before = files(&shop.at("agent"));
    shop.good(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&shop.at("agent")), before);
    shop.put("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    shop.good(&["build"]);
    shop.good(&["install", "demo@^1", "--from", "skills.json", "--into", "agent"]);
    assert!(text(&files(&shop.at("agent"))[Path::new("demo/SKILL.md")]).contains("1.1.0"));
    assert_eq!(fs::read_dir(shop.at("agent")).expect("an existing path").count(), 3);
}

#[test]
fn folders_made_or_changed_by_users_are_not_replaced() {
    let shop = Shop::new();
    shop.build();
    shop.put("agent/other/SKILL.md", "mine");
    let output = shop.bad(&["install", "other", "--from", "skills.json", "--into", "agent"], 1);
    assert!(output.contains("was not installed by this program"), "{output}");
    shop.good(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    shop.put("agent/demo/docs/more.md", "changed by hand");
    let output = shop.bad(&["install", "demo", "--from", "skills.json", "--into", "agent"], 1);
    assert!(output.contains("was changed since"), "{output}");
    shop.good(&["install", "demo", "other", "--force", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&shop.at("agent/demo")), files(&shop.at("skills/demo")));
    assert!(shop.bad(&["install", "none", "--from", "skills.json", "--into", "agent"], 1).contains("no skill `none`"));
    assert!(shop.bad(&["install", "../demo", "--from", "skills.json", "--into", "agent"], 2).contains("NAME"));
}

#[test]
fn a_package_with_a_wrong_checksum_is_not_installed() {
    let shop = Shop::new();
    shop.build();
    let package = shop.at("packages/demo-1.0.0.zip");
    let bytes = fs::read(&package).expect("a package");
    for wrong_bytes in [b"not an archive".to_vec(), bytes[..bytes.len() - 1].to_vec(), [bytes, b"x".to_vec()].concat()]
    {
        fs::write(&package, wrong_bytes).expect("a written file");
        let output = shop.bad(&["install", "demo", "--from", "skills.json", "--into", "agent"], 1);
        assert!(output.contains("is not the package that the manifest promises"), "{output}");
        assert_eq!(files(&shop.at("agent")).len(), 0);
    }
}

/// A manifest and a `SKILL.md` are untrusted input.
#[test]
fn text_of_a_manifest_sends_no_escapes_to_a_terminal() {
    let shop = Shop::new();
    shop.build();
    let valid = shop.manifest();
    let version = "1.0.0+\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}";
    let run_without_escapes = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        // `CLICOLOR_FORCE` keeps the escape sequences in the output, as on a terminal.
        command.current_dir(shop.folder.path()).env("CLICOLOR_FORCE", "1").arg("skills").args(arguments);
        let output = command.output().expect("the program starts").stderr;
        let own_escapes = ["\u{1b}[1;31m", "\u{1b}[0m"];
        let output = own_escapes.iter().fold(text(&output), |text, escape| text.replace(escape, ""));
        assert!(!output.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{arguments:?}: {output:?}");
        assert!(output.contains("\\u{1b}"), "{arguments:?}: {output:?}");
    };
    let mut manifest = valid.clone();
    manifest["skills"][0]["version"] = version.into();
    shop.put("skills.json", &manifest.to_string());
    for _ in ["installed", "it is there"] {
        run_without_escapes(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    }
    run_without_escapes(&["install", "demo@^2", "--from", "skills.json", "--into", "agent"]);
    let document = hostile::SKILL.replace("name: demo", "name: \"demo\\e[2J\"");
    let package = hostile::Zip::of(vec![hostile::Part::file("SKILL.md", document)]).build();
    let mut manifest = valid;
    manifest["skills"][0]["sha256"] = imagate::manifest::package::Sha256Sum::of(&package).to_string().into();
    manifest["skills"][0]["size_bytes"] = package.len().into();
    fs::write(shop.at("packages/demo-1.0.0.zip"), package).expect("a package");
    shop.put("skills.json", &manifest.to_string());
    run_without_escapes(&["install", "demo", "--from", "skills.json", "--into", "another"]);
}

/// An install that is killed at a critical moment and started again succeeds without `--force`, and leaves one complete
/// release.
#[cfg(unix)]
#[test]
fn a_killed_install_is_completed_or_rolled_back() {
    let shop = Shop::new();
    shop.build();
    let install = |version: &str| shop.command(&["install", version, "--from", "skills.json", "--into", "agent"]);
    shop.put("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    fs::rename(shop.at("skills.json"), shop.at("old.json")).expect("a renamed file");
    fs::copy(shop.at("old.json"), shop.at("skills.json")).expect("a copy");
    shop.good(&["build"]);
    let mut manifest = shop.manifest();
    let old: serde_json::Value = serde_json::from_slice(&fs::read(shop.at("old.json")).expect("a file")).expect("JSON");
    manifest["skills"].as_array_mut().expect("a list").push(old["skills"][0].clone());
    shop.put("skills.json", &manifest.to_string());
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
            let all = paths_below(&shop.at("agent"));
            all.into_iter().filter(|path| path.to_string_lossy().contains(".installing-")).collect()
        };
        while child.try_wait().expect("a child").is_none() && !is_reached(&staged_paths()) {}
        killed += usize::from(child.try_wait().expect("a child").is_none());
        child.kill().expect("a child that is killed or has ended");
        child.wait().expect("a child that ends");
        let output = install(version).output().expect("the program starts");
        assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
        let paths = fs::read_dir(shop.at("agent")).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable();
        assert_eq!(paths, ["demo", "skills.lock.json"]);
        assert!(text(&files(&shop.at("agent/demo"))[Path::new("SKILL.md")]).contains(&version["demo@".len()..]));
    }
    assert!(killed > 0, "no install was killed before its end");
}

/// The manifest has the checksum of each archive, so only the checks of the archive can refuse it.
#[test]
fn no_hostile_archive_writes_any_file() {
    use imagate::manifest::package::Sha256Sum;
    let shop = Shop::new();
    shop.build();
    fs::create_dir_all(shop.at("deep/er/agent")).expect("a folder");
    let mut manifest = shop.manifest();
    let archives = hostile::archives();
    let names: Vec<String> = (0..archives.len()).map(|number| format!("packages/{number}.zip")).collect();
    for (archive, name) in archives.iter().zip(&names) {
        fs::write(shop.at(name), &archive.bytes).expect("a written file");
    }
    let canary = Path::new("/tmp/escape.txt");
    let existed_before = canary.exists();
    for (archive, name) in archives.iter().zip(&names) {
        let entry = &mut manifest["skills"][0];
        entry["package"] = name.as_str().into();
        entry["sha256"] = Sha256Sum::of(&archive.bytes).to_string().into();
        entry["size_bytes"] = archive.bytes.len().into();
        shop.put("hostile.json", &manifest.to_string());
        let before = paths_below(shop.folder.path());
        let output = shop.bad(&["install", "demo", "--from", "hostile.json", "--into", "deep/er/agent"], 1);
        assert!(output.contains("not safe to unpack") || output.contains("at most"), "{}: {output}", archive.name);
        assert_eq!(paths_below(shop.folder.path()), before, "{}", archive.name);
    }
    assert!(archives.len() >= 200 && canary.exists() == existed_before);
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
    let shop = Shop::new();
    shop.build();
    let printed = shop.good(&["export"]);
    let index: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let sum = shop.manifest()["skills"][0]["sha256"].as_str().expect("a sum").to_owned();
    assert_eq!(index["skills"][0]["digest"], format!("sha256:{sum}"));
    shop.good(&["export", "skills.json", "--base-url", "/skills", "-o", "public/.well-known/agent-skills/index.json"]);
    let written = fs::read_to_string(shop.at("public/.well-known/agent-skills/index.json")).expect("an existing path");
    assert!(written.contains("\"/skills/packages/demo-1.0.0.zip\""));
}
