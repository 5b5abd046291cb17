//! The command `imagate account test`. The call is made by the process that manages the accounts: a gateway at an address
//! makes it itself, with the token that it has, and for the installation on this machine it is made here.

use anyhow::anyhow;
use serde_json::json;

use super::explain::availability_text;
use crate::cli::failure::CommandFailure;
use crate::cli::installation::settings_failure;
use crate::cli::managed_gateway::{LocalInstallation, ManagedGateway};
use crate::cli::output::{print, print_json};
use crate::client::admin::types::{AccountTest, AccountTestResult};
use crate::gateway::manage::{self, ManageError, ProbeOutcome};

pub(super) async fn test(name: &str, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
    match &gateway.local {
        Some(local) => test_from_here(name, local, json).await,
        None => print_test(&gateway.admin.test_account().name(name).send().await?, json),
    }
}

/// Prints the result of a test by the gateway. Fails if the upstream does not accept the credentials.
fn print_test(result: &AccountTest, json: bool) -> Result<(), CommandFailure> {
    let AccountTest { name, status, latency_ms, message, .. } = result;
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

/// Probes the account and prints the result. Fails if the account cannot be used now, if its upstream gives no answer,
/// or if the status of the answer is not 2xx.
async fn test_from_here(id: &str, local: &LocalInstallation, json: bool) -> Result<(), CommandFailure> {
    let probed = match manage::probe(&local.config, &local.store, id).await {
        Err(ManageError::Unavailable(name, Some(state))) => {
            let advice = format!("`imagate account enable {name}` ends this state");
            return Err(CommandFailure::Advised(
                anyhow!("the account {name} is {}", availability_text(&state)),
                advice,
            ));
        }
        Err(ManageError::InvalidSettings(problems)) => return Err(settings_failure(problems)),
        probed => probed?,
    };
    let ProbeOutcome { name, status, latency } = &probed;
    let latency = latency.as_millis();
    if json {
        // The result is printed even if the upstream rejects the probe, because scripts read it.
        print_json(&json!({ "account": name, "ok": probed.is_accepted(), "status": status, "latency_ms": latency }))?;
    }
    if json && probed.is_accepted() {
        return Ok(());
    }
    match status {
        None => print(&format!("{name} is the simulator, which has no upstream\n"))?,
        Some(status) if probed.is_accepted() => {
            print(&format!("{name}: the upstream accepts its credentials (status {status} after {latency} ms)\n"))?;
        }
        Some(status) => {
            return Err(CommandFailure::Failed(anyhow!(
                "{name}: {} (status {status} after {latency} ms)",
                status_meaning(*status)
            )));
        }
    }
    Ok(())
}

/// Returns the reason that a status outside 2xx gives for the failure of the probe.
const fn status_meaning(status: u16) -> &'static str {
    match status {
        401 | 403 => "the upstream does not accept its credentials",
        404 => "the upstream has no list of models at this base_url",
        429 => "the upstream has received too many requests from this account",
        300..=399 => "the upstream redirects the request; redirects are never followed",
        500.. => "the upstream has an internal error",
        _ => "the upstream rejects the request",
    }
}
