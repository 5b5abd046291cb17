//! The skills that this repository ships are built, valid, and committed as they were built.

use std::path::Path;
use std::process::Command;

#[test]
fn the_skills_of_this_repository_are_built_and_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/skills");
    for arguments in [&["build", "--check"][..], &["validate", "skills.json", "--root", ".", "--strict"], &["verify"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        let output = command.current_dir(&root).arg("skills").args(arguments).output().expect("the program starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    }
}
