//! Checks the dependencies of each feature: crates that must be absent, the number of crates of the SDK, and their Rust.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::features::{EVERYTHING, MANIFEST_ARGUMENTS};
use super::{command, run_all_checks, rust_version, wasm};

/// The most crates in the tree of the SDK, itself included (our choice): each one is built by every program that uses it.
const SDK_MAX_CRATES: usize = 105;

/// Crates that must not be dependencies of the SDK.
const SERVER_CRATES: [&str; 17] = [
    "async-trait",
    "axum",
    "chrono",
    "clap",
    "dropshot",
    "jpeg-encoder",
    "jsonschema",
    "libsqlite3-sys",
    "libwebp-sys",
    "png",
    "regress",
    "schemars",
    "slog",
    "sqlx",
    "sqlx-core",
    "toml",
    "uuid",
];

/// Crates for files, connections or C code, on which the feature `manifest` must not depend.
const CRATES_WITH_IO: [&str; 8] =
    ["aws-lc-sys", "hyper", "mio", "reqwest", "rustls", "socket2", "tokio", "libsqlite3-sys"];

/// Crates that need an operating system: the feature `manifest` must also run in a browser. `uuid` finds no source of
/// randomness there, unless a crate enables the source of the browser.
const CRATES_WITHOUT_WASM: [&str; 12] = [
    "errno",
    "fs4",
    "iana-time-zone",
    "libc",
    "mio",
    "nix",
    "openssl-sys",
    "rustix",
    "socket2",
    "tokio",
    "uuid",
    "windows-sys",
];

/// Libraries of TLS and cryptography other than rustls with aws-lc-rs, which only the other ways of TLS of the SDK have.
const OTHER_TLS: [&str; 3] = ["native-tls", "openssl-sys", "ring"];

/// Checks the dependency trees of the features against the lists, and the versions of Rust.
pub(super) fn check_trees(root: &Path) -> Result<()> {
    let in_wasm = [&MANIFEST_ARGUMENTS[..], &["--target", wasm::TARGET]].concat();
    let forbidden: [(&[&'static str], &[&str]); 3] = [
        (&CRATES_WITH_IO, &MANIFEST_ARGUMENTS),
        (&CRATES_WITHOUT_WASM, &in_wasm),
        (&OTHER_TLS, &["--features", EVERYTHING]),
    ];
    let others = forbidden.into_iter().map(|(crates, features)| check_tree(crates, root, features).map(drop));
    let own: [fn(&Path) -> Result<()>; 2] = [check_sdk_tree, rust_version::check];
    run_all_checks(own.into_iter().map(|check| check(root)).chain(others))
}

/// Checks that the SDK has no crate of the server, few crates, and none in two versions.
fn check_sdk_tree(root: &Path) -> Result<()> {
    let crates = check_tree(&SERVER_CRATES, root, &[])?;
    ensure!(
        crates.len() <= SDK_MAX_CRATES,
        "the SDK has {} crates, at most {SDK_MAX_CRATES} are allowed",
        crates.len()
    );
    let twice = names_with_versions(&crates);
    ensure!(twice.is_empty(), "the SDK has more than one version of {}", twice.join(", "));
    Ok(())
}

/// The names of crates that occur with several versions, in lines such as `hyper v1.11.0`.
fn names_with_versions(crates: &BTreeSet<String>) -> Vec<&str> {
    let names: Vec<&str> = crates.iter().filter_map(|line| line.split_whitespace().next()).collect();
    names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

/// Returns the crates of a tree, after a check that none of them is forbidden.
fn check_tree(forbidden: &[&'static str], root: &Path, features: &[&str]) -> Result<BTreeSet<String>> {
    let arguments = [&["tree", "--package", "imagate", "--edges", "normal", "--prefix", "none"], features].concat();
    let output = command(root, &arguments).stderr(Stdio::inherit()).output().context("cargo tree")?;
    ensure!(output.status.success(), "`cargo tree` failed");
    let listing = String::from_utf8(output.stdout).context("cargo tree")?;
    let found = forbidden_in(&listing, forbidden);
    ensure!(found.is_empty(), "`cargo {}` shows {}", arguments.join(" "), found.join(", "));
    let crates: BTreeSet<String> = listing.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect();
    println!("{} crates, none of them forbidden", crates.len());
    Ok(crates)
}

/// The forbidden crates in the listing of `cargo tree --prefix none`.
fn forbidden_in(listing: &str, forbidden: &[&'static str]) -> Vec<&'static str> {
    let names: Vec<&str> = listing.lines().filter_map(|line| line.split_whitespace().next()).collect();
    forbidden.iter().filter(|name| names.contains(name)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_crate_in_the_tree_is_found() {
        let found = |listing| forbidden_in(listing, &SERVER_CRATES);
        assert_eq!(found("imagate v0.1.0 (x)\nhyper v1.11.0\nslog-term v2.9.0\n"), [""; 0]);
        let crates = ["hyper v1.11.0", "itoa v1.0.1", "syn v2.0.1", "syn v3.0.0"].map(str::to_owned).into();
        assert_eq!(names_with_versions(&crates), ["syn"]);
        assert_eq!(found("imagate v0.1.0 (x)\nsqlx v0.9.0\nslog v2.8.0 (*)\n"), ["slog", "sqlx"]);
    }
}
