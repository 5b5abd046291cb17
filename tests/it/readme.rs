//! Runs the programs and commands of README.md and docs/crate.md, as a reader copies them, against the simulator; the
//! Rust programs in a package outside this repository. `imagate config check` reads the settings of the documents.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::clients::install::{modules, python, run, target};
use crate::kit::{Gateway, Program, format_and_size};

const README: &str = include_str!("../../README.md");
const CRATE: &str = include_str!("../../docs/crate.md");
/// The documents with settings.
const DOCUMENTS_WITH_SETTINGS: [&str; 4] = [
    README,
    include_str!("../../docs/configuration.md"),
    include_str!("../../docs/models.md"),
    include_str!("../../docs/operating.md"),
];
/// The base URL of a gateway in the documents.
const ADDRESS: &str = "http://127.0.0.1:8080/v1";
/// The command by which README.md runs the program from a checkout.
const FROM_CHECKOUT: &str = "cargo run --release --features cli -- ";

/// The blocks of a page in this language.
fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    let blocks = page.split("\n```").filter_map(|part| part.split_once('\n'));
    blocks.filter(|(info, _)| info.split(',').next() == Some(language)).map(|(_, block)| block).collect()
}

/// The only block of README.md in this language that contains `text`, with the base URL of the gateway.
#[track_caller]
fn block(language: &str, text: &str, gateway: &Gateway) -> String {
    let found: Vec<&str> = blocks(README, language).into_iter().filter(|block| block.contains(text)).collect();
    let [block] = found.as_slice() else { panic!("not exactly one block with '{text}': {found:?}") };
    block.replace(ADDRESS, &gateway.base_url())
}

/// Runs a program of README.md in the gateway's folder, and asserts that it writes the requested image.
#[track_caller]
fn assert_writes_lighthouse(gateway: &Gateway, program: Program) {
    let program = program.env("IMAGATE_API_KEY", gateway.secret()).env("IMAGATE_BASE_URL", gateway.base_url());
    let output = program.run();
    output.ok_stdout();
    let file = std::fs::read(gateway.home().join("lighthouse.png"));
    let file = file.unwrap_or_else(|error| panic!("no image: {error}\n{output:#?}"));
    assert_eq!(format_and_size(&file), ("png".to_owned(), "1536x1024".to_owned()));
}

/// The features of tokio that README.md tells the reader to add.
fn tokio_features() -> Vec<&'static str> {
    let lines = blocks(README, "sh").into_iter().flat_map(str::lines);
    let added: Vec<&str> = lines.filter_map(|line| line.strip_prefix("cargo add ")).collect();
    assert!(added.contains(&"imagate"), "{added:?}");
    let tokio = added.iter().find_map(|line| line.strip_prefix("tokio --features ")).expect("a line that adds tokio");
    tokio.split(',').collect()
}

/// The package that `cargo new` and the `cargo add` of README.md would make, with the versions that this repository has
/// downloaded.
fn write_package(folder: &Path, programs: &[&str]) {
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
    std::fs::copy(repository.join("Cargo.lock"), folder.join("Cargo.lock")).expect("a copy of the lock file");
    for (number, program) in programs.iter().enumerate() {
        std::fs::write(folder.join(format!("src/bin/readme_{number}.rs")), program).expect("a program");
    }
}

/// `cargo build` as a developer types it. The variable with which test programs report times (`cargo xtask test`) would
/// make cargo compile what is in the target folder again, and after the test once more.
pub(crate) fn cargo_build() -> Command {
    let mut build = Command::new(env!("CARGO"));
    build.arg("build").env_remove("RUSTC_BOOTSTRAP");
    build
}

#[test]
fn the_rust_programs_of_the_documents_build_and_run() {
    let programs = [blocks(README, "rust"), blocks(CRATE, "rust")].concat();
    assert!(programs.len() >= 2, "{programs:?}");
    for program in &programs {
        assert!(program.lines().all(|line| !line.starts_with("# ") && line != "#"), "a hidden line: {program}");
    }
    let folder = TempDir::new().expect("a directory");
    write_package(folder.path(), &programs);
    let mut build = cargo_build();
    build.args(["--quiet", "--offline"]).current_dir(folder.path()).env("CARGO_TARGET_DIR", target());
    run(&mut build);
    let gateway = Gateway::simulated();
    for number in 0..programs.len() {
        let program = Program::for_program(&target().join(format!("debug/readme_{number}")), gateway.home());
        let program = program.env("IMAGATE_BASE_URL", gateway.base_url()).env("IMAGATE_API_KEY", gateway.secret());
        let output = program.run();
        let files: Vec<&str> = output.ok_stdout().lines().filter(|line| gateway.home().join(line).is_file()).collect();
        assert!(!files.is_empty(), "the output names no file: {output:#?}");
    }
}

#[test]
fn the_commands_of_the_readme_make_the_image() {
    for (text, program) in [("curl ", ""), (" generate ", env!("CARGO_BIN_EXE_imagate"))] {
        let gateway = Gateway::simulated();
        let command = block("sh", text, &gateway).replace(FROM_CHECKOUT, &format!("{program} "));
        let shell = Program::for_program(Path::new("sh"), gateway.home()).args(["-c", &command]);
        assert_writes_lighthouse(&gateway, shell);
    }
}

#[test]
fn the_python_program_of_the_readme_makes_the_image() {
    let gateway = Gateway::simulated();
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    let program = block("python", "from openai import OpenAI", &gateway);
    assert_writes_lighthouse(&gateway, Program::for_program(&interpreter, gateway.home()).args(["-c", &program]));
}

#[test]
fn the_node_program_of_the_readme_makes_the_image() {
    let gateway = Gateway::simulated();
    let file = modules("IMAGATE_NODE_OPENAI", "openai", &["openai"]).join("readme.mjs");
    std::fs::write(&file, block("js", "from \"openai\"", &gateway)).expect("a module");
    assert_writes_lighthouse(&gateway, Program::for_program(Path::new("node"), gateway.home()).args([&file]));
}

#[test]
fn the_settings_of_the_documents_are_valid() {
    let home = TempDir::new().expect("a directory");
    let file = home.path().join("imagate.toml");
    let settings = DOCUMENTS_WITH_SETTINGS.into_iter().flat_map(|page| blocks(page, "toml"));
    let settings: Vec<&str> = settings.filter(|block| !block.contains("[model_providers.")).collect();
    assert!(settings.len() >= 3, "{settings:?}");
    for block in settings {
        std::fs::write(&file, block).expect("a file");
        let check =
            Program::new(home.path()).env("OPENAI_API_KEY", "sk-upstream").args(["config", "check", "--config"]);
        check.args([&file]).run().ok_stdout();
    }
}
