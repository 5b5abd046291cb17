//! The `skills` commands, tested through the program `imagate`.

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

/// The exit code of success.
const EXIT_SUCCESS: i32 = 0;
/// The exit code of findings and of failures.
const EXIT_FAILURE: i32 = 1;
/// The exit code of wrong usage.
const EXIT_USAGE: i32 = 2;

/// The exit code and the output of one run of the program.
#[derive(Debug)]
struct CommandOutput {
    code: i32,
    stdout: String,
    stderr: String,
}

fn skills_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
    command.arg("skills").args(arguments).stdin(Stdio::null());
    command
}

fn run_command(command: &mut Command, input: Option<&[u8]>) -> CommandOutput {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that does not read its input has closed the pipe; the write fails then.
    let _ = stdin.write_all(input.unwrap_or_default());
    drop(stdin);
    let output = child.wait_with_output().expect("the output of the program");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    CommandOutput {
        code: output.status.code().expect("a code"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

fn skills(arguments: &[&str]) -> CommandOutput {
    run_command(&mut skills_command(arguments), None)
}

/// The path of a manifest of the corpus.
fn case_path(name: &str) -> String {
    let path = folder().join("corpus").join(format!("{name}.json"));
    path.to_str().expect("UTF-8").to_owned()
}

fn code(arguments: &[&str]) -> i32 {
    skills(arguments).code
}

#[test]
fn the_exit_code_says_whether_there_are_errors() {
    assert_eq!(code(&["validate", &case_path("good/full")]), EXIT_SUCCESS);
    assert_eq!(code(&["validate", &case_path("M033/with-v")]), EXIT_SUCCESS);
    assert_eq!(code(&["validate", "--strict", &case_path("M033/with-v")]), EXIT_FAILURE);
    assert_eq!(code(&["validate", "--deny", "m033", &case_path("M033/with-v")]), EXIT_FAILURE);
    assert_eq!(code(&["validate", &case_path("M036/build-metadata")]), EXIT_FAILURE);
    assert_eq!(code(&["validate", "--strict", &case_path("M014/offset")]), EXIT_SUCCESS);
    let missing = skills(&["validate", "no-such-file.json"]);
    assert!(missing.code == EXIT_FAILURE && missing.stderr.contains("no-such-file.json"), "{missing:?}");
}

#[test]
fn invalid_arguments_are_a_usage_error() {
    let good = case_path("good/full");
    for arguments in [
        &["validate", "--allow", "M999=x", &good][..],
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
        assert!(
            done.code == EXIT_USAGE && done.stdout.is_empty() && !done.stderr.is_empty(),
            "{arguments:?}: {done:?}"
        );
    }
    let misspelled = skills(&["validate", "--deny", "M03", &good]);
    assert!(misspelled.stderr.contains("did you mean `M0"), "{misspelled:?}");
}

#[test]
fn allowed_findings_are_reported_with_their_reason() {
    let arguments = ["validate", "--allow", "M036=moved by hand", &case_path("M036/build-metadata")];
    let done = skills(&arguments);
    assert!(done.code == EXIT_SUCCESS && done.stdout.contains("allowed: moved by hand"), "{done:?}");
    let json = |format| -> Value {
        serde_json::from_str(&skills(&[&arguments[..], &["--format", format]].concat()).stdout).expect("JSON")
    };
    assert_eq!(json("json")["findings"][0]["allowed"], "moved by hand");
    assert_eq!(json("json")["errors"], 0);
    assert_eq!(json("sarif")["runs"][0]["results"][0]["suppressions"][0]["justification"], "moved by hand");
    let off = skills(&["validate", "--allow", "M121=by hand", &case_path("M121/skills")]);
    assert!(off.code == EXIT_SUCCESS && off.stdout.contains("allowed: by hand"), "{off:?}");
}

#[test]
fn a_manifest_is_read_from_standard_input() {
    let text = fs::read(case_path("M036/build-metadata")).expect("a case");
    let done = run_command(&mut skills_command(&["validate", "-"]), Some(&text));
    assert!(done.code == EXIT_FAILURE && done.stdout.contains("--> <stdin>:43:18"), "{done:?}");
}

#[test]
fn the_checkout_and_the_previous_manifest_are_used() {
    let (current, before) = (case_path("M114/major"), case_path("M114/major.previous"));
    let root = folder().join("corpus/M114/major.files");
    let root = root.to_str().expect("UTF-8");
    let report = |arguments: &[&str]| {
        let done = skills(&[&["validate", "--format", "json", &current], arguments].concat());
        let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
        let rules = report["findings"].as_array().expect("a list").iter().map(|finding| finding["rule"].to_string());
        rules.collect::<Vec<_>>().join(" ")
    };
    assert!(!report(&["--previous", &before]).contains("M114"));
    assert!(report(&["--previous", &before, "--root", root]).contains("M114"));
    let changed =
        skills(&["validate", "--previous", &case_path("M113/checksum.previous"), &case_path("M113/checksum")]);
    assert!(changed.code == EXIT_FAILURE && changed.stdout.contains("error[M113]"), "{changed:?}");
    assert_eq!(code(&["validate", &current, "--root", "no-such-folder"]), EXIT_FAILURE);
}

#[test]
fn build_metadata_may_change_and_a_moved_repository_is_reported() {
    let folder = TempDir::new().expect("a folder");
    let output = |change: &dyn Fn(&mut Value)| {
        let path = variant(&folder, "now.json", |manifest| {
            manifest["generated_at"] = "2026-11-21T04:00:00Z".into();
            change(manifest);
        });
        skills(&["validate", "--previous", &case_path("good/full"), as_text(&path)]).stdout
    };
    let build = |manifest: &mut Value| manifest["skills"][0]["version"] = "1.2.0+b2".into();
    assert!(!output(&build).contains("M110"));
    let content = |manifest: &mut Value| {
        build(manifest);
        manifest["skills"][0]["sha256"] = "1".repeat(64).into();
    };
    assert!(output(&content).contains("M110"));
    for key in ["git_url", "raw_base_url"] {
        let move_repository =
            |manifest: &mut Value| manifest["repository"][key] = "https://example.com/main/e/s".into();
        assert!(output(&move_repository).contains(&format!("`{key}` changed")), "{key}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn reading_of_an_endless_manifest_stops_at_the_limit() {
    let done = skills(&["validate", "/dev/zero"]);
    assert!(done.code == EXIT_FAILURE && done.stdout.contains("M007"), "{done:?}");
}

#[test]
fn every_report_format_has_its_expected_form() {
    let printed = |format| skills(&["validate", "--format", format, &case_path("M036/build-metadata")]).stdout;
    let sarif: Value = serde_json::from_str(&printed("sarif")).expect("JSON");
    assert_eq!((&sarif["version"], &sarif["runs"][0]["results"][0]["ruleId"]), (&"2.1.0".into(), &"M036".into()));
    let index = sarif["runs"][0]["results"][0]["ruleIndex"].as_u64().and_then(|index| usize::try_from(index).ok());
    assert_eq!(sarif["runs"][0]["tool"]["driver"]["rules"][index.expect("an index")]["id"], "M036");
    let annotation =
        format!("::error file={},line=43,endLine=43,col=18,", case_path("M036/build-metadata").replace(':', "%3A"));
    assert!(printed("github").starts_with(&annotation), "{}", printed("github"));
    let junit = printed("junit");
    assert!(junit.starts_with("<?xml version=\"1.0\"") && junit.contains("failures=\"1\""), "{junit}");
    assert!(printed("human").contains("43 |       \"version\": \"1.2.0+b2\","), "{}", printed("human"));
}

fn copy(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join("skills.json");
    fs::copy(case_path(name), &path).expect("a copy");
    path
}

fn as_text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn formatting_is_stable_and_keeps_permissions_and_links() {
    let folder = TempDir::new().expect("a folder");
    let path = copy(&folder, "M120/order");
    let checked = skills(&["fmt", "--check", as_text(&path)]);
    assert_eq!((checked.code, checked.stdout.trim()), (EXIT_FAILURE, as_text(&path)));
    assert_eq!(fs::read(&path).expect("the file"), fs::read(case_path("M120/order")).expect("the case"));
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
    assert!(rewritten.code == EXIT_SUCCESS && rewritten.stderr.contains("rewrote"), "{rewritten:?}");
    assert_eq!(fs::read(&path).expect("the file"), fs::read(case_path("good/full")).expect("the case"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
    }
    let again = skills(&["fmt", as_text(&path)]);
    assert!(again.code == EXIT_SUCCESS && again.stderr.is_empty(), "{again:?}");
    assert_eq!(code(&["fmt", "--check", as_text(&path)]), EXIT_SUCCESS);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), if cfg!(unix) { 2 } else { 1 });
}

#[test]
fn skills_are_sorted_only_on_request() {
    let text = fs::read(case_path("M121/skills")).expect("a case");
    let plain = run_command(&mut skills_command(&["fmt", "-"]), Some(&text));
    assert_eq!(plain.stdout.as_bytes(), text);
    let sorted = run_command(&mut skills_command(&["fmt", "--sort", "-"]), Some(&text));
    assert_eq!(sorted.stdout, fs::read_to_string(case_path("good/full")).expect("the case"));
}

#[test]
fn a_file_that_is_not_json_is_not_rewritten() {
    let folder = TempDir::new().expect("a folder");
    let path = copy(&folder, "M002/comma-at-the-end");
    let done = skills(&["fmt", as_text(&path)]);
    assert!(done.code == EXIT_FAILURE && done.stderr.contains("skills.json:8:21: there is a comma"), "{done:?}");
    assert_eq!(fs::read(&path).expect("the file"), fs::read(case_path("M002/comma-at-the-end")).expect("the case"));
}

/// Writes a changed copy of the manifest `good/full` and returns its path.
fn variant(folder: &TempDir, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut manifest: Value =
        serde_json::from_str(&fs::read_to_string(case_path("good/full")).expect("a case")).expect("JSON");
    change(&mut manifest);
    let path = folder.path().join(name);
    fs::write(&path, manifest.to_string()).expect("a file");
    path
}

#[test]
fn a_diff_names_the_required_version_bump() {
    let folder = TempDir::new().expect("a folder");
    let old = case_path("good/full");
    let required_bump = |version: &str, change: &dyn Fn(&mut Value)| {
        let path = variant(&folder, "new.json", |manifest| {
            manifest["skills"][0]["version"] = version.into();
            change(&mut manifest["skills"][0]);
        });
        let done = skills(&["diff", "--json", &old, as_text(&path)]);
        let difference: Value = serde_json::from_str(&done.stdout).expect("JSON");
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        (text(&difference["skills"][0]["required"]), text(&difference["required"]), done.code)
    };
    let expected = |skill: &str, registry: &str, code| (skill.to_owned(), registry.to_owned(), code);
    let content = |skill: &mut Value| skill["sha256"] = "0".repeat(64).into();
    let more = |skill: &mut Value| skill["agents"] = vec!["codex", "claude-code", "goose"].into();
    let fewer = |skill: &mut Value| skill["agents"] = vec!["codex"].into();
    assert_eq!(required_bump("1.2.0", &|_| {}), expected("-", "none", EXIT_SUCCESS));
    assert_eq!(required_bump("1.2.1", &|_| {}), expected("none", "patch", EXIT_SUCCESS));
    assert_eq!(required_bump("1.2.0", &content), expected("patch", "patch", EXIT_FAILURE));
    assert_eq!(required_bump("1.2.1", &content), expected("patch", "patch", EXIT_SUCCESS));
    assert_eq!(required_bump("1.2.1", &more), expected("minor", "minor", EXIT_FAILURE));
    assert_eq!(required_bump("1.3.0", &more), expected("minor", "minor", EXIT_SUCCESS));
    assert_eq!(required_bump("1.3.0", &fewer), expected("major", "major", EXIT_FAILURE));
    assert_eq!(required_bump("2.0.0", &fewer), expected("major", "major", EXIT_SUCCESS));
    assert_eq!(required_bump("1.1.9", &content), expected("patch", "minor", EXIT_FAILURE));
    assert_eq!(required_bump("2.0.0-rc.1", &fewer), expected("major", "major", EXIT_SUCCESS));
}

#[test]
fn the_required_bump_depends_on_versions_and_changes() {
    let folder = TempDir::new().expect("a folder");
    let required_bump = |before: &str, current: &str, change: &dyn Fn(&mut Value)| {
        let old = variant(&folder, "old.json", |manifest| manifest["skills"][0]["version"] = before.into());
        let new = variant(&folder, "new.json", |manifest| {
            manifest["skills"][0]["version"] = current.into();
            change(manifest);
        });
        let done = skills(&["diff", "--json", as_text(&old), as_text(&new)]);
        let difference: Value = serde_json::from_str(&done.stdout).expect("JSON");
        (difference["skills"][0]["required"].as_str().unwrap_or("-").to_owned(), done.code)
    };
    let expected = |required: &str, code| (required.to_owned(), code);
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
    assert_eq!(required_bump("0.3.1", "0.3.2", &fewer), expected("minor", EXIT_FAILURE));
    assert_eq!(required_bump("0.3.1", "0.4.0", &fewer), expected("minor", EXIT_SUCCESS));
    assert_eq!(required_bump("0.3.1", "0.3.2", &more), expected("patch", EXIT_SUCCESS));
    assert_eq!(required_bump("2.0.0-rc.1", "2.0.0-rc.2", &fewer), expected("major", EXIT_SUCCESS));
    assert_eq!(required_bump("2.0.0-rc.2", "2.0.0-rc.1", &fewer), expected("major", EXIT_FAILURE));
    assert_eq!(required_bump("1.2.0", "1.2.1", &renamed), expected("none", EXIT_SUCCESS));
    assert_eq!(required_bump("1.2.0", "1.2.0", &renamed), expected("patch", EXIT_FAILURE));
    assert_eq!(required_bump("1.2.0", "1.2.0", &capitals), expected("-", EXIT_SUCCESS));
    assert_eq!(required_bump("1.2.0", "1.2.0", &older), expected("-", EXIT_SUCCESS));
}

#[test]
fn a_diff_is_printed_as_text() {
    let folder = TempDir::new().expect("a folder");
    let path = variant(&folder, "new.json", |manifest| {
        manifest["skills"][0]["title"] = "Images".into();
        manifest["skills"][1]["name"] = "pdf".into();
        manifest["apis"][0]["title"] = "Images".into();
    });
    let done = skills(&["diff", &case_path("good/full"), as_text(&path)]);
    let expected = "image-generation 1.2.0 -> 1.2.0: patch required, none made, TOO LITTLE\n  \
                    `title` changed (patch)\n\
                    pdf 0.3.1\n  added (minor)\n\
                    pdf-reading 0.3.1\n  removed (major)\n\
                    API reference `images-python` changed (patch)\n\
                    required bump in all: major\n";
    assert_eq!((done.code, done.stdout.as_str()), (EXIT_FAILURE, expected));
}

#[test]
fn rules_are_explained_and_listed() {
    let done = skills(&["explain", "m113"]);
    assert!(done.stdout.starts_with("M113 changed-release (error; needs the manifest published before)\n"), "{done:?}");
    assert_eq!(skills(&["explain", "changed-release"]).stdout, done.stdout);
    let list = skills(&["explain"]);
    assert!(list.code == EXIT_SUCCESS && list.stdout.lines().count() > 50, "{list:?}");
}
