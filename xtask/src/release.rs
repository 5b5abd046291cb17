//! `cargo xtask release`: the program for users on Linux: optimized for speed, with its code laid out by what runs.
//!
//! Half of the time of a small request is instruction fetch, because the code that runs is spread over the whole program.
//! BOLT moves it together: a build that counts its branches serves the cases of `cargo xtask bench gateway`, and the
//! counts (the profile) give the order. The profile stays beside the program: with the same sources, compiler, BOLT and
//! profile, the result is the same to the byte.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{bench, ci, examples};

/// The versions of LLVM that Debian installs in folders of their own, the newest first. BOLT finds its library only from
/// there.
const VERSIONS: [u32; 5] = [22, 21, 20, 19, 18];

/// The way in which BOLT orders code: blocks and functions that run after each other are neighbours, and code that did
/// not run is elsewhere.
const LAYOUT: [&str; 6] = [
    "-reorder-blocks=ext-tsp",
    "-reorder-functions=cdsort",
    "-split-functions",
    "-split-all-cold",
    "-split-eh",
    "-icf=1",
];

/// Builds the program into `target/distribution`, with the profile of a run of the load tests, or with a given one.
///
/// # Errors
///
/// A command fails, or the program that was made does not start.
pub fn run(root: &Path, profile: Option<&str>) -> Result<()> {
    let folder = ci::target_folder(root)?.join("distribution");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let program = examples::program(&folder, "imagate");
    let Some(bolt) = cfg!(target_os = "linux").then(|| find_tool("llvm-bolt")).flatten() else {
        fs::copy(ci::build_release(root)?, &program)?;
        println!(
            "not done: the layout of the code, because `llvm-bolt` is missing (Debian: apt-get install bolt-19 libbolt-19-dev)"
        );
        return describe(&program);
    };
    let movable = build_movable(root, &folder)?;
    let stored_profile = folder.join("imagate.fdata");
    match profile {
        Some(path) => drop(fs::copy(path, &stored_profile).with_context(|| path.to_owned())?),
        None => record_profile(root, &bolt, &movable, &stored_profile)?,
    }
    let mut layout = Command::new(&bolt);
    layout.arg(&movable).arg("-o").arg(&program).arg("-data").arg(&stored_profile).args(LAYOUT);
    call(&mut layout)?;
    call(Command::new(find_tool("llvm-strip").context("llvm-strip is missing")?).arg(&program))?;
    println!("the profile is {}", stored_profile.display());
    describe(&program)
}

/// Builds the release program with the tables that BOLT needs to move code.
fn build_movable(root: &Path, folder: &Path) -> Result<PathBuf> {
    let build = ["rustc", "--profile", "dist", "--features", "cli", "--bin", "imagate", "--"];
    let options = ["-Clink-arg=-Wl,--emit-relocs", "-Cstrip=none"];
    ci::cargo(root, &[&build[..], &options].concat(), &[])?;
    let movable = folder.join("imagate.relocatable");
    fs::copy(examples::program(&ci::target_folder(root)?.join("dist"), "imagate"), &movable)?;
    Ok(movable)
}

/// Runs the load tests with a program that counts its branches, and stores the sums.
fn record_profile(root: &Path, bolt: &str, movable: &Path, profile: &Path) -> Result<()> {
    let counts = profile.with_extension("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts)?;
    }
    fs::create_dir_all(&counts)?;
    let instrumented = movable.with_extension("instrumented");
    let mut instrument = Command::new(bolt);
    instrument.arg(movable).arg("-o").arg(&instrumented).arg("-instrument");
    // Each process writes its own counts when it ends: the commands that prepare the load tests, and the gateway.
    instrument.arg("-instrumentation-file-append-pid");
    instrument.arg(format!("-instrumentation-file={}", counts.join("process").display()));
    call(&mut instrument)?;
    let program = instrumented.to_str().context("the path of the target folder is not valid text")?;
    bench::load(root, "gateway", &["--program", program, "--rounds", "1", "--seconds", "1"])?;
    let mut merge = Command::new(find_tool("merge-fdata").context("merge-fdata is missing")?);
    let mut files: Vec<PathBuf> = fs::read_dir(&counts)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    ensure!(!files.is_empty(), "the instrumented program has written no counts");
    let output = merge.args(&files).stdin(Stdio::null()).stderr(Stdio::null()).output().context("merge-fdata")?;
    ensure!(output.status.success(), "merge-fdata failed");
    fs::write(profile, output.stdout).with_context(|| profile.display().to_string())
}

/// Returns a program of LLVM, by its path or by its name; `None` if it is not installed. All programs are of the newest
/// version: an older one breaks the file.
fn find_tool(name: &str) -> Option<String> {
    let is_installed = |program: &String| {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let of_version = |version| format!("/usr/lib/llvm-{version}/bin/{name}");
    VERSIONS.map(of_version).into_iter().chain([name.to_owned()]).find(is_installed)
}

fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_owned();
    println!("$ {} {}", display(&program), command.get_args().map(display).collect::<Vec<_>>().join(" "));
    let output = command.stdin(Stdio::null()).output().with_context(|| display(&program))?;
    if !output.status.success() {
        bail!("{} failed:\n{}", display(&program), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn display(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Starts the program, and prints its version and size.
fn describe(program: &Path) -> Result<()> {
    let version = ci::stdout_of(Command::new(program).arg("--version"))?;
    let megabytes = fs::metadata(program)?.len() / 1_000_000;
    println!("{}: {}, {megabytes} MB", program.display(), version.trim());
    Ok(())
}
