//! Tests with thousands of mutated files: no panic, bounded reads, and other readers agree about the accepted files.

use super::super::png::checksum;
use super::{CountingSource, ImageFileError, ImageHeader, files, probe};
use crate::image::Format;

/// The number of files per run. The number of a file is the seed of its mutations, so a failure names the file to
/// repeat.
const FILES: u64 = 6_000;

/// Values at the limits of length fields.
const EDGE_LENGTHS: [u32; 12] =
    [0, 1, 7, 12, 255, 256, 65_535, 65_536, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];

/// A generator of numbers that look random and are the same in every run (splitmix64).
struct TestRng(u64);

impl TestRng {
    fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, more often near zero, because the structure is at the start of the file.
    fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1);
        let near = if self.next_number().is_multiple_of(2) { limit } else { limit.min(80) };
        usize::try_from(self.next_number()).unwrap() % near
    }
}

/// Applies one change to a file.
fn mutate(file: &mut Vec<u8>, second_file: &[u8], rng: &mut TestRng) {
    let offset = rng.below(file.len());
    match rng.next_number() % 7 {
        0 => file.truncate(offset),
        1 | 2 => {
            if let Some(byte) = file.get_mut(offset) {
                *byte ^= 1 << (rng.next_number() % 8);
            }
        }
        3 => {
            let number = EDGE_LENGTHS[rng.below(EDGE_LENGTHS.len())];
            let number = if rng.next_number().is_multiple_of(2) { number.to_be_bytes() } else { number.to_le_bytes() };
            if let Some(field) = file.get_mut(offset..offset + 4) {
                field.copy_from_slice(&number);
            }
        }
        4 => drop(file.splice(offset.., second_file[rng.below(second_file.len())..].to_vec())),
        5 => {
            let end = (offset + rng.below(64)).min(file.len());
            let piece = file[offset.min(end)..end].to_vec();
            drop(file.splice(offset..offset, piece));
        }
        _ => {
            let end = (offset + rng.below(64)).min(file.len());
            drop(file.drain(offset.min(end)..end));
        }
    }
}

/// Corrects the checksum of a PNG header, so that the code after that check is reached.
fn fix_header_checksum(file: &mut [u8]) {
    if file.starts_with(b"\x89PNG") && file.len() >= 33 {
        let right = checksum(&file[12..29]);
        file[29..33].copy_from_slice(&right);
    }
}

fn mutated_file(seed: u64, valid_files: &[Vec<u8>]) -> Vec<u8> {
    let mut rng = TestRng(seed);
    let mut file = valid_files[usize::try_from(seed).unwrap() % valid_files.len()].clone();
    let second_file = &valid_files[usize::try_from(rng.next_number()).unwrap() % valid_files.len()];
    for _ in 0..=rng.next_number() % 3 {
        mutate(&mut file, second_file, &mut rng);
    }
    if rng.next_number().is_multiple_of(2) {
        fix_header_checksum(&mut file);
    }
    file
}

/// Compares the header of an accepted file with the results of the other readers that accept it, and returns the number
/// of these readers.
fn compare(seed: u64, file: &[u8], header: ImageHeader) -> u32 {
    let own_size = (header.properties.width, header.properties.height);
    let mut readers = 0;
    if let Ok(size) = imagesize::blob_size(file) {
        let mut other_size = (size.width, size.height);
        if header.properties.format == Format::Webp && &file[12..16] == b"VP8 " {
            // `imagesize` includes the two scaling bits that are stored with each side.
            other_size = (other_size.0 & 0x3fff, other_size.1 & 0x3fff);
        }
        assert_eq!(other_size, (own_size.0 as usize, own_size.1 as usize), "imagesize, seed {seed}");
        readers += 1;
    }
    if header.properties.format == Format::Png
        && let Ok(reader) = ::png::Decoder::new(std::io::Cursor::new(file)).read_info()
    {
        let info = reader.info();
        let alpha =
            info.trns.is_some() || matches!(info.color_type, ::png::ColorType::GrayscaleAlpha | ::png::ColorType::Rgba);
        assert_eq!(((info.width, info.height), alpha), (own_size, header.has_alpha), "png, seed {seed}");
        readers += 1;
    }
    if header.properties.format == Format::Webp
        && let Some(features) = ::webp::BitstreamFeatures::new(file)
    {
        assert_eq!((features.width(), features.height()), own_size, "libwebp, seed {seed}");
        assert!(!features.has_animation(), "libwebp, seed {seed}");
        assert!(features.has_alpha() || !header.has_alpha, "libwebp, seed {seed}");
        readers += 1;
    }
    readers
}

#[test]
fn mutated_files_never_panic_and_other_readers_agree() {
    let mut valid_files: Vec<_> = files::valid_files().into_iter().map(|(_, file, _)| file).collect();
    valid_files.push(files::png(16, 16, 8, 6, &[files::chunk(b"acTL", &[0; 8])]));
    valid_files.push(files::png(10_320, 1, 8, 0, &[]));
    valid_files.push(files::webp(&[files::vp8x(0x02, 16, 16), files::riff_chunk(b"ANMF", &[0; 24])]));
    let (mut accepted, mut comparisons, mut error_counts) = ([0; 3], 0, [0; 8]);
    for seed in 0..FILES {
        let file = mutated_file(seed, &valid_files);
        let properties = probe(&file);
        probe(&file[..file.len().min(64)]);
        match CountingSource::new(&file).inspect() {
            Ok(header) => {
                assert_eq!(properties, Some(header.properties), "seed {seed}");
                accepted[header.properties.format as usize] += 1;
                comparisons += compare(seed, &file, header);
            }
            Err(error) => error_counts[error_index(error)] += 1,
        }
    }
    // The seeds are fixed. These checks show that enough files of each format are accepted, and enough are refused for
    // each of the first five errors.
    assert!(accepted.iter().all(|count| *count > 200), "{accepted:?} accepted");
    assert!(comparisons > 2 * 600, "{comparisons} comparisons with other readers");
    assert!(error_counts[..5].iter().all(|count| *count > 50), "{error_counts:?} refused");
}

fn error_index(error: ImageFileError) -> usize {
    match error {
        ImageFileError::Unknown => 0,
        ImageFileError::Truncated(_) => 1,
        ImageFileError::Damaged(..) => 2,
        ImageFileError::Animated(_) => 3,
        ImageFileError::InvalidSide { .. } => 4,
        ImageFileError::TooFewBytes { .. } => 5,
        ImageFileError::Empty => 6,
        ImageFileError::TooManyParts(_) | ImageFileError::Unreadable(_) => 7,
    }
}
