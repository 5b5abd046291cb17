//! The command `imagate edit`: like `generate`, but with input images.

use std::path::PathBuf;

use clap::Args;

use super::drawing::{ClientImageRequest, ImageArgs};
use super::failure::CommandFailure;
use crate::client::EditRequest;

/// Arguments of `edit`.
#[derive(Debug, Args)]
pub(super) struct EditCommand {
    #[command(flatten)]
    drawing: ImageArgs,
    /// The images to work from: png, jpeg or webp, at most 16.
    #[arg(short, long = "image", value_name = "FILE", required = true, num_args = 1..)]
    images: Vec<PathBuf>,
    /// What to change of the first image: the transparent part of this one, which has its format and its size.
    #[arg(long, value_name = "FILE")]
    mask: Option<PathBuf>,
}

// === impl EditCommand ===

impl EditCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { drawing, images, mask } = self;
        drawing.run(|request| {
            let request = EditRequest::from(request).images(images);
            ClientImageRequest::Edit(match mask {
                Some(mask) => request.mask(mask),
                None => request,
            })
        })
    }
}
