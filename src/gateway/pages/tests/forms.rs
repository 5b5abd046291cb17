//! The forms that are accepted.

use std::net::{IpAddr, Ipv4Addr};

use http::Method;

use crate::gateway::pages::guard::{has_token, is_from_home};
use crate::gateway::pages::host::SiteOrigin;
use crate::gateway::pages::{PageRequest, UrlEncodedFields};

pub(super) fn visit() -> PageRequest {
    PageRequest {
        method: Method::POST,
        path: "/keys".to_owned(),
        query: UrlEncodedFields::default(),
        form: Ok(UrlEncodedFields::default()),
        cookies: String::new(),
        host: Some("127.0.0.1:8080".to_owned()),
        origin: None,
        fetch_site: None,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        agent: String::new(),
        languages: String::new(),
        known_tags: String::new(),
    }
}

#[track_caller]
fn check_origin(origin: Option<&str>, fetch_site: Option<&str>, expected: bool) {
    let home = SiteOrigin::of(Some("127.0.0.1:8080"), None).unwrap();
    let visit = PageRequest { origin: origin.map(str::to_owned), fetch_site: fetch_site.map(str::to_owned), ..visit() };
    assert_eq!(is_from_home(&visit, &home), expected, "{origin:?} {fetch_site:?}");
}

#[test]
fn a_form_counts_only_where_the_browser_says_that_it_stands_on_our_address() {
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
        // The origin always outweighs `Sec-Fetch-Site`.
        check_origin(Some(origin), Some("same-origin"), false);
    }
}

#[test]
fn a_form_counts_only_with_the_token_that_was_put_into_it() {
    let with = |body: &str| PageRequest { form: Ok(UrlEncodedFields::read(body.as_bytes())), ..visit() };
    assert!(has_token(&with("csrf=token&name=a"), "token"));
    for body in ["", "csrf=", "csrf=Token", "csrf=toke", "csrf=token1", "name=token", "csrf=other&csrf=token"] {
        assert!(!has_token(&with(body), "token"), "{body}");
    }
    // Without a token of the gateway no form is accepted, and least of all an empty token.
    assert!(!has_token(&with("csrf="), ""));
    assert!(!has_token(&visit(), ""));
}

#[test]
fn a_cookie_that_comes_twice_is_none() {
    let visit = PageRequest { cookies: "a=1; imagate_session=one; b=2".to_owned(), ..visit() };
    assert_eq!(visit.cookie("imagate_session").as_deref(), Some("one"));
    assert_eq!(visit.cookie("session"), None);
    let planted = PageRequest { cookies: "imagate_session=one; imagate_session=two".to_owned(), ..visit };
    assert_eq!(planted.cookie("imagate_session"), None);
}
