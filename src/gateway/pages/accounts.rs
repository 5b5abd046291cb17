//! The upstream accounts: their states and the reasons for them.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::frame::PageLayout;
use super::visit::PageResponse;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "accounts.html", config = "src/gateway/pages/askama.toml")]
struct AccountsPage {
    page: PageLayout,
    accounts: Vec<types::Account>,
}

/// Shows the list.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let accounts = desk.console().list_accounts(desk.actor()?).await?.data;
    Ok(rendered(StatusCode::OK, &AccountsPage { page: desk.page("accounts"), accounts }))
}

/// Disables or enables an account.
pub(super) async fn change(desk: &PageContext<'_>, name: &str, enabled: bool) -> Result<PageResponse, PageError> {
    let body = json!({ "enabled": enabled }).to_string();
    desk.console().update_account(desk.actor()?, name, body.as_bytes()).await?;
    Ok(PageResponse::see(if enabled { "/accounts?done=account-enabled" } else { "/accounts?done=account-disabled" }))
}
