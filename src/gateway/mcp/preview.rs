//! Small copies of images, which an agent's model can look at.

use bytes::Bytes;

use crate::client::Thumbnail;

/// The most bytes that the previews of one answer have together as files (our choice): as base64 they are four fifths of
/// the largest answer.
pub(super) const PREVIEWS_MAX_BYTES: usize = 60_000;
/// The media type of a preview.
pub(super) const PREVIEW_TYPE: &str = "image/jpeg";
/// The longest side in pixels of the first attempt at a preview (our choice).
const LONGEST_SIDE: u32 = 512;
/// The longest sides and the qualities that are tried, until a preview is small enough (our choice).
const STEPS: [(u32, u8); 6] = [(LONGEST_SIDE, 80), (LONGEST_SIDE, 60), (384, 60), (256, 60), (128, 50), (64, 40)];

/// Returns a JPEG file of at most this many bytes. Returns `None` if the file is not a still image that can be read, or
/// if no preview is small enough. Blocks the thread while it decodes.
pub(super) fn make_preview(file: Bytes, max_bytes: usize) -> Option<Vec<u8>> {
    let mut thumbnail = Thumbnail::new(file, LONGEST_SIDE, LONGEST_SIDE).ok()?;
    for (side, quality) in STEPS {
        thumbnail = thumbnail.shrink(side, side).ok()?;
        let preview = thumbnail.to_jpeg(quality).ok()?;
        if preview.len() <= max_bytes {
            return Some(preview);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Format, probe};

    /// A PNG whose pixels cannot be compressed well.
    fn noise(width: u32, height: u32, color: png::ColorType) -> Bytes {
        let mut state: u64 = 7;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        let count = width as usize * height as usize * color.samples();
        let pixels: Vec<u8> = std::iter::repeat_with(&mut next).take(count).collect();
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
        file.into()
    }

    #[test]
    fn a_preview_is_never_larger_than_its_limit() {
        let file = noise(1536, 1024, png::ColorType::Rgb);
        for max_bytes in [PREVIEWS_MAX_BYTES, PREVIEWS_MAX_BYTES / 4, PREVIEWS_MAX_BYTES / 10, 2000] {
            let preview = make_preview(file.clone(), max_bytes).unwrap();
            let properties = probe(&preview).unwrap();
            assert!(preview.len() <= max_bytes, "{max_bytes}");
            assert_eq!(properties.format, Format::Jpeg);
            assert!(properties.width <= LONGEST_SIDE && properties.width > properties.height);
        }
        assert_eq!(make_preview(file, 100), None);
    }

    #[test]
    fn a_transparent_image_has_a_preview_and_a_text_has_none() {
        assert!(make_preview(noise(64, 64, png::ColorType::Rgba), PREVIEWS_MAX_BYTES).is_some());
        assert_eq!(make_preview(Bytes::from_static(b"no image"), PREVIEWS_MAX_BYTES), None);
    }
}
