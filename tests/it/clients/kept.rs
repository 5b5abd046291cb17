//! Tours that are kept and run by hand: `cargo xtask tours`.
//!
//! These clients do not read `x-should-retry`, so what they repeat is not held against the gateway; that each answer
//! suits them is.

use std::process::Command;

use super::install::{node, python, run, script, target};
use super::{Cost, tour, tour_over};

const SCRIPTS: [&str; 3] = ["kit.mjs", "openai_tour.mjs", "ai_sdk_tour.mjs"];

/// Before accounts that speak the image endpoints, and before those that do not.
const BOTH: [fn(&mut Command) -> Cost; 2] = [tour, tour_over];

#[test]
#[ignore = "cargo xtask tours"]
fn the_ai_sdk_for_node_20_is_content_with_every_answer() {
    let packages = ["ai@6", "@ai-sdk/openai@3", "@ai-sdk/openai-compatible@2"];
    let place = node("IMAGATE_NODE_AI_6", "ai-6", &packages, &SCRIPTS);
    for tour in BOTH {
        tour(Command::new("node").arg("ai_sdk_tour.mjs").current_dir(&place));
    }
}

#[test]
#[ignore = "cargo xtask tours"]
fn the_newest_ai_sdk_and_node_sdk_are_content_with_every_answer() {
    // The package `node` brings the interpreter that these releases need.
    let packages = ["node@24", "openai@7", "ai@7", "@ai-sdk/openai@4", "@ai-sdk/openai-compatible@3"];
    let place = node("IMAGATE_NODE_AI_7", "ai-7", &packages, &SCRIPTS);
    for (tour, name) in
        BOTH.into_iter().flat_map(|tour| ["openai_tour.mjs", "ai_sdk_tour.mjs"].map(|name| (tour, name)))
    {
        tour(Command::new(place.join("node_modules/node/bin/node")).arg(name).current_dir(&place));
    }
}

#[test]
#[ignore = "cargo xtask tours"]
fn litellm_is_content_with_every_answer() {
    let interpreter = python("IMAGATE_PY_LITELLM", "litellm", "litellm");
    for tour in BOTH {
        tour(Command::new(&interpreter).arg(script("litellm_tour.py")));
    }
}

#[test]
#[ignore = "cargo xtask tours"]
fn async_openai_is_content_with_every_answer() {
    // Built away from its source, so that the build leaves nothing there.
    let home = target().join("clients/async-openai");
    std::fs::create_dir_all(home.join("src")).expect("a folder");
    for name in ["Cargo.toml", "src/main.rs"] {
        std::fs::copy(script("async_openai").join(name), home.join(name)).expect("a copy");
    }
    let mut build = Command::new(env!("CARGO"));
    run(build.args(["build", "--quiet"]).current_dir(&home).env("CARGO_TARGET_DIR", home.join("target")));
    for tour in BOTH {
        tour(&mut Command::new(home.join("target/debug/tour_async_openai")));
    }
}
