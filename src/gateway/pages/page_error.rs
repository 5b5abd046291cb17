//! The error pages. Each error has its own text, and a link to a page where the user can continue.

use askama::Template;
use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};

use super::http_messages::{FormReadError, PageResponse};
use super::page_layout::PageLayout;
use crate::error::{Error, ResourceConflict};

/// The reason why the requested page is not shown.
#[derive(Debug)]
pub(crate) enum PageError {
    /// A redirect to another page, which is not a failure.
    Redirect(String),
    /// There is no such page or object, the object belongs to another user, or a value in the path or query is invalid.
    NotFound,
    /// The path exists only for other methods. The value is that of the header `Allow`.
    MethodNotAllowed(&'static str),
    /// The user may not see the page, or may not make the change.
    Denied,
    /// The form does not come from a page of the gateway, or its token is no longer valid.
    ForgedForm,
    /// A one-time link that is used up, expired or invalid.
    InvalidLink,
    /// Too many attempts.
    RateLimited {
        /// The number of seconds to wait.
        seconds: u64,
    },
    /// The request names no host under which browsers may reach the gateway.
    UnknownHost,
    /// The form could not be read.
    UnreadableForm(FormReadError),
    /// The store failed.
    Unavailable,
    /// A conflict with existing data, if no form can show it. The value is the key of the text.
    Conflict(&'static str),
    /// An internal error.
    Internal,
}

/// The template of an error page.
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
    /// Returns the redirect, or the error page in this layout.
    pub(super) fn into_response(self, layout: PageLayout) -> PageResponse {
        if let Self::Redirect(path) = &self {
            return PageResponse::redirect(path);
        }
        let (status, title) = self.status_and_title();
        let text = match &self {
            Self::RateLimited { seconds } => layout.count("failure.slow_text", *seconds),
            Self::Conflict(key) => layout.text(key).to_owned(),
            _ => layout.text(self.text_key()).to_owned(),
        };
        let (link, link_label) = match &self {
            Self::InvalidLink | Self::RateLimited { .. } => ("/sign-in", "failure.to_sign_in"),
            _ => ("/keys", "failure.to_keys"),
        };
        let response =
            render(status, &ErrorPage { page: layout, status: status.as_u16(), title, text, link, link_label });
        match &self {
            Self::MethodNotAllowed(allowed) => response.with_header(ALLOW, allowed),
            Self::RateLimited { seconds } => response.with_header(RETRY_AFTER, &seconds.to_string()),
            _ => response,
        }
    }

    fn status_and_title(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound | Self::Redirect(_) => (StatusCode::NOT_FOUND, "failure.not_found"),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "failure.method"),
            Self::Denied => (StatusCode::FORBIDDEN, "failure.denied"),
            Self::ForgedForm => (StatusCode::FORBIDDEN, "failure.forged"),
            Self::InvalidLink => (StatusCode::GONE, "failure.link"),
            Self::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, "failure.slow"),
            Self::UnknownHost => (StatusCode::MISDIRECTED_REQUEST, "failure.host"),
            Self::UnreadableForm(FormReadError::TooLarge) => (StatusCode::PAYLOAD_TOO_LARGE, "failure.too_large"),
            Self::UnreadableForm(FormReadError::NotAForm) => (StatusCode::BAD_REQUEST, "failure.no_form"),
            Self::Unavailable | Self::UnreadableForm(FormReadError::Unavailable) => {
                (StatusCode::SERVICE_UNAVAILABLE, "failure.unavailable")
            }
            Self::Conflict(_) => (StatusCode::CONFLICT, "failure.conflict"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "failure.internal"),
        }
    }

    const fn text_key(&self) -> &'static str {
        match self {
            Self::NotFound | Self::Redirect(_) => "failure.not_found_text",
            Self::MethodNotAllowed(_) => "failure.method_text",
            Self::Denied => "failure.denied_text",
            Self::ForgedForm => "failure.forged_text",
            Self::InvalidLink => "failure.link_text",
            Self::UnknownHost => "failure.host_text",
            Self::UnreadableForm(FormReadError::TooLarge) => "failure.too_large_text",
            Self::UnreadableForm(FormReadError::NotAForm) => "failure.no_form_text",
            Self::Unavailable | Self::UnreadableForm(FormReadError::Unavailable) => "failure.unavailable_text",
            Self::Internal | Self::RateLimited { .. } | Self::Conflict(_) => "failure.internal_text",
        }
    }
}

impl From<Error> for PageError {
    /// Converts an error of the console that does not belong to a field of a form.
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound(_) | Error::Invalid(_) => Self::NotFound,
            Error::Denied | Error::AdminDecision(_) | Error::InvalidKey => Self::Denied,
            Error::Unavailable => Self::Unavailable,
            Error::RateLimited { retry_after } => Self::RateLimited { seconds: retry_after.into() },
            Error::LimitReached(refusal) => Self::RateLimited { seconds: refusal.wait_seconds },
            Error::Conflict(conflict) => Self::Conflict(conflict_text(&conflict)),
            error => {
                tracing::error!(%error, "an unexpected error occurred during a page request");
                Self::Internal
            }
        }
    }
}

/// The key of the text for a conflict.
pub(super) const fn conflict_text(conflict: &ResourceConflict) -> &'static str {
    match conflict {
        ResourceConflict::Exists(_) | ResourceConflict::UserExists(_) | ResourceConflict::GroupExists(_) => {
            "error.taken"
        }
        ResourceConflict::ReadOnly(_) => "error.account_read_only",
        ResourceConflict::GroupInUse(_) => "error.group_in_use",
        ResourceConflict::GroupReadOnly(_) => "error.group_read_only",
        ResourceConflict::PriceReadOnly(_) => "error.price_read_only",
        ResourceConflict::LastAdmin => "error.last_admin",
        ResourceConflict::KeyLimit(_) => "error.key_limit",
        ResourceConflict::TokenLimit(_) => "error.token_limit",
    }
}

/// Renders a template as a page. If this fails, the answer is empty and has the status 500.
pub(super) fn render(status: StatusCode, template: &impl Template) -> PageResponse {
    match template.render() {
        Ok(html) => PageResponse::html(status, html),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            let mut response = PageResponse::html(StatusCode::INTERNAL_SERVER_ERROR, String::new());
            response.headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            response
        }
    }
}
