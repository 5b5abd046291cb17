//! The disk space that is reserved for the answer of a job for images before it is made. Pure.

use crate::gateway::rules::Job;
use crate::image::{Format, SizeRequest};

/// The bytes of a pixel in a PNG file (our choice): one each for red, green and blue, as if nothing could be
/// compressed.
const PNG_PIXEL_BYTES: u64 = 3;
/// The bytes of a pixel in a JPEG or WebP file (our choice): noise in the best quality takes about one and a half.
const LOSSY_PIXEL_BYTES: u64 = 2;
/// The bytes that a file and its place in the answer need beside the pixels (our choice): headers, profiles, rows and
/// the revised prompt.
const BYTES_PER_IMAGE: u64 = 256 * 1024;

/// The pixels of an image whose size the model chooses (our choice): the largest of the sizes between which the models
/// of the API choose, 1536x1024. A larger image takes further space when it is written.
const AUTO_PIXELS: u64 = 1536 * 1024;

/// Returns the bytes that the answer of this job needs, with all images in base64.
pub(super) fn estimated_bytes(job: &Job) -> u64 {
    let pixels = match job.size() {
        SizeRequest::Exact(size) => u64::from(size.width()) * u64::from(size.height()),
        SizeRequest::Auto => AUTO_PIXELS,
    };
    let pixel_bytes = if job.format() == Format::Png { PNG_PIXEL_BYTES } else { LOSSY_PIXEL_BYTES };
    // Base64 has four characters for three bytes.
    let image = (pixels * pixel_bytes + BYTES_PER_IMAGE).div_ceil(3) * 4;
    image * u64::from(job.count().saturating_add(job.partial_images()))
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use serde_json::{Value, json};

    use super::*;
    use crate::gateway::rules::check_generation;

    const MIB: u64 = 1024 * 1024;

    fn megabytes(fields: Value) -> u64 {
        let mut body = json!({"model": "gpt-image-2", "prompt": "x"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        estimated_bytes(&check_generation(body.to_string().as_bytes(), Utc::now()).unwrap()) / MIB
    }

    #[test]
    fn the_estimate_follows_size_format_and_number() {
        assert_eq!(megabytes(json!({"size": "1024x1024"})), 4);
        assert_eq!(megabytes(json!({"size": "1024x1024", "n": 4})), 17);
        assert_eq!(megabytes(json!({"size": "1024x1024", "output_format": "jpeg"})), 3);
        assert_eq!(megabytes(json!({"size": "auto"})), megabytes(json!({"size": "1536x1024"})));
        assert_eq!(megabytes(json!({"size": "1024x1024", "stream": true, "partial_images": 2})), 13);
    }
}
