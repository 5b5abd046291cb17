//! The option `--show`: the images in the terminal, as soon as they arrive.

use clap::Args;

use super::progress::ProgressDisplay;
use crate::cli::output::{PictureProtocol, ShowArg, print_message};
use crate::client::Error;

/// The option of the preview.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct PreviewArgs {
    /// Show small copies of the images in the terminal, also of intermediate ones. Without a value: in the way that the
    /// terminal understands, if it is known to do so.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    show: Option<ShowArg>,
}

/// The preview of the images of one request.
#[derive(Clone, Copy)]
pub(super) struct ImagePreview(Option<PictureProtocol>);

// === impl PreviewArgs ===

impl PreviewArgs {
    /// Prints a note if the terminal is not known to show pictures.
    pub(super) fn preview(self) -> ImagePreview {
        let protocol = self.show.map_or(Ok(None), ShowArg::protocol);
        ImagePreview(protocol.unwrap_or_else(|reason| {
            print_message(&format!("note: {reason}"));
            None
        }))
    }
}

// === impl ImagePreview ===

impl ImagePreview {
    /// Shows an image file, which `read` returns. A failure is only reported, because the file matters more.
    pub(super) fn show(self, read: impl FnOnce() -> Result<Vec<u8>, Error>) {
        let Some(protocol) = self.0 else { return };
        if let Err(error) = read().and_then(|file| protocol.show(file)) {
            print_message(&format!("note: {error}"));
        }
    }

    /// Shows an image file while the progress is displayed.
    pub(super) fn show_above(self, progress: &ProgressDisplay, read: impl FnOnce() -> Result<Vec<u8>, Error>) {
        if self.0.is_some() {
            progress.suspend(|| self.show(read));
        }
    }
}
