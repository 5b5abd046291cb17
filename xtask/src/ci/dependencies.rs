//! Checks that crates of the server are not dependencies of the SDK or of the feature `manifest`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::{MANIFEST_ARGUMENTS, command, run_all_checks, wasm};

/// Crates that must not be dependencies of the SDK.
const SERVER_CRATES: [&str; 14] = [
    "async-trait",
    "axum",
    "clap",
    "dropshot",
    "jpeg-encoder",
    "jsonschema",
    "libsqlite3-sys",
    "libwebp-sys",
    "png",
    "schemars",
    "slog",
    "sqlx",
    "sqlx-core",
    "toml",
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

/// Checks the dependency trees of the SDK and of the feature `manifest` against the lists.
pub(super) fn check_trees(root: &Path) -> Result<()> {
    let in_wasm = [&MANIFEST_ARGUMENTS[..], &["--target", wasm::TARGET]].concat();
    let forbidden: [(&[&'static str], &[&str]); 3] =
        [(&SERVER_CRATES, &[]), (&CRATES_WITH_IO, &MANIFEST_ARGUMENTS), (&CRATES_WITHOUT_WASM, &in_wasm)];
    run_all_checks(forbidden.into_iter().map(|(crates, features)| check_tree(crates, root, features)))
}

fn check_tree(forbidden: &[&'static str], root: &Path, features: &[&str]) -> Result<()> {
    let arguments = [&["tree", "--package", "imagate", "--edges", "normal", "--prefix", "none"], features].concat();
    let output = command(root, &arguments).stderr(Stdio::inherit()).output().context("cargo tree")?;
    ensure!(output.status.success(), "`cargo tree` failed");
    let listing = String::from_utf8(output.stdout).context("cargo tree")?;
    let found = forbidden_in(&listing, forbidden);
    ensure!(found.is_empty(), "`cargo {}` shows {}", arguments.join(" "), found.join(", "));
    let crates: BTreeSet<&str> = listing.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    println!("{} crates, none of them forbidden", crates.len());
    Ok(())
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
        assert_eq!(found("imagate v0.1.0 (x)\nsqlx v0.9.0\nslog v2.8.0 (*)\n"), ["slog", "sqlx"]);
    }
}
