//! The command `imagate audit`.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway, page_size, view};
use super::moment_arg::MomentArg;
use super::output::{Column, print, print_message, table};
use crate::client::admin::types::{AuditSeq, PageLimit};
use crate::gateway::store::Timestamp;

/// The maximum number of rows without `--json`; longer lists are for programs.
const MAX_TABLE_ROWS: i64 = 100;

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub(super) struct AuditCommand {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Only entries of the user with this id or name.
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// Only entries with this action, such as `key.create`, or with any action on a kind of object, such as `key`.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only entries about the object with this id or name.
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Only entries of this time or later: a date, a date and time such as 2026-11-21T03:00:00Z, or a duration before
    /// now such as 24h or 7d.
    #[arg(long, value_name = "T")]
    since: Option<MomentArg>,
    /// Print all entries, one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// One row of the audit trail, as it is printed. Scripts rely on the fields and their order.
#[derive(Serialize, Deserialize)]
struct AuditView {
    seq: i64,
    at: Timestamp,
    actor_kind: String,
    actor_id: Option<String>,
    actor_name: String,
    address: Option<String>,
    action: String,
    target_kind: String,
    target_id: Option<String>,
    target_name: Option<String>,
    details: Value,
}

// === impl AuditCommand ===

impl AuditCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let (rows, has_more) = self.gateway.find()?.run(async |gateway| self.read(gateway).await)?;
        if self.json {
            return Ok(print(&json_lines(&rows)?)?);
        }
        let rows: Vec<[String; 6]> = rows.iter().map(table_row).collect();
        let [actor, target, details] = ["ACTOR", "TARGET", "DETAILS"].map(Column::name);
        print(&table([Column::moment("AT"), actor, "FROM".into(), "ACTION".into(), target, details], &rows))?;
        if has_more {
            print_message(&format!("only the newest {MAX_TABLE_ROWS} entries are shown; --json prints all"));
        }
        Ok(())
    }

    /// Returns the entries, oldest first: all of them for JSON, and otherwise the newest ones. The second value is true if
    /// older entries were left out.
    async fn read(&self, gateway: &ManagedGateway) -> Result<(Vec<AuditView>, bool), CommandFailure> {
        let since = self.since.map(MomentArg::moment);
        let size = if self.json { page_size()? } else { PageLimit::new(MAX_TABLE_ROWS)? };
        let mut rows: Vec<AuditView> = Vec::new();
        loop {
            let mut request = gateway.admin.list_audit().limit(size);
            if let Some(actor) = &self.actor {
                request = request.actor(actor);
            }
            if let Some(action) = &self.action {
                request = request.action(action);
            }
            if let Some(target) = &self.target {
                request = request.target(target);
            }
            if let Some(last) = rows.last() {
                request = request.before(AuditSeq::new(last.seq)?);
            }
            let page = request.send().await?;
            let before = rows.len();
            let entries: Vec<AuditView> = page.data.iter().map(view).collect::<Result<_, _>>()?;
            rows.extend(entries.into_iter().filter(|entry| since.is_none_or(|since| entry.at >= since)));
            // The entries are sorted by time, so the first one that is too old ends the list.
            let has_more = page.has_more && !page.data.is_empty() && rows.len() - before == page.data.len();
            if !self.json || !has_more {
                rows.reverse();
                return Ok((rows, has_more));
            }
        }
    }
}

fn json_lines(rows: &[AuditView]) -> serde_json::Result<String> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(row)?);
        text.push('\n');
    }
    Ok(text)
}

fn table_row(row: &AuditView) -> [String; 6] {
    let or_dash = |text: Option<&String>| text.cloned().unwrap_or_else(|| "-".to_owned());
    let target = or_dash(row.target_name.as_ref().or(row.target_id.as_ref()));
    let details = row.details.as_object().filter(|details| !details.is_empty());
    [
        row.at.to_string(),
        row.actor_name.clone(),
        or_dash(row.address.as_ref()),
        row.action.clone(),
        format!("{} {target}", row.target_kind),
        details.map_or_else(|| "-".to_owned(), |_| row.details.to_string()),
    ]
}
