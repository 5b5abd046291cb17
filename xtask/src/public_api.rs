//! The list of the public API in `tests/golden/public_api.txt`, so that a review sees every change of it.
//!
//! rustdoc describes the crate as JSON, and the library `public-api` prints one line for each item. That output of
//! rustdoc is unstable: `RUSTC_BOOTSTRAP` enables it, and the version of `public-api` fits the version of the compiler.
//! If the variable were set for all of cargo, build scripts would run again and their dependents would be built again.
//! Therefore it is set for rustdoc alone: cargo calls this program in place of rustdoc.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use public_api::Builder;

use crate::ci;

/// The features with a public API. `gateway` and `cli` have none.
pub(crate) const FEATURES: &str = "client,rustls,admin,resize,manifest,testing";
/// The list.
const LIST: &str = "tests/golden/public_api.txt";
/// The first lines of the list.
const HEAD: &str = "\
# The public API with the features client, rustls, admin, resize, manifest and testing. `cargo xtask api` writes this file.
# Without derived and automatic implementations, and without the types that openapi/admin.json generates.
";
/// The module of the types that the document of the admin API generates.
const GENERATED: &str = "admin::types";
/// The most lines that the report of a difference shows of each side (our choice).
const MAX_REPORTED_LINES: usize = 20;
/// Set if cargo calls this program in place of rustdoc.
const RUSTDOC_MARKER: &str = "IMAGATE_XTASK_RUSTDOC";

/// Compares the list with the code.
///
/// # Errors
///
/// The list differs, or rustdoc fails.
pub fn check(root: &Path) -> Result<()> {
    let recorded = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let difference = difference(&recorded, &list(root)?);
    ensure!(
        difference.is_empty(),
        "the public API differs from {LIST}:\n{difference}If that is intended: `cargo xtask api`"
    );
    Ok(())
}

/// Writes the list.
///
/// # Errors
///
/// rustdoc fails, or the file cannot be written.
pub fn write(root: &Path) -> Result<()> {
    fs::write(root.join(LIST), list(root)?).context(LIST)?;
    println!("{LIST}");
    Ok(())
}

/// Builds the documentation as docs.rs does, and checks that it shows the feature of an item.
///
/// # Errors
///
/// docs.rs would build other features, rustdoc has a warning, or the pages do not name the features.
pub fn check_docs_rs(root: &Path) -> Result<()> {
    const PAGE: &str = "imagate/admin/index.html";
    let features = ci::docs_rs_features(root)?;
    ensure!(features == FEATURES, "Cargo.toml has other features for docs.rs: {features}");
    let mut variables = rustdoc_variables()?;
    variables.push(("RUSTDOCFLAGS".into(), "-D warnings --cfg docsrs".into()));
    ci::cargo(root, &["doc", "--no-deps", "--lib", "--no-default-features", "--features", FEATURES], &variables)?;
    let page = fs::read_to_string(ci::target_folder(root)?.join("doc").join(PAGE)).context(PAGE)?;
    let names_feature = page.contains("<strong>crate feature") && page.contains("<code>admin</code>");
    ensure!(names_feature, "{PAGE} does not name the feature");
    Ok(())
}

/// The variables with which cargo calls this program in place of rustdoc.
fn rustdoc_variables() -> Result<Vec<(OsString, OsString)>> {
    let this_program = env::current_exe().context("the path of this program")?.into_os_string();
    Ok(vec![("RUSTDOC".into(), this_program), (RUSTDOC_MARKER.into(), "1".into())])
}

/// Calls the real rustdoc if cargo runs this program in its place.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "cargo passes on no other mark than the environment")]
pub fn run_rustdoc() -> Option<ExitCode> {
    env::var_os(RUSTDOC_MARKER)?;
    let status = Command::new("rustdoc").args(env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").status();
    Some(if status.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The text of the list, as the code is now.
fn list(root: &Path) -> Result<String> {
    let arguments = ["rustdoc", "--lib", "--features", FEATURES, "--", "-Zunstable-options", "--output-format=json"];
    ci::cargo(root, &arguments, &rustdoc_variables()?)?;
    let api = Builder::from_rustdoc_json(ci::target_folder(root)?.join("doc").join("imagate.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .context("the library public-api does not fit this version of Rust")?;
    let items = api.items().map(ToString::to_string).filter(|item| !is_generated(item));
    Ok(items.fold(HEAD.to_owned(), |list, item| list + &item + "\n"))
}

/// Returns true if the item itself, and not only a parameter or a result, is generated from the document of the admin API.
fn is_generated(item: &str) -> bool {
    item.split('(').next().is_some_and(|path| path.contains(GENERATED))
}

/// The lines that only one of the lists has. Lines that are only at another place are no difference.
fn difference(recorded: &str, present: &str) -> String {
    let lines = |text: &'static str, of: &str, without: &str| -> String {
        let without: BTreeSet<&str> = without.lines().collect();
        let found: Vec<&str> = of.lines().filter(|line| !without.contains(line)).collect();
        let shown = found.iter().take(MAX_REPORTED_LINES).map(|line| format!("{text} {line}\n"));
        let hidden = found.len().saturating_sub(MAX_REPORTED_LINES);
        let rest = if hidden == 0 { String::new() } else { format!("{text} … and {hidden} more\n") };
        shown.chain([rest]).collect()
    };
    lines("-", recorded, present) + &lines("+", present, recorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_the_lines_of_both_sides() {
        assert_eq!(difference("a\nb\n", "b\na\n"), "");
        assert_eq!(difference("a\nb\n", "b\nc\n"), "- a\n+ c\n");
        let many: String = (0..23).map(|number| format!("{number}\n")).collect();
        assert!(difference("", &many).ends_with("+ 19\n+ … and 3 more\n"));
    }

    #[test]
    fn only_items_of_the_document_are_generated() {
        assert!(is_generated("pub imagate::admin::types::Key::name: alloc::string::String"));
        assert!(is_generated("pub fn imagate::client::admin::types::Key::builder() -> Self"));
        assert!(!is_generated("pub fn imagate::admin::Client::key(&self) -> imagate::admin::types::Key"));
    }
}
