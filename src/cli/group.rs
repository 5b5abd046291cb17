//! The command `imagate group list|show|create|change|delete`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway};
use super::output::{Column, cell, print, print_json, print_message, table};
use super::secret::STDIN;
use crate::client::admin::Error;
use crate::client::admin::types::{Group, GroupName, GroupPolicy, GroupUpdate, NewGroup};
use crate::gateway::config::{Config, HostEnvironment as _, SystemEnvironment};
use crate::gateway::manage::{self, PolicyEnvironment};

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

// === impl GroupCommand ===

impl GroupCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // `find` prints the name of another gateway, which a person must see before the question.
        let gateway = gateway.find()?;
        if let GroupAction::Delete { name, confirmation } = &action {
            confirmation.ask(&format!("the group {name}"))?;
        }
        gateway.run(async |gateway| action.run(gateway, json).await)
    }
}

// === impl GroupAction ===

impl GroupAction {
    async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let admin = &gateway.admin;
        match self {
            Self::List => print_list(&admin.list_groups().send().await?.data, json),
            Self::Show { name } => print_group(&admin.retrieve_group().name(name).send().await?, json),
            Self::Create { name, policy } => {
                let policy = policy.map(|file| read_checked_policy(gateway, &name, &file)).transpose()?;
                let new = NewGroup::builder().name(GroupName::try_from(name).map_err(Error::from)?).policy(policy);
                print_change(&admin.create_group().body(new).send().await?, "made", json)
            }
            Self::Change { name, policy } => {
                let change = GroupUpdate::builder().policy(read_checked_policy(gateway, &name, &policy)?);
                print_change(&admin.update_group().name(name).body(change).send().await?, "changed", json)
            }
            Self::Delete { name, .. } => {
                let deleted = admin.delete_group().name(name).send().await?;
                Ok(if json { print_json(&deleted) } else { print(&format!("{} deleted\n", deleted.name)) }?)
            }
        }
    }
}

/// Reads the policy from a file. The installation on this machine checks it here, so that all its problems are printed.
/// For another gateway, a setting that this version does not know is sent all the same, because the gateway may be newer.
fn read_checked_policy(gateway: &ManagedGateway, name: &str, file: &Path) -> Result<GroupPolicy, CommandFailure> {
    let policy = read_policy(file)?;
    if let Some(local) = &gateway.local {
        check_policy(&local.config, name, &policy)?;
    }
    let policy = serde_json::from_value(policy.into());
    policy.map_err(|error| CommandFailure::Usage(format!("{} is not a valid policy: {error}", file.display())))
}

fn check_policy(config: &Config, name: &str, policy: &Map<String, Value>) -> Result<(), CommandFailure> {
    let group = manage::check_policy(config, name, policy, PolicyEnvironment::OtherProcess).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        CommandFailure::Usage(lines.join("\n"))
    })?;
    let policy = Value::Object(group.policy);
    let variable = policy.pointer("/filter/moderation/api_key/env").and_then(Value::as_str);
    if let Some(variable) = variable.filter(|variable| SystemEnvironment.variable(variable).is_none()) {
        print_message(&format!("the environment variable {variable} is not set here; it must be set for the gateway"));
    }
    Ok(())
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

fn print_list(groups: &[Group], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&groups)?);
    }
    let rows: Vec<[String; 5]> = groups.iter().map(table_row).collect();
    let (policy, problem) = (Column::name("POLICY"), Column::state("PROBLEM"));
    Ok(print(&table(["NAME".into(), "SOURCE".into(), "KEYS".into(), policy, problem], &rows))?)
}

/// Prints the policy, or the whole group in JSON.
fn print_group(group: &Group, json: bool) -> Result<(), CommandFailure> {
    // Members do not see the policy.
    let policy = group.policy.as_ref().map(toml::to_string).transpose()?.unwrap_or_default();
    Ok(if json { print_json(group) } else { print(&policy) }?)
}

fn print_change(group: &Group, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    Ok(if json { print_json(group) } else { print(&format!("{} {outcome}\n", group.name)) }?)
}

fn table_row(group: &Group) -> [String; 5] {
    let policy = json!(group.policy);
    let fields: Vec<&str> = policy.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let fields = Some(fields.join(", ")).filter(|fields| !fields.is_empty());
    let keys = group.keys.unwrap_or_default().to_string();
    [group.name.clone(), group.source.to_string(), keys, cell(fields), cell(group.problem.as_ref())]
}
