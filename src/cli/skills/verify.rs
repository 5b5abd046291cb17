//! The command `imagate skills verify`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use clap::Args;

use super::manifest_input::ManifestInput;
use super::validate::ReportFormat;
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print_message;
use crate::manifest::{BuildError, CheckOptions, CheckReport, CheckedCounts, FindingLevel, verify};

/// Arguments of `skills verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyCommand {
    /// The manifest.
    #[arg(value_name = "FILE", default_value = "skills.json")]
    manifest: PathBuf,
    /// The folder that package paths are relative to (default: the folder of the manifest).
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The output format of the findings.
    #[arg(long, value_enum, default_value_t = ReportFormat::Human)]
    format: ReportFormat,
}

// === impl VerifyCommand ===

impl VerifyCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let source = ManifestInput::File(self.manifest.clone()).read(false)?;
        let root = self.root.unwrap_or_else(|| folder_of(&self.manifest));
        let checkout = Checkout::open(&root).with_context(|| root.display().to_string())?;
        let display_root = display_root(&root);
        let options = CheckOptions {
            files: Some(&checkout),
            display_root: &display_root,
            threads: thread_count(),
            ..CheckOptions::default()
        };
        let report = verify(source, &options);
        self.format.print(&report)?;
        // The other formats are read by programs; in JSON, `checked` has the same numbers.
        if matches!(self.format, ReportFormat::Human) {
            print_message(&counts_text(&report));
        }
        if report.has_errors() { Err(CommandFailure::HasFindings) } else { Ok(()) }
    }
}

/// Returns how much was looked at, so that a check of nothing does not look like one without findings.
fn counts_text(report: &CheckReport) -> String {
    let CheckedCounts { skills, files, .. } = report.checked();
    let [errors, warnings] = [FindingLevel::Error, FindingLevel::Warning].map(|level| report.count(level));
    format!("checked: skills {skills}, files {files}; errors {errors}, warnings {warnings}")
}

/// Returns the number of threads for a check: the number of cores, at most 8 (our choice).
pub(super) fn thread_count() -> usize {
    const MAX_THREADS: usize = 8;
    thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS)
}

/// Returns a folder as it precedes the paths of its files in reports; nothing for the current folder.
pub(super) fn display_root(root: &Path) -> String {
    if root == Path::new(".") { String::new() } else { root.display().to_string() }
}

/// Returns a path below a root as it is from the current folder.
pub(super) fn shown_path(root: &Path, path: &str) -> String {
    if root == Path::new(".") { path.to_owned() } else { root.join(path).display().to_string() }
}

/// Shows the paths of the problems as they are from the current folder.
pub(super) fn with_shown_paths(error: BuildError, root: &Path) -> BuildError {
    let BuildError(mut problems) = error;
    for problem in &mut problems {
        problem.path = shown_path(root, &problem.path);
    }
    BuildError(problems)
}

/// Returns the folder of a file.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
