//! Tests: the result of a build has no findings, is the same on all machines, and never changes published content.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are truncated to the needed width")]

mod apis;

use std::collections::BTreeMap;

use super::*;
use crate::manifest::package::{PackageContents, Sha256Sum, pack};
use crate::manifest::{CheckOptions, FileMetadata, MemoryFiles, check};

fn at(time: &str) -> DateTime<Utc> {
    time.parse().expect("a time")
}

fn facts() -> RepositoryFields {
    RepositoryFields {
        name: Some("example/skills".to_owned()),
        git_url: Some("https://example.com/example/skills.git".to_owned()),
        raw_base_url: Some("https://example.com/example/skills/raw/main".to_owned()),
        branch: Some("main".to_owned()),
    }
}

fn skill(name: &str, version: &str, body: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Does {name} when it is asked to.\nmetadata:\n  version: \"{version}\"\n---\n\n{body}"
    )
}

fn build_input<'a>(files: &'a MemoryFiles, previous: Option<&'a SourceFile>) -> BuildInput<'a> {
    BuildInput {
        files,
        previous,
        skills: "skills".to_owned(),
        apis: "apis".to_owned(),
        packages: "packages".to_owned(),
        repository: if previous.is_some() { RepositoryFields::default() } else { facts() },
        now: at("2026-11-21T12:00:00Z"),
        timestamp: ZipTimestamp::default(),
        overwrite: false,
    }
}

fn tree() -> MemoryFiles {
    let mut files = MemoryFiles::new();
    files.insert("skills/demo/SKILL.md", skill("demo", "1.0.0", "# The demo\n\nSee [more](docs/more.md).\n"));
    files.insert("skills/demo/docs/more.md", "More.\n".repeat(50));
    files.insert("skills/demo/run.sh", "#!/bin/sh\necho hello\n");
    files.insert("skills/other-one/SKILL.md", skill("other-one", "0.2.0", "Text.\n"));
    files
}

/// Adds the built packages to the files, and returns the built manifest.
fn store_output(files: &mut MemoryFiles, built: &BuildOutput) -> SourceFile {
    for (path, bytes) in &built.packages {
        files.insert(path.clone(), bytes.clone());
    }
    SourceFile::new("skills.json", built.manifest.clone())
}

fn findings(source: &SourceFile, files: &MemoryFiles) -> Vec<String> {
    let options = CheckOptions { files: Some(files), now: Some(at("2026-11-21T12:00:00Z")), ..CheckOptions::default() };
    let report = check(source.clone(), &options);
    report.findings().iter().map(|finding| format!("{} {}", finding.rule().id, finding.message())).collect()
}

fn problems(files: &MemoryFiles, previous: Option<&SourceFile>) -> Vec<String> {
    build(&build_input(files, previous)).expect_err("a problem").0.iter().map(ToString::to_string).collect()
}

#[test]
fn a_build_has_no_findings_and_a_second_build_changes_nothing() {
    let mut files = tree();
    let built = build(&build_input(&files, None)).expect("it builds");
    assert_eq!((built.packages.len(), built.unchanged), (2, 0));
    let source = store_output(&mut files, &built);
    assert_eq!(findings(&source, &files), Vec::<String>::new());
    let mut later = build_input(&files, Some(&source));
    later.now = at("2027-01-01T00:00:00Z");
    later.timestamp = ZipTimestamp::from_epoch(1_800_000_000);
    let again = build(&later).expect("it builds again");
    assert_eq!((again.manifest, again.packages.len(), again.unchanged), (built.manifest, 0, 2));
}

/// Folders with a `SKILL.md` inside the folder of a skill are not skills: they are packed with it.
#[test]
fn skills_inside_a_skill_are_packed_as_ordinary_files() {
    let mut files = tree();
    for inner in ["1-basic", "2-advanced", "3-expert"] {
        files.insert(format!("skills/demo/{inner}/SKILL.md"), skill(inner, "1.0.0", "Text.\n"));
    }
    let built = build(&build_input(&files, None)).expect("it builds");
    let source = store_output(&mut files, &built);
    assert_eq!(findings(&source, &files), Vec::<String>::new());
    let again = build(&build_input(&files, Some(&source))).expect("it builds again");
    assert_eq!((again.packages.len(), again.unchanged), (0, 2));
}

#[test]
fn an_entry_takes_fields_of_its_skill_and_keeps_others() {
    let mut files = tree();
    let built = build(&build_input(&files, None)).expect("it builds");
    let source = store_output(&mut files, &built);
    let text = source.text().expect("text").replace(
        "\"title\": \"The demo\"",
        "\"x-owner\": {\"team\": 1.50}, \"api_docs\": [\"images-python\", {\"id\": 1}], \"title\": \"Typed\"",
    );
    let source = SourceFile::new("skills.json", text.replace("\"apis\": []", "\"apis\": [], \"x-stamp\": true"));
    let again = build(&build_input(&files, Some(&source))).expect("it builds").manifest;
    for word in ["\"The demo\"", "\"team\": 1.50", "\"images-python\"", "\"x-stamp\": true", "Does demo when"] {
        assert!(again.contains(word), "{word} in {again}");
    }
    assert!(!again.contains("Typed"));
    files.insert(
        "skills/demo/SKILL.md",
        skill("demo", "1.1.0", "x\n")
            .replace("  version", "  tags: one, two\n  title: Said\n  agents: codex claude-code\n  version"),
    );
    let text = build(&build_input(&files, Some(&source))).expect("it builds").manifest;
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["skills"][0]["title"], "Said");
    assert_eq!(json["skills"][0]["tags"], serde_json::json!(["one", "two"]));
    assert_eq!(json["skills"][0]["agents"], serde_json::json!(["codex", "claude-code"]));
    assert_eq!(json["skills"][0]["package"], "packages/demo-1.1.0.zip");
}

#[test]
fn times_change_only_if_other_fields_change() {
    let mut files = tree();
    let built = build(&build_input(&files, None)).expect("it builds");
    let source = store_output(&mut files, &built);
    files.insert("skills/demo/SKILL.md", skill("demo", "1.0.1", "Changed.\n"));
    let mut later = build_input(&files, Some(&source));
    later.now = at("2026-12-24T18:00:00Z");
    let json: serde_json::Value = serde_json::from_str(&build(&later).expect("it builds").manifest).expect("JSON");
    assert_eq!(json["generated_at"], "2026-12-24T18:00:00Z");
    assert_eq!(json["skills"][0]["updated_at"], "2026-12-24T18:00:00Z");
    assert_eq!(json["skills"][1]["updated_at"], "2026-11-21T12:00:00Z");
}

#[test]
fn published_content_never_changes_under_its_version() {
    let mut files = tree();
    let built = build(&build_input(&files, None)).expect("it builds");
    let source = store_output(&mut files, &built);
    files.insert("skills/demo/docs/more.md", "Something else.\n");
    assert!(problems(&files, Some(&source))[0].contains("raise `metadata.version`"));
    // The same holds if the published package or the previous manifest is missing.
    let mut unpublished = tree();
    unpublished.insert("skills/demo/docs/more.md", "Something else.\n");
    assert!(problems(&unpublished, Some(&source))[0].contains("raise `metadata.version`"));
    assert!(build(&build_input(&files, None)).is_err());
    // A package that was replaced is not accepted as the published one.
    let mut replaced = tree();
    store_output(&mut replaced, &built);
    replaced.insert("packages/demo-1.0.0.zip", built.packages[1].1.clone());
    assert!(problems(&replaced, Some(&source))[0].contains("not the package that the manifest promises"));
    let mut forced = build_input(&files, Some(&source));
    forced.overwrite = true;
    assert_eq!(build(&forced).expect("it builds").packages.len(), 1);
    // A lost package is built again with the same bytes.
    assert_eq!(build(&build_input(&tree(), Some(&source))).expect("it builds").packages, built.packages);
}

/// Installers could not find the skill by its name.
#[test]
fn the_name_of_a_folder_has_one_unicode_form() {
    let mut files = tree();
    files.insert("skills/gro\u{308}ße/SKILL.md", skill("größe", "1.0.0", "Text.\n"));
    assert_eq!(
        problems(&files, None),
        ["skills/gro\u{308}ße: is not in Unicode normal form KC; rename the folder to `größe`"]
    );
}

#[test]
fn an_existing_package_with_the_same_files_is_kept() {
    let mut files = tree();
    let built = build(&build_input(&files, None)).expect("it builds");
    let contents = BTreeMap::from([("SKILL.md".to_owned(), skill("other-one", "0.2.0", "Text.\n").into_bytes())]);
    let foreign =
        pack(&contents, ZipTimestamp::from_epoch(1_700_000_000), &PackageLimits::default()).expect("a package");
    let own = &built.packages[1].1;
    assert_ne!(&foreign, own);
    files.insert("packages/other-one-0.2.0.zip", foreign.clone());
    let kept = build(&build_input(&files, None)).expect("it builds");
    assert!(kept.manifest.contains(&Sha256Sum::of(&foreign).to_string()) && kept.unchanged == 1);
}

#[test]
fn all_problems_are_reported_at_once_with_their_positions() {
    let mut files = tree();
    files.insert("skills/a/SKILL.md", "no front matter\n");
    files.insert("skills/b/SKILL.md", "---\nname: other\ndescription: d\n---\n");
    files.insert("skills/c/SKILL.md", "---\nname: c\ndescription: d\n---\n");
    files.insert("skills/d/SKILL.md", skill("d", "v1", ""));
    files.insert("skills/e/README.md", "nothing");
    files.insert("skills/f/SKILL.md", skill("f", "1.0.0", ""));
    files.insert("skills/f/.env", "SECRET=1");
    files.insert("skills/g/SKILL.md", skill("g", "1.0.0", ""));
    files.insert_other(
        "skills/g/link",
        FileMetadata { kind: FileKind::Link("../x".to_owned()), size: 0, is_executable: false },
    );
    files.insert("skills/h/SKILL.md", skill("h", "1.0.0", ""));
    files.insert("skills/h/con.txt", "");
    let mut incomplete = build_input(&files, None);
    incomplete.repository.branch = None;
    let message = build(&incomplete).expect_err("problems").to_string();
    for word in [
        "--branch",
        "skills/a/SKILL.md:1:1: does not begin",
        "skills/b/SKILL.md:2:7: `name` is `other`",
        "skills/c/SKILL.md:2:1: has no version",
        "skills/d/SKILL.md:5:12: `v1` is not a version",
        "skills/e/SKILL.md: is missing",
        "skills/f/.env: may contain a secret",
        "skills/g/link: is a link",
        "packages/h-1.0.0.zip: `con.txt` has the name of a device",
    ] {
        assert!(message.contains(word), "{word}\n{message}");
    }
}

#[test]
fn junk_is_not_packed_and_removed_skills_are_reported() {
    let mut files = tree();
    files.insert("skills/demo/.DS_Store", "x");
    files.insert("skills/README.md", "not a skill");
    files.insert("skills/.idea/workspace.xml", "not a skill");
    let built = build(&build_input(&files, None)).expect("it builds");
    assert_eq!(built.left_out, ["skills/demo/.DS_Store"]);
    let contents = PackageContents::read(&built.packages[0].1, &PackageLimits::default()).expect("a package");
    assert_eq!(contents.files.keys().collect::<Vec<_>>(), ["SKILL.md", "docs/more.md", "run.sh"]);
    assert!(contents.files["run.sh"].executable);
    let source = store_output(&mut files, &built);
    let mut fewer = MemoryFiles::new();
    fewer.insert("skills/demo/SKILL.md", skill("demo", "2.0.0", ""));
    assert_eq!(build(&build_input(&fewer, Some(&source))).expect("it builds").removed, ["other-one"]);
}

/// The bytes of a package never change: they do not depend on the machine, on the order of files, or on the features of
/// other crates.
#[test]
fn the_bytes_of_a_package_are_the_same_in_every_build() {
    let mut files = BTreeMap::new();
    files.insert(
        "SKILL.md".to_owned(),
        skill("demo", "1.0.0", &"A line of text that repeats. ".repeat(400)).into_bytes(),
    );
    files.insert("scripts/run.sh".to_owned(), b"#!/bin/sh\nexit 0\n".to_vec());
    files.insert("tiny".to_owned(), b"x".to_vec());
    // Words in a random order, at short and long distances: the search depth of the packer affects the bytes.
    let words = ["image", "prompt", "quality", "size", "background", "edit", "mask", "token", "usage", "stream", "key"];
    let pick = |n: u32| words[(n.wrapping_mul(2_654_435_761) >> 13) as usize % words.len()];
    files.insert("words.md".to_owned(), (0..4000).map(pick).collect::<Vec<_>>().join(" ").into_bytes());
    files
        .insert("grüße.bin".to_owned(), (0..20_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 21) as u8).collect());
    let package = pack(&files, ZipTimestamp::default(), &PackageLimits::default()).expect("a package");
    assert_eq!(Sha256Sum::of(&package).to_string(), "7f6e2b7a87070a7a9cf799c9ae7b81514b01fe8d67fc4c371fbd1650a9d0e558");
    let stamped = pack(&files, ZipTimestamp::from_epoch(1_700_000_000), &PackageLimits::default()).expect("a package");
    assert_eq!(stamped.len(), package.len());
    assert_ne!(stamped, package);
    assert_eq!(ZipTimestamp::from_epoch(0), ZipTimestamp::default());
}

#[test]
fn no_package_is_made_beyond_a_limit() {
    let files: BTreeMap<_, _> = ["a", "b"].map(|name| (name.to_owned(), vec![b'x'; 100])).into();
    for limits in [
        PackageLimits { entries: 1, ..PackageLimits::default() },
        PackageLimits { file_bytes: 99, ..PackageLimits::default() },
        PackageLimits { archive_bytes: 150, ..PackageLimits::default() },
    ] {
        assert!(pack(&files, ZipTimestamp::default(), &limits).is_err(), "{limits:?}");
    }
}

#[test]
fn kept_api_references_are_sorted() {
    let files = tree();
    let built = build(&build_input(&files, None)).expect("it builds");
    let source = SourceFile::new("m", built.manifest.replace("\"apis\": []", r#""apis": [{"id": "b"}, {"id": "a"}]"#));
    let json: serde_json::Value =
        serde_json::from_str(&build(&build_input(&files, Some(&source))).expect("it builds").manifest).expect("JSON");
    assert_eq!(json["apis"], serde_json::json!([{ "id": "a" }, { "id": "b" }]));
}

/// The input has few words in a random order, so that each word has more earlier positions than the packer would search
/// at a lower compression level.
#[test]
fn the_search_depth_of_the_packer_never_changes() {
    let words = ["image", "prompt", "mask"];
    let pick = |n: u32| words[(n.wrapping_mul(2_654_435_761) >> 13) as usize % words.len()];
    let text = (0..8000).map(pick).collect::<Vec<_>>().join(" ").into_bytes();
    let package =
        pack(&BTreeMap::from([("words.md".to_owned(), text)]), ZipTimestamp::default(), &PackageLimits::default());
    assert_eq!(
        Sha256Sum::of(&package.expect("a package")).to_string(),
        "ae4f25c4591ac68f3c8ee58adc0a3f950579fe230a86b79598cf063b2d69377d"
    );
}

/// Generates trees from seeds, builds each of them with two orders of its files, and checks the result.
#[test]
fn builds_of_random_trees_have_no_findings() {
    for seed in 0..60_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut entries: Vec<(String, Vec<u8>)> = Vec::new();
        for number in 0..=next(4) {
            let name = format!("skill-{number}{}", ["", "-x", "-größe", "2"][next(4) as usize]);
            // The name in the front matter may have another Unicode form than the name of the folder.
            let stated_name = if next(2) == 0 { name.replace('ö', "o\u{308}") } else { name.clone() };
            let version = format!("{}.{}.{}{}", next(3), next(20), next(5), ["", "-rc.1", "+b"][next(3) as usize]);
            let body = "Line of text.\n".repeat(next(300) as usize);
            let extra = ["", "license: MIT\n", "compatibility: any\n", "allowed-tools: Read\n"][next(4) as usize];
            let text = skill(&stated_name, &version, &body).replacen("metadata:", &format!("{extra}metadata:"), 1);
            entries.push((format!("skills/{name}/SKILL.md"), text.into_bytes()));
            for file in 0..next(6) {
                let folder = ["", "docs/", "a/b/c/", "scripts/", "ü/"][next(5) as usize];
                let bytes = (0..next(5000)).map(|_| next([2, 256][file as usize % 2]) as u8).collect();
                entries.push((format!("skills/{name}/{folder}file {file}.bin"), bytes));
            }
        }
        let to_files = |entries: &mut dyn Iterator<Item = &(String, Vec<u8>)>| {
            let mut files = MemoryFiles::new();
            for (path, bytes) in entries {
                files.insert(path.clone(), bytes.clone());
            }
            files
        };
        let mut files = to_files(&mut entries.iter());
        let built = build(&build_input(&files, None)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(build(&build_input(&to_files(&mut entries.iter().rev()), None)).as_ref(), Ok(&built), "seed {seed}");
        let source = store_output(&mut files, &built);
        let found: Vec<String> =
            findings(&source, &files).into_iter().filter(|found| !found.starts_with("M095")).collect();
        assert_eq!(found, Vec::<String>::new(), "seed {seed}");
    }
}
