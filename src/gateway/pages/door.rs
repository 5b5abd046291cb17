//! Sign-in and sign-out: set-up, invitation, name and password, and the end of a session.

use askama::Template;
use http::StatusCode;

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::{PageForm, WHOLE};
use super::frame::PageLayout;
use super::preferences::local;
use super::visit::PageResponse;
use crate::gateway::people::{IdentityError, IssuedSession, LinkDetails};
use crate::gateway::store::OneTimeLinkPurpose;

#[derive(Template)]
#[template(path = "sign_in.html", config = "src/gateway/pages/askama.toml")]
struct SignInPage {
    page: PageLayout,
    form: PageForm,
    next: String,
}

/// A page with a form for a new password, for the first time or as a replacement.
#[derive(Template)]
#[template(path = "welcome.html", config = "src/gateway/pages/askama.toml")]
struct PasswordPage {
    page: PageLayout,
    form: PageForm,
    title: &'static str,
    lead: &'static str,
    submit: &'static str,
    action: String,
    /// The name of the user whose password is set; at set-up the form asks for the name too.
    name: Option<String>,
}

/// The sign-in page.
pub(super) fn sign_in(desk: &PageContext<'_>) -> PageResponse {
    if desk.session.is_some() {
        return PageResponse::see("/keys");
    }
    let next = desk.visit.asked("next").map(local).unwrap_or_default();
    show_sign_in(desk, StatusCode::OK, PageForm::default(), next)
}

fn show_sign_in(desk: &PageContext<'_>, status: StatusCode, form: PageForm, next: String) -> PageResponse {
    rendered(status, &SignInPage { page: desk.page(""), form, next })
}

/// Signs in with name and password.
pub(super) async fn send_sign_in(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (name, password) = (desk.visit.sent("name"), desk.visit.sent_as_is("password"));
    let next = desk.visit.sent("next");
    let opened = match desk.people().sign_in(name, password, &desk.origin()).await {
        Ok(opened) => opened,
        Err(IdentityError::Wrong | IdentityError::Field { .. }) => {
            // The message does not say which of the two is wrong.
            let form = PageForm::sent(desk.visit, &["name"]).wrong(WHOLE, desk.texts.of("sign_in.wrong"));
            return Ok(show_sign_in(desk, StatusCode::UNPROCESSABLE_ENTITY, form, next.to_owned()));
        }
        Err(other) => return Err(other.into()),
    };
    Ok(let_in(desk, opened, &if next.is_empty() { "/keys".to_owned() } else { local(next) }))
}

/// Ends the session.
pub(super) async fn sign_out(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(session) = &desk.session {
        desk.people().sign_out(session).await?;
    }
    Ok(PageResponse::see("/sign-in?done=signed-out").set(&desk.session_cookie(None)))
}

/// The page of the first run, which asks for the first admin.
pub(super) async fn setup(desk: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    looked(desk, link, &[OneTimeLinkPurpose::Setup]).await?;
    Ok(show_setup(desk, StatusCode::OK, link, PageForm::default().with("name", "admin")))
}

fn show_setup(desk: &PageContext<'_>, status: StatusCode, link: &str, form: PageForm) -> PageResponse {
    rendered(
        status,
        &PasswordPage {
            page: desk.page(""),
            form,
            title: "setup.title",
            lead: "setup.lead",
            submit: "setup.submit",
            action: format!("/setup/{}", encoded(link)),
            name: None,
        },
    )
}

/// Creates the first admin.
pub(super) async fn send_setup(desk: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    looked(desk, link, &[OneTimeLinkPurpose::Setup]).await?;
    let form = PageForm::sent(desk.visit, &["name"]);
    let Some(password) = agreed(desk) else {
        let form = form.wrong("again", desk.texts.of("error.again"));
        return Ok(show_setup(desk, StatusCode::UNPROCESSABLE_ENTITY, link, form));
    };
    match desk.people().set_up(link, desk.visit.sent("name"), password, &desk.origin()).await {
        Ok(opened) => Ok(let_in(desk, opened, "/start")),
        Err(error) => {
            let form = refused(desk, form, error)?;
            Ok(show_setup(desk, StatusCode::UNPROCESSABLE_ENTITY, link, form))
        }
    }
}

/// The page for an invitation or for a password reset.
pub(super) async fn invitation(desk: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    let known = looked(desk, link, &[OneTimeLinkPurpose::Invitation, OneTimeLinkPurpose::Reset]).await?;
    Ok(show_invitation(desk, StatusCode::OK, link, known, PageForm::default()))
}

fn show_invitation(
    desk: &PageContext<'_>,
    status: StatusCode,
    link: &str,
    known: LinkDetails,
    form: PageForm,
) -> PageResponse {
    let is_reset = known.purpose == OneTimeLinkPurpose::Reset;
    rendered(
        status,
        &PasswordPage {
            page: desk.page(""),
            form,
            title: if is_reset { "reset.title" } else { "invitation.title" },
            lead: if is_reset { "reset.lead" } else { "invitation.lead" },
            submit: if is_reset { "reset.submit" } else { "invitation.submit" },
            action: format!("/invitation/{}", encoded(link)),
            name: known.name,
        },
    )
}

/// Sets the password of an invited user.
pub(super) async fn send_invitation(desk: &PageContext<'_>, link: &str) -> Result<PageResponse, PageError> {
    let known = looked(desk, link, &[OneTimeLinkPurpose::Invitation, OneTimeLinkPurpose::Reset]).await?;
    let Some(password) = agreed(desk) else {
        let form = PageForm::default().wrong("again", desk.texts.of("error.again"));
        return Ok(show_invitation(desk, StatusCode::UNPROCESSABLE_ENTITY, link, known, form));
    };
    match desk.people().accept(link, password, &desk.origin()).await {
        Ok(opened) => Ok(let_in(desk, opened, "/start")),
        Err(error) => {
            let form = refused(desk, PageForm::default(), error)?;
            Ok(show_invitation(desk, StatusCode::UNPROCESSABLE_ENTITY, link, known, form))
        }
    }
}

async fn looked(desk: &PageContext<'_>, link: &str, purposes: &[OneTimeLinkPurpose]) -> Result<LinkDetails, PageError> {
    let known = desk.people().look(link).await?;
    if purposes.contains(&known.purpose) { Ok(known) } else { Err(PageError::Link) }
}

/// The password, if both fields hold the same.
fn agreed<'a>(desk: &PageContext<'a>) -> Option<&'a str> {
    let password = desk.visit.sent_as_is("password");
    (password == desk.visit.sent_as_is("again")).then_some(password)
}

fn let_in(desk: &PageContext<'_>, opened: IssuedSession, path: &str) -> PageResponse {
    PageResponse::see(path).set(&desk.session_cookie(Some(opened.cookie.expose().to_owned())))
}

/// Adds the error of the identity service beside its field.
pub(super) fn refused(desk: &PageContext<'_>, form: PageForm, error: IdentityError) -> Result<PageForm, PageError> {
    match error {
        IdentityError::Taken => Ok(form.wrong("name", desk.texts.of("error.taken"))),
        IdentityError::Field { field: "password", .. } => Ok(form.wrong("password", desk.texts.of("error.password"))),
        IdentityError::Field { .. } => Ok(form.wrong("name", desk.texts.of("error.name"))),
        other => Err(other.into()),
    }
}

fn encoded(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC).to_string()
}
