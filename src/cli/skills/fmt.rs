//! The command `imagate skills fmt`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::manifest_input::ManifestInput;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_message};
use crate::manifest::format;

/// Arguments of `skills fmt`.
#[derive(Debug, Args)]
pub(super) struct FmtCommand {
    /// The manifests. Files are rewritten; `-` formats standard input to standard output.
    #[arg(value_name = "FILE", required = true)]
    manifests: Vec<ManifestInput>,
    /// Write nothing, list the files that would change, and fail if there are any.
    #[arg(long)]
    check: bool,
    /// Sort skills by name and version, and API references by id.
    #[arg(long)]
    sort: bool,
}

// === impl FmtCommand ===

impl FmtCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        if self.manifests.iter().any(|input| matches!(input, ManifestInput::Address(_))) {
            return Err(CommandFailure::Usage("a manifest at a URL cannot be rewritten".to_owned()));
        }
        let mut has_changes = false;
        for input in &self.manifests {
            has_changes |= self.format_manifest(input)?;
        }
        if self.check && has_changes { Err(CommandFailure::HasFindings) } else { Ok(()) }
    }

    /// Formats one manifest, and returns true if its text differs from the formatted text.
    fn format_manifest(&self, input: &ManifestInput) -> Result<bool, CommandFailure> {
        let source = input.read(false)?;
        let text = format(&source, self.sort)?;
        let is_changed = text.as_bytes() != source.bytes();
        match input {
            _ if self.check => {
                if is_changed {
                    print(&format!("{}\n", source.name()))?;
                }
            }
            ManifestInput::File(path) if is_changed => {
                replace_file(path, &text).with_context(|| source.name().to_owned())?;
                print_message(&format!("rewrote {}", source.name()));
            }
            ManifestInput::File(_) | ManifestInput::Address(_) => {}
            ManifestInput::Stdin => print(&text)?,
        }
        Ok(is_changed)
    }
}

/// Replaces a file completely or not at all. A symbolic link and the permissions are preserved.
fn replace_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let path: PathBuf = fs::canonicalize(path)?;
    let folder = path.parent().context("the path has no parent folder")?;
    let permissions = fs::metadata(&path)?.permissions();
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}
