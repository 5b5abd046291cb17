//! `imagate usage`

mod csv;
mod since;

use clap::Args;

use super::failure::Failure;
use super::installation::Installation;
use super::output::{cell, print, remark, table};
use crate::gateway::ledger::{Record, RecordFilter};
use crate::gateway::store::Store as _;
use since::Since;

/// More lines than this are for a program.
const MOST_ROWS: u32 = 100;

/// Arguments of `usage`.
#[derive(Debug, Args)]
pub(super) struct Usage {
    #[command(flatten)]
    installation: Installation,
    /// Only what began then or later: a date, a moment such as 2026-11-21T03:00:00Z, or a time ago such as 24h or 7d.
    #[arg(long, value_name = "T")]
    since: Option<Since>,
    /// Only what this key asked for.
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Print one JSON object for each line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
}

// === impl Usage ===

impl Usage {
    pub(super) fn run(self) -> Result<(), Failure> {
        let Self { installation, since, key, json, csv } = self;
        let is_table = !json && !csv;
        let records = installation.with_store(async |_, store| {
            let limit = is_table.then_some(MOST_ROWS);
            let filter = RecordFilter { since: since.map(Since::moment), key, limit };
            Ok(store.list_records(&filter).await?)
        })?;
        if json {
            return Ok(print(&json_lines(&records)?)?);
        }
        if csv {
            return Ok(print(&csv::page(&records))?);
        }
        print(&page(&records))?;
        if records.len() == MOST_ROWS as usize {
            remark(&format!("these are the newest {MOST_ROWS}; --json and --csv print all"));
        }
        Ok(())
    }
}

fn json_lines(records: &[Record]) -> serde_json::Result<String> {
    let mut text = String::new();
    for record in records {
        text.push_str(&serde_json::to_string(record)?);
        text.push('\n');
    }
    Ok(text)
}

fn page(records: &[Record]) -> String {
    let rows: Vec<[String; 10]> = records.iter().map(row).collect();
    let headings =
        ["CREATED", "STATE", "SIZE", "QUALITY", "FORMAT", "IMAGES", "TOKENS", "SECONDS", "ACCOUNT", "REQUEST"];
    table(headings, &rows)
}

fn row(record: &Record) -> [String; 10] {
    let tokens = record.usage.as_ref().and_then(|usage| usage.total_tokens);
    [
        record.created_at.to_string(),
        record.state.as_str().to_owned(),
        cell(record.size.as_ref()),
        cell(record.quality.as_ref()),
        cell(record.output_format.as_ref()),
        record.delivered.len().to_string(),
        cell(tokens),
        cell(record.latency_ms.map(|latency| format!("{}.{}", latency / 1000, latency % 1000 / 100))),
        cell(record.account.as_ref()),
        record.request_id.to_string(),
    ]
}
