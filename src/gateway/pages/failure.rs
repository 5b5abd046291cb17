//! Error pages: each error has its own text and its own next step.

use askama::Template;
use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};

use super::frame::PageLayout;
use super::visit::{FormReadError, PageResponse};
use crate::error::{Error, ResourceConflict};

/// The reason why there is no page.
#[derive(Debug)]
pub(crate) enum PageError {
    /// Not a failure: a redirect to another page.
    See(String),
    /// There is no such page, or it belongs to another user.
    NotFound,
    /// The page exists, and takes another method.
    Method(&'static str),
    /// Only admins may see it.
    Denied,
    /// The form does not come from a page of ours, or comes from one that is too old.
    Forged,
    /// A one-time link that is used up, expired or invalid.
    Link,
    /// Too many attempts.
    Slow {
        /// The seconds to wait.
        seconds: u64,
    },
    /// The host does not belong to the gateway.
    Host,
    /// The form could not be read.
    Form(FormReadError),
    /// The store does not answer.
    Unavailable,
    /// A conflict that no single field has caused.
    Conflict(&'static str),
    /// An internal error.
    Internal,
}

/// The page of a failure.
#[derive(Template)]
#[template(path = "failure.html", config = "src/gateway/pages/askama.toml")]
struct ErrorPage {
    page: PageLayout,
    status: u16,
    title: &'static str,
    text: String,
    link: &'static str,
    link_label: &'static str,
}

// === impl PageError ===

impl PageError {
    /// The error page within this layout.
    pub(super) fn show(self, page: PageLayout) -> PageResponse {
        if let Self::See(path) = &self {
            return PageResponse::see(path);
        }
        let (status, title) = self.status_and_title();
        let text = match &self {
            Self::Slow { seconds } => page.count("failure.slow_text", *seconds),
            Self::Conflict(key) => page.of(key).to_owned(),
            _ => page.of(self.text()).to_owned(),
        };
        let (link, link_label) = match &self {
            Self::Link | Self::Slow { .. } => ("/sign-in", "failure.to_sign_in"),
            _ => ("/keys", "failure.to_keys"),
        };
        let shown = rendered(status, &ErrorPage { page, status: status.as_u16(), title, text, link, link_label });
        match &self {
            Self::Method(allowed) => shown.with(ALLOW, allowed),
            Self::Slow { seconds } => shown.with(RETRY_AFTER, &seconds.to_string()),
            _ => shown,
        }
    }

    fn status_and_title(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound | Self::See(_) => (StatusCode::NOT_FOUND, "failure.not_found"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "failure.method"),
            Self::Denied => (StatusCode::FORBIDDEN, "failure.denied"),
            Self::Forged => (StatusCode::FORBIDDEN, "failure.forged"),
            Self::Link => (StatusCode::GONE, "failure.link"),
            Self::Slow { .. } => (StatusCode::TOO_MANY_REQUESTS, "failure.slow"),
            Self::Host => (StatusCode::MISDIRECTED_REQUEST, "failure.host"),
            Self::Form(FormReadError::TooLarge) => (StatusCode::PAYLOAD_TOO_LARGE, "failure.too_large"),
            Self::Form(FormReadError::NoForm) => (StatusCode::BAD_REQUEST, "failure.no_form"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "failure.unavailable"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "failure.conflict"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "failure.internal"),
        }
    }

    const fn text(&self) -> &'static str {
        match self {
            Self::NotFound | Self::See(_) => "failure.not_found_text",
            Self::Method(_) => "failure.method_text",
            Self::Denied => "failure.denied_text",
            Self::Forged => "failure.forged_text",
            Self::Link => "failure.link_text",
            Self::Host => "failure.host_text",
            Self::Form(FormReadError::TooLarge) => "failure.too_large_text",
            Self::Form(FormReadError::NoForm) => "failure.no_form_text",
            Self::Unavailable => "failure.unavailable_text",
            Self::Internal | Self::Slow { .. } | Self::Conflict(_) => "failure.internal_text",
        }
    }
}

impl From<Error> for PageError {
    /// Converts an error of the console. If a field of a form has caused it, the form is shown again instead.
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound(_) | Error::Invalid(_) => Self::NotFound,
            Error::Denied | Error::AdminDecision(_) | Error::InvalidKey => Self::Denied,
            Error::Unavailable => Self::Unavailable,
            Error::RateLimited { retry_after } => Self::Slow { seconds: retry_after.into() },
            Error::Conflict(conflict) => Self::Conflict(conflict_text(&conflict)),
            other => {
                tracing::error!(error = %other, "an error occurred that no page expects");
                Self::Internal
            }
        }
    }
}

/// The text for a conflict.
pub(super) const fn conflict_text(conflict: &ResourceConflict) -> &'static str {
    match conflict {
        ResourceConflict::Exists(_) | ResourceConflict::UserExists(_) | ResourceConflict::GroupExists(_) => {
            "error.taken"
        }
        ResourceConflict::ReadOnly(_) => "error.account_read_only",
        ResourceConflict::GroupInUse(_) => "error.group_in_use",
        ResourceConflict::GroupReadOnly(_) => "error.group_read_only",
        ResourceConflict::LastAdmin => "error.last_admin",
        ResourceConflict::KeyLimit(_) => "error.key_limit",
    }
}

/// Renders a template as a page.
pub(super) fn rendered(status: StatusCode, template: &impl Template) -> PageResponse {
    match template.render() {
        Ok(html) => PageResponse::html(status, html),
        Err(error) => {
            tracing::error!(%error, "a page could not be written");
            let mut shown = PageResponse::html(StatusCode::INTERNAL_SERVER_ERROR, String::new());
            shown.headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            shown
        }
    }
}
