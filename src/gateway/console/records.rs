//! The operations on records: which records an actor may see, and which of their fields.
//!
//! A member sees the records of its own keys, without the accounts that served them; records of other users do not
//! exist for it.

use serde_json::Map;

use super::told::{limit, moment};
use super::trouble::of_store;
use super::{Console, list};
use crate::error::{Error, MissingResource, Rejection, RejectionReason};
use crate::gateway::people::Actor;
use crate::gateway::store::{
    AttemptClass, AttemptEntry, DeliveredImageEntry, JobState, TokenDetails, TokenUsage as Tokens,
};
use crate::gateway::usage::{NamedRecord, NamedRecordPage, RecordFilter, UsageError, UsageReader, csv};
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

// === impl Console ===

impl Console {
    /// The most records of one spreadsheet: a number that fits into memory easily.
    pub(crate) const SHEET: u32 = 10_000;

    /// Returns a page of records, newest first.
    ///
    /// # Errors
    ///
    /// 400 if the page begins after a record that does not exist, 404 if the named user does not exist.
    pub(crate) async fn list_records(
        &self,
        actor: &Actor,
        query: &ListRecordsQuery,
    ) -> Result<types::RecordList, Error> {
        let NamedRecordPage { records, has_more } = self.page(actor, query, limit(query.limit)).await?;
        let data = records.into_iter().map(shown).collect();
        Ok(types::RecordList { object: list(), data, has_more, extra: Map::new() })
    }

    /// Returns the newest records as comma-separated values, at most ten thousand; `limit` is ignored.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::list_records`].
    pub(crate) async fn sheet_of_records(&self, actor: &Actor, query: &ListRecordsQuery) -> Result<String, Error> {
        let page = self.page(actor, query, Self::SHEET).await?;
        Ok(csv::heading() + &csv::records(&page.records))
    }

    /// Returns the record with this request id.
    ///
    /// # Errors
    ///
    /// 404 if there is none, or if it belongs to another user.
    pub(crate) async fn retrieve_record(&self, actor: &Actor, request_id: &str) -> Result<types::Record, Error> {
        let found = self.usage().record(&request_id.into(), actor.owner()).await.map_err(of_store)?;
        let found = found.ok_or_else(|| Error::NotFound(MissingResource::Record(request_id.to_owned())))?;
        Ok(shown(visible(found, actor)))
    }

    async fn page(&self, actor: &Actor, query: &ListRecordsQuery, limit: u32) -> Result<NamedRecordPage, Error> {
        let filter = RecordFilter {
            owner: self.whose(actor, query.user.as_deref()).await?,
            key: query.key.clone(),
            group: query.group.clone(),
            end_user: query.end_user.clone(),
            state: query.state.map(state),
            since: moment(query.since),
            until: moment(query.until),
            before: query.before.as_deref().map(Into::into),
            ..RecordFilter::default()
        };
        let page = self.usage().records(&filter, limit).await.map_err(refused)?;
        let records = page.records.into_iter().map(|record| visible(record, actor)).collect();
        Ok(NamedRecordPage { records, ..page })
    }

    /// Returns the reader of records and counts.
    pub(super) fn usage(&self) -> UsageReader {
        UsageReader::new(self.store.clone())
    }
}

fn refused(error: UsageError) -> Error {
    match error {
        UsageError::UnknownPlace(id) => {
            let message = format!("Invalid 'before': the record '{id}' does not exist.");
            Rejection::new("before", RejectionReason::InvalidValue, message).into()
        }
        UsageError::Store(error) => of_store(error),
    }
}

/// Removes the fields of a record that this actor must not see.
fn visible(mut found: NamedRecord, actor: &Actor) -> NamedRecord {
    if actor.owner().is_some() {
        found.record.account = None;
        // No account has an empty name, so an empty name means that there is none to see.
        found.record.attempts.iter_mut().for_each(|attempt| {
            attempt.account.clear();
            attempt.upstream_request_id = None;
        });
        // The upstream's words may name the account, and the text model may be a setting of the account.
        found.record.error_detail = None;
        found.record.host_model = None;
    }
    found
}

/// Returns the record as the API shows it.
fn shown(NamedRecord { record, key_name, user_name }: NamedRecord) -> types::Record {
    types::Record {
        request_id: record.request_id.to_string(),
        created_at: record.created_at.into(),
        operation: record.operation,
        model: record.model,
        stream: record.stream,
        state: shown_state(record.state),
        error_code: record.error_code,
        error_reason: record.error_reason.and_then(|reason| reason.parse().ok()),
        error_detail: record.error_detail,
        size: record.size,
        quality: record.quality,
        output_format: record.output_format,
        n: record.n.map(u64::from),
        delivered: record.delivered.into_iter().map(image).collect(),
        usage: record.usage.map(tokens),
        cost_usd: record.cost_usd,
        latency_ms: record.latency_ms,
        first_byte_ms: record.first_byte_ms,
        attempts: record.attempts.into_iter().map(attempt).collect(),
        account: record.account,
        group: record.group,
        user: record.user.to_string(),
        user_name,
        key: record.key.to_string(),
        key_name,
        end_user: record.end_user,
        fallback: record.fallback,
        injected_tool: record.injected_tool,
        missing: record.missing.map(u64::from),
        image_model: record.image_model,
        host_model: record.host_model,
        host_usage: record.host_usage.map(tokens),
        maybe_paid_twice: Some(record.maybe_paid_twice),
        extra: Map::new(),
    }
}

fn image(DeliveredImageEntry { size, output_format, quality }: DeliveredImageEntry) -> types::RecordImage {
    types::RecordImage { size, output_format, quality, extra: Map::new() }
}

fn tokens(tokens: Tokens) -> types::RecordUsage {
    types::RecordUsage {
        input_tokens: tokens.input_tokens,
        input_tokens_details: tokens.input_tokens_details.map(details),
        output_tokens: tokens.output_tokens,
        output_tokens_details: tokens.output_tokens_details.map(details),
        total_tokens: tokens.total_tokens,
        extra: Map::new(),
    }
}

fn details(TokenDetails { image_tokens, text_tokens }: TokenDetails) -> types::RecordTokens {
    types::RecordTokens { image_tokens, text_tokens, extra: Map::new() }
}

fn attempt(attempt: AttemptEntry) -> types::RecordAttempt {
    let class = attempt.class.map(|class| match class {
        AttemptClass::N => types::RecordClass::N,
        AttemptClass::F => types::RecordClass::F,
        AttemptClass::X => types::RecordClass::X,
        AttemptClass::R => types::RecordClass::R,
        AttemptClass::O => types::RecordClass::O,
    });
    types::RecordAttempt {
        account: Some(attempt.account).filter(|account| !account.is_empty()),
        class,
        status: attempt.status.map(u64::from),
        latency_ms: attempt.latency_ms,
        upstream_request_id: attempt.upstream_request_id,
        extra: Map::new(),
    }
}

fn state(state: types::RecordState) -> JobState {
    match state {
        types::RecordState::Running => JobState::Running,
        types::RecordState::Succeeded => JobState::Succeeded,
        types::RecordState::Failed => JobState::Failed,
        types::RecordState::Refused => JobState::Refused,
        types::RecordState::Cancelled => JobState::Cancelled,
        types::RecordState::Interrupted => JobState::Interrupted,
    }
}

fn shown_state(state: JobState) -> types::RecordState {
    match state {
        JobState::Running => types::RecordState::Running,
        JobState::Succeeded => types::RecordState::Succeeded,
        JobState::Failed => types::RecordState::Failed,
        JobState::Refused => types::RecordState::Refused,
        JobState::Cancelled => types::RecordState::Cancelled,
        JobState::Interrupted => types::RecordState::Interrupted,
    }
}
