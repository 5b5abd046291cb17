//! QR codes, as the path of an SVG image in the page: the policy of the pages permits no image from elsewhere.

use std::fmt::Write as _;

use qrcodegen::{QrCode as Modules, QrCodeEcc};

/// The width of the light border in modules, as the standard demands it.
const BORDER: i32 = 4;

/// A QR code, to be drawn dark on light.
#[derive(Debug)]
pub(super) struct QrCode {
    /// The width and height with the border, in modules.
    pub(super) size: i32,
    /// The path of the dark modules.
    pub(super) path: String,
}

// === impl QrCode ===

impl QrCode {
    /// The code of a text; `None` if the text is too long for one.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        let modules = Modules::encode_text(text, QrCodeEcc::Medium).ok()?;
        let mut path = String::new();
        for (x, y) in (0..modules.size()).flat_map(|y| (0..modules.size()).map(move |x| (x, y))) {
            // A run of dark modules is one rectangle, which begins at the first of them.
            if !modules.get_module(x, y) || modules.get_module(x - 1, y) {
                continue;
            }
            let width = (x..modules.size()).take_while(|at| modules.get_module(*at, y)).count();
            write!(path, "M{} {}h{width}v1h-{width}z", x + BORDER, y + BORDER).ok()?;
        }
        Some(Self { size: modules.size() + 2 * BORDER, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_has_the_dark_modules_within_the_border() {
        let code = QrCode::of_text("otpauth://totp/imagate:ada?secret=GEZDGNBVGY3TQOJQ").unwrap();
        assert_eq!(code.size, 33 + 2 * BORDER, "version 4 has 33 modules");
        // The first row has the upper edges of two finder patterns.
        assert!(code.path.starts_with("M4 4h7v1h-7z"), "{}", code.path);
        assert!(code.path.contains("M30 4h7v1h-7z"), "{}", code.path);
        assert!(QrCode::of_text(&"x".repeat(3000)).is_none());
    }
}
