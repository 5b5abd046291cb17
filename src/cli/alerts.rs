//! The command `imagate alerts list|test`.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::failure::CommandFailure;
use super::installation::block_on;
use super::managed_gateway::{GatewayArgs, ManagedGateway, view};
use super::output::{Column, print, print_json, table};
use crate::client::admin::types::PageLimit;
use crate::gateway::alerts;
use crate::gateway::store::Timestamp;

/// The number of alerts that are listed (our choice).
const LISTED: i64 = 100;

/// Arguments of `alerts`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct AlertsCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
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

/// An alert, as it is printed.
#[derive(Serialize, Deserialize)]
struct AlertView {
    id: String,
    #[serde(rename = "type")]
    event: String,
    created_at: Timestamp,
    data: Value,
    deliveries: Vec<DeliveryView>,
}

/// The delivery of an alert by one channel.
#[derive(Serialize, Deserialize)]
struct DeliveryView {
    channel: String,
    state: String,
    attempts: u64,
    at: Timestamp,
    last_error: Option<String>,
}

// === impl AlertsCommand ===

impl AlertsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        match action {
            AlertsAction::List => gateway.find()?.run(async |gateway| list(&read(gateway).await?, json)),
            AlertsAction::Test => {
                let installation = gateway.only_local("alerts test", "the channels are settings of that machine")?;
                let config = installation.load(None)?;
                block_on(async { report(&alerts::send_test(&config.alerts).await?, json) })
            }
        }
    }
}

async fn read(gateway: &ManagedGateway) -> Result<Vec<AlertView>, CommandFailure> {
    let alerts = gateway.admin.list_alerts().limit(PageLimit::new(LISTED)?).send().await?;
    alerts.data.iter().map(view).collect()
}

fn list(alerts: &[AlertView], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&alerts)?);
    }
    let rows: Vec<_> = alerts.iter().map(table_row).collect();
    let columns = [Column::moment("TIME"), "EVENT".into(), Column::name("SUBJECT"), "DELIVERY".into()];
    Ok(print(&table(columns, &rows))?)
}

fn table_row(alert: &AlertView) -> [String; 4] {
    let word = |pointer: &str| alert.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let deliveries: Vec<_> =
        alert.deliveries.iter().map(|delivery| format!("{} {}", delivery.channel, delivery.state)).collect();
    [
        alert.created_at.to_string(),
        alert.event.clone(),
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
