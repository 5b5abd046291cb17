//! `cargo xtask bench`: measures the release build of `imagate` and prints the times. It asserts nothing, because
//! machines differ.
//!
//! `gateway`, `scale` and `reads` start the load tests of the package `xtask-bench`: `xtask/bench/src`.
//!
//! `skills` checks ten thousand skills, whose packages have about ten megabytes in all. Each round times every command
//! once, first `sha256sum` over the same files, so that other load of the machine affects all of them alike.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::ci;

const SKILLS: usize = 10_000;
/// The approximate size of one package, in bytes.
const PACKAGE_BYTES: usize = 1024;
/// The part of it that is not the data file, in bytes.
const PACKAGE_OVERHEAD: usize = 420;
const ROUNDS: usize = 7;

/// The folders over which `sha256sum` is timed for comparison.
const HASHES: [&str; 2] = ["packages", "packages skills"];
/// The timed commands: a name, the arguments after `imagate skills`, and the index in [`HASHES`] of the same files.
const COMMANDS: [(&str, &[&str], usize); 3] = [
    ("skills verify", &["verify"], 0),
    ("skills validate --root .", &["validate", "skills.json", "--root", "."], 1),
    ("skills validate, no packages", &["validate", "skills.json"], 0),
];

/// Times the commands for skills.
///
/// # Errors
///
/// The program does not build, or reports an error in the generated repository.
pub fn skills(root: &Path) -> Result<()> {
    let program = ci::build_release(root)?;
    let target = target_dir(root)?;
    let folder = target.join("bench").join("skills");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    write_repository(&folder).with_context(|| folder.display().to_string())?;
    let build_arguments = ["build", "--repository", "e/s", "--git-url", "https://example.com/e/s.git"];
    let further_arguments = ["--raw-base-url", "https://example.com/e/s/raw/main", "--branch", "main"];
    run(Command::new(&program).arg("skills").args(build_arguments).args(further_arguments), &folder)?;
    let size = size_below(&folder.join("packages"))?;
    let mut times = vec![Vec::new(); HASHES.len() + COMMANDS.len()];
    for _ in 0..ROUNDS {
        let (hash_times, command_times) = times.split_at_mut(HASHES.len());
        for (folders, times) in HASHES.iter().zip(hash_times) {
            let hash_command = format!("find {folders} -type f -print0 | xargs -0 -n 100000 -s 2000000 sha256sum");
            times.push(run(Command::new("sh").args(["-c", &hash_command]), &folder)?);
        }
        for ((_, arguments, _), times) in COMMANDS.iter().zip(command_times) {
            times.push(run(Command::new(&program).arg("skills").args(*arguments), &folder)?);
        }
    }
    print!("{}", report(size, &times));
    Ok(())
}

/// Runs a part of the load tests, `gateway`, `scale` or `reads`, against the programs that the arguments name, or else against a
/// release build of this tree.
///
/// # Errors
///
/// The programs do not build, or the load tests fail.
pub fn load(root: &Path, part: &str, arguments: &[&str]) -> Result<()> {
    let is_given = arguments.contains(&"--program");
    // One build for both packages, so that their dependencies are compiled once.
    let gateway: &[&str] = if is_given { &[] } else { &["--package", "imagate", "--features", "imagate/cli"] };
    ci::cargo(root, &[&["build", "--release", "--package", "xtask-bench"], gateway].concat(), &[])?;
    let folder = target_dir(root)?.join("release");
    let mut command = Command::new(folder.join("xtask-bench"));
    command.arg(part).args(arguments);
    if !is_given {
        command.arg("--program").arg(folder.join("imagate"));
    }
    let status = command.stdin(Stdio::null()).status().context("xtask-bench")?;
    ensure!(status.success(), "`xtask-bench {part}` failed");
    Ok(())
}

/// The folder that cargo builds into.
fn target_dir(root: &Path) -> Result<PathBuf> {
    let output = ci::command(root, &["metadata", "--format-version", "1", "--no-deps"]).output().context("cargo")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    Ok(PathBuf::from(metadata["target_directory"].as_str().context("cargo metadata names no target folder")?))
}

/// Writes a repository in which every skill has one file of incompressible bytes.
fn write_repository(root: &Path) -> Result<()> {
    let mut state = 1_u64;
    for number in 0..SKILLS {
        let name = format!("skill-{number:05}");
        let folder = root.join("skills").join(&name);
        fs::create_dir_all(&folder)?;
        let about = format!("description: Does the thing with the number {number}.");
        fs::write(
            folder.join("SKILL.md"),
            format!("---\nname: {name}\n{about}\nmetadata:\n  version: \"1.0.0\"\n---\n"),
        )?;
        let noise = (0..PACKAGE_BYTES - PACKAGE_OVERHEAD).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        fs::write(folder.join("data.bin"), noise.collect::<Vec<u8>>())?;
    }
    Ok(())
}

fn size_below(folder: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(folder)? {
        size += entry?.metadata()?.len();
    }
    Ok(size)
}

fn run(command: &mut Command, folder: &Path) -> Result<Duration> {
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let time = start.elapsed();
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    Ok(time)
}

/// The medians of the times, and their ratios to `sha256sum` over the same files.
fn report(size: u64, times: &[Vec<Duration>]) -> String {
    let medians: Vec<Duration> = times.iter().map(|times| median(times)).collect();
    let mut text = format!("{SKILLS} skills, packages of {size} bytes together, medians of {ROUNDS} rounds\n");
    let hashes = HASHES.iter().enumerate().map(|(index, folders)| (format!("sha256sum of {folders}"), index));
    let commands = COMMANDS.iter().map(|(name, _, base)| ((*name).to_owned(), *base));
    for ((name, base), time) in hashes.chain(commands).zip(&medians) {
        let ratio = time.as_secs_f64() / medians[base].as_secs_f64();
        text.push_str(&format!("{name:30} {:>7.0} ms {ratio:>6.2} times\n", time.as_secs_f64() * 1000.0));
    }
    text
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_compares_with_the_hashes() {
        let millis = |values: [u64; 3]| values.map(Duration::from_millis).to_vec();
        let rounds = [[100, 90, 900], [200, 200, 200], [250, 300, 200], [500, 1, 900], [0, 0, 0]];
        let text = report(10, &rounds.map(millis));
        assert!(text.contains("sha256sum of packages              100 ms   1.00 times\n"), "{text}");
        assert!(text.contains("skills verify                      250 ms   2.50 times\n"), "{text}");
        assert!(text.contains("skills validate --root .           500 ms   2.50 times\n"), "{text}");
    }
}
