//! The style sheet, script and images of the pages. They are compiled into the program, and their names contain a
//! digest of their content.
//!
//! The content of a file with a given name never changes, so a browser may cache it for ever.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG};

use super::http_messages::{PageRequest, PageResponse};

/// One static file.
struct StaticAsset {
    /// The name, such as `style-0123456789abcdef.css`.
    name: String,
    entity_tag: String,
    content_type: &'static str,
    bytes: &'static [u8],
}

/// The paths of all static files.
#[derive(Debug)]
pub(super) struct AssetLinks {
    pub(super) style: String,
    pub(super) script: String,
    pub(super) playground: String,
    pub(super) icons: String,
    pub(super) mark: String,
}

static ASSETS: LazyLock<[StaticAsset; 5]> = LazyLock::new(|| {
    [
        StaticAsset::new("style", "css", "text/css; charset=utf-8", include_bytes!("assets/style.css")),
        StaticAsset::new("app", "js", "text/javascript; charset=utf-8", include_bytes!("assets/app.js")),
        StaticAsset::new("playground", "js", "text/javascript; charset=utf-8", include_bytes!("assets/playground.js")),
        StaticAsset::new("icons", "svg", "image/svg+xml", include_bytes!("assets/icons.svg")),
        StaticAsset::new("mark", "svg", "image/svg+xml", include_bytes!("assets/mark.svg")),
    ]
});

/// The paths of all static files.
pub(super) static LINKS: LazyLock<AssetLinks> = LazyLock::new(|| {
    let [style, script, playground, icons, mark] = ASSETS.each_ref().map(|asset| format!("/assets/{}", asset.name));
    AssetLinks { style, script, playground, icons, mark }
});

/// Answers a request for the file with this name; `None` if there is no such file.
pub(super) fn serve_asset(request: &PageRequest, name: &str) -> Option<PageResponse> {
    let asset = ASSETS.iter().find(|asset| asset.name == name)?;
    let is_cached = request.if_none_match.split(',').any(|tag| tag.trim().trim_start_matches("W/") == asset.entity_tag);
    let (status, bytes) = if is_cached { (StatusCode::NOT_MODIFIED, &[][..]) } else { (StatusCode::OK, asset.bytes) };
    let response = PageResponse::new(status, asset.content_type, Bytes::from_static(bytes));
    Some(
        response.with_header(ETAG, &asset.entity_tag).with_header(CACHE_CONTROL, "public, max-age=31536000, immutable"),
    )
}

// === impl StaticAsset ===

impl StaticAsset {
    fn new(stem: &str, extension: &str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        let hex = hex::encode(&digest(&SHA256, bytes).as_ref()[..8]);
        Self { name: format!("{stem}-{hex}.{extension}"), entity_tag: format!("\"{hex}\""), content_type, bytes }
    }
}
