//! Translates the errors of PostgreSQL and its driver into errors that a caller can act on.

use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

use crate::gateway::store::StoreError;

/// Returns a function for `map_err`; `doing` names the operation.
pub(super) fn during(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| to_store_error(doing, error)
}

/// Returns a function for `map_err` of a migration run.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver may add variants, which are refusals too")]
pub(super) fn during_migration(known: i64) -> impl FnOnce(MigrateError) -> StoreError {
    move |error| match error {
        MigrateError::VersionMissing(found) if found > known => StoreError::NewerSchema { found, known },
        MigrateError::VersionMissing(version) | MigrateError::VersionMismatch(version) => {
            StoreError::ForeignDatabase { detail: format!("migration {version} is not the one of imagate") }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            to_store_error("migrating the database", error)
        }
        other => StoreError::Refused(other.into()),
    }
}

/// True if the connection cannot be used any more, and the outcome of a commit on it may be unknown.
#[expect(clippy::wildcard_enum_match_arm, reason = "after the other errors, the connection is in order")]
pub(super) fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => {
            // Connection exceptions, and the end of the session by an administrator or a crash.
            error.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P"))
        }
        _ => false,
    }
}

/// True if the same transaction may succeed at once: on a new connection, or after the other transaction of a conflict.
pub(super) fn may_succeed_again(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    is_connection_lost(error) || code.is_some_and(|code| matches!(&*code, "40001" | "40P01"))
}

/// Converts an error of the driver. Only errors that the row certainly causes become [`StoreError::Refused`]: a refused
/// write is dropped, and a dropped outcome was paid for, while a repeated write costs only a log line now and then.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver may add variants; after them, the same write may succeed"
)]
fn to_store_error(doing: &'static str, error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(error) => database_error(doing, error),
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

/// Converts an error of the server by its code, as the appendix "PostgreSQL Error Codes" of the manual lists them.
fn database_error(doing: &'static str, error: Box<dyn DatabaseError>) -> StoreError {
    let code = error.code().map(String::from).unwrap_or_default();
    match code.as_str() {
        "23505" => StoreError::Conflict,
        // A deadlock, a conflict of transactions, a lock or a statement that took too long.
        "40001" | "40P01" | "55P03" | "57014" => StoreError::Busy,
        // Values that do not fit, and broken constraints.
        code if code.starts_with("22") || code.starts_with("23") => StoreError::Refused(error.into()),
        // XX001 and XX002: a damaged table or index.
        "XX001" | "XX002" => StoreError::damaged(format!("the PostgreSQL database: {error}; restore it from a backup")),
        _ => StoreError::Unavailable { doing, source: error.into() },
    }
}
