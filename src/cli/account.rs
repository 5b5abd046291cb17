//! `imagate account list`

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::failure::Failure;
use super::installation::Installation;
use super::output::{print, print_json, table};
use crate::gateway::config::{Account as Configured, Tier, Upstream};
use crate::gateway::store::{AccountRow, Store as _};

/// Arguments of `account`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Account {
    #[command(flatten)]
    installation: Installation,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the accounts, without their credentials.
    List,
}

// === impl Account ===

impl Account {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { installation, json, action: Action::List } = self;
        installation.with_store(async |config, store| {
            // The store knows an account since the first start with it.
            let known = store.list_accounts().await?;
            let row_of = |account: &Configured| known.iter().find(|row| row.name == account.name);
            let accounts: Vec<_> = config.accounts.iter().map(|account| (account, row_of(account))).collect();
            if json {
                let listed: Vec<Value> = accounts.iter().map(|(account, row)| described(account, *row)).collect();
                return Ok(print_json(&listed)?);
            }
            let rows: Vec<[String; 9]> = accounts.iter().map(|(account, row)| shown(account, *row)).collect();
            let headings = ["NAME", "KIND", "TIER", "GROUPS", "PRIORITY", "CONCURRENCY", "LARGE", "STATE", "BASE URL"];
            Ok(print(&table(headings, &rows))?)
        })
    }
}

fn described(account: &Configured, row: Option<&AccountRow>) -> Value {
    json!({
        "id": row.map(|row| &row.id), "name": account.name, "kind": kind(account), "base_url": base_url(account),
        "tier": tier(account), "groups": account.groups, "priority": account.priority,
        "concurrency": account.concurrency, "large_concurrency": account.large_concurrency,
        "state": state(row), "disabled_at": row.and_then(|row| row.disabled_at),
        "disabled_reason": row.and_then(|row| row.disabled_reason.as_ref()),
    })
}

fn shown(account: &Configured, row: Option<&AccountRow>) -> [String; 9] {
    [
        account.name.clone(),
        kind(account).to_owned(),
        tier(account).to_owned(),
        account.groups.join(","),
        account.priority.to_string(),
        account.concurrency.to_string(),
        account.large_concurrency.to_string(),
        state(row).to_owned(),
        base_url(account).unwrap_or_else(|| "-".to_owned()),
    ]
}

const fn kind(account: &Configured) -> &'static str {
    match account.upstream {
        Upstream::Simulator => "simulator",
        Upstream::Images(_) => "api_key",
    }
}

fn base_url(account: &Configured) -> Option<String> {
    match &account.upstream {
        Upstream::Simulator => None,
        Upstream::Images(endpoint) => Some(endpoint.base_url.to_string()),
    }
}

const fn tier(account: &Configured) -> &'static str {
    match account.tier {
        Tier::Paid => "paid",
        Tier::Free => "free",
    }
}

fn state(row: Option<&AccountRow>) -> &'static str {
    if row.is_some_and(|row| row.disabled_at.is_some()) { "disabled" } else { "enabled" }
}
