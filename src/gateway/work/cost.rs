//! The cost of each kind of work in units.
//!
//! A unit is about a tenth of a millisecond of one core. The costs are our choice, from measurements on two cores
//! (`docs/performance.md`): they are rounded, because the limit must tell a busy program from an attack and not measure.

/// A mebibyte in bytes.
const MEBIBYTE: u64 = 1 << 20;

/// Work that the gateway does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The head of a request, the check of its key, and its answer: 0.4 to 1.0 ms.
    Request,
    /// An error answer. No other limit counts it, so it costs as much as a few requests.
    Refusal,
    /// An estimate: with a shared database, a query of all limits.
    Estimate,
    /// Bytes that are read into a tree: 130 ms for a mebibyte of the smallest values.
    ParsedBytes(u64),
    /// Bytes that are read by a tokenizer and written to the spool: 10 ms for a mebibyte.
    ScannedBytes(u64),
    /// Bytes of files that are only written to the spool and read back: 3 ms for a mebibyte.
    SpooledBytes(u64),
    /// Bytes that a compressed body decodes to, in addition to their reading: 2 ms for a mebibyte.
    DecodedBytes(u64),
    /// A connection to another host for one image. Its bytes are spooled in addition.
    FetchedImage,
    /// The bytes of a stored answer that is sent again: 1 ms for a mebibyte.
    RepeatedBytes(u64),
    /// The preview of an image, which is decoded for it.
    Preview,
    /// An operation of the admin API or a page of the console: some queries.
    Operation,
    /// A list or a sum over many records: 0.1 s in a large database.
    Report,
    /// The bytes of an answer that is written from values: records as JSON or CSV.
    WrittenBytes(u64),
}

// === impl Work ===

impl Work {
    /// Returns the cost in units.
    pub(super) const fn units(self) -> u64 {
        match self {
            Self::Request => 5,
            Self::Refusal | Self::Estimate => 20,
            Self::ParsedBytes(bytes) => by_size(bytes, 1_300),
            Self::ScannedBytes(bytes) => by_size(bytes, 100),
            Self::SpooledBytes(bytes) => by_size(bytes, 30),
            Self::DecodedBytes(bytes) => by_size(bytes, 20),
            Self::FetchedImage => 100,
            Self::RepeatedBytes(bytes) => by_size(bytes, 10),
            Self::Preview => 1_000,
            Self::Operation => 30,
            Self::Report => 500,
            Self::WrittenBytes(bytes) => by_size(bytes, 1_300),
        }
    }
}

/// Returns the cost of these bytes, rounded up.
const fn by_size(bytes: u64, units_per_mebibyte: u64) -> u64 {
    bytes.saturating_mul(units_per_mebibyte).div_ceil(MEBIBYTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::DEFAULT_WORK_PER_MINUTE;

    /// The work of a response whose conversation has this many bytes, sent with zstd.
    fn turn(bytes: u64) -> u64 {
        [Work::Request, Work::ScannedBytes(bytes), Work::DecodedBytes(bytes)].map(Work::units).iter().sum()
    }

    #[test]
    fn the_default_limit_is_about_ten_times_the_work_of_a_busy_agent() {
        // A context of 200,000 tokens is about a megabyte.
        let agent = 20 * turn(1_000_000);
        // Four edits at once, each of 20 seconds, with 50 MB of images.
        let batch = 12 * (Work::Request.units() + Work::SpooledBytes(50_000_000).units());
        let limit = u64::from(DEFAULT_WORK_PER_MINUTE);
        assert!(agent.max(batch) * 8 <= limit && limit <= (agent + batch) * 12, "{agent} {batch} {limit}");
    }

    #[test]
    fn bytes_that_become_a_tree_cost_much_more_than_those_of_a_file() {
        let body = 4 * MEBIBYTE;
        assert!(Work::ParsedBytes(body).units() >= 40 * Work::SpooledBytes(body).units());
        assert_eq!((Work::SpooledBytes(0).units(), Work::SpooledBytes(1).units()), (0, 1));
        assert!(Work::ParsedBytes(u64::MAX).units() > 0);
    }
}
