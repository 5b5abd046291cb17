//! The accounts: whether each has its secrets and serves a group, and each group has an account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CheckResult, InstallationContents, message_of, open_store};
use crate::gateway::config::{AccountConfig, Config, DEFAULT_GROUP, UpstreamConfig};
use crate::gateway::manage::{self, AccountSource, AccountStatus, ManagedAccount, ProbeOutcome};
use crate::gateway::store::{KeyState, Store, StoreError, Timestamp};

const CHECK: &str = "accounts";
pub(super) const ONLINE: &str = "upstream";

/// The groups of an installation.
#[derive(Debug, Default)]
struct GroupUse {
    /// The names of all groups.
    names: BTreeSet<String>,
    /// The number of valid keys of each group that has any.
    valid_keys: BTreeMap<String, usize>,
}

pub(super) async fn check(installation: &InstallationContents<'_>) -> Vec<CheckResult> {
    match read(installation).await {
        Ok((accounts, groups)) => {
            let now = Timestamp::now();
            let each = accounts.iter().map(|account| check_account(installation.config, account, &groups, now));
            each.chain(check_groups(&accounts, &groups, now)).collect()
        }
        Err(error) => vec![CheckResult::problem(CHECK, message_of(&error), None)],
    }
}

/// Asks the upstream of each enabled account for its models, with the account's credentials. This makes no image and
/// costs nothing. A token that is fetched for it is stored, as by a running gateway.
pub(super) async fn check_online(config: &Config) -> Vec<CheckResult> {
    let results = async {
        let store = open_store(config).await?;
        let results = probe_all(config, &store).await;
        store.close().await;
        results
    };
    results.await.unwrap_or_else(|error: StoreError| vec![CheckResult::problem(ONLINE, message_of(&error), None)])
}

async fn read(installation: &InstallationContents<'_>) -> Result<(Vec<ManagedAccount>, GroupUse), StoreError> {
    let config = installation.config;
    let mut groups = GroupUse::default();
    groups.names.insert(DEFAULT_GROUP.to_owned());
    groups.names.extend(config.groups.iter().map(|group| group.name.clone()));
    let Some(store) = installation.store else {
        let of_file = |account: &AccountConfig| ManagedAccount {
            name: account.name.clone(),
            origin: AccountSource::File,
            account: Ok(account.clone()),
            row: None,
        };
        return Ok((config.accounts.iter().map(of_file).collect(), groups));
    };
    groups.names.extend(store.list_groups().await?.into_iter().map(|group| group.name));
    for key in store.list_keys().await? {
        if key.state(Timestamp::now()) == KeyState::Active {
            *groups.valid_keys.entry(key.group_name).or_default() += 1;
        }
    }
    Ok((manage::list(config, store).await?, groups))
}

fn check_account(config: &Config, managed: &ManagedAccount, groups: &GroupUse, now: Timestamp) -> CheckResult {
    let name = &managed.name;
    let account = match &managed.account {
        Ok(account) => account,
        Err(problem) => {
            let advice = format!("`imagate account rotate {name}` stores its secrets again");
            return CheckResult::problem(CHECK, format!("{name} cannot be used: {problem}"), Some(&advice));
        }
    };
    if account.implicit {
        let message = "no account is configured: the simulator draws the images, and no model is called";
        return CheckResult::warning(CHECK, message, Some("`imagate account add` adds an account"));
    }
    if let Some(absent) = config.absent_secrets_of(name).first() {
        let advice = "run this command with the environment of the gateway, or set the secret";
        return CheckResult::problem(CHECK, format!("{name} has no secret: {absent}"), Some(advice));
    }
    if !account.groups.iter().any(|group| groups.names.contains(group)) {
        let message = format!("{name} serves no group that exists: {}", account.groups.join(", "));
        return CheckResult::problem(CHECK, message, Some("`imagate group create` adds a group"));
    }
    let enable = format!("`imagate account test {name}` asks its upstream, `imagate account enable {name}` ends this");
    let (message, advice) = match managed.status(now) {
        AccountStatus::Disabled(since, reason) => (format!("{name} is disabled since {since}: {reason}"), enable),
        AccountStatus::Cooling(until, reason) => (format!("{name} is in cooldown until {until}: {reason}"), enable),
        AccountStatus::Failing(until, reason) => (format!("{name} is failing, until {until}: {reason}"), enable),
        AccountStatus::Enabled | AccountStatus::Unusable(_) => {
            let groups = account.groups.join(", ");
            let kind = account.upstream.kind();
            return CheckResult::ok(CHECK, format!("{name} ({kind}) has its secrets, and serves {groups}"));
        }
    };
    CheckResult::warning(CHECK, message, Some(&advice))
}

/// Finds groups with keys that no account can serve.
fn check_groups(accounts: &[ManagedAccount], groups: &GroupUse, now: Timestamp) -> Vec<CheckResult> {
    let serves = |managed: &ManagedAccount, group: &String| {
        let is_disabled = matches!(managed.status(now), AccountStatus::Disabled(..) | AccountStatus::Unusable(_));
        !is_disabled && managed.account.as_ref().is_ok_and(|account| account.groups.contains(group))
    };
    let unserved = groups.valid_keys.iter().filter(|(group, _)| !accounts.iter().any(|account| serves(account, group)));
    let problem = |(group, keys): (&String, &usize)| {
        let message = format!("no enabled account serves the group {group} (valid keys: {keys})");
        let advice = "enable an account of the group, or add one: `imagate account explain` shows the reasons";
        CheckResult::problem(CHECK, message, Some(advice))
    };
    unserved.map(problem).collect()
}

async fn probe_all(config: &Config, store: &Arc<dyn Store>) -> Result<Vec<CheckResult>, StoreError> {
    let mut results = Vec::new();
    for ManagedAccount { name, account, row, .. } in manage::list(config, &**store).await? {
        let is_called = account.is_ok_and(|account| !matches!(account.upstream, UpstreamConfig::Simulator));
        if is_called && row.is_none_or(|row| row.disabled_at.is_none()) {
            results.push(probe(config, store, &name).await);
        }
    }
    if results.is_empty() {
        results.push(CheckResult::warning(ONLINE, "there is no enabled account whose upstream can be asked", None));
    }
    Ok(results)
}

async fn probe(config: &Config, store: &Arc<dyn Store>, name: &str) -> CheckResult {
    let advice = format!("`imagate account test {name}` repeats this call");
    match manage::probe(config, store, name).await {
        Ok(outcome) if outcome.is_accepted() => {
            let latency = outcome.latency.as_millis();
            CheckResult::ok(ONLINE, format!("{name}: the upstream accepts its credentials ({latency} ms)"))
        }
        Ok(ProbeOutcome { status, .. }) => {
            let status = status.unwrap_or_default();
            CheckResult::problem(ONLINE, format!("{name}: the upstream answers with status {status}"), Some(&advice))
        }
        Err(error) => CheckResult::problem(ONLINE, message_of(&error), Some(&advice)),
    }
}
