//! Hostile texts, frames and hosts, on pages that another user opens.

use serde_json::json;

use super::browser::{Browser, WITH_SCRIPT};
use super::forgery::PAGES;
use super::users::{ADA, ADAS_PASSWORD, invite, make_key, sign_in, sign_in_ada, sign_in_at};
use super::visitor::Visitor;
use crate::kit::{Call, ForeignSite, Gateway, request};

/// Each text opens a dialog, violates the Content Security Policy or disappears from the page if HTML contains it
/// unescaped.
pub(super) const HOSTILE_TEXTS: [&str; 6] = [
    "<script>alert('key')</script>",
    "\"><img src=x onerror=alert(1)>",
    "'-alert(1)-' x='",
    "</title></textarea><svg onload=alert(2)>",
    "{{7*7}} ${7*7} javascript:alert(3)",
    "=HYPERLINK(\"http://evil.example\";\"x\")",
];

#[test]
fn texts_of_callers_and_users_are_escaped_on_every_page() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut paths = Vec::new();
    for text in HOSTILE_TEXTS {
        let (path, secret) = make_key(&mut ada, text);
        let call = Call::generation().key(&secret).json(&request(json!({ "user": text, "size": "1024x1024" })));
        call.send(gateway.address()).ok_json();
        paths.push(path);
        let fields = [("model", text.split(' ').next().unwrap_or_default()), ("source", text)];
        let fields = [&fields[..], &[("from", "2026-01-01"), ("text_output", "1")]].concat();
        assert_eq!(ada.submit("/prices", "/prices", &fields).status, 303, "{text}");
    }
    // Names of users have stricter rules. The form and the audit trail show a refused name again.
    for text in HOSTILE_TEXTS {
        let form = ada.form("/people", "/people").with(&[("name", text), ("role", "member")]);
        let answer = ada.post("/people", &form.fields);
        assert!(!answer.text().contains(text) || !text.contains('<'), "{}", answer.text());
        drop(sign_in(&mut Visitor::new(&gateway), text, "a password that is wrong"));
    }
    gateway.final_records(HOSTILE_TEXTS.len());
    for record in gateway.records() {
        paths.push(format!("/records/{}", record["request_id"].as_str().expect("an id")));
    }
    paths.extend(PAGES.map(str::to_owned));
    for text in HOSTILE_TEXTS {
        paths.push(format!("/keys?search={}", super::visitor::percent_encoded(text)));
        paths.push(format!("/sign-in?next={}", super::visitor::percent_encoded(text)));
    }
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    let mut shown = String::new();
    for path in &paths {
        // `go` panics if the page opens a dialog, runs a script or violates its policy.
        let seen = tab.go(path);
        assert!([200, 400].contains(&seen.status), "{path}: {}", seen.status);
        shown.push_str(&tab.text());
    }
    for text in HOSTILE_TEXTS {
        assert!(shown.matches(text).count() >= 3, "{text} is not on the pages as plain text");
    }
}

#[test]
fn csv_exports_have_no_formulas() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    for formula in ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1+1"] {
        let (_, secret) = make_key(&mut ada, &format!("{formula} x"));
        Call::generation().key(&secret).json(&request(json!({ "user": formula }))).send(gateway.address()).ok_json();
    }
    gateway.final_records(5);
    for path in ["/usage.csv", "/records.csv"] {
        let answer = ada.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/csv")), "{answer:?}");
        let text = answer.text();
        let cells = text.lines().flat_map(|line| line.split(',')).map(|cell| cell.trim_matches('"'));
        let formulas: Vec<&str> = cells.filter(|cell| cell.starts_with(['=', '+', '-', '@', '\t'])).collect();
        assert!(formulas.is_empty(), "{path}: {formulas:?}\n{text}");
        assert!(path != "/records.csv" || text.contains("SUM(A1)"), "{text}");
    }
}

#[test]
fn no_page_loads_in_a_frame_of_another_site() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let origin = format!("http://{}", gateway.address());
    let frames: String =
        ["/keys", "/sign-in", "/profile"].map(|path| format!("<iframe src=\"{origin}{path}\"></iframe>")).concat();
    let page = format!("<!doctype html><html lang=en><title>Game</title>{frames}<p>Click here</p></html>");
    let site = ForeignSite::start(move |path| (path == "/").then(|| ("content-type: text/html", page.clone())));
    let tab = browser.tab_beside(&gateway, WITH_SCRIPT, &[&site.origin()]);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.try_go(&site.origin()).expect("the page of the game");
    tab.wait_for_faults(3, "frame");
    let frames = tab.frames();
    assert_eq!(frames.len(), 3);
    for frame in frames {
        assert!(!frame["url"].as_str().is_some_and(|url| url.starts_with(&origin)), "{frame}");
        assert!(!frame["text"].as_str().is_some_and(|text| text.contains("imagate")), "{frame}");
    }
    let mut ada = Visitor::new(&gateway);
    sign_in(&mut ada, ADA, ADAS_PASSWORD);
    for path in PAGES.into_iter().chain(["/sign-in", "/keys/nothing-here"]) {
        let answer = ada.get(path);
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        let policy = answer.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
        assert!(policy.contains("base-uri 'none'") && policy.contains("form-action 'self'"), "{path}: {policy}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(
            ["no-referrer", "same-origin"].contains(&answer.header("referrer-policy").unwrap_or_default()),
            "{path}"
        );
    }
}

#[test]
fn a_foreign_host_gets_no_page_and_appears_on_no_page() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (key, _) = make_key(&mut ada, "laptop");
    let form = ada.form("/keys", "/keys").with(&[("name", "forged")]);
    let before = ada.get("/keys").text().matches("<tr").count();
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.1", "", "user@127.0.0.1"] {
        for path in PAGES.into_iter().chain(["/sign-in", "/", key.as_str()]) {
            let answer = ada.send(Call::get(path).header("host", host));
            assert!([400, 421].contains(&answer.status), "{host} {path}: {}", answer.status);
            assert!(
                !answer.text().contains("evil") && answer.header("set-cookie").is_none(),
                "{host} {path}: {answer:?}"
            );
        }
        let origin = format!("http://{host}");
        let call = super::visitor::post("/keys", &form.fields).header("host", host).header("origin", &origin);
        assert!([400, 421].contains(&ada.send(call).status), "{host}");
    }
    assert_eq!(ada.get("/keys").text().matches("<tr").count(), before);
    for path in [key.as_str(), "/start", "/keys"] {
        let mut call = Call::get(path);
        for name in ["x-forwarded-host", "x-host", "x-original-host", "x-forwarded-server"] {
            call = call.header(name, "evil.example");
        }
        let call = call.header("forwarded", "host=evil.example;proto=https").header("x-forwarded-proto", "https");
        let answer = ada.send(call.header("x-forwarded-for", "203.0.113.9"));
        assert_eq!(answer.status, 200);
        assert!(!answer.text().contains("evil.example"), "{path}: {}", answer.text());
    }
    assert!(
        ada.get(&key).text().contains(&format!("http://{}/v1", gateway.address())),
        "the page must show the gateway's own address"
    );
    assert!(
        !ada.get("/audit").text().contains("203.0.113.9"),
        "the trail must have the peer address, not the forwarded address"
    );
}

#[test]
fn sign_in_never_redirects_to_another_site() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    for next in [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "/%2F/evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/\r\nset-cookie: x=y",
        " //evil.example",
    ] {
        let mut ada = Visitor::new(&gateway);
        let page = format!("/sign-in?next={}", super::visitor::percent_encoded(next));
        let form = ada.form(&page, "/sign-in").with(&[("name", ADA), ("password", ADAS_PASSWORD)]);
        for form in [form.clone(), form.with(&[("next", next)])] {
            let mut ada = ada.clone();
            let answer = ada.post("/sign-in", &form.fields);
            let to = answer.header("location").unwrap_or_default();
            let is_local_path = to.starts_with('/') && !to.starts_with("//") && !to.contains(['\\', '\t']);
            assert!(answer.status == 303 && is_local_path, "{next:?} leads to {to}: {}", answer.status);
            assert!(!answer.headers.iter().any(|(_, value)| value == "x=y"), "{answer:?}");
            super::users::watch_cookies(&gateway, &ada.cookies);
        }
        let mut ada = Visitor::new(&gateway);
        let form = ada.form("/sign-in", "/sign-in").with(&[
            ("name", ADA),
            ("password", ADAS_PASSWORD),
            ("next", "/usage?days=7"),
        ]);
        assert_eq!(ada.post("/sign-in", &form.fields).header("location"), Some("/usage?days=7"));
    }
}

/// A key, a link or a token is shown only in the answer to the request that created it.
#[test]
fn secrets_that_are_shown_once_are_on_no_other_page() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (key, secret) = make_key(&mut ada, "laptop");
    let answer = ada.submit("/profile", "/profile/tokens", &[("name", "deploy")]);
    let token = super::users::token_in(&answer.text()).expect("a token");
    gateway.watch_secret("an admin token", &token, &[crate::kit::OutputChannel::Key]);
    let link = invite(&mut ada, "cyd", "member");
    for (path, _) in super::forgery::every_page(&mut ada) {
        let html = ada.get(&path).text();
        for hidden in [secret.as_str(), token.as_str(), link.as_str(), ADAS_PASSWORD] {
            assert!(!html.contains(hidden), "{path}");
        }
    }
    // The same form again, as a browser sends it if the user reloads the page.
    let form = ada.form("/keys", "/keys").with(&[("name", "twice")]);
    let first = ada.post("/keys", &form.fields);
    let again = ada.post("/keys", &form.fields);
    assert!(super::users::secret_in(&first.text()).is_some() && super::users::secret_in(&again.text()).is_none());
    assert_eq!(ada.get("/keys").text().matches(">twice<").count(), 1, "the key was made twice");
    let rotated = ada.submit(&key, &format!("{key}/rotate"), &[]);
    let new_secret = super::users::secret_in(&rotated.text()).expect("a new secret");
    gateway.watch_secret("a key", &new_secret, &[crate::kit::OutputChannel::Key]);
    assert!(new_secret != secret && !ada.get(&key).text().contains(&new_secret));
    Call::get("/admin/v1/me").key(&token).send(gateway.address()).ok_json();
    for secret in [&secret, &new_secret] {
        Call::get("/v1/models").key(secret).send(gateway.address()).ok_json();
    }
}

#[test]
fn a_link_cannot_make_a_page_say_that_something_happened() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    for word in ["password", "user-disabled", "price-deleted"] {
        let html = ada.get(&format!("/keys?done={word}")).text();
        assert!(!html.contains("class=\"notice good\""), "{word}: {html}");
    }
    let mut elsewhere = Visitor::new(&gateway);
    let form = elsewhere.form("/sign-in?next=%2Fkeys%3Fdone%3Ddeleted", "/sign-in");
    let signed_in = elsewhere.post("/sign-in", &form.with(&[("name", ADA), ("password", ADAS_PASSWORD)]).fields);
    assert_eq!(signed_in.header("location"), Some("/keys"), "the link chooses the notice after the sign-in");
    super::users::watch_cookies(&gateway, &elsewhere.cookies);
    let (key, _) = make_key(&mut ada, "mine");
    let disabled = ada.submit(&key, &format!("{key}/disable"), &[]);
    let page = disabled.header("location").expect("a page").to_owned();
    assert!(!ada.get("/keys?done=deleted").text().contains("class=\"notice good\""), "another change");
    assert!(ada.get(&page).text().contains("class=\"notice good\""));
    assert!(!ada.get(&page).text().contains("class=\"notice good\""), "the change is stated once");
}

#[test]
fn an_unknown_address_is_a_page_in_a_browser_and_json_for_a_client() {
    let gateway = Gateway::simulated();
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let secret = "sk-img-notakeybutlong-0123456789abcdef";
    for path in ["/nothing", "/a/b/c", &format!("/{secret}")] {
        let page = Call::get(path).header("accept", BROWSER).send(gateway.address());
        assert_eq!((page.status, page.header("content-type")), (404, Some("text/html; charset=utf-8")), "{path}");
        assert!(page.header("content-security-policy").is_some(), "{path}");
        let json = Call::get(path).header("accept", "*/*").send(gateway.address());
        assert_eq!((json.status, json.header("content-type")), (404, Some("application/json")), "{path}");
    }
    for path in ["/v1/nothing", "/admin/v1/nothing"] {
        let answer = Call::get(path).header("accept", BROWSER).send(gateway.address());
        assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/json")), "{path}");
    }
    assert!(!gateway.output().contains(secret), "the address is in the log");
}
