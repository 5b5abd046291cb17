//! `imagate skills verify`

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use clap::Args;

use super::input::Input;
use super::validate::Format;
use crate::checkout::Checkout;
use crate::cli::failure::Failure;
use crate::manifest::{Options, verify};

/// Arguments of `skills verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The manifest.
    #[arg(value_name = "FILE", default_value = "skills.json")]
    manifest: PathBuf,
    /// The folder that the paths of the packages start from (default: that of the manifest).
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// How findings are printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

// === impl Verify ===

impl Verify {
    pub(super) fn run(self) -> Result<(), Failure> {
        let source = Input::File(self.manifest.clone()).read(false)?;
        let root = self.root.unwrap_or_else(|| folder_of(&self.manifest));
        let checkout = Checkout::open(&root).with_context(|| root.display().to_string())?;
        let options = Options { files: Some(&checkout), threads: threads(), ..Options::default() };
        let report = verify(source, &options);
        self.format.print(&report)?;
        if report.has_errors() { Err(Failure::Found) } else { Ok(()) }
    }
}

/// As many as there are cores, and no more than a check has use for.
pub(super) fn threads() -> usize {
    const MOST: usize = 8;
    thread::available_parallelism().map_or(1, NonZero::get).min(MOST)
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
