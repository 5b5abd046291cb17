//! Tests of the rules of the classes repository and package: each case has one fault, and lists every rule of these
//! classes that reports it.

use std::sync::Mutex;

use crate::manifest::package::Sha256Sum;
use crate::manifest::package::hostile::{SKILL, TarEntry, Zip, ZipEntry, gzip, skill_zip_entry, tar};
use crate::manifest::text::SourceFile;
use crate::manifest::{
    CheckOptions, CheckReport, FileKind, FileMetadata, FilesError, FolderEntry, MemoryFiles, RepositoryFiles, check,
    render, verify,
};

/// A repository with one skill: its files, the entry of the skill in the manifest, and the API references.
struct Case {
    files: MemoryFiles,
    entry: serde_json::Value,
    apis: serde_json::Value,
}

fn case() -> Case {
    let mut files = MemoryFiles::new();
    files.insert("skills/demo/SKILL.md", SKILL);
    let entry = serde_json::json!({
        "name": "demo", "version": "1.0.0", "title": "Demo", "description": "Shows a thing when it is asked to.",
        "path": "skills/demo", "package": "packages/demo-1.0.0.zip",
    });
    let mut case = Case { files, entry, apis: serde_json::json!([]) };
    case.set_package(&Zip::of(vec![skill_zip_entry()]).build());
    case
}

impl Case {
    fn set_package(&mut self, bytes: &[u8]) {
        self.files.insert("packages/demo-1.0.0.zip", bytes);
        self.entry["sha256"] = Sha256Sum::of(bytes).to_string().into();
        self.entry["size_bytes"] = bytes.len().into();
    }

    fn source(&self) -> SourceFile {
        let manifest = serde_json::json!({
            "schema_version": "1.0", "generated_at": "2026-01-01T00:00:00Z", "apis": self.apis, "skills": [self.entry],
            "repository": { "name": "e/s", "git_url": "https://example.com/e/s.git", "raw_base_url": "https://example.com/e/s/raw/main", "branch": "main" },
        });
        SourceFile::new("skills.json", manifest.to_string())
    }

    /// Returns the broken rules of the classes repository and package, each once.
    fn rules(&self) -> Vec<&'static str> {
        let report = check(self.source(), &CheckOptions { files: Some(&self.files), ..CheckOptions::default() });
        let ids = report.findings().iter().map(|finding| finding.rule().id);
        let mut ids: Vec<&str> = ids.filter(|id| ("M070".."M100").contains(id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

fn rules(change: impl FnOnce(&mut Case)) -> Vec<&'static str> {
    let mut case = case();
    change(&mut case);
    case.rules()
}

fn rules_of_package(parts: Vec<ZipEntry>) -> Vec<&'static str> {
    rules(|case| {
        for part in parts.iter().filter(|part| part.name != b"SKILL.md") {
            case.files.insert(format!("skills/demo/{}", String::from_utf8_lossy(&part.name)), part.data.clone());
        }
        case.set_package(&Zip::of([vec![skill_zip_entry()], parts.clone()].concat()).build());
    })
}

#[test]
fn a_correct_repository_has_no_findings() {
    assert_eq!(rules(|_| ()), Vec::<&str>::new());
    assert_eq!(rules_of_package(vec![ZipEntry::file("docs/more.md", "more")]), Vec::<&str>::new());
    let in_a_folder =
        |case: &mut Case| case.set_package(&Zip::of(vec![ZipEntry::file("demo/SKILL.md", SKILL)]).build());
    assert_eq!(rules(in_a_folder), Vec::<&str>::new());
    let as_a_tar = |case: &mut Case| {
        let bytes = gzip(&tar(&[TarEntry::file("SKILL.md", SKILL)]));
        case.set_package(&bytes);
        case.entry["package"] = "packages/demo-1.0.0.tar.gz".into();
        case.files.insert("packages/demo-1.0.0.tar.gz", bytes);
    };
    // The zip still exists, but no entry names it.
    assert_eq!(rules(as_a_tar), ["M078"]);
}

#[test]
fn each_fault_of_the_checkout_breaks_its_rule() {
    let link = || FileMetadata { kind: FileKind::Link("../x".to_owned()), size: 0, is_executable: false };
    assert_eq!(rules(|case| case.entry["path"] = "skills/none".into()), ["M070", "M077", "M087"]);
    assert_eq!(rules(|case| case.entry["path"] = "skills/demo/SKILL.md".into()), ["M070", "M087"]);
    assert_eq!(rules(|case| case.entry["package"] = "packages/none.zip".into()), ["M071", "M078"]);
    assert_eq!(rules(|case| case.entry["package"] = "packages".into()), ["M071"]);
    assert_eq!(rules(|case| case.entry["size_bytes"] = 1.into()), ["M072"]);
    assert_eq!(rules(|case| case.entry["sha256"] = "0".repeat(64).into()), ["M073"]);
    assert_eq!(
        rules(|case| {
            case.files.insert_other("skills/demo/x", link());
        }),
        ["M074"]
    );
    assert_eq!(
        rules(|case| {
            case.files.insert_other("packages/demo-1.0.0.zip", link());
        }),
        ["M074"]
    );
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    assert_eq!(
        rules(|case| {
            case.files.insert("packages/demo-1.0.0.zip", pointer);
        }),
        ["M072", "M073", "M075", "M080"]
    );
    assert_eq!(rules(|case| case.entry["path"] = "Skills/demo".into()), ["M076"]);
    let misspelled = |case: &mut Case| {
        case.entry["path"] = "skills/Demo".into();
        case.entry["package"] = "packages/Demo-1.0.0.zip".into();
    };
    assert_eq!(rules(misspelled), ["M076", "M077", "M078"]);
    assert_eq!(
        rules(|case| {
            case.files.insert("skills/draft/SKILL.md", SKILL);
        }),
        ["M077"]
    );
    assert_eq!(
        rules(|case| {
            case.files.insert("packages/old-1.0.0.zip", "");
        }),
        ["M078"]
    );
    let api =
        |path: &str| serde_json::json!([{ "id": "a", "title": "A", "product": "p", "language": "rust", "path": path }]);
    assert_eq!(rules(|case| case.apis = api("apis/a.md")), ["M079"]);
    assert_eq!(rules(|case| case.apis = api("skills")), ["M079"]);
    assert_eq!(rules(|case| case.apis = api("skills/demo/SKILL.md")), Vec::<&str>::new());
}

/// Files that note each folder that is listed.
struct CountingFiles<'a>(&'a MemoryFiles, Mutex<Vec<String>>);

impl RepositoryFiles for CountingFiles<'_> {
    fn read(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        self.0.read(path, limit)
    }

    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError> {
        self.1.lock().expect("no thread has panicked").push(path.to_owned());
        self.0.list(path)
    }

    fn metadata(&self, path: &str) -> Result<Option<FileMetadata>, FilesError> {
        self.0.metadata(path)
    }
}

#[test]
fn each_folder_is_listed_only_once() {
    let case = case();
    let files = CountingFiles(&case.files, Mutex::default());
    assert!(!check(case.source(), &CheckOptions { files: Some(&files), ..CheckOptions::default() }).has_errors());
    let mut listed = files.1.into_inner().expect("no thread has panicked");
    listed.sort_unstable();
    assert_eq!(listed, ["", "packages", "skills", "skills/demo"]);
}

#[test]
fn the_findings_do_not_depend_on_the_number_of_threads() {
    let mut case = case();
    let mut skills = Vec::new();
    for number in 0..500 {
        let (path, package) = (format!("skills/s{number}"), format!("packages/s{number}.zip"));
        case.files.insert(format!("{path}/SKILL.md"), SKILL);
        let bytes = Zip::of(vec![skill_zip_entry(), ZipEntry::file("n", number.to_string())]).build();
        let mut entry = case.entry.clone();
        for (key, value) in [("name", format!("s{number}")), ("path", path), ("package", package.clone())] {
            entry[key] = value.into();
        }
        // Every third checksum is wrong, so that not all skills have the same findings.
        entry["sha256"] = Sha256Sum::of(if number % 3 == 0 { b"" } else { &bytes }).to_string().into();
        case.files.insert(package, bytes);
        skills.push(entry);
    }
    let manifest = serde_json::json!({ "schema_version": "1.0", "skills": skills, "apis": [{ "path": "none" }] });
    let found = |threads| {
        let source = SourceFile::new("skills.json", manifest.to_string());
        let report = check(source, &CheckOptions { files: Some(&case.files), threads, ..CheckOptions::default() });
        (report.sources().len(), render::json(&report).expect("JSON"))
    };
    let single_threaded = found(1);
    assert!(single_threaded.0 > 500, "each finding adds a file to the report");
    assert!((2..6).all(|threads| found(threads) == single_threaded));
}

#[test]
fn paths_that_are_not_checked_are_reported() {
    let deep = |case: &mut Case| {
        case.files.insert(format!("skills/demo/{}x", "d/".repeat(10)), "x");
    };
    assert_eq!(rules(deep), ["M070"]);
    let many = |case: &mut Case| {
        for number in 0..10_001 {
            case.files.insert(format!("skills/demo/{number}"), "");
        }
    };
    assert_eq!(rules(many), ["M070"]);
    let verified = |path: &str| {
        let mut case = case();
        case.entry["package"] = path.into();
        verify(case.source(), &CheckOptions { files: Some(&case.files), ..CheckOptions::default() }).has_errors()
    };
    for path in ["../demo-1.0.0.zip", "/demo-1.0.0.zip", "packages//demo-1.0.0.zip", "packages/com0.zip", "", "a:b"] {
        assert!(verified(path), "{path}");
        assert_eq!(rules(|case| case.entry["package"] = path.into())[0], "M071", "{path}");
        assert_eq!(rules(|case| case.entry["path"] = path.into())[0], "M070", "{path}");
    }
}

#[test]
fn each_fault_of_an_archive_breaks_its_rule() {
    let with_parts = |parts: Vec<ZipEntry>| {
        rules(|case| case.set_package(&Zip::of([vec![skill_zip_entry()], parts].concat()).build()))
    };
    assert_eq!(rules(|case| case.set_package(b"PK\x03\x04")), ["M080"]);
    assert_eq!(rules(|case| case.set_package(&[0; (10 << 20) + 1])), ["M081"]);
    assert_eq!(rules(|case| case.set_package(&gzip(&tar(&[TarEntry::file("SKILL.md", SKILL)])))), ["M080"]);
    assert_eq!(with_parts(vec![ZipEntry::file("zeros", vec![0; 300_000])]), ["M081"]);
    assert_eq!(with_parts(vec![ZipEntry::file("../x", "x")]), ["M082"]);
    assert_eq!(with_parts(vec![ZipEntry::file("a", "x"), ZipEntry::file("A", "x")]), ["M083"]);
    assert_eq!(with_parts(vec![ZipEntry { mode: 0o120_777, ..ZipEntry::file("a", "x") }]), ["M084"]);
    assert_eq!(with_parts(vec![ZipEntry { before: b"x".to_vec(), ..ZipEntry::file("a", "x") }]), ["M085"]);
}

#[test]
fn each_fault_of_the_contents_breaks_its_rule() {
    let only_package = |parts: Vec<ZipEntry>| rules(|case| case.set_package(&Zip::of(parts).build()));
    let with_skill_file = |text: String| {
        rules(|case| {
            case.files.insert("skills/demo/SKILL.md", text.clone());
            case.set_package(&Zip::of(vec![ZipEntry::file("SKILL.md", text)]).build());
        })
    };
    assert_eq!(only_package(vec![ZipEntry::file("a/b/SKILL.md", SKILL)]), ["M086"]);
    assert_eq!(only_package(vec![ZipEntry::file("demo/SKILL.md", SKILL), ZipEntry::file("x", "x")]), ["M086"]);
    assert_eq!(only_package(vec![ZipEntry::file("a/SKILL.md", SKILL), ZipEntry::file("b/SKILL.md", SKILL)]), ["M086"]);
    assert_eq!(only_package(vec![ZipEntry::file("other/SKILL.md", SKILL)]), ["M086"]);
    assert_eq!(with_skill_file("nothing".to_owned()), ["M087"]);
    assert_eq!(with_skill_file(SKILL.replace("name: demo", "name: Demo")), ["M087", "M088"]);
    assert_eq!(with_skill_file(SKILL.replace("1.0.0", "1.0.1")), ["M088"]);
    assert_eq!(with_skill_file(SKILL.replace("Shows", "Hides")), ["M089"]);
    assert_eq!(
        rules(|case| {
            case.files.insert("skills/demo/new.md", "new");
        }),
        ["M090"]
    );
    assert_eq!(
        rules(|case| {
            case.files.insert("skills/demo/SKILL.md", format!("{SKILL}more"));
        }),
        ["M090"]
    );
    assert_eq!(
        rules(|case| {
            case.files.insert("skills/demo/SKILL.md", format!("{} ", &SKILL[..SKILL.len() - 1]));
        }),
        ["M090"]
    );
    assert_eq!(only_package(vec![skill_zip_entry(), ZipEntry::file("extra.md", "x")]), ["M090"]);
    assert_eq!(
        rules(|case| {
            case.files.insert("skills/demo/.DS_Store", "x");
        }),
        Vec::<&str>::new()
    );
    assert_eq!(rules_of_package(vec![ZipEntry::file(".env", "A=1")]), ["M091"]);
    assert_eq!(rules_of_package(vec![ZipEntry::file(".DS_Store", "x")]), ["M092"]);
    assert_eq!(with_skill_file(format!("{SKILL}[x](missing.md)\n")), ["M093"]);
    assert_eq!(with_skill_file(format!("{SKILL}{}", "line\n".repeat(501))), ["M095"]);
    assert_eq!(with_skill_file(SKILL.replace("metadata:", "model: x\nmetadata:")), ["M096"]);
}

#[test]
fn some_differences_are_listed_and_others_are_counted() {
    let mut case = case();
    for number in 0..7 {
        case.files.insert(format!("skills/demo/{number}.md"), "new");
    }
    let report = check(case.source(), &CheckOptions { files: Some(&case.files), ..CheckOptions::default() });
    let messages: Vec<&str> = report
        .findings()
        .iter()
        .filter(|finding| finding.rule().id == "M090")
        .map(|finding| finding.message())
        .collect();
    assert_eq!(messages.len(), 6);
    assert!(messages.iter().any(|message| message.starts_with("2 more files differ")), "{messages:?}");
}

#[test]
fn a_finding_in_a_skill_has_a_location_in_its_file() {
    let mut case = case();
    case.files.insert("skills/demo/SKILL.md", SKILL.replace("1.0.0", "2.0.0"));
    let report = check(case.source(), &CheckOptions { files: Some(&case.files), ..CheckOptions::default() });
    let finding = report.findings().iter().find(|finding| finding.rule().id == "M088").expect("a finding");
    let span = finding.span().expect("a location");
    let source = report.source(span.file).expect("a file");
    assert_eq!(source.name(), "skills/demo/SKILL.md");
    assert_eq!(source.position(span.start).line, 5);
    assert_eq!(finding.pointer(), "/skills/0");
    for (display_root, name) in [("some/folder", "some/folder/skills/demo/SKILL.md"), ("/", "/skills/demo/SKILL.md")] {
        let options = CheckOptions { files: Some(&case.files), display_root, ..CheckOptions::default() };
        let github = render::github(&check(case.source(), &options));
        assert!(github.contains(&format!("file={name},line=5")), "{github}");
    }
}

#[test]
fn verify_checks_only_the_packages() {
    let mut case = case();
    let mut only_package = MemoryFiles::new();
    let package =
        case.files.read("packages/demo-1.0.0.zip", 1 << 20).expect("the file can be read").expect("the file exists");
    only_package.insert("packages/demo-1.0.0.zip", package);
    case.files = only_package;
    assert_eq!(verified(&case).findings().len(), 0);
    case.entry["sha256"] = "1".repeat(64).into();
    assert!(verified(&case).has_errors());
    case.set_package(&Zip::of(vec![ZipEntry::file("../x", "x")]).build());
    assert!(verified(&case).has_errors());
}

fn verified(case: &Case) -> CheckReport {
    verify(case.source(), &CheckOptions { files: Some(&case.files), ..CheckOptions::default() })
}

/// These faults need no checkout, and their findings are errors.
#[test]
fn verify_reports_a_package_of_another_skill_or_with_secrets() {
    let rules = |parts: Vec<ZipEntry>| {
        let mut case = case();
        case.set_package(&Zip::of(parts).build());
        verified(&case).findings().iter().map(|finding| finding.rule().id).collect::<Vec<_>>()
    };
    let skill_file = |text: &str| ZipEntry::file("SKILL.md", text);
    assert_eq!(rules(vec![skill_zip_entry(), ZipEntry::file(".env", "A=1")]), ["M091"]);
    assert_eq!(rules(vec![skill_file(&SKILL.replace("name: demo", "name: other"))]), ["M088"]);
    assert_eq!(rules(vec![skill_file(&SKILL.replace("1.0.0", "1.0.1"))]), ["M088"]);
    assert_eq!(rules(vec![skill_file("nothing")]), ["M087"]);
    assert_eq!(rules(vec![ZipEntry::file("README.md", "x")]), ["M086"]);
    assert_eq!(rules(vec![ZipEntry::file("other/SKILL.md", SKILL)]), ["M086"]);
    // Rules that are not errors, and the folder of the skill, are not looked at.
    let style =
        format!("{}[x](missing.md)\n", SKILL.replace("Shows", "Hides").replace("metadata:", "model: x\nmetadata:"));
    let program = ZipEntry { mode: 0o100_755, ..ZipEntry::file("run.sh", "x") };
    assert_eq!(rules(vec![skill_file(&style), ZipEntry::file(".DS_Store", "x"), program]), [""; 0]);
    let mut elsewhere = case();
    elsewhere.entry["path"] = "skills/of-demo/".into();
    assert_eq!(verified(&elsewhere).findings().len(), 0);
}

#[test]
fn verify_lists_only_the_rules_that_it_checks() {
    let report = verified(&case());
    let ids: Vec<&str> = report.checked_rules().iter().map(|(rule, _)| rule.id).collect();
    let expected = [
        "M001", "M002", "M003", "M004", "M007", "M028", "M071", "M072", "M073", "M074", "M075", "M076", "M080", "M081",
        "M082", "M083", "M084", "M085", "M086", "M087", "M088", "M091", "M097",
    ];
    assert_eq!(ids, expected);
    let junit = render::junit(&report);
    assert!(junit.contains("\"M091 secret-file\"") && junit.contains("tests=\"23\""), "{junit}");
    assert!(!junit.contains("M050") && !junit.contains("M090"), "{junit}");
}

/// A folder name has one Unicode form, and the name in the front matter may have another.
#[test]
fn names_of_skills_are_compared_in_one_unicode_form() {
    let mut case = case();
    let text = SKILL.replace("name: demo", "name: gro\u{308}ße");
    case.set_package(&Zip::of(vec![ZipEntry::file("SKILL.md", text)]).build());
    case.entry["name"] = "größe".into();
    assert_eq!(verified(&case).findings().len(), 0);
}
