//! `imagate edit`: the same as `generate`, from images.

use std::path::PathBuf;

use clap::Args;

use super::drawing::{Drawing, Order};
use super::failure::Failure;
use crate::client::EditRequest;

/// Arguments of `edit`.
#[derive(Debug, Args)]
pub(super) struct Edit {
    #[command(flatten)]
    drawing: Drawing,
    /// The images to work from: png, jpeg or webp, at most 16.
    #[arg(short, long = "image", value_name = "FILE", required = true, num_args = 1..)]
    images: Vec<PathBuf>,
    /// What to change of the first image: the transparent part of this one, which has its format and its size.
    #[arg(long, value_name = "FILE")]
    mask: Option<PathBuf>,
}

// === impl Edit ===

impl Edit {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { drawing, images, mask } = self;
        drawing.run(|request| {
            let request = EditRequest::from(request).images(images);
            Order::Edit(match mask {
                Some(mask) => request.mask(mask),
                None => request,
            })
        })
    }
}
