//! An account as the API shows it: its settings and its row in the store, and never its credentials.

use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::error::Error;
use crate::gateway::config::{self, UpstreamConfig, UpstreamProtocol};
use crate::gateway::manage::{AccountOrigin, AccountStatus, ManagedAccount};
use crate::gateway::store::{AccountRow, Timestamp};
use crate::wire::Bounded;
use crate::wire::admin::types;

/// Returns the account as the API shows it.
///
/// # Errors
///
/// Returns an internal error for an account without a row, or with a word that the API document does not
/// define.
pub(super) fn to_wire_account(managed: &ManagedAccount) -> Result<types::Account, Error> {
    let Some(row) = &managed.row else {
        tracing::error!(account = managed.name, "an account of the settings file is not in the store");
        return Err(Error::Internal);
    };
    let account = from_row(managed, row)?;
    let account = match &managed.account {
        Ok(settings) => with_settings(account, settings)?,
        Err(_) => account,
    };
    Ok(with_status(account, managed.status(Timestamp::now())))
}

/// Returns the account with the contents of its row.
fn from_row(managed: &ManagedAccount, row: &AccountRow) -> Result<types::Account, Error> {
    Ok(types::Account {
        id: row.id.to_string(),
        name: managed.name.clone(),
        source: match managed.origin {
            AccountOrigin::File => types::AccountSource::File,
            AccountOrigin::Store => types::AccountSource::Store,
        },
        kind: parse_word(&row.kind)?,
        protocol: None,
        base_url: None,
        tier: parse_word(&row.tier)?,
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
        created_at: DateTime::<Utc>::from(row.created_at),
        extra: serde_json::Map::new(),
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
        protocol: settings.upstream.protocol().map(UpstreamProtocol::as_str).map(parse_word).transpose()?,
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
            state: types::AccountState::Resting,
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

/// Converts a word of the store to a value of the API document.
fn parse_word<T: FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| {
        tracing::error!(word = text, "the store holds a value that the API does not have");
        Error::Internal
    })
}
