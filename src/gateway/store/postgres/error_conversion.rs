//! Translates the errors of PostgreSQL and its driver into errors that a caller can act on.

use sqlx::error::DatabaseError;

use crate::gateway::store::StoreError;
use crate::gateway::store::sql::error_conversion::to_store_error;

/// Returns a function for `map_err`; `doing` names the operation.
pub(super) fn during(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| to_store_error(doing, server_unreachable(error))
}

/// Replaces the error that all connections of a pool are in use. In SQLite, it means that a writer waits for another one;
/// here, that the server does not answer.
pub(in super::super) fn server_unreachable(error: sqlx::Error) -> sqlx::Error {
    if matches!(error, sqlx::Error::PoolTimedOut) {
        sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
    } else {
        error
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

/// Converts an error of the server by its code, as the appendix "PostgreSQL Error Codes" of the manual lists them.
pub(in super::super) fn convert_error(doing: &'static str, error: Box<dyn DatabaseError>) -> StoreError {
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
