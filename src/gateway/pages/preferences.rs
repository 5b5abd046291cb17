//! Language and theme: stored in the browser, chosen with one button each.

use cookie::Cookie;
use http::Method;

use super::http_messages::PageResponse;
use super::language::Language;
use super::page_context::PageContext;
use super::page_layout::Theme;
use super::routes::{RouteMatch, find_route};

pub(super) const LANGUAGE_COOKIE: &str = "imagate_language";
pub(super) const THEME_COOKIE: &str = "imagate_theme";

/// Stores the choice and returns to the page where it was made.
pub(super) fn change(context: &PageContext<'_>) -> PageResponse {
    let mut response = PageResponse::redirect(&safe_redirect_path(context.request.form_field("back")));
    if let Some(language) = Language::from_code(context.request.form_field("language")) {
        response = response.with_cookie(&preference_cookie(context, LANGUAGE_COOKIE, language.code()));
    }
    let theme = context.request.form_field("theme");
    if !theme.is_empty() {
        response = response.with_cookie(&preference_cookie(
            context,
            THEME_COOKIE,
            Theme::from_code_or_auto(Some(theme)).code(),
        ));
    }
    response
}

fn preference_cookie(context: &PageContext<'_>, name: &'static str, value: &'static str) -> Cookie<'static> {
    let year = cookie::time::Duration::days(365);
    context.cookie(name, value.to_owned()).max_age(year).build()
}

/// The path if it is one of the gateway's pages, else that of the keys: a form must not lead a user elsewhere.
pub(super) fn safe_redirect_path(path: &str) -> String {
    let path_only = path.split(['?', '#']).next().unwrap_or_default();
    let is_plain = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_ours = is_plain && matches!(find_route(&Method::GET, path_only), RouteMatch::Found(_));
    if is_ours { path.to_owned() } else { "/keys".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_ours_is_gone_back_to() {
        for ours in ["/keys", "/usage?key=key_1&since=2026-01-01", "/keys/key_1", "/setup/token"] {
            assert_eq!(safe_redirect_path(ours), ours);
        }
        for foreign in [
            "",
            "//evil.example",
            "https://evil.example/keys",
            "/\\evil.example",
            "/keys\r\nset-cookie: a",
            "/v1/models",
        ] {
            assert_eq!(safe_redirect_path(foreign), "/keys", "{foreign:?}");
        }
    }
}
