//! The style, the script and the pictures of the pages: part of the program, named by what they hold.
//!
//! A name with a digest never means anything else, so a browser may keep it for ever.

use std::fmt::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG};

use super::visit::{Shown, Visit};

/// One file.
struct Asset {
    /// `style-0123456789ab.css`
    name: String,
    tag: String,
    kind: &'static str,
    bytes: &'static [u8],
}

/// The addresses of all of them.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) style: String,
    pub(super) script: String,
    pub(super) icons: String,
    pub(super) mark: String,
}

static ASSETS: LazyLock<[Asset; 4]> = LazyLock::new(|| {
    [
        Asset::new("style", "css", "text/css; charset=utf-8", include_bytes!("assets/style.css")),
        Asset::new("app", "js", "text/javascript; charset=utf-8", include_bytes!("assets/app.js")),
        Asset::new("icons", "svg", "image/svg+xml", include_bytes!("assets/icons.svg")),
        Asset::new("mark", "svg", "image/svg+xml", include_bytes!("assets/mark.svg")),
    ]
});

/// Where they are.
pub(super) static LINKS: LazyLock<Links> = LazyLock::new(|| {
    let [style, script, icons, mark] = ASSETS.each_ref().map(|asset| format!("/assets/{}", asset.name));
    Links { style, script, icons, mark }
});

/// The file of this name; nothing where there is none.
pub(super) fn show(visit: &Visit, name: &str) -> Option<Shown> {
    let asset = ASSETS.iter().find(|asset| asset.name == name)?;
    let is_known = visit.known_tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == asset.tag);
    let (status, bytes) = if is_known { (StatusCode::NOT_MODIFIED, &[][..]) } else { (StatusCode::OK, asset.bytes) };
    let shown = Shown::of(status, asset.kind, Bytes::from_static(bytes));
    Some(shown.with(ETAG, &asset.tag).with(CACHE_CONTROL, "public, max-age=31536000, immutable"))
}

// === impl Asset ===

impl Asset {
    fn new(stem: &str, ending: &str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let mut hex = String::new();
        for byte in digest(&SHA256, bytes).as_ref().iter().take(8) {
            // Writing to a text cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        Self { name: format!("{stem}-{hex}.{ending}"), tag: format!("\"{hex}\""), kind, bytes }
    }
}
