//! Reads the stream of events while an image is made.

use super::progress::ProgressDisplay;
use super::target::OutputTarget;
use crate::cli::output::print_message;
use crate::client::{Error, Image, ImageEvent, ImageStream, Images, PartialImages};

/// Reads the stream to its end, counts the intermediate images, and writes them if an output target is given.
pub(super) async fn read_stream(
    stream: Result<ImageStream, Error>,
    expected_partials: Option<PartialImages>,
    partials_target: Option<&OutputTarget>,
    progress: &ProgressDisplay,
) -> Result<Images, Error> {
    let mut stream = stream?;
    let mut partial_count = 0_u32;
    let mut images = None;
    while let Some(event) = stream.next().await {
        match event? {
            ImageEvent::PartialImage { index, image } => {
                partial_count += 1;
                progress.update(&format!(
                    "intermediate image {partial_count} of {}",
                    expected_partials.map_or(0, PartialImages::get)
                ));
                if let Some(target) = partials_target {
                    write_partial(&image, index, target).await;
                }
            }
            ImageEvent::Completed { image, .. } => images = Some(image.answer().clone()),
            ImageEvent::Other { .. } => {}
        }
    }
    match images {
        Some(images) => Ok(images),
        // A stream that failed has returned its error above; this covers a stream that ended without an image or an
        // error.
        None => stream.collect_image().await.map(|image| image.answer().clone()),
    }
}

/// Writes an intermediate image. A failure is only reported, because the final image matters more.
async fn write_partial(image: &Image, index: u32, target: &OutputTarget) {
    match image.write_to(target.partial_path(index, image.format())).await {
        Ok(file) => print_message(&format!("wrote {}", file.display())),
        Err(error) => print_message(&format!("note: {error}")),
    }
}
