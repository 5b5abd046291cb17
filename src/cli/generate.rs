//! The command `imagate generate`, which uses the SDK like any other program.

use clap::Args;

use super::failure::CommandFailure;
use super::image_command::{ClientImageRequest, ImageArgs};

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub(super) struct GenerateCommand {
    #[command(flatten)]
    image_args: ImageArgs,
    /// Print what the images would cost at most, and make none.
    #[arg(long)]
    estimate: bool,
}

// === impl GenerateCommand ===

impl GenerateCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        if self.estimate {
            return self.image_args.print_estimate();
        }
        self.image_args.run(ClientImageRequest::Generate)
    }
}
