//! What the first bytes of an image file tell: format and pixel size, without decoding a pixel.

use super::Format;

/// What the head of an image file says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The file format, from its magic bytes.
    pub(crate) format: Format,
    /// Width in pixels as the file claims it.
    pub(crate) width: u32,
    /// Height in pixels as the file claims it.
    pub(crate) height: u32,
}

/// Reads the head of an image file; `None` when these bytes do not tell.
pub(crate) fn probe(head: &[u8]) -> Option<Facts> {
    let format = match imagesize::image_type(head).ok()? {
        imagesize::ImageType::Png => Format::Png,
        imagesize::ImageType::Jpeg => Format::Jpeg,
        imagesize::ImageType::Webp => Format::Webp,
        _ => return None,
    };
    let size = imagesize::blob_size(head).ok()?;
    Some(Facts { format, width: u32::try_from(size.width).ok()?, height: u32::try_from(size.height).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_is_known_from_its_first_chunk() {
        let head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x02\x80\x08\x02\0\0\0";
        assert_eq!(probe(head), Some(Facts { format: Format::Png, width: 1024, height: 640 }));
        assert_eq!(probe(&head[..12]), None);
    }

    #[test]
    fn what_is_no_image_is_not_taken_for_one() {
        assert_eq!(probe(b"<html><body>no</body></html>"), None);
        assert_eq!(probe(b"GIF89a\x01\0\x01\0\0\0\0"), None);
        assert_eq!(probe(b""), None);
    }
}
