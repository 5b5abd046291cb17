//! Resolves the address of the database, and how long stored answers and its rows are kept.

use super::{ConfigResolver, DEFAULT_REPLAY, RETENTION, WINDOWS};
use crate::gateway::config::{ConfigSecret, ReplayConfig, RetentionPeriods};

impl ConfigResolver<'_> {
    /// Returns the address of the PostgreSQL database; `None` for the SQLite database in `data_dir`. The store parses it.
    pub(super) fn database_url(&mut self) -> Option<ConfigSecret> {
        const SETTING: &str = "database_url";
        let url = self.read_secret(SETTING, self.raw.database_url.as_ref()?)?;
        let (scheme, path) = url.expose().split_once(':').unwrap_or((url.expose(), ""));
        let fault = match (scheme, path) {
            ("sqlite", "" | "//") => return None,
            ("sqlite", _) => "cannot move the SQLite database out of `data_dir`; set `data_dir` instead",
            // `secret` shows that the setting is given, but not its value.
            ("postgres" | "postgresql", path) if path.starts_with("//") => return self.secret("", SETTING, Some(url)),
            _ => {
                "must be an address such as postgres://user:password@host:5432/database; without this setting, the data is kept in SQLite in `data_dir`"
            }
        };
        self.report(SETTING, fault);
        None
    }

    pub(super) fn replay(&mut self) -> ReplayConfig {
        const TABLE: &str = "replay";
        let raw = self.raw.replay.clone().unwrap_or_default();
        let ReplayConfig { orphans, orphan_window, idempotency_window, max_bytes } = DEFAULT_REPLAY;
        let (orphan, idempotency) = (raw.orphan_window.as_ref(), raw.idempotency_window.as_ref());
        ReplayConfig {
            orphans: self.value_or(TABLE, "orphans", raw.orphans, orphans),
            orphan_window: self.duration((TABLE, "orphan_window"), orphan, WINDOWS, orphan_window),
            idempotency_window: self.duration((TABLE, "idempotency_window"), idempotency, WINDOWS, idempotency_window),
            max_bytes: self.megabytes(TABLE, "max_megabytes", raw.max_megabytes, max_bytes),
        }
    }

    pub(super) fn retention(&mut self) -> RetentionPeriods {
        let raw = self.raw.retention.clone().unwrap_or_default();
        let mut period = |name, written| self.optional_duration("retention", name, written, RETENTION);
        RetentionPeriods {
            records: period("records", raw.records.as_ref()),
            audit: period("audit", raw.audit.as_ref()),
            usage: period("usage", raw.usage.as_ref()),
        }
    }
}
