//! The second factor on the pages: its set-up, the code at a sign-in, recovery codes, and the setting that requires it.

use std::time::{SystemTime, UNIX_EPOCH};

use super::browser::{Browser, WITHOUT_SCRIPT};
use super::users::{ADA, ADAS_PASSWORD, BEN, sign_in, sign_in_ada, sign_in_ben, watch_cookies};
use super::visitor::Visitor;
use crate::kit::{Answer, Gateway, totp_code};

const PAGE: &str = "/profile/second-factor";
const CODE_PAGE: &str = "/sign-in/code";

/// The secret that the set-up page shows.
#[track_caller]
pub(super) fn secret_on(page: &Answer) -> String {
    let html = page.text();
    let (_, rest) = html.split_once("<output id=\"secret\"").unwrap_or_else(|| panic!("no secret: {html}"));
    let (_, text) = rest.split_once('>').expect("an element");
    text.split('<').next().unwrap_or_default().replace(' ', "")
}

/// The recovery codes of a page.
#[track_caller]
pub(super) fn codes_on(page: &Answer) -> Vec<String> {
    let html = page.text();
    let (_, rest) = html.split_once("<output id=\"codes\"").unwrap_or_else(|| panic!("no codes: {html}"));
    let (_, text) = rest.split_once('>').expect("an element");
    text.split('<').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// The code that an app shows now.
pub(super) fn current_code(secret: &str) -> String {
    totp_code(secret, unix_seconds())
}

/// The code of the next step, which the gateway accepts already, because clocks differ.
fn next_code(secret: &str) -> String {
    totp_code(secret, unix_seconds() + 30)
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

/// Sets up a second factor; returns its secret, the code that was used, and the recovery codes.
#[track_caller]
pub(super) fn set_up(visitor: &mut Visitor<'_>) -> (String, String, Vec<String>) {
    let page = visitor.get(PAGE);
    let secret = secret_on(&page);
    visitor.gateway.watch_secret("the secret of a second factor", &secret, &[]);
    let form = super::visitor::forms(&page.text()).into_iter().find(|form| form.action == PAGE).expect("a form");
    let code = current_code(&secret);
    let answer = visitor.post(PAGE, &form.with(&[("code", &code)]).fields);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let codes = codes_on(&answer);
    assert_eq!(codes.len(), 10);
    (secret, code, codes)
}

#[test]
fn a_second_factor_is_asked_for_after_the_password() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let page = ada.get(PAGE);
    assert!(page.text().contains("<svg class=\"qr\" viewBox=") && page.text().contains("h7v1h-7z"), "{}", page.text());
    let refused = ada.submit(PAGE, PAGE, &[("code", "000000")]);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(!ada.get("/profile").text().contains("/profile/second-factor/off"));
    let (secret, used, codes) = set_up(&mut ada);
    assert!(!ada.get("/profile").text().contains(&codes[0]), "recovery codes are shown once");
    assert_eq!(ada.get(PAGE).status, 303, "there is one factor at a time");

    let mut elsewhere = Visitor::new(&gateway);
    let answer =
        elsewhere.submit("/sign-in", "/sign-in", &[("name", ADA), ("password", ADAS_PASSWORD), ("next", "/usage")]);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/sign-in/code?next=%2Fusage")));
    assert_eq!(elsewhere.get("/keys").status, 303, "the password alone opens nothing");
    let question = elsewhere.get("/sign-in/code?next=%2Fusage");
    assert_eq!(question.status, 200);
    assert!(!question.text().contains(ADA), "the page must not say who has signed in: {}", question.text());
    let refused = elsewhere.submit(CODE_PAGE, CODE_PAGE, &[("code", &used)]);
    assert_eq!(refused.status, 422, "a code works once: {}", refused.text());
    let mut thief = Visitor::new(&gateway);
    thief.get("/sign-in");
    let stolen = elsewhere.cookies.iter().filter(|(name, _)| name.contains("pending"));
    thief.cookies.extend(stolen.map(|(name, value)| (name.clone(), value.clone())));
    assert_eq!(thief.get(CODE_PAGE).status, 303, "the cookie belongs to one browser");

    let code = next_code(&secret);
    let form = elsewhere.form("/sign-in/code?next=%2Fusage", CODE_PAGE).with(&[("code", &code)]);
    let answer = elsewhere.post(CODE_PAGE, &form.fields);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/usage")), "{}", answer.text());
    watch_cookies(&gateway, &elsewhere.cookies);
    assert_eq!(elsewhere.get("/keys").status, 200);
    assert!(!elsewhere.cookies.keys().any(|name| name.contains("pending")), "{:?}", elsewhere.cookies);

    sign_in(&mut thief, ADA, ADAS_PASSWORD);
    assert_eq!(thief.submit(CODE_PAGE, CODE_PAGE, &[("code", &code)]).status, 422, "the code was used");
    assert_eq!(thief.submit(CODE_PAGE, CODE_PAGE, &[("code", &codes[0])]).status, 303, "a recovery code");
    watch_cookies(&gateway, &thief.cookies);
    assert_eq!(ada.submit("/profile", "/profile/second-factor/off", &[]).status, 303);
    assert_eq!(sign_in(&mut Visitor::new(&gateway), ADA, ADAS_PASSWORD).header("location"), Some("/studio"));
}

#[test]
fn who_must_have_a_second_factor_sets_it_up_before_anything_else() {
    let gateway = Gateway::with("require_second_factor = \"admins\"", &[]);
    let mut ada = sign_in_ada(&gateway);
    for page in ["/studio", "/keys", "/people", "/profile", "/usage.csv"] {
        let answer = ada.get(page);
        assert_eq!((answer.status, answer.header("location")), (303, Some(PAGE)), "{page}");
    }
    let form = ada.form(PAGE, "/sign-out").with(&[("name", "forced")]);
    for action in ["/keys", "/studio", "/profile/tokens", "/profile/password"] {
        let answer = ada.post(action, &form.fields);
        assert_eq!((answer.status, answer.header("location")), (303, Some(PAGE)), "{action}");
    }
    let (_, _, codes) = set_up(&mut ada);
    assert_eq!(ada.get("/keys").status, 200);
    let mut ben = sign_in_ben(&mut ada);
    assert_eq!(ben.get("/keys").status, 200, "a member need not have one");

    drop(set_up(&mut ben));
    let people = ada.get("/people").text();
    let path = people.split("href=\"").find(|link| link.contains(BEN) && link.starts_with("/people/")).expect("a link");
    let path = path.split('"').next().expect("a path").to_owned();
    assert_eq!(ada.submit(&path, &format!("{path}/reset-factor"), &[]).status, 303);
    assert!(!ada.get(&path).text().contains("reset-factor"));

    let printed = gateway.run_command(&["user", "reset-factor", ADA]);
    assert!(printed.ok_stdout().contains("has no second factor"), "{printed:?}");
    assert_eq!(ada.get("/keys").header("location"), Some(PAGE), "the setting still holds");
    let mut again = Visitor::new(&gateway);
    assert_eq!(sign_in(&mut again, ADA, ADAS_PASSWORD).header("location"), Some("/studio"), "{codes:?}");
}

#[test]
fn a_second_factor_works_in_a_browser_without_scripts() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITHOUT_SCRIPT);
    super::users::sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.go("/profile");
    assert_eq!(tab.follow("link", "Set up").path, PAGE);
    let [secret] = tab.texts_of("#secret").try_into().expect("one secret");
    gateway.watch_secret("the secret of a second factor", &secret, &[]);
    tab.fill("Code", &current_code(&secret.replace(' ', "")));
    assert_eq!(tab.follow("button", "Turn on").status, 200);
    let [codes] = tab.texts_of("#codes").try_into().expect("the codes");
    let codes: Vec<&str> = codes.split_whitespace().collect();
    assert_eq!(codes.len(), 10);
    tab.follow("link", "Go to your profile");
    tab.follow("button", "Sign out");
    tab.go("/sign-in");
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    assert_eq!(tab.follow("button", "Sign in").status, 200);
    tab.fill("Code", codes[0]);
    let seen = tab.follow("button", "Sign in");
    assert_eq!((seen.status, seen.path.as_str()), (200, "/studio"));
}
