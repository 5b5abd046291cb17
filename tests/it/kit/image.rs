//! Real image files made in code, and the cheap base64 filler that stands for a large one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

type ImageFileCache = HashMap<(u32, u32, String), Arc<Vec<u8>>>;

/// A real file of one colour in this size and format; small, and the same bytes each time.
pub(crate) fn image_file(width: u32, height: u32, format: &str) -> Arc<Vec<u8>> {
    static CACHE: OnceLock<Mutex<ImageFileCache>> = OnceLock::new();
    let cache = CACHE.get_or_init(Mutex::default);
    let key = (width, height, format.to_owned());
    if let Some(found) = cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Arc::clone(found);
    }
    let file = Arc::new(encode(width, height, format));
    cache.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&file));
    file
}

fn encode(width: u32, height: u32, format: &str) -> Vec<u8> {
    let pixels = width as usize * height as usize;
    match format {
        "png" => png_file(width, height),
        "jpeg" => {
            let mut file = Vec::new();
            let (w, h) = (u16::try_from(width).expect("a width"), u16::try_from(height).expect("a height"));
            let encoder = jpeg_encoder::Encoder::new(&mut file, 50);
            encoder.encode(&vec![90; pixels], w, h, jpeg_encoder::ColorType::Luma).expect("a JPEG");
            file
        }
        "webp" => webp::Encoder::from_rgb(&vec![90; pixels * 3], width, height).encode(10.0).to_vec(),
        other => panic!("no such format: {other}"),
    }
}

/// One bit per pixel keeps even the largest size at a few hundred bytes.
fn png_file(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&vec![0; width.div_ceil(8) as usize * height as usize]).expect("pixels");
    writer.finish().expect("a PNG");
    file
}

/// Format and pixel size, read from the file itself.
#[track_caller]
pub(crate) fn format_and_size(file: &[u8]) -> (String, String) {
    let format = match imagesize::image_type(file).expect("an image file") {
        imagesize::ImageType::Png => "png",
        imagesize::ImageType::Jpeg => "jpeg",
        imagesize::ImageType::Webp => "webp",
        other => panic!("not a format of the contract: {other:?}"),
    };
    let size = imagesize::blob_size(file).expect("a size");
    (format.to_owned(), format!("{}x{}", size.width, size.height))
}

/// Base64 text of exactly `length` characters that begins like a real PNG of 3840x2160; the rest is filler.
///
/// It is made of one block again and again, so that neither side ever holds the whole text.
pub(crate) fn base64_filler(length: usize) -> impl Iterator<Item = Arc<Vec<u8>>> {
    static BLOCK: OnceLock<Arc<Vec<u8>>> = OnceLock::new();
    static HEAD: OnceLock<Arc<Vec<u8>>> = OnceLock::new();
    assert!(length.is_multiple_of(4) && length > 4096, "whole base64 quartets, and room for the head");
    let head = HEAD.get_or_init(|| {
        // A whole number of three-byte groups, so that the text can go on without padding.
        let file = image_file(3840, 2160, "png");
        Arc::new(STANDARD.encode(&file[..file.len() / 3 * 3]).into_bytes())
    });
    let block = BLOCK.get_or_init(|| {
        let bytes: Vec<u8> = (0..49_152_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        Arc::new(STANDARD.encode(bytes).into_bytes())
    });
    let mut left = length;
    std::iter::once(Arc::clone(head)).chain(std::iter::repeat(Arc::clone(block))).map_while(move |piece| {
        let take = left.min(piece.len());
        left -= take;
        match take {
            0 => None,
            _ if take == piece.len() => Some(piece),
            _ => Some(Arc::new(piece[..take].to_vec())),
        }
    })
}
