//! The command `imagate skills fmt`.

use anyhow::Context as _;
use clap::Args;

use super::atomic_file::replace_file;
use super::manifest_input::ManifestInput;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_message};
use crate::manifest::format;

/// Arguments of `skills fmt`.
#[derive(Debug, Args)]
pub(super) struct FmtCommand {
    /// The manifests. Files are rewritten; `-` formats standard input to standard output.
    #[arg(value_name = "FILE", default_value = "skills.json")]
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
        if self.check {
            if is_changed {
                print(&format!("{}\n", source.name()))?;
            }
            return Ok(is_changed);
        }
        match input {
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
