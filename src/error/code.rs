//! The codes of the error tables. `cargo xtask generate` makes them from the documents.

use crate::tables;

include!("../../generated/error_codes.rs");

impl ApiErrorCode {
    /// Returns the message from the error tables of the documents, for errors without details of their own.
    pub(crate) fn message(self) -> &'static str {
        let row = tables::ERRORS.iter().chain(tables::ADMIN_ERRORS).find(|row| row.code == self.as_str());
        // Every code is that of a row.
        row.map_or("The request failed", |row| row.message)
    }
}
