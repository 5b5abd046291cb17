//! `imagate help`, `version` and `man`.

use tempfile::TempDir;

use super::USAGE;
use crate::kit::Program;

fn stdout(words: &[&str]) -> String {
    let home = TempDir::new().expect("a directory");
    Program::new(home.path()).env("COLUMNS", "80").args(words).run().ok_stdout().to_owned()
}

#[test]
fn help_and_version_are_commands() {
    assert_eq!(stdout(&["version"]), stdout(&["--version"]));
    assert_eq!(stdout(&["help"]), stdout(&["--help"]));
    assert_eq!(stdout(&["help", "skills", "build"]), stdout(&["skills", "build", "--help"]));
    let help = stdout(&["help", "key", "create"]);
    assert!(help.contains("Examples:\n  imagate key create --name laptop\n"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    let home = TempDir::new().expect("a directory");
    let unknown = Program::new(home.path()).args(["help", "keys"]).run();
    assert_eq!(unknown.code, USAGE, "{unknown:#?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let page = stdout(&["man"]);
    assert!(page.contains(".TH imagate 1") && page.contains(".SH EXAMPLES\n.nf\nimagate serve\n"), "{page}");
    let home = TempDir::new().expect("a directory");
    let done = Program::new(home.path()).args(["man", "--output", "share/man1"]).run();
    let folder = home.path().join("share/man1");
    let count = std::fs::read_dir(&folder).expect("a folder").count();
    assert!(done.code == Some(0) && done.stderr.contains(&format!("wrote {count} pages")), "{done:#?}");
    assert_eq!(std::fs::read_to_string(folder.join("imagate.1")).expect("a page"), page);
    let page = std::fs::read_to_string(folder.join("imagate-skills-install.1")).expect("a page");
    for expected in [
        ".TH imagate-skills-install 1",
        "\\fBimagate skills install\\fR",
        "imagate skills install image\\-generation@^1",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    for name in ["imagate-man.1", "imagate-version.1", "imagate-key-create.1", "imagate-generate.1"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert!(!folder.join("imagate-help.1").exists());
}
