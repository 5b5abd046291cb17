//! Thousands of damaged files: no panic, bounded reads, and other readers agree on the accepted files.

use super::super::png::checksum;
use super::{Counted, ImageFileError, ImageHeader, files, probe};
use crate::image::Format;

/// The number of files per run. The seed is the number of the file, so a failure names the file to repeat.
const FILES: u64 = 6_000;

/// Values that break length fields.
const EVIL: [u32; 12] = [0, 1, 7, 12, 255, 256, 65_535, 65_536, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];

/// A generator of numbers that look random and are the same in every run (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, more often near zero, because the structure is at the start of the file.
    fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1);
        let near = if self.roll().is_multiple_of(2) { limit } else { limit.min(80) };
        usize::try_from(self.roll()).unwrap() % near
    }
}

/// Applies one change to a file.
fn mutate(file: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let place = dice.below(file.len());
    match dice.roll() % 7 {
        0 => file.truncate(place),
        1 | 2 => {
            if let Some(byte) = file.get_mut(place) {
                *byte ^= 1 << (dice.roll() % 8);
            }
        }
        3 => {
            let number = EVIL[dice.below(EVIL.len())];
            let number = if dice.roll().is_multiple_of(2) { number.to_be_bytes() } else { number.to_le_bytes() };
            if let Some(field) = file.get_mut(place..place + 4) {
                field.copy_from_slice(&number);
            }
        }
        4 => drop(file.splice(place.., other[dice.below(other.len())..].to_vec())),
        5 => {
            let end = (place + dice.below(64)).min(file.len());
            let piece = file[place.min(end)..end].to_vec();
            drop(file.splice(place..place, piece));
        }
        _ => {
            let end = (place + dice.below(64)).min(file.len());
            drop(file.drain(place.min(end)..end));
        }
    }
}

/// Corrects the checksum of a PNG header, so that the code after that check is reached.
fn mend(file: &mut [u8]) {
    if file.starts_with(b"\x89PNG") && file.len() >= 33 {
        let right = checksum(&file[12..29]);
        file[29..33].copy_from_slice(&right);
    }
}

fn spoiled(seed: u64, whole: &[Vec<u8>]) -> Vec<u8> {
    let mut dice = Dice(seed);
    let mut file = whole[usize::try_from(seed).unwrap() % whole.len()].clone();
    let other = &whole[usize::try_from(dice.roll()).unwrap() % whole.len()];
    for _ in 0..=dice.roll() % 3 {
        mutate(&mut file, other, &mut dice);
    }
    if dice.roll().is_multiple_of(2) {
        mend(&mut file);
    }
    file
}

/// Compares an accepted file with every other reader that accepts it too, and returns the number of these readers.
fn compare(seed: u64, file: &[u8], header: ImageHeader) -> u32 {
    let ours = (header.properties.width, header.properties.height);
    let mut judges = 0;
    if let Ok(size) = imagesize::blob_size(file) {
        let mut theirs = (size.width, size.height);
        if header.properties.format == Format::Webp && &file[12..16] == b"VP8 " {
            // This reader includes the two scaling bits in the number.
            theirs = (theirs.0 & 0x3fff, theirs.1 & 0x3fff);
        }
        assert_eq!(theirs, (ours.0 as usize, ours.1 as usize), "imagesize, seed {seed}");
        judges += 1;
    }
    if header.properties.format == Format::Png
        && let Ok(reader) = ::png::Decoder::new(std::io::Cursor::new(file)).read_info()
    {
        let info = reader.info();
        let alpha =
            info.trns.is_some() || matches!(info.color_type, ::png::ColorType::GrayscaleAlpha | ::png::ColorType::Rgba);
        assert_eq!(((info.width, info.height), alpha), (ours, header.has_alpha), "png, seed {seed}");
        judges += 1;
    }
    if header.properties.format == Format::Webp
        && let Some(features) = ::webp::BitstreamFeatures::new(file)
    {
        assert_eq!((features.width(), features.height()), ours, "libwebp, seed {seed}");
        assert!(!features.has_animation(), "libwebp, seed {seed}");
        assert!(features.has_alpha() || !header.has_alpha, "libwebp, seed {seed}");
        judges += 1;
    }
    judges
}

#[test]
fn spoiled_files_never_panic_and_what_is_accepted_is_what_others_see() {
    let mut whole: Vec<_> = files::whole().into_iter().map(|(_, file, _)| file).collect();
    whole.push(files::png(16, 16, 8, 6, &[files::chunk(b"acTL", &[0; 8])]));
    whole.push(files::png(10_320, 1, 8, 0, &[]));
    whole.push(files::webp(&[files::vp8x(0x02, 16, 16), files::piece(b"ANMF", &[0; 24])]));
    let (mut accepted, mut judged, mut kinds) = ([0; 3], 0, [0; 8]);
    for seed in 0..FILES {
        let file = spoiled(seed, &whole);
        let facts = probe(&file);
        probe(&file[..file.len().min(64)]);
        match Counted::new(&file).inspect() {
            Ok(header) => {
                assert_eq!(facts, Some(header.properties), "seed {seed}");
                accepted[header.properties.format as usize] += 1;
                judged += compare(seed, &file, header);
            }
            Err(flaw) => kinds[kind(flaw)] += 1,
        }
    }
    // The seeds are fixed; these checks show that the mutations reach all branches, not only the first.
    assert!(accepted.iter().all(|count| *count > 200), "{accepted:?} accepted");
    assert!(judged > 2 * 600, "{judged} opinions of other readers");
    assert!(kinds[..5].iter().all(|count| *count > 50), "{kinds:?} refused");
}

fn kind(flaw: ImageFileError) -> usize {
    match flaw {
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
