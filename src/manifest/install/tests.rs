//! Tests of the choice of a release, the address of its package, the discovery index of a registry, and the lock
//! file.

use super::*;
use crate::manifest::text::SourceFile;
use crate::manifest::{DiscoveryError, Manifest, discovery_index};

const SUM: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn source(skills: &[(&str, &str)]) -> SourceFile {
    let entry = |(name, version): &(&str, &str)| {
        serde_json::json!({
            "name": name, "version": version, "title": "T", "description": "D", "path": format!("skills/{name}"),
            "package": format!("packages/{name} {version}.zip"), "sha256": SUM, "size_bytes": 0,
        })
    };
    let manifest = serde_json::json!({
        "schema_version": "1.0", "generated_at": "2026-01-01T00:00:00Z", "apis": [],
        "repository": { "name": "n", "git_url": "https://h/g", "raw_base_url": "https://h/raw/main/", "branch": "main" },
        "skills": skills.iter().map(entry).collect::<Vec<_>>(),
    });
    SourceFile::new("skills.json", manifest.to_string())
}

fn chosen_version(requirement: &str, skills: &[(&str, &str)]) -> Result<String, SkillRequirementError> {
    let manifest = Manifest::read(&source(skills)).expect("a manifest");
    let requirement: SkillRequirement = requirement.parse()?;
    requirement.choose(manifest.registry()).map(|(_, skill)| skill.version.clone())
}

#[test]
fn the_newest_matching_release_is_chosen() {
    let skills = [("a", "1.2.0"), ("a", "1.10.0"), ("a", "2.0.0-beta.1"), ("b", "0.1.0")];
    assert_eq!(chosen_version("a", &skills), Ok("1.10.0".to_owned()));
    assert_eq!(chosen_version("a@1.2.0", &skills), Ok("1.2.0".to_owned()));
    assert_eq!(chosen_version("a@<1.10", &skills), Ok("1.2.0".to_owned()));
    assert_eq!(chosen_version("a@2.0.0-beta.1", &skills), Ok("2.0.0-beta.1".to_owned()));
    assert!(chosen_version("a@^3", &skills).is_err_and(|error| error.to_string().contains("1.2.0, 1.10.0")));
    let unknown = |name: &str| chosen_version(name, &[("images", "1.0.0")]).expect_err("no such skill").to_string();
    assert_eq!(unknown("image"), "the manifest has no skill `image`; did you mean `images`?");
    assert_eq!(unknown("pdf"), "the manifest has no skill `pdf`");
}

#[test]
fn a_path_is_not_accepted_as_a_name() {
    for requirement in
        ["", "@1", "../a", "a/b", ".", "..", ".git", "a\\b", "C:", "a@not a version", "con", "Skills.lock.json"]
    {
        assert!(
            matches!(chosen_version(requirement, &[("a", "1.0.0")]), Err(SkillRequirementError::Form(_))),
            "{requirement}"
        );
    }
}

#[test]
fn a_package_is_downloaded_from_below_the_raw_address() {
    let manifest = Manifest::read(&source(&[("a", "1.0.0")])).expect("a manifest");
    let address = package_address(manifest.registry(), &manifest.registry().skills[0]);
    assert_eq!(address, "https://h/raw/main/packages/a%201.0.0.zip");
}

#[test]
fn an_entry_without_a_safe_download_is_not_chosen() {
    let refused = |change: fn(&mut Skill)| {
        let mut registry = Manifest::read(&source(&[("a", "1.0.0")])).expect("a manifest").registry().clone();
        change(&mut registry.skills[0]);
        let requirement: SkillRequirement = "a".parse().expect("a name");
        matches!(requirement.choose(&registry), Err(SkillRequirementError::Entry { .. }))
    };
    assert!(refused(|skill| skill.package = "../a.zip".to_owned()));
    assert!(refused(|skill| skill.package = "/a.zip".to_owned()));
    assert!(refused(|skill| skill.sha256 = "abc".to_owned()));
    assert!(refused(|skill| skill.sha256 = "z".repeat(64)));
    assert!(!refused(|_| ()));
}

#[test]
fn the_index_has_the_newest_version_of_each_skill() {
    let index = discovery_index(&source(&[("b", "1.0.0"), ("a", "1.9.0"), ("a", "1.10.0")]), None).expect("an index");
    let index: serde_json::Value = serde_json::from_str(&index).expect("JSON");
    assert_eq!(index["$schema"], "https://schemas.agentskills.io/discovery/0.2.0/schema.json");
    assert_eq!(index["skills"].as_array().map(Vec::len), Some(2));
    assert_eq!(index["skills"][0]["url"], "https://h/raw/main/packages/a%201.10.0.zip");
    assert_eq!(index["skills"][0]["type"], "archive");
    assert_eq!(index["skills"][1]["digest"], format!("sha256:{SUM}"));
    let other = discovery_index(&source(&[("a", "1.0.0")]), Some("/skills")).expect("an index");
    assert!(other.contains("\"/skills/packages/a%201.0.0.zip\""));
    let broken = SourceFile::new("m", r#"{"skills": [{"name": "a"}], "repository": {"raw_base_url": "https://h"}}"#);
    assert!(matches!(discovery_index(&broken, None), Err(DiscoveryError::Field { .. })));
}

#[test]
fn the_index_and_an_install_choose_the_same_release() {
    for (versions, chosen) in [
        (&["1.0.0", "2.0.0-beta.1"][..], "1.0.0"),
        (&["2.0.0-beta.2", "2.0.0-beta.10"], "2.0.0-beta.10"),
        (&["v1.10.0", "v1.9.0"], "v1.10.0"),
        (&["1.9", "v1.10.0", "1.8.0"], "v1.10.0"),
        (&["v2.0.0-rc.1", "latest", "1.0.0"], "1.0.0"),
        (&["latest", "v2.0.0-rc.1"], "v2.0.0-rc.1"),
        (&["newest", "latest"], "newest"),
    ] {
        let skills: Vec<(&str, &str)> = versions.iter().map(|version| ("a", *version)).collect();
        for skills in [skills.clone(), skills.into_iter().rev().collect()] {
            assert_eq!(chosen_version("a", &skills), Ok(chosen.to_owned()), "{skills:?}");
            let index = discovery_index(&source(&skills), None).expect("an index");
            assert!(index.contains(&format!("/packages/a%20{chosen}.zip\"")), "{skills:?}: {index}");
        }
    }
}

#[test]
fn a_lock_file_is_read_unless_its_version_is_newer() {
    let mut lock = LockFile::new();
    let locked = LockFileEntry {
        version: "1.0.0".to_owned(),
        package: "packages/a.zip".to_owned(),
        sha256: SUM.to_owned(),
        size_bytes: 1,
        files: BTreeMap::from([("SKILL.md".to_owned(), SUM.to_owned())]),
    };
    lock.set("a", locked.clone());
    let text = lock.to_text().expect("text");
    assert_eq!(LockFile::read(text.as_bytes()).expect("a lock").get("a"), Some(&locked));
    assert!(matches!(
        LockFile::read(text.replace("\"lock_version\": 1", "\"lock_version\": 2").as_bytes()),
        Err(LockFileError::Version(2))
    ));
    assert!(LockFile::read(b"{").is_err());
}
