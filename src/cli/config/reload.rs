//! The command `imagate config reload`.

use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::cli::failure::CommandFailure;
use crate::cli::installation::block_on;
use crate::cli::output::print;
use crate::gateway::config::Config;
use crate::gateway::store::ServingStatus;

/// The time that the gateway has to report the result (our choice).
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two reads of the gateway's status (our choice).
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Tells the gateway of this installation, with SIGHUP, to read its settings again, and waits for the result. `config`
/// holds the new settings as this command has read them; only its data folder is used, to find the gateway.
pub(super) fn reload(config: &Config) -> Result<(), CommandFailure> {
    let data_dir = &config.data_dir;
    let Some(status_before) = ServingStatus::find(data_dir)? else {
        let state = if ServingStatus::is_served(data_dir)? {
            "the gateway is still starting, or stopping, with"
        } else {
            "no gateway is running with"
        };
        return Err(anyhow!("{state} the data folder {}", data_dir.display()).into());
    };
    if status_before.is_in_other_namespace() {
        let reason = "the gateway runs in another process namespace: run the command in the container of the gateway";
        return Err(anyhow!(reason).into());
    }
    send_sighup(status_before.process_id)?;
    let started_at = Instant::now();
    while started_at.elapsed() < RELOAD_TIMEOUT {
        // A status cannot be read while the gateway is writing it, nor after the gateway has ended. In both cases the
        // loop waits on.
        if let Some(status) = ServingStatus::find(data_dir)?.filter(|status| status.is_newer_than(&status_before)) {
            if status.reloads == 0 {
                print(&format!("the gateway has started again (process {}) with its settings\n", status.process_id))?;
                return Ok(());
            }
            let changes = status.last_reload.map_err(|problems| {
                anyhow!("the gateway has rejected the new settings and keeps the former ones: {problems}")
            })?;
            print(&format!("the gateway (process {}) has reloaded its settings: {changes}\n", status.process_id))?;
            return Ok(());
        }
        block_on(async {
            tokio::time::sleep(POLL_INTERVAL).await;
            Ok(())
        })?;
    }
    Err(anyhow!("the gateway (process {}) has not reported a result; see its log", status_before.process_id).into())
}

#[cfg(unix)]
fn send_sighup(process: i32) -> Result<(), CommandFailure> {
    use rustix::process::{Pid, Signal, kill_process};
    let process = Pid::from_raw(process).ok_or_else(|| anyhow!("the lock file names no process"))?;
    kill_process(process, Signal::HUP).map_err(|error| anyhow!("the gateway cannot be signalled: {error}"))?;
    Ok(())
}

#[cfg(not(unix))]
fn send_sighup(_: i32) -> Result<(), CommandFailure> {
    Err(anyhow!("this system has no SIGHUP; restart the gateway instead").into())
}
