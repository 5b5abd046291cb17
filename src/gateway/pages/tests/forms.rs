//! Tests of the checks that decide whether a form is accepted.

use crate::gateway::pages::csrf::{has_token, is_same_origin};
use crate::gateway::pages::site_origin::SiteOrigin;
use crate::gateway::pages::{PageRequest, UrlEncodedFields};

pub(super) fn post_request() -> PageRequest {
    let request = PageRequest::with_form(b"");
    PageRequest { path: "/keys".to_owned(), host: Some("127.0.0.1:8080".to_owned()), ..request }
}

#[track_caller]
fn check_origin(origin: Option<&str>, fetch_site: Option<&str>, expected: bool) {
    let site = SiteOrigin::from_host(Some("127.0.0.1:8080"), None).unwrap();
    let request =
        PageRequest { origin: origin.map(str::to_owned), fetch_site: fetch_site.map(str::to_owned), ..post_request() };
    assert_eq!(is_same_origin(&request, &site), expected, "{origin:?} {fetch_site:?}");
}

#[test]
fn a_form_is_accepted_only_from_the_same_origin() {
    check_origin(Some("http://127.0.0.1:8080"), None, true);
    check_origin(Some("http://127.0.0.1:8080"), Some("same-origin"), true);
    check_origin(None, Some("same-origin"), true);
    check_origin(None, None, false);
    for site in ["same-site", "cross-site", "none", "", "SAME-ORIGIN"] {
        check_origin(None, Some(site), false);
    }
    for origin in [
        "null",
        "",
        "https://127.0.0.1:8080",
        "http://127.0.0.1",
        "http://127.0.0.1:8081",
        "http://localhost:8080",
        "http://127.0.0.1:8080.evil.example",
        "http://evil.example",
    ] {
        check_origin(Some(origin), None, false);
        // `Origin` has priority over `Sec-Fetch-Site`.
        check_origin(Some(origin), Some("same-origin"), false);
    }
}

#[test]
fn a_form_is_accepted_only_with_its_token() {
    let request_with =
        |body: &str| PageRequest { form: Ok(UrlEncodedFields::parse(body.as_bytes())), ..post_request() };
    assert!(has_token(&request_with("csrf=token&name=a"), "token"));
    for body in ["", "csrf=", "csrf=Token", "csrf=toke", "csrf=token1", "name=token", "csrf=other&csrf=token"] {
        assert!(!has_token(&request_with(body), "token"), "{body}");
    }
    // If the visitor has no token, no form is accepted, not even a form with an empty token.
    assert!(!has_token(&request_with("csrf="), ""));
    assert!(!has_token(&post_request(), ""));
}

#[test]
fn a_duplicate_cookie_is_ignored() {
    let request = PageRequest { cookies: "a=1; imagate_session=one; b=2".to_owned(), ..post_request() };
    assert_eq!(request.cookie("imagate_session").as_deref(), Some("one"));
    assert_eq!(request.cookie("session"), None);
    let duplicate = PageRequest { cookies: "imagate_session=one; imagate_session=two".to_owned(), ..request };
    assert_eq!(duplicate.cookie("imagate_session"), None);
}
