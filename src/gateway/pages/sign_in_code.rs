//! The second page of a sign-in, which asks for the code of the second factor.

use askama::Template;
use http::StatusCode;

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::preferences::safe_redirect_path;
use super::sign_in::{redirect_with_session, render_expired_code};
use crate::gateway::people::{IdentityError, SecretText, SignInStep};

const PATH: &str = "/sign-in/code";

#[derive(Template)]
#[template(path = "sign_in_code.html", config = "src/gateway/pages/askama.toml")]
struct CodePage {
    page: PageLayout,
    form: PageForm,
    next: String,
}

/// Continues a sign-in: opens the session, or leads to the question for the code.
pub(super) fn continue_sign_in(context: &PageContext<'_>, step: SignInStep, next: &str) -> PageResponse {
    match step {
        SignInStep::Complete(session) => redirect_with_session(context, &session, next),
        SignInStep::NeedsCode(pending) => lead_to_question(context, &pending, next),
    }
}

/// The path of the question, with the page after it.
pub(super) fn path(next: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
    format!("{PATH}?{query}")
}

fn lead_to_question(context: &PageContext<'_>, pending: &SecretText, next: &str) -> PageResponse {
    PageResponse::redirect(&path(next)).with_cookie(&context.pending_cookie(Some(pending.expose().to_owned())))
}

/// Shows the question for the code, if a sign-in of this browser waits for it.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let is_pending = match context.pending_sign_in() {
        Some(pending) => context.people().is_pending(&pending, &context.sign_in_origin()).await?,
        None => false,
    };
    if !is_pending {
        return Ok(PageResponse::redirect("/sign-in"));
    }
    let next = context.request.query_param("next").map(safe_redirect_path).unwrap_or_default();
    Ok(render(StatusCode::OK, &CodePage { page: context.layout(""), form: PageForm::default(), next }))
}

/// Completes a sign-in with a code.
pub(super) async fn submit(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (code, next) = (context.request.form_field("code"), context.request.form_field("next"));
    let pending = context.pending_sign_in().unwrap_or_default();
    match context.people().complete_sign_in(&pending, code, &context.sign_in_origin()).await {
        Ok(session) => {
            let next = if next.is_empty() { "/studio".to_owned() } else { safe_redirect_path(next) };
            Ok(redirect_with_session(context, &session, &next).with_cookie(&context.pending_cookie(None)))
        }
        Err(IdentityError::WrongCredentials) => {
            let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get("factor.wrong"));
            let template = CodePage { page: context.layout(""), form, next: next.to_owned() };
            Ok(render(StatusCode::UNPROCESSABLE_ENTITY, &template))
        }
        Err(IdentityError::InvalidLink) => {
            Ok(render_expired_code(context, next).with_cookie(&context.pending_cookie(None)))
        }
        Err(error) => Err(error.into()),
    }
}
