//! An account as operators see it: what the settings and the store say of it, and never what lets a call in.

use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::error::Error;
use crate::gateway::config::{self, Protocol, Upstream};
use crate::gateway::manage::{Known, Source, State};
use crate::gateway::store::{AccountRow, Timestamp};
use crate::wire::Bounded;
use crate::wire::admin::types;

/// The account as it goes out.
///
/// # Errors
///
/// A fault of ours: an account without a row, or with a word that the document does not have.
pub(super) fn shown(known: &Known) -> Result<types::Account, Error> {
    let Some(row) = &known.row else {
        tracing::error!(account = known.name, "an account of the file is not in the store");
        return Err(Error::Internal);
    };
    let account = base(known, row)?;
    let account = match &known.account {
        Ok(settings) => with_settings(account, settings)?,
        Err(_) => account,
    };
    Ok(with_state(account, known.state(Timestamp::now())))
}

/// What the row says.
fn base(known: &Known, row: &AccountRow) -> Result<types::Account, Error> {
    Ok(types::Account {
        id: row.id.to_string(),
        name: known.name.clone(),
        source: match known.source {
            Source::File => types::AccountSource::File,
            Source::Store => types::AccountSource::Store,
        },
        kind: word(&row.kind)?,
        protocol: None,
        base_url: None,
        tier: word(&row.tier)?,
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

/// What the settings say, where they can be used.
fn with_settings(account: types::Account, settings: &config::Account) -> Result<types::Account, Error> {
    let base_url = match &settings.upstream {
        Upstream::Simulator => None,
        Upstream::Api(endpoint) => Some(endpoint.base_url.to_string()),
    };
    Ok(types::Account {
        kind: word(settings.upstream.kind())?,
        protocol: settings.upstream.protocol().map(Protocol::as_str).map(word).transpose()?,
        base_url,
        tier: word(settings.tier.as_str())?,
        groups: settings.groups.clone(),
        priority: Bounded::new(settings.priority.into()).ok(),
        concurrency: Bounded::new(settings.concurrency.get().into()).ok(),
        large_concurrency: Bounded::new(settings.large_concurrency.get().into()).ok(),
        ..account
    })
}

/// What it could do now, and only what belongs to that.
fn with_state(account: types::Account, state: State<'_>) -> types::Account {
    match state {
        State::Enabled => account,
        State::Disabled(since, reason) => types::Account {
            state: types::AccountState::Disabled,
            disabled_at: Some(since.into()),
            disabled_reason: Some(reason.to_owned()),
            ..account
        },
        State::Cooling(until, cause) => types::Account {
            state: types::AccountState::Resting,
            cooling_until: Some(until.into()),
            cooling_cause: Some(cause.to_owned()),
            ..account
        },
        State::Failing(until, reason) => types::Account {
            state: types::AccountState::Failing,
            cooling_until: Some(until.into()),
            cooling_cause: Some(reason.to_owned()),
            ..account
        },
        State::Unusable(problem) => {
            types::Account { state: types::AccountState::Unusable, problem: Some(problem.to_owned()), ..account }
        }
    }
}

/// A word of ours as one of the document.
fn word<T: FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| {
        tracing::error!(word = text, "a word of the store is not in the document");
        Error::Internal
    })
}
