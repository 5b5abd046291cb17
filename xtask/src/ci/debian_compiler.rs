//! A compiler from Debian's packages, for the checks that the installed compiler cannot do. It is unpacked below
//! `target/`; nothing is installed.

use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::external_tools::{FINISHED_MARKER, run_command};

/// The folder with the unpacked packages.
pub(super) struct DebianCompiler(PathBuf);

/// Updates the lists of packages. That needs root; without it, the existing lists are used.
pub(super) fn update_package_lists() {
    let _ = Command::new("apt-get").args(["update", "--quiet"]).stdin(Stdio::null()).status();
}

impl DebianCompiler {
    /// Downloads and unpacks these packages (`name` or `name=version`) and their missing dependencies, unless the folder
    /// has them.
    pub(super) fn unpack(folder: &Path, packages: &[&str]) -> Result<Self> {
        let compiler = Self(folder.to_owned());
        let (marker, content) = (folder.join(FINISHED_MARKER), packages.join(" "));
        if fs::read_to_string(&marker).is_ok_and(|text| text == content) {
            return Ok(compiler);
        }
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
        let mut simulate = Command::new("apt-get");
        simulate.args(["install", "--simulate", "--no-install-recommends"]).args(packages);
        let simulation = super::stdout_of(&mut simulate)?;
        let mut download = Command::new("apt-get");
        run_command(
            download
                .args(["download", "--quiet"])
                .args(packages_to_download(packages, &simulation))
                .current_dir(folder),
        )?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                run_command(Command::new("dpkg-deb").arg("--extract").args([&path, folder]))?;
                fs::remove_file(path)?;
            }
        }
        fs::write(marker, content)?;
        Ok(compiler)
    }

    /// Makes a command of cargo use this compiler.
    pub(super) fn select_in(&self, command: &mut Command) {
        command.env("RUSTC", self.0.join("usr/bin/rustc"));
        command.env("LD_LIBRARY_PATH", self.0.join(format!("usr/lib/{ARCH}-linux-gnu")));
    }
}

/// The named packages, also those that are installed already, and the dependencies that a simulated `apt-get install`
/// lists.
fn packages_to_download(packages: &[&str], simulation: &str) -> Vec<String> {
    let is_named = |name: &str| packages.iter().any(|package| package.split('=').next() == Some(name));
    let dependencies = simulation.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        let version = rest.split_once('(')?.1.split_whitespace().next()?;
        (!is_named(name)).then(|| format!("{name}={version}"))
    });
    packages.iter().map(|package| (*package).to_owned()).chain(dependencies).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_packages_and_missing_dependencies_are_downloaded() {
        let simulation = "Reading package lists...\nInst libllvm22 (1:22.1.8-1 Debian:12 [amd64])\n\
                    Inst rustc-web [1.85.0] (1.96.0 Debian:12 [amd64])\nConf rustc-web (1.96.0 Debian:12 [amd64])\n";
        let packages = packages_to_download(&["rustc-web=1.96.0", "rust-web-src"], simulation);
        assert_eq!(packages, ["rustc-web=1.96.0", "rust-web-src", "libllvm22=1:22.1.8-1"]);
    }
}
