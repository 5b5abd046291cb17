//! Formats an account as a row of a table or as JSON. The credentials are never printed.

use serde::{Deserialize, Serialize};

use crate::cli::failure::CommandFailure;
use crate::cli::output::{Column, cell, print, print_json, table};
use crate::gateway::config;
use crate::gateway::manage::{AccountStatus, ManagedAccount};
use crate::gateway::store::Timestamp;

/// An account, of the store or of the admin API. Scripts rely on the fields and their order; `null` marks a value that is
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
    pub(super) state: String,
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

impl From<&ManagedAccount> for AccountView {
    fn from(managed: &ManagedAccount) -> Self {
        let (account, row) = (managed.account.as_ref().ok(), managed.row.as_ref());
        let state = managed.status(Timestamp::now());
        let (cooling_until, cooling_cause) = match state {
            AccountStatus::Cooling(until, cause) | AccountStatus::Failing(until, cause) => (Some(until), Some(cause)),
            _ => (None, None),
        };
        let tier = account.map(|account| account.tier.as_str()).or_else(|| row.map(|row| row.tier.as_str()));
        Self {
            id: row.map(|row| row.id.to_string()),
            name: managed.name.clone(),
            source: managed.origin.as_str().to_owned(),
            kind: kind(managed).map(str::to_owned),
            protocol: protocol(managed).map(str::to_owned),
            base_url: account.and_then(base_url),
            tier: tier.map(str::to_owned),
            groups: account.map(|account| account.groups.clone()),
            priority: account.map(|account| account.priority.into()),
            concurrency: account.map(|account| account.concurrency.get().into()),
            large_concurrency: account.map(|account| account.large_concurrency.get().into()),
            state: status_name(&state).to_owned(),
            disabled_at: row.and_then(|row| row.disabled_at),
            disabled_reason: row.and_then(|row| row.disabled_reason.clone()),
            cooling_until,
            cooling_cause: cooling_cause.map(str::to_owned),
            problem: managed.account.as_ref().err().cloned(),
        }
    }
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

fn kind(managed: &ManagedAccount) -> Option<&str> {
    let row_kind = || managed.row.as_ref().map(|row| row.kind.as_str());
    managed.account.as_ref().map_or_else(|_| row_kind(), |account| Some(account.upstream.kind()))
}

fn protocol(managed: &ManagedAccount) -> Option<&str> {
    let row_protocol = || managed.row.as_ref().map(|row| row.protocol.as_str());
    let account_protocol =
        |account: &config::AccountConfig| account.upstream.protocol().map(config::AccountProtocol::as_str);
    managed.account.as_ref().map_or_else(|_| row_protocol(), account_protocol)
}

fn base_url(account: &config::AccountConfig) -> Option<String> {
    match &account.upstream {
        config::UpstreamConfig::Simulator => None,
        config::UpstreamConfig::Api(endpoint) => Some(endpoint.base_url.to_string()),
    }
}

const fn status_name(state: &AccountStatus<'_>) -> &'static str {
    match state {
        AccountStatus::Enabled => "enabled",
        AccountStatus::Disabled(..) => "disabled",
        AccountStatus::Cooling(..) => "cooling",
        AccountStatus::Failing(..) => "failing",
        AccountStatus::Unusable(_) => "unusable",
    }
}
