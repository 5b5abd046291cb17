//! Mutated inputs for everything that reads bytes of unknown origin: archives, front matter, manifests, JSON in pieces,
//! and HTTP answers.
//!
//! Each target mutates seed inputs, with a random generator, and asserts the invariants of any input: no panic, no path
//! outside the folder, no more bytes and no more memory than the limits allow. A run is short and always the same by
//! default. `IMAGATE_FUZZ_SECONDS` (for example 1800) makes it longer; `IMAGATE_FUZZ_SEED` seeds the random generator.
//! Every run begins with the findings (`found/`). With `IMAGATE_FUZZ_CORPUS`, which `cargo xtask release-checks` sets, the
//! stored corpus of cargo-fuzz follows (`corpus/`, a tar per target).
#![expect(clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]
#![expect(clippy::incompatible_msrv, reason = "the program needs a newer Rust than the SDK")]

#[expect(dead_code, reason = "other commands use the other items")]
#[path = "../../src/cli/skills/atomic_file.rs"]
mod atomic_file;
#[path = "../../src/checkout.rs"]
mod checkout;
#[expect(dead_code, reason = "the tests of the archive reader use the other items")]
#[path = "../skills/hostile.rs"]
mod hostile;
#[expect(dead_code, reason = "the transport uses the other items")]
#[path = "../../src/gateway/upstream/transport"]
mod http1 {
    mod answer_framing;
    mod answer_head;
    #[path = "../../../../tests/fuzz/http_answers.rs"]
    pub(crate) mod http_answers;
}
mod inputs;
mod install;
mod memory;
mod mutate;
#[path = "../../src/cli/skills/install/package_install.rs"]
mod package_install;
mod pieces;
#[expect(dead_code, reason = "other commands use the other items")]
#[path = "../../src/cli/skills/install/skills_folder.rs"]
mod skills_folder;
/// The modules of the gateway that need nothing of it.
#[path = "../../src/stream"]
mod stream {
    #[expect(unused_imports, reason = "the gateway uses the other items")]
    pub(crate) mod json;
}
mod targets;
#[path = "../../src/cli/skills/install/unpack.rs"]
mod unpack;

/// The module path under which the included files of the program import each other.
mod cli {
    pub(crate) mod skills {
        pub(crate) use crate::atomic_file;
    }
}

use std::path::Path;
use std::time::{Duration, Instant};

use imagate::manifest;
use mutate::Mutator;

/// The number of mutated inputs if `IMAGATE_FUZZ_SECONDS` is not set.
const SHORT_RUN: u64 = 1500;

#[expect(clippy::disallowed_methods, reason = "only the environment can configure a test")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    setting(name).and_then(|text| text.parse().ok())
}

/// Runs one target, and prints the number of inputs. With `IMAGATE_FUZZ_SEEDS` it only writes the seeds to that folder.
fn run(name: &str, seeds: &[Vec<u8>], short: u64, target: fn(&[u8]) -> bool) {
    if let Some(folder) = setting("IMAGATE_FUZZ_SEEDS") {
        return inputs::write(&Path::new(&folder).join(name), seeds);
    }
    let mut stored = inputs::findings(name);
    if setting("IMAGATE_FUZZ_CORPUS").is_some() {
        stored.extend(inputs::corpus(name));
    }
    for input in stored.iter().chain(seeds) {
        target(input);
    }
    let seed = number("IMAGATE_FUZZ_SEED").unwrap_or(1);
    let deadline = number("IMAGATE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut mutator = Mutator::new(seed);
    let (mut tried, mut accepted) = (0, 0);
    // Accepted inputs are mutated again, so that later inputs differ more from the seeds.
    let mut pool = seeds.to_vec();
    while deadline.map_or(tried < short, |deadline| Instant::now() < deadline) {
        let input = mutator.change(&pool);
        tried += 1;
        if target(&input) {
            accepted += 1;
            if pool.len() < seeds.len() + 500 && input.len() < 100_000 {
                pool.push(input);
            }
        }
    }
    println!("{name}: {tried} inputs, {accepted} of them accepted, {} stored before, seed {seed}", stored.len());
}

#[test]
fn no_archive_breaks_the_reader() {
    run("archive", &inputs::archives(), SHORT_RUN, targets::archive);
}

/// The headers have correct checksums, so that the reader goes beyond them.
#[test]
fn no_tar_breaks_the_reader() {
    run("tar", &inputs::tars(), SHORT_RUN, targets::tar);
}

/// The zips are built from parts that may contradict each other, so that the reader goes beyond the headers.
#[test]
fn no_zip_breaks_the_reader() {
    run("zip", &inputs::zip_descriptions(), SHORT_RUN, targets::zip);
}

#[test]
fn no_front_matter_breaks_the_reader() {
    run("front", &inputs::skills(), SHORT_RUN, targets::front);
}

#[test]
fn no_manifest_breaks_the_check() {
    run("manifest", &inputs::manifests(), SHORT_RUN, targets::manifest);
}

/// An installation syncs to disk several times, so a short run has fewer inputs.
#[test]
fn no_package_is_written_outside_its_folder_or_in_part() {
    run("install", &inputs::packages(), SHORT_RUN / 20, install::install);
}

/// Each input is read some hundred times, cut at another byte each time.
#[test]
fn json_in_pieces_is_read_as_serde_json_reads_it_whole() {
    run("json", &inputs::json(), SHORT_RUN, pieces::json);
}

/// Each input is read up to some dozen times, cut at another byte each time.
#[test]
fn an_http_answer_in_pieces_is_read_as_hyper_reads_it_whole() {
    run("http", &inputs::http_answers(), SHORT_RUN, http1::http_answers::http);
}
