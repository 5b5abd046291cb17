//! Runs a query that is not part of a transaction, and names the operation in its error.

use super::SqlStore;
use super::driver::SqlRow;
use super::error_conversion::during;
use super::statement::SqlStatement;

use crate::gateway::store::StoreError;

impl SqlStore {
    /// Reads all rows of a query.
    pub(super) async fn fetch_all<T>(
        &self,
        doing: &'static str,
        query: SqlStatement,
        from_row: impl Fn(&SqlRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = query.fetch_all(&self.readers).await;
        rows.and_then(|rows| rows.iter().map(from_row).collect()).map_err(during(doing))
    }

    /// Reads the row of a query that has at most one.
    pub(super) async fn fetch_optional<T>(
        &self,
        doing: &'static str,
        query: SqlStatement,
        from_row: impl Fn(&SqlRow) -> sqlx::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let row = query.fetch_optional(&self.readers).await;
        row.and_then(|row| row.as_ref().map(from_row).transpose()).map_err(during(doing))
    }

    /// Makes a change, and returns the number of rows that it has changed.
    pub(super) async fn execute_change(&self, doing: &'static str, change: SqlStatement) -> Result<u64, StoreError> {
        change.execute(&self.writer).await.map_err(during(doing))
    }
}
