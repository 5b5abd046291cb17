use super::*;

fn picture(prompt: &str) -> Picture<'_> {
    Picture { prompt, index: 0, width: 320, height: 240, format: Format::Png, compression: 100, quality: Detail::Low }
}

fn pixels(picture: &Picture<'_>) -> Vec<u8> {
    compose(picture).unwrap().bytes().to_vec()
}

/// The share of bytes in which two pictures of one size differ clearly.
fn difference(a: &[u8], b: &[u8]) -> f32 {
    assert_eq!(a.len(), b.len());
    let far = a.iter().zip(b).filter(|(a, b)| a.abs_diff(**b) > 8).count();
    far as f32 / a.len() as f32
}

#[test]
fn every_format_has_exactly_the_requested_size() {
    for (width, height) in [(320, 240), (528, 176), (176, 528)] {
        for (format, kind) in [
            (Format::Png, imagesize::ImageType::Png),
            (Format::Jpeg, imagesize::ImageType::Jpeg),
            (Format::Webp, imagesize::ImageType::Webp),
        ] {
            let file = draw(&Picture { width, height, format, ..picture("a lake") }).unwrap();
            let size = imagesize::blob_size(&file).unwrap();
            assert_eq!((size.width, size.height), (width as usize, height as usize), "{format:?}");
            assert_eq!(imagesize::image_type(&file).unwrap(), kind);
        }
    }
}

#[test]
fn a_png_gives_back_every_pixel_and_says_who_drew_it() {
    let request = picture("night sky");
    let file = draw(&request).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
    let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut decoded).unwrap();
    assert_eq!(decoded, pixels(&request));
    let text = &reader.info().uncompressed_latin1_text[0];
    assert_eq!((text.keyword.as_str(), text.text.as_str()), ("Software", encode::MARK));
}

#[test]
fn a_webp_decodes_to_nearly_the_same_picture() {
    let request = Picture { format: Format::Webp, ..picture("night sky") };
    let file = draw(&request).unwrap();
    let decoded = webp::Decoder::new(&file).decode().unwrap();
    assert!(difference(&decoded, &pixels(&request)) < 0.05);
}

#[test]
fn a_jpeg_says_who_drew_it_behind_its_first_segment() {
    let file = draw(&Picture { format: Format::Jpeg, ..picture("night sky") }).unwrap();
    let comment = [&[0xff, 0xfe, 0, 19], encode::MARK.as_bytes()].concat();
    let length = usize::from(u16::from_be_bytes([file[4], file[5]]));
    assert_eq!(&file[..4], [0xff, 0xd8, 0xff, 0xe0]);
    assert_eq!(&file[4 + length..][..comment.len()], comment);
}

#[test]
fn less_compression_value_is_a_smaller_file() {
    for format in [Format::Jpeg, Format::Webp] {
        let size = |compression| draw(&Picture { format, compression, ..picture("a forest") }).unwrap().len();
        let sizes = [100, 80, 60, 40, 20, 0].map(size);
        assert!(sizes.windows(2).all(|pair| pair[0] > pair[1]), "{format:?} {sizes:?}");
    }
}

#[test]
fn png_is_lossless_whatever_the_compression() {
    let file = |compression| draw(&Picture { compression, ..picture("a forest") }).unwrap();
    assert_eq!(file(0), file(100));
}

#[test]
fn the_same_request_is_the_same_picture() {
    assert_eq!(pixels(&picture("a city")), pixels(&picture("a city")));
}

/// Pins the pixels: whatever platform or build this runs on, they are these.
/// A change to the drawing changes the figure; put the new one in.
#[test]
fn the_same_picture_is_drawn_on_every_machine() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for prompt in ["mountain dawn", "sea dusk lighthouse", "forest fog", "city night", "desert day", "aurora meadow"] {
        for byte in pixels(&picture(prompt)) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    assert_eq!(format!("{hash:016x}"), "2a2950c376cc5156");
}

#[test]
fn another_prompt_or_another_index_is_another_picture() {
    let first = pixels(&picture("a quiet place"));
    for other in [
        picture("a loud place"),
        Picture { index: 1, ..picture("a quiet place") },
        Picture { index: 2, ..picture("a quiet place") },
    ] {
        assert!(difference(&first, &pixels(&other)) > 0.2, "{other:?}");
    }
}

#[test]
fn every_picture_carries_the_label_legibly() {
    for (width, height) in [(1024, 640), (480, 1408), (1408, 480)] {
        let request = Picture { width, height, ..picture("snow") };
        let mut label = canvas::Canvas::new(width as i32, height as i32, 2);
        banner::paint(&mut label, "");
        let white = |pixel: &[u8]| pixel.iter().all(|channel| *channel > 240);
        let drawn = pixels(&request);
        let ink: Vec<usize> = (0..drawn.len()).step_by(3).filter(|at| white(&label.bytes()[*at..at + 3])).collect();
        assert!(ink.len() > 400, "{} pixels of ink at {width}x{height}", ink.len());
        assert!(ink.iter().all(|at| white(&drawn[*at..at + 3])), "covered at {width}x{height}");
        let strip = &drawn[ink[0]..];
        let dark = strip.chunks_exact(3).filter(|pixel| pixel.iter().all(|channel| *channel < 110)).count();
        assert!(dark > strip.len() / 3 / 2, "no contrast at {width}x{height}");
    }
}

#[test]
fn every_place_can_be_drawn_at_every_time_of_day_at_any_size() {
    let places =
        ["mountain", "snowy mountain lake", "sea lighthouse", "forest cabin", "city boat", "desert", "meadow balloon"];
    let times = ["dawn", "day", "golden", "dusk", "violet", "night", "aurora", "mist", "red night"];
    for (index, place) in places.into_iter().enumerate() {
        for (other, time) in times.into_iter().enumerate() {
            let (width, height) = [(96, 64), (32, 96), (16, 16), (1, 1), (144, 48)][(index + other) % 5];
            let prompt = format!("{place} {time}");
            pixels(&Picture { width, height, ..picture(&prompt) });
        }
    }
}

#[test]
fn impossible_sizes_are_errors() {
    for (width, height) in [(0, 240), (320, 0), (20_000, 16), (16, u32::MAX)] {
        assert!(matches!(draw(&Picture { width, height, ..picture("") }), Err(DrawError::Size)));
    }
}

#[test]
fn tokens_grow_with_quality_pixels_and_number() {
    let image = |width, height, quality, n| tokens("a cat", width, height, quality, n).output_image;
    assert_eq!(
        [Detail::Low, Detail::Medium, Detail::High].map(|detail| image(1024, 1024, detail, 1)),
        [196, 1764, 6241]
    );
    assert_eq!(image(1536, 1024, Detail::Low, 2), 588);
    assert_eq!(image(3840, 2160, Detail::High, 1), 49_368);
    assert_eq!(tokens("a cat", 16, 16, Detail::Low, 1), Tokens { input_text: 2, input_image: 0, output_image: 1 });
    assert_eq!(tokens("", 16, 16, Detail::Low, 1).input_text, 1);
    assert_eq!(tokens("猫と犬", 16, 16, Detail::Low, 1).input_text, 3);
}

#[test]
fn auto_follows_the_words() {
    assert_eq!(resolve_auto("a portrait of a cat"), (1024, 1536));
    assert_eq!(resolve_auto("Panoramic landscapes"), (1536, 1024));
    assert_eq!(resolve_auto("a cat"), (1024, 1024));
}
