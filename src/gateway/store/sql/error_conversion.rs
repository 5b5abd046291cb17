//! Translates the errors of the drivers into errors that a caller can act on.

use sqlx::migrate::MigrateError;
use sqlx::postgres::PgDatabaseError;

use crate::gateway::store::{StoreError, postgres, sqlite};

/// Returns a function for `map_err`; `doing` names the operation.
pub(in super::super) fn during(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| to_store_error(doing, error)
}

/// Returns a function for `map_err` of a migration run.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver may add variants, which are refusals too")]
pub(in super::super) fn during_migration(known: i64) -> impl FnOnce(MigrateError) -> StoreError {
    move |error| match error {
        MigrateError::VersionMissing(found) if found > known => StoreError::NewerSchema { found, known },
        MigrateError::VersionMissing(version) | MigrateError::VersionMismatch(version) => StoreError::ForeignDatabase {
            detail: format!("its migration {version} differs from the one of this program"),
        },
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            to_store_error("migrating the database", error)
        }
        other => StoreError::Refused(other.into()),
    }
}

/// Converts an error of a driver. Only errors that the row certainly causes become [`StoreError::Refused`]: a refused
/// write is dropped, and a dropped outcome was paid for, while a repeated write costs only a log line now and then.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the drivers may add variants; after them, the same write may succeed"
)]
pub(in super::super) fn to_store_error(doing: &'static str, error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(error) if error.try_downcast_ref::<PgDatabaseError>().is_some() => {
            postgres::convert_error(doing, error)
        }
        sqlx::Error::Database(error) => sqlite::convert_error(doing, error),
        // All writers of this process share one connection to SQLite, so a timeout means that a writer waits for the lock.
        sqlx::Error::PoolTimedOut => StoreError::Busy,
        sqlx::Error::RowNotFound
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_) => StoreError::Refused(error.into()),
        other => StoreError::Unavailable { doing, source: other.into() },
    }
}
