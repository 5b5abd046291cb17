//! The settings of groups that the file has not: checked as those of the file are, and put beside them.

use std::slice;

use serde_json::{Map, Value};

use crate::gateway::config::{self, Config, Group, Machine, Problem};
use crate::gateway::filter::{FilterError, Filters};
use crate::gateway::store::GroupRow;

/// Checks the settings of a group, which name their fields as `[[groups]]` does.
///
/// # Errors
///
/// Everything that is wrong with them.
pub(crate) fn check_policy(config: &Config, name: &str, policy: &Map<String, Value>) -> Result<Group, Vec<Problem>> {
    let group = config::group_from_json(config, name, policy, &Machine)?;
    Filters::new(slice::from_ref(&group)).map_err(|error| vec![of_filter(&error)])?;
    Ok(group)
}

/// The settings of a group as they are written in the file or in the store, and the reason why they cannot be used.
pub(crate) fn policy_of(config: &Config, row: &GroupRow, of_file: bool) -> (Map<String, Value>, Option<String>) {
    if of_file {
        let written = config.groups.iter().find(|group| group.name == row.name);
        return (written.map(|group| group.policy.clone()).unwrap_or_default(), None);
    }
    match row.policy.as_deref().map_or_else(|| Ok(Map::new()), read_policy) {
        Ok(policy) => {
            let problem = check_policy(config, &row.name, &policy).err().map(|problems| said(&problems));
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
pub(crate) fn with_groups_of_store(config: &Config, stored: &[(String, String)]) -> Config {
    let of_file = config.groups_of_file();
    let stored = stored.iter().filter(|(name, _)| !of_file.contains(name));
    config.with_groups_of_store(stored.filter_map(|(name, policy)| group(config, name, policy)).collect())
}

fn group(config: &Config, name: &str, stored: &str) -> Option<Group> {
    let checked =
        read_policy(stored).and_then(|policy| check_policy(config, name, &policy).map_err(|problems| said(&problems)));
    match checked {
        Ok(group) => Some(group),
        Err(problem) => {
            tracing::error!(group = name, problem, "a group of the store cannot be used: its requests are refused");
            // Nothing can be wrong with what is not set.
            let group = config::group_from_json(config, name, &Map::new(), &Machine).ok()?;
            Some(Group { problem: Some(problem), ..group })
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
