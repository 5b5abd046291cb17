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
mod csrf;
mod examples;
mod first_steps;
mod form;
mod form_nonce;
mod format;
mod group;
mod groups;
mod http_messages;
mod key;
mod keys;
mod language;
mod page_context;
mod page_error;
mod page_layout;
mod people;
mod person;
mod preferences;
mod profile;
mod records;
mod routes;
mod sign_in;
mod site_origin;
mod template_helpers;
mod usage;

#[cfg(test)]
mod tests;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};

use http::StatusCode;
pub(crate) use http_messages::{FormReadError, PageRequest, PageResponse, UrlEncodedFields};

use super::Gateway;
use super::config::PublicUrl;
use csrf::FormSigningKey;
use form_nonce::FormNonceStore;
use language::Language;
use page_context::PageContext;
use page_error::PageError;
use page_layout::{PageLayout, Theme};
use routes::{PageRoute, RouteMatch, find_route};
use site_origin::{PublicAddress, SiteOrigin};

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

/// The maximum size of a form (our choice).
pub(crate) const FORM_MAX_BYTES: u64 = 64 * 1024;

/// The headers of every answer. The referrer policy is `same-origin` because a browser that may not say where it comes
/// from also sends `null` in `Origin`, and then no form could be told from a forged one.
const SECURITY_HEADERS: [(HeaderName, &str); 7] = [
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
    public_address: Option<PublicAddress>,
    signing_key: FormSigningKey,
    nonces: FormNonceStore,
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
        Ok(Self { public_address: public, signing_key: FormSigningKey::new()?, nonces: FormNonceStore::default() })
    }

    /// Shows the requested page, or the reason why there is none.
    pub(crate) async fn handle(&self, gateway: &Gateway, request: &PageRequest) -> PageResponse {
        let response = match SiteOrigin::from_host(request.host.as_deref(), self.public_address.as_ref()) {
            Some(site) => self.handle_at_site(gateway, request, &site).await,
            // No part of the request is trusted, so its cookies are ignored.
            None => PageError::UnknownHost
                .into_response(PageLayout::bare(Language::choose(None, &request.accept_language), Theme::Auto)),
        };
        with_security_headers(response)
    }

    async fn handle_at_site(&self, gateway: &Gateway, request: &PageRequest, site: &SiteOrigin) -> PageResponse {
        let mut context = match PageContext::open(self, gateway, request, site).await {
            Ok(desk) => desk,
            Err(error) => {
                return error
                    .into_response(PageLayout::bare(Language::choose(None, &request.accept_language), Theme::Auto));
            }
        };
        let response = match find_route(&request.method, &request.path) {
            RouteMatch::NotFound => Err(PageError::NotFound),
            RouteMatch::MethodNotAllowed(allowed) => Err(PageError::MethodNotAllowed(allowed)),
            RouteMatch::Found(PageRoute::Asset(name)) => assets::serve_asset(request, &name).ok_or(PageError::NotFound),
            RouteMatch::Found(target) => self.handle_route(&mut context, target).await,
        };
        context.with_form_cookie(response.unwrap_or_else(|failure| failure.into_response(context.layout(""))))
    }

    /// Serves a page that exists: the form is checked before anything else is done.
    async fn handle_route(&self, context: &mut PageContext<'_>, route: PageRoute) -> Result<PageResponse, PageError> {
        if route.is_for_signed_out() {
            context.prepare_signed_out_form()?;
        }
        if context.request.is_post() {
            if let Err(unreadable) = &context.request.form {
                return Err(PageError::UnreadableForm(*unreadable));
            }
            if !csrf::is_same_origin(context.request, context.site) || !csrf::has_token(context.request, &context.csrf)
            {
                return Err(PageError::ForgedForm);
            }
        }
        Box::pin(routes::handle(context, route)).await
    }
}

/// Adds the headers of every answer.
fn with_security_headers(mut response: PageResponse) -> PageResponse {
    for (name, value) in SECURITY_HEADERS {
        response.headers.insert(name, HeaderValue::from_static(value));
    }
    if response.status.is_client_error() || response.status.is_server_error() {
        // Every error of the gateway advises a retry only if waiting can help.
        let can_help = matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let advice = HeaderValue::from_static(if can_help { "true" } else { "false" });
        response.headers.insert(SHOULD_RETRY, advice);
    }
    response.headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
