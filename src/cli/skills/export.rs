//! The command `imagate skills export`.

use std::path::PathBuf;

use clap::Args;

use super::atomic_file;
use super::manifest_input::ManifestInput;
use crate::cli::failure::CommandFailure;
use crate::cli::output::print;
use crate::manifest::discovery_index;

/// Arguments of `skills export`.
#[derive(Debug, Args)]
pub(super) struct ExportCommand {
    /// The manifest: a file, or `-` for standard input.
    #[arg(value_name = "FILE", default_value = "skills.json")]
    manifest: ManifestInput,
    /// The URL prefix for the paths of packages (default: `raw_base_url` of the manifest).
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The file to write the index to (default: standard output).
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

// === impl ExportCommand ===

impl ExportCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        if matches!(self.manifest, ManifestInput::Address(_)) {
            let message = "download the manifest first: `skills export` reads only files and standard input";
            return Err(CommandFailure::Usage(message.to_owned()));
        }
        let source = self.manifest.read(false)?;
        let index = discovery_index(&source, self.base_url.as_deref())?;
        match self.output {
            Some(path) => Ok(atomic_file::write_file(&path, index.as_bytes())?),
            None => Ok(print(&index)?),
        }
    }
}
