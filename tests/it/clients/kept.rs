//! Tours that only `cargo xtask tours` runs.
//!
//! These clients do not read `x-should-retry`, so these tests do not limit the number of attempts. They only require
//! that the clients accept each answer.

use std::process::Command;

use super::install::{node, python, run, script, target};
use super::{AttemptCounts, tour, tour_with_responses};
use crate::readme::cargo_build;

const SCRIPTS: [&str; 3] = ["kit.mjs", "openai_tour.mjs", "ai_sdk_tour.mjs"];

/// Runs of a tour with accounts of the images protocol, and with accounts of the responses protocol.
const PROTOCOLS: [fn(&mut Command) -> AttemptCounts; 2] = [tour, tour_with_responses];

#[test]
#[ignore = "cargo xtask tours"]
fn the_ai_sdk_for_node_20_accepts_every_answer() {
    let packages = ["ai@6", "@ai-sdk/openai@3", "@ai-sdk/openai-compatible@2"];
    let folder = node("IMAGATE_NODE_AI_6", "ai-6", &packages, &SCRIPTS);
    for tour in PROTOCOLS {
        tour(Command::new("node").arg("ai_sdk_tour.mjs").current_dir(&folder));
    }
}

#[test]
#[ignore = "cargo xtask tours"]
fn the_newest_ai_sdk_and_node_sdk_accept_every_answer() {
    // The package `node` brings the interpreter that these releases need.
    let packages = ["node@24", "openai@7", "ai@7", "@ai-sdk/openai@4", "@ai-sdk/openai-compatible@3"];
    let folder = node("IMAGATE_NODE_AI_7", "ai-7", &packages, &SCRIPTS);
    for (tour, name) in
        PROTOCOLS.into_iter().flat_map(|tour| ["openai_tour.mjs", "ai_sdk_tour.mjs"].map(|name| (tour, name)))
    {
        tour(Command::new(folder.join("node_modules/node/bin/node")).arg(name).current_dir(&folder));
    }
}

#[test]
#[ignore = "cargo xtask tours"]
fn litellm_accepts_every_answer() {
    let interpreter = python("IMAGATE_PY_LITELLM", "litellm", "litellm");
    for tour in PROTOCOLS {
        tour(Command::new(&interpreter).arg(script("litellm_tour.py")));
    }
}

#[test]
#[ignore = "cargo xtask tours"]
fn async_openai_accepts_every_answer() {
    // The program is built in a copy, so that the build writes nothing into the source folder.
    let home = target().join("clients/async-openai");
    std::fs::create_dir_all(home.join("src")).expect("a folder");
    for name in ["Cargo.toml", "src/main.rs"] {
        std::fs::copy(script("async_openai").join(name), home.join(name)).expect("a copy");
    }
    let mut build = cargo_build();
    run(build.args(["--quiet"]).current_dir(&home).env("CARGO_TARGET_DIR", home.join("target")));
    for tour in PROTOCOLS {
        tour(&mut Command::new(home.join("target/debug/tour_async_openai")));
    }
}
