//! Translates the errors of SQLite and its driver into errors that a caller can act on.

use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;

use crate::gateway::store::StoreError;

// Primary result codes of SQLite; extended codes carry them in their low byte.
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const CORRUPT: u32 = 11;
/// `SQLITE_PROTOCOL`: another process changed the write-ahead log at the same moment.
const PROTOCOL: u32 = 15;
const TOO_BIG: u32 = 18;
const CONSTRAINT: u32 = 19;
const MISMATCH: u32 = 20;
const RANGE: u32 = 25;
const NOT_A_DATABASE: u32 = 26;

/// Returns a function for `map_err`; `doing` names the operation.
pub(super) fn during(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| to_store_error(doing, error)
}

/// Returns a function for `map_err` of a migration run.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver adds variants; new ones are refusals too")]
pub(super) fn during_migration(known: i64) -> impl FnOnce(MigrateError) -> StoreError {
    move |error| match error {
        MigrateError::VersionMissing(found) if found > known => StoreError::Newer { found, known },
        MigrateError::VersionMissing(version) | MigrateError::VersionMismatch(version) => {
            StoreError::Foreign { detail: format!("its migration {version} differs from the one of this program") }
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            to_store_error("migrating the database", error)
        }
        other => StoreError::Refused(other.into()),
    }
}

/// Only errors that the row certainly causes become [`StoreError::Refused`]. A dropped outcome was paid for, while a
/// write that is repeated for ever only costs a log line now and then.
#[expect(clippy::wildcard_enum_match_arm, reason = "the driver adds variants; the same write may succeed after them")]
fn to_store_error(doing: &'static str, error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(trouble) => database_error(doing, trouble),
        // All writers of this process share one connection: a wait that is too long is a wait for a lock that is held.
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

fn database_error(doing: &'static str, error: Box<dyn DatabaseError>) -> StoreError {
    if error.is_unique_violation() {
        return StoreError::Conflict;
    }
    let extended = error.code().and_then(|code| code.parse::<u32>().ok());
    match extended.map(|code| code & 0xff) {
        Some(BUSY | LOCKED | PROTOCOL) => StoreError::Busy,
        Some(CONSTRAINT | TOO_BIG | MISMATCH | RANGE) => StoreError::Refused(error.into()),
        Some(CORRUPT | NOT_A_DATABASE) => StoreError::damaged(format!("imagate.db: {error}; restore it from a backup")),
        _ => StoreError::Unavailable { doing, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::fmt;

    use sqlx::error::ErrorKind;

    use super::*;

    /// A driver error with this extended result code.
    #[derive(Debug)]
    struct Code(u32);

    impl fmt::Display for Code {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "(code: {})", self.0)
        }
    }

    impl std::error::Error for Code {}

    impl DatabaseError for Code {
        fn message(&self) -> &str {
            "a message"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.to_string().into())
        }

        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    #[test]
    fn only_what_is_wrong_with_a_row_is_held_against_it() {
        // All primary codes of SQLite, each also with an extension in the higher bytes.
        let blamed: Vec<u32> = (1..=28)
            .flat_map(|code| [code, code | 3 << 8])
            .filter(|code| {
                to_store_error("writing records", sqlx::Error::Database(Box::new(Code(*code)))).is_row_fault()
            })
            .map(|code| code & 0xff)
            .collect();
        let expected = [TOO_BIG, CONSTRAINT, MISMATCH, RANGE].map(|code| [code; 2]);
        assert_eq!(blamed, expected.concat());
    }

    #[test]
    fn what_passes_is_told_apart() {
        let code = |code: u32| to_store_error("writing records", sqlx::Error::Database(Box::new(Code(code))));
        for passing in [BUSY, LOCKED, PROTOCOL, BUSY | 2 << 8] {
            assert!(matches!(code(passing), StoreError::Busy), "{passing}");
        }
        // The codes for a bad statement, permissions, abort, memory, interrupt, input and output, a full disk, and an
        // unopened file.
        for other in [1, 3, 4, 7, 8, 9, 10, 13, 14, 21, 99] {
            assert!(matches!(code(other), StoreError::Unavailable { .. }), "{other}");
        }
        assert!(matches!(code(CORRUPT), StoreError::Damaged { .. }));
    }

    #[test]
    fn a_row_that_cannot_be_understood_is_refused_and_a_driver_that_is_lost_is_not() {
        let refused = |error| to_store_error("reading", error).is_row_fault();
        assert!(refused(sqlx::Error::Decode("no number".into())) && refused(sqlx::Error::RowNotFound));
        assert!(!refused(sqlx::Error::WorkerCrashed) && !refused(sqlx::Error::BeginFailed));
        assert!(!refused(sqlx::Error::Protocol("a passing state".to_owned())));
    }
}
