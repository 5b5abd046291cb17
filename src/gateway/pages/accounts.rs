//! The board of the upstream accounts: the state, the load and the calls of each in this process, and a form that adds
//! an account. The page is for admins.

use std::collections::BTreeSet;

use askama::Template;
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde_json::Value;

use super::account_fields::{AccountWords, empty_form, new_account, submitted_form};
use super::account_summary::AccountSummary;
use super::form::{PageForm, WHOLE_FORM};
use super::http_messages::PageResponse;
use super::keys::claim_form;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;

#[derive(Template)]
#[template(path = "accounts.html", config = "src/gateway/pages/askama.toml")]
struct AccountsPage {
    page: PageLayout,
    accounts: Vec<AccountSummary>,
    serving_count: usize,
    /// The states of all accounts as one text, so that a script can tell whether one has changed.
    states: String,
    now: DateTime<Utc>,
    counted_since: Option<DateTime<Utc>>,
    /// True if other nodes use the accounts, too.
    is_shared: bool,
    /// The names of the existing groups.
    groups: Vec<String>,
    form: PageForm,
    /// True if the form is shown without a click.
    is_open: bool,
    nonce: String,
    words: AccountWords,
}

/// Shows the board.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    render_page(context, StatusCode::OK, empty_form(), false).await
}

async fn render_page(
    context: &PageContext<'_>,
    status: StatusCode,
    form: PageForm,
    is_open: bool,
) -> Result<PageResponse, PageError> {
    let accounts = context.console().list_accounts(context.actor()?).await?.data;
    let counted_since = accounts.iter().find_map(|account| Some(account.activity.as_ref()?.counted_since));
    let accounts: Vec<AccountSummary> = accounts.into_iter().map(AccountSummary::new).collect();
    let states = accounts.iter().map(|account| format!("{} {};", account.account.id, account.state.label));
    let template = AccountsPage {
        page: context.layout("accounts"),
        serving_count: accounts.iter().filter(|account| account.is_serving).count(),
        states: states.collect(),
        accounts,
        now: Utc::now(),
        counted_since,
        is_shared: context.console().shares_accounts(),
        groups: group_names(context).await?.into_iter().collect(),
        form,
        is_open,
        nonce: context.issue_form_nonce()?,
        words: AccountWords::new(),
    };
    Ok(render(status, &template))
}

/// The names of the existing groups.
pub(super) async fn group_names(context: &PageContext<'_>) -> Result<BTreeSet<String>, PageError> {
    let groups = context.console().list_groups(context.actor()?).await?.data;
    Ok(groups.into_iter().map(|group| group.name).collect())
}

/// Adds an account.
pub(super) async fn create(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    if !context.is_admin() {
        return Err(PageError::Denied);
    }
    let form = submitted_form(context.request);
    let Some(first_use) = claim_form(context, "again.account", "again.to_account", "/accounts").await? else {
        let form = form.with_error(WHOLE_FORM, context.texts.get("error.stale"));
        return render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form, true).await;
    };
    let body = Value::Object(new_account(context.request)).to_string();
    match context.console().create_account(context.actor()?, body.as_bytes()).await {
        Ok(account) => {
            first_use.complete(&account.id).await;
            Ok(PageResponse::redirect(&format!("/accounts/{}?done=account-added", account.id)))
        }
        Err(error) => {
            first_use.release().await;
            let form = form.with_account_error(context.texts, error)?;
            render_page(context, StatusCode::UNPROCESSABLE_ENTITY, form, true).await
        }
    }
}
