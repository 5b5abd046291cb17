//! The commands, as the program that people run.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::corpus::folder;

#[cfg(target_os = "linux")]
#[path = "cli/download.rs"]
mod download;
#[cfg(target_os = "linux")]
#[path = "cli/online.rs"]
mod online;
#[cfg(target_os = "linux")]
#[path = "cli/server.rs"]
mod server;

/// Exit codes: done, findings or failure, wrong usage.
const DONE: i32 = 0;
const FOUND: i32 = 1;
const USAGE: i32 = 2;

/// What a run of the program came to.
#[derive(Debug)]
struct Done {
    code: i32,
    stdout: String,
    stderr: String,
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
    command.arg("skills").args(arguments).stdin(Stdio::null());
    command
}

fn done(command: &mut Command, input: Option<&[u8]>) -> Done {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // Who does not read what it is given has closed the pipe.
    let _ = stdin.write_all(input.unwrap_or_default());
    drop(stdin);
    let output = child.wait_with_output().expect("its output");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Done { code: output.status.code().expect("a code"), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn skills(arguments: &[&str]) -> Done {
    done(&mut program(arguments), None)
}

/// A file of the corpus.
fn case(name: &str) -> String {
    let path = folder().join("corpus").join(format!("{name}.json"));
    path.to_str().expect("UTF-8").to_owned()
}

fn code(arguments: &[&str]) -> i32 {
    skills(arguments).code
}

#[test]
fn the_exit_code_says_whether_there_are_errors() {
    assert_eq!(code(&["validate", &case("good/full")]), DONE);
    assert_eq!(code(&["validate", &case("M033/with-v")]), DONE);
    assert_eq!(code(&["validate", "--strict", &case("M033/with-v")]), FOUND);
    assert_eq!(code(&["validate", "--deny", "m033", &case("M033/with-v")]), FOUND);
    assert_eq!(code(&["validate", &case("M036/build-metadata")]), FOUND);
    assert_eq!(code(&["validate", "--strict", &case("M014/offset")]), DONE);
    let missing = skills(&["validate", "no-such-file.json"]);
    assert!(missing.code == FOUND && missing.stderr.contains("no-such-file.json"), "{missing:?}");
}

#[test]
fn what_does_not_fit_together_is_wrong_usage() {
    let good = case("good/full");
    for arguments in [
        &["validate"][..],
        &["validate", "--allow", "M999=x", &good],
        &["validate", "--allow", "M033", &good],
        &["validate", "--allow", "M033= ", &good],
        &["validate", "--allow", "M002=x", &good],
        &["validate", "--warn", "M004", &good],
        &["validate", "--allow", "M033=x", "--deny", "M033", &good],
        &["validate", "--format", "xml", &good],
        &["validate", "-", "--previous", "-"],
        &["explain", "M999"],
        &["fmt", "https://example.com/skills.json"],
        &["diff", "-", "-"],
    ] {
        let done = skills(arguments);
        assert!(done.code == USAGE && done.stdout.is_empty() && !done.stderr.is_empty(), "{arguments:?}: {done:?}");
    }
    let slip = skills(&["validate", "--deny", "M03", &good]);
    assert!(slip.stderr.contains("did you mean `M0"), "{slip:?}");
}

#[test]
fn what_is_allowed_stands_in_the_report_with_its_reason() {
    let arguments = ["validate", "--allow", "M036=moved by hand", &case("M036/build-metadata")];
    let done = skills(&arguments);
    assert!(done.code == DONE && done.stdout.contains("allowed: moved by hand"), "{done:?}");
    let json = |format| -> Value {
        serde_json::from_str(&skills(&[&arguments[..], &["--format", format]].concat()).stdout).expect("JSON")
    };
    assert_eq!(json("json")["findings"][0]["allowed"], "moved by hand");
    assert_eq!(json("json")["errors"], 0);
    assert_eq!(json("sarif")["runs"][0]["results"][0]["suppressions"][0]["justification"], "moved by hand");
    let off = skills(&["validate", "--allow", "M121=by hand", &case("M121/skills")]);
    assert!(off.code == DONE && off.stdout.contains("allowed: by hand"), "{off:?}");
}

#[test]
fn a_manifest_comes_from_standard_input_too() {
    let text = fs::read(case("M036/build-metadata")).expect("a case");
    let done = done(&mut program(&["validate", "-"]), Some(&text));
    assert!(done.code == FOUND && done.stdout.contains("--> <stdin>:43:18"), "{done:?}");
}

#[test]
fn the_checkout_and_the_manifest_before_are_asked() {
    let (now, before) = (case("M114/major"), case("M114/major.previous"));
    let root = folder().join("corpus/M114/major.files");
    let root = root.to_str().expect("UTF-8");
    let report = |arguments: &[&str]| {
        let done = skills(&[&["validate", "--format", "json", &now], arguments].concat());
        let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
        let rules = report["findings"].as_array().expect("a list").iter().map(|one| one["rule"].to_string());
        rules.collect::<Vec<_>>().join(" ")
    };
    assert!(!report(&["--previous", &before]).contains("M114"));
    assert!(report(&["--previous", &before, "--root", root]).contains("M114"));
    let changed = skills(&["validate", "--previous", &case("M113/checksum.previous"), &case("M113/checksum")]);
    assert!(changed.code == FOUND && changed.stdout.contains("error[M113]"), "{changed:?}");
    assert_eq!(code(&["validate", &now, "--root", "no-such-folder"]), FOUND);
}

#[test]
fn a_release_may_be_called_otherwise_and_a_repository_is_not_moved_unseen() {
    let folder = TempDir::new().expect("a folder");
    let said = |change: &dyn Fn(&mut Value)| {
        let path = variant(&folder, "now.json", |manifest| {
            manifest["generated_at"] = "2026-11-21T04:00:00Z".into();
            change(manifest);
        });
        skills(&["validate", "--previous", &case("good/full"), as_text(&path)]).stdout
    };
    let build = |manifest: &mut Value| manifest["skills"][0]["version"] = "1.2.0+b2".into();
    assert!(!said(&build).contains("M110"));
    let content = |manifest: &mut Value| {
        build(manifest);
        manifest["skills"][0]["sha256"] = "1".repeat(64).into();
    };
    assert!(said(&content).contains("M110"));
    for key in ["git_url", "raw_base_url"] {
        let moved = |manifest: &mut Value| manifest["repository"][key] = "https://example.com/main/e/s".into();
        assert!(said(&moved).contains(&format!("`{key}` changed")), "{key}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_more_of_a_manifest_is_read_than_is_looked_at() {
    let done = skills(&["validate", "/dev/zero"]);
    assert!(done.code == FOUND && done.stdout.contains("M007"), "{done:?}");
}

#[test]
fn every_format_is_what_its_readers_expect() {
    let printed = |format| skills(&["validate", "--format", format, &case("M036/build-metadata")]).stdout;
    let sarif: Value = serde_json::from_str(&printed("sarif")).expect("JSON");
    assert_eq!((&sarif["version"], &sarif["runs"][0]["results"][0]["ruleId"]), (&"2.1.0".into(), &"M036".into()));
    let index = sarif["runs"][0]["results"][0]["ruleIndex"].as_u64().and_then(|index| usize::try_from(index).ok());
    assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"][index.expect("an index")]["id"], "M036");
    let annotation =
        format!("::error file={},line=43,endLine=43,col=18,", case("M036/build-metadata").replace(':', "%3A"));
    assert!(printed("github").starts_with(&annotation), "{}", printed("github"));
    let junit = printed("junit");
    assert!(junit.starts_with("<?xml version=\"1.0\"") && junit.contains("failures=\"1\""), "{junit}");
    assert!(printed("human").contains("43 |       \"version\": \"1.2.0+b2\","), "{}", printed("human"));
}

fn copy(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join("skills.json");
    fs::copy(case(name), &path).expect("a copy");
    path
}

fn as_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_file_is_rewritten_once_and_keeps_who_may_read_it() {
    let folder = TempDir::new().expect("a folder");
    let path = copy(&folder, "M120/order");
    let checked = skills(&["fmt", "--check", as_text(&path)]);
    assert_eq!((checked.code, checked.stdout.trim()), (FOUND, as_text(&path)));
    assert_eq!(fs::read(&path).expect("the file"), fs::read(case("M120/order")).expect("the case"));
    #[cfg(unix)]
    let link = {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
        symlink("skills.json", folder.path().join("link.json")).expect("a link");
        folder.path().join("link.json")
    };
    #[cfg(not(unix))]
    let link = path.clone();
    let rewritten = skills(&["fmt", as_text(&link)]);
    assert!(rewritten.code == DONE && rewritten.stderr.contains("rewrote"), "{rewritten:?}");
    assert_eq!(fs::read(&path).expect("the file"), fs::read(case("good/full")).expect("the case"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
    }
    let again = skills(&["fmt", as_text(&path)]);
    assert!(again.code == DONE && again.stderr.is_empty(), "{again:?}");
    assert_eq!(code(&["fmt", "--check", as_text(&path)]), DONE);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), if cfg!(unix) { 2 } else { 1 });
}

#[test]
fn skills_are_sorted_where_it_is_asked_for() {
    let text = fs::read(case("M121/skills")).expect("a case");
    let plain = done(&mut program(&["fmt", "-"]), Some(&text));
    assert_eq!(plain.stdout.as_bytes(), text);
    let sorted = done(&mut program(&["fmt", "--sort", "-"]), Some(&text));
    assert_eq!(sorted.stdout, fs::read_to_string(case("good/full")).expect("the case"));
}

#[test]
fn what_is_no_json_is_left_alone() {
    let folder = TempDir::new().expect("a folder");
    let path = copy(&folder, "M002/comma-at-the-end");
    let done = skills(&["fmt", as_text(&path)]);
    assert!(done.code == FOUND && done.stderr.contains("skills.json:8:21: there is a comma"), "{done:?}");
    assert_eq!(fs::read(&path).expect("the file"), fs::read(case("M002/comma-at-the-end")).expect("the case"));
}

/// A manifest with one skill, from a case and a change.
fn variant(folder: &TempDir, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut manifest: Value =
        serde_json::from_str(&fs::read_to_string(case("good/full")).expect("a case")).expect("JSON");
    change(&mut manifest);
    let path = folder.path().join(name);
    fs::write(&path, manifest.to_string()).expect("a file");
    path
}

#[test]
fn a_difference_names_the_version_that_it_asks_for() {
    let folder = TempDir::new().expect("a folder");
    let old = case("good/full");
    let asked = |version: &str, change: &dyn Fn(&mut Value)| {
        let path = variant(&folder, "new.json", |manifest| {
            manifest["skills"][0]["version"] = version.into();
            change(&mut manifest["skills"][0]);
        });
        let done = skills(&["diff", "--json", &old, as_text(&path)]);
        let difference: Value = serde_json::from_str(&done.stdout).expect("JSON");
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        (word(&difference["skills"][0]["required"]), word(&difference["required"]), done.code)
    };
    let answer = |skill: &str, whole: &str, code| (skill.to_owned(), whole.to_owned(), code);
    let content = |skill: &mut Value| skill["sha256"] = "0".repeat(64).into();
    let more = |skill: &mut Value| skill["agents"] = vec!["codex", "claude-code", "goose"].into();
    let fewer = |skill: &mut Value| skill["agents"] = vec!["codex"].into();
    assert_eq!(asked("1.2.0", &|_| {}), answer("-", "none", DONE));
    assert_eq!(asked("1.2.1", &|_| {}), answer("none", "patch", DONE));
    assert_eq!(asked("1.2.0", &content), answer("patch", "patch", FOUND));
    assert_eq!(asked("1.2.1", &content), answer("patch", "patch", DONE));
    assert_eq!(asked("1.2.1", &more), answer("minor", "minor", FOUND));
    assert_eq!(asked("1.3.0", &more), answer("minor", "minor", DONE));
    assert_eq!(asked("1.3.0", &fewer), answer("major", "major", FOUND));
    assert_eq!(asked("2.0.0", &fewer), answer("major", "major", DONE));
    assert_eq!(asked("1.1.9", &content), answer("patch", "minor", FOUND));
    assert_eq!(asked("2.0.0-rc.1", &fewer), answer("major", "major", DONE));
}

#[test]
fn a_difference_asks_for_less_before_a_release_and_of_what_follows_from_one() {
    let folder = TempDir::new().expect("a folder");
    let asked = |before: &str, now: &str, change: &dyn Fn(&mut Value)| {
        let old = variant(&folder, "old.json", |manifest| manifest["skills"][0]["version"] = before.into());
        let new = variant(&folder, "new.json", |manifest| {
            manifest["skills"][0]["version"] = now.into();
            change(manifest);
        });
        let done = skills(&["diff", "--json", as_text(&old), as_text(&new)]);
        let difference: Value = serde_json::from_str(&done.stdout).expect("JSON");
        (difference["skills"][0]["required"].as_str().unwrap_or("-").to_owned(), done.code)
    };
    let answer = |required: &str, code| (required.to_owned(), code);
    let more = |manifest: &mut Value| {
        manifest["skills"][0]["agents"] = vec!["codex", "claude-code", "goose"].into();
    };
    let fewer = |manifest: &mut Value| manifest["skills"][0]["agents"] = vec!["codex"].into();
    let renamed = |manifest: &mut Value| manifest["skills"][0]["package"] = "packages/other.zip".into();
    let capitals = |manifest: &mut Value| {
        let sum = manifest["skills"][0]["sha256"].as_str().expect("a sum").to_uppercase();
        manifest["skills"][0]["sha256"] = sum.into();
    };
    let older = |manifest: &mut Value| {
        let mut entry = manifest["skills"][0].clone();
        entry["version"] = "1.1.0".into();
        manifest["skills"].as_array_mut().expect("a list").push(entry);
    };
    assert_eq!(asked("0.3.1", "0.3.2", &fewer), answer("minor", FOUND));
    assert_eq!(asked("0.3.1", "0.4.0", &fewer), answer("minor", DONE));
    assert_eq!(asked("0.3.1", "0.3.2", &more), answer("patch", DONE));
    assert_eq!(asked("2.0.0-rc.1", "2.0.0-rc.2", &fewer), answer("major", DONE));
    assert_eq!(asked("2.0.0-rc.2", "2.0.0-rc.1", &fewer), answer("major", FOUND));
    assert_eq!(asked("1.2.0", "1.2.1", &renamed), answer("none", DONE));
    assert_eq!(asked("1.2.0", "1.2.0", &renamed), answer("patch", FOUND));
    assert_eq!(asked("1.2.0", "1.2.0", &capitals), answer("-", DONE));
    assert_eq!(asked("1.2.0", "1.2.0", &older), answer("-", DONE));
}

#[test]
fn a_difference_is_told_to_people() {
    let folder = TempDir::new().expect("a folder");
    let path = variant(&folder, "new.json", |manifest| {
        manifest["skills"][0]["title"] = "Images".into();
        manifest["skills"][1]["name"] = "pdf".into();
        manifest["apis"][0]["title"] = "Images".into();
    });
    let done = skills(&["diff", &case("good/full"), as_text(&path)]);
    let expected = "image-generation 1.2.0 -> 1.2.0: patch required, none made, TOO LITTLE\n  \
                    `title` changed (patch)\n\
                    pdf 0.3.1\n  added (minor)\n\
                    pdf-reading 0.3.1\n  removed (major)\n\
                    API reference `images-python` changed (patch)\n\
                    required bump in all: major\n";
    assert_eq!((done.code, done.stdout.as_str()), (FOUND, expected));
}

#[test]
fn rules_are_explained_and_listed() {
    let done = skills(&["explain", "m113"]);
    assert!(done.stdout.starts_with("M113 changed-release (error; needs the manifest published before)\n"), "{done:?}");
    assert_eq!(skills(&["explain", "changed-release"]).stdout, done.stdout);
    let list = skills(&["explain"]);
    assert!(list.code == DONE && list.stdout.lines().count() > 50, "{list:?}");
}
