//! The command `imagate group list|show|create|change|delete`.

mod remote;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::output::{Column, cell, print, print_json, print_message, table};
use super::remote::{GatewayArgs, with_plain_numbers};
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
    gateway: GatewayArgs,
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
        #[command(flatten)]
        confirmation: DeletionConfirmation,
    },
}

/// A group, of the store or of the admin API. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
struct GroupView {
    name: String,
    source: String,
    #[serde(default)]
    keys: u64,
    #[serde(default)]
    policy: Map<String, Value>,
    /// The reason why the policy cannot be used.
    problem: Option<String>,
}

// === impl GroupCommand ===

impl GroupCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let remote = gateway.remote()?;
        if let GroupAction::Delete { name, confirmation } = &action {
            confirmation.ask(&format!("the group {name}"))?;
        }
        if let Some(gateway) = remote {
            return gateway.run(async |gateway| remote::run(gateway, action, json).await);
        }
        gateway.installation.with_store(async |config, store| {
            let (people, audit) = (gateway::open_people(config, store), AuditContext::command());
            match action {
                GroupAction::List => list(config, &people, json).await,
                GroupAction::Show { name } => {
                    let group = people.find_group(&name).await.map_err(|error| group_failure(error, &name))?;
                    group_view(config, group).print(json)
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
                GroupAction::Delete { name, .. } => delete(&people, &name, json).await,
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
    print_deleted(&deleted.name, json)
}

fn print_deleted(name: &str, json: bool) -> Result<(), CommandFailure> {
    if json {
        print_json(&serde_json::json!({ "name": name, "deleted": true }))?;
    } else {
        print(&format!("{name} deleted\n"))?;
    }
    Ok(())
}

async fn list(config: &Config, people: &IdentityService, json: bool) -> Result<(), CommandFailure> {
    let groups: Vec<GroupView> = people.groups().await?.into_iter().map(|group| group_view(config, group)).collect();
    print_list(&groups, json)
}

fn print_list(groups: &[GroupView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&groups)?);
    }
    let rows: Vec<[String; 5]> = groups.iter().map(table_row).collect();
    let (policy, problem) = (Column::name("POLICY"), Column::state("PROBLEM"));
    Ok(print(&table(["NAME".into(), "SOURCE".into(), "KEYS".into(), policy, problem], &rows))?)
}

fn print_change(
    config: &Config,
    result: Result<KeyGroup, IdentityError>,
    name: &str,
    outcome: &str,
    json: bool,
) -> Result<(), CommandFailure> {
    let group = result.map_err(|error| group_failure(error, name))?;
    group_view(config, group).print_change(outcome, json)
}

fn group_view(config: &Config, group: KeyGroup) -> GroupView {
    let (policy, problem) =
        manage::configured_policy(config, &group.row, group.is_in_file, PolicyEnvironment::OtherProcess);
    let source = if group.is_in_file { "file" } else { "store" };
    GroupView { name: group.row.name, source: source.to_owned(), keys: group.row.key_count, policy, problem }
        .with_plain_numbers()
}

// === impl GroupView ===

impl GroupView {
    /// Writes amounts as the admin API and the store both do.
    fn with_plain_numbers(self) -> Self {
        let policy = self.policy.into_iter().map(|(name, value)| (name, with_plain_numbers(value))).collect();
        Self { policy, ..self }
    }

    /// Prints the policy, or the whole group in JSON.
    fn print(&self, json: bool) -> Result<(), CommandFailure> {
        if json { Ok(print_json(self)?) } else { Ok(print(&toml::to_string(&self.policy)?)?) }
    }

    fn print_change(&self, outcome: &str, json: bool) -> Result<(), CommandFailure> {
        if json { Ok(print_json(self)?) } else { Ok(print(&format!("{} {outcome}\n", self.name))?) }
    }
}

fn table_row(group: &GroupView) -> [String; 5] {
    let fields: Vec<&str> = group.policy.keys().map(String::as_str).collect();
    let fields = Some(fields.join(", ")).filter(|fields| !fields.is_empty());
    [group.name.clone(), group.source.clone(), group.keys.to_string(), cell(fields), cell(group.problem.as_ref())]
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
