//! The command `imagate account test`. The call is made by the process that manages the accounts: a gateway at an address
//! makes it itself, with the token that it has, and for the installation on this machine it is made here.

use anyhow::anyhow;

use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::{ManagedGateway, to_clause};
use crate::cli::output::{print, print_json};
use crate::client::admin::types::{AccountTest, AccountTestResult};

/// Prints the result of a test. Fails if the upstream does not accept the credentials.
pub(super) async fn test(name: &str, gateway: &ManagedGateway, json: bool) -> Result<(), CommandFailure> {
    gateway.need_secrets(|config| config.absent_secrets_of(name))?;
    let test = gateway.admin.test_account().name(name).send().await?;
    let is_accepted = matches!(test.result.known(), Some(AccountTestResult::Accepted | AccountTestResult::Simulator));
    if json {
        // The result is printed even if the upstream rejects the test, because scripts read it.
        print_json(&test)?;
    }
    match is_accepted {
        true if json => Ok(()),
        true => Ok(print(&format!("{}\n", text(&test)))?),
        false => Err(anyhow!(text(&test)).into()),
    }
}

fn text(test: &AccountTest) -> String {
    let call = match (test.status, test.latency_ms) {
        (Some(status), Some(latency)) => format!(" (status {status} after {latency} ms)"),
        _ => String::new(),
    };
    format!("{}: {}{call}", test.name, to_clause(&test.message, None))
}
