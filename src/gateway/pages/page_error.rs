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
    /// The form was already used. The value is the answer, which leads to what it has created.
    RepeatedForm(Box<PageResponse>),
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
    /// Returns the redirect or the answer, or the error page in this layout.
    pub(super) fn into_response(self, layout: PageLayout) -> PageResponse {
        if let Self::RepeatedForm(response) = self {
            return *response;
        }
        let (status, title, text) = self.status_and_texts();
        let text = match &self {
            Self::Redirect(path) => return PageResponse::redirect(path),
            Self::RateLimited { seconds } => layout.count(text, *seconds),
            _ => layout.text(text).to_owned(),
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

    /// The status, and the keys of the title and the text.
    const fn status_and_texts(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::NotFound | Self::Redirect(_) | Self::RepeatedForm(_) => {
                (StatusCode::NOT_FOUND, "failure.not_found", "failure.not_found_text")
            }
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "failure.method", "failure.method_text"),
            Self::Denied => (StatusCode::FORBIDDEN, "failure.denied", "failure.denied_text"),
            Self::ForgedForm => (StatusCode::FORBIDDEN, "failure.forged", "failure.forged_text"),
            Self::InvalidLink => (StatusCode::GONE, "failure.link", "failure.link_text"),
            Self::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, "failure.slow", "failure.slow_text"),
            Self::UnknownHost => (StatusCode::MISDIRECTED_REQUEST, "failure.host", "failure.host_text"),
            Self::UnreadableForm(FormReadError::TooLarge) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "failure.too_large", "failure.too_large_text")
            }
            Self::UnreadableForm(FormReadError::NotAForm) => {
                (StatusCode::BAD_REQUEST, "failure.no_form", "failure.no_form_text")
            }
            Self::Unavailable | Self::UnreadableForm(FormReadError::Unavailable) => {
                (StatusCode::SERVICE_UNAVAILABLE, "failure.unavailable", "failure.unavailable_text")
            }
            Self::Conflict(text) => (StatusCode::CONFLICT, "failure.conflict", text),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "failure.internal", "failure.internal_text"),
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
