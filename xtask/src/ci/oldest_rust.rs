//! Compiles the SDK with the oldest Rust that it promises.
//!
//! The compiler is that of rustup, if the version is installed. Otherwise it is one of Debian that is somewhat older. The
//! parts of the language and of the standard library that became stable in between are then switched on by their names
//! ([`STABLE_SINCE`]), so that everything else in the code is as old as that compiler. The dependencies are those that
//! cargo chooses for the compiler; that the newest ones keep to the version is a check of [`rust_version`].

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::debian_compiler::DebianCompiler;
use super::external_tools::run_command;
use super::rust_version::{self, RustVersion};
use super::{command, target_folder};
use crate::readme;

/// The features that are compiled. A dependency of `resize` itself uses parts of 1.87.
const FEATURES: &str = "admin,testing";

/// The oldest compiler that can stand in for the promised one.
const OLDEST_SUBSTITUTE: RustVersion = (1, 85);

/// The parts of Rust 1.86 to 1.88 that the code uses, as an older compiler calls them.
const STABLE_SINCE: &str = "let_chains, unsigned_is_multiple_of, slice_as_chunks, const_vec_string_slice";

/// The packages of Debian with a compiler: the usual one, and the one with which its browsers are built.
const COMPILER_PACKAGES: [&str; 2] = ["rustc", "rustc-web"];

/// An old compiler.
enum OldCompiler {
    /// The promised version, from rustup.
    Promised(PathBuf),
    /// An older version.
    Substitute(DebianCompiler, RustVersion),
}

/// Compiles the package that would be published. Without a compiler, the check is omitted; it fails if `CI` is set.
pub(super) fn check(root: &Path) -> Result<()> {
    let promised = rust_version::package_version(root)?;
    let folder = target_folder(root)?.join("oldest_rust");
    let Some(compiler) = find_compiler(&folder, promised)? else {
        ensure!(!is_in_ci(), "no old compiler: `apt-get update` makes Debian's known");
        println!("omitted: `rustup toolchain install {}` makes it possible", text(promised));
        return Ok(());
    };
    let packages = folder.join("package");
    let _ = fs::remove_dir_all(&packages);
    fs::create_dir_all(&packages)?;
    let package = readme::pack(root, &packages)?;
    // The target folder can be inside of this workspace.
    change_file(&package.join("Cargo.toml"), |manifest| format!("{manifest}\n[workspace]\n"))?;
    if let OldCompiler::Substitute(_, version) = compiler {
        adapt_package(&package, promised, version)?;
    }
    let lock = package.join("Cargo.lock");
    fs::remove_file(&lock).with_context(|| lock.display().to_string())?;
    let mut resolve = command(&package, &["generate-lockfile", "--quiet"]);
    run_command(resolve.env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "fallback"))?;
    let mut check = command(&package, &["check", "--lib", "--locked", "--ignore-rust-version", "--features", FEATURES]);
    compiler.select_in(&mut check);
    run_command(check.env("CARGO_TARGET_DIR", folder.join("target")))
}

#[expect(clippy::disallowed_methods, reason = "the usual way to know whether a check may be omitted")]
fn is_in_ci() -> bool {
    env::var_os("CI").is_some()
}

fn find_compiler(folder: &Path, promised: RustVersion) -> Result<Option<OldCompiler>> {
    let mut rustup = Command::new("rustup");
    rustup.args(["which", "rustc", "--toolchain", &text(promised)]).stdin(Stdio::null());
    if let Ok(output) = rustup.output()
        && output.status.success()
    {
        return Ok(Some(OldCompiler::Promised(String::from_utf8(output.stdout)?.trim().into())));
    }
    let Ok(output) = Command::new("apt-cache").arg("madison").args(COMPILER_PACKAGES).stdin(Stdio::null()).output()
    else {
        return Ok(None);
    };
    let Some(found) = find_substitute(&String::from_utf8(output.stdout)?, promised) else { return Ok(None) };
    println!("Debian's {} {}, in place of Rust {}", found.package, found.package_version, text(promised));
    let packages = found.packages();
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let compiler = DebianCompiler::unpack(&folder.join("debian"), &packages)?;
    Ok(Some(OldCompiler::Substitute(compiler, found.version)))
}

/// A package of Debian with a compiler that can stand in for the promised one.
#[derive(Debug, PartialEq, Eq)]
struct SubstitutePackage {
    package: String,
    package_version: String,
    version: RustVersion,
}

impl SubstitutePackage {
    /// The package and the packages of its standard library, of the same version. They must be named, because the newest
    /// ones would be chosen otherwise.
    fn packages(&self) -> [String; 2] {
        let library = self.package.replace("rustc", "libstd-rust") + "-dev";
        [&self.package, &library].map(|package| format!("{package}={}", self.package_version))
    }
}

/// Finds the newest usable compiler in the output of `apt-cache madison`, which has a line for each version of a package.
fn find_substitute(listing: &str, promised: RustVersion) -> Option<SubstitutePackage> {
    let packages = listing.lines().filter_map(|line| {
        let mut fields = line.split('|').map(str::trim);
        let (package, package_version) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let version = rust_version::parse(&package_version)?;
        Some(SubstitutePackage { package, package_version, version })
    });
    packages
        .filter(|package| (OLDEST_SUBSTITUTE..=promised).contains(&package.version))
        .max_by_key(|package| package.version)
}

/// Makes the package one for the substitute.
fn adapt_package(package: &Path, promised: RustVersion, substitute: RustVersion) -> Result<()> {
    let line = |version| format!("\nrust-version = \"{}\"\n", text(version));
    change_file(&package.join("Cargo.toml"), |manifest| manifest.replace(&line(promised), &line(substitute)))?;
    change_file(&package.join("src").join("lib.rs"), |library| format!("#![feature({STABLE_SINCE})]\n{library}"))
}

/// Changes a text file. Fails if the change has no effect.
fn change_file(path: &Path, change: impl FnOnce(&str) -> String) -> Result<()> {
    let before = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let after = change(&before);
    ensure!(after != before, "{} is not as expected", path.display());
    fs::write(path, after).with_context(|| path.display().to_string())
}

fn text((major, minor): RustVersion) -> String {
    format!("{major}.{minor}")
}

impl OldCompiler {
    fn select_in(&self, command: &mut Command) {
        match self {
            Self::Promised(rustc) => {
                command.env("RUSTC", rustc);
            }
            Self::Substitute(compiler, _) => {
                compiler.select_in(command);
                // Only our own crate may name unstable parts.
                command.env("RUSTC_BOOTSTRAP", "imagate");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_compiler_that_is_not_too_new_is_found() {
        let listing = " rustc-web | 1.96.0+dfsg1-1 | mirror a\n rustc-web | 1.85.0+dfsg3-1 | mirror b\n\
                       \x20    rustc | 1.63.0+dfsg1-2 | mirror b\n     rustc | 1.86.0+dfsg1-1 | mirror c\n";
        let found = find_substitute(listing, (1, 88)).unwrap();
        assert_eq!(found.version, (1, 86));
        assert_eq!(found.packages(), ["rustc=1.86.0+dfsg1-1", "libstd-rust-dev=1.86.0+dfsg1-1"]);
        let found = find_substitute(listing, (1, 85)).unwrap();
        assert_eq!(found.packages(), ["rustc-web=1.85.0+dfsg3-1", "libstd-rust-web-dev=1.85.0+dfsg3-1"]);
        assert_eq!(find_substitute(listing, (1, 84)), None);
        assert_eq!(find_substitute("", (1, 88)), None);
    }
}
