//! What checking costs: ten thousand skills with packages of ten megabytes together, against reading and hashing the packages.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SKILLS: usize = 10_000;
/// Bytes of one package, about.
const PACKAGE: usize = 1024;
const RUNS: usize = 5;

/// A repository in which every skill has one file of bytes that cannot be packed smaller.
fn repository(root: &Path) {
    let mut state = 1_u64;
    for number in 0..SKILLS {
        let name = format!("skill-{number:05}");
        let folder = root.join("skills").join(&name);
        fs::create_dir_all(&folder).expect("a folder");
        let front = format!(
            "---\nname: {name}\ndescription: Does the thing with the number {number}.\nmetadata:\n  version: \"1.0.0\"\n---\n"
        );
        let noise = (0..PACKAGE - 420).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u8::try_from(state >> 56).expect("a byte")
        });
        fs::write(folder.join("SKILL.md"), front).expect("a file");
        fs::write(folder.join("data.bin"), noise.collect::<Vec<u8>>()).expect("a file");
    }
}

fn fastest(mut run: impl FnMut()) -> Duration {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed()
    });
    times.min().expect("a run")
}

/// Prints figures, and asserts none: machines differ.
#[test]
#[ignore = "it measures, for minutes"]
fn speed() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    repository(root);
    let skills = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imagate"));
        let status = command.current_dir(root).arg("skills").args(arguments).stdout(Stdio::null()).status();
        assert!(status.expect("the program starts").success(), "{arguments:?}");
    };
    let facts = ["--repository", "e/s", "--git-url", "https://example.com/e/s.git"];
    let more = ["--raw-base-url", "https://example.com/e/s/raw/main", "--branch", "main"];
    skills(&[&["build"][..], &facts, &more].concat());
    let size: u64 = fs::read_dir(root.join("packages"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").metadata().expect("metadata").len())
        .sum();
    let hash = fastest(|| {
        let status = Command::new("sh")
            .current_dir(root)
            .args(["-c", "find packages -type f -print0 | xargs -0 sha256sum > /dev/null"])
            .status();
        assert!(status.expect("sha256sum").success());
    });
    let verify = fastest(|| skills(&["verify"]));
    let validate = fastest(|| skills(&["validate", "skills.json", "--root", "."]));
    let alone = fastest(|| skills(&["validate", "skills.json"]));
    let ratio = |time: Duration| time.as_secs_f64() / hash.as_secs_f64();
    println!("{SKILLS} skills, packages of {size} bytes together, fastest of {RUNS}");
    println!("sha256sum of the packages     {hash:>8.0?}");
    println!("skills verify                 {verify:>8.0?}  {:.2} times that", ratio(verify));
    println!("skills validate --root .      {validate:>8.0?}  {:.2} times that", ratio(validate));
    println!("skills validate, no packages  {alone:>8.0?}  {:.2} times that", ratio(alone));
}
