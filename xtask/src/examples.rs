//! `cargo xtask examples`: runs every program of `examples/` against the simulator, and looks at what it wrote.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::ci;
use crate::ci::features::EVERYTHING;
use crate::simulator::{SimulatorProcess, empty_folder};

/// An example: its name, its arguments, and the images that it writes.
struct ExampleProgram {
    name: &'static str,
    arguments: &'static [&'static str],
    images: &'static [&'static str],
}

/// Later examples read the images of earlier ones.
const EXAMPLES: [ExampleProgram; 5] = [
    ExampleProgram { name: "generate", arguments: &[], images: &["lighthouse.png"] },
    ExampleProgram { name: "generate_stream", arguments: &[], images: &["lighthouse-0.png", "lighthouse.png"] },
    ExampleProgram { name: "edit", arguments: &[], images: &["lighthouse-by-night.png"] },
    ExampleProgram {
        name: "edit_stream",
        arguments: &["../generate/lighthouse.png", "../edit/lighthouse-by-night.png"],
        images: &["together.webp"],
    },
    ExampleProgram { name: "response", arguments: &[], images: &["lighthouse.png"] },
];

/// Builds and runs the examples. The images are below `target/examples`.
///
/// # Errors
///
/// An example fails, writes no image, or is not in the list.
pub fn run(root: &Path) -> Result<()> {
    check_names(root)?;
    ci::cargo(root, &["build", "--workspace", "--features", EVERYTHING, "--bin", "imagate", "--examples"], &[])?;
    let programs = ci::target_folder(root)?.join("debug");
    let folder = empty_folder(&root.join("target").join("examples"))?;
    let simulator = SimulatorProcess::start(&program(&programs, "imagate"), &folder)?;
    for example in &EXAMPLES {
        println!("\n--- {}", example.name);
        let own_folder = folder.join(example.name);
        let mut command = simulator.command(&program(&programs.join("examples"), example.name), &own_folder)?;
        let status = command.args(example.arguments).status().context(example.name)?;
        ensure!(status.success(), "the example {} failed", example.name);
        for image in example.images {
            let is_there = fs::metadata(own_folder.join(image)).is_ok_and(|file| file.len() > 0);
            ensure!(is_there, "the example {} did not write {image}", example.name);
        }
    }
    println!("\n{}", folder.display());
    Ok(())
}

/// Checks that the list has every file of `examples/`.
fn check_names(root: &Path) -> Result<()> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(root.join("examples"))? {
        files.extend(entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    let names = EXAMPLES.iter().map(|example| example.name.to_owned()).collect();
    ensure!(files == names, "examples/ has {files:?}, but xtask/src/examples.rs runs {names:?}");
    Ok(())
}

/// The path of a program in this folder.
pub(crate) fn program(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_extension(std::env::consts::EXE_EXTENSION)
}
