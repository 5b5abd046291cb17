//! The pages for people: first run, signing in, keys, usage and what goes with them.
//!
//! Decides what stands on each page, in which language, and which forms are believed. Refuses to know what may be done:
//! every page asks the console, as the API of the operators does, and shows what it says. Knows HTTP's words but not
//! its server: it takes a [`Visit`] and gives a [`Shown`].
//!
//! Carries: the `/keys` page of the specification. Every page is complete without a script; nothing on it comes from
//! elsewhere; a secret is shown once, in the answer to the form that made it; a form counts only where the browser says
//! that it stands on our own address and it holds the token that was put into it; a host that is not ours sees nothing.

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
pub(crate) use visit::{Fields, Shown, Unreadable, Visit};

use super::Gateway;
use super::config::PublicUrl;
use desk::Desk;
use failure::Failure;
use frame::{Page, Theme};
use guard::Seal;
use host::{Home, Public};
use language::Language;
use once::Once;
use route::{Found, Target, find};

/// The first segments of all paths that are pages, and the files beside them.
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

/// A form is never larger (ours).
pub(crate) const FORM_MAX_BYTES: u64 = 64 * 1024;

/// What goes with every answer. `same-origin` because a browser that may not say where it comes from says `null` in
/// `Origin` too, and then no form could be told from a forged one.
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

/// What the pages remember between two visits.
pub(crate) struct Pages {
    public: Option<Public>,
    seal: Seal,
    once: Once,
}

// === impl Pages ===

impl Pages {
    /// The pages of a gateway that is reached at this address, or at its own.
    ///
    /// # Errors
    ///
    /// Where the machine has no randomness.
    pub(crate) fn new(public_url: Option<&PublicUrl>) -> Result<Self, getrandom::Error> {
        let public = public_url.map(|url| Public {
            origin: url.as_str().to_owned(),
            host: url.host().to_owned(),
            is_https: url.is_https(),
        });
        Ok(Self { public, seal: Seal::new()?, once: Once::default() })
    }

    /// Shows what was asked for, or why not.
    pub(crate) async fn show(&self, gateway: &Gateway, visit: &Visit) -> Shown {
        let shown = match Home::of(visit.host.as_deref(), self.public.as_ref()) {
            Some(home) => self.show_at(gateway, visit, &home).await,
            // Nothing of the visit is believed, so its cookies are not looked at either.
            None => Failure::Host.show(Page::bare(Language::of(None, &visit.languages), Theme::Auto)),
        };
        guarded(shown)
    }

    async fn show_at(&self, gateway: &Gateway, visit: &Visit, home: &Home) -> Shown {
        let mut desk = match Desk::open(self, gateway, visit, home).await {
            Ok(desk) => desk,
            Err(failure) => return failure.show(Page::bare(Language::of(None, &visit.languages), Theme::Auto)),
        };
        let shown = match find(&visit.method, &visit.path) {
            Found::Nothing => Err(Failure::NotFound),
            Found::OtherMethod(allowed) => Err(Failure::Method(allowed)),
            Found::Here(Target::Asset(name)) => assets::show(visit, &name).ok_or(Failure::NotFound),
            Found::Here(target) => self.serve(&mut desk, target).await,
        };
        desk.close(shown.unwrap_or_else(|failure| failure.show(desk.page(""))))
    }

    /// A page that exists: the form is believed before anything else is done.
    async fn serve(&self, desk: &mut Desk<'_>, target: Target) -> Result<Shown, Failure> {
        if target.is_door() {
            desk.receive()?;
        }
        if desk.visit.is_post() {
            if let Err(unreadable) = &desk.visit.form {
                return Err(Failure::Form(*unreadable));
            }
            if !guard::is_from_home(desk.visit, desk.home) || !guard::has_token(desk.visit, &desk.csrf) {
                return Err(Failure::Forged);
            }
        }
        Box::pin(route::serve(desk, target)).await
    }
}

/// The same with what every answer carries.
fn guarded(mut shown: Shown) -> Shown {
    for (name, value) in HEADERS {
        shown.headers.insert(name, HeaderValue::from_static(value));
    }
    if shown.status.is_client_error() || shown.status.is_server_error() {
        // As with every other error of the gateway: only where time alone can help.
        let can_help = matches!(shown.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let advice = HeaderValue::from_static(if can_help { "true" } else { "false" });
        shown.headers.insert(SHOULD_RETRY, advice);
    }
    shown.headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    shown
}
