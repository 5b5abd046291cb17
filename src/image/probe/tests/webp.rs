//! Tests of the WebP cases.

use super::files::{riff_chunk, vp8, vp8l, vp8x, webp, webp_by_encoder};
use super::{MAX_PARTS, check, size};

const ALPHA: u8 = 0x10;
const ANIMATION: u8 = 0x02;

fn alph() -> Vec<u8> {
    riff_chunk(b"ALPH", &[0, 0, 0])
}

#[test]
fn alpha_depends_on_the_flag_and_the_data() {
    let lossy = || vp8(40, 30);
    let lossless = |alpha| vp8l(40, 30, alpha);
    let head = |flags| vp8x(flags, 40, 30);
    for (pieces, verdict) in [
        (vec![lossy()], Ok(false)),
        (vec![lossless(false)], Ok(false)),
        (vec![lossless(true)], Ok(true)),
        (vec![head(0), lossy()], Ok(false)),
        (vec![head(ALPHA), alph(), lossy()], Ok(true)),
        // The flag is set, but there is no alpha data before the image: every reader sees an opaque image.
        (vec![head(ALPHA), lossy()], Ok(false)),
        (vec![head(ALPHA), lossy(), alph()], Ok(false)),
        (vec![head(ALPHA), lossless(false)], Ok(false)),
        // Alpha data without the flag: some readers ignore an ALPH chunk then, but none ignores the alpha bit of VP8L.
        (vec![head(0), alph(), lossy()], Ok(false)),
        (vec![head(0), lossless(true)], Ok(true)),
        (vec![head(ALPHA), lossless(true)], Ok(true)),
        (vec![head(ALPHA), alph(), lossless(true)], Err("two alpha channels")),
        (vec![head(ALPHA), riff_chunk(b"ALPH", &[0]), lossy()], Err("alpha channel is empty")),
        (vec![alph(), lossy()], Err("does not begin with an image or a header")),
        (vec![head(ALPHA), alph()], Err("no image data")),
        (vec![head(ALPHA)], Err("no image data")),
        (vec![], Err("no image data")),
    ] {
        check(&webp(&pieces), verdict);
    }
}

#[test]
fn files_of_a_real_encoder_are_accepted() {
    for (alpha, lossless) in [(false, false), (false, true), (true, false), (true, true)] {
        let file = webp_by_encoder(alpha, lossless);
        check(&file, Ok(alpha));
        assert_eq!(size(&file), (24, 16));
        assert_eq!(::webp::BitstreamFeatures::new(&file).unwrap().has_alpha(), alpha);
    }
}

#[test]
fn an_alpha_flag_without_its_chunk_means_no_alpha() {
    let mut file = webp_by_encoder(true, false);
    let offset = file.windows(4).position(|window| window == b"ALPH").unwrap();
    file[offset..offset + 4].copy_from_slice(b"JUNK");
    check(&file, Ok(false));
}

#[test]
fn animations_are_refused() {
    let frame = || riff_chunk(b"ANMF", &[0; 24]);
    let animation = || riff_chunk(b"ANIM", &[0; 6]);
    check(&webp(&[vp8x(ANIMATION, 40, 30), animation(), frame()]), Err("WebP file is an animation"));
    check(&webp(&[vp8x(ANIMATION, 40, 30), vp8(40, 30)]), Err("is an animation"));
    check(&webp(&[vp8x(0, 40, 30), animation(), vp8(40, 30)]), Err("is an animation"));
    check(&webp(&[vp8x(0, 40, 30), frame()]), Err("is an animation"));
}

#[test]
fn the_canvas_must_match_the_image() {
    check(&webp(&[vp8x(0, 40, 31), vp8(40, 30)]), Err("canvas and its image differ"));
    check(&webp(&[vp8x(0, 41, 30), vp8l(40, 30, false)]), Err("canvas and its image differ"));
    check(&webp(&[vp8x(0, 65_536, 30), vp8(40, 30)]), Err("claims to be 65536x30 px"));
    check(&webp(&[vp8x(0, 40, 1 << 24), vp8(40, 30)]), Err("claims to be 40x16777216 px"));
    check(&webp(&[vp8(0, 30)]), Err("claims to be 0x30 px"));
    assert_eq!(size(&webp(&[vp8x(0, 16_384, 1), vp8l(16_384, 1, true)])), (16_384, 1));
    // The two highest bits of each side request scaling, and do not belong to the size.
    assert_eq!(size(&webp(&[vp8(40 | 0x4000, 30 | 0xc000)])), (40, 30));
}

#[test]
fn the_riff_size_must_match_the_file() {
    let with_size = |size: usize, extra: usize| {
        let mut file = webp(&[vp8(40, 30)]);
        file[4..8].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
        file.resize(file.len() + extra, 0);
        file
    };
    let correct_size = webp(&[vp8(40, 30)]).len() - 8;
    check(&with_size(correct_size, 0), Ok(false));
    check(&with_size(correct_size, 99), Ok(false));
    check(&with_size(correct_size + 2, 0), Err("WebP file ends too early"));
    check(&with_size(u32::MAX as usize, 0), Err("ends too early"));
    check(&with_size(correct_size - 2, 0), Err("beyond the stated end of the file"));
    for size in [0, 4, 11] {
        check(&with_size(size, 0), Err("no image data"));
    }
}

#[test]
fn padding_is_required_except_after_the_last_chunk() {
    let body = [vp8(40, 30), vec![0]].concat();
    let mut odd = webp(&[vp8x(0, 40, 30), riff_chunk(b"ICCP", &[7; 5]), riff_chunk(b"VP8 ", &body[8..])]);
    check(&odd, Ok(false));
    odd.pop();
    check(&odd, Err("ends too early"));
    odd[4] -= 1;
    check(&odd, Ok(false));
    let unpadded = [&riff_chunk(b"ICCP", &[7; 5])[..13], &vp8(40, 30)].concat();
    check(&webp(&[vp8x(0, 40, 30), unpadded]), Err("is damaged"));
}

#[test]
fn damaged_chunks_are_refused() {
    let with_byte = |piece: Vec<u8>, offset: usize, value: u8| {
        let mut piece = piece;
        piece[8 + offset] = value;
        webp(&[piece])
    };
    for (offset, value) in [(0, 0x11), (0, 0x18), (0, 0), (1, 0x10), (3, 0), (4, 0), (5, 0)] {
        check(&with_byte(vp8(40, 30), offset, value), Err("does not begin with a key frame"));
    }
    check(&with_byte(vp8l(40, 30, true), 0, 0x2e), Err("lossless image data has an invalid header"));
    check(&with_byte(vp8l(40, 30, true), 4, 0x30), Err("lossless image data has an invalid header"));
    check(&webp(&[riff_chunk(b"VP8 ", &vp8(40, 30)[8..16])]), Err("does not begin with a key frame"));
    check(&webp(&[riff_chunk(b"VP8L", &vp8l(40, 30, true)[8..12])]), Err("lossless image data has an invalid header"));
    check(&webp(&[riff_chunk(b"VP8X", &[0; 12]), vp8(1, 1)]), Err("header has a wrong length"));
    check(&webp(&[vp8x(0, 40, 30), vp8x(0, 40, 30), vp8(40, 30)]), Err("second header"));
    check(&webp(&[riff_chunk(b"EXIF", &[0; 12]), vp8(40, 30)]), Err("does not begin with an image or a header"));
    check(&webp(&[vp8x(0, 40, 30), riff_chunk(b"what", &[0; 12]), vp8(40, 30)]), Ok(false));
}

#[test]
fn a_file_with_too_many_chunks_is_refused() {
    let parts = usize::try_from(MAX_PARTS).unwrap();
    let many = |count: usize| webp(&[vp8x(0, 40, 30), riff_chunk(b"what", b"").repeat(count), vp8(40, 30)]);
    check(&many(parts - 2), Ok(false));
    check(&many(parts - 1), Err("more than 16384 parts"));
}
