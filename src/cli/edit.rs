//! The command `imagate edit`: like `generate`, but with input images.

use std::path::PathBuf;

use clap::Args;

use super::failure::CommandFailure;
use super::image_command::{ClientImageRequest, ImageArgs};
use crate::client::EditRequest;

/// Arguments of `edit`.
#[derive(Debug, Args)]
pub(super) struct EditCommand {
    #[command(flatten)]
    image_args: ImageArgs,
    /// The input images: png, jpeg or webp, at most 16.
    #[arg(short, long = "image", value_name = "FILE", required = true, num_args = 1..)]
    images: Vec<PathBuf>,
    /// The mask: its transparent part is the region of the first image to change. Format and size must be those of the
    /// first image.
    #[arg(long, value_name = "FILE")]
    mask: Option<PathBuf>,
}

// === impl EditCommand ===

impl EditCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { image_args, images, mask } = self;
        image_args.run(|request| {
            let request = EditRequest::from(request).images(images);
            ClientImageRequest::Edit(match mask {
                Some(mask) => request.mask(mask),
                None => request,
            })
        })
    }
}
