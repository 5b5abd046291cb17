//! The option for the time that commands write into manifests and packages.

use chrono::{DateTime, Utc};
use clap::Args;

use crate::cli::failure::CommandFailure;
use crate::manifest::package::ZipTimestamp;

/// The time of a change.
#[derive(Debug, Args)]
pub(super) struct SourceDate {
    /// The time to record for changed entries, in seconds since 1970 (default: now).
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH")]
    source_date_epoch: Option<i64>,
}

// === impl SourceDate ===

impl SourceDate {
    /// Returns the time for the manifest.
    pub(super) fn now(&self) -> Result<DateTime<Utc>, CommandFailure> {
        let Some(seconds) = self.source_date_epoch else { return Ok(Utc::now()) };
        DateTime::from_timestamp(seconds, 0)
            .ok_or_else(|| CommandFailure::Usage("SOURCE_DATE_EPOCH is not a valid time".to_owned()))
    }

    /// Returns the time for files in packages. By default it is fixed, so that equal files give equal packages.
    pub(super) fn zip_timestamp(&self) -> ZipTimestamp {
        self.source_date_epoch.map_or_else(ZipTimestamp::default, ZipTimestamp::from_epoch)
    }
}
