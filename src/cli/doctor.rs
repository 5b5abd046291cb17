//! The command `imagate doctor`.

mod service;

use clap::Args;
use serde_json::{Value, json};

use super::connection::ConnectionArgs;
use super::failure::CommandFailure;
use super::installation::{InstallationArgs, block_on};
use super::output::{escape_controls, has_color, paint_state, print, print_json, wrap};
use crate::gateway::config::{Config, SystemEnvironment};
use crate::gateway::doctor::{self, CheckResult, CheckVerdict};

/// The width of the column of verdicts.
const VERDICT_WIDTH: usize = 7;
/// The width of the column of checks.
const CHECK_WIDTH: usize = 13;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Ask the upstream of each account for its list of models, which costs nothing. A token that is fetched for that is
    /// stored.
    #[arg(long)]
    online: bool,
    /// Check the service that `generate` and `edit` use, instead of this installation: its address, the key and the
    /// models. `--base-url` and `--api-key` do so, too. Costs nothing.
    #[arg(long, conflicts_with = "online")]
    service: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

// === impl DoctorCommand ===

impl DoctorCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, online, service, json, connection } = self;
        let results = if service || connection.is_given() {
            service::check(&connection)?
        } else {
            check_installation(installation, online)?
        };
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

fn check_installation(installation: InstallationArgs, online: bool) -> Result<Vec<CheckResult>, CommandFailure> {
    let (mut results, config) = doctor::check_settings(&installation.overrides(), &SystemEnvironment);
    if let Some(config) = &config {
        results.extend(block_on(async { Ok(doctor::check(config).await) })?);
        if online {
            results.extend(check_online(config, &results)?);
        }
    }
    Ok(results)
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

/// Formats a result as one line, or on a terminal as several lines of its width.
fn line(result: &CheckResult) -> String {
    let CheckResult { check, verdict, message, advice } = result;
    let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
    let text = escape_controls(&format!("{message}{advice}").replace('\n', " "));
    let mut line = String::new();
    for (word, width) in [(verdict.as_str(), VERDICT_WIDTH), (check, CHECK_WIDTH)] {
        line.push_str(&format!("{word:width$}  "));
    }
    let text = wrap(&text, line.len());
    let verdict = verdict.as_str();
    let shown = if has_color() { paint_state(verdict) } else { verdict.to_owned() };
    format!("{shown}{}{text}\n", &line[verdict.len()..])
}
