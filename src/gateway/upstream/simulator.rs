//! The simulator: the built-in upstream that draws images itself and costs nothing.
//!
//! Decides what a prompt looks like when no model is there, and what it would roughly have cost.
//! Refuses to know accounts, HTTP and time: the same picture request gives the same bytes,
//! on every machine, for ever. Nothing here awaits; call `draw` where blocking is allowed.
//!
//! Every picture carries a label that says what drew it; see `banner`.
//! Carries the rules "output exactly the requested size and format" and
//! "`output_compression` applies only to `jpeg` and `webp`".

mod banner;
mod canvas;
mod city;
mod colour;
mod encode;
mod extras;
mod font;
mod land;
mod massif;
mod number;
mod places;
mod plants;
mod scene;
mod sky;
mod skyline;
mod water;
mod words;

use crate::image::Format;

/// No legal size is longer; the files' own limits are far above.
const MAX_EDGE_PX: u32 = 16_383;

/// One image to draw. `auto` is settled before, see [`resolve_auto`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picture<'a> {
    /// The text of the request.
    pub(crate) prompt: &'a str,
    /// Which of the `n` images this is, from 0; each is another view.
    pub(crate) index: u32,
    /// Pixels across.
    pub(crate) width: u32,
    /// Pixels down.
    pub(crate) height: u32,
    /// The file format.
    pub(crate) format: Format,
    /// 0 the smallest file, 100 the best picture; `png` ignores it.
    pub(crate) compression: u8,
    /// How much work to put in.
    pub(crate) quality: Detail,
}

/// `quality` without its `auto`.
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
    fn choose<T>(self, low: T, medium: T, high: T) -> T {
        match self {
            Self::Low => low,
            Self::Medium => medium,
            Self::High => high,
        }
    }
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrawError {
    /// An edge is 0 or longer than any format allows.
    #[error("the simulator cannot draw a picture of this size")]
    Size,
    /// The encoder gave up.
    #[error("the simulator could not encode its picture: {0}")]
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
/// Where an edge is 0 or beyond 16383 pixels, or where the encoder runs out of memory.
pub(crate) fn draw(picture: &Picture<'_>) -> Result<Vec<u8>, DrawError> {
    let canvas = compose(picture)?;
    encode::encode(&canvas, picture.format, picture.compression)
}

fn compose(picture: &Picture<'_>) -> Result<canvas::Canvas, DrawError> {
    let edge = |px: u32| i32::try_from(px).ok().filter(|_| (1..=MAX_EDGE_PX).contains(&px)).ok_or(DrawError::Size);
    let (width, height) = (edge(picture.width)?, edge(picture.height)?);
    let mut canvas = canvas::Canvas::new(width, height, picture.quality.choose(2, 3, 4));
    let plan = words::Plan::of(picture.prompt, picture.index);
    scene::paint(&mut canvas, &plan, picture.quality);
    banner::paint(&mut canvas, picture.prompt);
    Ok(canvas)
}

/// What the image would have used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Text tokens of the prompt.
    pub(crate) input_text: u64,
    /// Image tokens of the request; a generation has none.
    pub(crate) input_image: u64,
    /// Image tokens of all images of the answer.
    pub(crate) output_image: u64,
}

/// Pixels at which the figures below hold.
const REFERENCE_PIXELS: u64 = 1024 * 1024;

/// Plausible token counts for `n` images.
///
/// The figures are ours and no price list: at 1024x1024 an image is 14, 42 or 79 squared tokens
/// for `low`, `medium` and `high`, and it grows with the number of pixels.
/// Text is a token for every four ASCII letters and one for every other character.
pub(crate) fn tokens(prompt: &str, width: u32, height: u32, quality: Detail, n: u32) -> Tokens {
    let ascii = prompt.chars().filter(char::is_ascii).count() as u64;
    let others = prompt.chars().filter(|letter| !letter.is_ascii()).count() as u64;
    let side: u64 = quality.choose(14, 42, 79);
    let pixels = u64::from(width) * u64::from(height);
    let each = (side * side * pixels).div_ceil(REFERENCE_PIXELS);
    Tokens { input_text: (ascii.div_ceil(4) + others).max(1), input_image: 0, output_image: each * u64::from(n) }
}

const TALL: &str = "portrait tall vertical poster phone upright waterfall bookmark";
const WIDE: &str = "landscape panorama panoramic wide widescreen horizontal banner cinematic skyline";

/// The size for `auto`: upright or wide where a word of the prompt says so, else square.
pub(crate) fn resolve_auto(prompt: &str) -> (u32, u32) {
    let words = words::words(prompt);
    if words::any(TALL, &words) {
        (1024, 1536)
    } else if words::any(WIDE, &words) {
        (1536, 1024)
    } else {
        (1024, 1024)
    }
}

#[cfg(test)]
mod tests;
