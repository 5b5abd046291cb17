//! The users of the page tests, and their sign-in.

use super::browser::Tab;
use super::visitor::Visitor;
use crate::kit::{Answer, Gateway, OutputChannel, eventually};

/// Contains `@`, which no token, id or hash contains, so that a search for the name never matches such a value.
pub(crate) const ADA: &str = "ada@desk";
pub(crate) const BEN: &str = "ben@desk";
/// Contains words that no token, id or hash contains, so that a search cannot match such a value by chance.
pub(crate) const ADAS_PASSWORD: &str = "canary-of-ada-sings-at-dawn";
pub(crate) const BENS_PASSWORD: &str = "canary-of-ben-hides-by-night";

/// The outputs that may contain the token of a one-time link: the output at startup, and the pages of the link.
const LINK: &[OutputChannel] = &[OutputChannel::StartupOutput, OutputChannel::Link];

/// The path of the setup link, which the server prints if there is no user yet.
#[track_caller]
pub(crate) fn setup_path(gateway: &Gateway) -> String {
    let path = eventually("a link is printed", || link_in(&gateway.output(), "/setup/"));
    watch_link(gateway, &path);
    path
}

/// The path of a one-time link in a text.
pub(super) fn link_in(text: &str, prefix: &str) -> Option<String> {
    let (_, rest) = text.split_once(prefix)?;
    let token: String =
        rest.chars().take_while(|letter| letter.is_ascii_alphanumeric() || "-_".contains(*letter)).collect();
    (token.len() >= 20).then(|| format!("{prefix}{token}"))
}

/// From now on, the token of the link must not appear in any output but those of [`LINK`].
pub(super) fn watch_link(gateway: &Gateway, path: &str) {
    gateway.watch_secret("a one-time link", path.rsplit('/').next().unwrap_or_default(), LINK);
}

/// From now on, the session cookies must not appear in any output.
pub(crate) fn watch_cookies<'a>(gateway: &Gateway, cookies: impl IntoIterator<Item = (&'a String, &'a String)>) {
    for (name, value) in cookies {
        if name.contains("imagate_session") {
            gateway.watch_secret("the cookie of a session", value, &[]);
        }
    }
}

pub(super) fn watch_passwords(gateway: &Gateway) {
    for password in [ADAS_PASSWORD, BENS_PASSWORD] {
        gateway.watch_secret("a password", password, &[]);
    }
}

/// Creates the first administrator of a gateway, who is then signed in.
#[track_caller]
pub(crate) fn sign_in_ada(gateway: &Gateway) -> Visitor<'_> {
    watch_passwords(gateway);
    let path = setup_path(gateway);
    let mut ada = Visitor::new(gateway);
    let fields = [("name", ADA), ("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let answer = ada.submit(&path, &path, &fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    watch_cookies(gateway, &ada.cookies);
    ada
}

/// Invites a member, who accepts and is then signed in.
#[track_caller]
pub(super) fn sign_in_ben<'a>(ada: &mut Visitor<'a>) -> Visitor<'a> {
    let path = invite(ada, BEN, "member");
    let mut ben = Visitor::new(ada.gateway);
    let answer = ben.submit(&path, &path, &[("password", BENS_PASSWORD), ("again", BENS_PASSWORD)]);
    assert_eq!(answer.status, 303, "{}", answer.text());
    watch_cookies(ada.gateway, &ben.cookies);
    ben
}

/// Invites a user, and returns the path of the invitation link.
#[track_caller]
pub(crate) fn invite(ada: &mut Visitor<'_>, name: &str, role: &str) -> String {
    let answer = ada.submit("/people", "/people", &[("name", name), ("role", role)]);
    let path = link_in(&answer.text(), "/invitation/");
    let path = path.unwrap_or_else(|| panic!("no link: {} {}", answer.status, answer.text()));
    watch_link(ada.gateway, &path);
    path
}

/// Sends the sign-in form, and returns its answer.
#[track_caller]
pub(crate) fn sign_in(visitor: &mut Visitor<'_>, name: &str, password: &str) -> Answer {
    let answer = visitor.submit("/sign-in", "/sign-in", &[("name", name), ("password", password)]);
    watch_cookies(visitor.gateway, &visitor.cookies);
    answer
}

/// Signs in through the form in a browser window.
#[track_caller]
pub(super) fn sign_in_at(tab: &Tab<'_>, name: &str, password: &str) {
    tab.go("/sign-in");
    tab.fill("User name", name);
    tab.fill("Password", password);
    let seen = tab.follow("button", "Sign in");
    assert_eq!((seen.status, seen.path.as_str()), (200, "/studio"));
}

/// Makes a key for the signed-in user; returns the path of its page and its secret.
#[track_caller]
pub(super) fn make_key(visitor: &mut Visitor<'_>, name: &str) -> (String, String) {
    let answer = visitor.submit("/keys", "/keys", &[("name", name)]);
    let html = answer.text();
    let secret = secret_in(&html).unwrap_or_else(|| panic!("no secret: {} {html}", answer.status));
    visitor.gateway.watch_secret("a key", &secret, &[OutputChannel::Key]);
    let list = visitor.get("/keys").text();
    let public = secret.split('-').nth(2).expect("a public id").to_owned();
    let html_before_id = list.split(&public).next().unwrap_or_default();
    let path = html_before_id.rsplit("href=\"").find(|link| link.starts_with("/keys/")).expect("a link to the key");
    (path.split('"').next().unwrap_or_default().to_owned(), secret)
}

/// The secret of a key in a text.
pub(crate) fn secret_in(text: &str) -> Option<String> {
    secret_of(text, "sk-img-")
}

/// An admin token in a text.
pub(super) fn token_in(text: &str) -> Option<String> {
    secret_of(text, "sk-adm-")
}

fn secret_of(text: &str, prefix: &str) -> Option<String> {
    let at = text.find(prefix)?;
    let secret: String =
        text[at..].chars().take_while(|letter| letter.is_ascii_alphanumeric() || "-_".contains(*letter)).collect();
    (secret.len() > 40).then_some(secret)
}
