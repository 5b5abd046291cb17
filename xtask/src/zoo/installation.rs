//! Installs the packages of a client below the target folder, once for each list of versions.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::DRIVERS;
use super::zoo_client::{PackageEcosystem, ZooClient};

/// The file that marks an environment as complete; it contains the installed packages.
const FINISHED_MARKER: &str = "imagate-finished";
/// The Node of all clients in JavaScript. The package brings the program.
const NODE: &str = "node@24.21.0";
/// The number of characters that are kept of the output of a failed installation.
const MAX_REASON_CHARS: usize = 300;

/// The folder of the packages of this client. The folder of Node is beside it.
///
/// # Errors
///
/// Returns the end of the output of the installer if it fails.
pub(super) fn prepare(root: &Path, target: &Path, client: &ZooClient) -> Result<PathBuf> {
    let folder = target.join(client.environment());
    match client.ecosystem {
        PackageEcosystem::Program => fs::create_dir_all(&folder)?,
        PackageEcosystem::Python => {
            install_once(&folder, &client.packages.join(" "), || install_python(&folder, client))?;
        }
        PackageEcosystem::Node => {
            let runtime = target.join("node-runtime");
            install_once(&runtime, NODE, || install_node(&runtime, target, &[NODE.to_owned()]))?;
            install_once(&folder, &client.packages.join(" "), || install_node(&folder, target, &client.packages))?;
        }
        PackageEcosystem::Rust => build(root, &folder, client)?,
    }
    Ok(folder)
}

/// The folder of the program `node`.
pub(super) fn node_folder(target: &Path) -> PathBuf {
    target.join("node-runtime/node_modules/node/bin")
}

/// The search path of the system with these folders before it.
#[expect(clippy::disallowed_methods, reason = "the rule is for the gateway")]
pub(super) fn search_path(folders: impl IntoIterator<Item = PathBuf>) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(folders.into_iter().chain(env::split_paths(&path)))?)
}

fn install_once(folder: &Path, packages: &str, install: impl FnOnce() -> Result<()>) -> Result<()> {
    let marker = folder.join(FINISHED_MARKER);
    if fs::read_to_string(&marker).is_ok_and(|text| text == packages) {
        return Ok(());
    }
    install()?;
    fs::write(marker, packages)?;
    Ok(())
}

fn install_python(folder: &Path, client: &ZooClient) -> Result<()> {
    execute(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(&client.packages);
    execute(&mut install)
}

/// Some packages look at the version of Node while they are installed, so npm runs with that of the zoo, if it exists.
fn install_node(folder: &Path, target: &Path, packages: &[String]) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("package.json"), r#"{"private":true,"type":"module"}"#)?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--loglevel=error"]).args(packages);
    install.env("PATH", search_path([node_folder(target)])?).current_dir(folder);
    execute(&mut install)
}

/// Builds a program in a copy, so that the build writes nothing into the folder of the drivers.
fn build(root: &Path, folder: &Path, client: &ZooClient) -> Result<()> {
    let source = root.join(DRIVERS).join(&client.driver);
    fs::create_dir_all(folder.join("src"))?;
    for name in ["Cargo.toml", "Cargo.lock", "src/main.rs"] {
        let text = fs::read(source.join(name)).with_context(|| name.to_owned())?;
        // A file that is written again is built again.
        if fs::read(folder.join(name)).ok().as_deref() != Some(&text) {
            fs::write(folder.join(name), text)?;
        }
    }
    let mut build = Command::new("cargo");
    build.args(["build", "--locked", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", folder.join("target"));
    execute(&mut build)
}

fn execute(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| line.clone())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = text.chars().count().saturating_sub(MAX_REASON_CHARS);
    bail!("{}", text.chars().skip(skipped).collect::<String>())
}
