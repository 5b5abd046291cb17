//! The command `imagate account list|add|disable|enable|rotate|delete|test|explain`.

mod add;
mod explain;
mod secrets;
mod shown;
mod test;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{print, print_json, table};
use crate::gateway::manage::{self, ManageError, ManagedAccount};
use crate::gateway::store::{AccountChange, AuditContext};
use add::AccountAddCommand;
use explain::AccountExplainCommand;
use secrets::AccountSecretArgs;
use shown::{HEADINGS, described, row};

/// The reason that is recorded if none is given.
const NO_REASON: &str = "disabled by command";

/// Arguments of `account`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct AccountCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: AccountAction,
}

#[derive(Debug, Subcommand)]
enum AccountAction {
    /// List the accounts of the file and of the store, without their credentials.
    List,
    /// Add an account to the store. Its secrets are never arguments, which others on the machine can see.
    Add(Box<AccountAddCommand>),
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
        secrets: AccountSecretArgs,
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
    Explain(AccountExplainCommand),
}

// === impl AccountCommand ===

impl AccountCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action } = self;
        // This happens before the store is opened, because the user may have to type secrets.
        let action = match action {
            AccountAction::Add(add) => PreparedAccountAction::Add(add.prepare()?),
            AccountAction::List => PreparedAccountAction::List,
            AccountAction::Disable { id, reason } => {
                PreparedAccountAction::Change(id, AccountChange::Disable { reason }, "disabled")
            }
            AccountAction::Enable { id } => PreparedAccountAction::Change(id, AccountChange::Enable, "enabled"),
            AccountAction::Rotate { id, secrets } => PreparedAccountAction::Rotate(id, given(&secrets)?),
            AccountAction::Delete { id } => PreparedAccountAction::Delete(id),
            AccountAction::Test { id } => PreparedAccountAction::Test(id),
            AccountAction::Explain(explain) => PreparedAccountAction::Explain(explain),
        };
        installation.with_store(async |config, store| match action {
            PreparedAccountAction::List => list(&manage::accounts(config, store).await?, json),
            PreparedAccountAction::Add(new) => add::add(new, config, store, json).await,
            PreparedAccountAction::Change(id, change, done) => {
                changed(manage::change(config, store, &AuditContext::command(), &id, change).await, done, json)
            }
            PreparedAccountAction::Test(id) => test::test(&id, config, store, json).await,
            PreparedAccountAction::Explain(explain) => explain.run(config, store, json).await,
            PreparedAccountAction::Rotate(id, secrets) => {
                match manage::rotate(config, store, &AuditContext::command(), &id, secrets).await {
                    Err(ManageError::Settings(problems)) => Err(add::unfit(&problems)),
                    rotated => changed(rotated, "rotated", json),
                }
            }
            PreparedAccountAction::Delete(id) => {
                changed(manage::delete(config, store, &AuditContext::command(), &id).await, "deleted", json)
            }
        })
    }
}

/// An action with all of its input.
enum PreparedAccountAction {
    List,
    Add(add::PendingAccount),
    Change(String, AccountChange, &'static str),
    Rotate(String, BTreeMap<String, String>),
    Delete(String),
    Test(String),
    Explain(AccountExplainCommand),
}

/// Returns the secrets that were given; there must be at least one.
fn given(secrets: &AccountSecretArgs) -> Result<BTreeMap<String, String>, CommandFailure> {
    let secrets = secrets.fetch()?;
    if secrets.is_empty() {
        return Err(CommandFailure::Usage("say where a secret is to be found, such as --api-key-env NAME".to_owned()));
    }
    Ok(secrets)
}

fn list(accounts: &[ManagedAccount], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&accounts.iter().map(described).collect::<Vec<_>>())?);
    }
    let rows: Vec<_> = accounts.iter().map(row).collect();
    Ok(print(&table(HEADINGS, &rows))?)
}

fn changed(change: Result<ManagedAccount, ManageError>, done: &str, json: bool) -> Result<(), CommandFailure> {
    let known = change?;
    if json {
        print_json(&described(&known))?;
    } else {
        print(&format!("{} {done}\n", known.name))?;
    }
    Ok(())
}
