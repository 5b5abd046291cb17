//! Resolves how long stored answers and rows of the database are kept.

use super::{ConfigResolver, DEFAULT_REPLAY, RETENTION, SHORTEST_WINDOW};
use crate::gateway::config::raw::RawReplay;
use crate::gateway::config::{ReplayConfig, RetentionPeriods};

impl ConfigResolver<'_> {
    pub(super) fn replay(&mut self) -> ReplayConfig {
        let empty = RawReplay::default();
        let raw = self.layers.file.raw.replay.as_ref().unwrap_or(&empty);
        let mut window = |setting, value| self.duration(setting, value, SHORTEST_WINDOW);
        ReplayConfig {
            orphans: raw.orphans.unwrap_or(DEFAULT_REPLAY.orphans),
            orphan_window: window("replay.orphan_window", raw.orphan_window.as_ref())
                .unwrap_or(DEFAULT_REPLAY.orphan_window),
            idempotency_window: window("replay.idempotency_window", raw.idempotency_window.as_ref())
                .unwrap_or(DEFAULT_REPLAY.idempotency_window),
            max_bytes: raw.max_megabytes.map_or(DEFAULT_REPLAY.max_bytes, |megabytes| u64::from(megabytes) << 20),
        }
    }

    pub(super) fn retention(&mut self) -> RetentionPeriods {
        let Some(raw) = &self.layers.file.raw.retention else { return RetentionPeriods::default() };
        let mut retention_period = |setting, value| self.duration_within(setting, value, RETENTION);
        RetentionPeriods {
            records: retention_period("retention.records", raw.records.as_ref()),
            audit: retention_period("retention.audit", raw.audit.as_ref()),
            usage: retention_period("retention.usage", raw.usage.as_ref()),
        }
    }
}
