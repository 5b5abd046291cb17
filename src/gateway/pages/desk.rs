//! Where one visit is dealt with: who it is, in which language, and what goes around the page.

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use cookie::{Cookie, CookieBuilder, SameSite};

use super::Pages;
use super::failure::Failure;
use super::frame::{Notice, Page, Theme, Who};
use super::host::Home;
use super::language::{Language, Texts};
use super::once::{Once, Turn};
use super::preferences::{LANGUAGE_COOKIE, THEME_COOKIE};
use super::route::{Found, find};
use super::visit::{Shown, Visit};
use crate::gateway::Gateway;
use crate::gateway::console::Console;
use crate::gateway::people::{Actor, Origin, People, PeopleError, Session};

/// So long somebody may take to sign in (ours).
const FORM_COOKIE_HOURS: i64 = 2;
/// Ours are shorter.
const FORM_COOKIE_MAX: usize = 128;

/// What was just done, by the word in the address, and what is said of it.
const DONE: [(&str, &str); 15] = [
    ("disabled", "done.disabled"),
    ("enabled", "done.enabled"),
    ("deleted", "done.deleted"),
    ("saved", "done.saved"),
    ("password", "done.password"),
    ("signed-out", "done.signed_out"),
    ("ended", "done.ended"),
    ("revoked", "done.revoked"),
    ("group", "done.group"),
    ("group-deleted", "done.group_deleted"),
    ("policy", "done.policy"),
    ("user-disabled", "done.user_disabled"),
    ("user-enabled", "done.user_enabled"),
    ("account-disabled", "done.account_disabled"),
    ("account-enabled", "done.account_enabled"),
];

/// One visit with everything that its page needs.
pub(super) struct Desk<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) visit: &'a Visit,
    pub(super) home: &'a Home,
    pub(super) texts: Texts,
    pub(super) session: Option<Session>,
    /// The token that the forms of this visitor hold.
    pub(super) csrf: String,
    pages: &'a Pages,
    theme: Theme,
    /// A cookie for forms that the visitor does not have yet.
    form_cookie: Option<String>,
}

// === impl Desk ===

impl<'a> Desk<'a> {
    /// Finds out who it is.
    ///
    /// # Errors
    ///
    /// Where the store does not say whose session it is.
    pub(super) async fn open(
        pages: &'a Pages,
        gateway: &'a Gateway,
        visit: &'a Visit,
        home: &'a Home,
    ) -> Result<Self, Failure> {
        let texts = Texts(Language::of(visit.cookie(LANGUAGE_COOKIE).as_deref(), &visit.languages));
        let theme = Theme::of(visit.cookie(THEME_COOKIE).as_deref());
        let session = match visit.cookie(session_cookie(home)) {
            Some(cookie) if !visit.path.starts_with("/assets/") => gateway.people().session(&cookie).await?,
            _ => None,
        };
        let session = session.map(|session| session.at(visit.address));
        let mut desk =
            Self { gateway, visit, home, texts, session, csrf: String::new(), pages, theme, form_cookie: None };
        desk.csrf = match (&desk.session, desk.known_form_cookie()) {
            (Some(session), _) => session.csrf.clone(),
            (None, Some(cookie)) => gateway.people().form_token(&cookie),
            (None, None) => String::new(),
        };
        Ok(desk)
    }

    /// Makes ready for forms of somebody who is not signed in. They are bound to a cookie of their own, whether or not
    /// there is a session too.
    ///
    /// # Errors
    ///
    /// Where the machine has no randomness.
    pub(super) fn receive(&mut self) -> Result<(), Failure> {
        let cookie = match self.known_form_cookie() {
            Some(cookie) => cookie,
            None if self.visit.is_post() => {
                self.csrf.clear();
                return Ok(());
            }
            None => self.people().visitor_cookie()?.expose().to_owned(),
        };
        self.csrf = self.people().form_token(&cookie);
        if !self.visit.is_post() {
            self.form_cookie = Some(cookie);
        }
        Ok(())
    }

    /// The answer, with the cookies that the visit leaves.
    pub(super) fn close(&self, shown: Shown) -> Shown {
        let Some(value) = &self.form_cookie else { return shown };
        let age = cookie::time::Duration::hours(FORM_COOKIE_HOURS);
        shown.set(&self.cookie(form_cookie(self.home), value.clone()).max_age(age).build())
    }

    /// A cookie of ours: for no script, for every path, and only on an encrypted way where there is one.
    pub(super) fn cookie(&self, name: &'static str, value: String) -> CookieBuilder<'static> {
        cookie(name, value, self.home)
    }

    /// The cookie of a session; without a value, its end.
    pub(super) fn session_cookie(&self, value: Option<String>) -> Cookie<'static> {
        let name = session_cookie(self.home);
        let is_end = value.is_none();
        let cookie = self.cookie(name, value.unwrap_or_default());
        if is_end { cookie.max_age(cookie::time::Duration::ZERO).build() } else { cookie.build() }
    }

    /// The frame of a page in this section.
    pub(super) fn page(&self, here: &'static str) -> Page {
        let mut page = Page::bare(self.texts.0, self.theme);
        page.here = here;
        page.csrf.clone_from(&self.csrf);
        page.who = self.session.as_ref().and_then(|session| {
            Some(Who { name: session.actor.user()?.name.clone(), is_admin: session.actor.is_admin() })
        });
        page.back = self.back().filter(|_| !self.csrf.is_empty());
        page.notice = self.visit.asked("done").and_then(|word| {
            let (_, key) = DONE.iter().find(|(known, _)| *known == word)?;
            Some(Notice { kind: "good", text: self.texts.of(key).to_owned() })
        });
        page
    }

    /// Where one comes back to: this page, as far as it can be asked for.
    fn back(&self) -> Option<String> {
        let is_shown = matches!(find(&http::Method::GET, &self.visit.path), Found::Here(_));
        let query = if self.visit.is_post() { String::new() } else { self.visit.query.with("done", None) };
        let query = if query.is_empty() { query } else { format!("?{query}") };
        is_shown.then(|| format!("{}{query}", self.visit.path))
    }

    /// The address of the sign-in page, which leads back here.
    pub(super) fn to_sign_in(&self) -> String {
        match self.back() {
            Some(back) if !self.visit.is_post() && back != "/" => {
                let next: String =
                    url::form_urlencoded::Serializer::new(String::new()).append_pair("next", &back).finish();
                format!("/sign-in?{next}")
            }
            _ => "/sign-in".to_owned(),
        }
    }

    pub(super) fn console(&self) -> &'a Console {
        self.gateway.console()
    }

    pub(super) fn people(&self) -> &'a People {
        self.gateway.people()
    }

    /// Whoever has signed in.
    ///
    /// # Errors
    ///
    /// Nobody has: then the page is that of signing in.
    pub(super) fn session(&self) -> Result<&Session, Failure> {
        self.session.as_ref().ok_or_else(|| Failure::See(self.to_sign_in()))
    }

    /// What they may do.
    ///
    /// # Errors
    ///
    /// As [`Desk::session`].
    pub(super) fn actor(&self) -> Result<&Actor, Failure> {
        self.session().map(|session| &session.actor)
    }

    /// Whether they may do everything.
    pub(super) fn is_admin(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.actor.is_admin())
    }

    /// Where the visit comes from, for the trail and the limits.
    pub(super) fn origin(&self) -> Origin {
        Origin { address: self.visit.address, agent: self.visit.agent.clone() }
    }

    /// A mark for a form that makes something.
    ///
    /// # Errors
    ///
    /// Where the machine has no randomness.
    pub(super) fn issue_once(&self) -> Result<String, Failure> {
        Once::issue(&self.pages.seal, &self.csrf, Utc::now().timestamp()).map_err(no_randomness)
    }

    /// The turn of such a form.
    pub(super) fn turn(&self) -> Turn {
        let mark = self.visit.sent(super::once::ONCE_FIELD);
        self.pages.once.begin(&self.pages.seal, &self.csrf, mark, Utc::now().timestamp())
    }

    /// The forms that have been used.
    pub(super) fn once(&self) -> &'a Once {
        &self.pages.once
    }

    fn known_form_cookie(&self) -> Option<String> {
        self.visit.cookie(form_cookie(self.home)).filter(|value| !value.is_empty() && value.len() <= FORM_COOKIE_MAX)
    }
}

impl From<PeopleError> for Failure {
    fn from(error: PeopleError) -> Self {
        match error {
            PeopleError::Slow { retry_after } => Self::Slow { seconds: retry_after.as_secs().max(1) },
            PeopleError::Link => Self::Link,
            PeopleError::LastAdmin => Self::Conflict("error.last_admin"),
            PeopleError::Unknown => Self::NotFound,
            PeopleError::Store(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the store failed a page");
                Self::Unavailable
            }
            other => {
                tracing::error!(error = %other, "people gave an answer that no page expects");
                Self::Internal
            }
        }
    }
}

fn cookie(name: &'static str, value: String, home: &Home) -> CookieBuilder<'static> {
    Cookie::build((name, value)).path("/").http_only(true).same_site(SameSite::Strict).secure(home.is_secure())
}

fn no_randomness(error: getrandom::Error) -> Failure {
    tracing::error!(%error, "the machine has no randomness");
    Failure::Internal
}

/// The prefix makes browsers refuse the cookie from any other host, and without encryption.
fn session_cookie(home: &Home) -> &'static str {
    if home.is_secure() { "__Host-imagate" } else { "imagate_session" }
}

fn form_cookie(home: &Home) -> &'static str {
    if home.is_secure() { "__Host-imagate-form" } else { "imagate_form" }
}

/// The end of a day that a form names: a key that expires on a day is good on that day.
pub(super) fn end_of(day: &str) -> Option<DateTime<Utc>> {
    let day: NaiveDate = day.parse().ok()?;
    Some(day.succ_opt()?.and_time(NaiveTime::MIN).and_utc())
}

/// The day whose end it is.
pub(super) fn day_of(end: DateTime<Utc>) -> String {
    (end - chrono::TimeDelta::seconds(1)).date_naive().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::pages::host::Public;

    #[test]
    fn a_cookie_is_for_no_script_and_no_other_site_and_only_encrypted_where_that_is_so() {
        let plain = Home::of(Some("127.0.0.1:8080"), None).unwrap();
        let cookie_at = |home: &Home| cookie(session_cookie(home), "value".to_owned(), home).build().to_string();
        assert_eq!(cookie_at(&plain), "imagate_session=value; HttpOnly; SameSite=Strict; Path=/");
        let public =
            Public { origin: "https://images.example".to_owned(), host: "images.example".to_owned(), is_https: true };
        let secure = Home::of(Some("images.example"), Some(&public)).unwrap();
        assert_eq!(cookie_at(&secure), "__Host-imagate=value; HttpOnly; SameSite=Strict; Secure; Path=/");
        assert_eq!(form_cookie(&secure), "__Host-imagate-form");
    }

    #[test]
    fn a_key_that_expires_on_a_day_is_good_to_its_end() {
        let end = end_of("2026-12-31").unwrap();
        assert_eq!(end.to_rfc3339(), "2027-01-01T00:00:00+00:00");
        assert_eq!(day_of(end), "2026-12-31");
        for wrong in ["", "tomorrow", "2026-02-30", "31.12.2026"] {
            assert_eq!(end_of(wrong), None, "{wrong}");
        }
    }
}
