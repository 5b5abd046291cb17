//! `imagate skills export`

use std::path::PathBuf;

use clap::Args;

use super::disk;
use super::input::Input;
use crate::cli::failure::Failure;
use crate::cli::output::print;
use crate::manifest::discovery;

/// Arguments of `skills export`.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The manifest: a file, or `-` for standard input.
    #[arg(value_name = "FILE", default_value = "skills.json")]
    manifest: Input,
    /// What to put before the paths of packages (default: `raw_base_url` of the manifest).
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Where to write the index (default: standard output).
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

// === impl Export ===

impl Export {
    pub(super) fn run(self) -> Result<(), Failure> {
        let source = self.manifest.read(false)?;
        let index = discovery(&source, self.base_url.as_deref())?;
        match self.output {
            Some(path) => Ok(disk::put(&path, index.as_bytes())?),
            None => Ok(print(&index)?),
        }
    }
}
