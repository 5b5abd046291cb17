//! The cases of the corpus that need a checkout: for each rule about files, packages and the network, small
//! repositories that break it, and some that almost break it. Cases of network rules also have the answers of URLs.
//! This file creates the cases; `IMAGATE_BLESS=1` writes them again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use imagate::manifest::package::Sha256Sum;
use imagate::manifest::rules::{self, RuleClass};
use imagate::manifest::{SourceFile, format};
use serde_json::{Value, json};

use crate::corpus;
use crate::hostile::{SKILL, TarEntry, Zip, ZipEntry, gzip, pax_records, skill_tar_entry, skill_zip_entry, tar};

const ZIP: &str = "packages/demo-1.0.0.zip";
const DOCUMENT: &str = "skills/demo/SKILL.md";
const PACKAGE: &str = "https://raw.githubusercontent.com/example/skills/main/packages/demo-1.0.0.zip";
const REFS: &str = "https://github.com/example/skills.git/info/refs?service=git-upload-pack";
const SOURCE: &str = "https://docs.example.com/images";

/// A repository with one skill.
struct Repository {
    manifest: Value,
    files: BTreeMap<String, Vec<u8>>,
    /// The answers of URLs. If it is empty, the case has no `.web.json` file, and no URL is requested.
    web: BTreeMap<String, Value>,
}

impl Repository {
    fn new() -> Self {
        let manifest = json!({
            "schema_version": "1.0",
            "generated_at": "2026-11-21T03:00:00Z",
            "repository": {
                "name": "example/skills",
                "git_url": "https://github.com/example/skills.git",
                "raw_base_url": "https://raw.githubusercontent.com/example/skills/main",
                "branch": "main",
            },
            "skills": [{
                "name": "demo", "version": "1.0.0", "title": "Demo", "description": "Shows a thing when it is asked to.",
                "path": "skills/demo", "package": ZIP,
            }],
            "apis": [],
        });
        let mut repository = Self { manifest, files: BTreeMap::new(), web: BTreeMap::new() };
        repository.put(DOCUMENT, SKILL);
        repository.pack(&Zip::of(vec![skill_zip_entry()]).build());
        repository
    }

    fn put(&mut self, path: &str, bytes: impl AsRef<[u8]>) {
        self.files.insert(path.to_owned(), bytes.as_ref().to_vec());
    }

    fn entry(&mut self, key: &str, value: impl Into<Value>) {
        self.manifest["skills"][0][key] = value.into();
    }

    fn pack(&mut self, bytes: &[u8]) {
        self.put(ZIP, bytes);
        self.entry("sha256", Sha256Sum::of(bytes).to_string());
        self.entry("size_bytes", bytes.len());
    }

    fn pack_tar(&mut self, bytes: &[u8]) {
        self.pack(bytes);
        self.files.remove(ZIP);
        self.put("packages/demo-1.0.0.tar.gz", bytes);
        self.entry("package", "packages/demo-1.0.0.tar.gz");
    }

    /// Writes this `SKILL.md` to the folder and to the package.
    fn skill(&mut self, text: &str) {
        self.put(DOCUMENT, text);
        self.pack(&Zip::of(vec![ZipEntry::file("SKILL.md", text)]).build());
    }

    /// Adds these files to the folder and to the package.
    fn with(&mut self, parts: &[ZipEntry]) {
        for part in parts {
            self.put(&format!("skills/demo/{}", String::from_utf8_lossy(&part.name)), &part.data);
        }
        self.pack(&Zip::of([&[skill_zip_entry()], parts].concat()).build());
    }

    /// Adds the answers of a host that serves the package, the branches and one source.
    fn serve(&mut self) {
        self.manifest["apis"] = json!([{
            "id": "images", "title": "Images", "product": "images", "language": "python", "path": "apis/images.md",
            "source_urls": [SOURCE],
        }]);
        self.put("apis/images.md", "# Images\n");
        self.answer(PACKAGE, json!({ "status": 200, "file": ZIP }));
        self.answer(SOURCE, json!({ "status": 200 }));
        self.answer(REFS, json!({ "status": 200, "text": refs(&["main", "next"]) }));
    }

    fn answer(&mut self, address: &str, answer: Value) {
        self.web.insert(address.to_owned(), answer);
    }

    fn zip(&mut self, parts: Vec<ZipEntry>) {
        self.pack(&Zip::of([vec![skill_zip_entry()], parts].concat()).build());
    }
}

/// The list of refs that a git host sends at the start of a clone (protocol version 0).
fn refs(branches: &[&str]) -> String {
    let line = |text: String| format!("{:04x}{text}", text.len() + 4);
    let id = "0".repeat(40);
    let branches = branches.iter().map(|branch| line(format!("{id} refs/heads/{branch}\n"))).collect::<String>();
    format!("{}0000{branches}0000", line("# service=git-upload-pack\n".to_owned()))
}

/// The `apis` of a manifest with one API reference at this path.
fn image_apis(path: &str) -> Value {
    json!([{ "id": "images", "title": "Images", "product": "images", "language": "python", "path": path }])
}

type Change = fn(&mut Repository);

/// The changes of a valid repository: the rule that the case is about, the name of the case, and the change.
fn changes() -> Vec<(&'static str, &'static str, Change)> {
    [checkout(), archives(), contents(), auto_loaded_files(), network()].concat()
}

fn checkout() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("good", "repository", |_| ()),
        ("good", "repository-with-files", |repo| {
            repo.with(&[ZipEntry::file("docs/more.md", "More.\n"), ZipEntry::file("run.sh", "#!/bin/sh\n")]);
        }),
        ("good", "repository-with-a-tar", |repo| repo.pack_tar(&gzip(&tar(&[skill_tar_entry()])))),
        ("M070", "no-folder", |repo| repo.entry("path", "skills/none")),
        ("M070", "a-file", |repo| repo.entry("path", DOCUMENT)),
        ("M070", "no-skill-file", |repo| {
            repo.files.remove(DOCUMENT);
            repo.put("skills/demo/README.md", "A folder.\n");
        }),
        ("M070", "up", |repo| repo.entry("path", "../demo")),
        ("M070", "twice-divided", |repo| repo.entry("path", "skills//demo")),
        ("M071", "up", |repo| repo.entry("package", "../demo-1.0.0.zip")),
        ("M071", "absolute", |repo| repo.entry("package", "/tmp/demo-1.0.0.zip")),
        ("M071", "twice-divided", |repo| repo.entry("package", "packages//demo-1.0.0.zip")),
        ("M071", "stream", |repo| repo.entry("package", "packages/demo:1.zip")),
        ("M071", "device", |repo| repo.entry("package", "packages/con.zip")),
        ("M071", "port", |repo| repo.entry("package", "packages/com0.zip")),
        ("M071", "unseen", |repo| repo.entry("package", "packages/demo\u{200b}-1.0.0.zip")),
        ("M071", "direction", |repo| repo.entry("package", "packages/\u{202e}piz.0.0.1-omed.zip")),
        ("M071", "deep", |repo| repo.entry("package", format!("{}demo-1.0.0.zip", "a/".repeat(64)))),
        ("M071", "no-package", |repo| drop(repo.files.remove(ZIP))),
        ("M071", "a-folder", |repo| repo.entry("package", "packages")),
        ("M072", "one-byte-more", |repo| {
            let size = repo.files[ZIP].len() + 1;
            repo.entry("size_bytes", size);
        }),
        ("M073", "another-package", |repo| {
            repo.entry("sha256", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb");
        }),
        ("M073", "good-capital", |repo| {
            let sum = repo.manifest["skills"][0]["sha256"].as_str().expect("a sum").to_uppercase();
            repo.entry("sha256", sum);
        }),
        ("M074", "link", |repo| repo.put("skills/demo/more.md.link", "../../../secret")),
        ("M074", "through-a-link", |repo| {
            repo.put("other.link", "skills");
            repo.entry("path", "other/demo");
        }),
        ("M074", "good-name-of-a-link", |repo| repo.with(&[ZipEntry::file("link.md", "No link.\n")])),
        ("M075", "pointer", |repo| {
            repo.put(ZIP, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
        }),
        ("M076", "capital-folder", |repo| repo.entry("path", "Skills/demo")),
        ("M076", "capital-package", |repo| repo.entry("package", "packages/Demo-1.0.0.zip")),
        ("M077", "draft", |repo| repo.put("skills/draft/SKILL.md", SKILL.replace("demo", "draft"))),
        ("M077", "good-folder-without-a-skill", |repo| repo.put("skills/shared/words.md", "Words.\n")),
        ("M078", "older", |repo| repo.put("packages/demo-0.9.0.zip", "")),
        ("M079", "no-document", |repo| repo.manifest["apis"] = image_apis("apis/images.md")),
        ("M079", "up", |repo| repo.manifest["apis"] = image_apis("../images.md")),
        ("M079", "good-document", |repo| {
            repo.put("apis/images.md", "# Images\n");
            repo.manifest["apis"] = image_apis("apis/images.md");
        }),
    ]
}

fn archives() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("M080", "cut-off", |repo| {
            let bytes = repo.files[ZIP].clone();
            repo.pack(&bytes[..bytes.len() - 30]);
        }),
        ("M080", "a-tar-called-zip", |repo| repo.pack(&gzip(&tar(&[skill_tar_entry()])))),
        ("M080", "encrypted", |repo| repo.zip(vec![ZipEntry { flags: 1, ..ZipEntry::file("notes.md", "notes") }])),
        ("M081", "bomb", |repo| repo.zip(vec![ZipEntry::file("zeros", vec![0; 300_000])])),
        ("M081", "deep", |repo| repo.zip(vec![ZipEntry::file("a/b/c/d/e/f/g/h/i", "x")])),
        ("M082", "up", |repo| repo.zip(vec![ZipEntry::file("../escape.txt", "x")])),
        ("M082", "absolute-in-a-tar", |repo| {
            repo.pack_tar(&gzip(&tar(&[skill_tar_entry(), TarEntry::file("/tmp/escape.txt", "x")])));
        }),
        ("M082", "up-by-a-record", |repo| {
            let record = TarEntry::new(b'x', "x", pax_records(&[("path", "../escape.txt")]));
            repo.pack_tar(&gzip(&tar(&[skill_tar_entry(), record, TarEntry::file("x", "x")])));
        }),
        ("M082", "device", |repo| repo.zip(vec![ZipEntry::file("con.txt", "x")])),
        ("M083", "twice", |repo| repo.zip(vec![ZipEntry::file("notes.md", "one"), ZipEntry::file("notes.md", "two")])),
        ("M083", "by-case", |repo| {
            repo.zip(vec![ZipEntry::file("notes.md", "one"), ZipEntry::file("NOTES.md", "two")]);
        }),
        ("M084", "link", |repo| repo.zip(vec![ZipEntry { mode: 0o120_777, ..ZipEntry::file("link", "/etc/passwd") }])),
        ("M084", "hard-link-in-a-tar", |repo| {
            repo.pack_tar(&gzip(&tar(&[skill_tar_entry(), TarEntry::new(b'1', "link", "")])));
        }),
        ("M084", "set-user-id", |repo| {
            repo.zip(vec![ZipEntry { mode: 0o104_755, ..ZipEntry::file("run", "#!/bin/sh\n") }]);
        }),
        ("M085", "two-names", |repo| {
            repo.zip(vec![ZipEntry { local_name: Some(b"other.md".to_vec()), ..ZipEntry::file("notes.md", "notes") }]);
        }),
        ("M085", "hidden", |repo| {
            repo.zip(vec![ZipEntry { no_directory_entry: true, ..ZipEntry::file("hidden.md", "hidden") }]);
        }),
        ("M085", "bytes-behind", |repo| {
            let bytes = [repo.files[ZIP].as_slice(), b"hidden"].concat();
            repo.pack(&bytes);
        }),
    ]
}

fn contents() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("M086", "too-deep", |repo| repo.pack(&Zip::of(vec![ZipEntry::file("a/b/SKILL.md", SKILL)]).build())),
        ("M086", "files-outside", |repo| {
            repo.pack(&Zip::of(vec![ZipEntry::file("demo/SKILL.md", SKILL), ZipEntry::file("x.md", "x")]).build());
        }),
        ("M086", "another-folder", |repo| repo.pack(&Zip::of(vec![ZipEntry::file("other/SKILL.md", SKILL)]).build())),
        ("M086", "good-folder", |repo| repo.pack(&Zip::of(vec![ZipEntry::file("demo/SKILL.md", SKILL)]).build())),
        ("M087", "no-front-matter", |repo| repo.skill("# Demo\n")),
        ("M087", "no-front-matter-and-a-wide-letter", |repo| repo.skill("\u{1f3a8} Demo\n")),
        ("M087", "cut-character", |repo| {
            let text = [SKILL.as_bytes(), b"\xe2\x82\n"].concat();
            repo.put(DOCUMENT, &text);
            repo.pack(&Zip::of(vec![ZipEntry::file("SKILL.md", &text)]).build());
        }),
        ("M087", "no-description", |repo| repo.skill("---\nname: demo\n---\n# Demo\n")),
        ("M087", "alias", |repo| repo.skill("---\nname: &a demo\ndescription: *a\n---\n# Demo\n")),
        ("M087", "key-twice", |repo| {
            repo.skill("---\nname: demo\nname: demo\ndescription: Shows a thing when it is asked to.\n---\n");
        }),
        ("M087", "another-folder", |repo| {
            repo.files.remove(DOCUMENT);
            repo.put("skills/other/SKILL.md", SKILL);
            repo.entry("path", "skills/other");
        }),
        ("M088", "version", |repo| repo.entry("version", "1.0.1")),
        ("M088", "good-no-version", |repo| {
            repo.skill("---\nname: demo\ndescription: Shows a thing when it is asked to.\n---\n# Demo\n");
        }),
        ("M089", "description", |repo| repo.entry("description", "Shows another thing.")),
        ("M090", "changed", |repo| repo.put(DOCUMENT, format!("{SKILL}More.\n"))),
        ("M090", "not-packed", |repo| repo.put("skills/demo/new.md", "New.\n")),
        ("M090", "only-packed", |repo| repo.zip(vec![ZipEntry::file("hidden.md", "hidden")])),
        ("M091", "environment", |repo| repo.zip(vec![ZipEntry::file(".env", "KEY=1")])),
        ("M091", "key", |repo| repo.zip(vec![ZipEntry::file("deploy/id_ed25519", "key")])),
        ("M091", "good-example", |repo| repo.with(&[ZipEntry::file(".env.example", "KEY=")])),
        ("M092", "finder", |repo| repo.zip(vec![ZipEntry::file(".DS_Store", "x")])),
        ("M092", "python", |repo| repo.zip(vec![ZipEntry::file("__pycache__/a.pyc", "x")])),
        ("M093", "gone", |repo| repo.skill(&format!("{SKILL}See [more](docs/more.md).\n"))),
        ("M093", "good-links", |repo| {
            let text = format!(
                "{SKILL}See [more](docs/more.md#part), [all](docs/), [that](https://example.com/x.md) and `[x](y.md)`.\n"
            );
            let parts = [ZipEntry::file("SKILL.md", &text), ZipEntry::file("docs/more.md", "More.\n")];
            repo.put(DOCUMENT, &text);
            repo.put("skills/demo/docs/more.md", "More.\n");
            repo.pack(&Zip::of(parts.to_vec()).build());
        }),
        ("M094", "script", |repo| {
            repo.with(&[ZipEntry { mode: 0o100_755, ..ZipEntry::file("run.sh", "#!/bin/sh\n") }]);
        }),
        ("M095", "lines", |repo| repo.skill(&format!("{SKILL}{}", "Line.\n".repeat(501)))),
        ("M096", "model", |repo| repo.skill(&SKILL.replace("metadata:", "model: any\nmetadata:"))),
    ]
}

fn auto_loaded_files() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("M097", "git-folder", |repo| repo.zip(vec![ZipEntry::file(".git/config", "[core]\n")])),
        ("M097", "git-in-capitals-and-deeper", |repo| repo.zip(vec![ZipEntry::file("docs/.GIT/config", "[core]\n")])),
        ("M097", "bare-git-repository", |repo| {
            let files = ["HEAD", "objects/x", "refs/heads/x.txt"];
            repo.zip(files.map(|path| ZipEntry::file(format!("assets/{path}"), "x")).into());
        }),
        ("M097", "agent-settings", |repo| repo.zip(vec![ZipEntry::file(".claude/settings.json", "{}")])),
        ("M097", "python-start", |repo| repo.zip(vec![ZipEntry::file("scripts/sitecustomize.py", "pass\n")])),
        ("M097", "good-read-when-asked", |repo| {
            repo.with(&["Makefile", "conftest.py", "AGENTS.md", "objects/x.md"].map(|path| ZipEntry::file(path, "x")));
        }),
    ]
}

fn network() -> Vec<(&'static str, &'static str, Change)> {
    vec![
        ("good", "served", Repository::serve),
        ("M100", "gone", |repo| repo.answer(PACKAGE, json!({ "status": 404 }))),
        ("M100", "unreachable", |repo| repo.answer(PACKAGE, json!({ "unreachable": "connection refused" }))),
        ("M100", "endless", |repo| repo.answer(PACKAGE, json!({ "more_than": 10_485_760 }))),
        ("M100", "good-served", |_| ()),
        ("M101", "another-file", |repo| repo.answer(PACKAGE, json!({ "status": 200, "text": "<!DOCTYPE html>" }))),
        ("M102", "gone", |repo| repo.answer(SOURCE, json!({ "status": 404 }))),
        ("M102", "host-that-fails", |repo| repo.answer(SOURCE, json!({ "status": 503 }))),
        ("M102", "good-sign-in", |repo| repo.answer(SOURCE, json!({ "status": 403 }))),
        ("M103", "other-branches", |repo| {
            repo.answer(REFS, json!({ "status": 200, "text": refs(&["master", "maint"]) }));
        }),
        ("M103", "no-repository", |repo| repo.answer(REFS, json!({ "status": 200, "text": "<!DOCTYPE html>" }))),
        ("M103", "private", |repo| repo.answer(REFS, json!({ "status": 401 }))),
        ("M103", "good-long-list", |repo| repo.answer(REFS, json!({ "more_than": 8_388_608 }))),
        ("M104", "certificate", |repo| repo.answer(PACKAGE, json!({ "tls": "certificate expired" }))),
        ("M104", "redirect", |repo| repo.answer(REFS, json!({ "forbidden": "only https is asked" }))),
        ("M104", "good-not-asked", |repo| {
            repo.manifest["repository"]["git_url"] = "https://user:secret@github.com/example/skills.git".into();
        }),
    ]
}

/// Every file of the corpus that this module creates, by path.
fn generated_files() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (rule, name, change) in changes() {
        let mut repository = Repository::new();
        if rules::find(rule).is_some_and(|rule| rule.class == RuleClass::Network) {
            repository.serve();
        }
        change(&mut repository);
        let text = format(&SourceFile::new("m", repository.manifest.to_string()), false).expect("a manifest");
        files.insert(format!("{rule}/{name}.json"), text.into_bytes());
        if !repository.web.is_empty() {
            let mut text = serde_json::to_string_pretty(&repository.web).expect("JSON");
            text.push('\n');
            files.insert(format!("{rule}/{name}.web.json"), text.into_bytes());
        }
        for (path, bytes) in repository.files {
            files.insert(format!("{rule}/{name}.files/{path}"), bytes);
        }
    }
    files
}

#[test]
fn the_repositories_of_the_corpus_are_those_of_this_file() {
    let folder = corpus::folder().join("corpus");
    for (path, bytes) in generated_files() {
        let path = folder.join(path);
        let is_stored = || fs::read(&path).is_ok_and(|stored| stored == bytes);
        // A stored file is not written again, because other tests of this run read it at the same time.
        if crate::outside::environment_variable("IMAGATE_BLESS").is_some() && !is_stored() {
            write(&path, &bytes);
        }
        assert!(is_stored(), "{}; IMAGATE_BLESS=1 writes it again", path.display());
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, bytes).expect("a file of the corpus");
}

#[test]
fn every_rule_about_files_and_packages_has_a_repository() {
    let changes = changes();
    let is_about_files = |class| matches!(class, RuleClass::Repository | RuleClass::Package | RuleClass::Network);
    let has = |id: &str| changes.iter().any(|(rule, name, _)| *rule == id && !name.starts_with("good"));
    let missing: Vec<&str> =
        rules::all().filter(|rule| is_about_files(rule.class) && !has(rule.id)).map(|rule| rule.id).collect();
    assert_eq!(missing, [""; 0]);
}
