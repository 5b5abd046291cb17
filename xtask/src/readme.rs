//! `cargo xtask readme`: the Rust program of README.md as a stranger would run it, and the weight of the SDK beside that
//! of async-openai.
//!
//! The program is built in a package outside of the repository with the package that `cargo publish` would upload, and
//! makes an image with the simulator. Then it and a program with async-openai are built from nothing, one after the
//! other. The times depend on the machine, so only their ratio says something, and nothing is asserted about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::ci;
use crate::ci::features::EVERYTHING;
use crate::examples::program;
use crate::simulator::{SimulatorProcess, empty_folder};

/// The rival with its part for images, as its documentation adds it.
const RIVAL: &str = r#"async-openai = { version = "0.43", features = ["image"] }"#;
/// The features of tokio that README.md adds.
const TOKIO: &str = r#"tokio = { version = "1", features = ["macros", "rt-multi-thread"] }"#;

/// A package outside of the repository.
struct OutsidePackage {
    name: &'static str,
    folder: PathBuf,
}

/// Packs, builds and runs the program, and prints the comparison.
///
/// # Errors
///
/// A build fails, the program makes no image, or a crate occurs in two versions.
pub fn run(root: &Path) -> Result<()> {
    let folder = empty_folder(&std::env::temp_dir().join(format!("imagate-readme-{}", std::process::id())))?;
    let result = run_in(root, &folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn run_in(root: &Path, folder: &Path) -> Result<()> {
    let unpacked = pack(root, folder)?;
    let imagate = format!("imagate = {{ path = {:?} }}", unpacked.display().to_string());
    let readme = fs::read_to_string(root.join(crate::README)).context(crate::README)?;
    let ours = OutsidePackage::create(folder, "with_imagate", &imagate, rust_program(&readme)?)?;
    let rival = OutsidePackage::create(folder, "with_async_openai", RIVAL, "fn main() {}\n")?;
    let (our_crates, rival_crates) = (ours.crates()?, rival.crates()?);
    let (our_time, rival_time) = (ours.build()?, rival.build()?);
    let image = make_image(root, &ours, folder)?;
    println!("\nThe program of README.md wrote {image}.");
    println!("               crates   cold build");
    for (name, crates, time) in [("imagate", &our_crates, our_time), ("async-openai", &rival_crates, rival_time)] {
        println!("{name:14} {:6} {:10.1} s", crates.len(), time.as_secs_f64());
    }
    println!(
        "ratio          {:6.2} {:10.2}",
        ratio(our_crates.len(), rival_crates.len()),
        our_time.as_secs_f64() / rival_time.as_secs_f64()
    );
    let twice: Vec<&str> =
        our_crates.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| &**name).collect();
    ensure!(twice.is_empty(), "more than one version of {}", twice.join(", "));
    println!("no crate of imagate occurs in two versions");
    Ok(())
}

/// Makes the package, and unpacks it into the folder. Returns the folder of the package.
pub(crate) fn pack(root: &Path, folder: &Path) -> Result<PathBuf> {
    ci::cargo(root, &["package", "--package", "imagate", "--allow-dirty", "--no-verify"], &[])?;
    let name = format!("imagate-{}", ci::package_version(root)?);
    let file = ci::target_folder(root)?.join("package").join(format!("{name}.crate"));
    let status = Command::new("tar").arg("-xzf").arg(file).current_dir(folder).status().context("tar")?;
    ensure!(status.success(), "tar failed");
    Ok(folder.join(name))
}

/// Runs the built program against the simulator; returns the name of the image that it prints.
fn make_image(root: &Path, ours: &OutsidePackage, folder: &Path) -> Result<String> {
    ci::cargo(root, &["build", "--workspace", "--features", EVERYTHING, "--bin", "imagate"], &[])?;
    let gateway = program(&ci::target_folder(root)?.join("debug"), "imagate");
    let simulator = SimulatorProcess::start(&gateway, &empty_folder(&folder.join("gateway"))?)?;
    let images = folder.join("images");
    let output = simulator.command(&ours.program(), &images)?.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the program of README.md failed");
    let name = String::from_utf8(output.stdout)?.trim().to_owned();
    ensure!(fs::metadata(images.join(&name)).is_ok_and(|file| file.len() > 0), "the program wrote no file {name:?}");
    Ok(name)
}

/// The only Rust program of README.md.
fn rust_program(readme: &str) -> Result<&str> {
    let mut programs = readme.split("\n```rust").skip(1);
    let program = programs.next().context("README.md has no Rust program")?;
    ensure!(programs.next().is_none(), "README.md has more than one Rust program");
    let (_, code) = program.split_once('\n').context("README.md has an empty Rust program")?;
    code.split_once("\n```").map(|(code, _)| code).context("the Rust program of README.md has no end")
}

#[expect(clippy::cast_precision_loss, reason = "numbers of crates are small")]
fn ratio(ours: usize, rival: usize) -> f64 {
    ours as f64 / rival as f64
}

// === impl OutsidePackage ===

impl OutsidePackage {
    fn create(folder: &Path, name: &'static str, dependency: &str, main: &str) -> Result<Self> {
        let folder = empty_folder(&folder.join(name))?;
        fs::create_dir(folder.join("src"))?;
        let manifest = format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n{dependency}\n{TOKIO}\n\n[workspace]\n"
        );
        fs::write(folder.join("Cargo.toml"), manifest)?;
        fs::write(folder.join("src").join("main.rs"), main)?;
        ci::cargo(&folder, &["fetch", "--quiet"], &[])?;
        Ok(Self { name, folder })
    }

    /// Builds everything from nothing, without the download.
    fn build(&self) -> Result<Duration> {
        let target = ("CARGO_TARGET_DIR".into(), self.target().into_os_string());
        let start = Instant::now();
        ci::cargo(&self.folder, &["build", "--quiet", "--offline"], &[target])?;
        Ok(start.elapsed())
    }

    fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    fn program(&self) -> PathBuf {
        program(&self.target().join("debug"), self.name)
    }

    /// The versions of each crate that is built, by its name, without the package itself.
    fn crates(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let arguments = ["tree", "--edges", "normal", "--prefix", "none", "--no-dedupe"];
        let output = ci::command(&self.folder, &arguments).output().context("cargo tree")?;
        ensure!(output.status.success(), "`cargo tree` failed");
        let mut crates: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in String::from_utf8(output.stdout)?.lines() {
            let mut words = line.split_whitespace();
            let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
            let versions = crates.entry(name.to_owned()).or_default();
            if !versions.iter().any(|known| known == version) {
                versions.push(version.to_owned());
            }
        }
        crates.remove(self.name);
        Ok(crates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rust_program_is_found_in_the_page() {
        let page = "text\n```sh\na\n```\n```rust,no_run\nfn main() {}\n```\n";
        assert_eq!(rust_program(page).unwrap(), "fn main() {}");
        assert!(rust_program("text").is_err() && rust_program(&page.repeat(2)).is_err());
    }
}
