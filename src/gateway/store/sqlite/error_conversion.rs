//! Translates the errors of SQLite and its driver into errors that a caller can act on.

use sqlx::error::DatabaseError;

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
// Extended result codes of duplicates.
const CONSTRAINT_PRIMARY_KEY: u32 = CONSTRAINT | 6 << 8;
const CONSTRAINT_UNIQUE: u32 = CONSTRAINT | 8 << 8;

/// Returns a function for `map_err` of a batch of records and claims.
#[expect(clippy::wildcard_enum_match_arm, reason = "after the other errors of the driver, the same write may succeed")]
pub(super) fn during_batch(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> StoreError {
    move |error| match &error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            let code = failure.extended_code.cast_unsigned();
            let is_duplicate = matches!(code, CONSTRAINT_PRIMARY_KEY | CONSTRAINT_UNIQUE);
            if is_duplicate { StoreError::Conflict } else { by_result_code(doing, Some(code), error) }
        }
        rusqlite::Error::ToSqlConversionFailure(_)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnName(_)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => StoreError::Refused(error.into()),
        _ => StoreError::Unavailable { doing, source: error.into() },
    }
}

/// Converts an error of SQLite by its code.
pub(in super::super) fn convert_error(doing: &'static str, error: Box<dyn DatabaseError>) -> StoreError {
    if error.is_unique_violation() {
        return StoreError::Conflict;
    }
    let code = error.code().and_then(|code| code.parse::<u32>().ok());
    by_result_code(doing, code, error)
}

fn by_result_code(
    doing: &'static str,
    extended: Option<u32>,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    let error = error.into();
    match extended.map(|code| code & 0xff) {
        Some(BUSY | LOCKED | PROTOCOL) => StoreError::Busy,
        Some(CONSTRAINT | TOO_BIG | MISMATCH | RANGE) => StoreError::Refused(error),
        Some(CORRUPT | NOT_A_DATABASE) => StoreError::damaged(format!("imagate.db: {error}; restore it from a backup")),
        _ => StoreError::Unavailable { doing, source: error },
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::fmt;

    use sqlx::error::ErrorKind;

    use super::*;
    use crate::gateway::store::sql::error_conversion::to_store_error;

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
    fn only_errors_of_the_row_are_row_faults() {
        // All primary result codes of SQLite, each also as an extended code.
        let row_faults: Vec<u32> = (1..=28)
            .flat_map(|code| [code, code | 3 << 8])
            .filter(|code| {
                to_store_error("writing records", sqlx::Error::Database(Box::new(Code(*code)))).is_row_fault()
            })
            .map(|code| code & 0xff)
            .collect();
        let expected = [TOO_BIG, CONSTRAINT, MISMATCH, RANGE].map(|code| [code; 2]);
        assert_eq!(row_faults, expected.concat());
    }

    #[test]
    fn temporary_errors_are_distinguished() {
        let convert = |code: u32| to_store_error("writing records", sqlx::Error::Database(Box::new(Code(code))));
        for code in [BUSY, LOCKED, PROTOCOL, BUSY | 2 << 8] {
            assert!(matches!(convert(code), StoreError::Busy), "{code}");
        }
        // ERROR, PERM, ABORT, NOMEM, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN, MISUSE, and an unknown code.
        for code in [1, 3, 4, 7, 8, 9, 10, 13, 14, 21, 99] {
            assert!(matches!(convert(code), StoreError::Unavailable { .. }), "{code}");
        }
        assert!(matches!(convert(CORRUPT), StoreError::Damaged { .. }));
    }

    #[test]
    fn an_undecodable_row_is_refused_but_a_driver_failure_is_not() {
        let is_row_fault = |error| to_store_error("reading", error).is_row_fault();
        assert!(is_row_fault(sqlx::Error::Decode("no number".into())) && is_row_fault(sqlx::Error::RowNotFound));
        assert!(!is_row_fault(sqlx::Error::WorkerCrashed) && !is_row_fault(sqlx::Error::BeginFailed));
        assert!(!is_row_fault(sqlx::Error::Protocol("a temporary state".to_owned())));
    }
}
