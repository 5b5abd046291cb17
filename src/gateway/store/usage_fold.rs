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

/// The records and rows that are counted, as the database has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FoldPosition {
    /// All records up to this number are counted in all rows.
    pub(super) folded_seq: i64,
    /// The number of the last record of a step whose rows are written in several transactions; 0 if there is none.
    pub(super) step_end: i64,
    /// The last row of that step that is written, with the columns of its key.
    pub(super) last_row: [String; DetailRowKey::TEXTS],
}

/// Records that are counted together: those after the ones that are counted, up to the number `end`.
#[derive(Debug)]
pub(crate) struct FoldStep {
    /// The position that the next transaction expects.
    pub(super) position: FoldPosition,
    pub(super) end: i64,
    /// The rows that are not written yet.
    pub(super) rows: FoldedRows,
    /// The records whose outcome is provisional. They are not in the rows.
    pub(super) provisional: Vec<i64>,
}

/// The dimension with one value, which stands for all records.
pub(super) const ALL_RECORDS: &str = "all";

/// A grouping for each dimension that is stored.
const DIMENSIONS: [UsageGrouping; 7] = [
    UsageGrouping::Day,
    UsageGrouping::Hour,
    UsageGrouping::Account,
    UsageGrouping::Model,
    UsageGrouping::Size,
    UsageGrouping::Quality,
    UsageGrouping::Reason,
];

// === impl DetailRowKey ===

impl DetailRowKey {
    /// The number of columns of the key.
    pub(super) const TEXTS: usize = 6;

    /// Returns the values of the columns, which have the order of the keys.
    pub(super) fn texts(&self) -> [&str; Self::TEXTS] {
        let [group, user, key] = &self.scope;
        [group, user, key, self.dimension, &self.day, &self.value]
    }
}

// === impl FoldPosition ===

impl FoldPosition {
    /// True if this row has the counts of the record with this number.
    pub(super) fn includes(&self, seq: i64, row: &DetailRowKey) -> bool {
        seq <= self.folded_seq || (seq <= self.step_end && self.has_written(row))
    }

    /// True if the step has written this row.
    pub(super) fn has_written(&self, row: &DetailRowKey) -> bool {
        row.texts() <= self.last_row.each_ref().map(String::as_str)
    }
}

// === impl FoldStep ===

impl FoldStep {
    /// Takes the next rows, at most `limit`, and returns them with the position after them.
    pub(super) fn next_rows(&mut self, limit: usize) -> (FoldedRows, FoldPosition) {
        let mut rows = FoldedRows::default();
        rows.0.extend(std::iter::from_fn(|| self.rows.0.pop_first()).take(limit));
        let position = match rows.0.last_key_value() {
            Some((last, _)) if !self.rows.0.is_empty() => FoldPosition {
                folded_seq: self.position.folded_seq,
                step_end: self.end,
                last_row: last.texts().map(str::to_owned),
            },
            _ => FoldPosition { folded_seq: self.end, ..FoldPosition::default() },
        };
        (rows, position)
    }
}

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

    /// Returns the row of a grouping that counts this record; `None` if it does not count in it. The row is that of all
    /// records together, or that of the group, user and key of this record.
    pub(super) fn row_key(&self, grouping: UsageGrouping, is_of_all: bool) -> Option<DetailRowKey> {
        let value = match grouping {
            // The day is a column of its own.
            UsageGrouping::Hour => self.value(grouping)?.get(11..)?,
            _ if dimension_of(grouping) == ALL_RECORDS => "",
            _ => self.value(grouping)?,
        };
        Some(DetailRowKey {
            scope: if is_of_all { Default::default() } else { [&self.group, &self.user, &self.key].map(String::clone) },
            dimension: dimension_of(grouping),
            day: self.created_at.get(..10)?.to_owned(),
            value: value.to_owned(),
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
        for is_of_all in [true, false] {
            for key in DIMENSIONS.into_iter().filter_map(|dimension| record.row_key(dimension, is_of_all)) {
                self.0.entry(key).or_default().add(&record.counts);
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

/// Returns the dimension whose rows have the counts of a grouping.
pub(super) const fn dimension_of(grouping: UsageGrouping) -> &'static str {
    match grouping {
        UsageGrouping::Day | UsageGrouping::Key | UsageGrouping::User | UsageGrouping::Group => ALL_RECORDS,
        _ => grouping.as_str(),
    }
}
