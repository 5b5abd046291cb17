//! Formats an account as a row of a table or as JSON. The credentials are never printed.

use serde::{Deserialize, Serialize};

use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::view;
use crate::cli::output::{Column, cell, print, print_json, table};
use crate::client::admin::types::Account;
use crate::gateway::store::Timestamp;

/// An account, as it is printed. Scripts rely on the fields and their order; `null` marks a value that is
/// unknown or that the account does not have.
#[derive(Serialize, Deserialize)]
pub(super) struct AccountView {
    id: Option<String>,
    pub(super) name: String,
    source: String,
    kind: Option<String>,
    protocol: Option<String>,
    base_url: Option<String>,
    tier: Option<String>,
    groups: Option<Vec<String>>,
    priority: Option<i64>,
    concurrency: Option<u64>,
    large_concurrency: Option<u64>,
    state: String,
    disabled_at: Option<Timestamp>,
    disabled_reason: Option<String>,
    cooling_until: Option<Timestamp>,
    cooling_cause: Option<String>,
    problem: Option<String>,
}

// === impl AccountView ===

impl AccountView {
    /// Prints the account after a change.
    pub(super) fn print_change(&self, outcome: &str, json: bool) -> Result<(), CommandFailure> {
        if json {
            print_json(self)?;
        } else {
            print(&format!("{} {outcome}\n", self.name))?;
        }
        Ok(())
    }

    fn table_row(&self) -> [String; 10] {
        // The tier of the row is not shown for an account that cannot be used.
        let tier = self.tier.as_ref().filter(|_| self.groups.is_some());
        [
            self.name.clone(),
            cell(self.kind.as_ref()),
            self.source.clone(),
            cell(tier),
            cell(self.groups.as_ref().map(|groups| groups.join(","))),
            cell(self.priority),
            cell(self.concurrency),
            cell(self.large_concurrency),
            cell(self.base_url.as_ref()),
            self.state_text(),
        ]
    }

    fn state_text(&self) -> String {
        let reason = self.disabled_reason.as_ref().or(self.problem.as_ref());
        match (self.cooling_until, &self.cooling_cause, reason) {
            (Some(until), Some(cause), _) => format!("{} until {until}: {cause}", self.state),
            (_, _, Some(reason)) if matches!(&*self.state, "disabled" | "unusable") => {
                format!("{}: {reason}", self.state)
            }
            _ => self.state.clone(),
        }
    }
}

/// Returns the account as it is printed. An account of the settings file with which no server has started has no id.
pub(super) fn account_view(account: &Account) -> Result<AccountView, CommandFailure> {
    let mut account: AccountView = view(account)?;
    account.id = account.id.filter(|id| !id.is_empty());
    Ok(account)
}

pub(super) fn print_list(accounts: &[AccountView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&accounts)?);
    }
    let rows: Vec<_> = accounts.iter().map(AccountView::table_row).collect();
    Ok(print(&table(columns(), &rows))?)
}

/// Returns the columns of the table of accounts.
fn columns() -> [Column<'static>; 10] {
    let [groups, base_url] = ["GROUPS", "BASE URL"].map(Column::name);
    let [name, kind, source, tier, priority] = ["NAME", "KIND", "SOURCE", "TIER", "PRIORITY"].map(Column::from);
    let [concurrency, large] = ["CONCURRENCY", "LARGE"].map(Column::from);
    [name, kind, source, tier, groups, priority, concurrency, large, base_url, Column::state("STATE")]
}
