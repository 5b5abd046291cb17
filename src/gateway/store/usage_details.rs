//! Detailed counts of usage: by account, model, size, quality, reason and hour, with durations and kinds of tokens.
//!
//! No request waits for them: a task counts records after they were closed, up to a sequence number that the database
//! keeps ([`UsageDetailStore::read_fold_step`]). A read adds the records after that number, so it is exact at any time.

use async_trait::async_trait;

use super::usage_fold::FoldStep;
use super::{KeyId, RequestId, StoreError, UsageFilter, UsageGrouping, UserId};

/// The lower bounds of all buckets of durations but the first, in milliseconds: 250 ms, and then three in each octave.
const BUCKET_BOUNDS_MS: [u64; DurationCounts::BUCKETS - 1] = [
    250, 315, 397, 500, 630, 794, 1000, 1260, 1587, 2000, 2520, 3175, 4000, 5040, 6350, 8000, 10079, 12699, 16000,
    20159, 25398, 32000, 40317, 50797, 64000, 80635, 101_594, 128_000, 161_270, 203_187, 256_000, 322_540, 406_375,
    512_000, 645_080,
];

/// Numbers of successful requests by duration. A bucket ends at 1.26 times its beginning, so a percentile is at most 13 %
/// away from the duration that it stands for, except below 250 ms and above 13 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurationCounts(pub(crate) [u64; DurationCounts::BUCKETS]);

/// The detailed counts of a set of records, and of the answers that were replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UsageDetails {
    pub(crate) requests: u64,
    pub(crate) succeeded: u64,
    pub(crate) images: u64,
    /// All tokens, of the image model and the text model together.
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) total_tokens: u64,
    /// The tokens of the image model by kind. Cached tokens are part of the input tokens.
    pub(crate) input_text_tokens: u64,
    pub(crate) input_image_tokens: u64,
    pub(crate) input_cached_tokens: u64,
    pub(crate) output_text_tokens: u64,
    pub(crate) output_image_tokens: u64,
    /// The tokens of the text model.
    pub(crate) host_input_tokens: u64,
    pub(crate) host_output_tokens: u64,
    /// The sum of the known costs, in billionths of a dollar.
    pub(crate) cost_nano_usd: u64,
    /// The number of requests whose cost is unknown.
    pub(crate) cost_unknown: u64,
    /// Answers that were sent again without a new job, and the images in them.
    pub(crate) replays: u64,
    pub(crate) replayed_images: u64,
    /// The sum of the known costs of the jobs that made these answers, in billionths of a dollar.
    pub(crate) saved_nano_usd: u64,
    /// The number of these answers whose cost is unknown.
    pub(crate) saved_unknown: u64,
    pub(crate) durations: DurationCounts,
}

/// The counts of one value of a grouping.
pub(crate) type DetailsByValue = Vec<(String, UsageDetails)>;

/// The result of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageDetailRead {
    /// The values with their counts, for each grouping that was asked for, in the order of the values.
    pub(crate) groups: Vec<DetailsByValue>,
    /// About how many records the counts do not have yet, because there are too many to count them in a read: 0 except
    /// after an import, or if the task that counts them fails.
    pub(crate) pending_records: u64,
}

/// Answers that were sent again without a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayCount {
    /// The request whose answer it was.
    pub(crate) request_id: RequestId,
    /// The key of the replay, with its user and its group.
    pub(crate) key: KeyId,
    pub(crate) user: UserId,
    pub(crate) group: String,
    /// The hour of the replays, such as `2026-11-21T03`.
    pub(crate) hour: String,
    pub(crate) count: u32,
}

/// The reads and writes of detailed counts.
#[async_trait]
pub(crate) trait UsageDetailStore: Send + Sync {
    /// Returns the highest sequence number of a record; the newest records may not have one yet.
    async fn newest_record(&self) -> Result<i64, StoreError>;

    /// True if a record can become visible after one with a higher number, for a moment.
    fn commits_out_of_order(&self) -> bool;

    /// Adds up the next records that are not counted, up to this number and up to the first that is still running. Returns
    /// `None` if there are none. A step has about this number of rows: the more, the fewer are changed for each record.
    async fn read_fold_step(&self, up_to: i64, rows: usize) -> Result<Option<FoldStep>, StoreError>;

    /// Writes rows of a step in one transaction, at most this number of them if others have to wait for it. Returns true
    /// if rows are left; not if another process counted the same at once.
    ///
    /// However it ends, each record is counted once.
    async fn write_fold_step(&self, step: &mut FoldStep, rows: usize) -> Result<bool, StoreError>;

    /// Counts some of the outcomes anew that have replaced provisional ones, and returns their number.
    async fn count_replaced(&self) -> Result<u32, StoreError>;

    /// Counts replays. Returns those whose job is still running, so that their cost is not known yet.
    async fn add_replays(&self, replays: &[ReplayCount]) -> Result<Vec<ReplayCount>, StoreError>;

    /// Returns the counts of the records that pass the filter, by each of these groupings. The filter must not name an
    /// end user: details are not kept by end user.
    async fn usage_details(
        &self,
        filter: &UsageFilter,
        groupings: &[UsageGrouping],
    ) -> Result<UsageDetailRead, StoreError>;
}

// === impl UsageGrouping ===

impl UsageGrouping {
    /// True if the values are times.
    pub(crate) const fn is_time(self) -> bool {
        matches!(self, Self::Day | Self::Hour)
    }

    /// True if the counts by day, which are made when a record is closed, have this property too.
    pub(crate) const fn is_in_daily_counts(self) -> bool {
        matches!(self, Self::Day | Self::Key | Self::User | Self::Group)
    }
}

// === impl DurationCounts ===

impl Default for DurationCounts {
    fn default() -> Self {
        Self([0; Self::BUCKETS])
    }
}

impl DurationCounts {
    /// The number of buckets.
    pub(crate) const BUCKETS: usize = 36;

    /// Counts one duration.
    pub(crate) fn add(&mut self, milliseconds: u64) {
        let bucket = BUCKET_BOUNDS_MS.partition_point(|bound| *bound <= milliseconds);
        if let Some(count) = self.0.get_mut(bucket) {
            *count += 1;
        }
    }

    /// Returns about the duration that this share of the requests, in percent, did not exceed; `None` without requests.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let total = self.0.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let rank = u64::try_from(u128::from(total) * u128::from(percent)).unwrap_or(u64::MAX).div_ceil(100).max(1);
        let mut sum = 0_u64;
        let bucket = self.0.iter().position(|count| {
            sum = sum.saturating_add(*count);
            sum >= rank
        })?;
        let lower = bucket.checked_sub(1).and_then(|index| BUCKET_BOUNDS_MS.get(index).copied());
        let upper = BUCKET_BOUNDS_MS.get(bucket).copied();
        Some(match (lower, upper) {
            // The middle of a bucket on the logarithmic scale.
            (Some(lower), Some(upper)) => (lower * upper).isqrt(),
            (Some(bound), None) | (None, Some(bound)) => bound,
            (None, None) => 0,
        })
    }
}

// === impl UsageDetails ===

impl UsageDetails {
    /// The number of counts, without the durations.
    pub(crate) const COUNTS: usize = 19;

    /// The columns of the counts in the database, in the order of [`Self::counts`].
    pub(crate) const COLUMNS: [&'static str; Self::COUNTS] = [
        "requests",
        "succeeded",
        "images",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "input_text_tokens",
        "input_image_tokens",
        "input_cached_tokens",
        "output_text_tokens",
        "output_image_tokens",
        "host_input_tokens",
        "host_output_tokens",
        "cost_nano_usd",
        "cost_unknown",
        "replays",
        "replayed_images",
        "saved_nano_usd",
        "saved_unknown",
    ];

    /// Returns the counts without the durations.
    pub(crate) const fn counts(&self) -> [u64; Self::COUNTS] {
        [
            self.requests,
            self.succeeded,
            self.images,
            self.input_tokens,
            self.output_tokens,
            self.total_tokens,
            self.input_text_tokens,
            self.input_image_tokens,
            self.input_cached_tokens,
            self.output_text_tokens,
            self.output_image_tokens,
            self.host_input_tokens,
            self.host_output_tokens,
            self.cost_nano_usd,
            self.cost_unknown,
            self.replays,
            self.replayed_images,
            self.saved_nano_usd,
            self.saved_unknown,
        ]
    }

    fn counts_mut(&mut self) -> [&mut u64; Self::COUNTS] {
        [
            &mut self.requests,
            &mut self.succeeded,
            &mut self.images,
            &mut self.input_tokens,
            &mut self.output_tokens,
            &mut self.total_tokens,
            &mut self.input_text_tokens,
            &mut self.input_image_tokens,
            &mut self.input_cached_tokens,
            &mut self.output_text_tokens,
            &mut self.output_image_tokens,
            &mut self.host_input_tokens,
            &mut self.host_output_tokens,
            &mut self.cost_nano_usd,
            &mut self.cost_unknown,
            &mut self.replays,
            &mut self.replayed_images,
            &mut self.saved_nano_usd,
            &mut self.saved_unknown,
        ]
    }

    /// Makes the value of counts and durations as rows have them.
    pub(crate) fn from_counts(counts: [u64; Self::COUNTS], durations: DurationCounts) -> Self {
        let mut details = Self { durations, ..Self::default() };
        for (field, count) in details.counts_mut().into_iter().zip(counts) {
            *field = count;
        }
        details
    }

    /// Adds other counts. A sum ends at the largest number that a row can hold, as the sums of the database do.
    pub(crate) fn add(&mut self, other: &Self) {
        let largest = i64::MAX.cast_unsigned();
        let sum = |one: u64, other: u64| one.saturating_add(other).min(largest);
        for (count, other) in self.counts_mut().into_iter().zip(other.counts()) {
            *count = sum(*count, other);
        }
        for (count, other) in self.durations.0.iter_mut().zip(other.durations.0) {
            *count = sum(*count, other);
        }
    }

    /// Returns the number of requests that did not succeed.
    pub(crate) const fn failed(&self) -> u64 {
        self.requests.saturating_sub(self.succeeded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_close_to_the_exact_one() {
        let mut counts = DurationCounts::default();
        assert_eq!(counts.percentile(50), None);
        // 1,000 durations from 300 ms to about 10 minutes, evenly on the logarithmic scale.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most ten minutes")]
        let durations: Vec<u64> = (0..1000_i32).map(|index| (300.0 * 1.0076_f64.powi(index)) as u64).collect();
        durations.iter().for_each(|duration| counts.add(*duration));
        for (percent, rank) in [(1, 10), (50, 500), (95, 950), (99, 990), (100, 1000)] {
            let (found, exact) = (counts.percentile(percent).unwrap() as f64, durations[rank - 1] as f64);
            assert!((found / exact - 1.0).abs() < 0.13, "{percent}: {found} {exact}");
        }
    }

    #[test]
    fn durations_outside_the_scale_are_in_the_outer_buckets() {
        for (duration, found) in [(0, 250), (249, 250), (3_600_000, 645_080), (u64::MAX, 645_080)] {
            let mut counts = DurationCounts::default();
            counts.add(duration);
            assert_eq!(counts.percentile(50), Some(found), "{duration}");
        }
        assert!(BUCKET_BOUNDS_MS.is_sorted());
    }

    #[test]
    fn counts_are_written_and_read_in_one_order() {
        let numbers: [u64; UsageDetails::COUNTS] = std::array::from_fn(|index| index as u64 + 1);
        let details = UsageDetails::from_counts(numbers, DurationCounts::default());
        assert_eq!(details.counts(), numbers);
        assert_eq!((details.requests, details.cost_nano_usd, details.saved_unknown), (1, 14, 19));
        let mut huge = UsageDetails { requests: u64::MAX, ..details };
        huge.add(&details);
        assert_eq!((huge.requests, huge.succeeded), (i64::MAX as u64, 4));
    }
}
