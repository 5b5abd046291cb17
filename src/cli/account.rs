//! `imagate account list|add|disable|enable|rotate|delete|test|explain`

mod add;
mod explain;
mod secrets;
mod shown;
mod test;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use super::failure::Failure;
use super::installation::Installation;
use super::output::{print, print_json, table};
use crate::gateway::manage::{self, Known, ManageError};
use crate::gateway::store::{AccountChange, Act};
use add::Add;
use explain::Explain;
use secrets::Secrets;
use shown::{HEADINGS, described, row};

/// What is noted where nobody says why.
const NO_REASON: &str = "disabled by command";

/// Arguments of `account`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Account {
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
    /// List the accounts of the file and of the store, without their credentials.
    List,
    /// Add an account to the store. Its secrets are never arguments, which others on the machine can see.
    Add(Box<Add>),
    /// Use an account no more, until it is enabled.
    Disable {
        /// The name of the account, or its id.
        id: String,
        /// Why, for whoever looks next.
        #[arg(long, value_name = "TEXT", default_value = NO_REASON)]
        reason: String,
    },
    /// Take a disabling back, and end a rest.
    Enable {
        /// The name of the account, or its id.
        id: String,
    },
    /// Give an account of the store other secrets; those that are not named stay.
    Rotate {
        /// The name of the account, or its id.
        id: String,
        #[command(flatten)]
        secrets: Secrets,
    },
    /// Delete an account of the store, with its credentials.
    Delete {
        /// The name of the account, or its id.
        id: String,
    },
    /// Ask the upstream of an account for its models, with the account's credentials. Costs nothing.
    Test {
        /// The name of the account, or its id.
        id: String,
    },
    /// Say which account would make an image now, and why not the others.
    Explain(Explain),
}

// === impl Account ===

impl Account {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { installation, json, action } = self;
        // Before the store is opened: secrets may have to be typed.
        let action = match action {
            Action::Add(add) => Prepared::Add(add.prepare()?),
            Action::List => Prepared::List,
            Action::Disable { id, reason } => Prepared::Change(id, AccountChange::Disable { reason }, "disabled"),
            Action::Enable { id } => Prepared::Change(id, AccountChange::Enable, "enabled"),
            Action::Rotate { id, secrets } => Prepared::Rotate(id, given(&secrets)?),
            Action::Delete { id } => Prepared::Delete(id),
            Action::Test { id } => Prepared::Test(id),
            Action::Explain(explain) => Prepared::Explain(explain),
        };
        installation.with_store(async |config, store| match action {
            Prepared::List => list(&manage::accounts(config, store).await?, json),
            Prepared::Add(new) => add::add(new, config, store, json).await,
            Prepared::Change(id, change, done) => {
                changed(manage::change(config, store, &Act::command(), &id, change).await, done, json)
            }
            Prepared::Test(id) => test::test(&id, config, store, json).await,
            Prepared::Explain(explain) => explain.run(config, store, json).await,
            Prepared::Rotate(id, secrets) => match manage::rotate(config, store, &Act::command(), &id, secrets).await {
                Err(ManageError::Settings(problems)) => Err(add::unfit(&problems)),
                rotated => changed(rotated, "rotated", json),
            },
            Prepared::Delete(id) => changed(manage::delete(config, store, &Act::command(), &id).await, "deleted", json),
        })
    }
}

/// What is to be done, with everything that it needs.
enum Prepared {
    List,
    Add(add::New),
    Change(String, AccountChange, &'static str),
    Rotate(String, BTreeMap<String, String>),
    Delete(String),
    Test(String),
    Explain(Explain),
}

/// At least one secret.
fn given(secrets: &Secrets) -> Result<BTreeMap<String, String>, Failure> {
    let secrets = secrets.fetch()?;
    if secrets.is_empty() {
        return Err(Failure::Usage("say where a secret is to be found, such as --api-key-env NAME".to_owned()));
    }
    Ok(secrets)
}

fn list(accounts: &[Known], json: bool) -> Result<(), Failure> {
    if json {
        return Ok(print_json(&accounts.iter().map(described).collect::<Vec<_>>())?);
    }
    let rows: Vec<_> = accounts.iter().map(row).collect();
    Ok(print(&table(HEADINGS, &rows))?)
}

fn changed(change: Result<Known, ManageError>, done: &str, json: bool) -> Result<(), Failure> {
    let known = change?;
    if json {
        print_json(&described(&known))?;
    } else {
        print(&format!("{} {done}\n", known.name))?;
    }
    Ok(())
}
