//! The command `imagate group list|show|create|change|delete`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{cell, print, print_json, print_message, table};
use super::secret::STDIN;
use crate::gateway;
use crate::gateway::config::{Config, HostEnvironment as _, SystemEnvironment};
use crate::gateway::manage::{self, PolicyEnvironment};
use crate::gateway::people::{IdentityError, IdentityService, KeyGroup};
use crate::gateway::store::AuditContext;

/// Arguments of `group`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct GroupCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: GroupAction,
}

#[derive(Debug, Subcommand)]
enum GroupAction {
    /// List the groups of the settings file and of the store.
    List,
    /// Print the policy of a group, in the form that `--policy` accepts.
    Show {
        /// The name or id of the group.
        name: String,
    },
    /// Add a group to the store.
    Create {
        /// The name of the group.
        name: String,
        /// A file with settings of `[[groups]]`, in TOML or as a JSON object; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Replace the policy of a group in the store. A running gateway applies it within a second.
    Change {
        /// The name or id of the group.
        name: String,
        /// A file with settings of `[[groups]]`, in TOML or as a JSON object; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
    },
    /// Delete a group from the store. No key may belong to it.
    Delete {
        /// The name or id of the group.
        name: String,
    },
}

/// A group in JSON.
#[derive(Serialize)]
struct GroupJson<'a> {
    name: &'a str,
    source: &'static str,
    keys: u64,
    policy: &'a Map<String, Value>,
    problem: Option<&'a str>,
}

/// A group with its policy.
struct GroupDetails {
    group: KeyGroup,
    policy: Map<String, Value>,
    /// The reason why the policy cannot be used.
    problem: Option<String>,
}

// === impl GroupCommand ===

impl GroupCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action } = self;
        installation.with_store(async |config, store| {
            let (people, audit) = (gateway::open_people(config, store), AuditContext::command());
            match action {
                GroupAction::List => list(config, &people, json).await,
                GroupAction::Show { name } => {
                    let group = people.find_group(&name).await.map_err(|error| group_failure(error, &name))?;
                    print_group(&group_details(config, group), json)
                }
                GroupAction::Create { name, policy } => {
                    let policy = policy.map(|file| read_checked_policy(config, &name, &file)).transpose()?;
                    print_change(
                        config,
                        people.create_group(&audit, &name, policy.as_deref()).await,
                        &name,
                        "made",
                        json,
                    )
                }
                GroupAction::Change { name, policy } => {
                    let policy = read_checked_policy(config, &name, &policy)?;
                    print_change(config, people.change_group(&audit, &name, &policy).await, &name, "changed", json)
                }
                GroupAction::Delete { name } => delete(&people, &name, json).await,
            }
        })
    }
}

/// Reads the policy from a file, checks it, and returns it as the JSON text that is stored.
fn read_checked_policy(config: &Config, name: &str, file: &Path) -> Result<String, CommandFailure> {
    let policy = read_policy(file)?;
    let group = manage::check_policy(config, name, &policy, PolicyEnvironment::OtherProcess).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        CommandFailure::Usage(lines.join("\n"))
    })?;
    let policy = Value::Object(group.policy);
    let variable = policy.pointer("/filter/moderation/api_key/env").and_then(Value::as_str);
    if let Some(variable) = variable.filter(|variable| SystemEnvironment.variable(variable).is_none()) {
        print_message(&format!("the environment variable {variable} is not set here; it must be set for the gateway"));
    }
    Ok(policy.to_string())
}

fn read_policy(file: &Path) -> Result<Map<String, Value>, CommandFailure> {
    let text = if file == Path::new(STDIN) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        let text = SystemEnvironment.read(file);
        text.map_err(|error| CommandFailure::Usage(format!("{} cannot be read: {error}", file.display())))?
    };
    // A TOML document cannot begin with a brace, but a JSON object does.
    let policy = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string())
    };
    policy.map_err(|error| CommandFailure::Usage(format!("{} is not a valid policy: {error}", file.display())))
}

async fn delete(people: &IdentityService, name: &str, json: bool) -> Result<(), CommandFailure> {
    let deleted =
        people.delete_group(&AuditContext::command(), name).await.map_err(|error| group_failure(error, name))?;
    if json {
        print_json(&serde_json::json!({ "name": deleted.name, "deleted": true }))?;
    } else {
        print(&format!("{} deleted\n", deleted.name))?;
    }
    Ok(())
}

async fn list(config: &Config, people: &IdentityService, json: bool) -> Result<(), CommandFailure> {
    let groups: Vec<GroupDetails> =
        people.groups().await?.into_iter().map(|group| group_details(config, group)).collect();
    if json {
        return Ok(print_json(&groups.iter().map(to_json).collect::<Vec<_>>())?);
    }
    let rows: Vec<[String; 5]> = groups.iter().map(table_row).collect();
    Ok(print(&table(["NAME", "SOURCE", "KEYS", "POLICY", "PROBLEM"], &rows))?)
}

fn print_group(details: &GroupDetails, json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&to_json(details))?);
    }
    Ok(print(&toml::to_string(&details.policy)?)?)
}

fn print_change(
    config: &Config,
    result: Result<KeyGroup, IdentityError>,
    name: &str,
    outcome: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    let details = group_details(config, result.map_err(|error| group_failure(error, name))?);
    if json {
        return Ok(print_json(&to_json(&details))?);
    }
    Ok(print(&format!("{} {outcome}\n", details.group.row.name))?)
}

fn group_details(config: &Config, group: KeyGroup) -> GroupDetails {
    let (policy, problem) =
        manage::configured_policy(config, &group.row, group.is_in_file, PolicyEnvironment::OtherProcess);
    GroupDetails { group, policy, problem }
}

fn to_json(GroupDetails { group, policy, problem }: &GroupDetails) -> GroupJson<'_> {
    GroupJson {
        name: &group.row.name,
        source: source_name(group),
        keys: group.row.key_count,
        policy,
        problem: problem.as_deref(),
    }
}

fn table_row(GroupDetails { group, policy, problem }: &GroupDetails) -> [String; 5] {
    let fields: Vec<&str> = policy.keys().map(String::as_str).collect();
    let fields = Some(fields.join(", ")).filter(|fields| !fields.is_empty());
    let keys = group.row.key_count.to_string();
    [group.row.name.clone(), source_name(group).to_owned(), keys, cell(fields), cell(problem.as_ref())]
}

const fn source_name(group: &KeyGroup) -> &'static str {
    if group.is_in_file { "file" } else { "store" }
}

fn group_failure(error: IdentityError, name: &str) -> CommandFailure {
    CommandFailure::Failed(match error {
        IdentityError::Unknown => anyhow::anyhow!("the group {name} does not exist"),
        IdentityError::NameTaken => anyhow::anyhow!("the group {name} already exists"),
        IdentityError::DefinedInFile => {
            anyhow::anyhow!("the group {name} is defined in the settings file and can only be changed there")
        }
        IdentityError::InUse => {
            anyhow::anyhow!("the group {name} cannot be deleted: it has keys, or it is the group `default`")
        }
        error => error.into(),
    })
}
