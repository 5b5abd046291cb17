//! Tests of the simulator.

use super::render::{BYTES_PER_PIXEL, RowRenderer};
use super::*;

fn image(prompt: &str) -> TestImage<'_> {
    TestImage {
        prompt,
        index: 0,
        partial: None,
        width: 320,
        height: 240,
        format: Format::Png,
        compression: 100,
        quality: Detail::Low,
    }
}

fn pixels(image: &TestImage<'_>) -> Vec<u8> {
    encode::all_pixels(&RowRenderer::new(image))
}

/// Returns the share of bytes in which two images of one size differ clearly.
fn difference(a: &[u8], b: &[u8]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differing = a.iter().zip(b).filter(|(a, b)| a.abs_diff(**b) > 8).count();
    differing as f32 / a.len() as f32
}

#[test]
fn every_format_has_exactly_the_requested_size() {
    for (width, height) in [(320, 240), (528, 176), (176, 528)] {
        for (format, kind) in [
            (Format::Png, imagesize::ImageType::Png),
            (Format::Jpeg, imagesize::ImageType::Jpeg),
            (Format::Webp, imagesize::ImageType::Webp),
        ] {
            let file = draw(&TestImage { width, height, format, ..image("a lake") }).unwrap();
            let size = imagesize::blob_size(&file).unwrap();
            assert_eq!((size.width, size.height), (width as usize, height as usize), "{format:?}");
            assert_eq!(imagesize::image_type(&file).unwrap(), kind);
        }
    }
}

#[test]
fn a_png_is_lossless_and_names_the_simulator() {
    let request = image("night sky");
    let file = draw(&request).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().unwrap();
    let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut decoded).unwrap();
    assert_eq!(decoded, pixels(&request));
    let text = &reader.info().uncompressed_latin1_text[0];
    assert_eq!((text.keyword.as_str(), text.text.as_str()), ("Software", encode::SIMULATOR_MARK));
}

#[test]
fn a_webp_decodes_to_nearly_the_same_image() {
    let request = TestImage { width: 1024, height: 640, format: Format::Webp, ..image("night sky") };
    let file = draw(&request).unwrap();
    let decoded = webp::Decoder::new(&file).decode().unwrap();
    assert!(difference(&decoded, &pixels(&request)) < 0.05);
}

#[test]
fn a_jpeg_names_the_simulator_after_its_first_segment() {
    let file = draw(&TestImage { format: Format::Jpeg, ..image("night sky") }).unwrap();
    let comment = [&[0xff, 0xfe, 0, 19], encode::SIMULATOR_MARK.as_bytes()].concat();
    let length = usize::from(u16::from_be_bytes([file[4], file[5]]));
    assert_eq!(&file[..4], [0xff, 0xd8, 0xff, 0xe0]);
    assert_eq!(&file[4 + length..][..comment.len()], comment);
}

#[test]
fn a_lower_compression_value_gives_a_smaller_file() {
    for format in [Format::Jpeg, Format::Webp] {
        let size = |compression| draw(&TestImage { format, compression, ..image("a forest") }).unwrap().len();
        let sizes = [100, 80, 60, 40, 20, 0].map(size);
        assert!(sizes.windows(2).all(|pair| pair[0] > pair[1]), "{format:?} {sizes:?}");
    }
}

#[test]
fn png_is_lossless_whatever_the_compression() {
    let file = |compression| draw(&TestImage { compression, ..image("a forest") }).unwrap();
    assert_eq!(file(0), file(100));
}

#[test]
fn the_same_request_gives_the_same_file() {
    for format in [Format::Png, Format::Jpeg, Format::Webp] {
        let file = || draw(&TestImage { format, ..image("a city") }).unwrap();
        assert_eq!(file(), file(), "{format:?}");
    }
}

/// Pins the pixels, which are the same on every platform and in every build. A change of the drawing changes the hash,
/// which must then be replaced here.
#[test]
fn the_same_image_is_drawn_on_every_machine() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (partial, prompt) in [(None, "a lighthouse"), (None, "灯台 at dusk"), (Some(1), "a boat")] {
        for byte in pixels(&TestImage { partial, ..image(prompt) }) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    assert_eq!(format!("{hash:016x}"), "eda58882d9ecc3ab");
}

#[test]
fn another_prompt_index_or_quality_gives_another_image() {
    let first = image("a quiet place");
    for other in [
        image("a loud place"),
        TestImage { index: 1, ..first },
        TestImage { index: 2, ..first },
        TestImage { quality: Detail::Medium, ..first },
        TestImage { quality: Detail::High, ..first },
    ] {
        assert!(difference(&pixels(&first), &pixels(&other)) > 0.2, "{other:?}");
    }
}

#[test]
fn intermediate_images_approach_the_finished_image() {
    let finished = TestImage { width: 1024, height: 640, ..image("a boat") };
    let [first, second, third] = [0, 1, 2].map(|partial| pixels(&TestImage { partial: Some(partial), ..finished }));
    let distance = |a: &[u8], b: &[u8]| -> u64 { a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum() };
    let [far, near, nearest] = [&first, &second, &third].map(|partial| distance(partial, &pixels(&finished)));
    assert!(far > near && near > nearest && nearest > 0, "{far} {near} {nearest}");
    assert!(difference(&first, &second) > 0.02 && difference(&third, &pixels(&finished)) > 0.02);
}

/// Reads `length` letters from the pixels. A character that is not in the font is read as U+007F.
fn read_text(pixels: &[u8], width: usize, line: &text::TextLine, length: usize) -> String {
    let is_ink = |x: usize, y: usize| pixels[(y * width + x) * BYTES_PER_PIXEL..][..BYTES_PER_PIXEL] == line.ink;
    let letter = |index: usize| {
        let (left, top) = (line.corner.0 + index * bitmap_font::ADVANCE_CELLS * line.cell_size, line.corner.1);
        let is_cell = |column: usize, row: usize| {
            let (x, y) = (left + column * line.cell_size, top + row * line.cell_size);
            let inks = [is_ink(x, y), is_ink(x + line.cell_size - 1, y + line.cell_size - 1)];
            assert_eq!(inks[0], inks[1], "a cell must be filled or empty");
            inks[0]
        };
        let is_letter = |letter: &char| {
            (0..bitmap_font::HEIGHT_CELLS).all(|row| {
                let cells = bitmap_font::cells(*letter, row).iter().enumerate();
                cells.into_iter().all(|(column, cell)| is_cell(column, row) == (*cell == b'#'))
            })
        };
        (' '..='\u{7f}').find(is_letter).expect("the cells must form a letter")
    };
    (0..length).map(letter).collect()
}

#[test]
fn every_image_shows_the_simulator_and_the_request() {
    for (width, height) in [(1024, 1024), (1024, 640), (480, 1408), (1408, 480), (3840, 1280), (2160, 3840)] {
        let request = TestImage { width, height, index: 2, ..image("a red boat, é") };
        let renderer = RowRenderer::new(&request);
        let drawn = encode::all_pixels(&renderer);
        let lines = &renderer.panel.lines;
        let texts: Vec<_> =
            lines.iter().map(|line| read_text(&drawn, renderer.width, line, line.text.chars().count())).collect();
        let facts = [
            format!("{width}x{height} png, quality low"),
            format!("seed {:016x}, image 3", request.seed()),
            "a red boat, \u{7f}".to_owned(),
        ];
        assert_eq!((texts[0].as_str(), &texts[1..]), ("imagate simulator - not a model", &facts[..]));
        for line in lines {
            let (x, y) = line.corner;
            let right = x + line.text.chars().count() * bitmap_font::ADVANCE_CELLS * line.cell_size;
            let bottom = y + bitmap_font::HEIGHT_CELLS * line.cell_size;
            assert!(right < renderer.width && bottom < renderer.height, "{line:?} at {width}x{height}");
            // The letters are light, and the background is dark on all sides.
            let around = [(x - 1, y - 1), (right, y - 1), (x - 1, bottom), (right, bottom)];
            for (x, y) in around {
                let pixel = &drawn[(y * renderer.width + x) * BYTES_PER_PIXEL..][..BYTES_PER_PIXEL];
                assert!(pixel.iter().all(|channel| *channel < 48), "{pixel:?} at {x}, {y}");
            }
        }
    }
}

#[test]
fn a_prompt_of_any_length_stays_above_the_colour_bars() {
    let prompt = "a long prompt with many words ".repeat(1000);
    for (width, height) in [(1024, 1024), (480, 1408), (1408, 480), (3840, 2160)] {
        let renderer = RowRenderer::new(&TestImage { width, height, ..image(&prompt) });
        let last = renderer.panel.lines.last().expect("the panel must have lines");
        assert!(last.text.ends_with("..."), "{}", last.text);
        assert!(last.corner.1 + bitmap_font::HEIGHT_CELLS * last.cell_size < renderer.height * 9 / 10);
    }
}

#[test]
fn any_size_can_be_drawn() {
    for (width, height) in [(96, 64), (32, 96), (16, 16), (1, 1), (2, 300), (300, 2), (144, 48)] {
        for partial in [None, Some(0), Some(u32::MAX)] {
            for prompt in ["", "a cat"] {
                pixels(&TestImage { width, height, partial, ..image(prompt) });
            }
        }
    }
}

#[test]
fn impossible_sizes_are_errors() {
    for (width, height) in [(0, 240), (320, 0), (20_000, 16), (16, u32::MAX)] {
        assert!(matches!(draw(&TestImage { width, height, ..image("") }), Err(DrawError::Size)));
    }
}

#[test]
fn tokens_grow_with_quality_pixels_and_number() {
    let image = |width, height, quality, n| estimate_tokens("a cat", width, height, quality, n).output_image;
    assert_eq!(
        [Detail::Low, Detail::Medium, Detail::High].map(|detail| image(1024, 1024, detail, 1)),
        [196, 1764, 6241]
    );
    assert_eq!(image(1536, 1024, Detail::Low, 2), 588);
    assert_eq!(image(3840, 2160, Detail::High, 1), 49_368);
    assert_eq!(
        estimate_tokens("a cat", 16, 16, Detail::Low, 1),
        SimulatedUsage { input_text: 2, input_image: 0, output_image: 1 }
    );
    assert_eq!(estimate_tokens("", 16, 16, Detail::Low, 1).input_text, 1);
    assert_eq!(estimate_tokens("猫と犬", 16, 16, Detail::Low, 1).input_text, 3);
}

#[test]
fn an_auto_size_follows_the_words_of_the_prompt() {
    assert_eq!(resolve_auto("a portrait of a cat"), (1024, 1536));
    assert_eq!(resolve_auto("Panoramic landscapes"), (1536, 1024));
    assert_eq!(resolve_auto("a cat"), (1024, 1024));
}
