//! The statements for answers that may be replayed. Each change is one statement, so that no other process can
//! interfere.

use async_trait::async_trait;
use sqlx::QueryBuilder;

use super::dialect::{Db, DbPool, SqlStore};
use super::error_conversion::during;
use super::records;
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
        find(&self.readers, scope).await.map_err(during("looking up an answer"))
    }

    async fn find_retried_replays(
        &self,
        fingerprint: &[u8; 32],
        now: Timestamp,
    ) -> Result<Vec<StoredReplay>, StoreError> {
        find_retried(&self.readers, fingerprint, now).await.map_err(during("looking up a retried request"))
    }

    async fn find_replay_of_request(&self, request_id: &RequestId) -> Result<Option<StoredReplay>, StoreError> {
        find_of_request(&self.readers, request_id).await.map_err(during("looking up the answer of a request"))
    }

    async fn image_requests_with_replay(
        &self,
        user: &UserId,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RequestId>, StoreError> {
        image_requests(&self.readers, user, since, limit).await.map_err(during("listing the requests of a user"))
    }

    async fn list_replays(&self) -> Result<Vec<StoredReplay>, StoreError> {
        list(&self.readers).await.map_err(during("listing answers"))
    }

    async fn remove_expired_replays(&self, now: Timestamp, except: &[[u8; 32]], limit: u32) -> Result<u32, StoreError> {
        self.remove_expired_shared_answers(now).await?;
        remove_expired(&self.writer, now, except, limit).await.map_err(during("removing expired answers"))
    }

    async fn deleted_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        deleted_keys(&self.readers, keys).await.map_err(during("looking for deleted keys"))
    }

    async fn states_by_fingerprint(
        &self,
        fingerprint: &[u8; 32],
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<JobState>, StoreError> {
        records::states_by_fingerprint(&self.readers, fingerprint, since, limit)
            .await
            .map_err(during("looking up a retried request"))
    }

    async fn job_progress(&self, request_id: &RequestId) -> Result<Option<JobProgress>, StoreError> {
        records::job_progress(&self.readers, request_id).await.map_err(during("looking up an earlier request"))
    }

    fn shared_answers(&self) -> Option<&dyn SharedAnswers> {
        self.answers_of_all_nodes()
    }
}

async fn find(pool: &DbPool, scope: &[u8; 32]) -> sqlx::Result<Option<StoredReplay>> {
    let query = sqlx::query_as::<_, ReplayColumns>(FIND).bind(scope.as_slice());
    query.fetch_optional(pool).await?.map(ReplayColumns::decode_for_pool).transpose()
}

async fn find_retried(pool: &DbPool, fingerprint: &[u8; 32], now: Timestamp) -> sqlx::Result<Vec<StoredReplay>> {
    let query = sqlx::query_as::<_, ReplayColumns>(FIND_RETRIED).bind(fingerprint.as_slice()).bind(now.to_string());
    query.fetch_all(pool).await?.into_iter().map(ReplayColumns::decode_for_pool).collect()
}

async fn find_of_request(pool: &DbPool, request_id: &RequestId) -> sqlx::Result<Option<StoredReplay>> {
    let query = sqlx::query_as::<_, ReplayColumns>(FIND_OF_REQUEST).bind(request_id.as_str());
    query.fetch_optional(pool).await?.map(ReplayColumns::decode_for_pool).transpose()
}

async fn image_requests(pool: &DbPool, user: &UserId, since: Timestamp, limit: u32) -> sqlx::Result<Vec<RequestId>> {
    let query = sqlx::query_scalar::<_, String>(IMAGE_REQUESTS).bind(user.as_str()).bind(since.to_string());
    let found = query.bind(LOOKED_AT).bind(i64::from(limit)).fetch_all(pool).await?;
    Ok(found.into_iter().map(RequestId::from).collect())
}

async fn deleted_keys(pool: &DbPool, keys: &[String]) -> sqlx::Result<Vec<String>> {
    let mut deleted = Vec::new();
    for keys in keys.chunks(KEYS_PER_QUERY) {
        let mut query: QueryBuilder<Db> =
            QueryBuilder::new("SELECT id FROM keys WHERE deleted_at IS NOT NULL AND id IN (");
        let mut ids = query.separated(", ");
        for key in keys {
            ids.push_bind(key.as_str());
        }
        query.push(")");
        deleted.extend(query.build_query_scalar::<String>().fetch_all(pool).await?);
    }
    Ok(deleted)
}

async fn list(pool: &DbPool) -> sqlx::Result<Vec<StoredReplay>> {
    let query = sqlx::query_as::<_, ReplayColumns>("SELECT * FROM replays ORDER BY created_at, request_id");
    query.fetch_all(pool).await?.into_iter().map(ReplayColumns::decode_for_pool).collect()
}

async fn remove_expired(pool: &DbPool, now: Timestamp, except: &[[u8; 32]], limit: u32) -> sqlx::Result<u32> {
    let mut query: QueryBuilder<Db> =
        QueryBuilder::new("DELETE FROM replays WHERE scope IN (SELECT scope FROM replays WHERE expires_at <= ");
    query.push_bind(now.to_string());
    if !except.is_empty() {
        let mut scopes = query.push(" AND scope NOT IN (").separated(", ");
        for scope in except {
            scopes.push_bind(scope.as_slice());
        }
        query.push(")");
    }
    query.push(" LIMIT ").push_bind(i64::from(limit)).push(")");
    let removed = query.build().execute(pool).await?.rows_affected();
    Ok(u32::try_from(removed).unwrap_or(limit))
}
