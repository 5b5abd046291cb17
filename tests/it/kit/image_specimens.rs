//! Sample files by the names that the table of cases (`tests/cases/images.json`) uses: valid images of every kind, and
//! files that are no valid image.

use std::sync::Arc;

use super::{alpha_png, image_file};

/// The file with this name: a kind, perhaps a size (`png alpha 80x64`). Without a size it is 64x64.
pub(crate) fn image_specimen(name: &str) -> Arc<Vec<u8>> {
    let size = name.rsplit_once(' ').and_then(|(kind, size)| Some((kind, size.split_once('x')?)));
    let (kind, width, height) = match size {
        Some((kind, (width, height))) => (kind, width.parse().expect("a width"), height.parse().expect("a height")),
        None => (name, 64, 64),
    };
    valid_image(kind, width, height).unwrap_or_else(|| Arc::new(invalid_file(kind)))
}

fn valid_image(kind: &str, width: u32, height: u32) -> Option<Arc<Vec<u8>>> {
    let pixels = width as usize * height as usize;
    let png = |color, depth, data: Vec<u8>| Some(Arc::new(encode(width, height, color, depth, &data)));
    match kind {
        "png" | "jpeg" | "webp" => Some(image_file(width, height, kind)),
        "png alpha" => Some(alpha_png(width, height)),
        "png clear" => png(png::ColorType::Rgba, png::BitDepth::Eight, vec![0; pixels * 4]),
        "png solid" => png(png::ColorType::Rgba, png::BitDepth::Eight, vec![255; pixels * 4]),
        "png 16 alpha" => png(png::ColorType::Rgba, png::BitDepth::Sixteen, vec![7; pixels * 8]),
        "png grey alpha" => png(png::ColorType::GrayscaleAlpha, png::BitDepth::Eight, vec![7; pixels * 2]),
        "png palette" => Some(Arc::new(palette(width, height, false))),
        "png palette trns" => Some(Arc::new(palette(width, height, true))),
        "png animated" => Some(Arc::new(animated(width, height))),
        "png with a tail" => Some(Arc::new([image_file(width, height, "png").as_slice(), b"and more"].concat())),
        "webp alpha" => {
            Some(Arc::new(webp::Encoder::from_rgba(&vec![90; pixels * 4], width, height).encode(10.0).to_vec()))
        }
        _ => None,
    }
}

fn invalid_file(kind: &str) -> Vec<u8> {
    let half = |format: &str| {
        let file = image_file(64, 64, format);
        file[..file.len() / 2].to_vec()
    };
    match kind {
        "gif" => {
            b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
                .to_vec()
        }
        "bmp" => [b"BM".as_slice(), &[0; 60]].concat(),
        "svg" => b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"64\" height=\"64\"/>".to_vec(),
        "html" => [b"<html><script>1</script>".as_slice(), image_file(64, 64, "png").as_slice()].concat(),
        "text" => b"a red cube".to_vec(),
        "pdf" => b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n".to_vec(),
        "empty" => Vec::new(),
        "cut png" => half("png"),
        "cut webp" => half("webp"),
        // Before its pixels begin; a JPEG that is cut within them looks whole to everyone who does not decode it.
        "cut jpeg" => image_file(64, 64, "jpeg")[..30].to_vec(),
        "head only png" => image_file(64, 64, "png")[..8].to_vec(),
        "no pixels png" => {
            let file = image_file(64, 64, "png");
            [&file[..33], &file[file.len() - 12..]].concat()
        }
        "zero png" => {
            let mut file = image_file(64, 64, "png").to_vec();
            file[16..20].fill(0);
            file
        }
        other => panic!("no such file in the table: {other}"),
    }
}

fn encode(width: u32, height: u32, color: png::ColorType, depth: png::BitDepth, data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(data).expect("pixels");
    writer.finish().expect("a PNG");
    file
}

fn palette(width: u32, height: u32, clear: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(vec![0, 0, 0, 255, 255, 255]);
    if clear {
        encoder.set_trns(vec![0, 255]);
    }
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&vec![1; width as usize * height as usize]).expect("pixels");
    writer.finish().expect("a PNG");
    file
}

fn animated(width: u32, height: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_animated(2, 0).expect("two frames");
    let mut writer = encoder.write_header().expect("a header");
    for shade in [0, 255] {
        writer.write_image_data(&vec![shade; width as usize * height as usize]).expect("a frame");
    }
    writer.finish().expect("a PNG");
    file
}
