//! The upstream accounts: which serve, which rest, which are out, and why.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::desk::Desk;
use super::failure::{Failure, rendered};
use super::frame::Page;
use super::visit::Shown;
use crate::wire::admin::types;

#[derive(Template)]
#[template(path = "accounts.html", config = "src/gateway/pages/askama.toml")]
struct AccountsPage {
    page: Page,
    accounts: Vec<types::Account>,
}

/// The list.
pub(super) async fn show(desk: &Desk<'_>) -> Result<Shown, Failure> {
    let accounts = desk.console().list_accounts(desk.actor()?).await?.data;
    Ok(rendered(StatusCode::OK, &AccountsPage { page: desk.page("accounts"), accounts }))
}

/// Takes an account out, or in again.
pub(super) async fn change(desk: &Desk<'_>, name: &str, enabled: bool) -> Result<Shown, Failure> {
    let body = json!({ "enabled": enabled }).to_string();
    desk.console().update_account(desk.actor()?, name, body.as_bytes()).await?;
    Ok(Shown::see(if enabled { "/accounts?done=account-enabled" } else { "/accounts?done=account-disabled" }))
}
