//! The bytes of stored answers, for all nodes.
//!
//! Each piece is a transaction of its own, which does not wait for the disk of the server: a lost piece is an answer that
//! other nodes cannot send. At most [`ANSWER_CONNECTIONS`] connections of the pool are used for answers at the same time.

use async_trait::async_trait;
use sqlx::PgConnection;

use super::PostgresDatabase;
use super::error_conversion::during;
use crate::gateway::store::shared_answers::{AnswerPiece, SharedAnswerState, SharedAnswers};
use crate::gateway::store::sql::transaction::transact;
use crate::gateway::store::{StoreError, Timestamp};

/// The number of connections that answers may use at the same time (our choice): a quarter of the pool.
pub(super) const ANSWER_CONNECTIONS: usize = 2;

/// The most bytes of expired answers that one statement removes (our choice), except that it removes at least one
/// answer. A statement must end within ten seconds.
const REMOVED_BYTES: i64 = 64 << 20;
/// The number of answers that one statement removes to make room (our choice).
const REMOVED_ANSWERS: i64 = 16;

/// Adds a piece to an answer that still awaits pieces. The setting is that of the transaction.
macro_rules! insert_piece {
    () => {
        "INSERT INTO answer_pieces (file, number, bytes) SELECT file, $2, $3 FROM shared_answers \
         WHERE file = $1 AND NOT is_complete AND set_config('synchronous_commit', 'off', TRUE) = 'off'"
    };
}
const WRITE_PIECE: &str = insert_piece!();
const WRITE_LAST_PIECE: &str = concat!(
    "WITH last_piece AS (",
    insert_piece!(),
    " RETURNING file) UPDATE shared_answers SET is_complete = TRUE WHERE file IN (SELECT file FROM last_piece)"
);

/// Makes the removals of all nodes take turns, so that they cannot wait for each other. The number is "imga" (our choice).
const LOCK_FOR_REMOVAL: &str = "SELECT pg_advisory_xact_lock(1768777569)";

/// Removes answers whose rows have expired, the oldest first.
const REMOVE_EXPIRED: &str = "DELETE FROM shared_answers WHERE file IN (SELECT file FROM \
    (SELECT shared_answers.file, sum(bytes) OVER (ORDER BY expires_at, shared_answers.file) - bytes AS before \
    FROM shared_answers JOIN replays USING (scope) WHERE expires_at <= $1 \
    ORDER BY expires_at, shared_answers.file LIMIT 500) AS oldest WHERE before < $2)";

/// Removes the oldest answers of an API key, except the newest ones that have at most `$2` bytes together.
const REMOVE_OLDEST: &str = "DELETE FROM shared_answers WHERE file IN (SELECT file FROM \
    (SELECT file, stored_at, sum(bytes) OVER (ORDER BY stored_at DESC, file DESC) AS kept FROM shared_answers \
    WHERE key_id = $1) AS newest WHERE kept > $2 ORDER BY stored_at, file LIMIT $3)";

#[async_trait]
impl SharedAnswers for PostgresDatabase {
    async fn write_answer_piece(&self, piece: AnswerPiece<'_>) -> Result<bool, StoreError> {
        let _permit = self.answer_permit().await?;
        let query = sqlx::query(if piece.is_last { WRITE_LAST_PIECE } else { WRITE_PIECE });
        let query = query.bind(piece.file).bind(i64::from(piece.number)).bind(piece.bytes);
        let written = query.execute(&self.pool).await.map_err(during("writing a piece of an answer"))?;
        Ok(written.rows_affected() == 1)
    }

    async fn find_shared_answer(&self, file: &str) -> Result<Option<SharedAnswerState>, StoreError> {
        let _permit = self.answer_permit().await?;
        let query = sqlx::query_scalar("SELECT is_complete FROM shared_answers WHERE file = $1").bind(file);
        let is_complete: Option<bool> =
            query.fetch_optional(&self.pool).await.map_err(during("looking up the bytes of an answer"))?;
        let state = |is_complete| if is_complete { SharedAnswerState::Complete } else { SharedAnswerState::Incomplete };
        Ok(is_complete.map(state))
    }

    async fn read_answer_piece(&self, file: &str, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let _permit = self.answer_permit().await?;
        let query = sqlx::query_scalar("SELECT bytes FROM answer_pieces WHERE file = $1 AND number = $2");
        let query = query.bind(file).bind(i64::from(number));
        query.fetch_optional(&self.pool).await.map_err(during("reading a piece of an answer"))
    }

    async fn remove_shared_answer(&self, file: &str) -> Result<(), StoreError> {
        let _permit = self.answer_permit().await?;
        let query = sqlx::query("DELETE FROM shared_answers WHERE file = $1").bind(file);
        query.execute(&self.pool).await.map(drop).map_err(during("removing the bytes of an answer"))
    }

    async fn limit_shared_answers(&self, max_bytes: u64) -> Result<(), StoreError> {
        let _permit = self.answer_permit().await?;
        transact!(self.begin(), |transaction| {
            sqlx::query(LOCK_FOR_REMOVAL).execute(&mut *transaction).await?;
            let total = "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM shared_answers";
            let total: i64 = sqlx::query_scalar(total).fetch_one(&mut *transaction).await?;
            if total.unsigned_abs() > max_bytes {
                remove_oldest(transaction, max_bytes).await?;
            }
        })
        .map_err(during("making room for the bytes of an answer"))
    }
}

/// Removes the bytes of answers whose rows have expired.
pub(super) async fn remove_expired(store: &PostgresDatabase, now: Timestamp) -> Result<(), StoreError> {
    const DOING: &str = "removing the bytes of expired answers";
    let _permit = store.answer_permit().await?;
    loop {
        if remove_some_expired(store, now).await.map_err(during(DOING))? == 0 {
            return Ok(());
        }
    }
}

/// Returns the number of rows that were removed.
async fn remove_some_expired(store: &PostgresDatabase, now: Timestamp) -> sqlx::Result<u64> {
    transact!(store.begin(), |transaction| {
        sqlx::query(LOCK_FOR_REMOVAL).execute(&mut *transaction).await?;
        let query = sqlx::query(REMOVE_EXPIRED).bind(now.to_string()).bind(REMOVED_BYTES);
        query.execute(&mut *transaction).await?.rows_affected()
    })
}

async fn remove_oldest(connection: &mut PgConnection, max_bytes: u64) -> sqlx::Result<()> {
    let sums = "SELECT key_id, CAST(sum(bytes) AS BIGINT) FROM shared_answers GROUP BY key_id";
    let sums: Vec<(String, i64)> = sqlx::query_as(sums).fetch_all(&mut *connection).await?;
    let limit = bytes_per_key(sums.iter().map(|(_, bytes)| bytes.unsigned_abs()).collect(), max_bytes);
    for (key, _) in sums.iter().filter(|(_, bytes)| bytes.unsigned_abs() > limit) {
        let mut removed = REMOVED_ANSWERS.unsigned_abs();
        while removed == REMOVED_ANSWERS.unsigned_abs() {
            let query = sqlx::query(REMOVE_OLDEST).bind(key).bind(limit.cast_signed()).bind(REMOVED_ANSWERS);
            removed = query.execute(&mut *connection).await?.rows_affected();
        }
    }
    Ok(())
}

/// Returns the most bytes that each API key may keep so that all of them together keep at most `max_bytes`. Keys with
/// fewer bytes keep all of them.
fn bytes_per_key(mut sizes: Vec<u64>, max_bytes: u64) -> u64 {
    sizes.sort_unstable();
    let (mut remaining_bytes, mut remaining_keys) = (max_bytes, sizes.len() as u64);
    for size in sizes {
        let share = remaining_bytes / remaining_keys;
        if size > share {
            return share;
        }
        remaining_bytes -= size;
        remaining_keys -= 1;
    }
    max_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_keys_give_way_first() {
        assert_eq!(bytes_per_key(vec![10, 20, 30], 60), 60, "everything fits");
        assert_eq!(bytes_per_key(vec![100, 10, 20], 60), 30, "only the largest key has more");
        assert_eq!(bytes_per_key(vec![100, 10, 200], 60), 25);
        assert_eq!(bytes_per_key(vec![100, 100, 100], 60), 20);
        assert_eq!(bytes_per_key(vec![5], 0), 0);
        assert_eq!(bytes_per_key(Vec::new(), 60), 60);
    }
}
