//! The clock of this machine: it must not be behind anything that has already happened.
//!
//! No other clock is asked. Sessions, expiries, budgets and the order of records depend on this one.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{CheckResult, InstallationContents, message_of};
use crate::gateway::store::{AuditFilter, RecordFilter, Store, StoreError, Timestamp};

const CHECK: &str = "clock";
/// The difference that is no problem (our choice): clocks are corrected in small steps.
const TOLERANCE: Duration = Duration::from_secs(60);

pub(super) async fn check(installation: &InstallationContents<'_>) -> CheckResult {
    let mut past = vec![("the program file", program_time())];
    if let Some(store) = installation.store {
        match newest_row_time(store).await {
            Ok(time) => past.insert(0, ("the newest record", time)),
            Err(error) => return CheckResult::problem(CHECK, message_of(&error), None),
        }
    }
    compare(Timestamp::now(), &past)
}

/// Compares the time with those of things that lie in the past.
pub(super) fn compare(now: Timestamp, past: &[(&str, Option<Timestamp>)]) -> CheckResult {
    for (name, time) in past {
        if let Some(time) = time.filter(|time| *time > now + TOLERANCE) {
            let message = format!("it is {now} by the clock, but {name} is of {time}");
            let advice = "set the clock, and let it follow a time server";
            return CheckResult::problem(CHECK, message, Some(advice));
        }
    }
    let names: Vec<&str> = past.iter().map(|(name, _)| *name).collect();
    CheckResult::ok(CHECK, format!("it is {now}, after {}", names.join(" and ")))
}

/// Returns the time of the newest record or row of the audit trail; `None` if there is none yet.
async fn newest_row_time(store: &dyn Store) -> Result<Option<Timestamp>, StoreError> {
    let records = store.list_records(&RecordFilter { limit: Some(1), ..RecordFilter::default() }).await?;
    let rows = store.list_audit_page(&AuditFilter { limit: 1, ..AuditFilter::default() }).await?.items;
    Ok(records.iter().map(|record| record.created_at.into()).chain(rows.iter().map(|row| row.at)).max())
}

/// Returns the time of the program file, which is that of the build or of the installation.
fn program_time() -> Option<Timestamp> {
    let modified = std::fs::metadata(std::env::current_exe().ok()?).ok()?.modified().ok()?;
    Some(DateTime::<Utc>::from(modified).into())
}
