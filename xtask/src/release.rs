//! `cargo xtask release`: the program for users on Linux: optimized for speed, with what runs measured first.
//!
//! Half of the time of a small request is instruction fetch, because the code that runs is spread over the whole program.
//! Two profiles of the cases of `cargo xtask bench gateway` change that. The compiler's profile says which branches and
//! calls are hot, so that it inlines those and moves cold code away (PGO); BOLT's gives the order of blocks and functions.
//! The profiles stay beside the program: with the same sources, tools and profiles, the result is the same to the byte.

use std::ffi::{OsStr, OsString};
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

/// The profile of the compiler, and that of BOLT.
const PROFILES: [&str; 2] = ["imagate.profdata", "imagate.fdata"];

/// The programs of LLVM that measure and move code.
struct LlvmTools {
    profdata: String,
    bolt: String,
    merge_fdata: String,
    strip: String,
}

/// Builds the program into `target/distribution`, with the profiles of a run of the load tests, or with those of a folder.
///
/// # Errors
///
/// A command fails, a profile is missing, or the program that was made does not start.
pub fn run(root: &Path, stored: Option<&str>) -> Result<()> {
    let folder = ci::target_folder(root)?.join("distribution");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let program = examples::program(&folder, "imagate");
    let Some(tools) = cfg!(target_os = "linux").then(LlvmTools::find).flatten() else {
        fs::copy(ci::build_release(root)?, &program)?;
        println!(
            "not done: profiles and the layout of the code, because `llvm-profdata` or `llvm-bolt` is missing (Debian: \
             apt-get install llvm-22 bolt-22 libbolt-22-dev)"
        );
        return describe(&program);
    };
    let [compiler_profile, layout_profile] = PROFILES.map(|name| stored.map_or(folder.as_path(), Path::new).join(name));
    if stored.is_none() {
        record_branches(root, &tools, &compiler_profile)?;
    }
    ensure!(compiler_profile.is_file(), "{} is missing", compiler_profile.display());
    let uses_profile = format!("-Cprofile-use={}", fs::canonicalize(&compiler_profile)?.display());
    let movable = folder.join("imagate.relocatable");
    fs::copy(build(root, &[&uses_profile, "-Clink-arg=-Wl,--emit-relocs", "-Cstrip=none"])?, &movable)?;
    if stored.is_none() {
        record_layout(root, &tools, &movable, &layout_profile)?;
    }
    let mut layout = Command::new(&tools.bolt);
    layout.arg(&movable).arg("-o").arg(&program).arg("-data").arg(&layout_profile).args(LAYOUT);
    call(&mut layout)?;
    call(Command::new(&tools.strip).arg(&program))?;
    println!("the profiles are {} and {}", compiler_profile.display(), layout_profile.display());
    describe(&program)
}

/// Builds the program with these options of the compiler for every crate of it, and returns its path.
fn build(root: &Path, options: &[&str]) -> Result<PathBuf> {
    let version = ci::stdout_of(Command::new("rustc").arg("-vV").current_dir(root))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    // With `--target`, the options are not those of build scripts.
    let arguments = ["build", "--profile", "dist", "--features", "cli", "--bin", "imagate", "--target", host];
    let variable: (OsString, OsString) = ("CARGO_ENCODED_RUSTFLAGS".into(), options.join("\x1f").into());
    ci::cargo(root, &arguments, &[variable])?;
    Ok(examples::program(&ci::target_folder(root)?.join(host).join("dist"), "imagate"))
}

/// Stores the counts of branches and calls of a run of the load tests: the profile of the compiler.
fn record_branches(root: &Path, tools: &LlvmTools, profile: &Path) -> Result<()> {
    let counts = empty_folder(&profile.with_extension("branches"))?;
    let program = build(root, &[&format!("-Cprofile-generate={}", counts.display())])?;
    run_load_tests(root, &program)?;
    let mut merge = Command::new(&tools.profdata);
    call(merge.arg("merge").arg("-o").arg(profile).args(files_of(&counts)?))
}

/// Stores the counts of a run of the load tests by the instructions of this program: the profile of its layout.
fn record_layout(root: &Path, tools: &LlvmTools, movable: &Path, profile: &Path) -> Result<()> {
    let counts = empty_folder(&profile.with_extension("counts"))?;
    let instrumented = movable.with_extension("instrumented");
    let mut instrument = Command::new(&tools.bolt);
    instrument.arg(movable).arg("-o").arg(&instrumented).arg("-instrument");
    // Each process writes its own counts when it ends: the commands that prepare the load tests, and the gateway.
    instrument.arg("-instrumentation-file-append-pid");
    instrument.arg(format!("-instrumentation-file={}", counts.join("process").display()));
    call(&mut instrument)?;
    run_load_tests(root, &instrumented)?;
    let mut merge = Command::new(&tools.merge_fdata);
    merge.args(files_of(&counts)?).stdin(Stdio::null()).stderr(Stdio::null());
    let output = merge.output().context("merge-fdata")?;
    ensure!(output.status.success(), "merge-fdata failed");
    fs::write(profile, output.stdout).with_context(|| profile.display().to_string())
}

fn run_load_tests(root: &Path, program: &Path) -> Result<()> {
    let program = program.to_str().context("the path of the target folder is not valid text")?;
    bench::load(root, "gateway", &["--program", program, "--rounds", "1", "--seconds", "1"])
}

fn empty_folder(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    Ok(folder.to_owned())
}

/// Returns the files that the instrumented programs have written, in the order of their names.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    ensure!(!files.is_empty(), "the instrumented program has written no counts");
    Ok(files)
}

// === impl LlvmTools ===

impl LlvmTools {
    /// Returns `None` if one of the programs is not installed.
    fn find() -> Option<Self> {
        Some(Self {
            profdata: find_tool("llvm-profdata")?,
            bolt: find_tool("llvm-bolt")?,
            merge_fdata: find_tool("merge-fdata")?,
            strip: find_tool("llvm-strip")?,
        })
    }
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
