//! The clock of this machine: it must not be behind anything that has already happened.
//!
//! No other clock is asked. Sessions, expiries, budgets and the order of records depend on this one.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{CheckResult, InstallationContents};
use crate::gateway::store::Timestamp;

const CHECK: &str = "clock";
/// The difference that is no problem (our choice): clocks are corrected in small steps.
const TOLERANCE: Duration = Duration::from_secs(60);

pub(super) fn check(installation: &InstallationContents<'_>) -> CheckResult {
    let newest_row = installation.database.and_then(|database| database.newest_row_at().ok().flatten());
    compare(Timestamp::now(), &[("the newest record", newest_row), ("the program file", program_time())])
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
    CheckResult::ok(CHECK, format!("it is {now}, after the newest record and the program file"))
}

/// Returns the time of the program file, which is that of the build or of the installation.
fn program_time() -> Option<Timestamp> {
    let modified = std::fs::metadata(std::env::current_exe().ok()?).ok()?.modified().ok()?;
    Some(DateTime::<Utc>::from(modified).into())
}
