//! The statements for answers that may be replayed. Each change is one statement, so that no other process can
//! interfere.

use std::time::Duration;

use async_trait::async_trait;

use super::SqlStore;
use super::decode::{optional_count, parsed, text};
use super::driver::{SqlPool, SqlRow};
use super::error_conversion::during;
use super::records::STATES_BY_FINGERPRINT;
use super::statement::{StatementBuilder, sql};
use crate::gateway::store::replay_columns::ReplayColumns;
use crate::gateway::store::{
    JobProgress, JobState, ReplayStore, RequestId, SharedAnswers, StoreError, StoredReplay, Timestamp, UserId,
};

pub(in super::super) const FIND: &str = "SELECT * FROM replays WHERE scope = $1";
/// An answer that was announced to a repeat can have a claim of its own beside that of its request.
pub(in super::super) const FIND_OF_REQUEST: &str =
    "SELECT * FROM replays WHERE request_id = $1 ORDER BY status IS NULL, created_at DESC LIMIT 1";
/// Only the newest records are looked at, because a user may have made any number of other requests since.
pub(in super::super) const IMAGE_REQUESTS: &str = "SELECT request_id FROM \
    (SELECT request_id, operation, created_at, seq FROM records WHERE user_id = $1 AND created_at >= $2 \
    ORDER BY created_at DESC, seq DESC LIMIT $3) AS newest \
    WHERE operation IN ('create_image', 'edit_image') \
    AND EXISTS (SELECT 1 FROM replays WHERE replays.request_id = newest.request_id) \
    ORDER BY created_at DESC, seq DESC LIMIT $4";

const FIND_RETRIED: &str =
    "SELECT * FROM replays WHERE fingerprint = $1 AND retry_until > $2 ORDER BY created_at, request_id";

/// The number of records that are looked at for requests for images (our choice): they are read within milliseconds.
const LOOKED_AT: i64 = 1000;
/// The number of keys of one query (our choice): below the limits of both databases on parameters.
const KEYS_PER_QUERY: usize = 500;

#[async_trait]
impl ReplayStore for SqlStore {
    async fn find_replay(&self, scope: &[u8; 32]) -> Result<Option<StoredReplay>, StoreError> {
        self.fetch_optional("looking up an answer", sql(FIND).bind(scope.as_slice()), replay_from_row).await
    }

    async fn find_retried_replays(
        &self,
        fingerprint: &[u8; 32],
        now: Timestamp,
    ) -> Result<Vec<StoredReplay>, StoreError> {
        let query = sql(FIND_RETRIED).bind(fingerprint.as_slice()).bind(now.to_string());
        self.fetch_all("looking up a retried request", query, replay_from_row).await
    }

    async fn find_replay_of_request(&self, request_id: &RequestId) -> Result<Option<StoredReplay>, StoreError> {
        self.fetch_optional(
            "looking up the answer of a request",
            sql(FIND_OF_REQUEST).bind(request_id.as_str()),
            replay_from_row,
        )
        .await
    }

    async fn image_requests_with_replay(
        &self,
        user: &UserId,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RequestId>, StoreError> {
        self.display_readers().await;
        let query = sql(IMAGE_REQUESTS).bind(user.as_str()).bind(since.to_string());
        let query = query.bind(LOOKED_AT).bind(i64::from(limit));
        self.fetch_all("listing the requests of a user", query, |row| text(row, "request_id")).await
    }

    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError> {
        let query = sql("SELECT * FROM replays ORDER BY created_at, request_id");
        self.fetch_all("listing answers", query, replay_from_row).await
    }

    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError> {
        if let Some(store) = self.as_shared() {
            store.remove_expired_shared_answers(now).await?;
        }
        remove_expired(&self.writer, now, except, limit).await.map_err(during("removing expired answers"))
    }

    async fn deleted_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        let mut deleted = Vec::new();
        for keys in keys.chunks(KEYS_PER_QUERY) {
            let mut query: StatementBuilder =
                StatementBuilder::new("SELECT id FROM keys WHERE deleted_at IS NOT NULL AND id IN ");
            query.push_list(keys);
            let found = self.fetch_all("looking for deleted keys", query.build(), |row| text(row, "id")).await?;
            deleted.extend::<Vec<String>>(found);
        }
        Ok(deleted)
    }

    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError> {
        self.move_all_records().await?;
        let query = sql(STATES_BY_FINGERPRINT);
        let query = query.bind(fingerprint.as_slice()).bind(since.to_string()).bind(i64::from(limit));
        self.fetch_all("looking up a retried request", query, |row| parsed(row, "state")).await
    }

    async fn job_progress(&self, request_id: &RequestId) -> Result<Option<JobProgress>, StoreError> {
        self.move_all_records().await?;
        let query = sql("SELECT state, created_at, latency_ms FROM records WHERE request_id = $1");
        let from_row = |row: &SqlRow| {
            let created_at: Timestamp = parsed(row, "created_at")?;
            // Only the process of the job writes its duration.
            let duration = optional_count(row, "latency_ms")?.map(Duration::from_millis);
            let ended_at = duration.map(|duration| created_at + duration);
            Ok(JobProgress { state: parsed(row, "state")?, ended_at })
        };
        self.fetch_optional("looking up an earlier request", query.bind(request_id.as_str()), from_row).await
    }

    fn shared_answers(&self) -> Option<&dyn SharedAnswers> {
        self.as_shared().map(|store| store as _)
    }
}

async fn remove_expired(pool: &SqlPool, now: Timestamp, except: &[[u8; 32]], limit: u32) -> sqlx::Result<u32> {
    let mut query: StatementBuilder =
        StatementBuilder::new("DELETE FROM replays WHERE scope IN (SELECT scope FROM replays WHERE expires_at <= ");
    query.push_bind(now.to_string());
    if !except.is_empty() {
        query.push(" AND scope NOT IN ").push_list(except.iter().map(<[u8; 32]>::as_slice));
    }
    query.push(" LIMIT ").push_bind(i64::from(limit)).push(")");
    let removed = query.build().execute(pool).await?;
    Ok(u32::try_from(removed).unwrap_or(limit))
}

fn replay_from_row(row: &SqlRow) -> sqlx::Result<StoredReplay> {
    ReplayColumns::try_from(row)?.decode().map_err(sqlx::Error::Decode)
}
