//! `imagate skills fmt`

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::input::Input;
use crate::cli::failure::Failure;
use crate::cli::output::{print, remark};
use crate::manifest::format;

/// Arguments of `skills fmt`.
#[derive(Debug, Args)]
pub(super) struct Fmt {
    /// The manifests: files are rewritten, `-` goes from standard input to standard output.
    #[arg(value_name = "FILE", required = true)]
    manifests: Vec<Input>,
    /// Write nothing; say which files would change, and fail if there are any.
    #[arg(long)]
    check: bool,
    /// Sort skills by name and version, and API references by id.
    #[arg(long)]
    sort: bool,
}

// === impl Fmt ===

impl Fmt {
    pub(super) fn run(self) -> Result<(), Failure> {
        if self.manifests.iter().any(|input| matches!(input, Input::Address(_))) {
            return Err(Failure::Usage("a manifest behind an address cannot be rewritten".to_owned()));
        }
        let mut has_changes = false;
        for input in &self.manifests {
            has_changes |= self.one(input)?;
        }
        if self.check && has_changes { Err(Failure::Found) } else { Ok(()) }
    }

    /// Whether the file changes.
    fn one(&self, input: &Input) -> Result<bool, Failure> {
        let source = input.read(false)?;
        let text = format(&source, self.sort)?;
        let changes = text.as_bytes() != source.bytes();
        match input {
            _ if self.check => {
                if changes {
                    print(&format!("{}\n", source.name()))?;
                }
            }
            Input::File(path) if changes => {
                replace(path, &text).with_context(|| source.name().to_owned())?;
                remark(&format!("rewrote {}", source.name()));
            }
            Input::File(_) | Input::Address(_) => {}
            Input::Stdin => print(&text)?,
        }
        Ok(changes)
    }
}

/// Replaces a file as a whole, or not at all. A link stays one, and the permissions stay.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let path: PathBuf = fs::canonicalize(path)?;
    let folder = path.parent().context("a file has a folder")?;
    let permissions = fs::metadata(&path)?.permissions();
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}
