//! The operations on records: which records an actor may see, and which of their fields.
//!
//! A member sees the records of its own keys, without the accounts that served them; a record of another user is
//! answered with 404, as if it did not exist.

use super::error_conversion::from_store_error;
use super::request_fields::page_size;
use super::{Console, list_object};
use crate::error::{Error, MissingResource, Rejection, RejectionReason};
use crate::gateway::people::Actor;
use crate::gateway::store::{JobState, RecordSort};
use crate::gateway::usage::{RecordFilter, RecordPage, UsageError, UsageReader, csv};
use crate::gateway::work::Work;
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

// === impl Console ===

impl Console {
    /// The maximum number of records in one CSV text (our choice), so that it fits into memory.
    pub(crate) const CSV_RECORDS_MAX: u32 = 10_000;

    /// The most records that a list sorts by another value than time.
    pub(crate) const SORTED_RECORDS_MAX: u32 = RecordFilter::SORTED_MAX;

    /// Returns a page of records.
    ///
    /// # Errors
    ///
    /// 400 if the record that `before` names does not exist, 403 if a member filters by account, 404 if the named user does
    /// not exist.
    pub(crate) async fn list_records(
        &self,
        actor: &Actor,
        query: &ListRecordsQuery,
    ) -> Result<types::RecordList, Error> {
        actor.charge(Work::Report);
        let RecordPage { records, has_more } = self.page(actor, query, page_size(query.limit)).await?;
        Ok(types::RecordList { object: list_object(), data: records, has_more })
    }

    /// Returns the newest records as comma-separated values, at most [`Self::CSV_RECORDS_MAX`]; `limit` is
    /// ignored.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::list_records`].
    pub(crate) async fn records_csv(&self, actor: &Actor, query: &ListRecordsQuery) -> Result<String, Error> {
        actor.charge(Work::Report);
        let page = self.page(actor, query, Self::CSV_RECORDS_MAX).await?;
        csv::records(&page.records).map_err(from_csv_error)
    }

    /// Returns the record with this request id.
    ///
    /// # Errors
    ///
    /// 404 if there is no such record, or if the actor is a member and the record belongs to another user.
    pub(crate) async fn retrieve_record(&self, actor: &Actor, request_id: &str) -> Result<types::Record, Error> {
        let record = self.usage().record(&request_id.into(), actor.restricted_to()).await.map_err(from_store_error)?;
        let record = record.ok_or_else(|| Error::NotFound(MissingResource::Record(request_id.to_owned())))?;
        Ok(redact_for_actor(record, actor))
    }

    async fn page(&self, actor: &Actor, query: &ListRecordsQuery, limit: u32) -> Result<RecordPage, Error> {
        // A member must not learn which account served a request.
        if query.account.is_some() && !actor.is_admin() {
            return Err(Error::Denied);
        }
        let sort = query.sort.unwrap_or(RecordSort::Time);
        if sort != RecordSort::Time && query.before.is_some() {
            let message = "Invalid 'before': a list that is sorted by another value than time has one page.";
            return Err(Rejection::new("before", RejectionReason::InvalidValue, message).into());
        }
        let filter = RecordFilter {
            owner: self.owner_filter(actor, query.user.as_deref()).await?,
            query: ListRecordsQuery { user: None, ..query.clone() },
            limit: None,
        };
        // No record has succeeded and is in another state.
        let is_succeeded = query.outcome == Some(types::RecordOutcome::Succeeded);
        if is_succeeded && filter.state() != Some(JobState::Succeeded) {
            return Ok(RecordPage { records: Vec::new(), has_more: false });
        }
        let page = self.usage().records(&filter, limit).await.map_err(from_usage_error)?;
        let records = page.records.into_iter().map(|record| redact_for_actor(record, actor)).collect();
        Ok(RecordPage { records, has_more: page.has_more && sort == RecordSort::Time })
    }

    /// Returns the reader of records and usage counts.
    pub(super) fn usage(&self) -> UsageReader {
        UsageReader::new(self.store.clone())
    }
}

/// Converts an error of a text of comma-separated values.
pub(super) fn from_csv_error(error: serde_json::Error) -> Error {
    tracing::error!(%error, "an answer could not be serialized");
    Error::Internal
}

fn from_usage_error(error: UsageError) -> Error {
    match error {
        UsageError::UnknownCursor(id) => {
            let message = format!("Invalid 'before': the record '{id}' does not exist.");
            Rejection::new("before", RejectionReason::InvalidValue, message).into()
        }
        UsageError::Store(error) => from_store_error(error),
    }
}

/// Removes the fields of a record that this actor must not see.
fn redact_for_actor(mut record: types::Record, actor: &Actor) -> types::Record {
    if !actor.is_admin() {
        record.account = None;
        for attempt in &mut record.attempts {
            (attempt.account, attempt.upstream_request_id) = (None, None);
        }
        // The upstream's message may name the account, and the text model may be a setting of the account.
        record.error_detail = None;
        record.host_model = None;
        record.price_version = None;
    }
    record
}
