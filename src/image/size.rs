//! Pixel sizes: the grammar `<width>x<height>` and the four rules of the specification.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::tables::{GRID_PX, LARGE_ABOVE_PIXELS, MAX_EDGE_PX, MAX_PIXELS, MAX_RATIO, MIN_PIXELS};

/// The width and height of an image in pixels, which obey the four size rules.
///
/// An invalid size cannot be constructed: [`Size::new`] and parsing check every rule.
///
/// ```
/// use imagate::image::Size;
///
/// let size: Size = "1536x1024".parse()?;
/// assert_eq!((size.width(), size.height()), (1536, 1024));
/// assert!(Size::new(1000, 1000).is_err());
/// # Ok::<(), imagate::image::SizeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    width: u32,
    height: u32,
}

/// A size as a request states it: a [`Size`], or a size that the model chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SizeRequest {
    /// The model chooses the size, which need not obey the size rules.
    #[default]
    Auto,
    /// The size in pixels.
    Exact(Size),
}

/// The reason why a size was refused.
///
/// `Display` states the problem and the allowed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// The text is neither of the form `<width>x<height>` nor `auto`.
    #[error("Expected 'auto' or '<width>x<height>' in pixels, such as '1024x1024'.")]
    Grammar,
    /// Rule 1: an edge is too long.
    #[error("The longest edge must be at most {MAX_EDGE_PX} px.")]
    Edge,
    /// Rule 2: an edge is not a multiple of the grid.
    #[error("Width and height must both be divisible by {GRID_PX}.")]
    Grid,
    /// Rule 3: the image is too long and narrow.
    #[error("The long edge must be at most {MAX_RATIO} times the short edge.")]
    Ratio,
    /// Rule 4: the image has too few or too many pixels in total.
    #[error("The total number of pixels must be between {MIN_PIXELS} and {MAX_PIXELS}.")]
    Pixels,
}

// === impl Size ===

impl Size {
    /// Creates a size after checking the four rules.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, in the order of the specification.
    pub const fn new(width: u32, height: u32) -> Result<Self, SizeError> {
        let (long, short) = if width > height { (width, height) } else { (height, width) };
        if long > MAX_EDGE_PX {
            return Err(SizeError::Edge);
        }
        if !width.is_multiple_of(GRID_PX) || !height.is_multiple_of(GRID_PX) {
            return Err(SizeError::Grid);
        }
        // Neither product can overflow: at this point both edges are at most `MAX_EDGE_PX`.
        if long > MAX_RATIO * short {
            return Err(SizeError::Ratio);
        }
        if width * height < MIN_PIXELS || width * height > MAX_PIXELS {
            return Err(SizeError::Pixels);
        }
        Ok(Self { width, height })
    }

    /// Creates a size for an image model that has size rules of its own; it need not obey the four rules. Returns `None`
    /// if an edge is 0, or longer than an image file can state.
    #[cfg(feature = "gateway")]
    const fn for_own_rules(width: u32, height: u32) -> Option<Self> {
        /// The longest edge: with it, the number of pixels still fits 32 bits.
        const MAX_EDGE: u32 = 65_535;
        if width == 0 || height == 0 || width > MAX_EDGE || height > MAX_EDGE {
            return None;
        }
        Some(Self { width, height })
    }

    /// Returns the number of pixels from left to right.
    #[must_use]
    pub const fn width(self) -> u32 {
        self.width
    }

    /// Returns the number of pixels from top to bottom.
    #[must_use]
    pub const fn height(self) -> u32 {
        self.height
    }

    /// Returns width times height.
    #[must_use]
    pub const fn pixels(self) -> u32 {
        self.width * self.height
    }

    /// Returns true for the slow and expensive sizes: more pixels than 2560x1440.
    #[must_use]
    pub const fn is_large(self) -> bool {
        self.pixels() > LARGE_ABOVE_PIXELS
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let (width, height) = text.split_once('x').ok_or(SizeError::Grammar)?;
        Self::new(parse_edge(width)?, parse_edge(height)?)
    }
}

/// Parses one edge: decimal digits without sign or leading zero. A number beyond `u32` is an edge that is too long.
fn parse_edge(digits: &str) -> Result<u32, SizeError> {
    let is_valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    if !is_valid {
        return Err(SizeError::Grammar);
    }
    digits.parse().map_err(|_| SizeError::Edge)
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

// === impl SizeRequest ===

impl SizeRequest {
    /// Returns the requested pixels, or `None` if the model chooses.
    #[must_use]
    pub const fn exact(self) -> Option<Size> {
        match self {
            Self::Auto => None,
            Self::Exact(size) => Some(size),
        }
    }

    /// Parses a size for an image model that has size rules of its own: only the form is checked, not the four rules.
    ///
    /// # Errors
    ///
    /// Returns [`SizeError::Grammar`] for a text of another form, and for an edge that no image file can state.
    #[cfg(feature = "gateway")]
    pub(crate) fn parse_for_own_rules(text: &str) -> Result<Self, SizeError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let (width, height) = text.split_once('x').ok_or(SizeError::Grammar)?;
        let edge = |digits| parse_edge(digits).map_err(|_| SizeError::Grammar);
        Size::for_own_rules(edge(width)?, edge(height)?).map(Self::Exact).ok_or(SizeError::Grammar)
    }
}

impl From<Size> for SizeRequest {
    fn from(size: Size) -> Self {
        Self::Exact(size)
    }
}

impl fmt::Display for SizeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exact(size) => size.fmt(f),
        }
    }
}

impl FromStr for SizeRequest {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Exact)
    }
}

impl Serialize for SizeRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SizeRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<(u32, u32), SizeError>) {
        let parsed = text.parse::<Size>().map(|size| (size.width(), size.height()));
        assert_eq!(parsed, expected, "{text}");
    }

    #[test]
    fn sizes_at_the_limit_of_each_rule_are_accepted() {
        for text in
            ["1024x640", "640x1024", "3840x2160", "2160x3840", "2880x2880", "3072x1024", "3840x1280", "1536x864"]
        {
            assert_eq!(text.parse::<Size>().map(|size| size.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn each_broken_rule_is_named() {
        check("1024x624", Err(SizeError::Pixels));
        check("512x512", Err(SizeError::Pixels));
        check("1408x464", Err(SizeError::Ratio));
        check("1392x464", Err(SizeError::Pixels));
        check("3840x2176", Err(SizeError::Pixels));
        check("3088x1024", Err(SizeError::Ratio));
        check("3856x2160", Err(SizeError::Edge));
        check("1024x1023", Err(SizeError::Grid));
        check("99999999999x16", Err(SizeError::Edge));
        check("16x4294967295", Err(SizeError::Edge));
    }

    #[test]
    fn the_grammar_is_strict() {
        for text in [
            "1024X1024",
            "01024x1024",
            "1024*1024",
            " auto",
            "AUTO",
            "1024",
            "",
            "x",
            "1024x",
            "x1024",
            "+1024x1024",
            "1024x1024 ",
            "1024x1024x1",
            "0x0",
        ] {
            assert_eq!(text.parse::<SizeRequest>(), Err(SizeError::Grammar), "{text}");
        }
        assert_eq!("auto".parse::<SizeRequest>(), Ok(SizeRequest::Auto));
    }

    #[cfg(feature = "gateway")]
    #[test]
    fn a_size_for_other_rules_needs_only_the_form() {
        let parse = |text: &str| SizeRequest::parse_for_own_rules(text).map(|size| size.to_string());
        for text in ["1x1", "512x512", "65535x65535", "auto", "1024x1024"] {
            assert_eq!(parse(text), Ok(text.to_owned()));
        }
        for text in ["0x1", "01x1", "65536x1", "1X1", "1x1x1", "99999999999x1", ""] {
            assert_eq!(parse(text), Err(SizeError::Grammar), "{text}");
        }
    }

    #[test]
    fn large_begins_above_2560x1440() {
        assert_eq!("2560x1440".parse::<Size>().map(Size::is_large), Ok(false));
        assert_eq!("2576x1440".parse::<Size>().map(Size::is_large), Ok(true));
    }
}
