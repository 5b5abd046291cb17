//! `imagate group list|show|create|change|delete`

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

use super::failure::Failure;
use super::installation::Installation;
use super::output::{cell, print, print_json, remark, table};
use super::secret::STDIN;
use crate::gateway;
use crate::gateway::config::{Config, Machine, Surroundings as _};
use crate::gateway::manage::{self, PolicyUser};
use crate::gateway::people::{Group as Known, People, PeopleError};
use crate::gateway::store::Act;

/// Arguments of `group`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Group {
    #[command(flatten)]
    installation: Installation,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the groups of the file and of the store.
    List,
    /// Print the policy of a group, as `--policy` takes it.
    Show {
        /// The name of the group, or its id.
        name: String,
    },
    /// Add a group to the store.
    Create {
        /// The name of the group.
        name: String,
        /// A file with the settings of `[[groups]]` in TOML or as a JSON object; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
    },
    /// Give a group of the store another policy in place of its former one. A running server follows within a second.
    Change {
        /// The name of the group, or its id.
        name: String,
        /// A file with the settings of `[[groups]]` in TOML or as a JSON object; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
    },
    /// Delete a group of the store, to which no key belongs.
    Delete {
        /// The name of the group, or its id.
        name: String,
    },
}

/// A group in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    source: &'static str,
    keys: u64,
    policy: &'a Map<String, Value>,
    problem: Option<&'a str>,
}

/// A group with what is set of it.
struct Described {
    group: Known,
    policy: Map<String, Value>,
    /// The reason why the policy cannot be used.
    problem: Option<String>,
}

// === impl Group ===

impl Group {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { installation, json, action } = self;
        installation.with_store(async |config, store| {
            let (people, act) = (gateway::open_people(config, store), Act::command());
            match action {
                Action::List => list(config, &people, json).await,
                Action::Show { name } => {
                    let found = people.find_group(&name).await.map_err(|error| told(error, &name))?;
                    shown(&describe(config, found), json)
                }
                Action::Create { name, policy } => {
                    let policy = policy.map(|file| checked(config, &name, &file)).transpose()?;
                    done(config, people.make_group(&act, &name, policy.as_deref()).await, &name, "made", json)
                }
                Action::Change { name, policy } => {
                    let policy = checked(config, &name, &policy)?;
                    done(config, people.change_group(&act, &name, &policy).await, &name, "changed", json)
                }
                Action::Delete { name } => delete(&people, &name, json).await,
            }
        })
    }
}

/// The policy of a file, as it is stored.
fn checked(config: &Config, name: &str, file: &Path) -> Result<String, Failure> {
    let policy = read(file)?;
    let group = manage::check_policy(config, name, &policy, PolicyUser::Elsewhere).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::Usage(lines.join("\n"))
    })?;
    let policy = Value::Object(group.policy);
    let variable = policy.pointer("/filter/moderation/api_key/env").and_then(Value::as_str);
    if let Some(variable) = variable.filter(|variable| Machine.variable(variable).is_none()) {
        remark(&format!("the environment variable {variable} is not set here; the server must have it"));
    }
    Ok(policy.to_string())
}

fn read(file: &Path) -> Result<Map<String, Value>, Failure> {
    let text = if file == Path::new(STDIN) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        text
    } else {
        let text = Machine.read(file);
        text.map_err(|error| Failure::Usage(format!("{} cannot be read: {error}", file.display())))?
    };
    // No TOML begins so.
    let policy = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string())
    };
    policy.map_err(|error| Failure::Usage(format!("{} is no policy: {error}", file.display())))
}

async fn delete(people: &People, name: &str, json: bool) -> Result<(), Failure> {
    let gone = people.delete_group(&Act::command(), name).await.map_err(|error| told(error, name))?;
    if json {
        print_json(&serde_json::json!({ "name": gone.name, "deleted": true }))?;
    } else {
        print(&format!("{} deleted\n", gone.name))?;
    }
    Ok(())
}

async fn list(config: &Config, people: &People, json: bool) -> Result<(), Failure> {
    let groups: Vec<Described> = people.groups().await?.into_iter().map(|group| describe(config, group)).collect();
    if json {
        return Ok(print_json(&groups.iter().map(listed).collect::<Vec<_>>())?);
    }
    let rows: Vec<[String; 5]> = groups.iter().map(row).collect();
    Ok(print(&table(["NAME", "SOURCE", "KEYS", "POLICY", "PROBLEM"], &rows))?)
}

fn shown(described: &Described, json: bool) -> Result<(), Failure> {
    if json {
        return Ok(print_json(&listed(described))?);
    }
    Ok(print(&toml::to_string(&described.policy)?)?)
}

fn done(config: &Config, done: Result<Known, PeopleError>, name: &str, word: &str, json: bool) -> Result<(), Failure> {
    let described = describe(config, done.map_err(|error| told(error, name))?);
    if json {
        return Ok(print_json(&listed(&described))?);
    }
    Ok(print(&format!("{} {word}\n", described.group.row.name))?)
}

fn describe(config: &Config, group: Known) -> Described {
    let (policy, problem) = manage::policy_of(config, &group.row, group.of_file, PolicyUser::Elsewhere);
    Described { group, policy, problem }
}

fn listed(Described { group, policy, problem }: &Described) -> Listed<'_> {
    Listed { name: &group.row.name, source: source(group), keys: group.row.keys, policy, problem: problem.as_deref() }
}

fn row(Described { group, policy, problem }: &Described) -> [String; 5] {
    let fields: Vec<&str> = policy.keys().map(String::as_str).collect();
    let fields = Some(fields.join(", ")).filter(|fields| !fields.is_empty());
    let keys = group.row.keys.to_string();
    [group.row.name.clone(), source(group).to_owned(), keys, cell(fields), cell(problem.as_ref())]
}

const fn source(group: &Known) -> &'static str {
    if group.of_file { "file" } else { "store" }
}

fn told(error: PeopleError, name: &str) -> Failure {
    Failure::Failed(match error {
        PeopleError::Unknown => anyhow::anyhow!("there is no group {name}"),
        PeopleError::Taken => anyhow::anyhow!("there is a group {name} already"),
        PeopleError::OfFile => {
            anyhow::anyhow!("the group {name} stands in the configuration file, which alone can change it")
        }
        PeopleError::InUse => anyhow::anyhow!("the group {name} is in use: keys are in it, or it is always there"),
        error => error.into(),
    })
}
