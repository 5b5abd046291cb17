//! How somebody comes in: by set-up, by invitation, by name and password; and how they go.

use askama::Template;
use http::StatusCode;

use super::desk::Desk;
use super::failure::{Failure, rendered};
use super::form::{Form, WHOLE};
use super::frame::Page;
use super::preferences::local;
use super::visit::Shown;
use crate::gateway::people::{LinkFor, Opened, PeopleError};
use crate::gateway::store::Purpose;

#[derive(Template)]
#[template(path = "sign_in.html", config = "src/gateway/pages/askama.toml")]
struct SignInPage {
    page: Page,
    form: Form,
    next: String,
}

/// A page where somebody chooses a password, for the first time or anew.
#[derive(Template)]
#[template(path = "welcome.html", config = "src/gateway/pages/askama.toml")]
struct WelcomePage {
    page: Page,
    form: Form,
    title: &'static str,
    lead: &'static str,
    submit: &'static str,
    action: String,
    /// Whose password it will be; at set-up they choose a name too.
    name: Option<String>,
}

/// The page for name and password.
pub(super) fn sign_in(desk: &Desk<'_>) -> Shown {
    if desk.session.is_some() {
        return Shown::see("/keys");
    }
    let next = desk.visit.asked("next").map(local).unwrap_or_default();
    show_sign_in(desk, StatusCode::OK, Form::default(), next)
}

fn show_sign_in(desk: &Desk<'_>, status: StatusCode, form: Form, next: String) -> Shown {
    rendered(status, &SignInPage { page: desk.page(""), form, next })
}

/// Name and password.
pub(super) async fn send_sign_in(desk: &Desk<'_>) -> Result<Shown, Failure> {
    let (name, password) = (desk.visit.sent("name"), desk.visit.sent_as_is("password"));
    let next = desk.visit.sent("next");
    let opened = match desk.people().sign_in(name, password, &desk.origin()).await {
        Ok(opened) => opened,
        Err(PeopleError::Wrong | PeopleError::Field { .. }) => {
            // Which of the two is wrong is nobody's business.
            let form = Form::sent(desk.visit, &["name"]).wrong(WHOLE, desk.texts.of("sign_in.wrong"));
            return Ok(show_sign_in(desk, StatusCode::UNPROCESSABLE_ENTITY, form, next.to_owned()));
        }
        Err(other) => return Err(other.into()),
    };
    Ok(let_in(desk, opened, &if next.is_empty() { "/keys".to_owned() } else { local(next) }))
}

/// Ends the session.
pub(super) async fn sign_out(desk: &Desk<'_>) -> Result<Shown, Failure> {
    if let Some(session) = &desk.session {
        desk.people().sign_out(session).await?;
    }
    Ok(Shown::see("/sign-in?done=signed-out").set(&desk.session_cookie(None)))
}

/// The page of the first run.
pub(super) async fn setup(desk: &Desk<'_>, link: &str) -> Result<Shown, Failure> {
    looked(desk, link, &[Purpose::Setup]).await?;
    Ok(show_setup(desk, StatusCode::OK, link, Form::default().with("name", "admin")))
}

fn show_setup(desk: &Desk<'_>, status: StatusCode, link: &str, form: Form) -> Shown {
    rendered(
        status,
        &WelcomePage {
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

/// Makes the first admin.
pub(super) async fn send_setup(desk: &Desk<'_>, link: &str) -> Result<Shown, Failure> {
    looked(desk, link, &[Purpose::Setup]).await?;
    let form = Form::sent(desk.visit, &["name"]);
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

/// The page of somebody who was invited, or whose password is to be chosen anew.
pub(super) async fn invitation(desk: &Desk<'_>, link: &str) -> Result<Shown, Failure> {
    let known = looked(desk, link, &[Purpose::Invitation, Purpose::Reset]).await?;
    Ok(show_invitation(desk, StatusCode::OK, link, known, Form::default()))
}

fn show_invitation(desk: &Desk<'_>, status: StatusCode, link: &str, known: LinkFor, form: Form) -> Shown {
    let is_reset = known.purpose == Purpose::Reset;
    rendered(
        status,
        &WelcomePage {
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

/// Takes the password of somebody who was invited.
pub(super) async fn send_invitation(desk: &Desk<'_>, link: &str) -> Result<Shown, Failure> {
    let known = looked(desk, link, &[Purpose::Invitation, Purpose::Reset]).await?;
    let Some(password) = agreed(desk) else {
        let form = Form::default().wrong("again", desk.texts.of("error.again"));
        return Ok(show_invitation(desk, StatusCode::UNPROCESSABLE_ENTITY, link, known, form));
    };
    match desk.people().accept(link, password, &desk.origin()).await {
        Ok(opened) => Ok(let_in(desk, opened, "/start")),
        Err(error) => {
            let form = refused(desk, Form::default(), error)?;
            Ok(show_invitation(desk, StatusCode::UNPROCESSABLE_ENTITY, link, known, form))
        }
    }
}

async fn looked(desk: &Desk<'_>, link: &str, purposes: &[Purpose]) -> Result<LinkFor, Failure> {
    let known = desk.people().look(link).await?;
    if purposes.contains(&known.purpose) { Ok(known) } else { Err(Failure::Link) }
}

/// The password, where it was typed twice alike.
fn agreed<'a>(desk: &Desk<'a>) -> Option<&'a str> {
    let password = desk.visit.sent_as_is("password");
    (password == desk.visit.sent_as_is("again")).then_some(password)
}

fn let_in(desk: &Desk<'_>, opened: Opened, path: &str) -> Shown {
    Shown::see(path).set(&desk.session_cookie(Some(opened.cookie.expose().to_owned())))
}

/// What people say of a field, beside it.
pub(super) fn refused(desk: &Desk<'_>, form: Form, error: PeopleError) -> Result<Form, Failure> {
    match error {
        PeopleError::Taken => Ok(form.wrong("name", desk.texts.of("error.taken"))),
        PeopleError::Field { field: "password", .. } => Ok(form.wrong("password", desk.texts.of("error.password"))),
        PeopleError::Field { .. } => Ok(form.wrong("name", desk.texts.of("error.name"))),
        other => Err(other.into()),
    }
}

fn encoded(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC).to_string()
}
