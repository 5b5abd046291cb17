//! The commands that create, list, update and remove skills, and the properties that all `skills` commands share.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::hostile;
use crate::packages::{SkillRepository, files, text};

/// A repository with `demo` 1.0.0 and `other` 0.3.0, built.
fn built_repository() -> SkillRepository {
    let repo = SkillRepository::new();
    repo.build_for("https://example.com");
    repo
}

/// Standard error of a command that must end with this exit code.
fn stderr(repo: &SkillRepository, arguments: &[&str], code: i32) -> String {
    let output = repo.command(arguments).output().expect("the program starts");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}{stderr}", text(&output.stdout));
    stderr
}

fn demo_skill(version: &str) -> String {
    hostile::SKILL.replace("1.0.0", version)
}

fn names(manifest: &Value) -> Vec<String> {
    let entries = manifest["skills"].as_array().expect("a list").iter();
    entries.map(|entry| format!("{} {}", entry["name"], entry["version"]).replace('"', "")).collect()
}

#[test]
fn a_new_skill_can_be_built_at_once_and_an_existing_folder_stays() {
    let repo = SkillRepository::new();
    let next = stderr(&repo, &["new", "pdf-reading", "--description", "Reads PDF files: \"all\" of them."], 0);
    assert!(next.contains("imagate skills build") && next.contains("--repository"), "{next}");
    repo.build_for("https://example.com");
    repo.run_ok(&["validate", "--root", ".", "--strict"]);
    assert_eq!(names(&repo.manifest()), ["demo 1.0.0", "other 0.3.0", "pdf-reading 0.1.0"]);
    let entry = &repo.manifest()["skills"][2];
    assert_eq!(
        (&entry["title"], &entry["description"]),
        (&"Pdf reading".into(), &"Reads PDF files: \"all\" of them.".into())
    );
    assert_eq!(repo.run_ok(&["new", "plain", "--skills", "more/"]), "more/plain/SKILL.md\n");
    let before = files(&repo.path(""));
    for arguments in [&["new", "demo"][..], &["new", "plain", "--skills", "more"]] {
        assert!(stderr(&repo, arguments, 1).contains("already exists"), "{arguments:?}");
    }
    for name in ["../up", "Images", "a_b", "con", "a/b"] {
        assert!(stderr(&repo, &["new", name], 2).starts_with("error: "), "{name}");
    }
    assert_eq!(files(&repo.path("")), before);
}

#[cfg(unix)]
#[test]
fn nothing_is_created_through_a_symbolic_link() {
    let repo = SkillRepository::new();
    let outside = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(outside.path(), repo.path("linked")).expect("a link");
    assert!(stderr(&repo, &["new", "demo", "--skills", "linked"], 1).contains("linked is a symbolic link"));
    assert_eq!(fs::read_dir(outside.path()).expect("a folder").count(), 0);
}

#[test]
fn a_manifest_is_listed_as_a_table_and_as_json() {
    let repo = SkillRepository::new();
    repo.write_file("apis/images.md", "---\ntitle: Images\nproduct: images\nlanguage: http\n---\n");
    repo.build_for("https://example.com");
    let mut manifest = repo.manifest();
    manifest["skills"][0]["updated_at"] = "2026-11-21T03:00:00Z".into();
    manifest["skills"][0]["x-own"] = 7.into();
    manifest["skills"][1].as_object_mut().expect("an entry").remove("updated_at");
    manifest["skills"][1]["title"] = "\u{1b}[2J".into();
    repo.write_file("skills.json", &manifest.to_string());
    let expected = "NAME   VERSION  UPDATED     TITLE\n\
                    demo   1.0.0    2026-11-21  Demo\n\
                    other  0.3.0    -           \\u{1b}[2J\n";
    assert_eq!(repo.run_ok(&["list"]), expected);
    assert_eq!(
        repo.run_ok(&["list", "--apis"]),
        "ID      PRODUCT  LANGUAGE  TITLE\nimages  images   http      Images\n"
    );
    let json = |arguments: &[&str]| -> Value { serde_json::from_str(&repo.run_ok(arguments)).expect("JSON") };
    assert_eq!(json(&["list", "--json"]), manifest["skills"]);
    assert_eq!(json(&["list", "skills.json", "--apis", "--json"]), manifest["apis"]);
    assert!(stderr(&repo, &["list", "none.json"], 1).contains("none.json"));
    repo.write_file("skills.json", "{}");
    assert!(stderr(&repo, &["list"], 1).contains("is not a skills registry manifest"));
}

#[test]
fn installed_skills_are_listed_and_removed() {
    let repo = built_repository();
    repo.run_ok(&["install", "demo", "other", "--into", "agent"]);
    let list = || repo.run_ok(&["list", "--into", "agent"]);
    assert_eq!(list(), "NAME   VERSION  STATE\ndemo   1.0.0    unchanged\nother  0.3.0    unchanged\n");
    repo.write_file("agent/demo/SKILL.md", "mine");
    fs::remove_dir_all(repo.path("agent/other")).expect("a folder");
    assert_eq!(list(), "NAME   VERSION  STATE\ndemo   1.0.0    changed\nother  0.3.0    missing\n");
    let json: Value = serde_json::from_str(&repo.run_ok(&["list", "--into", "agent", "--json"])).expect("JSON");
    assert_eq!((&json[0]["name"], &json[0]["state"]), (&"demo".into(), &"changed".into()));
    assert_eq!(json[0]["sha256"], repo.manifest()["skills"][0]["sha256"]);
    let before = files(&repo.path("agent"));
    let refused = stderr(&repo, &["remove", "demmo", "other@^1", "demo", "--into", "agent"], 1);
    let expected = [
        "error: the skill `demmo` is not installed; did you mean `demo`?",
        "error: `other` is installed in version 0.3.0, which does not match",
        "error: agent/demo was changed since it was installed; pass --force to remove it",
    ];
    assert_eq!(refused.lines().collect::<Vec<_>>(), expected);
    assert_eq!(files(&repo.path("agent")), before);
    repo.run_ok(&["remove", "demo", "other@0.3.0", "--into", "agent", "--force"]);
    assert_eq!(list(), "NAME  VERSION  STATE\n");
    let left: Vec<_> = files(&repo.path("agent")).into_keys().collect();
    assert_eq!(left, [Path::new("skills.lock.json")]);
    assert!(stderr(&repo, &["list", "--into", "nowhere"], 1).contains("nowhere is not a folder"));
    assert!(!repo.path("nowhere").exists());
    repo.run_ok(&["install", "demo", "--into", "agent"]);
}

#[test]
fn only_listed_skills_whose_files_changed_are_updated() {
    let repo = SkillRepository::new();
    repo.write_file("apis/images.md", "---\ntitle: Images\nproduct: images\nlanguage: http\n---\n");
    repo.build_for("https://example.com");
    // The order of a manifest and fields that no file states are kept.
    let mut manifest = repo.manifest();
    manifest["skills"].as_array_mut().expect("a list").reverse();
    manifest["skills"][1]["x-own"] = 7.into();
    manifest["generated_at"] = "2026-01-01T00:00:00Z".into();
    repo.write_file("skills.json", &manifest.to_string());
    let unchanged = fs::read(repo.path("skills.json")).expect("a manifest");
    assert!(stderr(&repo, &["update"], 0).contains("skills.json is up to date"));
    assert_eq!(fs::read(repo.path("skills.json")).expect("a manifest"), unchanged);
    repo.write_file("skills/demo/SKILL.md", &demo_skill("1.1.0"));
    repo.write_file("skills/new-one/SKILL.md", &demo_skill("1.0.0").replace("demo", "new-one"));
    repo.write_file("apis/images.md", "---\ntitle: Pictures\nproduct: images\nlanguage: http\n---\n");
    let before = files(&repo.path(""));
    let report = repo.run_failing(&["update", "--check"], 1);
    assert!(report.contains("demo 1.0.0 -> 1.1.0") && report.contains("`images` changed"), "{report}");
    assert_eq!(files(&repo.path("")), before);
    assert!(!repo.run_failing(&["update", "demo", "--check"], 1).contains("`images` changed"));
    assert_eq!(repo.run_ok(&["update", "other", "--check"]), "");
    let printed = repo.run_ok(&["update"]);
    assert!(printed.starts_with("demo 1.0.0 -> 1.1.0: patch required, minor made, enough\n"), "{printed}");
    let updated = repo.manifest();
    assert_eq!(names(&updated), ["other 0.3.0", "demo 1.1.0"]);
    assert_eq!((&updated["skills"][0], &updated["skills"][1]["x-own"]), (&manifest["skills"][0], &7.into()));
    assert_eq!(updated["apis"][0]["title"], "Pictures");
    assert!(updated["generated_at"].as_str() > manifest["generated_at"].as_str());
    repo.run_ok(&["verify"]);
    repo.run_ok(&["update", "--check"]);
}

#[test]
fn an_update_reports_every_problem_and_then_writes_nothing() {
    let repo = built_repository();
    repo.write_file("skills/demo/docs/more.md", "Other.\n");
    fs::remove_dir_all(repo.path("skills/other")).expect("a folder");
    let before = files(&repo.path(""));
    let problems = stderr(&repo, &["update"], 1);
    let lines: Vec<&str> = problems.lines().collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with("error: ")), "{problems}");
    assert!(
        lines[0].contains("raise `metadata.version`") && lines[1].contains("skills/other: is not the folder"),
        "{problems}"
    );
    assert!(stderr(&repo, &["update", "demmo"], 1).contains("did you mean `demo`?"));
    assert!(stderr(&repo, &["update", "demo@1.0.0"], 2).contains("without a version"));
    assert_eq!(files(&repo.path("")), before);
    repo.run_ok(&["update", "demo", "--overwrite"]);
    repo.run_ok(&["verify"]);
}

/// A manifest may list several versions, of which the folder holds one, and name packages in its own way.
#[test]
fn an_update_keeps_other_versions_and_package_paths() {
    let repo = built_repository();
    fs::rename(repo.path("packages/demo-1.0.0.zip"), repo.path("demo.zip")).expect("a package");
    let mut manifest = repo.manifest();
    manifest["skills"][0]["package"] = "demo.zip".into();
    let mut older = manifest["skills"][0].clone();
    older["version"] = "0.9.0".into();
    manifest["skills"].as_array_mut().expect("a list").push(older);
    repo.write_file("skills.json", &manifest.to_string());
    repo.run_ok(&["update", "--check"]);
    repo.write_file("skills/demo/SKILL.md", &demo_skill("1.2.0"));
    repo.run_ok(&["update"]);
    let updated = repo.manifest();
    assert_eq!(names(&updated), ["demo 1.2.0", "other 0.3.0", "demo 0.9.0"]);
    assert_eq!(updated["skills"][0]["package"], "demo-1.2.0.zip");
    assert_eq!(updated["skills"][2], manifest["skills"][2]);
}

/// A listed release stays as it was published, whichever version the folder holds.
#[test]
fn an_update_damages_no_newer_release() {
    let repo = built_repository();
    let mut manifest = repo.manifest();
    let mut newest = manifest["skills"][0].clone();
    newest["version"] = "2.0.0".into();
    newest["package"] = "packages/demo-2.0.0.zip".into();
    newest["updated_at"] = "2026-11-21T03:00:00Z".into();
    newest["x-own"] = 7.into();
    manifest["skills"].as_array_mut().expect("a list").insert(1, newest);
    repo.write_file("skills.json", &manifest.to_string());
    // The version of the folder is listed beside a newer one: its entry is up to date, and then takes only own values.
    repo.run_ok(&["update", "--check"]);
    repo.write_file("skills/demo/SKILL.md", &format!("{}\nMore.\n", demo_skill("1.0.0").replace("# Demo", "# New")));
    repo.run_ok(&["update", "--overwrite"]);
    let updated = repo.manifest();
    assert_eq!(names(&updated), ["demo 1.0.0", "demo 2.0.0", "other 0.3.0"]);
    assert_eq!((&updated["skills"][0]["title"], updated["skills"][0].get("x-own")), (&"New".into(), None));
    assert_eq!(updated["skills"][1], manifest["skills"][1]);
    // A lower version that is not listed gets an entry of its own.
    repo.write_file("skills/demo/SKILL.md", &demo_skill("1.0.1"));
    repo.write_file("skills/other/SKILL.md", &demo_skill("0.4.0").replace("demo", "other"));
    repo.run_ok(&["update"]);
    let backported = repo.manifest();
    assert_eq!(names(&backported), ["demo 1.0.0", "demo 1.0.1", "demo 2.0.0", "other 0.4.0"]);
    assert_eq!((&backported["skills"][0], &backported["skills"][2]), (&updated["skills"][0], &updated["skills"][1]));
    assert_eq!(backported["skills"][1]["package"], "packages/demo-1.0.1.zip");
    assert!(repo.path("packages/demo-1.0.1.zip").exists());
    repo.run_ok(&["update", "--check"]);
}

#[test]
fn an_entry_is_removed_and_everything_else_stays() {
    let repo = built_repository();
    let mut manifest = repo.manifest();
    let mut older = manifest["skills"][0].clone();
    older["version"] = "0.9.0".into();
    manifest["skills"].as_array_mut().expect("a list").push(older);
    manifest["x-own"] = 7.into();
    repo.write_file("skills.json", &manifest.to_string());
    let before = files(&repo.path(""));
    let refused = stderr(&repo, &["remove", "demmo", "demo@3.0.0", "other"], 1);
    let expected = [
        "error: the manifest has no skill `demmo`; did you mean `demo`?",
        "error: no version of `demo` matches; the manifest has 1.0.0, 0.9.0",
    ];
    assert_eq!(refused.lines().collect::<Vec<_>>(), expected);
    assert_eq!(files(&repo.path("")), before);
    let removed = stderr(&repo, &["remove", "demo@<1", "--source-date-epoch", "1700000000"], 0);
    assert_eq!(removed, "removed demo 0.9.0 from skills.json\n");
    assert_eq!(names(&repo.manifest()), ["demo 1.0.0", "other 0.3.0"]);
    assert_eq!(
        (&repo.manifest()["generated_at"], &repo.manifest()["x-own"]),
        (&"2023-11-14T22:13:20Z".into(), &7.into())
    );
    let removed = stderr(&repo, &["remove", "demo", "--manifest", "skills.json"], 0);
    assert!(removed.contains("skills/demo still exists"), "{removed}");
    assert_eq!(names(&repo.manifest()), ["other 0.3.0"]);
    assert!(repo.path("skills/demo/SKILL.md").exists() && repo.path("packages/demo-1.0.0.zip").exists());
    assert_eq!(repo.manifest()["skills"][0], manifest["skills"][1]);
}

#[test]
fn every_command_reads_skills_json_by_default() {
    let repo = built_repository();
    fs::copy(repo.path("skills.json"), repo.path("published.json")).expect("a copy");
    for arguments in [
        &["validate"][..],
        &["verify"],
        &["fmt", "--check"],
        &["diff", "published.json"],
        &["export"],
        &["list"],
        &["update", "--check"],
        &["build", "--check"],
        &["install", "demo", "--into", "agent"],
        &["remove", "demo"],
    ] {
        repo.run_ok(arguments);
    }
    for arguments in
        [&["validate"][..], &["verify"], &["fmt"], &["diff", "published.json"], &["export"], &["list"], &["update"]]
    {
        let _ = fs::remove_file(repo.path("skills.json"));
        assert!(stderr(&repo, arguments, 1).starts_with("error: skills.json: "), "{arguments:?}");
    }
}

#[test]
fn each_problem_of_a_build_begins_a_line_with_error() {
    let repo = built_repository();
    repo.write_file("skills/demo/SKILL.md", "no front matter");
    repo.write_file("skills/other/.env", "SECRET=1");
    let problems = stderr(&repo, &["build"], 1);
    let lines: Vec<&str> = problems.lines().collect();
    assert_eq!(lines.len(), 2, "{problems}");
    assert!(lines[0].starts_with("error: skills/demo/SKILL.md:1:1: "), "{problems}");
    assert!(lines[1].starts_with("error: skills/other/.env: "), "{problems}");
}

/// The paths in the output of a command are those of the current folder, so that editors and code hosts find them.
#[test]
fn shown_paths_are_relative_to_the_current_folder() {
    let repo = SkillRepository::new();
    fs::create_dir(repo.path("docs")).expect("a folder");
    fs::rename(repo.path("skills"), repo.path("docs/skills")).expect("the skills");
    let address = ["--git-url", "https://example.com/e/s.git", "--raw-base-url", "https://example.com/e/s/raw/main"];
    let build = |more: &[&str], code| {
        let options = ["build", "--root", "docs", "--repository", "e/s", "--branch", "main"];
        stderr(&repo, &[&options, &address[..], more].concat(), code)
    };
    repo.write_file("docs/skills/demo/.DS_Store", "junk");
    let built = build(&[], 0);
    for line in ["left out docs/skills/demo/.DS_Store", "wrote docs/packages/demo-1.0.0.zip", "wrote docs/skills.json"]
    {
        assert!(built.contains(&format!("{line}\n")), "{built}");
    }
    repo.write_file("docs/skills/demo/SKILL.md", &demo_skill("1.0.0").replace("Shows", "Hides"));
    assert!(build(&[], 1).starts_with("error: docs/packages/demo-1.0.0.zip: was published"));
    let update = stderr(&repo, &["update", "--manifest", "docs/skills.json"], 1);
    assert!(update.starts_with("error: docs/packages/demo-1.0.0.zip: was published"), "{update}");
    repo.write_file("docs/skills/demo/SKILL.md", &demo_skill("1.0.1"));
    for format in ["github", "sarif", "human", "json", "junit"] {
        let validate = ["validate", "docs/skills.json", "--root", "docs", "--format", format];
        let report = repo.run_failing(&validate, 1);
        assert!(report.contains("docs/skills/demo/SKILL.md") && report.contains("docs/skills.json"), "{report}");
        assert!(!report.replace("docs/skills/demo/SKILL.md", "").contains("skills/demo/SKILL.md"), "{report}");
    }
    assert!(build(&[], 0).contains("wrote docs/packages/demo-1.0.1.zip\n"));
    let mut manifest: Value =
        serde_json::from_slice(&fs::read(repo.path("docs/skills.json")).expect("a manifest")).expect("JSON");
    manifest["skills"][0]["version"] = "1.0.2".into();
    repo.write_file("docs/skills.json", &manifest.to_string());
    let verified = repo.run_failing(&["verify", "docs/skills.json", "--format", "github"], 1);
    assert!(verified.contains("file=docs/packages/demo-1.0.1.zip!/SKILL.md,line=5"), "{verified}");
}

/// Runs git in a folder of the repository.
fn git(repo: &SkillRepository, folder: &str, words: &[&str]) {
    let done = Command::new("git").arg("-C").arg(repo.path(folder)).args(words).output().expect("git");
    assert!(done.status.success(), "{words:?}: {}", text(&done.stderr));
}

#[test]
fn a_first_build_takes_the_repository_from_git() {
    let repo = SkillRepository::new();
    git(&repo, "", &["init", "-q", "-b", "trunk"]);
    git(&repo, "", &["remote", "add", "origin", "https://user:secret@github.com/example/skills.git"]);
    let next = stderr(&repo, &["new", "pdf-reading", "--description", "Reads PDF files."], 0);
    assert!(next.contains("from git: https://github.com/example/skills.git\n") && !next.contains("--"), "{next}");
    let printed = stderr(&repo, &["build", "--repository", "ours"], 0);
    assert!(printed.contains("from git: --branch trunk\n") && !printed.contains("from git: --repository"), "{printed}");
    assert!(!printed.contains("secret") && !next.contains("secret"), "{printed}");
    let expected = json!({
        "name": "ours", "git_url": "https://github.com/example/skills.git", "branch": "trunk",
        "raw_base_url": "https://raw.githubusercontent.com/example/skills/trunk",
    });
    assert_eq!(repo.manifest()["repository"], expected);
    git(&repo, "", &["add", "."]);
    repo.run_ok(&["validate", "--root", ".", "--strict"]);
    // Later builds keep what the manifest has.
    git(&repo, "", &["remote", "set-url", "origin", "https://gitlab.com/other/place"]);
    assert!(!stderr(&repo, &["build"], 0).contains("from git"));
    assert_eq!(repo.manifest()["repository"], expected);
}

#[test]
fn what_git_does_not_show_is_asked_for_alone() {
    let repo = SkillRepository::new();
    git(&repo, "", &["init", "-q", "-b", "trunk"]);
    let nothing = stderr(&repo, &["new", "first"], 0);
    assert!(nothing.contains("needs --repository, --git-url, --raw-base-url and --branch\n"), "{nothing}");
    git(&repo, "", &["remote", "add", "upstream", "git@git.example.org:example/skills.git"]);
    let next = stderr(&repo, &["new", "second"], 0);
    assert!(next.contains("https://git.example.org/example/skills.git; it also needs --raw-base-url\n"), "{next}");
    let refused = stderr(&repo, &["build"], 1);
    assert!(refused.contains("--raw-base-url") && !refused.contains("with --branch"), "{refused}");
    // With several remotes, only `origin` counts.
    git(&repo, "", &["remote", "add", "mine", "git@codeberg.org:mine/skills.git"]);
    assert!(stderr(&repo, &["new", "third"], 0).contains("needs --repository, "));
    git(&repo, "", &["remote", "rename", "mine", "origin"]);
    // A folder of the repository is part of the address of its files.
    fs::create_dir(repo.path("docs")).expect("a folder");
    fs::rename(repo.path("skills"), repo.path("docs/skills")).expect("the skills");
    stderr(&repo, &["build", "--root", "docs"], 0);
    let manifest: Value = serde_json::from_slice(&fs::read(repo.path("docs/skills.json")).expect("it")).expect("JSON");
    assert_eq!(manifest["repository"]["raw_base_url"], "https://codeberg.org/mine/skills/raw/branch/trunk/docs");
}

#[test]
fn verify_says_how_much_it_has_looked_at() {
    let repo = built_repository();
    assert!(stderr(&repo, &["verify"], 0).contains("checked: skills 2, files 2; errors 0, warnings 0\n"));
    let checked = |arguments: &[&str]| {
        let report: Value = serde_json::from_str(&repo.run_ok(arguments)).expect("JSON");
        report["checked"].clone()
    };
    assert_eq!(checked(&["verify", "--format", "json"]), json!({"skills": 2, "files": 2}));
    assert_eq!(checked(&["validate", "--format", "json"]), json!({"skills": 2, "files": 0}), "there is no checkout");
    stderr(&repo, &["remove", "demo"], 0);
    assert_eq!(checked(&["verify", "--format", "json"]), json!({"skills": 1, "files": 1}));
    let package = repo.path("packages/other-0.3.0.zip");
    fs::write(&package, "no archive").expect("a file");
    assert!(stderr(&repo, &["verify"], 1).contains("checked: skills 1, files 1; errors "));
    fs::remove_file(&package).expect("a file");
    assert!(stderr(&repo, &["verify"], 1).contains("checked: skills 1, files 0; errors 1,"));
}
