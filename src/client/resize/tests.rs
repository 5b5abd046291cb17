//! Tests of the pixels, formats and color profiles of resized images.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Fit, PixelBuffer, Resize, decode, encode};
use crate::client::tests::run;
use crate::client::{Compression, Error, Output};
use crate::image::{Format, Size, probe};
use crate::tables::{MAX_PIXELS, MAX_UPLOAD_IMAGE_BYTES};

const FORMATS: [Format; 3] = [Format::Png, Format::Jpeg, Format::Webp];

/// Returns an image whose pixel at (x, y) is `color(x, y)`: three bytes, or four with an alpha channel.
fn pixels_with<const N: usize>(width: u32, height: u32, color: impl Fn(u32, u32) -> [u8; N]) -> PixelBuffer {
    let positions = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let bytes = positions.flat_map(|(x, y)| color(x, y)).collect();
    PixelBuffer { width, height, has_alpha: N == 4, bytes, profile: None }
}

/// Returns an image with soft transitions, which every format reproduces well.
fn gradient(width: u32, height: u32) -> PixelBuffer {
    let scaled = |position: u32, length: u32| u8::try_from(position * 255 / length).unwrap();
    pixels_with(width, height, |x, y| [scaled(x, width), scaled(y, height), 90])
}

fn encoded(pixels: &PixelBuffer, format: Format) -> Bytes {
    encode::encode_file(pixels, Output::from(format)).unwrap().into()
}

fn decoded(file: &[u8]) -> PixelBuffer {
    decode::decode_file(file, probe(file).unwrap().format).unwrap()
}

fn assert_refused(result: Result<impl std::fmt::Debug, Error>, reason: &str) {
    let error = result.unwrap_err();
    assert!(error.message().starts_with("the image cannot be resized: "), "{error}");
    assert!(error.message().contains(reason) && !error.is_retryable(), "{error}");
}

#[test]
fn every_format_is_resized_to_every_format() {
    let size = crate::size!("1536x1024");
    for format in FORMATS {
        let file = encoded(&gradient(768, 512), format);
        for output in FORMATS {
            let resized = Resize::to(size).format(output).apply(file.clone()).unwrap();
            let properties = probe(resized.bytes()).unwrap();
            assert_eq!(
                (properties.format, properties.width, properties.height),
                (output, 1536, 1024),
                "{format} {output}"
            );
            assert_eq!((resized.format(), resized.original_dimensions()), (output, (768, 512)));
            let (result, expected) = (decoded(resized.bytes()), gradient(1536, 1024));
            let differing = result.bytes.iter().zip(&expected.bytes).filter(|(a, b)| a.abs_diff(**b) > 8).count();
            assert!(
                differing * 100 < expected.bytes.len(),
                "{format} to {output}: {differing} of {}",
                expected.bytes.len()
            );
        }
        assert_eq!(Resize::to(size).apply(file).unwrap().format(), format, "the format is kept");
    }
}

#[test]
fn an_image_with_the_requested_size_and_format_is_unchanged() {
    let file = encoded(&gradient(1024, 1024), Format::Jpeg);
    let same = Resize::to(crate::size!("1024x1024")).apply(file.clone()).unwrap();
    assert_eq!(same.bytes(), file);
    let png = Resize::to(crate::size!("1024x1024")).format(Format::Png).apply(file.clone()).unwrap();
    assert_eq!(decoded(png.bytes()).bytes, decoded(&file).bytes, "another format changes no pixel");
}

#[test]
fn colors_behind_transparent_parts_do_not_bleed() {
    let clear = |x: u32, _: u32| if x < 256 { [200, 0, 0, 255] } else { [0, 255, 0, 0] };
    let file = encoded(&pixels_with(512, 512, clear), Format::Png);
    for format in [Format::Png, Format::Webp] {
        let resized = Resize::to(crate::size!("1024x1024")).format(format).apply(file.clone()).unwrap();
        let pixels = decoded(resized.bytes());
        assert!(pixels.has_alpha, "{format}");
        let (pixels, _) = pixels.bytes.as_chunks::<4>();
        let greenish = pixels.iter().filter(|[_, green, _, alpha]| *alpha > 24 && *green > 24).count();
        assert_eq!(greenish, 0, "{format}");
        assert!(pixels[0][3] == 255 && pixels[1023][3] == 0, "{format}");
    }
}

#[test]
fn other_proportions_are_cropped_in_the_middle_or_stretched() {
    // A blue edge at the top and at the bottom, each one eighth of the height.
    let file = encoded(
        &pixels_with(768, 768, |_, y| if (96..672).contains(&y) { [250, 250, 250] } else { [0, 0, 250] }),
        Format::Png,
    );
    let resized = |fit| decoded(Resize::to(crate::size!("1536x1024")).fit(fit).apply(file.clone()).unwrap().bytes());
    let blue = |pixels: &PixelBuffer| pixels.bytes.as_chunks::<3>().0.iter().filter(|color| color[0] < 125).count();
    let (cropped, stretched) = (resized(Fit::Crop), resized(Fit::Stretch));
    let rows = |count: usize| count / 1536;
    assert_eq!((cropped.width, cropped.height, stretched.width, stretched.height), (1536, 1024, 1536, 1024));
    // Cropped: 768 rows become 1536, and the middle 1024 of them remain, which are rows 256 to 1280; the blue edges are
    // rows 0 to 192 and 1344 to 1536. Stretched: 768 rows become 1024, and the two edges have 128 rows each.
    assert_eq!((rows(blue(&cropped)), rows(blue(&stretched))), (0, 256));
}

#[test]
fn every_kind_of_png_is_read() {
    let pngs = [
        (png::ColorType::Grayscale, png::BitDepth::One, 2, false),
        (png::ColorType::Grayscale, png::BitDepth::Sixteen, 32, false),
        (png::ColorType::GrayscaleAlpha, png::BitDepth::Eight, 32, true),
        (png::ColorType::Rgb, png::BitDepth::Sixteen, 96, false),
        (png::ColorType::Indexed, png::BitDepth::Four, 8, true),
        (png::ColorType::Rgba, png::BitDepth::Sixteen, 128, true),
    ];
    for (color, depth, row, has_alpha) in pngs {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 16, 16);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == png::ColorType::Indexed {
            encoder.set_palette([[9_u8; 3]; 16].concat());
            encoder.set_trns(vec![200; 16]);
        }
        encoder.write_header().unwrap().write_image_data(&vec![0; row * 16]).unwrap();
        let resized = Resize::to(crate::size!("1024x1024")).apply(file).unwrap();
        let pixels = decoded(resized.bytes());
        assert_eq!((pixels.has_alpha, pixels.width), (has_alpha, 1024), "{color:?} {depth:?}");
        if color == png::ColorType::Indexed {
            assert_eq!(pixels.bytes[..4], [9, 9, 9, 200]);
        }
    }
}

#[test]
fn a_grayscale_jpeg_is_read() {
    let mut file = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut file, 90);
    encoder.encode(&[120; 64 * 64], 64, 64, jpeg_encoder::ColorType::Luma).unwrap();
    let pixels = decoded(Resize::to(crate::size!("1024x1024")).format(Format::Png).apply(file).unwrap().bytes());
    assert!(pixels.bytes.iter().all(|byte| byte.abs_diff(120) < 3));
}

#[test]
fn a_transparent_image_does_not_become_a_jpeg() {
    let resize =
        Resize::to(crate::size!("1024x1024")).format(Output::Jpeg { compression: Compression::new(80).unwrap() });
    let png_with_alpha = |alpha: u8| encoded(&pixels_with(64, 64, |_, _| [10, 20, 30, alpha]), Format::Png);
    assert_refused(resize.apply(png_with_alpha(254)), "jpeg does not support");
    assert_eq!(resize.apply(png_with_alpha(255)).unwrap().format(), Format::Jpeg);
}

#[test]
fn a_color_profile_is_kept_or_the_image_is_refused() {
    let mut pixels = gradient(64, 64);
    pixels.profile = Some(b"a profile as some tool wrote it".to_vec());
    let file = encoded(&pixels, Format::Png);
    let resize = |format| Resize::to(crate::size!("1024x1024")).format(format).apply(file.clone());
    let jpeg = resize(Format::Jpeg).unwrap();
    for file in [resize(Format::Png).unwrap(), jpeg.clone()] {
        assert_eq!(decoded(file.bytes()).profile, pixels.profile, "{file:?}");
    }
    let converted = Resize::to(crate::size!("1024x640")).format(Format::Png).apply(jpeg.bytes().to_vec()).unwrap();
    assert_eq!(decoded(converted.bytes()).profile, pixels.profile);
    assert_refused(resize(Format::Webp), "color profile");
}

#[test]
fn the_profile_of_a_webp_is_found() {
    let mut file = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x20\0\0\0\0\0\0\0\0\0".to_vec();
    assert_eq!(decode::webp_profile(&file), None);
    file.extend(b"ICCP\x03\0\0\0abc\0VP8 ");
    assert_eq!(decode::webp_profile(&file), Some(&b"abc"[..]));
    assert_eq!(decode::webp_profile(&file[..40]), None, "truncated");
}

#[test]
fn invalid_and_too_large_images_are_refused() {
    let resize = |file: Vec<u8>| Resize::to(crate::size!("1024x1024")).apply(file);
    assert_refused(resize(Vec::new()), "empty");
    assert_refused(resize(b"GIF89a".to_vec()), "not a PNG, JPEG or WebP");
    assert_refused(resize(vec![0; usize::try_from(MAX_UPLOAD_IMAGE_BYTES).unwrap()]), "it must have fewer than");
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 3840, 2176);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    encoder.write_header().unwrap().write_image_data(&vec![0; 480 * 2176]).unwrap();
    assert_refused(resize(file), &format!("3840x2176 px; the limit is {MAX_PIXELS} px"));
    for format in FORMATS {
        let file = encoded(&gradient(256, 256), format);
        for length in [file.len() / 2, file.len() - file.len() / 8] {
            assert_refused(resize(file[..length].to_vec()), "");
        }
    }
    let mut damaged = encoded(&gradient(256, 256), Format::Png).to_vec();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    assert_refused(resize(damaged), "the png file cannot be read");
}

#[test]
fn an_answer_is_resized_without_another_request() {
    use crate::client::tests::{answer, serve};

    let file = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, encoded(&gradient(768, 512), Format::Webp));
    let server = serve([answer(200, &serde_json::json!({"created": 1, "data": [{"b64_json": file}]}))]);
    let folder = tempfile::tempdir().unwrap();
    let size: Size = crate::size!("3840x2160");
    let path = run(async {
        let image = crate::client::tests::client(&server).images().generate("a fox").await?.first();
        image.resize_to(size).await?.write_to(folder.path().join("fox.png")).await
    });
    let path = path.unwrap();
    let file = std::fs::read(&path).map(Cow::Owned).unwrap();
    let properties = probe(&file).unwrap();
    assert_eq!((properties.width, properties.height, server.requests().len()), (3840, 2160, 1));
    assert_eq!(path.file_name().unwrap(), "fox.webp", "the extension is that of the format");
}
