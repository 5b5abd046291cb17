//! The password attempts of all nodes. All times are those of the server, so the clocks of the nodes do not matter.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;

use super::PostgresDatabase;
use super::error_conversion::during;
use crate::gateway::store::StoreError;
use crate::gateway::store::shared_attempts::{AttemptBucket, SharedAttempts};
use crate::gateway::store::sql::transaction::{rollback, transact};

/// Returns the seconds until each bucket is empty, and locks them until the end of the transaction: in the order of their
/// hashes, so that no two attempts wait for each other. A bucket that does not exist yet is created empty.
const LOCK: &str = "INSERT INTO attempt_buckets AS held (hash, empty_at) \
    SELECT hash, clock_timestamp() FROM unnest($1::BYTEA[]) AS hash ORDER BY hash \
    ON CONFLICT (hash) DO UPDATE SET empty_at = held.empty_at \
    RETURNING hash, CAST(extract(epoch FROM empty_at - clock_timestamp()) AS DOUBLE PRECISION)";

const ADD: &str = "UPDATE attempt_buckets SET \
    empty_at = greatest(empty_at, clock_timestamp()) + make_interval(secs => added.seconds) \
    FROM unnest($1::BYTEA[], $2::DOUBLE PRECISION[]) AS added (hash, seconds) WHERE attempt_buckets.hash = added.hash";

const SUBTRACT: &str = "UPDATE attempt_buckets SET empty_at = empty_at - make_interval(secs => removed.seconds) \
    FROM unnest($1::BYTEA[], $2::DOUBLE PRECISION[]) AS removed (hash, seconds) \
    WHERE attempt_buckets.hash = removed.hash";

const EMPTY: &str = "DELETE FROM attempt_buckets WHERE hash = ANY ($1)";

/// Removes some buckets that are empty: more than an attempt can add.
const REMOVE_EMPTY: &str = "DELETE FROM attempt_buckets WHERE hash IN (SELECT hash FROM attempt_buckets \
    WHERE empty_at < clock_timestamp() ORDER BY empty_at LIMIT 8 FOR UPDATE SKIP LOCKED)";

#[async_trait]
impl SharedAttempts for PostgresDatabase {
    async fn add_attempt(&self, buckets: &[AttemptBucket]) -> Result<Option<Duration>, StoreError> {
        transact!(self.begin(), |transaction| {
            let filled = lock(transaction, buckets).await?;
            let filled = |bucket: &AttemptBucket| filled.get(&bucket.hash.0[..]).copied().unwrap_or_default();
            let longest = buckets.iter().map(|bucket| wait(bucket, filled(bucket))).max();
            if let Some(wait) = longest.filter(|wait| !wait.is_zero()) {
                return Ok(rollback(Some(wait)));
            }
            sqlx::query(ADD).bind(hashes(buckets)).bind(seconds(buckets)).execute(&mut *transaction).await?;
            sqlx::query(REMOVE_EMPTY).execute(&mut *transaction).await?;
            None
        })
        .map_err(during("counting an attempt to sign in"))
    }

    async fn remove_attempt(&self, buckets: &[AttemptBucket]) -> Result<(), StoreError> {
        let (emptied, others): (Vec<_>, Vec<_>) = buckets.iter().cloned().partition(|bucket| bucket.is_emptied);
        transact!(self.begin(), |transaction| {
            lock(transaction, buckets).await?;
            sqlx::query(SUBTRACT).bind(hashes(&others)).bind(seconds(&others)).execute(&mut *transaction).await?;
            sqlx::query(EMPTY).bind(hashes(&emptied)).execute(&mut *transaction).await?;
        })
        .map_err(during("forgetting an attempt to sign in"))
    }
}

/// Locks the buckets, and returns the time until each of them is empty.
async fn lock(connection: &mut PgConnection, buckets: &[AttemptBucket]) -> sqlx::Result<HashMap<Vec<u8>, Duration>> {
    let rows: Vec<(Vec<u8>, f64)> = sqlx::query_as(LOCK).bind(hashes(buckets)).fetch_all(connection).await?;
    let filled = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Ok(rows.into_iter().map(|(hash, seconds)| (hash, filled(seconds))).collect())
}

/// Returns the time until a bucket accepts one more attempt.
fn wait(bucket: &AttemptBucket, filled: Duration) -> Duration {
    (filled + bucket.interval).saturating_sub(bucket.interval * bucket.burst)
}

fn hashes(buckets: &[AttemptBucket]) -> Vec<&[u8]> {
    buckets.iter().map(|bucket| &bucket.hash.0[..]).collect()
}

fn seconds(buckets: &[AttemptBucket]) -> Vec<f64> {
    buckets.iter().map(|bucket| bucket.interval.as_secs_f64()).collect()
}
