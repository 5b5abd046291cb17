//! The context of one page request: its session, its language, and the layout of its page.

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use cookie::{Cookie, CookieBuilder, SameSite};

use super::Pages;
use super::failure::PageError;
use super::frame::{PageLayout, PageNotice, SignedInUser, Theme};
use super::host::SiteOrigin;
use super::language::{Language, PageTexts};
use super::once::{FormNonceStatus, FormNonceStore};
use super::preferences::{LANGUAGE_COOKIE, THEME_COOKIE};
use super::route::{RouteMatch, find};
use super::visit::{PageRequest, PageResponse};
use crate::gateway::Gateway;
use crate::gateway::console::Console;
use crate::gateway::people::{Actor, IdentityError, IdentityService, SignInOrigin, UserSession};

/// The time that a user has to sign in (ours).
const FORM_COOKIE_HOURS: i64 = 2;
/// The maximum length of the form cookie; ours are shorter.
const FORM_COOKIE_MAX: usize = 128;

/// The notices about a finished change: the word in the address, and the key of the text.
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

/// One page request with everything that its handler needs.
pub(super) struct PageContext<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) visit: &'a PageRequest,
    pub(super) home: &'a SiteOrigin,
    pub(super) texts: PageTexts,
    pub(super) session: Option<UserSession>,
    /// The token of this visitor's forms.
    pub(super) csrf: String,
    pages: &'a Pages,
    theme: Theme,
    /// A form cookie that the visitor does not have yet.
    form_cookie: Option<String>,
}

// === impl PageContext ===

impl<'a> PageContext<'a> {
    /// Looks up the session of the request.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot look up the session.
    pub(super) async fn open(
        pages: &'a Pages,
        gateway: &'a Gateway,
        visit: &'a PageRequest,
        home: &'a SiteOrigin,
    ) -> Result<Self, PageError> {
        let texts = PageTexts(Language::of(visit.cookie(LANGUAGE_COOKIE).as_deref(), &visit.languages));
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

    /// Prepares forms for a visitor without a session. They are bound to a cookie of their own, whether or not there is
    /// a session too.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn receive(&mut self) -> Result<(), PageError> {
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

    /// Adds the cookies of the request to the answer.
    pub(super) fn close(&self, shown: PageResponse) -> PageResponse {
        let Some(value) = &self.form_cookie else { return shown };
        let age = cookie::time::Duration::hours(FORM_COOKIE_HOURS);
        shown.set(&self.cookie(form_cookie(self.home), value.clone()).max_age(age).build())
    }

    /// A cookie of the gateway: hidden from scripts, for every path, and only over encrypted connections if there are
    /// any.
    pub(super) fn cookie(&self, name: &'static str, value: String) -> CookieBuilder<'static> {
        cookie(name, value, self.home)
    }

    /// The session cookie; without a value, one that removes it.
    pub(super) fn session_cookie(&self, value: Option<String>) -> Cookie<'static> {
        let name = session_cookie(self.home);
        let is_end = value.is_none();
        let cookie = self.cookie(name, value.unwrap_or_default());
        if is_end { cookie.max_age(cookie::time::Duration::ZERO).build() } else { cookie.build() }
    }

    /// The layout of a page in this section.
    pub(super) fn page(&self, here: &'static str) -> PageLayout {
        let mut page = PageLayout::bare(self.texts.0, self.theme);
        page.here = here;
        page.csrf.clone_from(&self.csrf);
        page.who = self.session.as_ref().and_then(|session| {
            Some(SignedInUser { name: session.actor.user()?.name.clone(), is_admin: session.actor.is_admin() })
        });
        page.back = self.back().filter(|_| !self.csrf.is_empty());
        page.notice = self.visit.asked("done").and_then(|word| {
            let (_, key) = DONE.iter().find(|(known, _)| *known == word)?;
            Some(PageNotice { kind: "good", text: self.texts.of(key).to_owned() })
        });
        page
    }

    /// The address to return to: this page, if it can be requested with GET.
    fn back(&self) -> Option<String> {
        let is_shown = matches!(find(&http::Method::GET, &self.visit.path), RouteMatch::Here(_));
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

    pub(super) fn people(&self) -> &'a IdentityService {
        self.gateway.people()
    }

    /// The session of the signed-in user.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no session; it leads to the sign-in page.
    pub(super) fn session(&self) -> Result<&UserSession, PageError> {
        self.session.as_ref().ok_or_else(|| PageError::See(self.to_sign_in()))
    }

    /// The actor whose permissions apply.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PageContext::session`].
    pub(super) fn actor(&self) -> Result<&Actor, PageError> {
        self.session().map(|session| &session.actor)
    }

    /// True if the signed-in user is an admin.
    pub(super) fn is_admin(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.actor.is_admin())
    }

    /// The origin of the request, for the audit trail and the limits.
    pub(super) fn origin(&self) -> SignInOrigin {
        SignInOrigin { address: self.visit.address, agent: self.visit.agent.clone() }
    }

    /// Issues a nonce for a form that creates something.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn issue_once(&self) -> Result<String, PageError> {
        FormNonceStore::issue(&self.pages.seal, &self.csrf, Utc::now().timestamp()).map_err(no_randomness)
    }

    /// Checks the nonce of such a form, and marks it as used.
    pub(super) fn turn(&self) -> FormNonceStatus {
        let mark = self.visit.sent(super::once::ONCE_FIELD);
        self.pages.once.begin(&self.pages.seal, &self.csrf, mark, Utc::now().timestamp())
    }

    /// The forms that have been used.
    pub(super) fn once(&self) -> &'a FormNonceStore {
        &self.pages.once
    }

    fn known_form_cookie(&self) -> Option<String> {
        self.visit.cookie(form_cookie(self.home)).filter(|value| !value.is_empty() && value.len() <= FORM_COOKIE_MAX)
    }
}

impl From<IdentityError> for PageError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Slow { retry_after } => Self::Slow { seconds: retry_after.as_secs().max(1) },
            IdentityError::Link => Self::Link,
            IdentityError::LastAdmin => Self::Conflict("error.last_admin"),
            IdentityError::Unknown => Self::NotFound,
            IdentityError::Store(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the store failed during a page request");
                Self::Unavailable
            }
            other => {
                tracing::error!(error = %other, "an error occurred that no page expects");
                Self::Internal
            }
        }
    }
}

fn cookie(name: &'static str, value: String, home: &SiteOrigin) -> CookieBuilder<'static> {
    Cookie::build((name, value)).path("/").http_only(true).same_site(SameSite::Strict).secure(home.is_secure())
}

fn no_randomness(error: getrandom::Error) -> PageError {
    tracing::error!(%error, "the system provides no random bytes");
    PageError::Internal
}

/// With this prefix, browsers refuse the cookie from any other host, and without encryption.
fn session_cookie(home: &SiteOrigin) -> &'static str {
    if home.is_secure() { "__Host-imagate" } else { "imagate_session" }
}

fn form_cookie(home: &SiteOrigin) -> &'static str {
    if home.is_secure() { "__Host-imagate-form" } else { "imagate_form" }
}

/// The end of a day that a form names: a key that expires on a day is still valid on that day.
pub(super) fn end_of(day: &str) -> Option<DateTime<Utc>> {
    let day: NaiveDate = day.parse().ok()?;
    Some(day.succ_opt()?.and_time(NaiveTime::MIN).and_utc())
}

/// The day that ends at this moment.
pub(super) fn day_of(end: DateTime<Utc>) -> String {
    (end - chrono::TimeDelta::seconds(1)).date_naive().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::pages::host::PublicAddress;

    #[test]
    fn a_cookie_is_for_no_script_and_no_other_site_and_only_encrypted_where_that_is_so() {
        let plain = SiteOrigin::of(Some("127.0.0.1:8080"), None).unwrap();
        let cookie_at = |home: &SiteOrigin| cookie(session_cookie(home), "value".to_owned(), home).build().to_string();
        assert_eq!(cookie_at(&plain), "imagate_session=value; HttpOnly; SameSite=Strict; Path=/");
        let public = PublicAddress {
            origin: "https://images.example".to_owned(),
            host: "images.example".to_owned(),
            is_https: true,
        };
        let secure = SiteOrigin::of(Some("images.example"), Some(&public)).unwrap();
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
