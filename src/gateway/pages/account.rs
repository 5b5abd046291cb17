//! The page of one account: its state and its calls in this process, its settings and its secrets, the test of its
//! credentials, and the confirmation before it is disabled or deleted. The page is for admins.

use askama::Template;
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::account_fields::{
    AccountWords, SettingsPart, settings_digest, stored_form, stored_groups, stored_part, submitted_secrets,
};
use super::account_summary::AccountSummary;
use super::accounts::group_names;
use super::form::{DIGEST_FIELD, PageForm, WHOLE_FORM, is_outdated};
use super::http_messages::PageResponse;
use super::keys::claim_form;
use super::language::word_key;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::gateway::manage::ServiceGap;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "account.html", config = "src/gateway/pages/askama.toml")]
struct AccountPage {
    page: PageLayout,
    summary: AccountSummary,
    now: DateTime<Utc>,
    /// The path of the settings file, if it defines the account.
    settings_file: Option<String>,
    /// True if other nodes use the account, too.
    is_shared: bool,
    /// The result of a test that was just made.
    test: Option<types::AccountTest>,
    /// The names of the groups that exist, and of those that the account names.
    groups: Vec<String>,
    /// The groups of the account that exist.
    known_groups: Vec<String>,
    form: PageForm,
    nonce: String,
    words: AccountWords,
}

#[derive(Template)]
#[template(path = "account_confirm.html", config = "src/gateway/pages/askama.toml")]
struct ConfirmationPage {
    page: PageLayout,
    summary: AccountSummary,
    gaps: Vec<ServiceGap>,
    deletes: bool,
    form: PageForm,
}

/// The action of a form on an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccountFormAction {
    Disable,
    Enable,
    Change,
    Secret,
    Test,
    Delete,
}

/// An account, and its stored settings, which an account of the settings file does not have.
type StoredAccount = (types::Account, Option<Map<String, Value>>);

/// Shows the page of an account.
pub(super) async fn show(context: &PageContext<'_>, handle: &str) -> Result<PageResponse, PageError> {
    let stored = context.console().retrieve_stored_account(context.actor()?, handle).await?;
    render_page(context, StatusCode::OK, stored, None, None).await
}

async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    (account, settings): StoredAccount,
    form: Option<PageForm>,
    test: Option<types::AccountTest>,
) -> Result<PageResponse, PageError> {
    let mut groups = group_names(context).await?;
    let known_groups = account.groups.iter().filter(|group| groups.contains(*group)).cloned().collect();
    // Settings that cannot be used name groups, too.
    groups.extend(settings.as_ref().map_or_else(|| account.groups.clone(), stored_groups));
    let form = form.unwrap_or_else(|| stored_form(&settings.unwrap_or_default()));
    let is_of_file = account.source == types::AccountSource::File;
    let template = AccountPage {
        page: context.layout("accounts"),
        summary: AccountSummary::new(account),
        now: Utc::now(),
        settings_file: context.console().settings_file().filter(|_| is_of_file),
        is_shared: context.console().shares_accounts(),
        test,
        groups: groups.into_iter().collect(),
        known_groups,
        form,
        nonce: context.issue_form_nonce()?,
        words: AccountWords::new(),
    };
    Ok(render(status, &template))
}

/// Asks for confirmation before an account is disabled or deleted.
pub(super) async fn confirm(context: &PageContext<'_>, handle: &str, deletes: bool) -> Result<PageResponse, PageError> {
    render_confirmation(context, StatusCode::OK, handle, deletes, PageForm::default()).await
}

async fn render_confirmation(
    context: &PageContext<'_>,
    status: StatusCode,
    handle: &str,
    deletes: bool,
    form: PageForm,
) -> Result<PageResponse, PageError> {
    let account = context.console().retrieve_account(context.actor()?, handle).await?;
    if deletes && account.source == types::AccountSource::File {
        return Err(PageError::Conflict("error.account_read_only"));
    }
    let gaps = context.console().service_gaps(context.actor()?, handle).await?;
    let summary = AccountSummary::new(account);
    let template = ConfirmationPage { page: context.layout("accounts"), summary, gaps, deletes, form };
    Ok(render(status, &template))
}

/// Performs the action of a submitted form on an account.
pub(super) async fn perform(
    context: &PageContext<'_>,
    handle: &str,
    action: AccountFormAction,
) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    match action {
        AccountFormAction::Enable => {
            let body = json!({ "enabled": true }).to_string();
            let account = context.console().update_account(context.actor()?, handle, body.as_bytes()).await?;
            Ok(redirect(&account, "account-enabled"))
        }
        AccountFormAction::Disable => disable(context, handle).await,
        AccountFormAction::Delete => {
            context.console().delete_account(context.actor()?, handle).await?;
            Ok(PageResponse::redirect("/accounts?done=account-deleted"))
        }
        AccountFormAction::Change => submit_settings(context, handle).await,
        AccountFormAction::Secret => submit_secrets(context, handle).await,
        AccountFormAction::Test => test(context, handle).await,
    }
}

fn redirect(account: &types::Account, done: &str) -> PageResponse {
    PageResponse::redirect(&format!("/accounts/{}?done={done}", account.id))
}

async fn disable(context: &PageContext<'_>, handle: &str) -> Result<PageResponse, PageError> {
    let reason = context.request.form_field("reason");
    let mut body = json!({ "enabled": false });
    if !reason.is_empty() {
        body["reason"] = reason.into();
    }
    match context.console().update_account(context.actor()?, handle, body.to_string().as_bytes()).await {
        Ok(account) => Ok(redirect(&account, "account-disabled")),
        Err(error) => {
            let form = PageForm::from_request(context.request, &["reason"]).with_account_error(context.texts, error)?;
            render_confirmation(context, StatusCode::UNPROCESSABLE_ENTITY, handle, false, form).await
        }
    }
}

/// Changes the settings that need no secret.
async fn submit_settings(context: &PageContext<'_>, handle: &str) -> Result<PageResponse, PageError> {
    let (account, settings) = stored_account(context, handle).await?;
    let form = PageForm::default().with_value(DIGEST_FIELD, settings_digest(&settings));
    let form = SettingsPart::Settings.with_submitted_values(form, context.request);
    let form = stored_part(SettingsPart::Address, form, &settings);
    let refuse =
        |status, form| render_page(context, status, (account.clone(), Some(settings.clone())), Some(form), None);
    if is_outdated(context.request, &settings_digest(&settings)) {
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.changed"));
        return refuse(StatusCode::CONFLICT, form).await;
    }
    let body = json!({ "settings": SettingsPart::Settings.revised(&settings, context.request) }).to_string();
    match context.console().update_account(context.actor()?, handle, body.as_bytes()).await {
        Ok(account) => Ok(redirect(&account, "saved")),
        Err(error) => refuse(StatusCode::UNPROCESSABLE_ENTITY, form.with_account_error(context.texts, error)?).await,
    }
}

/// Replaces the secrets and changes the address.
async fn submit_secrets(context: &PageContext<'_>, handle: &str) -> Result<PageResponse, PageError> {
    let (account, settings) = stored_account(context, handle).await?;
    let form = PageForm::default().with_value(DIGEST_FIELD, settings_digest(&settings));
    let form = stored_part(SettingsPart::Settings, form, &settings);
    let form = SettingsPart::Address.with_submitted_values(form, context.request);
    let path = format!("/accounts/{}", account.id);
    let refuse =
        |status, form| render_page(context, status, (account.clone(), Some(settings.clone())), Some(form), None);
    let Some(first_use) = claim_form(context, "again.account_secret", "again.to_account", &path).await? else {
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, form).await;
    };
    if is_outdated(context.request, &settings_digest(&settings)) {
        first_use.release().await;
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.changed"));
        return refuse(StatusCode::CONFLICT, form).await;
    }
    let mut body = submitted_secrets(context.request);
    let revised = SettingsPart::Address.revised(&settings, context.request);
    if revised != settings {
        body.insert("settings".to_owned(), Value::Object(revised));
    }
    if body.is_empty() {
        first_use.release().await;
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.no_secret"));
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, form).await;
    }
    let body = Value::Object(body).to_string();
    match context.console().update_account(context.actor()?, handle, body.as_bytes()).await {
        // The claim is kept, so that the same form is not accepted again.
        Ok(account) => Ok(redirect(&account, "account-secret")),
        Err(error) => {
            first_use.release().await;
            refuse(StatusCode::UNPROCESSABLE_ENTITY, form.with_account_error(context.texts, error)?).await
        }
    }
}

/// The account with its stored settings; refuses an account of the settings file.
async fn stored_account(
    context: &PageContext<'_>,
    handle: &str,
) -> Result<(types::Account, Map<String, Value>), PageError> {
    let (account, settings) = context.console().retrieve_stored_account(context.actor()?, handle).await?;
    if account.source == types::AccountSource::File {
        return Err(PageError::Conflict("error.account_read_only"));
    }
    Ok((account, settings.unwrap_or_default()))
}

/// Tests the credentials of an account, and shows the result.
async fn test(context: &PageContext<'_>, handle: &str) -> Result<PageResponse, PageError> {
    let test = context.console().test_account(context.actor()?, handle).await?;
    // The test may have disabled the account, because its token was revoked.
    let stored = context.console().retrieve_stored_account(context.actor()?, handle).await?;
    render_page(context, StatusCode::OK, stored, None, Some(test)).await
}

/// The CSS class of the result of a test.
const fn test_tone(test: &types::AccountTest) -> &'static str {
    match test.result {
        types::AccountTestResult::Accepted | types::AccountTestResult::Simulator => "good",
        _ => "bad",
    }
}

/// The key of the text for the result of a test.
fn test_text(test: &types::AccountTest) -> &'static str {
    word_key("test", test.result)
}
