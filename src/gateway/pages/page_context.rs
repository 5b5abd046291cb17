//! The context of one page request: its session, its language, and the layout of its page.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use cookie::{Cookie, CookieBuilder, SameSite};
use http::header::LOCATION;

use super::Pages;
use super::form_nonce::NONCE_FIELD;
use super::http_messages::{PageRequest, PageResponse};
use super::language::{Language, PageTexts, word_key};
use super::page_error::PageError;
use super::page_layout::{PageLayout, PageNotice, SignedInUser, Theme};
use super::preferences::{LANGUAGE_COOKIE, THEME_COOKIE};
use super::provider_flow::CALLBACK_PATH;
use super::routes::{RouteMatch, find_route};
use super::site_origin::SiteOrigin;
use crate::gateway::Gateway;
use crate::gateway::admission::Principal;
use crate::gateway::config::SecondFactorPolicy;
use crate::gateway::console::Console;
use crate::gateway::flow;
use crate::gateway::people::{Actor, IdentityError, IdentityService, PENDING_LIFETIME, SignInOrigin, UserSession};
use crate::gateway::replay::OneTimeUse;
use crate::gateway::store::{UserId, UserRole, Vault};

/// The lifetime in hours of the form cookie, to which the forms for sign-in, first set-up and invitations are bound
/// (our choice). A visitor has this time to submit such a form.
const FORM_COOKIE_HOURS: i64 = 2;
/// The maximum length of an accepted form cookie (our choice); the gateway's own cookies are shorter.
const FORM_COOKIE_MAX: usize = 128;

/// The cookie with the notice of a completed change that the next page states, and its lifetime (our choice).
const NOTICE_COOKIE: &str = "imagate_done";
const NOTICE_COOKIE_AGE: cookie::time::Duration = cookie::time::Duration::minutes(1);

/// One page request with everything that its handler needs.
pub(super) struct PageContext<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) request: &'a PageRequest,
    pub(super) site: &'a SiteOrigin,
    pub(super) texts: PageTexts,
    pub(super) session: Option<UserSession>,
    /// The CSRF token for the forms of this visitor; empty if the visitor has neither a session nor a form cookie.
    pub(super) csrf: String,
    pages: &'a Pages,
    theme: Theme,
    /// The form cookie that the answer sets, if any.
    form_cookie: Option<String>,
}

// === impl PageContext ===

impl<'a> PageContext<'a> {
    /// Creates the context of a request, and looks up its session. A request for a static file gets no session.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot look up the session, or the user has no work left.
    pub(super) async fn open(
        pages: &'a Pages,
        gateway: &'a Arc<Gateway>,
        request: &'a PageRequest,
        site: &'a SiteOrigin,
    ) -> Result<Self, PageError> {
        let texts = PageTexts(Language::choose(request.cookie(LANGUAGE_COOKIE).as_deref(), &request.accept_language));
        let theme = Theme::from_code_or_auto(request.cookie(THEME_COOKIE).as_deref());
        let session = match request.cookie(&session_cookie_name(site)) {
            Some(cookie) if !request.path.starts_with("/assets/") => gateway.people.find_session(&cookie).await?,
            _ => None,
        };
        let session = match session {
            Some(session) => {
                let work = flow::begin_of_actor(&gateway.images, &session.actor)?;
                let principal = Principal::of_actor(session.actor.user().map(|user| &user.id));
                request.admission.set_principal(principal.with_work(work.clone()));
                Some(session.with_address(request.admission.address()).with_work(work))
            }
            None => None,
        };
        let mut context =
            Self { gateway, request, site, texts, session, csrf: String::new(), pages, theme, form_cookie: None };
        context.csrf = match (&context.session, context.existing_form_cookie()) {
            (Some(session), _) => session.csrf.clone(),
            (None, Some(cookie)) => gateway.people.form_token(&cookie),
            (None, None) => String::new(),
        };
        Ok(context)
    }

    /// Prepares the CSRF token of a page for signed-out visitors. The token belongs to the form cookie, even if there
    /// is a session. A visitor without a form cookie gets a new one, but not with the answer to a submitted form: that
    /// form is refused.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn prepare_signed_out_form(&mut self) -> Result<(), PageError> {
        let cookie = match self.existing_form_cookie() {
            Some(cookie) => cookie,
            None if self.request.is_post() => {
                self.csrf.clear();
                return Ok(());
            }
            None => self.people().new_visitor_cookie()?.expose().to_owned(),
        };
        self.csrf = self.people().form_token(&cookie);
        if !self.request.is_post() {
            self.form_cookie = Some(cookie);
        }
        Ok(())
    }

    /// Adds the form cookie to the answer, if it was prepared.
    pub(super) fn with_form_cookie(&self, response: PageResponse) -> PageResponse {
        let Some(value) = &self.form_cookie else { return response };
        let age = cookie::time::Duration::hours(FORM_COOKIE_HOURS);
        response.with_cookie(&self.cookie(form_cookie_name(self.site), value.clone()).max_age(age).build())
    }

    /// A cookie of the gateway: for all paths, hidden from scripts, not sent with requests from other sites, and only
    /// sent over HTTPS if the site uses HTTPS.
    pub(super) fn cookie(&self, name: impl Into<Cow<'static, str>>, value: String) -> CookieBuilder<'static> {
        cookie(name, value, self.site)
    }

    /// The session cookie; without a value, a cookie that removes it.
    pub(super) fn session_cookie(&self, value: Option<String>) -> Cookie<'static> {
        let name = session_cookie_name(self.site);
        let is_removal = value.is_none();
        // Browsers send a cookie that is `Strict` not even if a link of another site leads to the gateway, and the user
        // would seem to be signed out. No GET request changes anything.
        let cookie = self.cookie(name, value.unwrap_or_default()).same_site(SameSite::Lax);
        if is_removal { cookie.max_age(cookie::time::Duration::ZERO).build() } else { cookie.build() }
    }

    /// The cookie of a sign-in that waits for a code; without a value, a cookie that removes it.
    pub(super) fn pending_cookie(&self, value: Option<String>) -> Cookie<'static> {
        let age = value.as_ref().map_or(Duration::ZERO, |_| PENDING_LIFETIME);
        let cookie = self.cookie(pending_cookie_name(self.site), value.unwrap_or_default());
        cookie.max_age(cookie::time::Duration::try_from(age).unwrap_or_default()).build()
    }

    /// The value of the cookie of a sign-in that waits for a code.
    pub(super) fn pending_sign_in(&self) -> Option<String> {
        self.request.cookie(&pending_cookie_name(self.site))
    }

    /// The name of the provider with which users can sign in, if there is one.
    pub(super) fn provider_label(&self) -> Option<String> {
        self.gateway.settings().oidc.as_ref().map(|provider| provider.config().label.clone())
    }

    /// Seals the state of browsers.
    pub(super) const fn vault(&self) -> &'a Vault {
        &self.pages.vault
    }

    /// True if the signed-in user must set up a second factor before anything else.
    pub(super) fn must_enrol(&self) -> bool {
        let user = self.session.as_ref().and_then(|session| session.actor.user());
        user.is_some_and(|user| {
            !user.has_second_factor
                && match self.gateway.settings().config.require_second_factor {
                    SecondFactorPolicy::Off => false,
                    SecondFactorPolicy::Admins => user.role == UserRole::Admin,
                    SecondFactorPolicy::Everyone => true,
                }
        })
    }

    /// Adds the cookie that lets the next page state a completed change, or removes it if this page has stated it. The
    /// address alone cannot make a page state a change, because anyone can write a link.
    pub(super) fn with_notice_cookie(&self, response: PageResponse) -> PageResponse {
        let location = response.headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let word = location
            .and_then(|location| location.split_once("?done="))
            .map(|(_, word)| word.split('&').next().unwrap_or_default().to_owned());
        let (value, age) = match word {
            Some(word) => (word, NOTICE_COOKIE_AGE),
            None if self.has_notice_cookie() => (String::new(), cookie::time::Duration::ZERO),
            None => return response,
        };
        response.with_cookie(&self.cookie(NOTICE_COOKIE, value).max_age(age).build())
    }

    fn has_notice_cookie(&self) -> bool {
        let cookie = self.request.cookie(NOTICE_COOKIE);
        cookie.is_some_and(|word| self.request.query_param("done") == Some(word.as_str()))
    }

    /// The layout of a page in this section.
    pub(super) fn layout(&self, section: &'static str) -> PageLayout {
        let mut layout = PageLayout::bare(self.texts.0, self.theme);
        layout.section = section;
        layout.csrf.clone_from(&self.csrf);
        layout.user = self.session.as_ref().and_then(|session| {
            Some(SignedInUser { name: session.actor.user()?.name.clone(), is_admin: session.actor.is_admin() })
        });
        layout.back = self.return_path().filter(|_| !self.csrf.is_empty());
        layout.notice = self.request.query_param("done").filter(|_| self.has_notice_cookie()).and_then(|word| {
            let key = word_key("done", word.replace('-', "_"));
            (!key.is_empty()).then(|| PageNotice { kind: "good", text: self.texts.get(key).to_owned() })
        });
        layout
    }

    /// The path and query of this page, if it can be requested with GET; after a submitted form, the path alone.
    fn return_path(&self) -> Option<String> {
        // Its query has a code, and it leads here once.
        if self.request.path == CALLBACK_PATH {
            return Some("/sign-in".to_owned());
        }
        let is_page = matches!(find_route(&http::Method::GET, &self.request.path), RouteMatch::Found(_));
        let query = if self.request.is_post() { String::new() } else { self.request.query.to_query_without(&["done"]) };
        let query = if query.is_empty() { query } else { format!("?{query}") };
        is_page.then(|| format!("{}{query}", self.request.path))
    }

    /// The path of the sign-in page. Its parameter `next` is this page, unless this page is `/`, or the request submits
    /// a form.
    pub(super) fn sign_in_path(&self) -> String {
        match self.return_path() {
            Some(back) if !self.request.is_post() && back != "/" => {
                let next: String =
                    url::form_urlencoded::Serializer::new(String::new()).append_pair("next", &back).finish();
                format!("/sign-in?{next}")
            }
            _ => "/sign-in".to_owned(),
        }
    }

    pub(super) fn console(&self) -> &'a Console {
        &self.gateway.console
    }

    pub(super) fn people(&self) -> &'a IdentityService {
        &self.gateway.people
    }

    /// The session of the signed-in user.
    ///
    /// # Errors
    ///
    /// Returns a redirect to the sign-in page if there is no session.
    pub(super) fn session(&self) -> Result<&UserSession, PageError> {
        self.session.as_ref().ok_or_else(|| PageError::Redirect(self.sign_in_path()))
    }

    /// The id of the signed-in user.
    pub(super) fn own_user_id(&self) -> Option<UserId> {
        self.session.as_ref().and_then(|session| session.actor.user()).map(|user| user.id.clone())
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

    /// The address and browser of the request, for a new session, the audit trail and the rate limits.
    pub(super) fn sign_in_origin(&self) -> SignInOrigin {
        SignInOrigin {
            address: self.request.admission.address(),
            agent: self.request.user_agent.clone(),
            browser: self.csrf.clone(),
        }
    }

    /// Issues a nonce for a form that creates something.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(super) fn issue_form_nonce(&self) -> Result<String, PageError> {
        self.pages.nonces.issue(&self.csrf, Utc::now()).map_err(no_randomness)
    }

    /// Issues the nonce of a request for images, which is valid in every session of the user.
    pub(super) fn issue_run_nonce(&self) -> Result<String, PageError> {
        self.pages.nonces.issue(&self.run_owner(), Utc::now()).map_err(no_randomness)
    }

    /// True if this nonce of a request for images was issued to the signed-in user and has not expired.
    pub(super) fn is_valid_run_nonce(&self, nonce: &str) -> bool {
        self.pages.nonces.verify(&self.run_owner(), nonce, Utc::now()).is_some()
    }

    /// True if this nonce of a request for images was issued to the signed-in user, at any time.
    pub(super) fn is_own_run_nonce(&self, nonce: &str) -> bool {
        self.pages.nonces.is_issued(&self.run_owner(), nonce)
    }

    /// The text for which these nonces are issued. No session has it.
    fn run_owner(&self) -> String {
        format!("requests of {}", self.own_user_id().map(|user| user.to_string()).unwrap_or_default())
    }

    /// Checks the nonce of a submitted form, and claims its use; `None` if the nonce has expired or is not valid.
    ///
    /// # Errors
    ///
    /// Returns an error if the store does not take the claim.
    pub(super) async fn use_form_nonce(&self) -> Result<Option<OneTimeUse>, PageError> {
        let nonce = self.pages.nonces.verify(&self.csrf, self.request.form_field(NONCE_FIELD), Utc::now());
        let Some(nonce) = nonce else { return Ok(None) };
        let claimed = self.gateway.images.replay.claim_once(nonce.scope, nonce.claimed_until.into()).await;
        claimed.map(Some).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the use of a form cannot be stored");
            PageError::Unavailable
        })
    }

    fn existing_form_cookie(&self) -> Option<String> {
        let cookie = self.request.cookie(&form_cookie_name(self.site));
        cookie.filter(|value| !value.is_empty() && value.len() <= FORM_COOKIE_MAX)
    }
}

impl From<IdentityError> for PageError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::TooManyAttempts { retry_after } => {
                Self::RateLimited { seconds: retry_after.as_secs().max(1) }
            }
            IdentityError::InvalidLink => Self::InvalidLink,
            IdentityError::LastAdmin => Self::Conflict("error.last_admin"),
            IdentityError::Unknown => Self::NotFound,
            IdentityError::Store(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the store failed during a page request");
                Self::Unavailable
            }
            error => {
                tracing::error!(%error, "an unexpected error occurred during a page request");
                Self::Internal
            }
        }
    }
}

fn cookie(name: impl Into<Cow<'static, str>>, value: String, site: &SiteOrigin) -> CookieBuilder<'static> {
    Cookie::build((name.into(), value)).path("/").http_only(true).same_site(SameSite::Strict).secure(site.is_secure())
}

pub(super) fn no_randomness(error: getrandom::Error) -> PageError {
    tracing::error!(%error, "the system provides no random bytes");
    PageError::Internal
}

/// The name of the session cookie. Browsers accept the prefix `__Host-` only from the host itself and over HTTPS; over
/// plain HTTP, all ports of a host share cookies, so the name has the port.
fn session_cookie_name(site: &SiteOrigin) -> String {
    if site.is_secure() { "__Host-imagate".to_owned() } else { format!("imagate_session_{}", site.port()) }
}

/// The name of the form cookie.
fn form_cookie_name(site: &SiteOrigin) -> String {
    if site.is_secure() { "__Host-imagate-form".to_owned() } else { format!("imagate_form_{}", site.port()) }
}

/// The name of the cookie of a sign-in that waits for a code.
fn pending_cookie_name(site: &SiteOrigin) -> String {
    if site.is_secure() { "__Host-imagate-pending".to_owned() } else { format!("imagate_pending_{}", site.port()) }
}

/// The end of a day in UTC; `None` if the text is not a day. A key that expires on a day is still valid on that day.
pub(super) fn end_of_day(day: &str) -> Option<DateTime<Utc>> {
    let day: NaiveDate = day.parse().ok()?;
    Some(day.succ_opt()?.and_time(NaiveTime::MIN).and_utc())
}

/// The last day, in UTC, on which a key or token with this expiry is valid.
pub(super) fn last_valid_day(end: DateTime<Utc>) -> String {
    (end - chrono::TimeDelta::seconds(1)).date_naive().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::pages::site_origin::PublicAddress;

    #[test]
    fn cookies_are_http_only_same_site_and_secure_over_https() {
        let plain = SiteOrigin::from_host(Some("127.0.0.1:8080"), None).unwrap();
        let cookie_at =
            |site: &SiteOrigin| cookie(session_cookie_name(site), "value".to_owned(), site).build().to_string();
        assert_eq!(cookie_at(&plain), "imagate_session_8080=value; HttpOnly; SameSite=Strict; Path=/");
        let public = PublicAddress {
            origin: "https://images.example".to_owned(),
            host: "images.example".to_owned(),
            is_https: true,
        };
        let secure = SiteOrigin::from_host(Some("images.example"), Some(&public)).unwrap();
        assert_eq!(cookie_at(&secure), "__Host-imagate=value; HttpOnly; SameSite=Strict; Secure; Path=/");
        assert_eq!(form_cookie_name(&secure), "__Host-imagate-form");
    }

    #[test]
    fn a_key_that_expires_on_a_day_is_valid_until_the_end_of_the_day() {
        let end = end_of_day("2026-12-31").unwrap();
        assert_eq!(end.to_rfc3339(), "2027-01-01T00:00:00+00:00");
        assert_eq!(last_valid_day(end), "2026-12-31");
        for invalid in ["", "tomorrow", "2026-02-30", "31.12.2026"] {
            assert_eq!(end_of_day(invalid), None, "{invalid}");
        }
    }
}
