//! The settings of groups of the store. They are checked like those of the file, and merged with them.

use serde_json::{Map, Value};

use crate::gateway::config::{self, Config, ConfigProblem, DEFAULT_GROUP, GroupConfig, SystemEnvironment};
use crate::gateway::filter::{FilterError, PromptFilter};
use crate::gateway::store::GroupRow;
use crate::gateway::upstream::UpstreamClient;

/// The stored text of a group without settings.
const EMPTY_POLICY: &str = "{}";

/// The process that is going to use the settings of a group.
#[derive(Clone, Copy)]
pub(crate) enum PolicyEnvironment<'a> {
    /// This process, with its own environment and this upstream client.
    Server(&'a UpstreamClient),
    /// Another process, whose environment and certificates are unknown here.
    OtherProcess,
}

/// Checks the settings of a group, whose fields are named as in `[[groups]]`.
///
/// # Errors
///
/// Returns the problems with the settings.
pub(crate) fn check_policy(
    config: &Config,
    name: &str,
    policy: &Map<String, Value>,
    environment: PolicyEnvironment<'_>,
) -> Result<GroupConfig, Vec<ConfigProblem>> {
    let group = match environment {
        PolicyEnvironment::Server(_) => config::group_from_json(config, name, policy, Some(&SystemEnvironment)),
        PolicyEnvironment::OtherProcess => config::group_from_json(config, name, policy, None),
    }?;
    PromptFilter::new(name, &group.filter).map_err(|error| vec![filter_problem(&error)])?;
    if let PolicyEnvironment::Server(upstream) = environment
        && group.needs_tls()
    {
        let message = |error| format!("needs TLS, which cannot be set up on this machine: {error}");
        let problem = |error| vec![ConfigProblem::for_setting("filter.moderation.base_url", &message(error))];
        upstream.prepare_tls().map_err(problem)?;
    }
    Ok(group)
}

/// Returns the settings of a group of the store, and the reason why they cannot be used, if there is one; `None` if the
/// stored settings are not in force in `config`.
pub(crate) fn policy_in_force(config: &Config, row: &GroupRow) -> Option<(Map<String, Value>, Option<String>)> {
    let group = config.groups.iter().find(|group| group.name == row.name && !group.implicit)?;
    let stored = read_policy(row.policy.as_deref()?).ok()?;
    (group.policy == stored).then(|| (stored, group.problem.clone()))
}

/// Returns the settings of a group as they are written in the file or in the store, and the reason why they cannot be
/// used, if there is one.
pub(crate) fn configured_policy(
    config: &Config,
    row: &GroupRow,
    is_in_file: bool,
    environment: PolicyEnvironment<'_>,
) -> (Map<String, Value>, Option<String>) {
    if is_in_file {
        let group = config.groups.iter().find(|group| group.name == row.name);
        return (group.map(|group| group.policy.clone()).unwrap_or_default(), None);
    }
    match row.policy.as_deref().map_or_else(|| Ok(Map::new()), read_policy) {
        Ok(policy) => {
            let problem =
                check_policy(config, &row.name, &policy, environment).err().map(|problems| joined_messages(&problems));
            (policy, problem)
        }
        Err(problem) => (Map::new(), Some(problem)),
    }
}

/// Parses the stored settings of a group.
fn read_policy(stored: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(stored).map_err(|error| format!("its settings are not a JSON object: {error}"))
}

/// Returns the configuration with the groups of the store, which are given as pairs of a name and stored settings. A
/// group whose settings cannot be used is included, and its requests are refused, because a filter must not be skipped.
pub(crate) fn with_store_groups(config: &Config, stored: &[(String, String)], upstream: &UpstreamClient) -> Config {
    let file_groups = config.file_groups();
    // A group without settings cannot have a problem.
    let Ok(without_policy) = config::group_from_json(config, DEFAULT_GROUP, &Map::new(), None) else {
        return config.clone();
    };
    let stored = stored.iter().filter(|(name, _)| !file_groups.contains(name));
    let groups = stored.map(|(name, policy)| {
        let without_policy = GroupConfig { name: name.clone(), ..without_policy.clone() };
        if policy == EMPTY_POLICY {
            without_policy
        } else {
            group_with_policy(config, without_policy, policy, PolicyEnvironment::Server(upstream))
        }
    });
    config.with_store_groups(groups.collect())
}

/// Applies stored settings to a group that has none.
fn group_with_policy(
    config: &Config,
    without_policy: GroupConfig,
    stored: &str,
    environment: PolicyEnvironment<'_>,
) -> GroupConfig {
    let policy = read_policy(stored);
    let result = policy.as_ref().map_err(String::clone).and_then(|policy| {
        check_policy(config, &without_policy.name, policy, environment).map_err(|problems| joined_messages(&problems))
    });
    let policy = policy.as_ref().cloned().unwrap_or_default();
    match result {
        Ok(group) => GroupConfig { policy, ..group },
        Err(problem) => {
            tracing::error!(
                group = without_policy.name,
                problem,
                "the settings of a group in the store cannot be used: requests of its keys are refused"
            );
            GroupConfig { policy, problem: Some(problem), ..without_policy }
        }
    }
}

fn joined_messages(problems: &[ConfigProblem]) -> String {
    problems.iter().map(ConfigProblem::message).collect::<Vec<_>>().join("; ")
}

fn filter_problem(error: &FilterError) -> ConfigProblem {
    match error {
        FilterError::Word { index, .. } => {
            ConfigProblem::for_setting(&format!("filter.words[{index}]"), "contains no visible character")
        }
        FilterError::Words { source, .. } => {
            ConfigProblem::for_setting("filter.words", &format!("cannot be used together: {source}"))
        }
        FilterError::Patterns { source, .. } => {
            ConfigProblem::for_setting("filter.patterns", &format!("cannot be used together: {source}"))
        }
    }
}
