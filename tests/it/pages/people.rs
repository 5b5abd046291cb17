//! The people of these tests, and how they come in.

use super::browser::Tab;
use super::visitor::Visitor;
use crate::kit::{Answer, Gateway, OutputChannel, eventually};

/// With a sign that no token, id or hash has: what is looked for is not found there by chance.
pub(super) const ADA: &str = "ada@desk";
pub(super) const BEN: &str = "ben@desk";
/// With a sign that no token, id or hash has: what is looked for is not found there by chance.
pub(super) const ADAS_PASSWORD: &str = "canary-of-ada-sings-at-dawn";
pub(super) const BENS_PASSWORD: &str = "canary-of-ben-hides-by-night";

/// What may be seen of a one-time link: where it is made, and where it leads.
const LINK: &[OutputChannel] = &[OutputChannel::StartupOutput, OutputChannel::Link];

/// The path of the link that the server prints where nobody can sign in yet.
#[track_caller]
pub(super) fn setup_path(gateway: &Gateway) -> String {
    let path = eventually("a link is printed", || link_in(&gateway.output(), "/setup/"));
    guard_link(gateway, &path);
    path
}

/// The path of a one-time link in a text.
pub(super) fn link_in(text: &str, begins: &str) -> Option<String> {
    let (_, rest) = text.split_once(begins)?;
    let token: String =
        rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || "-_".contains(*letter)).collect();
    (token.len() >= 20).then(|| format!("{begins}{token}"))
}

pub(super) fn guard_link(gateway: &Gateway, path: &str) {
    gateway.watch_secret("a one-time link", path.rsplit('/').next().unwrap_or_default(), LINK);
}

/// From now on the cookies that somebody has are watched.
pub(super) fn guard_cookies<'a>(gateway: &Gateway, cookies: impl IntoIterator<Item = (&'a String, &'a String)>) {
    for (name, value) in cookies {
        if name.contains("imagate_session") {
            gateway.watch_secret("the cookie of a session", value, &[]);
        }
    }
}

pub(super) fn guard_passwords(gateway: &Gateway) {
    for password in [ADAS_PASSWORD, BENS_PASSWORD] {
        gateway.watch_secret("a password", password, &[]);
    }
}

/// A gateway that simulates, with its first administrator, who is signed in.
#[track_caller]
pub(super) fn ada(gateway: &Gateway) -> Visitor<'_> {
    guard_passwords(gateway);
    let path = setup_path(gateway);
    let mut ada = Visitor::to(gateway);
    let fields = [("name", ADA), ("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let answer = ada.submit(&path, &path, &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    guard_cookies(gateway, &ada.cookies);
    ada
}

/// A member, invited by an administrator, who is signed in.
#[track_caller]
pub(super) fn ben<'a>(ada: &mut Visitor<'a>) -> Visitor<'a> {
    let path = invite(ada, BEN, "member");
    let mut ben = Visitor::to(ada.gateway);
    let answer = ben.submit(&path, &path, &[("password", BENS_PASSWORD), ("again", BENS_PASSWORD)]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    guard_cookies(ada.gateway, &ben.cookies);
    ben
}

/// The path of the link that invites somebody.
#[track_caller]
pub(super) fn invite(ada: &mut Visitor<'_>, name: &str, role: &str) -> String {
    let answer = ada.submit("/people", "/people", &[("name", name), ("role", role)]);
    let path = link_in(&answer.text(), "/invitation/");
    let path = path.unwrap_or_else(|| panic!("no link: {} {}", answer.status, answer.text()));
    guard_link(ada.gateway, &path);
    path
}

/// Tries to sign in.
#[track_caller]
pub(super) fn sign_in(visitor: &mut Visitor<'_>, name: &str, password: &str) -> Answer {
    let answer = visitor.submit("/sign-in", "/sign-in", &[("name", name), ("password", password)]);
    guard_cookies(visitor.gateway, &visitor.cookies);
    answer
}

/// The same in a window.
#[track_caller]
pub(super) fn sign_in_at(tab: &Tab<'_>, name: &str, password: &str) {
    tab.go("/sign-in");
    tab.fill("User name", name);
    tab.fill("Password", password);
    let seen = tab.follow("button", "Sign in");
    assert_eq!((seen.status, seen.path.as_str()), (200, "/keys"));
}

/// A key of somebody's own: its path and its secret.
#[track_caller]
pub(super) fn make_key(visitor: &mut Visitor<'_>, name: &str) -> (String, String) {
    let answer = visitor.submit("/keys", "/keys", &[("name", name)]);
    let html = answer.text();
    let secret = secret_in(&html).unwrap_or_else(|| panic!("no secret: {} {html}", answer.status));
    visitor.gateway.watch_secret("a key", &secret, &[OutputChannel::Key]);
    let list = visitor.get("/keys").text();
    let public = secret.split('-').nth(2).expect("a public id").to_owned();
    let before = list.split(&public).next().unwrap_or_default();
    let path = before.rsplit("href=\"").find(|link| link.starts_with("/keys/")).expect("a link to the key");
    (path.split('"').next().unwrap_or_default().to_owned(), secret)
}

/// The secret of a key in a text.
pub(super) fn secret_in(text: &str) -> Option<String> {
    secret_of(text, "sk-img-")
}

/// An admin token in a text.
pub(super) fn token_in(text: &str) -> Option<String> {
    secret_of(text, "sk-adm-")
}

fn secret_of(text: &str, begins: &str) -> Option<String> {
    let at = text.find(begins)?;
    let secret: String =
        text[at..].chars().take_while(|letter| letter.is_ascii_alphanumeric() || "-_".contains(*letter)).collect();
    (secret.len() > 40).then_some(secret)
}
