//! Reads the stream of events while an image is made.

use serde_json::json;

use super::preview::ImagePreview;
use super::progress::ProgressDisplay;
use super::target::OutputTarget;
use crate::cli::output::{print_event, print_message};
use crate::client::{Error, Image, ImageEvent, ImageStream, Images, PartialImages};

/// Reads the stream to its end, counts the intermediate images, and writes them if an output target is given.
pub(super) async fn read_stream(
    stream: Result<ImageStream, Error>,
    expected_partials: Option<PartialImages>,
    partials_target: Option<&OutputTarget>,
    progress: &ProgressDisplay,
    preview: ImagePreview,
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
                print_event("partial", json!({ "index": index, "received": partial_count }));
                preview.show_above(progress, || image.bytes());
                if let Some(target) = partials_target {
                    let message = write_partial(&image, index, target).await;
                    progress.suspend(|| print_message(&message));
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

/// Writes an intermediate image, and returns a message. A failure is only a message, because the final image matters
/// more.
async fn write_partial(image: &Image, index: u32, target: &OutputTarget) -> String {
    match image.write_to(target.partial_path(index, image.format())).await {
        Ok(file) => format!("wrote {}", file.display()),
        Err(error) => format!("note: {error}"),
    }
}
