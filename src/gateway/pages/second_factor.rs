//! The pages of the second factor: its set-up with a QR code, the recovery codes, and its end.

use askama::Template;
use http::StatusCode;

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::identity_proof::ask_for_proof;
use super::keys::claim_form;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::qr_code::QrCode;
use crate::gateway::people::{IdentityError, SecondFactorEnrolment, SecretText};

/// The path of the set-up, to which users are led who must have a second factor and have none.
pub(super) const PATH: &str = "/profile/second-factor";

#[derive(Template)]
#[template(path = "second_factor.html", config = "src/gateway/pages/askama.toml")]
struct EnrolmentPage {
    page: PageLayout,
    qr: Option<QrCode>,
    /// The secret, for apps without a camera.
    secret: String,
    sealed: String,
    name: String,
    form: PageForm,
    nonce: String,
    /// True if the user cannot do anything else before.
    is_required: bool,
}

/// The page that shows recovery codes. No other page shows them again.
#[derive(Template)]
#[template(path = "recovery_codes.html", config = "src/gateway/pages/askama.toml")]
struct RecoveryCodesPage {
    page: PageLayout,
    codes: Vec<String>,
}

/// Shows the set-up of a second factor.
pub(super) fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let session = context.session()?;
    if session.actor.user().is_some_and(|user| user.has_second_factor) {
        return Ok(PageResponse::redirect("/profile"));
    }
    let enrolment = context.people().begin_enrolment(session)?;
    render_enrolment(context, StatusCode::OK, &enrolment, PageForm::default())
}

fn render_enrolment(
    context: &PageContext<'_>,
    status: StatusCode,
    enrolment: &SecondFactorEnrolment,
    form: PageForm,
) -> Result<PageResponse, PageError> {
    let user = context.session()?.actor.user().ok_or(PageError::NotFound)?;
    let host = context.site.origin().split_once("://").map_or("", |(_, host)| host);
    let template = EnrolmentPage {
        page: context.layout("profile"),
        qr: QrCode::of_text(&enrolment.uri(&format!("imagate {host}"))),
        secret: enrolment.secret_text(),
        sealed: enrolment.sealed().to_owned(),
        name: user.name.clone(),
        form,
        nonce: context.issue_form_nonce()?,
        is_required: context.must_enrol(),
    };
    Ok(render(status, &template))
}

/// Confirms a second factor with its first code, and shows the recovery codes.
pub(super) async fn confirm(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(question) = ask_for_proof(context, PATH).await? {
        return Ok(question);
    }
    let session = context.session()?;
    let Some(enrolment) = context.people().reopen_enrolment(session, context.request.form_field("enrolment")) else {
        let enrolment = context.people().begin_enrolment(session)?;
        let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get("factor.stale"));
        return render_enrolment(context, StatusCode::UNPROCESSABLE_ENTITY, &enrolment, form);
    };
    let Some(first_use) = claim_form(context, "again.codes", "again.to_profile", "/profile").await? else {
        let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return render_enrolment(context, StatusCode::UNPROCESSABLE_ENTITY, &enrolment, form);
    };
    let confirmed = context.people().confirm_enrolment(session, &enrolment, context.request.form_field("code")).await;
    let error = match confirmed {
        Ok(codes) => return Ok(render_codes(context, &codes)),
        Err(error) => error,
    };
    first_use.release().await;
    match error {
        IdentityError::WrongCredentials => {
            let form = PageForm::default().with_error("code", context.texts.get("factor.wrong"));
            render_enrolment(context, StatusCode::UNPROCESSABLE_ENTITY, &enrolment, form)
        }
        IdentityError::InUse => Err(PageError::Conflict("factor.exists")),
        error => Err(error.into()),
    }
}

/// Replaces the recovery codes, and shows the new ones.
pub(super) async fn renew_codes(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(question) = ask_for_proof(context, "/profile").await? {
        return Ok(question);
    }
    let first_use =
        claim_form(context, "again.codes", "again.to_profile", "/profile").await?.ok_or(PageError::ForgedForm)?;
    match context.people().renew_recovery_codes(context.session()?).await {
        Ok(codes) => Ok(render_codes(context, &codes)),
        Err(error) => {
            first_use.release().await;
            Err(error.into())
        }
    }
}

fn render_codes(context: &PageContext<'_>, codes: &[SecretText]) -> PageResponse {
    let mut page = context.layout("profile");
    page.back = None;
    let codes = codes.iter().map(|code| code.expose().to_owned()).collect();
    render(StatusCode::OK, &RecoveryCodesPage { page, codes })
}

/// Removes the user's own second factor.
pub(super) async fn turn_off(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(question) = ask_for_proof(context, "/profile").await? {
        return Ok(question);
    }
    let actor = context.actor()?;
    let user = actor.user().ok_or(PageError::NotFound)?;
    match context.people().remove_second_factor(&actor.audit_context(), user.id.as_str()).await {
        // A form that is sent again finds none, and has the same result.
        Ok(_) | Err(IdentityError::InvalidField { .. }) => Ok(PageResponse::redirect("/profile?done=factor-off")),
        Err(error) => Err(error.into()),
    }
}
