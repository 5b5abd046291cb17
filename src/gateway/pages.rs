//! The pages for people: first run, sign-in, keys, usage and related settings.
//!
//! Decides the content and language of each page, and which forms are accepted. It does not decide permissions: every
//! page calls the console, as the operators' API does, and shows its result. It uses the terms of HTTP but not its
//! server: it takes a [`PageRequest`] and gives a [`PageResponse`].
//!
//! Carries: the `/keys` page of the specification. Every page is complete without a script and loads nothing from other
//! hosts. A secret is shown once, in the answer to the form that made it. A form counts only if the browser says that
//! it is on our own address and it holds its token. A request with a foreign host sees no page.

mod accounts;
mod assets;
mod audit;
mod chart;
mod desk;
mod door;
mod examples;
mod failure;
mod form;
mod format;
mod frame;
mod group;
mod groups;
mod guard;
mod host;
mod key;
mod keys;
mod language;
mod once;
mod people;
mod person;
mod preferences;
mod profile;
mod records;
mod route;
mod start;
mod usage;
mod visit;
mod words;

#[cfg(test)]
mod tests;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};

use http::StatusCode;
pub(crate) use visit::{FormReadError, PageRequest, PageResponse, UrlEncodedFields};

use super::Gateway;
use super::config::PublicUrl;
use desk::PageContext;
use failure::PageError;
use frame::{PageLayout, Theme};
use guard::FormSigningKey;
use host::{PublicAddress, SiteOrigin};
use language::Language;
use once::FormNonceStore;
use route::{PageRoute, RouteMatch, find};

/// The first segments of all paths of pages and their files.
pub(crate) const SECTIONS: [&str; 17] = [
    "accounts",
    "assets",
    "audit",
    "groups",
    "invitation",
    "keys",
    "people",
    "preferences",
    "profile",
    "records",
    "records.csv",
    "setup",
    "sign-in",
    "sign-out",
    "start",
    "usage",
    "usage.csv",
];

/// The maximum size of a form (ours).
pub(crate) const FORM_MAX_BYTES: u64 = 64 * 1024;

/// The headers of every answer. The referrer policy is `same-origin` because a browser that may not say where it comes
/// from also sends `null` in `Origin`, and then no form could be told from a forged one.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (X_FRAME_OPTIONS, "DENY"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-write=(self)",
    ),
];

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The state of the pages between two requests.
pub(crate) struct Pages {
    public: Option<PublicAddress>,
    seal: FormSigningKey,
    once: FormNonceStore,
}

// === impl Pages ===

impl Pages {
    /// The pages of a gateway that is reached at this address, or at its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the system provides no random bytes.
    pub(crate) fn new(public_url: Option<&PublicUrl>) -> Result<Self, getrandom::Error> {
        let public = public_url.map(|url| PublicAddress {
            origin: url.as_str().to_owned(),
            host: url.host().to_owned(),
            is_https: url.is_https(),
        });
        Ok(Self { public, seal: FormSigningKey::new()?, once: FormNonceStore::default() })
    }

    /// Shows the requested page, or the reason why there is none.
    pub(crate) async fn show(&self, gateway: &Gateway, visit: &PageRequest) -> PageResponse {
        let shown = match SiteOrigin::of(visit.host.as_deref(), self.public.as_ref()) {
            Some(home) => self.show_at(gateway, visit, &home).await,
            // No part of the request is trusted, so its cookies are ignored.
            None => PageError::Host.show(PageLayout::bare(Language::of(None, &visit.languages), Theme::Auto)),
        };
        guarded(shown)
    }

    async fn show_at(&self, gateway: &Gateway, visit: &PageRequest, home: &SiteOrigin) -> PageResponse {
        let mut desk = match PageContext::open(self, gateway, visit, home).await {
            Ok(desk) => desk,
            Err(failure) => return failure.show(PageLayout::bare(Language::of(None, &visit.languages), Theme::Auto)),
        };
        let shown = match find(&visit.method, &visit.path) {
            RouteMatch::Nothing => Err(PageError::NotFound),
            RouteMatch::OtherMethod(allowed) => Err(PageError::Method(allowed)),
            RouteMatch::Here(PageRoute::Asset(name)) => assets::show(visit, &name).ok_or(PageError::NotFound),
            RouteMatch::Here(target) => self.serve(&mut desk, target).await,
        };
        desk.close(shown.unwrap_or_else(|failure| failure.show(desk.page(""))))
    }

    /// Serves a page that exists: the form is checked before anything else is done.
    async fn serve(&self, desk: &mut PageContext<'_>, target: PageRoute) -> Result<PageResponse, PageError> {
        if target.is_door() {
            desk.receive()?;
        }
        if desk.visit.is_post() {
            if let Err(unreadable) = &desk.visit.form {
                return Err(PageError::Form(*unreadable));
            }
            if !guard::is_from_home(desk.visit, desk.home) || !guard::has_token(desk.visit, &desk.csrf) {
                return Err(PageError::Forged);
            }
        }
        Box::pin(route::serve(desk, target)).await
    }
}

/// Adds the headers of every answer.
fn guarded(mut shown: PageResponse) -> PageResponse {
    for (name, value) in HEADERS {
        shown.headers.insert(name, HeaderValue::from_static(value));
    }
    if shown.status.is_client_error() || shown.status.is_server_error() {
        // Every error of the gateway advises a retry only if waiting can help.
        let can_help = matches!(shown.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let advice = HeaderValue::from_static(if can_help { "true" } else { "false" });
        shown.headers.insert(SHOULD_RETRY, advice);
    }
    shown.headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    shown
}
