//! The web pages of the console: first run, sign-in, keys, usage, records, users, groups, accounts, prices and
//! the audit trail.
//!
//! This module decides the content and language of each page, and which forms are accepted. The console, which the
//! admin API calls too, decides which data a user may see and change; in addition, this module refuses the pages of
//! groups and of single users to members. It does not know the HTTP server: it takes a [`PageRequest`] and returns a
//! [`PageResponse`].
//!
//! It implements the `/keys` page of the specification. Every page works without scripts and loads nothing from other
//! hosts. A secret is shown once, in the answer to the form that created it. A form is accepted only if the browser
//! states that it comes from the gateway's own origin, and if it has the right token. A request with an unknown host
//! gets only an error page.

mod account;
mod account_availability;
mod account_fields;
mod account_summary;
mod accounts;
mod alerts;
mod assets;
mod attempt_timeline;
mod audit;
mod chart;
mod csrf;
mod docs;
mod examples;
mod failure_explanation;
mod first_steps;
mod form;
mod form_nonce;
mod format;
mod group;
mod group_overview;
mod groups;
mod http_messages;
mod identity_proof;
mod key;
mod key_selection;
mod keys;
mod language;
mod limit_bars;
mod page_context;
mod page_error;
mod page_layout;
mod people;
mod person;
mod playground;
mod playground_key;
mod playground_run;
mod preferences;
mod prices;
mod profile;
mod provider_flow;
mod provider_sign_in;
mod qr_code;
mod record_filters;
mod records;
mod routes;
mod second_factor;
mod setting_fields;
mod sign_in;
mod sign_in_code;
mod site_origin;
mod sort_links;
mod stored_images;
mod template_helpers;
mod usage;
mod usage_groups;
mod usage_measure;
mod usage_view;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use http::StatusCode;
use http_body::Body as _;
pub(crate) use http_messages::{FormReadError, PageBody, PageRequest, PageResponse, UrlEncodedFields};
pub(crate) use playground::{PAGE_FIELDS as PLAYGROUND_PAGE_FIELDS, PATH as PLAYGROUND_PATH};

use super::Gateway;
use super::config::PublicUrl;
use super::store::Vault;
use super::work::Work;
use form_nonce::FormNonces;
use language::Language;
use page_context::PageContext;
use page_error::PageError;
use page_layout::{PageLayout, Theme};
use routes::{PageRoute, RouteMatch, find_route};
use site_origin::{PublicAddress, SiteOrigin};

/// The first path segments of all pages except `/`, of the targets of forms, and of the static files.
pub(crate) const SECTIONS: [&str; 21] = [
    "accounts",
    "alerts",
    "assets",
    "audit",
    "docs",
    "groups",
    "invitation",
    "keys",
    "people",
    "preferences",
    "prices",
    "profile",
    "records",
    "records.csv",
    "setup",
    "sign-in",
    "sign-out",
    "start",
    "studio",
    "usage",
    "usage.csv",
];

/// The maximum size of a form (our choice).
pub(crate) const FORM_MAX_BYTES: u64 = 64 * 1024;

/// Headers that every answer has. The referrer policy is `same-origin`, because with `no-referrer` browsers send
/// `Origin: null`, and the gateway could not distinguish a form of its own from a forged one.
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

/// Browsers that have seen a page over HTTPS do not use plain HTTP for a year (our choice).
const TRANSPORT_SECURITY: &str = "max-age=31536000";

/// The header that tells clients whether a retry can help.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The state that all page requests share.
pub(crate) struct Pages {
    public_address: Option<PublicAddress>,
    nonces: FormNonces,
    /// Seals the state of browsers that are at the provider of identities.
    vault: Vault,
}

// === impl Pages ===

impl Pages {
    /// Creates the state of the pages. `public_url` is the address under which browsers reach the gateway, if it is
    /// configured; `vault` is that of the installation.
    pub(crate) fn new(public_url: Option<&PublicUrl>, vault: Vault) -> Self {
        let public_address = public_url.map(|url| PublicAddress {
            origin: url.as_str().to_owned(),
            host: url.host().to_owned(),
            is_https: url.is_https(),
        });
        Self { public_address, nonces: FormNonces::new(vault.clone()), vault }
    }

    /// True if the form that makes images comes from a page of the gateway, in the browser of a signed-in user. The
    /// request then counts for the user.
    pub(crate) async fn may_send_image_form(&self, gateway: &Arc<Gateway>, request: &PageRequest) -> bool {
        let Some(site) = SiteOrigin::from_host(request.host.as_deref(), self.public_address.as_ref()) else {
            return false;
        };
        let context = PageContext::open(self, gateway, request, &site).await;
        csrf::is_same_origin(request, &site) && context.is_ok_and(|context| context.own_user_id().is_some())
    }

    /// Returns the origin of the pages under this host; `None` if no page is served there.
    pub(crate) fn origin(&self, host: Option<&str>) -> Option<String> {
        SiteOrigin::from_host(host, self.public_address.as_ref()).map(|site| site.origin().to_owned())
    }

    /// Answers a page request; each failure is answered with an error page.
    pub(crate) async fn handle(&self, gateway: &Arc<Gateway>, request: &PageRequest) -> PageResponse {
        let response = match SiteOrigin::from_host(request.host.as_deref(), self.public_address.as_ref()) {
            Some(site) => self.handle_at_site(gateway, request, &site).await,
            // A request with an unknown host is not trusted, so its cookies are ignored.
            None => PageError::UnknownHost
                .into_response(PageLayout::bare(Language::choose(None, &request.accept_language), Theme::Auto)),
        };
        let response = with_security_headers(response);
        if self.public_address.as_ref().is_some_and(|address| address.is_https) {
            return response.with_header(STRICT_TRANSPORT_SECURITY, TRANSPORT_SECURITY);
        }
        response
    }

    async fn handle_at_site(&self, gateway: &Arc<Gateway>, request: &PageRequest, site: &SiteOrigin) -> PageResponse {
        let mut context = match PageContext::open(self, gateway, request, site).await {
            Ok(context) => context,
            Err(error) => {
                return error
                    .into_response(PageLayout::bare(Language::choose(None, &request.accept_language), Theme::Auto));
            }
        };
        let response = match find_route(&request.method, &request.path) {
            RouteMatch::NotFound => Err(PageError::NotFound),
            RouteMatch::MethodNotAllowed(allowed) => Err(PageError::MethodNotAllowed(allowed)),
            RouteMatch::Found(route) => self.handle_route(&mut context, &route).await,
        };
        let response = response.unwrap_or_else(|error| error.into_response(context.layout("")));
        if let Some(session) = &context.session {
            session.actor.charge(Work::Operation);
            session.actor.charge(match &response.body {
                PageBody::Whole(page) => Work::WrittenBytes(page.len() as u64),
                PageBody::Image(image) => Work::RepeatedBytes(image.size_hint().exact().unwrap_or(0)),
                // Its request charges itself.
                PageBody::Events(_) => Work::Request,
            });
        }
        context.with_notice_cookie(context.with_form_cookie(response))
    }

    /// Serves a route that exists. The origin and the token of a submitted form are checked before its handler runs.
    async fn handle_route(&self, context: &mut PageContext<'_>, route: &PageRoute) -> Result<PageResponse, PageError> {
        if route.needs_form_cookie(context.session.is_some()) {
            context.prepare_signed_out_form()?;
        }
        if context.request.is_post() {
            if let Err(error) = &context.request.form {
                return Err(PageError::UnreadableForm(*error));
            }
            if !csrf::is_same_origin(context.request, context.site) || !csrf::has_token(context.request, &context.csrf)
            {
                return Err(PageError::ForgedForm);
            }
        }
        route.serve(context).await
    }
}

/// Adds [`SECURITY_HEADERS`], the retry advice of an error, and `no-store` if the answer does not state how long it may
/// be cached.
fn with_security_headers(mut response: PageResponse) -> PageResponse {
    for (name, value) in SECURITY_HEADERS {
        response.headers.insert(name, HeaderValue::from_static(value));
    }
    if response.status.is_client_error() || response.status.is_server_error() {
        // As in the API, errors advise a retry only if waiting can help.
        let is_retryable = matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let advice = HeaderValue::from_static(if is_retryable { "true" } else { "false" });
        response.headers.insert(SHOULD_RETRY, advice);
    }
    response.headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
