//! The settings of groups that the file has not: checked as those of the file are, and put beside them.

use std::slice;

use serde_json::{Map, Value};

use crate::gateway::config::{self, Config, DEFAULT_GROUP, Group, Machine, Problem};
use crate::gateway::filter::{FilterError, Filters};
use crate::gateway::store::GroupRow;
use crate::gateway::upstream::Upstream;

/// What the store says of a group without settings.
const NOTHING: &str = "{}";

/// The process that is to use a policy.
#[derive(Clone, Copy)]
pub(crate) enum PolicyUser<'a> {
    /// This one, with its own environment and these connections.
    Server(&'a Upstream),
    /// A server beside this command, whose environment and certificates are not known here.
    Elsewhere,
}

/// Checks the settings of a group, which name their fields as `[[groups]]` does.
///
/// # Errors
///
/// Everything that is wrong with them.
pub(crate) fn check_policy(
    config: &Config,
    name: &str,
    policy: &Map<String, Value>,
    user: PolicyUser<'_>,
) -> Result<Group, Vec<Problem>> {
    let group = match user {
        PolicyUser::Server(_) => config::group_from_json(config, name, policy, Some(&Machine)),
        PolicyUser::Elsewhere => config::group_from_json(config, name, policy, None),
    }?;
    Filters::new(slice::from_ref(&group)).map_err(|error| vec![of_filter(&error)])?;
    if let PolicyUser::Server(upstream) = user
        && group.needs_tls()
    {
        let fault = |error| format!("needs encryption, which this machine cannot give: {error}");
        let problem = |error| vec![Problem::of_setting("filter.moderation.base_url", &fault(error))];
        upstream.prepare_tls().map_err(problem)?;
    }
    Ok(group)
}

/// The settings of a group of the store and the reason why they cannot be used, if what is stored of it is in force.
pub(crate) fn policy_in_force(config: &Config, row: &GroupRow) -> Option<(Map<String, Value>, Option<String>)> {
    let group = config.groups.iter().find(|group| group.name == row.name && !group.implicit)?;
    let stored = read_policy(row.policy.as_deref()?).ok()?;
    (group.policy == stored).then(|| (stored, group.problem.clone()))
}

/// The settings of a group as they are written in the file or in the store, and the reason why they cannot be used.
pub(crate) fn policy_of(
    config: &Config,
    row: &GroupRow,
    of_file: bool,
    user: PolicyUser<'_>,
) -> (Map<String, Value>, Option<String>) {
    if of_file {
        let written = config.groups.iter().find(|group| group.name == row.name);
        return (written.map(|group| group.policy.clone()).unwrap_or_default(), None);
    }
    match row.policy.as_deref().map_or_else(|| Ok(Map::new()), read_policy) {
        Ok(policy) => {
            let problem = check_policy(config, &row.name, &policy, user).err().map(|problems| said(&problems));
            (policy, problem)
        }
        Err(problem) => (Map::new(), Some(problem)),
    }
}

fn read_policy(stored: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(stored).map_err(|error| format!("its settings are no JSON object: {error}"))
}

/// These settings with the groups of the store, given by their names and what is stored of them. A group whose settings
/// cannot be used is among them, and is served nothing: a filter must not be lost.
pub(crate) fn with_groups_of_store(config: &Config, stored: &[(String, String)], upstream: &Upstream) -> Config {
    let of_file = config.groups_of_file();
    // Nothing can be wrong with what is not set.
    let Ok(plain) = config::group_from_json(config, DEFAULT_GROUP, &Map::new(), None) else { return config.clone() };
    let stored = stored.iter().filter(|(name, _)| !of_file.contains(name));
    let groups = stored.map(|(name, stored)| {
        let plain = Group { name: name.clone(), ..plain.clone() };
        if stored == NOTHING { plain } else { group(config, plain, stored, PolicyUser::Server(upstream)) }
    });
    config.with_groups_of_store(groups.collect())
}

/// The group that these settings make of one without any.
fn group(config: &Config, plain: Group, stored: &str, user: PolicyUser<'_>) -> Group {
    let policy = read_policy(stored);
    let checked = policy
        .as_ref()
        .map_err(String::clone)
        .and_then(|policy| check_policy(config, &plain.name, policy, user).map_err(|problems| said(&problems)));
    let policy = policy.as_ref().cloned().unwrap_or_default();
    match checked {
        Ok(group) => Group { policy, ..group },
        Err(problem) => {
            tracing::error!(
                group = plain.name,
                problem,
                "a group of the store cannot be used: its requests are refused"
            );
            Group { policy, problem: Some(problem), ..plain }
        }
    }
}

fn said(problems: &[Problem]) -> String {
    problems.iter().map(Problem::message).collect::<Vec<_>>().join("; ")
}

fn of_filter(error: &FilterError) -> Problem {
    match error {
        FilterError::Word { index, .. } => {
            Problem::of_setting(&format!("filter.words[{index}]"), "has nothing in it that can be seen")
        }
        FilterError::Patterns { source, .. } => {
            Problem::of_setting("filter.patterns", &format!("cannot be used together: {source}"))
        }
    }
}
