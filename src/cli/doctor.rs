//! The command `imagate doctor`.

use clap::Args;
use serde_json::{Value, json};

use super::failure::CommandFailure;
use super::installation::{InstallationArgs, block_on};
use super::output::{escape_controls, print, print_json};
use crate::gateway::config::{Config, SystemEnvironment};
use crate::gateway::doctor::{self, CheckResult, CheckVerdict};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Ask the upstream of each account for its list of models, which costs nothing. A token that is fetched for that is
    /// stored.
    #[arg(long)]
    online: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl DoctorCommand ===

impl DoctorCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, online, json } = self;
        let (mut results, config) = doctor::check_settings(&installation.overrides(None), &SystemEnvironment);
        if let Some(config) = &config {
            results.extend(block_on(async { Ok(doctor::check(config).await) })?);
            if online {
                results.extend(check_online(config, &results)?);
            }
        }
        let has_problem = results.iter().any(|result| result.verdict == CheckVerdict::Problem);
        if json {
            let checks: Vec<Value> = results.iter().map(to_json).collect();
            print_json(&json!({ "ok": !has_problem, "version": env!("CARGO_PKG_VERSION"), "checks": checks }))?;
        } else {
            print(&results.iter().map(line).collect::<String>())?;
        }
        if has_problem { Err(CommandFailure::HasFindings) } else { Ok(()) }
    }
}

/// Asks the upstreams, unless that would change the schema of the store or create it.
fn check_online(config: &Config, results: &[CheckResult]) -> Result<Vec<CheckResult>, CommandFailure> {
    let mut store = results.iter().filter(|result| ["store", "master key"].contains(&result.check));
    if store.all(|result| result.verdict == CheckVerdict::Ok) {
        return block_on(async { Ok(doctor::check_online(config).await) });
    }
    Ok(vec![CheckResult::upstreams_not_asked()])
}

fn to_json(result: &CheckResult) -> Value {
    let CheckResult { check, verdict, message, advice } = result;
    json!({ "check": check, "verdict": verdict.as_str(), "message": message, "advice": advice })
}

/// Formats a result as one line.
fn line(result: &CheckResult) -> String {
    let CheckResult { check, verdict, message, advice } = result;
    let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
    let text = format!("{message}{advice}").replace('\n', " ");
    format!("{:7}  {check:13}  {}\n", verdict.as_str(), escape_controls(&text))
}
