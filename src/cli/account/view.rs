//! Formats an account as a row of a table or as JSON. The credentials are never printed.

use serde::Serialize;

use crate::cli::output::cell;
use crate::gateway::config;
use crate::gateway::manage::{AccountStatus, ManagedAccount};
use crate::gateway::store::{AccountId, Timestamp};

pub(super) const HEADINGS: [&str; 10] =
    ["NAME", "KIND", "SOURCE", "TIER", "GROUPS", "PRIORITY", "CONCURRENCY", "LARGE", "BASE URL", "STATE"];

/// An account in JSON. Scripts rely on the fields and their order; `null` marks a value that is unknown or that the
/// account does not have.
#[derive(Serialize)]
pub(super) struct AccountJson<'a> {
    id: Option<&'a AccountId>,
    name: &'a str,
    source: &'static str,
    kind: Option<&'a str>,
    protocol: Option<&'a str>,
    base_url: Option<String>,
    tier: Option<&'a str>,
    groups: Option<&'a [String]>,
    priority: Option<i32>,
    concurrency: Option<u32>,
    large_concurrency: Option<u32>,
    state: &'static str,
    disabled_at: Option<Timestamp>,
    disabled_reason: Option<&'a str>,
    cooling_until: Option<Timestamp>,
    cooling_cause: Option<&'a str>,
    problem: Option<&'a str>,
}

pub(super) fn to_json(managed: &ManagedAccount) -> AccountJson<'_> {
    let (account, row) = (managed.account.as_ref().ok(), managed.row.as_ref());
    let state = managed.status(Timestamp::now());
    let (cooling_until, cooling_cause) = match state {
        AccountStatus::Cooling(until, cause) | AccountStatus::Failing(until, cause) => (Some(until), Some(cause)),
        _ => (None, None),
    };
    AccountJson {
        id: row.map(|row| &row.id),
        name: &managed.name,
        source: managed.origin.as_str(),
        kind: kind(managed),
        protocol: protocol(managed),
        base_url: account.and_then(base_url),
        tier: account.map(|account| account.tier.as_str()).or_else(|| row.map(|row| row.tier.as_str())),
        groups: account.map(|account| account.groups.as_slice()),
        priority: account.map(|account| account.priority),
        concurrency: account.map(|account| account.concurrency.get()),
        large_concurrency: account.map(|account| account.large_concurrency.get()),
        state: status_name(&state),
        disabled_at: row.and_then(|row| row.disabled_at),
        disabled_reason: row.and_then(|row| row.disabled_reason.as_deref()),
        cooling_until,
        cooling_cause,
        problem: managed.account.as_ref().err().map(String::as_str),
    }
}

pub(super) fn table_row(managed: &ManagedAccount) -> [String; 10] {
    let account = managed.account.as_ref().ok();
    [
        managed.name.clone(),
        cell(kind(managed)),
        managed.origin.as_str().to_owned(),
        cell(account.map(|account| account.tier.as_str())),
        cell(account.map(|account| account.groups.join(","))),
        cell(account.map(|account| account.priority)),
        cell(account.map(|account| account.concurrency)),
        cell(account.map(|account| account.large_concurrency)),
        cell(account.and_then(base_url)),
        status_text(&managed.status(Timestamp::now())),
    ]
}

fn kind(managed: &ManagedAccount) -> Option<&str> {
    let row_kind = || managed.row.as_ref().map(|row| row.kind.as_str());
    managed.account.as_ref().map_or_else(|_| row_kind(), |account| Some(account.upstream.kind()))
}

fn protocol(managed: &ManagedAccount) -> Option<&str> {
    let row_protocol = || managed.row.as_ref().map(|row| row.protocol.as_str());
    let account_protocol =
        |account: &config::AccountConfig| account.upstream.protocol().map(config::UpstreamProtocol::as_str);
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

fn status_text(state: &AccountStatus<'_>) -> String {
    let name = status_name(state);
    match state {
        AccountStatus::Enabled => name.to_owned(),
        AccountStatus::Disabled(_, reason) | AccountStatus::Unusable(reason) => format!("{name}: {reason}"),
        AccountStatus::Cooling(until, cause) | AccountStatus::Failing(until, cause) => {
            format!("{name} until {until}: {cause}")
        }
    }
}
