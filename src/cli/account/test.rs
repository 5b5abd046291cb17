//! The command `imagate account test`.

use std::sync::Arc;

use serde_json::json;

use super::explain::availability_text;
use crate::cli::failure::CommandFailure;
use crate::cli::installation::settings_failure;
use crate::cli::output::{print, print_json};
use crate::gateway::config::Config;
use crate::gateway::manage::{self, ManageError, ProbeOutcome};
use crate::gateway::store::Store;

/// Probes the account and prints the result. Fails if the account cannot be used now, if its upstream gives no answer,
/// or if the status of the answer is not 2xx.
pub(super) async fn test(id: &str, config: &Config, store: &Arc<dyn Store>, json: bool) -> Result<(), CommandFailure> {
    let probed = match manage::probe(config, store, id).await {
        Err(ManageError::Unavailable(name, Some(state))) => {
            let advice = format!("`imagate account enable {name}` ends this state");
            return Err(CommandFailure::Advised(
                anyhow::anyhow!("the account {name} is {}", availability_text(&state)),
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
    match status {
        _ if json && probed.is_accepted() => {}
        None => print(&format!("{name} is the simulator, which has no upstream\n"))?,
        Some(status) if probed.is_accepted() => {
            print(&format!("{name}: the upstream accepts its credentials (status {status} after {latency} ms)\n"))?;
        }
        Some(status) => {
            return Err(CommandFailure::Failed(anyhow::anyhow!(
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
