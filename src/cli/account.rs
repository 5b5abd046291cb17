//! The command `imagate account list|add|disable|enable|rotate|delete|test|explain`.

mod add;
mod explain;
mod remote;
mod secrets;
mod test;
mod view;

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::remote::GatewayArgs;
use crate::gateway::manage::{self, ManageError, ManagedAccount};
use crate::gateway::store::{AccountChange, AuditContext};
use add::AccountAddCommand;
use explain::AccountExplainCommand;
use secrets::AccountSecretArgs;
use view::{AccountView, print_list};

/// The recorded reason if `account disable` is called without one.
const NO_REASON: &str = "disabled by command";

/// Arguments of `account`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct AccountCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: AccountAction,
}

#[derive(Debug, Subcommand)]
enum AccountAction {
    /// List the accounts of the settings file and of the store, without their credentials.
    List,
    /// Add an account to the store. Secrets are read from the environment or a file, never from arguments, which other
    /// users of the machine can see.
    Add(Box<AccountAddCommand>),
    /// Disable an account until it is enabled again.
    Disable {
        /// The name or id of the account.
        id: String,
        /// The reason, which is shown with the account.
        #[arg(long, value_name = "TEXT", default_value = NO_REASON)]
        reason: String,
    },
    /// Enable a disabled account, or end its cooldown.
    Enable {
        /// The name or id of the account.
        id: String,
    },
    /// Replace secrets of an account in the store. Secrets that are not given stay as they are.
    Rotate {
        /// The name or id of the account.
        id: String,
        #[command(flatten)]
        secrets: AccountSecretArgs,
    },
    /// Delete an account and its credentials from the store.
    Delete {
        /// The name or id of the account.
        id: String,
        #[command(flatten)]
        confirmation: DeletionConfirmation,
    },
    /// Check the credentials of an account by listing the models of its upstream. Costs nothing.
    Test {
        /// The name or id of the account.
        id: String,
    },
    /// Show which account would make an image now, and why the others would not.
    Explain(AccountExplainCommand),
}

// === impl AccountCommand ===

impl AccountCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        // The question comes after the name of another gateway.
        let remote = gateway.remote()?;
        if let AccountAction::Delete { id, confirmation } = &action {
            confirmation.ask(&format!("the account {id}"))?;
        }
        // Secrets are read before the store is opened, because the user may have to type them.
        let action = match action {
            AccountAction::Add(add) => PreparedAccountAction::Add(add.prepare()?),
            AccountAction::List => PreparedAccountAction::List,
            AccountAction::Disable { id, reason } => {
                PreparedAccountAction::Change(id, AccountChange::Disable { reason }, "disabled")
            }
            AccountAction::Enable { id } => PreparedAccountAction::Change(id, AccountChange::Enable, "enabled"),
            AccountAction::Rotate { id, secrets } => PreparedAccountAction::Rotate(id, read_given_secrets(&secrets)?),
            AccountAction::Delete { id, .. } => PreparedAccountAction::Delete(id),
            AccountAction::Test { id } => PreparedAccountAction::Test(id),
            AccountAction::Explain(explain) => PreparedAccountAction::Explain(explain),
        };
        if let Some(gateway) = remote {
            return gateway.run(async |gateway| remote::run(gateway, action, json).await);
        }
        gateway.installation.with_store(async |config, store| match action {
            PreparedAccountAction::List => {
                let accounts = manage::list(config, &**store).await?;
                print_list(&accounts.iter().map(AccountView::from).collect::<Vec<_>>(), json)
            }
            PreparedAccountAction::Add(pending_account) => add::add(pending_account, config, store, json).await,
            PreparedAccountAction::Change(id, change, outcome) => print_change(
                manage::change(config, &**store, &AuditContext::command(), &id, change).await,
                outcome,
                json,
            ),
            PreparedAccountAction::Test(id) => test::test(&id, config, store, json).await,
            PreparedAccountAction::Explain(explain) => explain.run(config, store, json).await,
            PreparedAccountAction::Rotate(id, secrets) => {
                match manage::rotate(config, &**store, &AuditContext::command(), &id, secrets).await {
                    Err(ManageError::InvalidSettings(problems)) => Err(add::invalid_settings_failure(&problems)),
                    rotated => print_change(rotated, "rotated", json),
                }
            }
            PreparedAccountAction::Delete(id) => {
                print_change(manage::delete(config, &**store, &AuditContext::command(), &id).await, "deleted", json)
            }
        })
    }
}

/// An action whose secrets, if it needs any, have been read.
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
fn read_given_secrets(secrets: &AccountSecretArgs) -> Result<BTreeMap<String, String>, CommandFailure> {
    let secrets = secrets.read_secrets()?;
    if secrets.is_empty() {
        return Err(CommandFailure::Usage(
            "give the source of at least one secret, such as --api-key-env NAME".to_owned(),
        ));
    }
    Ok(secrets)
}

fn print_change(change: Result<ManagedAccount, ManageError>, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    AccountView::from(&change?).print_change(outcome, json)
}
