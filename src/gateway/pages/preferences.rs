//! Language and theme: stored in the browser, chosen with one button each.

use cookie::Cookie;
use http::Method;

use super::desk::PageContext;
use super::frame::Theme;
use super::language::Language;
use super::route::{RouteMatch, find};
use super::visit::PageResponse;

pub(super) const LANGUAGE_COOKIE: &str = "imagate_language";
pub(super) const THEME_COOKIE: &str = "imagate_theme";

/// Stores the choice and returns to the page where it was made.
pub(super) fn change(desk: &PageContext<'_>) -> PageResponse {
    let mut shown = PageResponse::see(&local(desk.visit.sent("back")));
    if let Some(language) = Language::from_code(desk.visit.sent("language")) {
        shown = shown.set(&kept(desk, LANGUAGE_COOKIE, language.code()));
    }
    let theme = desk.visit.sent("theme");
    if !theme.is_empty() {
        shown = shown.set(&kept(desk, THEME_COOKIE, Theme::of(Some(theme)).code()));
    }
    shown
}

fn kept(desk: &PageContext<'_>, name: &'static str, value: &'static str) -> Cookie<'static> {
    let year = cookie::time::Duration::days(365);
    desk.cookie(name, value.to_owned()).max_age(year).build()
}

/// The path if it is one of the gateway's pages, else that of the keys: a form must not lead a user elsewhere.
pub(super) fn local(path: &str) -> String {
    let bare = path.split(['?', '#']).next().unwrap_or_default();
    let is_plain = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_ours = is_plain && matches!(find(&Method::GET, bare), RouteMatch::Here(_));
    if is_ours { path.to_owned() } else { "/keys".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_ours_is_gone_back_to() {
        for ours in ["/keys", "/usage?key=key_1&since=2026-01-01", "/keys/key_1", "/setup/token"] {
            assert_eq!(local(ours), ours);
        }
        for foreign in [
            "",
            "//evil.example",
            "https://evil.example/keys",
            "/\\evil.example",
            "/keys\r\nset-cookie: a",
            "/v1/models",
        ] {
            assert_eq!(local(foreign), "/keys", "{foreign:?}");
        }
    }
}
