//! Image files for the tests: built by hand for tests about bytes, and by real encoders for tests about acceptance.

use super::super::png::checksum;

/// Builds one chunk of a PNG.
pub(super) fn chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let covered = [kind.as_slice(), body].concat();
    [length.as_slice(), &covered, &checksum(&covered)].concat()
}

/// Builds the body of IHDR.
pub(super) fn ihdr(width: u32, height: u32, depth: u8, color: u8, interlace: u8) -> Vec<u8> {
    [width.to_be_bytes().as_slice(), &height.to_be_bytes(), &[depth, color, 0, 0, interlace]].concat()
}

/// Builds a PNG file from a signature and these chunks.
pub(super) fn png_file(chunks: &[Vec<u8>]) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n".as_slice(), &chunks.concat()].concat()
}

/// Builds a PNG with these chunks between IHDR (and the palette, if one is required) and IDAT.
pub(super) fn png(width: u32, height: u32, depth: u8, color: u8, extra: &[Vec<u8>]) -> Vec<u8> {
    let first = chunk(b"IHDR", &ihdr(width, height, depth, color, 0));
    png_file(&[first, palette(color), extra.concat(), idat(), iend()])
}

/// Builds a palette of two colours if the colour type requires one.
pub(super) fn palette(color: u8) -> Vec<u8> {
    if color == 3 { chunk(b"PLTE", &[0; 6]) } else { Vec::new() }
}

/// Builds a chunk of image data, which no test inflates.
pub(super) fn idat() -> Vec<u8> {
    chunk(b"IDAT", b"\x78\x01\x01\0\0\0\0\0\0\0")
}

pub(super) fn iend() -> Vec<u8> {
    chunk(b"IEND", b"")
}

/// Builds a tRNS chunk of the length that the colour type requires.
pub(super) fn trns(color: u8) -> Vec<u8> {
    let length = match color {
        0 => 2,
        2 => 6,
        _ => 1,
    };
    chunk(b"tRNS", &[0; 6][..length])
}

/// Builds one segment of a JPEG.
pub(super) fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 2).unwrap().to_be_bytes();
    [[0xff, marker].as_slice(), &length, body].concat()
}

/// Builds the body of a frame header for one component.
pub(super) fn frame(width: u16, height: u16) -> Vec<u8> {
    [[8].as_slice(), &height.to_be_bytes(), &width.to_be_bytes(), &[1, 1, 0x11, 0]].concat()
}

/// Builds a JPEG from SOI, these segments, one byte of image data, and EOI.
pub(super) fn jpeg(segments: &[Vec<u8>]) -> Vec<u8> {
    [b"\xff\xd8".as_slice(), &segments.concat(), b"\x2a\xff\xd9"].concat()
}

pub(super) fn scan() -> Vec<u8> {
    segment(0xda, &[1, 1, 0, 0, 63, 0])
}

/// Builds one chunk of a WebP, with a padding byte if its length is odd.
pub(super) fn riff_chunk(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    let padding = &[0][..body.len() % 2];
    [kind.as_slice(), &length, body, padding].concat()
}

/// Builds a WebP file from these chunks.
pub(super) fn webp(pieces: &[Vec<u8>]) -> Vec<u8> {
    let body = pieces.concat();
    let length = u32::try_from(body.len() + 4).unwrap().to_le_bytes();
    [b"RIFF".as_slice(), &length, b"WEBP", &body].concat()
}

/// Builds the chunk of a lossy WebP image: a key frame that has only its head and four more bytes.
pub(super) fn vp8(width: u16, height: u16) -> Vec<u8> {
    let head = [[0x10, 0, 0, 0x9d, 0x01, 0x2a].as_slice(), &width.to_le_bytes(), &height.to_le_bytes(), &[0; 4]];
    riff_chunk(b"VP8 ", &head.concat())
}

/// Builds the chunk of a lossless WebP image that has only its head and four more bytes.
pub(super) fn vp8l(width: u32, height: u32, alpha: bool) -> Vec<u8> {
    let bits = (width - 1) | ((height - 1) << 14) | (u32::from(alpha) << 28);
    riff_chunk(b"VP8L", &[[0x2f].as_slice(), &bits.to_le_bytes(), &[0; 4]].concat())
}

pub(super) fn vp8x(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let [w0, w1, w2, _] = (width - 1).to_le_bytes();
    let [h0, h1, h2, _] = (height - 1).to_le_bytes();
    riff_chunk(b"VP8X", &[flags, 0, 0, 0, w0, w1, w2, h0, h1, h2])
}

/// Returns sample pixels with `channels` bytes each.
fn pixels(width: u32, height: u32, channels: u32) -> Vec<u8> {
    (0..width * height * channels).map(|index| index.wrapping_mul(37).to_le_bytes()[0]).collect()
}

pub(super) fn png_by_encoder(color: ::png::ColorType, depth: ::png::BitDepth) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, 24, 16);
    encoder.set_color(color);
    encoder.set_depth(depth);
    if color == ::png::ColorType::Indexed {
        encoder.set_palette(vec![7; 6]);
        encoder.set_trns(vec![9; 2]);
    }
    encoder.add_ztxt_chunk("Comment".to_owned(), "words ".repeat(9)).unwrap();
    let mut writer = encoder.write_header().unwrap();
    let row = (24 * color.samples() * depth as usize).div_ceil(8);
    writer.write_image_data(&vec![0; row * 16]).unwrap();
    writer.finish().unwrap();
    file
}

pub(super) fn jpeg_by_encoder(color: jpeg_encoder::ColorType, progressive: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, 50);
    encoder.set_progressive(progressive);
    encoder.add_icc_profile(&[1; 300]).unwrap();
    encoder.encode(&pixels(24, 16, 4), 24, 16, color).unwrap();
    file
}

pub(super) fn webp_by_encoder(alpha: bool, lossless: bool) -> Vec<u8> {
    let (width, height) = (24, 16);
    let pixels = pixels(width, height, if alpha { 4 } else { 3 });
    let layout = if alpha { ::webp::PixelLayout::Rgba } else { ::webp::PixelLayout::Rgb };
    ::webp::Encoder::new(&pixels, layout, width, height).encode_simple(lossless, 50.0).unwrap().to_vec()
}

/// Returns valid files, each with its name and the shortest length at which it is accepted.
pub(super) fn valid_files() -> Vec<(&'static str, Vec<u8>, usize)> {
    use ::png::{BitDepth, ColorType};
    let complete_at_end = |name, file: Vec<u8>| (name, file.clone(), file.len());
    let complete_at_scan = |name, file: Vec<u8>| {
        let scan = file.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        let length = usize::from(u16::from_be_bytes([file[scan + 2], file[scan + 3]]));
        (name, file, scan + 2 + length + 1)
    };
    vec![
        complete_at_end("grey png by hand", png(16, 16, 1, 0, &[trns(0)])),
        complete_at_end("palette png by hand", png(16, 16, 4, 3, &[trns(3), chunk(b"tEXt", b"a\0b")])),
        complete_at_end("rgb png", png_by_encoder(ColorType::Rgb, BitDepth::Eight)),
        complete_at_end("rgba png of 16 bits", png_by_encoder(ColorType::Rgba, BitDepth::Sixteen)),
        complete_at_end("grey and alpha png", png_by_encoder(ColorType::GrayscaleAlpha, BitDepth::Eight)),
        complete_at_end("palette png", png_by_encoder(ColorType::Indexed, BitDepth::Two)),
        complete_at_scan("jpeg by hand", jpeg(&[segment(0xc0, &frame(16, 16)), scan()])),
        complete_at_scan("baseline jpeg", jpeg_by_encoder(jpeg_encoder::ColorType::Rgba, false)),
        complete_at_scan("progressive jpeg", jpeg_by_encoder(jpeg_encoder::ColorType::Cmyk, true)),
        complete_at_end("lossy webp by hand", webp(&[vp8(16, 16)])),
        complete_at_end("odd webp by hand", webp(&[vp8x(0x10, 16, 16), riff_chunk(b"ALPH", &[0; 3]), vp8(16, 16)])),
        complete_at_end("lossy webp", webp_by_encoder(false, false)),
        complete_at_end("lossy webp with alpha", webp_by_encoder(true, false)),
        complete_at_end("lossless webp", webp_by_encoder(false, true)),
        complete_at_end("lossless webp with alpha", webp_by_encoder(true, true)),
    ]
}
