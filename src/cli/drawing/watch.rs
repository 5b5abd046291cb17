//! Watches an image being made.

use super::progress::Progress;
use super::target::Target;
use crate::cli::output::remark;
use crate::client::{Error, Image, ImageEvent, ImageStream, Images, PartialImages};

/// Reads the stream to its end; the intermediate images are counted, and written where there is a place for them.
pub(super) async fn watch(
    stream: Result<ImageStream, Error>,
    asked: Option<PartialImages>,
    keep: Option<&Target>,
    progress: &Progress,
) -> Result<Images, Error> {
    let mut stream = stream?;
    let mut seen = 0_u32;
    let mut images = None;
    while let Some(event) = stream.next().await {
        match event? {
            ImageEvent::PartialImage { index, image } => {
                seen += 1;
                progress.say(&format!("intermediate image {seen} of {}", asked.map_or(0, PartialImages::get)));
                if let Some(target) = keep {
                    write(&image, index, target).await;
                }
            }
            ImageEvent::Completed { image, .. } => images = Some(image.answer().clone()),
            ImageEvent::Other { .. } => {}
        }
    }
    match images {
        Some(images) => Ok(images),
        // The stream has said why before it ended; this is what remains to be said where it has not.
        None => stream.collect_image().await.map(|image| image.answer().clone()),
    }
}

/// A sketch that cannot be written is no reason to give up the picture.
async fn write(image: &Image, index: u32, target: &Target) {
    match image.write_to(target.partial_path(index, image.format())).await {
        Ok(file) => remark(&format!("wrote {}", file.display())),
        Err(error) => remark(&format!("note: {error}")),
    }
}
