//! An account as the API shows it: its settings, its row in the store and its activity in this process, and never its
//! credentials.

use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::gateway::accounts::{CallFailure, LiveAccount, LiveAccountState};
use crate::gateway::config::{self, AccountProtocol, UpstreamConfig};
use crate::gateway::manage::{AccountSource, AccountStatus, ManagedAccount};
use crate::gateway::store::Timestamp;
use crate::wire::Bounded;
use crate::wire::admin::types;

/// The accounts as this process uses them.
pub(super) struct AccountsActivity {
    pub(super) accounts: Vec<LiveAccount>,
    /// The time since which calls are counted.
    pub(super) counted_since: DateTime<Utc>,
}

/// Returns the account as the API shows it. A command has no activity.
///
/// # Errors
///
/// Returns an internal error for an account with a word that the API document does not define, and for one without a
/// row if this process serves, because a server writes the rows of all accounts before it starts.
pub(super) fn to_wire_account(
    managed: &ManagedAccount,
    activity: Option<&AccountsActivity>,
) -> Result<types::Account, Error> {
    if managed.row.is_none() && activity.is_some() {
        tracing::error!(account = managed.name, "an account of the settings file is not in the store");
        return Err(Error::Internal);
    }
    let account = from_row(managed)?;
    let account = match &managed.account {
        Ok(settings) => with_settings(account, settings)?,
        Err(_) => account,
    };
    let account = with_status(account, managed.status(Timestamp::now()));
    let Some(activity) = activity else { return Ok(account) };
    match activity.accounts.iter().find(|live| live.name == managed.name) {
        Some(live) => Ok(with_activity(with_live_state(account, &live.state), live, activity.counted_since)),
        None => Ok(account),
    }
}

/// Returns the settings of an account of the store, without its kind, which never changes.
pub(super) fn stored_settings(managed: &ManagedAccount) -> Option<Map<String, Value>> {
    let row = managed.row.as_ref().filter(|_| managed.origin == AccountSource::Store)?;
    let mut settings: Map<String, Value> = serde_json::from_str(row.settings.as_deref()?).ok()?;
    settings.remove("kind");
    settings.retain(|_, value| !value.is_null());
    Some(settings)
}

/// Returns the account with the contents of its row. An account of the settings file with which no server has started
/// yet has no row, and so no id.
fn from_row(managed: &ManagedAccount) -> Result<types::Account, Error> {
    let (row, settings) = (managed.row.as_ref(), managed.account.as_ref().ok());
    let kind = row.map(|row| row.kind.as_str()).or(settings.map(|settings| settings.upstream.kind()));
    let tier = row.map(|row| row.tier.as_str()).or(settings.map(|settings| settings.tier.as_str()));
    Ok(types::Account {
        id: row.map(|row| row.id.to_string()).unwrap_or_default(),
        name: managed.name.clone(),
        source: managed.origin,
        kind: parse_word(kind.unwrap_or_default())?,
        protocol: None,
        base_url: None,
        tier: parse_word(tier.unwrap_or_default())?,
        groups: Vec::new(),
        priority: None,
        concurrency: None,
        large_concurrency: None,
        state: types::AccountState::Enabled,
        disabled_at: None,
        disabled_reason: None,
        cooling_until: None,
        cooling_cause: None,
        problem: None,
        settings: stored_settings(managed).and_then(|settings| serde_json::from_value(Value::Object(settings)).ok()),
        activity: None,
        created_at: row.map(|row| DateTime::<Utc>::from(row.created_at)).unwrap_or_default(),
    })
}

/// Adds the settings, if they can be used.
fn with_settings(account: types::Account, settings: &config::AccountConfig) -> Result<types::Account, Error> {
    let base_url = match &settings.upstream {
        UpstreamConfig::Simulator => None,
        UpstreamConfig::Api(endpoint) => Some(endpoint.base_url.to_string()),
    };
    Ok(types::Account {
        kind: parse_word(settings.upstream.kind())?,
        protocol: settings.upstream.protocol().map(AccountProtocol::as_str).map(parse_word).transpose()?,
        base_url,
        tier: parse_word(settings.tier.as_str())?,
        groups: settings.groups.clone(),
        priority: Bounded::new(settings.priority.into()).ok(),
        concurrency: Bounded::new(settings.concurrency.get().into()).ok(),
        large_concurrency: Bounded::new(settings.large_concurrency.get().into()).ok(),
        ..account
    })
}

/// Adds the status of the account, and only the fields that belong to it.
fn with_status(account: types::Account, state: AccountStatus<'_>) -> types::Account {
    match state {
        AccountStatus::Enabled => account,
        AccountStatus::Disabled(since, reason) => types::Account {
            state: types::AccountState::Disabled,
            disabled_at: Some(since.into()),
            disabled_reason: Some(reason.to_owned()),
            ..account
        },
        AccountStatus::Cooling(until, cause) => types::Account {
            state: types::AccountState::CoolingDown,
            cooling_until: Some(until.into()),
            cooling_cause: Some(cause.to_owned()),
            ..account
        },
        AccountStatus::Failing(until, reason) => types::Account {
            state: types::AccountState::Failing,
            cooling_until: Some(until.into()),
            cooling_cause: Some(reason.to_owned()),
            ..account
        },
        AccountStatus::Unusable(problem) => {
            types::Account { state: types::AccountState::Unusable, problem: Some(problem.to_owned()), ..account }
        }
    }
}

/// Replaces a temporary state by that of this process, which is newer than the stored one.
fn with_live_state(account: types::Account, state: &LiveAccountState) -> types::Account {
    if matches!(account.state, types::AccountState::Disabled | types::AccountState::Unusable) {
        return account;
    }
    let (state, until, cause) = match state {
        LiveAccountState::Serving | LiveAccountState::Disabled => (types::AccountState::Enabled, None, None),
        LiveAccountState::Cooling { until, cause } => {
            (types::AccountState::CoolingDown, Some(*until), Some(cause.as_str().to_owned()))
        }
        LiveAccountState::Ejected { until } => (types::AccountState::Failing, Some(*until), account.cooling_cause),
        LiveAccountState::Testing => (types::AccountState::Failing, None, account.cooling_cause),
    };
    types::Account { state, cooling_until: until, cooling_cause: cause, ..account }
}

/// Adds the calls of the account in this process.
fn with_activity(account: types::Account, live: &LiveAccount, counted_since: DateTime<Utc>) -> types::Account {
    let count = |number: usize| number as u64;
    let milliseconds = |latency: Option<Duration>| latency.and_then(|latency| u64::try_from(latency.as_millis()).ok());
    let last_failure = live.calls.last_failure.as_ref().map(to_wire_failure);
    let activity = types::AccountActivity {
        slots_in_use: count(live.used_slots),
        large_slots_in_use: count(live.used_large_slots),
        succeeded: live.calls.succeeded,
        failed: live.calls.failed,
        latency_p50_ms: milliseconds(live.calls.median),
        latency_p95_ms: milliseconds(live.calls.p95),
        last_failure,
        counted_since,
    };
    types::Account { activity: Some(activity), ..account }
}

fn to_wire_failure(failure: &CallFailure) -> types::AccountFailure {
    types::AccountFailure { at: failure.at, reason: failure.reason, status: failure.status.map(i64::from) }
}

/// Converts a word of the store to a value of the API document.
fn parse_word<T: FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| {
        tracing::error!(word = text, "the store holds a value that the API does not have");
        Error::Internal
    })
}
