//! The command `imagate account` on a gateway that is managed through its admin API.

use anyhow::anyhow;
use serde_json::{Map, Value, json};

use super::PreparedAccountAction;
use super::view::{AccountView, print_list};
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_json};
use crate::cli::remote::{RemoteGateway, only_local, view};
use crate::client::admin::Error;
use crate::client::admin::types::{self, Account, AccountTestResult, DisabledReason};
use crate::gateway::store::AccountChange;

pub(super) async fn run(
    gateway: &RemoteGateway,
    action: PreparedAccountAction,
    json: bool,
) -> Result<(), CommandFailure> {
    let admin = &gateway.admin;
    match action {
        PreparedAccountAction::List => {
            let accounts = admin.list_accounts().send().await?;
            print_list(&accounts.data.iter().map(account_view).collect::<Result<Vec<_>, _>>()?, json)
        }
        PreparedAccountAction::Add(pending) => {
            let new: types::NewAccount = serde_json::from_value(pending.into_members().into())?;
            account_view(&admin.create_account().body(new).send().await?)?.print_change("added", json)
        }
        PreparedAccountAction::Change(name, change, outcome) => {
            let change = match change {
                AccountChange::Disable { reason } => {
                    let reason = DisabledReason::try_from(reason).map_err(Error::from)?;
                    types::AccountChange::builder().enabled(Some(false)).reason(Some(reason))
                }
                _ => types::AccountChange::builder().enabled(Some(true)),
            };
            let account = admin.update_account().name(name).body(change).send().await?;
            account_view(&account)?.print_change(outcome, json)
        }
        PreparedAccountAction::Rotate(name, secrets) => {
            let members: Map<String, Value> = secrets.into_iter().map(|(name, secret)| (name, secret.into())).collect();
            let change: types::AccountChange = serde_json::from_value(members.into())?;
            let account = admin.update_account().name(name).body(change).send().await?;
            account_view(&account)?.print_change("rotated", json)
        }
        PreparedAccountAction::Delete(name) => {
            let account = account_view(&admin.retrieve_account().name(name).send().await?)?;
            admin.delete_account().name(&account.name).send().await?;
            account.print_change("deleted", json)
        }
        PreparedAccountAction::Test(name) => test(&admin.test_account().name(name).send().await?, json),
        PreparedAccountAction::Explain(_) => {
            Err(only_local("account explain", "the admin API does not say which account would be used"))
        }
    }
}

/// The admin API calls a cooldown "resting".
fn account_view(account: &Account) -> Result<AccountView, CommandFailure> {
    let mut account: AccountView = view(account)?;
    if account.state == "resting" {
        account.state = "cooling".to_owned();
    }
    Ok(account)
}

/// Prints the result of a test. Fails if the upstream does not accept the credentials.
fn test(result: &types::AccountTest, json: bool) -> Result<(), CommandFailure> {
    let types::AccountTest { name, status, latency_ms, message, .. } = result;
    let is_accepted = matches!(result.result.known(), Some(AccountTestResult::Accepted | AccountTestResult::Simulator));
    if json {
        print_json(&json!({ "account": name, "ok": is_accepted, "status": status, "latency_ms": latency_ms }))?;
    }
    match is_accepted {
        true if json => Ok(()),
        true => Ok(print(&format!("{name}: {message}\n"))?),
        false => Err(anyhow!("{name}: {message}").into()),
    }
}
