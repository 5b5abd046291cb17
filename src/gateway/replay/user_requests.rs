//! Finds the answers of requests by their ids, and the requests of a user, for pages that show what was paid for.

use super::{AnswerStore, AnswerView, ReplayError};
use crate::gateway::store::{RequestId, Timestamp, UserId};

impl AnswerStore {
    /// Does the same as [`AnswerStore::find_request`] for the request with this id.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn find_request_by_id(&self, request_id: &RequestId) -> Result<Option<AnswerView>, ReplayError> {
        let Some(stored) = self.store.find_replay_of_request(request_id).await? else {
            return Ok(None);
        };
        let found = self.find_answer(&stored.claim.scope).await?;
        Ok(found.filter(|found| found.id.request_id == *request_id))
    }

    /// Returns at most `limit` requests for images of the user that began at `since` or later and whose answers are kept
    /// or in progress, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn list_image_requests(
        &self,
        user: &UserId,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RequestId>, ReplayError> {
        Ok(self.store.image_requests_with_replay(user, since, limit).await?)
    }
}
