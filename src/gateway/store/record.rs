//! The record of one job as it is written, and the filter with which records are read.
//!
//! A row holds the `Record` of the admin API as JSON, and beside it the values that are searched, sorted or summed, in
//! columns of their own. So a new property of records needs no column; the upkeep of columns, indexes and counts is known
//! only to the statements of the store.

use super::{AnswerCharges, AttemptClass, BindingDigest, CostBasis, CostReason, JobState, UserId};
use crate::gateway::money::Usd;
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

/// The record of one job, with the values that its readers do not get.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JobRecord {
    /// The record as its readers get it, without the names of its user and its key. It is stored as JSON.
    pub(crate) document: types::Record,
    /// The cost, exact to a billionth; the document has it in dollars.
    pub(crate) cost: Option<Usd>,
    /// The most that one call of the job can cost, if that was known before it began. If the process is killed, this is
    /// the cost of the record.
    pub(crate) max_cost: Option<Usd>,
    /// The most that the whole job can cost, with its fallbacks. If the cost is unknown, this counts against budgets.
    pub(crate) max_job_cost: Option<Usd>,
    /// Everything in the answers that has a price. Not stored: the document has the tokens that readers get.
    pub(crate) usage: ModelUsage,
    /// The keyed hash of API key and request that identifies a client's own retry of this job.
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// The values that belong to the account from the end of the job on. They have rows of their own.
    pub(crate) bindings: Vec<BindingDigest>,
}

/// A running job, with the most that it can cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunningJob {
    /// The record, without the names of its user and its key.
    pub(crate) document: types::Record,
    /// The most that the job can cost, if that is known.
    pub(crate) max_cost: Option<Usd>,
}

/// The token counts of a job. They are separate for each model, because each model has its own price.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelUsage {
    /// The tokens of the model that makes images.
    pub(crate) image: Option<TokenUsage>,
    /// The tokens of the text model that runs the image tool, or that makes a response without one.
    pub(crate) host: Option<TokenUsage>,
    /// The other things that can change the price.
    pub(crate) charges: AnswerCharges,
}

/// The tokens of one model, as the upstream counted them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TokenUsage {
    /// The counts that readers get.
    pub(crate) counts: types::RecordUsage,
    /// The input tokens that the upstream wrote to its cache, by the lifetime of the cache entry.
    pub(crate) cache_writes: CacheWrites,
    /// True if the upstream did not state the kinds of the input tokens.
    pub(crate) is_breakdown_assumed: bool,
    /// True if the upstream did not state the kinds of the cached tokens, and there can be both kinds.
    pub(crate) is_cache_breakdown_assumed: bool,
    /// The number of calls that gave an image and whose tokens are missing here.
    pub(crate) uncounted_calls: u32,
}

/// The input tokens that an upstream wrote to its cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheWrites {
    /// For an entry that lives for some minutes, or whose lifetime is not stated.
    pub(crate) short: u64,
    /// For an entry that lives for an hour.
    pub(crate) hour: u64,
}

// === impl JobRecord ===

impl JobRecord {
    /// The longest free text of a request that is stored, in bytes, so that a record stays small whatever a caller sends
    /// (our choice).
    pub(crate) const MAX_TEXT_BYTES: usize = 256;

    /// Shortens a caller's text to the length that a record may hold.
    pub(crate) fn truncate_text(mut text: String) -> String {
        text.truncate(text.floor_char_boundary(Self::MAX_TEXT_BYTES));
        text
    }

    /// Shortens the texts of the request.
    pub(crate) fn truncate_texts(&mut self) {
        let types::Record { model, size, quality, output_format, end_user, adapted, .. } = &mut self.document;
        for text in [model, size, quality, output_format, end_user, adapted].into_iter().flatten() {
            text.truncate(text.floor_char_boundary(Self::MAX_TEXT_BYTES));
        }
    }

    /// Sets the token counts that the upstream reported for each model.
    pub(crate) fn set_usage(&mut self, usage: ModelUsage) {
        let counts = |usage: &Option<TokenUsage>| usage.as_ref().map(|usage| usage.counts.clone());
        (self.document.usage, self.document.host_usage) = (counts(&usage.image), counts(&usage.host));
        self.usage = usage;
    }

    /// Sets the cost.
    pub(crate) fn set_cost(&mut self, cost: Option<Usd>, basis: CostBasis, reason: Option<CostReason>) {
        (self.cost, self.document.cost_usd) = (cost, cost.map(Usd::dollars));
        (self.document.cost_basis, self.document.cost_reason) = (Some(basis), reason);
    }

    /// Closes the record of a job whose process has ended. If it has no attempt, it gets one for the account that the
    /// intent names, because it is unknown whether that account was called. The cost is the most that the attempts can
    /// cost. Such an outcome is provisional: it has no duration.
    pub(super) fn interrupt(&mut self) {
        let document = &mut self.document;
        document.state = JobState::Interrupted;
        if let (true, Some(account)) = (document.attempts.is_empty(), &document.account) {
            let (account, class) = (Some(account.clone()), Some(AttemptClass::MaybePaid));
            document.attempts.push(types::RecordAttempt { account, class, ..Default::default() });
        }
        let may_have_cost = |attempt: &&types::RecordAttempt| {
            matches!(attempt.class, Some(AttemptClass::MaybePaid | AttemptClass::OutputBegun))
        };
        let cost = self.max_cost.map(|most| {
            let costs =
                document.attempts.iter().filter(may_have_cost).map(|attempt| max_cost_of(attempt).unwrap_or(most));
            let sum = costs.reduce(Usd::plus).unwrap_or(most);
            self.max_job_cost.map_or(sum, |most_of_job| sum.min(most_of_job))
        });
        let basis = if cost.is_some() { CostBasis::Estimated } else { CostBasis::Unknown };
        self.set_cost(cost, basis, Some(CostReason::Interrupted));
    }
}

/// Limits a count to the largest integer of the database, 2^63 - 1.
pub(super) fn to_sql_integer(value: Option<u64>) -> Option<i64> {
    value.map(|value| i64::try_from(value).unwrap_or(i64::MAX))
}

/// Returns the tokens of the image model and the text model together: input, output, and total tokens.
pub(crate) fn all_tokens(record: &types::Record) -> [Option<u64>; 3] {
    let sum = |count: fn(&types::RecordUsage) -> Option<u64>| {
        let counts = [&record.usage, &record.host_usage].map(|usage| usage.as_ref().and_then(count));
        counts.into_iter().flatten().reduce(u64::saturating_add)
    };
    [sum(|usage| usage.input_tokens), sum(|usage| usage.output_tokens), sum(|usage| usage.total_tokens)]
}

/// Returns the most that a call of a fallback can cost; `None` if that is not known, or if the call was not part of one.
pub(crate) fn max_cost_of(attempt: &types::RecordAttempt) -> Option<Usd> {
    attempt.max_cost_usd.and_then(Usd::from_dollars)
}

/// Returns the number of requested images that a successful answer lacks; `None` if it lacks none.
pub(crate) fn missing_images(record: &types::Record) -> Option<u64> {
    let delivered = record.delivered.len() as u64;
    let missing = record.n.filter(|_| record.state == JobState::Succeeded)?.saturating_sub(delivered);
    (missing > 0).then_some(missing)
}

impl Default for JobState {
    /// The state of a new record.
    fn default() -> Self {
        Self::Running
    }
}

/// A filter for records.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordFilter {
    /// Only the records of this user, who reads them: the records of other users are treated as absent.
    pub(crate) owner: Option<UserId>,
    /// The filters and the order that the admin API has. Its `limit` has no effect.
    pub(crate) query: ListRecordsQuery,
    /// The most records to return; `None` for all. The first ones in the order are returned.
    pub(crate) limit: Option<u32>,
}

// === impl RecordFilter ===

impl RecordFilter {
    /// The most records that a list sorts by another value than time (our choice): no index has that order, so all of
    /// them are read.
    pub(crate) const SORTED_MAX: u32 = 10_000;

    /// The state of all wanted records; `None` means all that are finished.
    pub(crate) fn state(&self) -> Option<JobState> {
        let is_succeeded = self.query.outcome == Some(types::RecordOutcome::Succeeded);
        self.query.state.or(is_succeeded.then_some(JobState::Succeeded))
    }

    /// True for only the finished records that have not succeeded.
    pub(crate) fn is_unsuccessful(&self) -> bool {
        self.query.outcome == Some(types::RecordOutcome::Unsuccessful)
    }
}
