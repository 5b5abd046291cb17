//! Compares the oldest Rust that docs/compatibility.md promises with what the dependencies need.
//!
//! `rust-version` of the package is that of the SDK; the features in the other rows of the table need the newer Rust of
//! their dependencies. That the code itself keeps to the version is checked by clippy (`incompatible_msrv`) for the
//! standard library, and by an old compiler for the SDK ([`oldest_rust`](super::oldest_rust)).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{command, metadata, run_all_checks};

const PAGE: &str = "docs/compatibility.md";

/// The sets of features with a version of their own: the names in the table, and the features that are built for it.
const ROWS: [(&str, &str); 3] = [
    ("`client`, `admin`, `resize`", "client,rustls,admin,resize"),
    ("`manifest`", "manifest"),
    ("`gateway`, `cli`", "cli,admin"),
];

/// A version of Rust: major and minor.
pub(super) type RustVersion = (u32, u32);

/// The `rust-version` of each package, by its name and version as `cargo tree` prints them.
type RustVersions = BTreeMap<String, RustVersion>;

/// Compares the table with the dependencies, and its first row with the package.
pub(super) fn check(root: &Path) -> Result<()> {
    let page = fs::read_to_string(root.join(PAGE)).context(PAGE)?;
    let versions = rust_versions(root)?;
    run_all_checks(ROWS.into_iter().enumerate().map(|(index, (names, features))| {
        let promised = promised_version(&page, names)?;
        let (needed, package) = newest_need(&tree(root, features)?, &versions)?;
        println!("{names}: Rust {}.{}, needed by {package}", needed.0, needed.1);
        ensure!(
            promised == needed,
            "{PAGE} has {}.{} for {names}, but {package} needs {}.{}",
            promised.0,
            promised.1,
            needed.0,
            needed.1
        );
        let own = versions.iter().find(|(package, _)| package.starts_with("imagate v")).map(|(_, version)| *version);
        ensure!(index > 0 || own == Some(promised), "`rust-version` of the package differs from {names} in {PAGE}");
        Ok(())
    }))
}

/// The version in the row of the table that begins with these names.
fn promised_version(page: &str, names: &str) -> Result<RustVersion> {
    let start = format!("| {names} | ");
    let row = page.lines().find_map(|line| line.strip_prefix(&start)).with_context(|| format!("{PAGE}: no {names}"))?;
    parse(row.trim_end_matches(" |")).with_context(|| format!("{PAGE}: {row}"))
}

/// The newest Rust that a dependency in this listing of `cargo tree` needs, and the dependency.
fn newest_need(listing: &str, versions: &RustVersions) -> Result<(RustVersion, String)> {
    let packages = listing.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    let others = packages.filter(|package| !package.starts_with("imagate "));
    let needs = others.filter_map(|package| Some((*versions.get(&package)?, package)));
    needs.max_by_key(|(version, _)| *version).context("no dependency has a `rust-version`")
}

fn tree(root: &Path, features: &str) -> Result<String> {
    let edges = ["tree", "--package", "imagate", "--edges", "normal,build", "--prefix", "none"];
    super::stdout_of(&mut command(root, &[&edges[..], &["--no-default-features", "--features", features]].concat()))
}

/// The `rust-version` of each package that this machine would build.
fn rust_versions(root: &Path) -> Result<RustVersions> {
    let host = super::stdout_of(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let arguments = ["metadata", "--format-version=1", "--features=cli,admin", "--filter-platform", host.trim()];
    let metadata: Value = serde_json::from_str(&super::stdout_of(&mut command(root, &arguments))?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let rust_version = |package: &Value| {
        let version = parse(package["rust_version"].as_str()?)?;
        Some((format!("{} v{}", package["name"].as_str()?, package["version"].as_str()?), version))
    };
    Ok(packages.iter().filter_map(rust_version).collect())
}

/// The `rust-version` of the package.
pub(super) fn package_version(root: &Path) -> Result<RustVersion> {
    let version = metadata::package(root)?["rust_version"].as_str().and_then(parse);
    version.context("the package has no `rust-version`")
}

/// Reads `1.88` and `1.88.0`.
pub(super) fn parse(text: &str) -> Option<RustVersion> {
    let mut parts = text.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_need_of_a_tree_is_found() {
        let versions =
            [("a v1.0.0", (1, 85)), ("b v2.0.0", (1, 88)), ("c v1.0.0", (1, 94)), ("imagate v1.0.0", (1, 99))];
        let versions = versions.map(|(package, version)| (package.to_owned(), version)).into();
        let tree = "imagate v1.0.0 (/a)\na v1.0.0\nb v2.0.0 (*)\nd v1.0.0\n";
        assert_eq!(newest_need(tree, &versions).unwrap(), ((1, 88), "b v2.0.0".to_owned()));
        assert!(newest_need("d v1.0.0\n", &versions).is_err());
    }

    #[test]
    fn the_promise_is_read_from_the_table() {
        let page = "| `manifest` | 1.89 |\n| `gateway` | new |\n";
        assert_eq!(promised_version(page, "`manifest`").unwrap(), (1, 89));
        assert!(promised_version(page, "`gateway`").is_err() && promised_version(page, "`client`").is_err());
    }
}
