//! `imagate usage --follow`: prints each record as soon as its request ends.

use std::collections::BTreeSet;
use std::time::Duration;

use super::records::{RecordRequest, read_records, text_of};
use super::{UsageCommand, UsageFormat};
use crate::cli::failure::CommandFailure;
use crate::cli::managed_gateway::ManagedGateway;
use crate::cli::output::print;
use crate::client::admin::types::Record;
use crate::gateway::store::Timestamp;

/// The time between two looks at the records (our choice): short for a person, and little work for the database.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of records that are printed at first.
const FIRST_ROWS: u32 = 10;
/// The number of newest records in which each look searches for those that have ended (our choice), so that a busy gateway
/// does not fill the memory.
const MAX_ROWS: u32 = 10_000;
/// The time for which a request can be open. Records that began earlier are not looked at again, so that the work does
/// not grow with the age of the command.
const LONGEST_REQUEST: Duration = Duration::from_secs(60 * 60);

/// Prints the newest records, and then every new one. Ends when the user presses Ctrl-C or nobody reads the output.
pub(super) async fn follow(
    gateway: &ManagedGateway,
    command: &UsageCommand,
    format: UsageFormat,
) -> Result<(), CommandFailure> {
    let recent = |now: Timestamp| RecordRequest { command, since: Some(now - LONGEST_REQUEST), limit: Some(MAX_ROWS) };
    // Everything that has ended before is old, also what is not printed.
    let mut printed = ids_of(&read_records(gateway, recent(Timestamp::now())).await?);
    let first = read_records(gateway, RecordRequest { command, since: None, limit: Some(FIRST_ROWS) }).await?;
    printed.extend(ids_of(&first));
    print(&text_of(&first, format)?)?;
    loop {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = tokio::time::sleep(PAUSE) => {}
        }
        let records = read_records(gateway, recent(Timestamp::now())).await?;
        let ids = ids_of(&records);
        let new: Vec<Record> = records.into_iter().filter(|record| !printed.contains(&record.request_id)).collect();
        if !new.is_empty() {
            print(&without_headings(text_of(&new, format)?, format))?;
        }
        printed = ids;
    }
}

fn ids_of(records: &[Record]) -> BTreeSet<String> {
    records.iter().map(|record| record.request_id.clone()).collect()
}

/// Removes the headings of a table, which are only printed at first.
fn without_headings(text: String, format: UsageFormat) -> String {
    if !matches!(format, UsageFormat::Table { .. }) {
        return text;
    }
    text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default()
}
