//! `install` and `verify` give the same verdict on every package, and a refused package leaves no trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use imagate::manifest::package::Sha256Sum;
use imagate::manifest::package::archive::ArchiveFormat;
use serde_json::{Value, json};

use super::{SkillRepository, paths_below, text};
use crate::hostile::{self, SKILL, TarEntry, Zip, ZipEntry, gzip, skill_tar_entry, skill_zip_entry, tar};

/// The configuration of a repository that makes `git status` create the file `pwned` in the folder.
const GIT_CONFIG: &str = "[core]\nrepositoryformatversion = 0\nfsmonitor = \"touch pwned; false\"\n";

/// Files that other programs read on their own, as some file system may spell them.
const AUTO_LOADED: &str = ".GIT/config a/b/.git/config .g\u{200c}it/config .git\u{206a}/config .g\u{ad}it/config \
    \u{ff0e}git/config GIT~1/config .git./config .gitmodules sub/.gitattributes .hg/hgrc .svn/wc.db .\u{17f}vn/wc.db \
    .bzr/branch .jj/config.toml .claude/settings.json .Claude/settings.local.json .cursor/mcp.json .cursorrules \
    .mcp.json docs/.MCP.json .codex/config.toml .gemini/settings.json .agents/x.md .github/copilot-instructions.md \
    .windsurfrules .vscode/tasks.json .VSCODE/settings.json .idea/workspace.xml .zed/tasks.json .exrc \
    .dir-locals.el .devcontainer/devcontainer.json .envrc .mise.toml mise.toml .zshenv .bashrc lib/evil.pth \
    lib/EVIL.PTH sitecustomize.py SiteCustomize.py usercustomize.py sitecustomize/__init__.py sitecustomize.so \
    .pdbrc .gdbinit .Rprofile .npmrc .yarnrc .yarnrc.yml .pnp.cjs .cargo/config.toml .husky/pre-commit \
    .pre-commit-config.yaml .lefthook.yml desktop.ini icon.scf help.lnk .htaccess";

/// Files like those of the table that no program reads on its own.
const ORDINARY: &str = "AGENTS.md Makefile conftest.py package.json .gitignore .editorconfig git/config.md \
    claude/settings.json pth.txt customize.py heads/HEAD objects/a.md refs/b.md";

/// A package with the changes of its entry in the manifest.
struct Case {
    name: String,
    /// The extension of its path; `None` stands for that of its format.
    extension: Option<&'static str>,
    bytes: Vec<u8>,
    entry: Value,
}

impl Case {
    fn new(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), extension: None, bytes, entry: json!({}) }
    }

    fn zip(name: impl Into<String>, files: Vec<ZipEntry>) -> Self {
        Self::new(name, Zip::of([vec![skill_zip_entry()], files].concat()).build())
    }

    fn with_entry(self, entry: Value) -> Self {
        Self { entry, ..self }
    }
}

fn utf8_file(path: &str, text: &str) -> ZipEntry {
    ZipEntry { flags: 0x0800, ..ZipEntry::file(path, text) }
}

/// The files of a git repository in a folder, which is empty for a bare one.
fn git_repository(folder: &str) -> Vec<ZipEntry> {
    let files =
        [("HEAD", "ref: refs/heads/main\n"), ("config", GIT_CONFIG), ("objects/x", "x"), ("refs/heads/x.txt", "x")];
    files.iter().map(|(path, text)| ZipEntry::file(format!("{folder}{path}"), text)).collect()
}

fn refused_cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        hostile::archives().into_iter().map(|archive| Case::new(archive.name, archive.bytes)).collect();
    for path in AUTO_LOADED.split(' ') {
        cases.push(Case::zip(format!("zip with {path:?}"), vec![utf8_file(path, "x")]));
        let members = [skill_tar_entry(), TarEntry::file(path, "x")];
        cases.push(Case::new(format!("tar with {path:?}"), gzip(&tar(&members))));
    }
    let in_folder: Vec<ZipEntry> = [("SKILL.md", SKILL), (".claude/settings.json", "{}")]
        .map(|(path, text)| ZipEntry::file(format!("demo/{path}"), text))
        .into();
    let commondir = [("x/HEAD", "ref: refs/heads/main\n"), ("x/commondir", "../y\n"), ("x/config", GIT_CONFIG)];
    let (zip, tar_gz) = (Zip::of(vec![skill_zip_entry()]).build(), gzip(&tar(&[skill_tar_entry()])));
    let document = |text: String| Zip::of(vec![ZipEntry::file("SKILL.md", text)]).build();
    cases.extend([
        Case::zip("a repository", git_repository(".git/")),
        Case::zip("a bare repository", git_repository("")),
        Case::zip("a bare repository in a folder", git_repository("assets/x/")),
        Case::zip(
            "a bare repository with a common folder",
            commondir.map(|(path, text)| ZipEntry::file(path, text)).into(),
        ),
        Case::zip("an empty folder .git", vec![ZipEntry { stored: true, ..ZipEntry::file(".git/", "") }]),
        Case::new("a file below the folder of the skill", Zip::of(in_folder).build()),
        Case::zip("a secret", vec![ZipEntry::file(".env", "KEY=1")]),
        Case::zip("a private key", vec![ZipEntry::file("deploy/id_rsa", "x")]),
        Case { extension: Some("zip"), ..Case::new("a tar named zip", tar_gz.clone()) },
        Case { extension: Some("tar.gz"), ..Case::new("a zip named tar", zip.clone()) },
        Case { extension: Some("tgz"), ..Case::new("a zip named tgz", zip.clone()) },
        Case::new("another version", document(SKILL.replace("1.0.0", "1.0.1"))),
        Case::new("another name", document(SKILL.replace("demo", "other"))),
        Case::new("no front matter", document("# Demo\n".to_owned())),
        Case::new("no description", document("---\nname: demo\n---\n".to_owned())),
        Case::new("a wrong size", zip.clone()).with_entry(json!({ "size_bytes": 1 })),
        Case::new("a wrong checksum", zip.clone()).with_entry(json!({ "sha256": "0".repeat(64) })),
        Case::new("no skill", Zip::of(vec![ZipEntry::file("README.md", "x")]).build()),
        Case::new(
            "two skills",
            Zip::of(vec![ZipEntry::file("demo/SKILL.md", SKILL), ZipEntry::file("b/SKILL.md", SKILL)]).build(),
        ),
        Case::new("another folder", Zip::of(vec![ZipEntry::file("other/SKILL.md", SKILL)]).build()),
        Case::new(
            "a pointer of Git LFS",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec(),
        ),
    ]);
    cases
}

fn accepted_cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        ORDINARY.split(' ').map(|path| Case::zip(path, vec![ZipEntry::file(path, "x")])).collect();
    cases.extend([
        Case::new("a zip", Zip::of(vec![skill_zip_entry()]).build()),
        Case::new("a tar", gzip(&tar(&[skill_tar_entry()]))),
        Case { extension: Some("tgz"), ..Case::new("a tgz", gzip(&tar(&[skill_tar_entry()]))) },
        Case::new("a folder", Zip::of(vec![ZipEntry::file("demo/SKILL.md", SKILL)]).build()),
        Case::zip("leftovers", vec![ZipEntry::file(".DS_Store", "x"), ZipEntry::file("__pycache__/a.pyc", "x")]),
    ]);
    cases
}

/// A repository whose manifest `case.json` lists the package of one case at a time.
struct Registry {
    repository: SkillRepository,
    manifest: Value,
}

impl Registry {
    fn new() -> Self {
        let repository = SkillRepository::new();
        repository.build();
        let manifest = repository.manifest();
        let entry = manifest["skills"][0].clone();
        fs::create_dir_all(repository.path("deep/er/agent")).expect("a folder");
        let registry = Self { repository, manifest };
        assert_eq!(entry["name"], "demo");
        registry
    }

    /// Lists only this package in the manifest, and returns the path of the package.
    fn put(&self, case: &Case) -> PathBuf {
        let format = ArchiveFormat::of(&case.bytes);
        let of_format = if format == Some(ArchiveFormat::TarGz) { "tar.gz" } else { "zip" };
        let path = format!("packages/case.{}", case.extension.unwrap_or(of_format));
        fs::write(self.repository.path(&path), &case.bytes).expect("a package");
        let mut manifest = self.manifest.clone();
        let mut entry = manifest["skills"][0].clone();
        entry["package"] = path.as_str().into();
        entry["sha256"] = Sha256Sum::of(&case.bytes).to_string().into();
        entry["size_bytes"] = case.bytes.len().into();
        for (key, value) in case.entry.as_object().expect("an object") {
            entry[key] = value.clone();
        }
        manifest["skills"] = json!([entry]);
        self.repository.write_file("case.json", &manifest.to_string());
        self.repository.path(&path)
    }

    /// Returns the exit code of a command, and the text that it prints.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.repository.command(arguments).output().expect("the program starts");
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn verify(&self) -> (Option<i32>, String) {
        self.run(&["verify", "case.json"])
    }

    fn install(&self) -> (Option<i32>, String) {
        self.run(&["install", "demo", "--from", "case.json", "--into", "deep/er/agent"])
    }
}

#[test]
fn install_refuses_every_hostile_package_as_verify_does_and_leaves_no_trace() {
    let registry = Registry::new();
    let agent = registry.repository.path("deep/er/agent");
    let canary = Path::new("/tmp/escape.txt");
    let existed_before = canary.exists();
    let cases = refused_cases();
    let mut failures = Vec::new();
    for case in &cases {
        let package = registry.put(case);
        let before = paths_below(registry.repository.folder.path());
        let verified = registry.verify();
        let installed = registry.install();
        // A program that only looks at the folder must not run anything, even if the package was installed.
        run_git_status(&agent.join("demo"));
        let after = paths_below(registry.repository.folder.path());
        let rule = verified.1.split("error[").nth(1).and_then(|text| text.split(']').next()).unwrap_or("no rule");
        let gives_reason = installed.1.contains("is not safe to install: ") && installed.1.contains(rule);
        if verified.0 != Some(1) || installed.0 != Some(1) || !gives_reason || after != before {
            failures.push(format!("{}: verify {verified:?}, install {installed:?}", case.name));
            let _ = fs::remove_dir_all(&agent);
            fs::create_dir_all(&agent).expect("a folder");
        }
        fs::remove_file(package).expect("the package");
    }
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(cases.len() >= 300 && canary.exists() == existed_before, "{}", cases.len());
}

#[test]
fn install_accepts_what_verify_accepts() {
    let registry = Registry::new();
    for case in accepted_cases() {
        let package = registry.put(&case);
        let (verified, installed) = (registry.verify(), registry.install());
        assert_eq!((verified.0, installed.0), (Some(0), Some(0)), "{}: {verified:?}, {installed:?}", case.name);
        let agent = registry.repository.path("deep/er/agent");
        assert!(agent.join("demo/SKILL.md").is_file(), "{}", case.name);
        fs::remove_dir_all(agent).expect("the skills folder");
        fs::remove_file(package).expect("the package");
    }
}

/// Links and wrong spellings are faults of the checkout that holds the packages.
#[cfg(unix)]
#[test]
fn install_refuses_a_package_behind_a_link_as_verify_does() {
    let registry = Registry::new();
    let package = registry.put(&Case::new("a zip", Zip::of(vec![skill_zip_entry()]).build()));
    let (target, folder) = (registry.repository.path("target.zip"), registry.repository.path("packages"));
    fs::rename(&package, &target).expect("a moved package");
    std::os::unix::fs::symlink("../target.zip", &package).expect("a link");
    assert_eq!((registry.verify().0, registry.install().0), (Some(1), Some(1)));
    fs::remove_file(&package).expect("the link");
    fs::rename(&target, &package).expect("a moved package");
    fs::rename(&folder, registry.repository.path("elsewhere")).expect("a moved folder");
    std::os::unix::fs::symlink("elsewhere", &folder).expect("a link");
    assert_eq!((registry.verify().0, registry.install().0), (Some(1), Some(1)));
    assert!(!registry.repository.path("deep/er/agent/demo").exists());
}

/// The address from which packages are downloaded, and that from which the repository is cloned.
#[test]
fn unsafe_addresses_of_the_repository_are_errors_of_every_command() {
    let mut registry = Registry::new();
    let valid = registry.manifest.clone();
    let good = Case::new("a zip", Zip::of(vec![skill_zip_entry()]).build());
    let addresses = "file:///etc FILE:///etc /etc ../x ftp://example.com/x data:text/plain,x https://169.254.169.254/x \
        http://169.254.1.1 https://[fe80::1]/x https://2852039166/x https://[::ffff:169.254.169.254]/ \
        https://metadata.google.internal/x https://[fd00:ec2::254]/ C:\\x ext::sh https://-x.example/";
    for address in
        addresses.split(' ').chain(["ext::sh -c 'touch pwned'", "--upload-pack=x", "ssh://-oProxyCommand=x/y"])
    {
        for key in ["raw_base_url", "git_url"] {
            registry.manifest = valid.clone();
            registry.manifest["repository"][key] = address.into();
            registry.put(&good);
            for (code, printed) in [registry.verify(), registry.install(), registry.run(&["validate", "case.json"])] {
                assert!(code == Some(1) && printed.contains("M028"), "{key} {address}: {printed}");
            }
        }
    }
    for address in
        ["https://example.com/x", "http://example.com/x", "https://10.0.0.1/x", "git@example.com:a/b", "ssh://git@h/a"]
    {
        registry.manifest = valid.clone();
        registry.manifest["repository"]["git_url"] = address.into();
        registry.put(&good);
        assert_eq!(registry.verify().0, Some(0), "{address}");
    }
}

/// `build` leaves out files that other programs read on their own, at any depth, and says so.
#[test]
fn a_build_leaves_out_files_that_programs_read_on_their_own() {
    let repository = SkillRepository::new();
    for path in [".git/config", ".claude/settings.json", "docs/.GITATTRIBUTES", "scripts/sitecustomize.py"] {
        repository.write_file(&format!("skills/demo/{path}"), "x");
    }
    let arguments = ["build", "--repository", "e/s", "--git-url", "https://h/g", "--raw-base-url", "https://h/r"];
    let output = repository.command(&[&arguments[..], &["--branch", "main"]].concat()).output().expect("a program");
    let printed = text(&output.stderr);
    assert!(output.status.success(), "{printed}");
    for path in [".git", ".claude", "docs/.GITATTRIBUTES", "scripts/sitecustomize.py"] {
        assert!(printed.contains(&format!("left out skills/demo/{path}\n")), "{path}: {printed}");
    }
    repository.run_ok(&["verify"]);
    repository.run_ok(&["validate", "--root", "."]);
    repository.run_ok(&["install", "demo", "--into", "agent"]);
    assert!(!repository.path("agent/demo/.claude").exists());
}

/// `build` and `update` refuse to publish what `verify` would refuse.
#[test]
fn a_package_that_cannot_be_installed_is_not_built() {
    let repository = SkillRepository::new();
    repository.build();
    for path in ["HEAD", "objects/x", "refs/heads/x.txt"] {
        repository.write_file(&format!("skills/demo/assets/{path}"), "x");
    }
    repository.write_file("skills/demo/SKILL.md", &SKILL.replace("1.0.0", "1.1.0"));
    for command in ["build", "update"] {
        let output = repository.run_failing(&[command], 1);
        assert!(output.contains("M097") && output.contains("bare git repository"), "{command}: {output}");
    }
    assert!(!repository.path("packages/demo-1.1.0.zip").exists());
}

/// Runs `git status` in a folder as prompts and editors do, if there is a folder and a git.
fn run_git_status(folder: &Path) {
    if folder.is_dir() {
        let _ = Command::new("git").current_dir(folder).args(["status"]).output();
    }
}
