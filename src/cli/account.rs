//! The command `imagate account list|add|disable|enable|rotate|delete|test|explain`.

mod add;
mod explain;
mod secrets;
mod test;

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::anyhow;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::confirmation::DeletionConfirmation;
use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway};
use super::output::{Column, cell, moment, print, print_json, table};
use crate::client::admin::Error;
use crate::client::admin::types::{self, Account, AccountChange, DisabledReason};
use add::AccountAddCommand;
use explain::AccountExplainCommand;
use secrets::AccountSecretArgs;

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
        let gateway = gateway.find()?;
        if let AccountAction::Delete { id, confirmation } = &action {
            confirmation.ask(&format!("the account {id}"))?;
        }
        // Secrets are read before the store is opened, because the user may have to type them.
        let action = match action {
            AccountAction::Add(add) => PreparedAccountAction::Add(add.prepare()?),
            AccountAction::List => PreparedAccountAction::List,
            AccountAction::Disable { id, reason } => {
                let reason = DisabledReason::try_from(reason).map_err(Error::from)?;
                let change = AccountChange::builder().enabled(Some(false)).reason(Some(reason));
                PreparedAccountAction::Change(id, Box::new(change), "disabled")
            }
            AccountAction::Enable { id } => {
                PreparedAccountAction::Change(id, Box::new(AccountChange::builder().enabled(Some(true))), "enabled")
            }
            AccountAction::Rotate { id, secrets } => PreparedAccountAction::Rotate(id, read_given_secrets(&secrets)?),
            AccountAction::Delete { id, .. } => PreparedAccountAction::Delete(id),
            AccountAction::Test { id } => PreparedAccountAction::Test(id),
            AccountAction::Explain(explain) => PreparedAccountAction::Explain(explain),
        };
        gateway.run(async |gateway| action.run(gateway, json).await)
    }
}

/// An action whose secrets, if it needs any, have been read.
enum PreparedAccountAction {
    List,
    Add(add::PendingAccount),
    Change(String, Box<types::builder::AccountChange>, &'static str),
    Rotate(String, BTreeMap<String, String>),
    Delete(String),
    Test(String),
    Explain(AccountExplainCommand),
}

// === impl PreparedAccountAction ===

impl PreparedAccountAction {
    async fn run(self, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
        let admin = &gateway.admin;
        match self {
            Self::List => print_list(&admin.list_accounts().send().await?.data, json),
            Self::Add(pending) => add::add(pending, gateway, json).await,
            Self::Change(name, change, outcome) => {
                print_change(&admin.update_account().name(name).body(*change).send().await?, outcome, json)
            }
            Self::Rotate(name, secrets) => {
                let secrets: Map<String, Value> =
                    secrets.into_iter().map(|(name, secret)| (name, secret.into())).collect();
                let change: AccountChange = serde_json::from_value(secrets.into())?;
                let rotated = admin.update_account().name(&name).body(change).send().await;
                print_change(&rotated.map_err(|error| rotation_failure(error, &name))?, "rotated", json)
            }
            Self::Delete(name) => {
                let account = admin.retrieve_account().name(name).send().await?;
                admin.delete_account().name(&account.name).send().await?;
                print_change(&account, "deleted", json)
            }
            Self::Test(name) => test::test(&name, gateway, json).await,
            Self::Explain(explain) => explain.run(gateway, json).await,
        }
    }
}

/// Prints an account after a change.
fn print_change(account: &Account, outcome: &str, json: bool) -> Result<(), CommandFailure> {
    Ok(if json { print_json(account) } else { print(&format!("{} {outcome}\n", account.name)) }?)
}

fn print_list(accounts: &[Account], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&accounts)?);
    }
    let [groups, base_url] = ["GROUPS", "BASE URL"].map(Column::name);
    let [name, kind, source, tier, priority] = ["NAME", "KIND", "SOURCE", "TIER", "PRIORITY"].map(Column::from);
    let [concurrency, large] = ["CONCURRENCY", "LARGE"].map(Column::from);
    let state = Column::state("STATE");
    let columns = [name, kind, source, tier, groups, priority, concurrency, large, base_url, state];
    Ok(print(&table(columns, &accounts.iter().map(table_row).collect::<Vec<_>>()))?)
}

fn table_row(account: &Account) -> [String; 10] {
    let is_usable = account.problem.is_none();
    let reason = if is_usable { &account.disabled_reason } else { &account.problem };
    [
        account.name.clone(),
        account.kind.to_string(),
        account.source.to_string(),
        // The tier of the row is not shown for an account that cannot be used.
        cell(is_usable.then_some(&account.tier)),
        cell(is_usable.then(|| account.groups.join(","))),
        cell(account.priority),
        cell(account.concurrency),
        cell(account.large_concurrency),
        cell(account.base_url.as_ref()),
        state_text(&account.state, account.cooling_until, account.cooling_cause.as_ref().or(reason.as_ref())),
    ]
}

/// Returns the word of a state with its end and its cause.
fn state_text(state: &impl Display, until: Option<DateTime<Utc>>, cause: Option<&String>) -> String {
    let until = until.map(|until| format!(" until {}", moment(until))).unwrap_or_default();
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{state}{until}{cause}")
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

/// Returns the failure of new secrets. Those that do not fit the account are wrong arguments.
fn rotation_failure(error: Error, name: &str) -> CommandFailure {
    match (error.status(), error.code()) {
        (Some(400), _) => CommandFailure::Input(vec![error.message().to_owned()]),
        (_, Some("account_read_only")) => CommandFailure::Failed(anyhow!(
            "the account {name} is defined in the settings file and can only be changed there"
        )),
        _ => error.into(),
    }
}
