//! Asks for the password again, and for a code of the second factor if there is one, before an action that outlasts the
//! session, such as the creation of an admin token.
//!
//! The question is the answer to the submitted form. Its page repeats the fields of that form, so the form is processed
//! when the password is right, and nothing that was entered is lost. It works without a script. The nonce of the form is
//! used only afterwards.

use askama::Template;
use http::StatusCode;
use http::header::RETRY_AFTER;

use super::csrf::TOKEN_FIELD;
use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::gateway::people::IdentityError;

/// The fields with the password and the code.
const PASSWORD_FIELD: &str = "confirm_password";
const CODE_FIELD: &str = "confirm_code";

#[derive(Template)]
#[template(path = "identity_proof.html", config = "src/gateway/pages/askama.toml")]
struct IdentityProofPage {
    page: PageLayout,
    /// The target of the form that waits for the proof.
    action: String,
    /// The fields of that form.
    fields: Vec<(String, String)>,
    name: String,
    /// True if the user has a second factor.
    needs_code: bool,
    has_password: bool,
    /// The name of the provider that can identify the user, if there is one.
    provider: Option<String>,
    form: PageForm,
    cancel: &'static str,
}

/// Returns the page that asks who the user is; `None` if the user has proved it a short time ago or with this form, and
/// the form may be processed. `cancel` is the page to which the user can return.
///
/// # Errors
///
/// Returns an error after too many attempts, or if the store fails.
pub(super) async fn ask_for_proof(
    context: &PageContext<'_>,
    cancel: &'static str,
) -> Result<Option<PageResponse>, PageError> {
    let session = context.session()?;
    if context.people().has_fresh_proof(session) {
        return Ok(None);
    }
    let password = context.request.raw_form_field(PASSWORD_FIELD);
    if password.is_empty() {
        return render_question(context, cancel, StatusCode::OK, PageForm::default()).await.map(Some);
    }
    match context.people().prove_identity(session, password, context.request.form_field(CODE_FIELD)).await {
        Ok(()) => Ok(None),
        Err(IdentityError::WrongCredentials) => {
            let has_code = session.actor.user().is_some_and(|user| user.has_second_factor);
            let text = if has_code { "proof.wrong_code" } else { "proof.wrong" };
            let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get(text));
            render_question(context, cancel, StatusCode::UNPROCESSABLE_ENTITY, form).await.map(Some)
        }
        Err(IdentityError::TooManyAttempts { retry_after }) => {
            let seconds = retry_after.as_secs();
            let text = context.texts.count("failure.slow_text", i64::try_from(seconds).unwrap_or(i64::MAX));
            let form = PageForm::default().with_error(WHOLE_FORM, text);
            let page = render_question(context, cancel, StatusCode::TOO_MANY_REQUESTS, form).await?;
            Ok(Some(page.with_header(RETRY_AFTER, &seconds.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

async fn render_question(
    context: &PageContext<'_>,
    cancel: &'static str,
    status: StatusCode,
    form: PageForm,
) -> Result<PageResponse, PageError> {
    let user = context.session()?.actor.user().ok_or(PageError::NotFound)?;
    let mut page = context.layout("");
    // A change of language or theme would load another page, without the fields.
    page.back = None;
    let repeated = context.request.form.iter().flat_map(|fields| fields.pairs());
    let fields = repeated
        .filter(|(name, _)| ![TOKEN_FIELD, PASSWORD_FIELD, CODE_FIELD].contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let template = IdentityProofPage {
        page,
        action: context.request.path.clone(),
        fields,
        name: user.name.clone(),
        needs_code: user.has_second_factor,
        has_password: user.has_password,
        provider: context.own_identity().await?.and(context.provider_label()),
        form,
        cancel,
    };
    Ok(render(status, &template))
}
