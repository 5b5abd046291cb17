//! The command `imagate alerts list|test`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::failure::CommandFailure;
use super::installation::{InstallationArgs, block_on};
use super::output::{print, print_json, table};
use crate::gateway::alerts;
use crate::gateway::store::{AlertRow, DeliveryRow};

/// The number of alerts that are listed (our choice).
const LISTED: u32 = 100;

/// Arguments of `alerts`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct AlertsCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: AlertsAction,
}

#[derive(Debug, Subcommand)]
enum AlertsAction {
    /// List the newest alerts and their deliveries, newest first.
    List,
    /// Send a test by each channel of the settings, and print the results. Nothing is stored.
    Test,
}

// === impl AlertsCommand ===

impl AlertsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action } = self;
        match action {
            AlertsAction::List => {
                installation.with_store(async |_, store| list(&store.list_alerts(LISTED).await?, json))
            }
            AlertsAction::Test => {
                let config = installation.load(None)?;
                block_on(async { report(&alerts::send_test(&config.alerts).await?, json) })
            }
        }
    }
}

fn list(alerts: &[AlertRow], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&alerts.iter().map(to_json).collect::<Vec<_>>())?);
    }
    let rows: Vec<_> = alerts.iter().map(table_row).collect();
    Ok(print(&table(["TIME", "EVENT", "SUBJECT", "DELIVERY"], &rows))?)
}

fn details(row: &AlertRow) -> Value {
    serde_json::from_str(&row.alert.details).unwrap_or_default()
}

fn to_json(row: &AlertRow) -> Value {
    let delivery = |delivery: &DeliveryRow| {
        json!({
            "channel": delivery.channel, "state": delivery.state, "attempts": delivery.attempts,
            "at": delivery.due_at, "last_error": delivery.last_error,
        })
    };
    json!({
        "id": row.alert.id, "type": row.alert.event, "created_at": row.alert.created_at, "data": details(row),
        "deliveries": row.deliveries.iter().map(delivery).collect::<Vec<_>>(),
    })
}

fn table_row(row: &AlertRow) -> [String; 4] {
    let details = details(row);
    let word = |pointer: &str| details.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let deliveries: Vec<_> =
        row.deliveries.iter().map(|delivery| format!("{} {}", delivery.channel, delivery.state)).collect();
    [
        row.alert.created_at.to_string(),
        row.alert.event.clone(),
        format!("{} {}", word("/subject/kind"), word("/subject/name")),
        if deliveries.is_empty() { "-".to_owned() } else { deliveries.join(", ") },
    ]
}

fn report(results: &[(&'static str, Option<String>)], json: bool) -> Result<(), CommandFailure> {
    if results.is_empty() {
        let message = "the settings have no channel for alerts: set `[alerts.webhook]` or `[alerts.email]`";
        return Err(CommandFailure::Usage(message.to_owned()));
    }
    if json {
        let result = |(channel, error): &(_, Option<String>)| json!({ "channel": channel, "delivered": error.is_none(), "error": error });
        print_json(&results.iter().map(result).collect::<Vec<Value>>())?;
    } else {
        let line = |(channel, error): &(&str, Option<String>)| {
            let result =
                error.as_ref().map_or_else(|| "delivered".to_owned(), |error| format!("not delivered: {error}"));
            format!("{channel}: {result}\n")
        };
        print(&results.iter().map(line).collect::<String>())?;
    }
    if results.iter().all(|(_, error)| error.is_none()) { Ok(()) } else { Err(CommandFailure::HasFindings) }
}
