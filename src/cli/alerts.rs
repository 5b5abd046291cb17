//! The command `imagate alerts list|test`.

use clap::{Args, Subcommand};

use super::failure::CommandFailure;
use super::managed_gateway::GatewayArgs;
use super::output::{Column, cell, moment, print, print_json, table};
use crate::client::admin::types::{Alert, AlertTest, LimitSubject, PageLimit};

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

// === impl AlertsCommand ===

impl AlertsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, action } = self;
        gateway.find()?.run(async |gateway| match action {
            AlertsAction::List => {
                let alerts = gateway.admin.list_alerts().limit(PageLimit::new(LISTED)?).send().await?;
                list(&alerts.data, json)
            }
            AlertsAction::Test => {
                gateway.need_secrets(|config| config.absent_secrets_below("alerts."))?;
                report(&gateway.admin.test_alerts().send().await?.data, json)
            }
        })
    }
}

fn list(alerts: &[Alert], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&alerts)?);
    }
    let rows: Vec<_> = alerts.iter().map(table_row).collect();
    let columns = [Column::moment("TIME"), "EVENT".into(), Column::name("SUBJECT"), "DELIVERY".into()];
    Ok(print(&table(columns, &rows))?)
}

fn table_row(alert: &Alert) -> [String; 4] {
    let subject = alert.data.subject.as_ref();
    let name = |subject: &LimitSubject| format!("{} {}", subject.kind, subject.name.as_deref().unwrap_or_default());
    let deliveries = alert.deliveries.iter().map(|delivery| format!("{} {}", delivery.channel, delivery.state));
    let deliveries: Vec<_> = deliveries.collect();
    [
        moment(alert.created_at),
        alert.type_.clone(),
        subject.map(name).unwrap_or_default(),
        cell((!deliveries.is_empty()).then(|| deliveries.join(", "))),
    ]
}

fn report(tests: &[AlertTest], json: bool) -> Result<(), CommandFailure> {
    if tests.is_empty() {
        let message = "the settings have no channel for alerts: set `[alerts.webhook]` or `[alerts.email]`";
        return Err(CommandFailure::Usage(message.to_owned()));
    }
    if json {
        print_json(&tests)?;
    } else {
        let line = |AlertTest { channel, error, .. }: &AlertTest| match error {
            Some(error) => format!("{channel}: not delivered: {error}\n"),
            None => format!("{channel}: delivered\n"),
        };
        print(&tests.iter().map(line).collect::<String>())?;
    }
    if tests.iter().all(|test| test.delivered) { Ok(()) } else { Err(CommandFailure::HasFindings) }
}
