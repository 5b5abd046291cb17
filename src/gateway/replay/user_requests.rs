//! Finds the answers of requests by their ids, and the requests of a user, for pages that show what was paid for.

use super::{AnswerReplay, EarlierAnswer, ReplayError};
use crate::gateway::store::{RequestId, Timestamp, UserId};

impl AnswerReplay {
    /// Does the same as [`AnswerReplay::find_request`] for the request with this id.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn find_request_by_id(
        &self,
        request_id: &RequestId,
    ) -> Result<Option<EarlierAnswer>, ReplayError> {
        let Some(stored) = self.idempotent_answers.store.find_replay_of_request(request_id).await? else {
            return Ok(None);
        };
        let found = self.idempotent_answers.find_answer(&stored.claim.scope).await?;
        Ok(found.filter(|found| found.request_id == *request_id))
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
        Ok(self.idempotent_answers.store.image_requests_with_replay(user, since, limit).await?)
    }
}
