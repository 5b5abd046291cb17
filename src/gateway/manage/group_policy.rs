//! The settings of groups that are not in the file: checked as those of the file are, and added to them.

use std::slice;

use serde_json::{Map, Value};

use crate::gateway::config::{self, Config, ConfigProblem, DEFAULT_GROUP, GroupConfig, SystemEnvironment};
use crate::gateway::filter::{FilterError, PromptFilters};
use crate::gateway::store::GroupRow;
use crate::gateway::upstream::UpstreamClient;

/// The stored text of a group without settings.
const EMPTY_POLICY: &str = "{}";

/// The process that is to use a policy.
#[derive(Clone, Copy)]
pub(crate) enum PolicyEnvironment<'a> {
    /// This process, with its own environment and these connections.
    Server(&'a UpstreamClient),
    /// A server beside this command, whose environment and certificates are unknown here.
    OtherProcess,
}

/// Checks the settings of a group, whose fields are named as in `[[groups]]`.
///
/// # Errors
///
/// Returns all problems with the settings.
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
    PromptFilters::new(slice::from_ref(&group)).map_err(|error| vec![filter_problem(&error)])?;
    if let PolicyEnvironment::Server(upstream) = environment
        && group.needs_tls()
    {
        let fault = |error| format!("needs TLS, which cannot be set up on this machine: {error}");
        let problem = |error| vec![ConfigProblem::for_setting("filter.moderation.base_url", &fault(error))];
        upstream.prepare_tls().map_err(problem)?;
    }
    Ok(group)
}

/// The settings of a group of the store and the reason why they cannot be used, if its stored settings are in force.
pub(crate) fn policy_in_force(config: &Config, row: &GroupRow) -> Option<(Map<String, Value>, Option<String>)> {
    let group = config.groups.iter().find(|group| group.name == row.name && !group.implicit)?;
    let stored = read_policy(row.policy.as_deref()?).ok()?;
    (group.policy == stored).then(|| (stored, group.problem.clone()))
}

/// The settings of a group as they are written in the file or in the store, and the reason why they cannot be used.
pub(crate) fn written_policy(
    config: &Config,
    row: &GroupRow,
    of_file: bool,
    environment: PolicyEnvironment<'_>,
) -> (Map<String, Value>, Option<String>) {
    if of_file {
        let written = config.groups.iter().find(|group| group.name == row.name);
        return (written.map(|group| group.policy.clone()).unwrap_or_default(), None);
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

fn read_policy(stored: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(stored).map_err(|error| format!("its settings are not a JSON object: {error}"))
}

/// Returns these settings with the groups of the store, given by their names and stored settings. A group whose
/// settings cannot be used is included, and its requests are refused: a filter must not be lost.
pub(crate) fn with_store_groups(config: &Config, stored: &[(String, String)], upstream: &UpstreamClient) -> Config {
    let of_file = config.file_groups();
    // A group without settings cannot have a problem.
    let Ok(plain) = config::group_from_json(config, DEFAULT_GROUP, &Map::new(), None) else { return config.clone() };
    let stored = stored.iter().filter(|(name, _)| !of_file.contains(name));
    let groups = stored.map(|(name, stored)| {
        let plain = GroupConfig { name: name.clone(), ..plain.clone() };
        if stored == EMPTY_POLICY {
            plain
        } else {
            group_with_policy(config, plain, stored, PolicyEnvironment::Server(upstream))
        }
    });
    config.with_store_groups(groups.collect())
}

/// Applies stored settings to a group without any.
fn group_with_policy(
    config: &Config,
    without_policy: GroupConfig,
    stored: &str,
    environment: PolicyEnvironment<'_>,
) -> GroupConfig {
    let policy = read_policy(stored);
    let checked = policy.as_ref().map_err(String::clone).and_then(|policy| {
        check_policy(config, &without_policy.name, policy, environment).map_err(|problems| joined_messages(&problems))
    });
    let policy = policy.as_ref().cloned().unwrap_or_default();
    match checked {
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
        FilterError::Patterns { source, .. } => {
            ConfigProblem::for_setting("filter.patterns", &format!("cannot be used together: {source}"))
        }
    }
}
