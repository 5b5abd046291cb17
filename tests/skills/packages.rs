//! The commands that make, verify and install packages, from end to end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::hostile;

#[path = "packages/checkout.rs"]
mod checkout;
#[path = "packages/place.rs"]
mod place;

pub(crate) struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    /// A repository with two skills that nobody built yet.
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

    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn bad(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    fn build(&self) {
        self.build_for("https://example.com");
    }

    pub(crate) fn build_for(&self, host: &str) {
        let (git, raw) = (format!("{host}/e/s.git"), format!("{host}/e/s/raw/main"));
        let facts = ["--repository", "e/s", "--git-url", &git];
        let more = ["--raw-base-url", &raw, "--branch", "main"];
        self.good(&[&["build"][..], &facts, &more].concat());
    }

    pub(crate) fn manifest(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.at("skills.json")).expect("a manifest")).expect("JSON")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Every file below a folder, by path, with its bytes.
pub(crate) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            match path.symlink_metadata().expect("metadata") {
                metadata if metadata.is_dir() => left.push(path),
                metadata if metadata.is_file() => {
                    found.insert(path.strip_prefix(root).expect("below").to_owned(), fs::read(&path).expect("a file"));
                }
                _ => panic!("{} is no file", path.display()),
            }
        }
    }
    found
}

#[test]
fn what_is_built_is_valid_and_the_same_in_another_folder() {
    let (one, other) = (Shop::new(), Shop::new());
    one.build();
    other.build();
    let without_time = |shop: &Shop| {
        let mut files = files(shop.folder.path());
        files.remove(Path::new("skills.json"));
        files
    };
    assert_eq!(without_time(&one), without_time(&other));
    assert_eq!(one.manifest()["skills"][0]["sha256"], other.manifest()["skills"][0]["sha256"]);
    one.good(&["validate", "skills.json", "--root", ".", "--strict"]);
    one.good(&["verify"]);
    assert_eq!(one.good(&["build", "--check"]), "");
    let before = files(one.folder.path());
    one.good(&["build"]);
    assert_eq!(files(one.folder.path()), before);
}

#[test]
fn a_check_tells_what_would_be_written_and_writes_nothing() {
    let shop = Shop::new();
    shop.build();
    shop.put("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    let before = files(shop.folder.path());
    assert_eq!(shop.bad(&["build", "--check"], 1), "packages/demo-1.1.0.zip\nskills.json\n");
    assert_eq!(files(shop.folder.path()), before);
    shop.good(&["build"]);
    assert_eq!(shop.good(&["build", "--check"]), "");
    // The package of before stays for those who have pinned it.
    assert!(shop.at("packages/demo-1.0.0.zip").exists() && shop.at("packages/demo-1.1.0.zip").exists());
}

#[test]
fn a_check_sees_the_api_references() {
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
    let told = shop.bad(&["build", "--check"], 1);
    assert!(told.contains("apis/images.md:2:1: has no `language`"), "{told}");
    fs::remove_file(shop.at("apis/images.md")).expect("it was there");
    assert!(shop.bad(&["build", "--check"], 1).contains("`images` no longer exists and is removed from the manifest"));
    shop.put("docs/images.md", &document("Elsewhere"));
    shop.good(&["build", "--apis", "docs/"]);
    assert_eq!(shop.manifest()["apis"][0]["path"], "docs/images.md");
}

#[test]
fn changed_content_needs_a_version_and_a_changed_package_is_seen() {
    let shop = Shop::new();
    shop.build();
    fs::remove_file(shop.at("skills/demo/docs/more.md")).expect("it was there");
    assert!(shop.bad(&["build"], 1).contains("raise `metadata.version`"));
    shop.put("skills/demo/docs/more.md", "Other.\n");
    assert!(shop.bad(&["build"], 1).contains("raise `metadata.version`"));
    assert!(shop.bad(&["validate", "skills.json", "--root", "."], 1).contains("M090"));
    shop.good(&["verify"]);
    let mut bytes = fs::read(shop.at("packages/demo-1.0.0.zip")).expect("a package");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(shop.at("packages/demo-1.0.0.zip"), bytes).expect("it is written");
    assert!(shop.bad(&["verify"], 1).contains("M073"));
    let mut manifest = shop.manifest();
    for key in ["sha256", "size_bytes"] {
        manifest["skills"][0].as_object_mut().expect("an entry").remove(key);
    }
    shop.put("skills.json", &manifest.to_string());
    assert!(shop.bad(&["verify"], 1).contains("sha256"));
}

#[test]
fn a_manifest_with_a_mark_before_it_is_built_upon() {
    let shop = Shop::new();
    shop.build();
    let text = fs::read_to_string(shop.at("skills.json")).expect("a manifest");
    shop.put("skills.json", &format!("\u{feff}{text}"));
    shop.good(&["build"]);
    assert_eq!(fs::read_to_string(shop.at("skills.json")).expect("a manifest"), text);
}

/// A package that cannot be looked at is not one that is right, however its path was written.
#[test]
fn a_package_at_a_path_that_nothing_can_have_is_an_error_whoever_asks() {
    let shop = Shop::new();
    shop.build();
    let deep = format!("{}demo-1.0.0.zip", "a/".repeat(64));
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
        deep.as_str(),
        "",
    ];
    let good = shop.manifest();
    for path in paths {
        let mut manifest = good.clone();
        manifest["skills"][0]["package"] = path.into();
        shop.put("skills.json", &manifest.to_string());
        for command in [&["verify"][..], &["validate", "skills.json", "--root", "."]] {
            let said = shop.bad(command, 1);
            assert!(said.contains("M071") && !said.contains('\u{1b}'), "{path:?}: {said}");
        }
    }
}

#[cfg(unix)]
#[test]
fn nothing_is_built_through_a_link() {
    let shop = Shop::new();
    let outside = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(outside.path(), shop.at("packages")).expect("a link");
    let facts =
        ["--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r", "--branch", "main"];
    let said = shop.bad(&[&["build"][..], &facts].concat(), 1);
    assert!(said.contains("packages"), "{said}");
    assert_eq!(files(outside.path()).len(), 0);
    std::os::unix::fs::symlink("demo", shop.at("skills/alias")).expect("a link");
    let said = shop.bad(&[&["build"][..], &facts].concat(), 1);
    assert!(said.contains("skills/alias: is a symbolic link"), "{said}");
}

#[test]
fn an_installed_skill_is_what_was_packed_and_is_remembered() {
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
        let mode = |path: &str| fs::metadata(shop.at(path)).expect("it is there").permissions().mode() & 0o777;
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
    assert_eq!(fs::read_dir(shop.at("agent")).expect("it is there").count(), 3);
}

#[test]
fn what_somebody_changed_or_made_is_not_replaced() {
    let shop = Shop::new();
    shop.build();
    shop.put("agent/other/SKILL.md", "mine");
    let said = shop.bad(&["install", "other", "--from", "skills.json", "--into", "agent"], 1);
    assert!(said.contains("was not installed by this program"), "{said}");
    shop.good(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    shop.put("agent/demo/docs/more.md", "changed by hand");
    let said = shop.bad(&["install", "demo", "--from", "skills.json", "--into", "agent"], 1);
    assert!(said.contains("was changed since"), "{said}");
    shop.good(&["install", "demo", "other", "--force", "--from", "skills.json", "--into", "agent"]);
    assert_eq!(files(&shop.at("agent/demo")), files(&shop.at("skills/demo")));
    assert!(shop.bad(&["install", "none", "--from", "skills.json", "--into", "agent"], 1).contains("no skill `none`"));
    assert!(shop.bad(&["install", "../demo", "--from", "skills.json", "--into", "agent"], 2).contains("NAME"));
}

#[test]
fn a_package_that_is_not_the_promised_one_is_not_looked_at() {
    let shop = Shop::new();
    shop.build();
    let package = shop.at("packages/demo-1.0.0.zip");
    let bytes = fs::read(&package).expect("a package");
    for wrong in [b"not an archive".to_vec(), bytes[..bytes.len() - 1].to_vec(), [bytes, b"x".to_vec()].concat()] {
        fs::write(&package, wrong).expect("it is written");
        let said = shop.bad(&["install", "demo", "--from", "skills.json", "--into", "agent"], 1);
        assert!(said.contains("is not the package that the manifest promises"), "{said}");
        assert_eq!(files(&shop.at("agent")).len(), 0);
    }
}

/// A manifest and a `SKILL.md` are words of others.
#[test]
fn nothing_that_a_manifest_says_gives_orders_to_a_terminal() {
    let shop = Shop::new();
    shop.build();
    let good = shop.manifest();
    let order = "1.0.0+\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}";
    let forced = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        // As on a terminal: escapes are not taken out on the way.
        command.current_dir(shop.folder.path()).env("CLICOLOR_FORCE", "1").arg("skills").args(arguments);
        let said = command.output().expect("the program starts").stderr;
        let ours = ["\u{1b}[1;31m", "\u{1b}[0m"];
        let said = ours.iter().fold(text(&said), |said, escape| said.replace(escape, ""));
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{arguments:?}: {said:?}");
        assert!(said.contains("\\u{1b}"), "{arguments:?}: {said:?}");
    };
    let mut manifest = good.clone();
    manifest["skills"][0]["version"] = order.into();
    shop.put("skills.json", &manifest.to_string());
    for _ in ["installed", "it is there"] {
        forced(&["install", "demo", "--from", "skills.json", "--into", "agent"]);
    }
    forced(&["install", "demo@^2", "--from", "skills.json", "--into", "agent"]);
    let document = hostile::SKILL.replace("name: demo", "name: \"demo\\e[2J\"");
    let package = hostile::Zip::of(vec![hostile::Part::file("SKILL.md", document)]).build();
    let mut manifest = good;
    manifest["skills"][0]["sha256"] = imagate::manifest::package::Sha256Sum::of(&package).to_string().into();
    manifest["skills"][0]["size_bytes"] = package.len().into();
    fs::write(shop.at("packages/demo-1.0.0.zip"), package).expect("a package");
    shop.put("skills.json", &manifest.to_string());
    forced(&["install", "demo", "--from", "skills.json", "--into", "another"]);
}

/// Killed where it hurts, and asked again: what is there is one release or the other, and nobody has to insist.
#[cfg(unix)]
#[test]
fn an_install_that_was_killed_is_finished_or_taken_back() {
    let shop = Shop::new();
    shop.build();
    let install = |version: &str| shop.command(&["install", version, "--from", "skills.json", "--into", "agent"]);
    shop.put("skills/demo/SKILL.md", &hostile::SKILL.replace("1.0.0", "1.1.0"));
    fs::rename(shop.at("skills.json"), shop.at("old.json")).expect("it moves");
    fs::copy(shop.at("old.json"), shop.at("skills.json")).expect("a copy");
    shop.good(&["build"]);
    let mut manifest = shop.manifest();
    let old: serde_json::Value = serde_json::from_slice(&fs::read(shop.at("old.json")).expect("a file")).expect("JSON");
    manifest["skills"].as_array_mut().expect("a list").push(old["skills"][0].clone());
    shop.put("skills.json", &manifest.to_string());
    let mut killed = 0;
    let marks: [fn(&[PathBuf]) -> bool; 4] = [
        |there| !there.is_empty(),
        |there| there.iter().any(|path| path.ends_with("new/SKILL.md")),
        |there| there.iter().any(|path| path.ends_with("note.json")),
        |there| there.iter().any(|path| path.ends_with("old")),
    ];
    for (round, mark) in marks.iter().cycle().take(24).enumerate() {
        let version = ["demo@1.0.0", "demo@1.1.0"][round % 2];
        let mut child = install(version).stderr(std::process::Stdio::null()).spawn().expect("the program starts");
        let waiting = || -> Vec<PathBuf> {
            let all = names_below(&shop.at("agent"));
            all.into_iter().filter(|path| path.to_string_lossy().contains(".installing-")).collect()
        };
        while child.try_wait().expect("a child").is_none() && !mark(&waiting()) {}
        killed += usize::from(child.try_wait().expect("a child").is_none());
        child.kill().expect("it is killed or gone");
        child.wait().expect("it ends");
        let output = install(version).output().expect("the program starts");
        assert!(output.status.success(), "round {round}: {}", text(&output.stderr));
        let there = fs::read_dir(shop.at("agent")).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut there: Vec<_> = there.collect();
        there.sort_unstable();
        assert_eq!(there, ["demo", "skills.lock.json"]);
        assert!(text(&files(&shop.at("agent/demo"))[Path::new("SKILL.md")]).contains(&version["demo@".len()..]));
    }
    assert!(killed > 0, "nobody was killed in time");
}

/// The manifest promises each of them, so that nothing but the archive itself is in the way.
#[test]
fn no_hostile_archive_writes_anything_anywhere() {
    use imagate::manifest::package::Sha256Sum;
    let shop = Shop::new();
    shop.build();
    fs::create_dir_all(shop.at("deep/er/agent")).expect("a folder");
    let mut manifest = shop.manifest();
    let archives = hostile::archives();
    let names: Vec<String> = (0..archives.len()).map(|number| format!("packages/{number}.zip")).collect();
    for (archive, name) in archives.iter().zip(&names) {
        fs::write(shop.at(name), &archive.bytes).expect("it is written");
    }
    let canary = Path::new("/tmp/escape.txt");
    let there_before = canary.exists();
    for (archive, name) in archives.iter().zip(&names) {
        let entry = &mut manifest["skills"][0];
        entry["package"] = name.as_str().into();
        entry["sha256"] = Sha256Sum::of(&archive.bytes).to_string().into();
        entry["size_bytes"] = archive.bytes.len().into();
        shop.put("hostile.json", &manifest.to_string());
        let before = names_below(shop.folder.path());
        let said = shop.bad(&["install", "demo", "--from", "hostile.json", "--into", "deep/er/agent"], 1);
        assert!(said.contains("not safe to unpack") || said.contains("at most"), "{}: {said}", archive.name);
        assert_eq!(names_below(shop.folder.path()), before, "{}", archive.name);
    }
    assert!(archives.len() >= 200 && canary.exists() == there_before);
}

fn names_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            // What another program is at work with may be gone.
            let Ok(path) = entry.map(|entry| entry.path()) else { continue };
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                left.push(path.clone());
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
    let written = fs::read_to_string(shop.at("public/.well-known/agent-skills/index.json")).expect("it is there");
    assert!(written.contains("\"/skills/packages/demo-1.0.0.zip\""));
}
