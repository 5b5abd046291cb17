//! The pages for sign-in, sign-out, first set-up, invitations and password resets.

use askama::Template;
use http::StatusCode;

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::preferences::safe_redirect_path;
use super::sign_in_code::continue_sign_in;
use crate::gateway::people::{IdentityError, IssuedSession, LinkDetails};
use crate::gateway::store::OneTimeLinkPurpose;

#[derive(Template)]
#[template(path = "sign_in.html", config = "src/gateway/pages/askama.toml")]
struct SignInPage {
    page: PageLayout,
    form: PageForm,
    next: String,
    /// The name of the provider with which users can sign in, if there is one.
    provider: Option<String>,
    /// False if there is no admin yet, so that nobody can sign in.
    is_set_up: bool,
}

/// A page with a form for a new password: for the first set-up, an invitation or a password reset.
#[derive(Template)]
#[template(path = "set_password.html", config = "src/gateway/pages/askama.toml")]
struct PasswordPage {
    page: PageLayout,
    form: PageForm,
    title: &'static str,
    lead: &'static str,
    submit: &'static str,
    action: String,
    /// The name of the user whose password is set; `None` at the first set-up, where the form asks for the name too.
    name: Option<String>,
}

/// Shows the sign-in page, or redirects to `/studio` if there is a session.
pub(super) async fn show_sign_in_page(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if context.session.is_some() {
        return Ok(PageResponse::redirect("/studio"));
    }
    let next = context.request.query_param("next").map(safe_redirect_path).unwrap_or_default();
    let is_set_up = context.people().is_set_up().await?;
    let provider = context.provider_label();
    let template = SignInPage { page: context.layout(""), form: PageForm::default(), next, provider, is_set_up };
    Ok(render(StatusCode::OK, &template))
}

/// Signs in with name and password.
pub(super) async fn submit_sign_in(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (name, password) = (context.request.form_field("name"), context.request.raw_form_field("password"));
    let next = context.request.form_field("next");
    let step = match context.people().sign_in(name, password, &context.sign_in_origin()).await {
        Ok(step) => step,
        Err(IdentityError::WrongCredentials | IdentityError::InvalidField { .. }) => {
            // The message does not reveal whether the name or the password is wrong.
            let form = PageForm::from_request(context.request, &["name"])
                .with_error(WHOLE_FORM, context.texts.get("sign_in.wrong"));
            return Ok(render_refused_sign_in(context, form, next));
        }
        Err(error) => return Err(error.into()),
    };
    let next = if next.is_empty() { "/studio".to_owned() } else { safe_redirect_path(next) };
    Ok(continue_sign_in(context, step, &next))
}

/// Shows the sign-in page after a refused sign-in.
pub(super) fn render_refused_sign_in(context: &PageContext<'_>, form: PageForm, next: &str) -> PageResponse {
    let (next, provider) = (next.to_owned(), context.provider_label());
    let template = SignInPage { page: context.layout(""), form, next, provider, is_set_up: true };
    render(StatusCode::UNPROCESSABLE_ENTITY, &template)
}

/// Shows the sign-in page after the time for the code is over.
pub(super) fn render_expired_code(context: &PageContext<'_>, next: &str) -> PageResponse {
    let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get("sign_in.code_expired"));
    render_refused_sign_in(context, form, next)
}

/// Ends the session, if there is one.
pub(super) async fn sign_out(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(session) = &context.session {
        context.people().sign_out(session).await?;
    }
    Ok(PageResponse::redirect("/sign-in?done=signed-out").with_cookie(&context.session_cookie(None)))
}

/// Shows the page of the first set-up, on which the first admin is created.
pub(super) async fn show_setup_page(context: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    find_link(context, link, &[OneTimeLinkPurpose::Setup]).await?;
    Ok(render_setup(context, StatusCode::OK, link, PageForm::default().with_value("name", "admin")))
}

fn render_setup(context: &PageContext<'_>, status: StatusCode, link: &str, form: PageForm) -> PageResponse {
    render(
        status,
        &PasswordPage {
            page: context.layout(""),
            form,
            title: "setup.title",
            lead: "setup.lead",
            submit: "setup.submit",
            action: format!("/setup/{}", encode_path_segment(link)),
            name: None,
        },
    )
}

/// Creates the first admin.
pub(super) async fn submit_setup(context: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    find_link(context, link, &[OneTimeLinkPurpose::Setup]).await?;
    let form = PageForm::from_request(context.request, &["name"]);
    let Some(password) = matching_password(context) else {
        let form = form.with_error("again", context.texts.get("error.again"));
        return Ok(render_setup(context, StatusCode::UNPROCESSABLE_ENTITY, link, form));
    };
    match context
        .people()
        .create_first_admin(link, context.request.form_field("name"), password, &context.sign_in_origin())
        .await
    {
        Ok(step) => Ok(continue_sign_in(context, step, "/studio")),
        Err(error) => {
            let form = with_identity_error(context, form, error)?;
            Ok(render_setup(context, StatusCode::UNPROCESSABLE_ENTITY, link, form))
        }
    }
}

/// Shows the page for an invitation or a password reset.
pub(super) async fn show_invitation_page(context: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    let details = find_link(context, link, &[OneTimeLinkPurpose::Invitation, OneTimeLinkPurpose::Reset]).await?;
    Ok(render_invitation(context, StatusCode::OK, link, details, PageForm::default()))
}

fn render_invitation(
    context: &PageContext<'_>,
    status: StatusCode,
    link: &str,
    details: LinkDetails,
    form: PageForm,
) -> PageResponse {
    let is_reset = details.purpose == OneTimeLinkPurpose::Reset;
    render(
        status,
        &PasswordPage {
            page: context.layout(""),
            form,
            title: if is_reset { "reset.title" } else { "invitation.title" },
            lead: if is_reset { "reset.lead" } else { "invitation.lead" },
            submit: if is_reset { "reset.submit" } else { "invitation.submit" },
            action: format!("/invitation/{}", encode_path_segment(link)),
            name: details.name,
        },
    )
}

/// Sets the password of a user with an invitation or reset link.
pub(super) async fn submit_invitation(context: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    let details = find_link(context, link, &[OneTimeLinkPurpose::Invitation, OneTimeLinkPurpose::Reset]).await?;
    let Some(password) = matching_password(context) else {
        let form = PageForm::default().with_error("again", context.texts.get("error.again"));
        return Ok(render_invitation(context, StatusCode::UNPROCESSABLE_ENTITY, link, details, form));
    };
    match context.people().accept_link(link, password, &context.sign_in_origin()).await {
        Ok(step) => Ok(continue_sign_in(context, step, "/studio")),
        Err(error) => {
            let form = with_identity_error(context, PageForm::default(), error)?;
            Ok(render_invitation(context, StatusCode::UNPROCESSABLE_ENTITY, link, details, form))
        }
    }
}

/// Looks up a one-time link, which must have one of these purposes.
async fn find_link(
    context: &PageContext<'_>,
    link: &str,
    purposes: &[OneTimeLinkPurpose],
) -> Result<LinkDetails, PageError> {
    let details = context.people().link_details(link).await?;
    if purposes.contains(&details.purpose) { Ok(details) } else { Err(PageError::InvalidLink) }
}

/// The new password, if both fields have the same text.
fn matching_password<'a>(context: &PageContext<'a>) -> Option<&'a str> {
    let password = context.request.raw_form_field("password");
    (password == context.request.raw_form_field("again")).then_some(password)
}

/// Redirects to a page, and gives the browser the cookie of its session.
pub(super) fn redirect_with_session(context: &PageContext<'_>, session: &IssuedSession, path: &str) -> PageResponse {
    PageResponse::redirect(path).with_cookie(&context.session_cookie(Some(session.cookie.expose().to_owned())))
}

/// Adds an error of the identity service to the field that it concerns.
///
/// # Errors
///
/// Returns an error if the identity service's error does not concern a field.
pub(super) fn with_identity_error(
    context: &PageContext<'_>,
    form: PageForm,
    error: IdentityError,
) -> Result<PageForm, PageError> {
    match error {
        IdentityError::NameTaken => Ok(form.with_error("name", context.texts.get("error.taken"))),
        IdentityError::InvalidField { field: "password", .. } => {
            Ok(form.with_error("password", context.texts.get("error.password")))
        }
        IdentityError::InvalidField { .. } => Ok(form.with_error("name", context.texts.get("error.name"))),
        error => Err(error.into()),
    }
}

fn encode_path_segment(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC).to_string()
}
