//! What SQLite and its driver say, as something that can be acted on.

use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

use crate::gateway::store::StoreError;

// Primary result codes of SQLite; extended codes carry them in their low byte.
const PERMISSION: u32 = 3;
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const READ_ONLY: u32 = 8;
const IO: u32 = 10;
const CORRUPT: u32 = 11;
const FULL: u32 = 13;
const CANNOT_OPEN: u32 = 14;
const NOT_A_DATABASE: u32 = 26;

/// For `map_err`: says what was being done.
pub(super) fn during(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| translate(doing, error)
}

/// For `map_err` of a migration run.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver adds variants; new ones are refusals too")]
pub(super) fn during_migration(known: i64) -> impl FnOnce(MigrateError) -> StoreError {
    move |error| match error {
        MigrateError::VersionMissing(found) if found > known => StoreError::Newer { found, known },
        MigrateError::VersionMissing(version) | MigrateError::VersionMismatch(version) => {
            StoreError::Foreign { detail: format!("its migration {version} is not the one that this program knows") }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            translate("migrating the database", error)
        }
        other => StoreError::Refused(other.into()),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the driver adds variants; new ones are refusals too")]
fn translate(doing: &'static str, error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(trouble) => translate_code(doing, trouble),
        // All our writers share one connection: whoever waits too long for it waits for a lock that somebody holds.
        sqlx::Error::PoolTimedOut => StoreError::Busy,
        sqlx::Error::Io(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            StoreError::Unavailable { doing, source: error.into() }
        }
        other => StoreError::Refused(other.into()),
    }
}

fn translate_code(doing: &'static str, trouble: Box<dyn DatabaseError>) -> StoreError {
    if trouble.is_unique_violation() {
        return StoreError::Conflict;
    }
    let extended = trouble.code().and_then(|code| code.parse::<u32>().ok());
    match extended.map(|code| code & 0xff) {
        Some(BUSY | LOCKED) => StoreError::Busy,
        Some(PERMISSION | READ_ONLY | IO | FULL | CANNOT_OPEN) => {
            StoreError::Unavailable { doing, source: trouble.into() }
        }
        Some(CORRUPT | NOT_A_DATABASE) => {
            StoreError::damaged(format!("imagate.db: {trouble}; restore it from a backup"))
        }
        _ => StoreError::Refused(trouble.into()),
    }
}
