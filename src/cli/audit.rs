//! The command `imagate audit`.

use clap::Args;
use serde::Serialize;

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{print, print_message, table};
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
    installation: InstallationArgs,
    /// Only entries of the user with this id or name.
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// Only entries with this action, such as `key.create`, or with any action on a kind of object, such as `key`.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only entries about the object with this id or name.
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    /// Print all entries, one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// One row of the audit trail in JSON.
#[derive(Serialize)]
struct AuditRowJson<'a> {
    seq: i64,
    at: Timestamp,
    actor_kind: &'static str,
    actor_id: Option<&'a str>,
    actor_name: &'a str,
    address: Option<&'a str>,
    action: &'a str,
    target_kind: &'a str,
    target_id: Option<&'a str>,
    target_name: Option<&'a str>,
    details: &'a serde_json::Value,
}

// === impl AuditCommand ===

impl AuditCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, actor, action, target, json } = self;
        let limit = if json { PAGE_SIZE } else { MAX_TABLE_ROWS };
        let filter = AuditFilter { actor, action, target, before: None, limit };
        let (rows, has_more) = installation.with_store(async |config, store| {
            Ok(read_rows(&gateway::open_people(config, store), filter, json).await?)
        })?;
        if json {
            return Ok(print(&json_lines(&rows)?)?);
        }
        let rows: Vec<[String; 6]> = rows.iter().map(table_row).collect();
        print(&table(["AT", "ACTOR", "FROM", "ACTION", "TARGET", "DETAILS"], &rows))?;
        if has_more {
            print_message(&format!("only the newest {MAX_TABLE_ROWS} entries are shown; --json prints all"));
        }
        Ok(())
    }
}

/// Returns the rows that match the filter, oldest first: all of them if `all` is set, and otherwise only the newest, up
/// to the limit of the filter. The second value is true if older rows were left out.
async fn read_rows(
    people: &IdentityService,
    mut filter: AuditFilter,
    all: bool,
) -> Result<(Vec<AuditRow>, bool), IdentityError> {
    let mut rows = Vec::new();
    loop {
        let page = people.audit_page(&filter).await?;
        filter.before = page.items.last().map(|row| row.seq);
        rows.extend(page.items);
        if !all || !page.has_more {
            rows.reverse();
            return Ok((rows, page.has_more));
        }
    }
}

fn json_lines(rows: &[AuditRow]) -> serde_json::Result<String> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(&to_json(row))?);
        text.push('\n');
    }
    Ok(text)
}

fn to_json(row: &AuditRow) -> AuditRowJson<'_> {
    AuditRowJson {
        seq: row.seq,
        at: row.at,
        actor_kind: row.actor_kind.as_str(),
        actor_id: row.actor_id.as_deref(),
        actor_name: &row.actor_name,
        address: row.address.as_deref(),
        action: &row.action,
        target_kind: &row.target_kind,
        target_id: row.target_id.as_deref(),
        target_name: row.target_name.as_deref(),
        details: &row.details,
    }
}

fn table_row(row: &AuditRow) -> [String; 6] {
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
