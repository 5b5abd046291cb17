//! The forms that are accepted.

use std::net::{IpAddr, Ipv4Addr};

use http::Method;

use crate::gateway::pages::csrf::{has_token, is_same_origin};
use crate::gateway::pages::site_origin::SiteOrigin;
use crate::gateway::pages::{PageRequest, UrlEncodedFields};

pub(super) fn post_request() -> PageRequest {
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
        user_agent: String::new(),
        accept_language: String::new(),
        if_none_match: String::new(),
    }
}

#[track_caller]
fn check_origin(origin: Option<&str>, fetch_site: Option<&str>, expected: bool) {
    let site = SiteOrigin::from_host(Some("127.0.0.1:8080"), None).unwrap();
    let request =
        PageRequest { origin: origin.map(str::to_owned), fetch_site: fetch_site.map(str::to_owned), ..post_request() };
    assert_eq!(is_same_origin(&request, &site), expected, "{origin:?} {fetch_site:?}");
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
    let with = |body: &str| PageRequest { form: Ok(UrlEncodedFields::parse(body.as_bytes())), ..post_request() };
    assert!(has_token(&with("csrf=token&name=a"), "token"));
    for body in ["", "csrf=", "csrf=Token", "csrf=toke", "csrf=token1", "name=token", "csrf=other&csrf=token"] {
        assert!(!has_token(&with(body), "token"), "{body}");
    }
    // Without a token of the gateway no form is accepted, and least of all an empty token.
    assert!(!has_token(&with("csrf="), ""));
    assert!(!has_token(&post_request(), ""));
}

#[test]
fn a_cookie_that_comes_twice_is_none() {
    let request = PageRequest { cookies: "a=1; imagate_session=one; b=2".to_owned(), ..post_request() };
    assert_eq!(request.cookie("imagate_session").as_deref(), Some("one"));
    assert_eq!(request.cookie("session"), None);
    let planted = PageRequest { cookies: "imagate_session=one; imagate_session=two".to_owned(), ..request };
    assert_eq!(planted.cookie("imagate_session"), None);
}
