//! The command `imagate generate`, which uses the SDK like any other program.

use clap::Args;

use super::drawing::{ClientImageRequest, ImageArgs};
use super::failure::CommandFailure;

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub(super) struct GenerateCommand {
    #[command(flatten)]
    drawing: ImageArgs,
}

// === impl GenerateCommand ===

impl GenerateCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        self.drawing.run(ClientImageRequest::Generate)
    }
}
