//! The nearest available size to a size or aspect ratio that is not available.
//!
//! "Nearest" means: the same aspect ratio first, then the same area. Among the available sizes, those count whose ratio
//! differs by at most [`SAME_RATIO`] from the requested one, or else those whose ratio differs least; the nearest area
//! among them is chosen, and of two equal areas the nearer ratio. An aspect ratio has no area of its own, and an area
//! below the smallest that the API allows is none that a model can make: both count as the [`STANDARD_AREA`].

use std::cmp::Ordering;
use std::sync::LazyLock;

use crate::image::{Size, SizeRequest};
use crate::tables::{GRID_PX, MAX_EDGE_PX, MIN_PIXELS};

/// The factor up to which two aspect ratios count as the same (our choice): 1920x1088 has that of 1920x1080.
const SAME_RATIO: f64 = 1.01;
/// The area of the size 1024x1024, which every model makes.
const STANDARD_AREA: f64 = 1024.0 * 1024.0;
/// The longest edge, and the greatest part of a ratio, that is understood (our choice).
const EDGE_MAX: u32 = 100_000;

/// Every size that obeys the size rules.
static LEGAL_SIZES: LazyLock<Vec<Size>> = LazyLock::new(|| legal_sizes().collect());

/// A requested shape: a ratio of width to height, and an area in pixels.
#[derive(Clone, Copy)]
struct RequestedShape {
    ratio: f64,
    area: f64,
}

/// Returns the nearest available size to a text; `None` if the text is an available size, or neither a size nor a
/// ratio. `listed` has the available sizes; `None` stands for every size that obeys the size rules.
pub(super) fn nearest(text: &str, listed: Option<&[String]>) -> Option<String> {
    let is_available = |listed: &[String]| listed.iter().any(|size| size == text);
    if listed.map_or_else(|| text.parse::<SizeRequest>().is_ok(), is_available) {
        return None;
    }
    let shape = RequestedShape::parse(text)?;
    let nearest = match listed {
        Some(sizes) => shape.nearest_of(sizes.iter().filter_map(|size| size.parse().ok())),
        None => shape.nearest_of(LEGAL_SIZES.iter().copied()),
    };
    nearest.map(|size| size.to_string())
}

/// Returns every size that obeys the size rules.
fn legal_sizes() -> impl Iterator<Item = Size> + Clone {
    let edges = || (1..=MAX_EDGE_PX / GRID_PX).map(|step| step * GRID_PX);
    edges().flat_map(move |width| edges().filter_map(move |height| Size::new(width, height).ok()))
}

// === impl RequestedShape ===

impl RequestedShape {
    /// Reads a size such as `512x512`, or a ratio such as `16:9`.
    fn parse(text: &str) -> Option<Self> {
        let (separator, has_area) = if text.contains(':') { (':', false) } else { ('x', true) };
        let (width, height) = text.split_once(separator)?;
        let (width, height) = (parse_edge(width)?, parse_edge(height)?);
        let area = width * height;
        let has_area = has_area && area >= f64::from(MIN_PIXELS);
        Some(Self { ratio: width / height, area: if has_area { area } else { STANDARD_AREA } })
    }

    fn nearest_of(self, sizes: impl Iterator<Item = Size> + Clone) -> Option<Size> {
        let ratio_distance = |size: Size| (f64::from(size.width()) / f64::from(size.height()) / self.ratio).ln().abs();
        let area_distance = |size: Size| (f64::from(size.pixels()) / self.area).ln().abs();
        let least = sizes.clone().map(ratio_distance).min_by(f64::total_cmp)?;
        // The quotient of two equal ratios can differ by the rounding of the division.
        let allowed = SAME_RATIO.ln().max(least + f64::EPSILON);
        let by_distance = |left: &Size, right: &Size| -> Ordering {
            let by_area = area_distance(*left).total_cmp(&area_distance(*right));
            by_area.then_with(|| ratio_distance(*left).total_cmp(&ratio_distance(*right)))
        };
        sizes.filter(|size| ratio_distance(*size) <= allowed).min_by(by_distance)
    }
}

/// Reads a number from 1 to [`EDGE_MAX`] of plain digits.
fn parse_edge(digits: &str) -> Option<f64> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let number: u32 = digits.parse().ok().filter(|_| is_plain)?;
    (number <= EDGE_MAX).then(|| f64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers that are the same in each run.
    fn numbers(seed: u64) -> impl FnMut(u32) -> u32 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(state >> 33).unwrap() % below
        }
    }

    #[test]
    fn popular_sizes_and_ratios_have_these_neighbours() {
        for (text, expected) in [
            ("512x512", "1024x1024"),
            ("256x256", "1024x1024"),
            ("1000x1000", "1008x1008"),
            ("1920x1080", "1920x1088"),
            ("4096x4096", "2880x2880"),
            ("1:1", "1024x1024"),
            ("3:2", "1248x832"),
            ("2:3", "832x1248"),
            ("16:9", "1360x768"),
            ("9:16", "768x1360"),
            ("100000:1", "1776x592"),
        ] {
            assert_eq!(nearest(text, None).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_available_size_and_other_texts_have_no_neighbour() {
        for text in [
            "auto",
            "1024x1024",
            "1792x1024",
            "",
            "x",
            "0x0",
            "01x1",
            "512x",
            "1:0",
            "-1:1",
            "1x1x1",
            "16/9",
            "100001x1",
        ] {
            assert_eq!(nearest(text, None), None, "{text}");
        }
    }

    #[test]
    fn the_neighbour_of_any_size_is_legal_and_a_legal_size_never_changes() {
        let mut number = numbers(22);
        for _ in 0..300 {
            let (width, height) = (1 + number(5000), 1 + number(5000));
            let separator = if number(2) == 0 { 'x' } else { ':' };
            let text = format!("{width}{separator}{height}");
            if let Some(new) = nearest(&text, None) {
                assert!(new.parse::<Size>().is_ok(), "{text}: {new}");
                assert!(text.parse::<Size>().is_err(), "{text} is legal, but became {new}");
                assert_eq!(nearest(&new, None), None, "{text}: {new}");
            } else {
                assert!(text.parse::<Size>().is_ok(), "{text} has no neighbour");
            }
        }
        let legal: Vec<_> = legal_sizes().collect();
        for _ in 0..300 {
            let size = legal[number(u32::try_from(legal.len()).unwrap()) as usize];
            assert_eq!(nearest(&size.to_string(), None), None, "{size}");
        }
    }

    #[test]
    fn no_legal_size_has_the_same_ratio_and_a_nearer_area() {
        let mut number = numbers(7);
        for _ in 0..100 {
            let (width, height) = (1 + number(4000), 1 + number(4000));
            let Some(new) = nearest(&format!("{width}x{height}"), None) else { continue };
            let new: Size = new.parse().unwrap();
            let area = if width * height < MIN_PIXELS { 1024 * 1024 } else { width * height };
            // The ratios as cross products of whole numbers, in thousandths of the smaller one.
            let (wide, high) = (u64::from(width), u64::from(height));
            let has_same_ratio = |size: Size| {
                let (left, right) = (u64::from(size.width()) * high, u64::from(size.height()) * wide);
                left.max(right) * 1000 <= left.min(right) * 1010
            };
            let distance = |size: Size| {
                let (less, more) = (area.min(size.pixels()), area.max(size.pixels()));
                f64::from(more) / f64::from(less)
            };
            let same: Vec<_> = legal_sizes().filter(|size| has_same_ratio(*size)).collect();
            assert!(same.is_empty() || has_same_ratio(new), "{width}x{height}: {new} has another ratio");
            let nearer = same.into_iter().find(|size| distance(*size) < distance(new) - 1e-9);
            assert_eq!(nearer, None, "{width}x{height}: {new}");
        }
    }

    #[test]
    fn a_model_with_a_list_of_sizes_gets_one_of_them() {
        let sizes = ["auto", "1024x1024", "1536x1024", "3840x2160"].map(str::to_owned);
        for (text, expected) in [
            ("512x512", Some("1024x1024")),
            ("1024x1024", None),
            ("auto", None),
            ("1792x1024", Some("3840x2160")),
            ("3:2", Some("1536x1024")),
            ("9:16", Some("1024x1024")),
            ("word", None),
        ] {
            assert_eq!(nearest(text, Some(&sizes)).as_deref(), expected, "{text}");
        }
        assert_eq!(nearest("512x512", Some(&["auto".to_owned()])), None);
    }
}
