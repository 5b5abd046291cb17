//! The page of the upstream accounts, with the state of each account and the reason for it.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "accounts.html", config = "src/gateway/pages/askama.toml")]
struct AccountsPage {
    page: PageLayout,
    accounts: Vec<types::Account>,
}

/// Shows the list of accounts.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let accounts = context.console().list_accounts(context.actor()?).await?.data;
    Ok(render(StatusCode::OK, &AccountsPage { page: context.layout("accounts"), accounts }))
}

/// Disables or enables an account.
pub(super) async fn set_enabled(
    context: &PageContext<'_>,
    name: &str,
    enabled: bool,
) -> Result<PageResponse, PageError> {
    let body = json!({ "enabled": enabled }).to_string();
    context.console().update_account(context.actor()?, name, body.as_bytes()).await?;
    Ok(PageResponse::redirect(if enabled {
        "/accounts?done=account-enabled"
    } else {
        "/accounts?done=account-disabled"
    }))
}
