//! The command `imagate audit`.

use clap::Args;
use serde_json::json;

use super::failure::CommandFailure;
use super::managed_gateway::{GatewayArgs, ManagedGateway, page_size};
use super::moment_arg::MomentArg;
use super::output::{Column, cell, json_lines, moment, print, print_message, table};
use crate::client::admin::types::{AuditEntry, PageLimit};
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
    async fn read(&self, gateway: &ManagedGateway) -> Result<(Vec<AuditEntry>, bool), CommandFailure> {
        let since = self.since.map(MomentArg::moment);
        let size = if self.json { page_size()? } else { PageLimit::new(MAX_TABLE_ROWS)? };
        let mut rows: Vec<AuditEntry> = Vec::new();
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
                request = request.before(last.seq);
            }
            let page = request.send().await?;
            let (before, in_page) = (rows.len(), page.data.len());
            let is_wanted = |entry: &AuditEntry| since.is_none_or(|since| Timestamp::from(entry.at) >= since);
            rows.extend(page.data.into_iter().filter(is_wanted));
            // The entries are sorted by time, so the first one that is too old ends the list.
            let has_more = page.has_more && in_page > 0 && rows.len() - before == in_page;
            if !self.json || !has_more {
                rows.reverse();
                return Ok((rows, has_more));
            }
        }
    }
}

fn table_row(entry: &AuditEntry) -> [String; 6] {
    let target = cell(entry.target_name.as_ref().or(entry.target_id.as_ref()));
    let details = Some(&entry.details.0).filter(|details| !details.is_empty());
    [
        moment(entry.at),
        entry.actor_name.clone(),
        cell(entry.address.as_ref()),
        entry.action.clone(),
        format!("{} {target}", entry.target_kind),
        cell(details.map(|details| json!(details))),
    ]
}
