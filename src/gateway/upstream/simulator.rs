//! The simulator: the built-in upstream that draws a test image for every request and costs nothing.
//!
//! The module decides how the image for a request looks, and how many tokens it would roughly have used. It must not
//! know accounts, HTTP or time: the same request gives the same bytes on every machine. It does not await; `draw` must
//! be called on a thread that may block.
//!
//! The first line of every image names the simulator; the image shows size, format, quality, seed and prompt; see
//! `text`. The module implements the rules "output exactly the requested size and format" and "`output_compression`
//! applies only to `jpeg` and `webp`".

mod bitmap_font;
mod encode;
mod render;
mod text;

use crate::image::Format;

/// The longest edge in pixels. No legal size is longer; the limits of the file formats are at least as large.
const MAX_EDGE_PX: u32 = 16_383;

/// One image to draw. A size `auto` is resolved before, see [`resolve_auto`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestImage<'a> {
    /// The text of the request.
    pub(crate) prompt: &'a str,
    /// The index of this image among the `n` images, from 0. Each image has its own seed.
    pub(crate) index: u32,
    /// The number of an intermediate image, from 0. Later intermediate images are finer.
    pub(crate) partial: Option<u32>,
    /// The width in pixels.
    pub(crate) width: u32,
    /// The height in pixels.
    pub(crate) height: u32,
    /// The file format.
    pub(crate) format: Format,
    /// The compression quality: 0 gives the smallest file, 100 the best image; `png` ignores it.
    pub(crate) compression: u8,
    /// The fineness of the grid.
    pub(crate) quality: Detail,
}

impl TestImage<'_> {
    /// Returns the number that determines the colours: a hash of prompt, size, quality and index.
    fn seed(&self) -> u64 {
        let [width, height, index] = [self.width, self.height, self.index].map(u32::to_le_bytes);
        let parts = [&width[..], &height, &index, self.quality.as_str().as_bytes(), self.prompt.as_bytes()];
        // FNV-1a is short and stable; the hasher of `std` may change.
        let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325_u64, add);
        // The low bits of the hash depend too much on the last bytes.
        hash ^ (hash >> 32)
    }
}

/// The level of detail: a `quality` other than `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// `low`
    Low,
    /// `medium`
    Medium,
    /// `high`
    High,
}

impl Detail {
    /// Returns the word of the contract.
    pub(crate) fn as_str(self) -> &'static str {
        self.choose("low", "medium", "high")
    }

    fn choose<T>(self, low: T, medium: T, high: T) -> T {
        match self {
            Self::Low => low,
            Self::Medium => medium,
            Self::High => high,
        }
    }
}

/// The reason why an image could not be drawn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrawError {
    /// An edge is 0 or longer than 16383 pixels.
    #[error("the simulator cannot draw an image of this size")]
    Size,
    /// The encoder failed.
    #[error("the simulator could not encode its image: {0}")]
    Encode(String),
}

impl DrawError {
    fn encode(error: impl std::fmt::Display) -> Self {
        Self::Encode(error.to_string())
    }
}

/// Draws one image and returns the bytes of its file.
///
/// # Errors
/// Returns an error if an edge is 0 or beyond 16383 pixels, or if the encoder fails.
pub(crate) fn draw(image: &TestImage<'_>) -> Result<Vec<u8>, DrawError> {
    if [image.width, image.height].iter().any(|edge| !(1..=MAX_EDGE_PX).contains(edge)) {
        return Err(DrawError::Size);
    }
    encode::encode(image)
}

/// The tokens that the image would have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedUsage {
    /// Text tokens of the prompt.
    pub(crate) input_text: u64,
    /// Image tokens of the request; a generation has none.
    pub(crate) input_image: u64,
    /// Image tokens of all images of the answer.
    pub(crate) output_image: u64,
}

/// The number of pixels for which the figures of [`estimate_tokens`] apply.
const REFERENCE_PIXELS: u64 = 1024 * 1024;

/// Returns plausible token counts for `n` images.
///
/// The figures are our choice, not a price list: at 1024x1024, an image costs the square of 14, 42 or 79 tokens for
/// `low`, `medium` and `high`, and the count grows with the number of pixels. Text costs one token for every four ASCII
/// characters and one for every other character.
pub(crate) fn estimate_tokens(prompt: &str, width: u32, height: u32, quality: Detail, n: u32) -> SimulatedUsage {
    let ascii = prompt.chars().filter(char::is_ascii).count() as u64;
    let non_ascii = prompt.chars().filter(|character| !character.is_ascii()).count() as u64;
    let side: u64 = quality.choose(14, 42, 79);
    let pixels = u64::from(width) * u64::from(height);
    let tokens_per_image = (side * side * pixels).div_ceil(REFERENCE_PIXELS);
    SimulatedUsage {
        input_text: (ascii.div_ceil(4) + non_ascii).max(1),
        input_image: 0,
        output_image: tokens_per_image * u64::from(n),
    }
}

const TALL_WORDS: &str = "portrait tall vertical poster phone upright waterfall bookmark";
const WIDE_WORDS: &str = "landscape panorama panoramic wide widescreen horizontal banner cinematic skyline";

/// Returns the size for `auto`: upright or wide if the prompt has such a word, otherwise square.
pub(crate) fn resolve_auto(prompt: &str) -> (u32, u32) {
    let prompt = prompt.to_lowercase();
    // An English plural also counts as its singular.
    let contains =
        |list: &str, word: &str| list.split(' ').any(|entry| entry == word || Some(entry) == word.strip_suffix('s'));
    let has_word_of =
        |list| prompt.split(|character: char| !character.is_alphanumeric()).any(|word| contains(list, word));
    if has_word_of(TALL_WORDS) {
        (1024, 1536)
    } else if has_word_of(WIDE_WORDS) {
        (1536, 1024)
    } else {
        (1024, 1024)
    }
}

#[cfg(test)]
mod tests;
