//! `imagate usage --follow`: prints each record as soon as its request ends.

use std::collections::BTreeSet;
use std::time::Duration;

use super::records::{RecordRow, record_table};
use super::{UsageFormat, json_lines};
use crate::cli::failure::CommandFailure;
use crate::cli::output::print;
use crate::gateway::store::{RequestId, Timestamp};
use crate::gateway::usage::{NamedRecord, RecordFilter, UsageReader};

/// The time between two looks at the store (our choice): short for a person, and little work for the database.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of records that are printed at first.
const FIRST_ROWS: u32 = 10;
/// The newest records among which a look finds those that have ended (our choice), so that a busy gateway does not fill
/// the memory.
const MAX_ROWS: u32 = 10_000;
/// The time for which a request can be open. Records that began earlier are not looked at again, so that the work does
/// not grow with the age of the command.
const LONGEST_REQUEST: Duration = Duration::from_secs(60 * 60);

/// Prints the newest records, and then every new one. Ends when the user presses Ctrl-C or nobody reads the output.
pub(super) async fn follow(
    usage: &UsageReader,
    filter: RecordFilter,
    format: UsageFormat,
) -> Result<(), CommandFailure> {
    let recent =
        |now: Timestamp| RecordFilter { since: Some(now - LONGEST_REQUEST), limit: Some(MAX_ROWS), ..filter.clone() };
    // Everything that has ended before is old, also what is not printed.
    let mut printed = ids_of(&usage.all_records(&recent(Timestamp::now())).await?);
    let first = usage.all_records(&RecordFilter { limit: Some(FIRST_ROWS), ..filter.clone() }).await?;
    printed.extend(ids_of(&first));
    print(&text_of(&first, format, true)?)?;
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(PAUSE) => {}
        }
        let records = usage.all_records(&recent(Timestamp::now())).await?;
        let ids = ids_of(&records);
        let new: Vec<NamedRecord> =
            records.into_iter().filter(|named| !printed.contains(&named.record.request_id)).collect();
        if !new.is_empty() {
            print(&text_of(&new, format, false)?)?;
        }
        printed = ids;
    }
}

fn ids_of(records: &[NamedRecord]) -> BTreeSet<RequestId> {
    records.iter().map(|named| named.record.request_id.clone()).collect()
}

/// Returns the records as lines; a table has its headings only at first.
fn text_of(records: &[NamedRecord], format: UsageFormat, has_headings: bool) -> Result<String, CommandFailure> {
    let UsageFormat::Table { cost } = format else {
        return Ok(json_lines(records.iter().map(|named| &named.record))?);
    };
    let rows: Vec<_> = records.iter().map(|named| RecordRow::from(&named.record)).collect();
    let table = record_table(&rows, cost);
    Ok(if has_headings { table } else { table.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default() })
}
