//! The command `imagate limits`.

use clap::Args;

use super::failure::CommandFailure;
use super::managed_gateway::GatewayArgs;
use super::output::{Column, cell, print, print_json, table};
use crate::client::admin::types::{LimitSubject, LimitUsage, SubjectLimits};
use crate::gateway::money::Usd;

/// Arguments of `limits`.
#[derive(Debug, Args)]
pub(super) struct LimitsCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Only the limits of the key or the user with this id, or of the group with this name.
    #[arg(value_name = "ID")]
    subject: Option<String>,
}

// === impl LimitsCommand ===

impl LimitsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { gateway, json, subject } = self;
        gateway.find()?.run(async |gateway| {
            let mut request = gateway.admin.list_limits();
            if let Some(subject) = subject {
                request = request.subject(subject);
            }
            let limits = request.send().await?.data;
            if json { Ok(print_json(&limits)?) } else { print_table(&limits) }
        })
    }
}

fn print_table(limits: &[SubjectLimits]) -> Result<(), CommandFailure> {
    let rows = limits.iter().flat_map(|of| of.limits.iter().map(|limit| table_row(&of.subject, limit)));
    let [of, limit, used, at_most, resets] = ["OF", "LIMIT", "USED", "AT MOST", "RESETS (UTC)"].map(Column::from);
    let columns = [of, Column::name("NAME"), limit, used, at_most, Column::state("STATE"), resets];
    Ok(print(&table(columns, &rows.collect::<Vec<_>>()))?)
}

fn table_row(subject: &LimitSubject, limit: &LimitUsage) -> [String; 7] {
    // Only a budget, which is money, has a part that is reserved.
    let [used, at_most] = match limit.reserved.and_then(Usd::from_dollars) {
        Some(reserved) => [dollars(limit.used).plus(reserved), dollars(limit.limit)].map(|amount| amount.to_string()),
        None => [limit.used, limit.limit].map(|count| count.to_string()),
    };
    let resets = limit.resets_at.map(|at| at.format("%Y-%m-%d %H:%M"));
    let name = subject.name.clone().unwrap_or_default();
    [subject.kind.clone(), name, limit.name.clone(), used, at_most, limit.state.to_string(), cell(resets)]
}

fn dollars(amount: f64) -> Usd {
    Usd::from_dollars(amount).unwrap_or_default()
}
