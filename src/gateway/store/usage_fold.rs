//! Adds up records to the rows of detailed counts. Pure.

use std::collections::BTreeMap;

use super::{DurationCounts, JobState, ReplayCount, Timestamp, UsageDetails, UsageGrouping, all_tokens};
use crate::gateway::money::Usd;
use crate::wire::admin::types;

/// The properties of a closed record that are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CountedRecord {
    pub(super) seq: i64,
    pub(super) request_id: String,
    pub(super) is_running: bool,
    /// True if another node has closed the record, and the node of the job may still replace the outcome.
    pub(super) is_provisional: bool,
    /// The time at which the job began, as it is stored.
    pub(super) created_at: String,
    pub(super) group: String,
    pub(super) user: String,
    pub(super) key: String,
    pub(super) account: String,
    pub(super) model: String,
    pub(super) size: String,
    pub(super) quality: String,
    pub(super) reason: String,
    pub(super) counts: UsageDetails,
}

/// The key of a row of counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DetailRowKey {
    /// The group, the user and the key; three empty texts for all of them together.
    pub(super) scope: [String; 3],
    pub(super) dimension: &'static str,
    pub(super) day: String,
    pub(super) value: String,
}

/// Rows of counts that are to be added to the database.
#[derive(Debug, Default)]
pub(super) struct FoldedRows(pub(super) BTreeMap<DetailRowKey, UsageDetails>);

/// The dimension with one value, which stands for all records.
pub(super) const ALL_RECORDS: &str = "all";

/// The groupings whose values are stored, each as the dimension with its name.
pub(super) const DIMENSIONS: [UsageGrouping; 6] = [
    UsageGrouping::Hour,
    UsageGrouping::Account,
    UsageGrouping::Model,
    UsageGrouping::Size,
    UsageGrouping::Quality,
    UsageGrouping::Reason,
];

// === impl CountedRecord ===

impl CountedRecord {
    /// Takes what is counted of a record. Counts end at the largest integer of the database.
    pub(super) fn new(seq: i64, cost: Option<Usd>, record: types::Record) -> Self {
        let count = |count: Option<u64>| count.unwrap_or_default().min(i64::MAX.cast_unsigned());
        let [input, output, total] = all_tokens(&record).map(count);
        let (image, host) = (record.usage.unwrap_or_default(), record.host_usage.unwrap_or_default());
        let of_kinds = |details: Option<types::RecordTokens>| {
            details.map_or([0; 2], |details| [details.text_tokens, details.image_tokens].map(count))
        };
        let [input_text, input_image] = of_kinds(image.input_tokens_details);
        let [output_text, output_image] = of_kinds(image.output_tokens_details);
        let [cached_text, cached_image] = of_kinds(image.cached_tokens_details);
        let counts = UsageDetails {
            images: record.delivered.len() as u64,
            input_tokens: input,
            output_tokens: output,
            total_tokens: total,
            input_text_tokens: input_text,
            input_image_tokens: input_image,
            input_cached_tokens: count(Some(cached_text.saturating_add(cached_image))),
            output_text_tokens: output_text,
            output_image_tokens: output_image,
            host_input_tokens: count(host.input_tokens),
            host_output_tokens: count(host.output_tokens),
            cost_nano_usd: count(cost.map(Usd::nanos)),
            ..UsageDetails::default()
        };
        let is_succeeded = record.state == JobState::Succeeded;
        Self {
            seq,
            is_running: record.state == JobState::Running,
            is_provisional: record.state == JobState::Interrupted && record.latency_ms.is_none(),
            counts: counts_of_record(counts, is_succeeded, cost.is_some(), record.latency_ms),
            request_id: record.request_id,
            created_at: Timestamp::from(record.created_at).to_string(),
            group: record.group,
            user: record.user,
            key: record.key,
            account: record.account.unwrap_or_default(),
            model: record.model.unwrap_or_default(),
            size: record.size.unwrap_or_default(),
            quality: record.quality.unwrap_or_default(),
            reason: record.error_reason.map(types::RecordReason::as_str).unwrap_or_default().to_owned(),
        }
    }

    /// Returns the value of a grouping; `None` if the record does not count in it: only requests that did not succeed
    /// have a reason.
    pub(super) fn value(&self, grouping: UsageGrouping) -> Option<&str> {
        Some(match grouping {
            UsageGrouping::Day => self.created_at.get(..10)?,
            UsageGrouping::Hour => self.created_at.get(..13)?,
            UsageGrouping::Key => &self.key,
            UsageGrouping::User => &self.user,
            UsageGrouping::Group => &self.group,
            UsageGrouping::Account => &self.account,
            UsageGrouping::Model => &self.model,
            UsageGrouping::Size => &self.size,
            UsageGrouping::Quality => &self.quality,
            UsageGrouping::Reason if self.counts.failed() == 0 => return None,
            UsageGrouping::Reason => &self.reason,
        })
    }

    /// Returns this record as it was counted before its provisional outcome was replaced: with this account and cost,
    /// and nothing delivered.
    pub(super) fn as_provisional(&self, account: String, cost_nano_usd: Option<u64>) -> Self {
        let cost = UsageDetails { cost_nano_usd: cost_nano_usd.unwrap_or_default(), ..UsageDetails::default() };
        let counts = counts_of_record(cost, false, cost_nano_usd.is_some(), None);
        Self { account, reason: String::new(), counts, ..self.clone() }
    }

    /// Returns the counts of answers that were replayed, as if they were a record: at the time of the replay, with the
    /// properties of the job that had made the answer.
    fn of_replay(&self, replay: &ReplayCount) -> Self {
        let times = u64::from(replay.count);
        let counts = UsageDetails {
            replays: times,
            replayed_images: self.counts.images.saturating_mul(times),
            saved_nano_usd: self.counts.cost_nano_usd.saturating_mul(times).min(i64::MAX.cast_unsigned()),
            saved_unknown: self.counts.cost_unknown.saturating_mul(times),
            ..UsageDetails::default()
        };
        Self {
            created_at: replay.hour.clone(),
            group: replay.group.clone(),
            user: replay.user.to_string(),
            key: replay.key.to_string(),
            counts,
            ..self.clone()
        }
    }
}

// === impl FoldedRows ===

impl FoldedRows {
    pub(super) fn add_record(&mut self, record: &CountedRecord) {
        let Some(day) = record.value(UsageGrouping::Day) else { return };
        let own = [record.group.clone(), record.user.clone(), record.key.clone()];
        // The day is a column of its own.
        let value_of = |dimension: UsageGrouping| match dimension {
            UsageGrouping::Hour => record.value(dimension).map(|hour| hour.get(11..).unwrap_or_default()),
            _ => record.value(dimension),
        };
        let values = DIMENSIONS.iter().filter_map(|dimension| Some((dimension.as_str(), value_of(*dimension)?)));
        let values: Vec<_> = std::iter::once((ALL_RECORDS, "")).chain(values).collect();
        for scope in [<[String; 3]>::default(), own] {
            for &(dimension, value) in &values {
                let (scope, day, value) = (scope.clone(), day.to_owned(), value.to_owned());
                self.0.entry(DetailRowKey { scope, dimension, day, value }).or_default().add(&record.counts);
            }
        }
    }

    /// Adds replays of the answer that this record had; of an answer whose record was removed since, `record` is empty.
    pub(super) fn add_replay(&mut self, record: &CountedRecord, replay: &ReplayCount) {
        self.add_record(&record.of_replay(replay));
    }
}

/// Counts one closed record.
pub(super) fn counts_of_record(
    counts: UsageDetails,
    is_succeeded: bool,
    has_cost: bool,
    latency_ms: Option<u64>,
) -> UsageDetails {
    let mut durations = DurationCounts::default();
    if let Some(latency) = latency_ms.filter(|_| is_succeeded) {
        durations.add(latency);
    }
    UsageDetails {
        requests: 1,
        succeeded: u64::from(is_succeeded),
        cost_unknown: u64::from(!has_cost),
        durations,
        ..counts
    }
}
