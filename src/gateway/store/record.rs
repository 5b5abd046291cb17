//! The record of one job, as it is stored and as `imagate usage --json` prints it.
//!
//! The order and the names of the fields must not change: they are those of the JSON line.

use serde::{Deserialize, Serialize};

use super::{
    AnswerCharges, AttemptClass, BindingDigest, CostBasis, CostReason, JobState, KeyId, RecordSort, RequestId,
    Timestamp, UserId,
};
use crate::gateway::money::Usd;

/// All data that is stored about one job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Record {
    /// The id of the request, the same in the answer, in logs and here.
    pub(crate) request_id: RequestId,
    /// The time at which the job began.
    pub(crate) created_at: Timestamp,
    /// The operation of the document, such as `create_image`.
    pub(crate) operation: String,
    /// The requested model.
    pub(crate) model: Option<String>,
    /// True if the request asked for an event stream.
    pub(crate) stream: bool,
    /// The state of the job.
    pub(crate) state: JobState,
    /// The error code that the caller received.
    pub(crate) error_code: Option<String>,
    /// The requested size.
    pub(crate) size: Option<String>,
    /// The requested quality.
    pub(crate) quality: Option<String>,
    /// The requested format.
    pub(crate) output_format: Option<String>,
    /// The requested number of images.
    pub(crate) n: Option<u32>,
    /// The images that the answer contained.
    pub(crate) delivered: Vec<DeliveredImageEntry>,
    /// The tokens of the model that makes images, as the upstream counted them.
    pub(crate) usage: Option<TokenUsage>,
    /// The cost, if it is known.
    pub(crate) cost_usd: Option<Usd>,
    /// The time from the start of the job to its end.
    pub(crate) latency_ms: Option<u64>,
    /// The time from the start of the job to the first byte for the caller.
    pub(crate) first_byte_ms: Option<u64>,
    /// Every upstream call, in the order in which they began.
    pub(crate) attempts: Vec<AttemptEntry>,
    /// The account of the last attempt; in an intent, the account that the first attempt will call.
    pub(crate) account: Option<String>,
    /// The name of the group.
    pub(crate) group: String,
    /// The id of the user.
    pub(crate) user: UserId,
    /// The id of the key.
    pub(crate) key: KeyId,
    /// The `safety_identifier` field of the request, or else its `user` field.
    pub(crate) end_user: Option<String>,
    /// The image that was made instead of the requested one, if the caller or the group allowed it.
    pub(crate) fallback: Option<String>,
    /// True if the gateway added an image tool to the request, as the group allows for coding agents.
    pub(crate) injected_tool: bool,
    /// The values that belong to the account from the end of the job on. They are written, but not read with the record.
    #[serde(skip)]
    pub(crate) bindings: Vec<BindingDigest>,
    /// The keyed hash of API key and request that identifies a client's own retry of this job.
    #[serde(skip)]
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// The reason of the failure, as a word of the gateway.
    pub(crate) error_reason: Option<String>,
    /// The reason of the failure, in words of the upstream that are safe to show.
    pub(crate) error_detail: Option<String>,
    /// The number of requested images that a complete answer lacks, if any.
    pub(crate) missing: Option<u32>,
    /// The model that made the images, as the upstream names it, or else as the request does.
    pub(crate) image_model: Option<String>,
    /// The text model that ran the image tool, or made a response without one, as the upstream names it.
    pub(crate) host_model: Option<String>,
    /// The tokens of that text model, as the upstream counted them.
    pub(crate) host_usage: Option<TokenUsage>,
    /// True if a smaller image was requested although the failed call for the larger image may have been charged too.
    pub(crate) maybe_paid_twice: bool,
    /// How sure the cost is; `None` if the record was written before there were costs.
    pub(crate) cost_basis: Option<CostBasis>,
    /// The reason why the cost is not exact.
    pub(crate) cost_reason: Option<CostReason>,
    /// The versions of the prices of which the cost was made, separated by spaces.
    pub(crate) price_version: Option<String>,
    /// The changes that dialects made to the request, separated by commas.
    pub(crate) adapted: Option<String>,
    /// The most that one call of the job can cost, if that was known before it began. If the process is killed, this is
    /// the cost of the record.
    #[serde(skip)]
    pub(crate) max_cost_usd: Option<Usd>,
    /// The most that the whole job can cost, with its fallbacks. If the cost is unknown, this counts against budgets.
    #[serde(skip)]
    pub(crate) max_job_cost_usd: Option<Usd>,
    /// The other things that can change the price of the answers. Not stored: it is needed once, for the cost.
    #[serde(skip)]
    pub(crate) charges: AnswerCharges,
}

// === impl Record ===

impl Record {
    /// The longest free text of a request that is stored, in bytes, so that a record stays small whatever a caller sends.
    pub(crate) const MAX_TEXT_BYTES: usize = 256;

    /// Shortens a caller's text to the length that a record may hold.
    pub(crate) fn truncate_text(mut text: String) -> String {
        text.truncate(text.floor_char_boundary(Self::MAX_TEXT_BYTES));
        text
    }

    /// Returns the number of requested images that a successful answer lacks; `None` if it lacks none.
    pub(crate) fn count_missing(&self) -> Option<u32> {
        let delivered = u32::try_from(self.delivered.len()).unwrap_or(u32::MAX);
        let missing = self.n.filter(|_| self.state == JobState::Succeeded)?.saturating_sub(delivered);
        (missing > 0).then_some(missing)
    }

    /// Returns the tokens of the image model and the text model together: input, output, and total tokens.
    pub(crate) fn tokens(&self) -> [Option<u64>; 3] {
        let sum = |count: fn(&TokenUsage) -> Option<u64>| {
            let counts = [&self.usage, &self.host_usage].map(|usage| usage.as_ref().and_then(count));
            counts.into_iter().flatten().reduce(u64::saturating_add)
        };
        [sum(|usage| usage.input_tokens), sum(|usage| usage.output_tokens), sum(|usage| usage.total_tokens)]
    }
}

/// One image as it was in the answer. A property that could not be read from its first bytes is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveredImageEntry {
    /// `<width>x<height>`.
    pub(crate) size: Option<String>,
    /// `png`, `jpeg` or `webp`.
    pub(crate) output_format: Option<String>,
    /// The quality of the image, as the upstream names it, or else as the request does.
    #[serde(default)]
    pub(crate) quality: Option<String>,
}

/// The tokens of one model, as the upstream counted them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TokenUsage {
    /// All input tokens.
    pub(crate) input_tokens: Option<u64>,
    /// The input tokens by kind.
    pub(crate) input_tokens_details: Option<TokenDetails>,
    /// All output tokens.
    pub(crate) output_tokens: Option<u64>,
    /// The output tokens by kind.
    pub(crate) output_tokens_details: Option<TokenDetails>,
    /// All tokens, input and output.
    pub(crate) total_tokens: Option<u64>,
    /// The input tokens that the upstream had in its cache, by kind. They are part of the input tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached_tokens_details: Option<TokenDetails>,
    /// The input tokens that the upstream wrote to its cache, by the lifetime of the cache entry. Not stored.
    #[serde(skip)]
    pub(crate) cache_writes: CacheWrites,
    /// True if the upstream did not state the kinds of the input tokens. Not stored.
    #[serde(skip)]
    pub(crate) is_breakdown_assumed: bool,
    /// True if the upstream did not state the kinds of the cached tokens, and there can be both kinds. Not stored.
    #[serde(skip)]
    pub(crate) is_cache_breakdown_assumed: bool,
    /// The number of calls that gave an image and whose tokens are missing here. Not stored.
    #[serde(skip)]
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

/// Tokens by the kind of their content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TokenDetails {
    /// The tokens of images.
    pub(crate) image_tokens: Option<u64>,
    /// The tokens of text.
    pub(crate) text_tokens: Option<u64>,
}

/// One upstream call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptEntry {
    /// The name of the account.
    pub(crate) account: String,
    /// The class of the failure; `None` if the call did not fail.
    pub(crate) class: Option<AttemptClass>,
    /// The status of the upstream, if there was one.
    pub(crate) status: Option<u16>,
    /// The duration of the call; `None` if its process ended before the call did.
    pub(crate) latency_ms: Option<u64>,
    /// The upstream's own id of the call, if it sends one.
    #[serde(default)]
    pub(crate) upstream_request_id: Option<String>,
    /// The time from the start of the job to the start of the call; `None` if its process ended before the call was
    /// recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start_ms: Option<u64>,
    /// The smaller image that this call asked for, if it was part of a fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<String>,
    /// The most that a call for the smaller image can cost, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_cost_usd: Option<Usd>,
}

/// A filter for records. Fields that are `None` do not restrict it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordFilter {
    /// Only the records of this user, who reads them: the records of other users are treated as absent.
    pub(crate) owner: Option<UserId>,
    /// Only the records of this key, by its id or its public id.
    pub(crate) key: Option<String>,
    /// Only the records of this user, by id or name.
    pub(crate) user: Option<String>,
    /// Only the records of the group with this name.
    pub(crate) group: Option<String>,
    /// Only the records of this end user, shortened as in a record.
    pub(crate) end_user: Option<String>,
    /// Only the records of requests for this model, shortened as in a record.
    pub(crate) model: Option<String>,
    /// Only the records whose last call went to the account with this name.
    pub(crate) account: Option<String>,
    /// Only the records with this requested size, among the newest [`RecordFilter::SORTED_MAX`] that pass the other filters.
    pub(crate) size: Option<String>,
    /// Only the records with this requested quality, among the same ones.
    pub(crate) quality: Option<String>,
    /// Only the records with this error code.
    pub(crate) error_code: Option<String>,
    /// Only the records with this reason of a failure.
    pub(crate) error_reason: Option<String>,
    /// Only the records in this state; `None` means all that are finished.
    pub(crate) state: Option<JobState>,
    /// Only the finished records that have not succeeded.
    pub(crate) is_unsuccessful: bool,
    /// Only the records that began at this time or later.
    pub(crate) since: Option<Timestamp>,
    /// Only the records that began before this time.
    pub(crate) until: Option<Timestamp>,
    /// Only the records before the record with this id. If there is no such record, no records pass.
    pub(crate) before: Option<RequestId>,
    /// The most records to return. The first ones in the order are returned.
    pub(crate) limit: Option<u32>,
    /// The order of the records; by default the newest first.
    pub(crate) sort: Option<RecordSort>,
}

// === impl RecordFilter ===

impl RecordFilter {
    /// The most records that a list sorts by another value than time (our choice): no index has that order, so all of
    /// them are read.
    pub(crate) const SORTED_MAX: u32 = 10_000;
}
