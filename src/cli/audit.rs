//! The command `imagate audit`.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::failure::CommandFailure;
use super::moment_arg::MomentArg;
use super::output::{Column, print, print_message, table};
use super::remote::{self, GatewayArgs, RemoteGateway, view};
use crate::client::admin::types::{AuditSeq, PageLimit};
use crate::gateway;
use crate::gateway::people::{IdentityError, IdentityService};
use crate::gateway::store::{AuditFilter, AuditRow, Timestamp};

/// The maximum number of rows without `--json`; longer lists are for programs.
const MAX_TABLE_ROWS: u32 = 100;
/// The number of rows that are read at once.
const PAGE_SIZE: u32 = 1000;

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

/// One row of the audit trail, of the store or of the admin API. Scripts rely on the fields and their order.
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
        let Self { gateway, actor, action, target, since, json } = self;
        let scope = ReadScope { all: json, since: since.map(MomentArg::moment) };
        let filter = AuditFilter { actor, action, target, before: None, limit: MAX_TABLE_ROWS };
        let (rows, has_more) = match gateway.remote()? {
            Some(gateway) => gateway.run(async |gateway| read_remote_rows(gateway, filter, scope).await)?,
            None => gateway.installation.with_store(async |config, store| {
                let limit = if json { PAGE_SIZE } else { MAX_TABLE_ROWS };
                let filter = AuditFilter { limit, ..filter };
                let (rows, has_more) = read_rows(&gateway::open_people(config, store), filter, scope).await?;
                Ok((rows.into_iter().map(AuditView::from).collect(), has_more))
            })?,
        };
        if json {
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
}

/// The entries that are read.
#[derive(Clone, Copy)]
struct ReadScope {
    /// True for all entries, and not only the newest ones up to the limit of the filter.
    all: bool,
    /// The time of the oldest entry.
    since: Option<Timestamp>,
}

/// Returns the rows that match the filter, oldest first. The second value is true if older rows were left out.
async fn read_rows(
    people: &IdentityService,
    mut filter: AuditFilter,
    scope: ReadScope,
) -> Result<(Vec<AuditRow>, bool), IdentityError> {
    let mut rows = Vec::new();
    loop {
        let page = people.audit_page(&filter).await?;
        filter.before = page.items.last().map(|row| row.seq);
        let (read, has_older) = (page.items.len(), page.has_more);
        let newer = page.items.into_iter().take_while(|row| scope.includes(row.at));
        let before = rows.len();
        rows.extend(newer);
        let has_more = has_older && rows.len() - before == read;
        if !scope.all || !has_more {
            rows.reverse();
            return Ok((rows, has_more));
        }
    }
}

/// Returns the entries of another gateway, as [`read_rows`] returns those of the store.
async fn read_remote_rows(
    gateway: &RemoteGateway,
    filter: AuditFilter,
    scope: ReadScope,
) -> Result<(Vec<AuditView>, bool), CommandFailure> {
    let AuditFilter { actor, action, target, limit, .. } = filter;
    let size = if scope.all { remote::page_size()? } else { PageLimit::new(limit.into())? };
    let mut rows: Vec<AuditView> = Vec::new();
    loop {
        let mut request = gateway.admin.list_audit().limit(size);
        if let Some(actor) = &actor {
            request = request.actor(actor);
        }
        if let Some(action) = &action {
            request = request.action(action);
        }
        if let Some(target) = &target {
            request = request.target(target);
        }
        if let Some(last) = rows.last() {
            request = request.before(AuditSeq::new(last.seq)?);
        }
        let page = request.send().await?;
        let before = rows.len();
        for entry in &page.data {
            let entry: AuditView = view(entry)?;
            if scope.includes(entry.at) {
                rows.push(entry);
            }
        }
        // The entries are sorted by time, so the first one that is too old ends the list.
        let has_more = page.has_more && !page.data.is_empty() && rows.len() - before == page.data.len();
        if !scope.all || !has_more {
            rows.reverse();
            return Ok((rows, has_more));
        }
    }
}

// === impl ReadScope ===

impl ReadScope {
    fn includes(self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since)
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

// === impl AuditView ===

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> Self {
        Self {
            seq: row.seq,
            at: row.at,
            actor_kind: row.actor_kind.as_str().to_owned(),
            actor_id: row.actor_id,
            actor_name: row.actor_name,
            address: row.address,
            action: row.action,
            target_kind: row.target_kind,
            target_id: row.target_id,
            target_name: row.target_name,
            details: row.details,
        }
    }
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
