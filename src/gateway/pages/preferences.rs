//! The choice of language and theme, which is stored in cookies of the browser.

use cookie::Cookie;
use http::Method;

use super::http_messages::{PageResponse, UrlEncodedFields};
use super::language::Language;
use super::page_context::PageContext;
use super::page_layout::Theme;
use super::routes::{RouteMatch, find_route};

pub(super) const LANGUAGE_COOKIE: &str = "imagate_language";
pub(super) const THEME_COOKIE: &str = "imagate_theme";

/// Stores the choice in cookies, and redirects to the page where the choice was made.
pub(super) fn change(context: &PageContext<'_>) -> PageResponse {
    let mut response = PageResponse::redirect(&safe_redirect_path(context.request.form_field("back")));
    if let Ok(language) = context.request.form_field("language").parse::<Language>() {
        response = response.with_cookie(&preference_cookie(context, LANGUAGE_COOKIE, language.as_str()));
    }
    let theme = context.request.form_field("theme");
    if !theme.is_empty() {
        response = response.with_cookie(&preference_cookie(
            context,
            THEME_COOKIE,
            Theme::from_code_or_auto(Some(theme)).as_str(),
        ));
    }
    response
}

fn preference_cookie(context: &PageContext<'_>, name: &'static str, value: &'static str) -> Cookie<'static> {
    let lifetime = cookie::time::Duration::days(365);
    context.cookie(name, value.to_owned()).max_age(lifetime).build()
}

/// Returns the path if it is that of a page of the gateway, else `/keys`. A forged form must not redirect a user to
/// another site.
pub(super) fn safe_redirect_path(path: &str) -> String {
    let path_only = path.split(['?', '#']).next().unwrap_or_default();
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_page = is_path && matches!(find_route(&Method::GET, path_only), RouteMatch::Found(_));
    if !is_page {
        return "/keys".to_owned();
    }
    // A link must not choose the notice that the page shows after a sign-in.
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let fields = UrlEncodedFields::parse(query.split('#').next().unwrap_or_default().as_bytes());
    if fields.get("done").is_empty() { path.to_owned() } else { path_only.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_only_to_pages_of_the_gateway() {
        for page in ["/keys", "/usage?key=key_1&since=2026-01-01", "/keys/key_1", "/setup/token"] {
            assert_eq!(safe_redirect_path(page), page);
        }
        assert_eq!(safe_redirect_path("/keys?done=deleted"), "/keys", "a notice");
        assert_eq!(safe_redirect_path("/usage?key=key_1&%64one=saved#a"), "/usage", "an encoded notice");
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
