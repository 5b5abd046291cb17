//! Bytes that nobody wrote, for everything that reads bytes of strangers: archives, front matter, manifests.
//!
//! Each target takes seeds, changes them in ways that a seed of the run decides, and asserts what must hold of any input: no panic,
//! no path that leads out, no more bytes than the limits, no more memory than the limits. A run without settings is short and the
//! same every time; `IMAGATE_FUZZ_SECONDS=1800` is a long one, which begins with another seed of its own (`IMAGATE_FUZZ_SEED`).
//! Every run first tries the findings (`found/`) and the inputs that cargo-fuzz kept (`corpus/`, an archive for each target).
#![expect(clippy::expect_used, clippy::panic, reason = "a test may fail where it stands")]

#[path = "../../src/cli/skills/atomic_file.rs"]
mod atomic_file;
#[path = "../../src/checkout.rs"]
mod checkout;
#[expect(dead_code, reason = "the tests of the reader use the rest")]
#[path = "../skills/hostile.rs"]
mod hostile;
mod inputs;
mod install;
mod memory;
mod mutate;
#[path = "../../src/cli/skills/install/package_install.rs"]
mod package_install;
#[path = "../../src/cli/skills/install/skills_folder.rs"]
mod skills_folder;
mod targets;
#[path = "../../src/cli/skills/install/unpack.rs"]
mod unpack;

/// Where the files of the program look for each other.
mod cli {
    pub(crate) mod skills {
        pub(crate) use crate::atomic_file;
    }
}

use std::path::Path;
use std::time::{Duration, Instant};

use imagate::manifest;
use mutate::Mutator;

/// So many inputs are tried where nobody says how long to try.
const SHORT_RUN: u64 = 1500;

#[expect(clippy::disallowed_methods, reason = "a test is told about its surroundings here")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    setting(name).and_then(|text| text.parse().ok())
}

/// Tries one target, and says how many inputs it was.
fn run(name: &str, seeds: &[Vec<u8>], short: u64, target: fn(&[u8]) -> bool) {
    if let Some(folder) = setting("IMAGATE_FUZZ_SEEDS") {
        return inputs::write(&Path::new(&folder).join(name), seeds);
    }
    let kept = inputs::kept(name);
    for input in kept.iter().chain(seeds) {
        target(input);
    }
    let seed = number("IMAGATE_FUZZ_SEED").unwrap_or(1);
    let until = number("IMAGATE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut mutator = Mutator::new(seed);
    let (mut tried, mut accepted) = (0, 0);
    // What was let in is what the next inputs are made from, too: the walk goes deeper than the seeds.
    let mut pool = seeds.to_vec();
    while until.map_or(tried < short, |until| Instant::now() < until) {
        let input = mutator.change(&pool);
        tried += 1;
        if target(&input) {
            accepted += 1;
            if pool.len() < seeds.len() + 500 && input.len() < 100_000 {
                pool.push(input);
            }
        }
    }
    println!("{name}: {tried} inputs, {accepted} of them let in, {} kept from before, seed {seed}", kept.len());
}

#[test]
fn no_archive_breaks_the_reader() {
    run("archive", &inputs::archives(), SHORT_RUN, targets::archive);
}

/// With checksums that are right, so that what lies behind them is read.
#[test]
fn no_tar_breaks_the_reader() {
    run("tar", &inputs::tars(), SHORT_RUN, targets::tar);
}

/// Made of parts, each of which may lie, so that what lies behind the headers is read.
#[test]
fn no_zip_breaks_the_reader() {
    run("zip", &inputs::recipes(), SHORT_RUN, targets::zip);
}

#[test]
fn no_front_matter_breaks_the_reader() {
    run("front", &inputs::skills(), SHORT_RUN, targets::front);
}

#[test]
fn no_manifest_breaks_the_check() {
    run("manifest", &inputs::manifests(), SHORT_RUN, targets::manifest);
}

/// Each of them waits for the disk several times, so a short run has fewer.
#[test]
fn no_package_is_written_elsewhere_or_half() {
    run("install", &inputs::packages(), SHORT_RUN / 20, install::install);
}
