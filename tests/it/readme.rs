//! The Rust programs of README.md as a reader would copy them: in a package of their own outside of this repository,
//! built and run against the simulator.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::clients::install::{run, target};
use crate::kit::{Gateway, Program};

const README: &str = include_str!("../../README.md");

/// The blocks of README.md in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let opened = README.split("\n```").filter_map(|part| part.split_once('\n'));
    opened.filter(|(words, _)| words.split(',').next() == Some(language)).map(|(_, block)| block).collect()
}

/// The features of tokio that README.md tells the reader to add.
fn tokio_features() -> Vec<&'static str> {
    let lines = blocks("sh").into_iter().flat_map(str::lines);
    let added: Vec<&str> = lines.filter_map(|line| line.strip_prefix("cargo add ")).collect();
    assert!(added.contains(&"imagate"), "{added:?}");
    let tokio = added.iter().find_map(|line| line.strip_prefix("tokio --features ")).expect("a line that adds tokio");
    tokio.split(',').collect()
}

/// The package that `cargo new` and the `cargo add` of README.md would make, with the versions that this repository has
/// downloaded.
fn package(folder: &Path, programs: &[&str]) {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(repository.join("Cargo.toml")).expect("a manifest");
    // The same profile, so that the two builds share crates that do not depend on features.
    let profile: String = text
        .split("\n[")
        .filter(|table| table.starts_with("profile.dev"))
        .map(|table| format!("\n[{table}\n"))
        .collect();
    let manifest = format!(
        "[package]\nname = \"readme\"\nedition = \"2024\"\n\n[dependencies]\nimagate = {{ path = {:?} }}\n\
         tokio = {{ version = \"1\", features = {:?} }}\n\n[workspace]\n{profile}",
        repository,
        tokio_features()
    );
    std::fs::create_dir_all(folder.join("src/bin")).expect("a folder");
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    std::fs::copy(repository.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the versions");
    for (number, program) in programs.iter().enumerate() {
        std::fs::write(folder.join(format!("src/bin/readme_{number}.rs")), program).expect("a program");
    }
}

#[test]
fn the_programs_of_the_readme_build_and_run_as_they_stand_there() {
    let programs = blocks("rust");
    assert!(programs.len() >= 2, "{programs:?}");
    for program in &programs {
        assert!(program.lines().all(|line| !line.starts_with("# ") && line != "#"), "a hidden line: {program}");
    }
    let folder = TempDir::new().expect("a directory");
    package(folder.path(), &programs);
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--offline"]).current_dir(folder.path()).env("CARGO_TARGET_DIR", target());
    run(&mut build);
    let gateway = Gateway::simulated();
    for number in 0..programs.len() {
        let program = Program::other(&target().join(format!("debug/readme_{number}")), gateway.home());
        let program = program.env("IMAGATE_BASE_URL", gateway.base_url()).env("IMAGATE_API_KEY", gateway.secret());
        let printed = program.run();
        let files: Vec<&str> = printed.good().lines().filter(|line| gateway.home().join(line).is_file()).collect();
        assert!(!files.is_empty(), "it says nothing of a file: {printed:#?}");
    }
}
