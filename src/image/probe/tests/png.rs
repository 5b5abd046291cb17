//! Tests of the PNG cases.

use super::files::{chunk, idat, iend, ihdr, palette, png, png_by_encoder, png_file, trns};
use super::{CountingSource, MAX_PARTS, check, size};

/// Each colour type with each bit depth that it allows.
const VALID_COLOR_TYPES: [(u8, u8); 15] = [
    (0, 1),
    (0, 2),
    (0, 4),
    (0, 8),
    (0, 16),
    (2, 8),
    (2, 16),
    (3, 1),
    (3, 2),
    (3, 4),
    (3, 8),
    (4, 8),
    (4, 16),
    (6, 8),
    (6, 16),
];

#[test]
fn alpha_is_a_channel_or_a_trns_in_every_depth() {
    for (color, depth) in VALID_COLOR_TYPES {
        for interlace in [0, 1] {
            let file = |extra: Vec<u8>| {
                let first = chunk(b"IHDR", &ihdr(20, 30, depth, color, interlace));
                png_file(&[first, palette(color), extra, idat(), iend()])
            };
            let channel = matches!(color, 4 | 6);
            check(&file(Vec::new()), Ok(channel));
            assert_eq!(size(&file(Vec::new())), (20, 30));
            check(&file(trns(color)), if channel { Err("does not match its colour type") } else { Ok(true) });
        }
    }
}

#[test]
fn files_of_a_real_encoder_are_accepted() {
    use ::png::{BitDepth, ColorType};
    for (color, depth, alpha) in [
        (ColorType::Grayscale, BitDepth::One, false),
        (ColorType::Rgb, BitDepth::Sixteen, false),
        (ColorType::Indexed, BitDepth::Eight, true),
        (ColorType::GrayscaleAlpha, BitDepth::Sixteen, true),
        (ColorType::Rgba, BitDepth::Eight, true),
    ] {
        check(&png_by_encoder(color, depth), Ok(alpha));
        assert_eq!(size(&png_by_encoder(color, depth)), (24, 16));
    }
}

#[test]
fn a_mask_that_is_opaque_everywhere_still_has_alpha() {
    check(&png(16, 16, 8, 3, &[chunk(b"tRNS", &[255, 255])]), Ok(true));
}

#[test]
fn colour_types_and_depths_that_do_not_exist_are_refused() {
    for color in 0..=8 {
        for depth in (0..=17).filter(|depth| !VALID_COLOR_TYPES.contains(&(color, *depth))) {
            check(&png(16, 16, depth, color, &[]), Err("colour type and bit depth that do not exist"));
        }
    }
    let with_byte = |offset: usize, value: u8| {
        let mut body = ihdr(16, 16, 8, 6, 0);
        body[offset] = value;
        png_file(&[chunk(b"IHDR", &body), idat(), iend()])
    };
    for (offset, value) in [(10, 1), (11, 1), (12, 2)] {
        check(&with_byte(offset, value), Err("method that does not exist"));
    }
}

#[test]
fn a_trns_must_match_the_colour_type() {
    let mismatch = "does not match its colour type";
    for (color, length) in [(0, 0), (0, 1), (0, 6), (2, 2), (2, 5), (3, 0), (3, 3), (3, 257), (4, 2), (6, 0)] {
        check(&png(16, 16, 8, color, &[chunk(b"tRNS", &vec![0; length])]), Err(mismatch));
    }
    check(&png(16, 16, 8, 2, &[trns(2), trns(2)]), Err(mismatch));
    let first = chunk(b"IHDR", &ihdr(16, 16, 8, 3, 0));
    check(&png_file(&[first.clone(), trns(3), chunk(b"PLTE", &[0; 6]), idat(), iend()]), Err(mismatch));
    // Readers ignore tRNS after the image data.
    check(&png_file(&[first, chunk(b"PLTE", &[0; 6]), idat(), trns(3), iend()]), Ok(false));
    let palette = chunk(b"PLTE", &[0; 768]);
    let all = png_file(&[chunk(b"IHDR", &ihdr(16, 16, 8, 3, 0)), palette, chunk(b"tRNS", &[0; 256]), idat(), iend()]);
    check(&all, Ok(true));
}

#[test]
fn only_checksums_that_affect_the_verdict_are_checked() {
    let file = png(16, 16, 8, 2, &[trns(2), chunk(b"tEXt", b"a\0b")]);
    let broken = |kind: &[u8]| {
        let mut file = file.clone();
        let offset = file.windows(4).position(|window| window == kind).unwrap();
        let length = u32::from_be_bytes(file[offset - 4..offset].try_into().unwrap());
        file[offset + 4 + usize::try_from(length).unwrap()] ^= 1;
        file
    };
    check(&broken(b"IHDR"), Err("checksum of its header"));
    check(&broken(b"tRNS"), Err("checksum of its tRNS"));
    for other in [b"tEXt", b"IDAT", b"IEND"] {
        check(&broken(other), Ok(true));
    }
}

#[test]
fn chunks_in_a_wrong_order_are_refused() {
    let first = || chunk(b"IHDR", &ihdr(16, 16, 8, 6, 0));
    let text = || chunk(b"tEXt", b"a\0b");
    check(&png_file(&[text(), first(), idat(), iend()]), Err("does not begin with a header"));
    check(&png_file(&[chunk(b"CgBI", &[0; 4]), first(), idat(), iend()]), Err("does not begin with a header"));
    check(&png_file(&[chunk(b"IHDR", &[0; 12]), idat(), iend()]), Err("does not begin with a header"));
    check(&png_file(&[chunk(b"IHDR", &[0; 14]), idat(), iend()]), Err("does not begin with a header"));
    check(&png_file(&[first(), first(), idat(), iend()]), Err("second header"));
    check(&png_file(&[first(), idat(), first(), iend()]), Err("second header"));
    check(&png_file(&[first(), iend()]), Err("no image data"));
    check(&png_file(&[first(), text(), iend(), idat()]), Err("no image data"));
    check(&png_file(&[first(), idat(), idat(), iend()]), Ok(true));
    check(&png_file(&[first(), idat(), text(), idat(), iend()]), Err("split by another chunk"));
    check(&png_file(&[first(), chunk(b"ABCD", b""), idat(), iend()]), Err("unknown critical chunk"));
    check(&png_file(&[first(), chunk(b"abCD", b""), idat(), iend()]), Ok(true));
    check(
        &png_file(&[first(), chunk(b"a\0CD", b""), idat(), iend()]),
        Err("a chunk is missing or its header is invalid"),
    );
    check(&png_file(&[first(), idat()]), Err("ends too early"));
    check(&[png_file(&[first(), idat(), iend()]), vec![0; 99]].concat(), Ok(true));
}

#[test]
fn a_palette_image_needs_a_palette() {
    let file = |chunk: Vec<u8>| png_file(&[self::chunk(b"IHDR", &ihdr(16, 16, 8, 3, 0)), chunk, idat(), iend()]);
    check(&file(Vec::new()), Err("palette is missing"));
    for length in [0, 4, 771] {
        check(&file(chunk(b"PLTE", &vec![0; length])), Err("palette has a wrong length"));
    }
    check(&file(chunk(b"PLTE", &[0; 3]).repeat(2)), Err("palette has a wrong length or position"));
    // An image of colour type 2 needs no palette; if it has one, it is only a suggestion.
    check(&png(16, 16, 8, 2, &[chunk(b"PLTE", &[0; 3])]), Ok(false));
}

#[test]
fn lengths_beyond_the_file_or_the_format_are_refused() {
    let with_length = |length: u32| {
        let mut file = png(16, 16, 8, 6, &[chunk(b"tEXt", b"a\0b")]);
        file[33..37].copy_from_slice(&length.to_be_bytes());
        file
    };
    check(&with_length(3), Ok(true));
    check(&with_length(0x7fff_ffff), Err("ends too early"));
    for length in [0x8000_0000, 0xffff_fffc, 0xffff_ffff] {
        check(&with_length(length), Err("a chunk is missing or its header is invalid"));
    }
}

#[test]
fn impossible_sizes_are_refused() {
    for (width, height) in [(0, 16), (16, 0), (65_536, 16), (16, 0x7fff_ffff), (8_000_000, u32::MAX)] {
        check(&png(width, height, 16, 6, &[]), Err(&format!("claims to be {width}x{height} px; each side")));
    }
    check(&png(16_384, 16_384, 8, 6, &[]), Err("claims to be 16384x16384 px, but the file is too small"));
    // Ten bytes of image data inflate to at most 10,320 bytes.
    check(&png(10_320, 1, 8, 0, &[]), Ok(false));
    check(&png(10_321, 1, 8, 0, &[]), Err("too small"));
    check(&png(65_535, 1, 1, 0, &[]), Ok(false));
}

#[test]
fn a_blank_image_is_not_refused_as_too_small() {
    let mut file = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut file, 4096, 4096);
    encoder.set_color(::png::ColorType::Grayscale);
    encoder.set_compression(::png::Compression::High);
    encoder.write_header().unwrap().write_image_data(&vec![0; 4096 * 4096]).unwrap();
    check(&file, Ok(false));
    assert!(file.len() < 40_000, "{} bytes are not close to the limit", file.len());
}

#[test]
fn compressed_text_and_profiles_are_skipped() {
    let large = vec![0x78; 4_700_000];
    for kind in [b"zTXt", b"iTXt", b"iCCP", b"eXIf"] {
        let file = png(16, 16, 8, 6, &[chunk(kind, &large)]);
        let counted = CountingSource::new(&file);
        assert!(counted.inspect().unwrap().has_alpha);
        assert!(counted.bytes.get() < 100, "{} bytes read", counted.bytes.get());
    }
}

#[test]
fn animations_are_refused() {
    let control = || chunk(b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0]);
    check(&png(16, 16, 8, 6, &[control()]), Err("PNG file is an animation"));
    let first = chunk(b"IHDR", &ihdr(16, 16, 8, 6, 0));
    check(&png_file(&[first, idat(), control(), iend()]), Ok(true));
    // Without acTL, readers ignore frames.
    check(&png(16, 16, 8, 6, &[chunk(b"fcTL", &[0; 26])]), Ok(true));
}

#[test]
fn a_file_with_too_many_chunks_is_refused() {
    let parts = usize::try_from(MAX_PARTS).unwrap();
    let many = |count: usize| png(16, 16, 8, 6, &[chunk(b"tEXt", b"").repeat(count)]);
    // IDAT and IEND count as parts as well.
    check(&many(parts - 2), Ok(true));
    check(&many(parts - 1), Err("more than 16384 parts"));
    check(&many(parts * 8), Err("more than 16384 parts"));
}
