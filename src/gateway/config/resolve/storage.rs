//! Resolves the address of the database, and how long stored answers and its rows are kept.

use super::{ConfigResolver, DATABASE_URL, DEFAULT_REPLAY, RETENTION, SHORTEST_WINDOW};
use crate::gateway::config::raw::RawReplay;
use crate::gateway::config::{ConfigSecret, ReplayConfig, RetentionPeriods};

impl ConfigResolver<'_> {
    /// Returns the address of the PostgreSQL database; `None` for the SQLite database in `data_dir`. The store parses it.
    pub(super) fn database_url(&mut self) -> Option<ConfigSecret> {
        const SETTING: &str = "database_url";
        let source = self.winning_value(SETTING, DATABASE_URL, |raw| raw.database_url.as_ref())?;
        let url = self.resolve_secret(SETTING, source)?;
        let (scheme, path) = url.expose().split_once(':').unwrap_or((url.expose(), ""));
        let fault = match (scheme, path) {
            ("sqlite", "" | "//") => return None,
            ("sqlite", _) => "cannot move the SQLite database out of `data_dir`; set `data_dir` instead",
            ("postgres" | "postgresql", path) if path.starts_with("//") => return Some(url),
            _ => {
                "must be an address such as postgres://user:password@host:5432/database; without this setting, the data is kept in SQLite in `data_dir`"
            }
        };
        self.report(SETTING, fault);
        None
    }

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
