//! Sign-in with a provider of OpenID Connect: the way there, and the way back.
//!
//! A browser is sent to the provider by an address and not by a form, because the policy of the pages lets forms lead
//! only to the gateway. Where a form must come before, its answer is a page that leads on. Browsers omit some cookies if
//! another site has led them here, so the way back ends with a page in these cases, too.

use askama::Template;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use http::StatusCode;

use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::identity_proof::ask_for_proof;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::preferences::safe_redirect_path;
use super::provider_flow::{FlowPurpose, ProviderFlow};
use super::sign_in::{redirect_with_session, render_refused_sign_in};
use super::sign_in_code;
use crate::gateway::oidc::{CLOCK_TOLERANCE, OidcError, OidcProvider};
use crate::gateway::people::{IdentityError, ProviderIdentity, SignInStep, UserSession};

/// A page that leads on to another one.
#[derive(Template)]
#[template(path = "provider_step.html", config = "src/gateway/pages/askama.toml")]
struct StepPage {
    page: PageLayout,
    title: String,
    lead: String,
    href: String,
    link: String,
    /// True if the browser follows the link by itself.
    is_followed: bool,
}

/// The question for the code of a user whom the provider has identified again.
#[derive(Template)]
#[template(path = "provider_code.html", config = "src/gateway/pages/askama.toml")]
struct CodePage {
    page: PageLayout,
    form: PageForm,
    sealed_proof: String,
}

fn provider<'a>(context: &PageContext<'a>) -> Result<&'a OidcProvider, PageError> {
    context.gateway.settings().oidc.as_deref().ok_or(PageError::NotFound)
}

/// Sends the browser to the provider, to sign in.
pub(super) async fn start(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let provider = provider(context)?;
    if context.session.is_some() {
        return Ok(PageResponse::redirect("/studio"));
    }
    let next = context.request.query_param("next").map(safe_redirect_path).unwrap_or_default();
    let flow = ProviderFlow::begin(context, provider, FlowPurpose::SignIn, next)?;
    match provider.authorization_url(&flow.request()).await {
        Ok(url) => Ok(PageResponse::redirect(&url).with_cookie(&context.flow_cookie(Some(flow.seal(context)?)))),
        Err(error) => render_failure(context, &flow.next, failure_key(&error)),
    }
}

/// Sends the browser to the provider, to prove the identity of the session's user again.
pub(super) async fn confirm(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let provider = provider(context)?;
    // Another site must not lead here.
    if !matches!(context.request.fetch_site.as_deref(), None | Some("none" | "same-origin")) {
        return Err(PageError::ForgedForm);
    }
    let session = context.session()?;
    if context.own_identity().await?.is_none() {
        return Err(PageError::NotFound);
    }
    let purpose = FlowPurpose::Confirm(session.id.to_string());
    let flow = ProviderFlow::begin(context, provider, purpose, String::new())?;
    let url = provider.authorization_url(&flow.request()).await.map_err(|error| unavailable(&error))?;
    Ok(PageResponse::redirect(&url).with_cookie(&context.flow_cookie(Some(flow.seal(context)?))))
}

/// Leads the browser to the provider, to connect the account of the session's user.
pub(super) async fn connect(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let provider = provider(context)?;
    if let Some(question) = ask_for_proof(context, "/profile").await? {
        return Ok(question);
    }
    let purpose = FlowPurpose::Connect(context.session()?.id.to_string());
    let flow = ProviderFlow::begin(context, provider, purpose, String::new())?;
    let url = provider.authorization_url(&flow.request()).await.map_err(|error| unavailable(&error))?;
    let label = &provider.config().label;
    let texts = StepTexts { title: "provider.go_title", lead: "provider.go_lead", link: "provider.go" };
    let page = step_page(context, texts, label, url, true);
    Ok(page.with_cookie(&context.flow_cookie(Some(flow.seal(context)?))))
}

/// Removes the connection of the session's user.
pub(super) async fn disconnect(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if let Some(question) = ask_for_proof(context, "/profile").await? {
        return Ok(question);
    }
    match context.people().disconnect_own_provider(context.session()?).await {
        Ok(()) => Ok(PageResponse::redirect("/profile?done=disconnected")),
        Err(IdentityError::InUse) => Err(PageError::Conflict("provider.needs_password")),
        Err(error) => Err(error.into()),
    }
}

/// Processes the response of the provider. If it belongs to the state of the browser, that state is removed, whatever
/// comes of the response: it is good for one.
pub(super) async fn receive(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let provider = provider(context)?;
    let flow = context.provider_flow(provider).filter(|flow| {
        let stated = context.request.query_param("state").unwrap_or_default();
        verify_slices_are_equal(stated.as_bytes(), flow.state.as_bytes()).is_ok()
    });
    let Some(flow) = flow else { return render_failure(context, "", "provider.expired") };
    let response = receive_response(context, provider, &flow).await;
    let response = response.unwrap_or_else(|error| error.into_response(context.layout("")));
    Ok(response.with_cookie(&context.flow_cookie(None)))
}

async fn receive_response(
    context: &PageContext<'_>,
    provider: &OidcProvider,
    flow: &ProviderFlow,
) -> Result<PageResponse, PageError> {
    let identity = match identify(context, provider, flow).await? {
        Ok(identity) => identity,
        Err(key) => return render_failure(context, &flow.next, key),
    };
    match &flow.purpose {
        FlowPurpose::SignIn => sign_in(context, provider, &identity, flow).await,
        FlowPurpose::Connect(session) => finish_connecting(context, session, &identity).await,
        FlowPurpose::Confirm(session) => finish_confirming(context, session, &identity, flow).await,
    }
}

/// Returns the identity that a response stands for, or the key of the text about its fault.
async fn identify(
    context: &PageContext<'_>,
    provider: &OidcProvider,
    flow: &ProviderFlow,
) -> Result<Result<ProviderIdentity, &'static str>, PageError> {
    if let Err(error) = provider.check_issuer(context.request.query_param("iss")).await {
        return Ok(Err(failure_key(&error)));
    }
    match (context.request.query_param("error"), context.request.raw_query_param("code")) {
        (Some("access_denied"), _) => Ok(Err("provider.denied")),
        (None, Some(code)) => redeem(context, provider, &code, flow).await,
        (error, _) => {
            let error = OidcError::Refused(error.unwrap_or("neither a code nor an error").escape_debug().to_string());
            Ok(Err(failure_key(&error)))
        }
    }
}

/// Exchanges the code of a response. One that the provider does not know counts as a refused attempt.
async fn redeem(
    context: &PageContext<'_>,
    provider: &OidcProvider,
    code: &str,
    flow: &ProviderFlow,
) -> Result<Result<ProviderIdentity, &'static str>, PageError> {
    let permit = context.people().count_provider_attempt(context.request.admission.address()).await?;
    let identity = provider.redeem(code, &flow.request()).await;
    if !matches!(identity, Err(OidcError::WrongCode | OidcError::Token(_))) {
        context.people().undo_attempt(permit).await;
    }
    if identity == Err(OidcError::NotPermitted) {
        context.people().refuse_identity(&context.sign_in_origin()).await?;
    }
    Ok(identity.map_err(|error| failure_key(&error)))
}

async fn sign_in(
    context: &PageContext<'_>,
    provider: &OidcProvider,
    identity: &ProviderIdentity,
    flow: &ProviderFlow,
) -> Result<PageResponse, PageError> {
    let next = if flow.next.is_empty() { "/studio" } else { &flow.next };
    let origin = context.sign_in_origin();
    let step = context.people().sign_in_with_provider(identity, provider.config().create_users, &origin).await;
    let key = match step {
        Ok(SignInStep::Complete(session)) => return Ok(redirect_with_session(context, &session, next)),
        Ok(SignInStep::NeedsCode(pending)) => {
            let texts = StepTexts { title: "sign_in.title", lead: "sign_in.code_lead", link: "provider.next" };
            let page = step_page(context, texts, &provider.config().label, sign_in_code::path(next), true);
            return Ok(page.with_cookie(&context.pending_cookie(Some(pending.expose().to_owned()))));
        }
        Err(IdentityError::Unknown) => "provider.unknown",
        Err(IdentityError::NameTaken) => "provider.name_taken",
        Err(IdentityError::InvalidField { .. }) => "provider.bad_name",
        Err(IdentityError::WrongCredentials) => "provider.refused",
        Err(error) => return Err(error.into()),
    };
    log_refusal(key);
    render_failure(context, &flow.next, key)
}

/// Returns the session if it is the one with this id.
fn same_session<'a>(context: &'a PageContext<'_>, id: &str) -> Option<&'a UserSession> {
    context.session.as_ref().filter(|session| session.id.as_str() == id)
}

async fn finish_connecting(
    context: &PageContext<'_>,
    session: &str,
    identity: &ProviderIdentity,
) -> Result<PageResponse, PageError> {
    let Some(session) = same_session(context, session) else { return render_failure(context, "", "provider.expired") };
    match context.people().connect_provider(session, identity).await {
        Ok(()) => {
            let texts = StepTexts {
                title: "provider.connected_title",
                lead: "provider.connected_lead",
                link: "provider.to_profile",
            };
            Ok(step_page(context, texts, &provider(context)?.config().label, "/profile".to_owned(), false))
        }
        Err(IdentityError::InUse) => Err(refusal("provider.taken")),
        Err(error) => Err(error.into()),
    }
}

async fn finish_confirming(
    context: &PageContext<'_>,
    session: &str,
    identity: &ProviderIdentity,
    flow: &ProviderFlow,
) -> Result<PageResponse, PageError> {
    let Some(session) = same_session(context, session) else { return render_failure(context, "", "provider.expired") };
    let is_fresh = identity.authenticated_at.is_some_and(|at| at >= flow.started_at - CLOCK_TOLERANCE);
    if !is_fresh {
        return Err(refusal("provider.not_asked"));
    }
    if !context.people().is_identity_of(session, identity).await? {
        return Err(refusal("provider.not_confirmed"));
    }
    if session.actor.user().is_some_and(|user| user.has_second_factor) {
        let sealed_proof = context.people().seal_provider_proof(session)?;
        return Ok(render_code(context, StatusCode::OK, sealed_proof, PageForm::default()));
    }
    context.people().prove_with_provider(session, None).await?;
    render_confirmed(context)
}

/// Adds the code of the second factor to the proof of the provider.
pub(super) async fn submit_code(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let session = context.session()?;
    let (sealed, code) = (context.request.form_field("proof"), context.request.form_field("code"));
    if !context.people().is_provider_proof(session, sealed) {
        return Err(PageError::Conflict("provider.not_confirmed"));
    }
    match context.people().prove_with_provider(session, Some(code)).await {
        Ok(()) => render_confirmed(context),
        Err(IdentityError::WrongCredentials) => {
            let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get("factor.wrong"));
            Ok(render_code(context, StatusCode::UNPROCESSABLE_ENTITY, sealed.to_owned(), form))
        }
        Err(error) => Err(error.into()),
    }
}

fn render_code(context: &PageContext<'_>, status: StatusCode, sealed_proof: String, form: PageForm) -> PageResponse {
    let mut page = context.layout("");
    page.back = None;
    render(status, &CodePage { page, form, sealed_proof })
}

fn render_confirmed(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let texts =
        StepTexts { title: "provider.confirmed_title", lead: "provider.confirmed_lead", link: "provider.to_profile" };
    Ok(step_page(context, texts, &provider(context)?.config().label, "/profile".to_owned(), false))
}

/// The keys of the texts of a page with one link.
struct StepTexts {
    title: &'static str,
    lead: &'static str,
    link: &'static str,
}

/// Renders a page with a title, a lead and a link; their texts may name the provider. If `is_followed` is true, the
/// browser follows the link by itself.
fn step_page(
    context: &PageContext<'_>,
    texts: StepTexts,
    label: &str,
    href: String,
    is_followed: bool,
) -> PageResponse {
    let text = |key| context.texts.get_with(key, "name", label);
    let (title, lead, link) = (text(texts.title), text(texts.lead), text(texts.link));
    let mut page = context.layout("");
    page.back = None;
    render(StatusCode::OK, &StepPage { page, title, lead, href, link, is_followed })
}

/// Shows the reason why the provider did not identify the user; without a session, on the sign-in page.
fn render_failure(context: &PageContext<'_>, next: &str, key: &'static str) -> Result<PageResponse, PageError> {
    if context.session.is_some() {
        return Err(PageError::Conflict(key));
    }
    let form = PageForm::default().with_error(WHOLE_FORM, context.texts.get(key));
    Ok(render_refused_sign_in(context, form, next))
}

/// Logs an error, and returns the key of the text about it.
fn failure_key(error: &OidcError) -> &'static str {
    tracing::warn!(%error, "a sign-in with the provider failed");
    match error {
        OidcError::Unreachable(_) | OidcError::Metadata(_) => "provider.unreachable",
        OidcError::NotPermitted => "provider.not_permitted",
        OidcError::WrongCode | OidcError::Refused(_) | OidcError::Token(_) => "provider.failed",
    }
}

/// Logs and returns the refusal of a person whom the provider has identified.
fn refusal(key: &'static str) -> PageError {
    log_refusal(key);
    PageError::Conflict(key)
}

fn log_refusal(key: &'static str) {
    tracing::warn!(reason = key, "a person whom the provider has identified was refused");
}

fn unavailable(error: &OidcError) -> PageError {
    PageError::Conflict(failure_key(error))
}
