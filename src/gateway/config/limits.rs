//! Usable limits of a group, a user or a key.

use super::raw::{BudgetPeriod, QualityLimit, WrittenLimits};
use crate::gateway::money::Usd;
use crate::image::Size;

/// The limits on the requests of a group, a user or a key. A limit that is `None` does not apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RequestLimits {
    /// All limits as they are written. Those on other properties of requests, such as `models`, are only here.
    pub(crate) written: WrittenLimits,
    /// The maximum number of jobs that begin within any minute.
    pub(crate) requests_per_minute: Option<u32>,
    /// The maximum number of images that are requested within any minute.
    pub(crate) images_per_minute: Option<u32>,
    /// The maximum number of jobs that run at the same time.
    pub(crate) concurrent_jobs: Option<u32>,
    /// The most units of work within any minute. A user without this limit has that of the settings.
    pub(crate) work_per_minute: Option<u32>,
    /// The maximum number of images on a day in UTC.
    pub(crate) images_per_day: Option<u32>,
    /// The size with the most pixels.
    pub(crate) max_size: Option<Size>,
    /// The most that jobs may cost.
    pub(crate) budget: Option<Budget>,
}

/// The most that jobs may cost in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The amount.
    pub(crate) usd: Usd,
    /// The period.
    pub(crate) period: BudgetPeriod,
    /// The amount at which an alert is raised.
    pub(crate) alert: Usd,
}

// === impl RequestLimits ===

impl RequestLimits {
    /// Limits that no request can keep. They take the place of limits that cannot be read, so that no request can exceed
    /// such a limit.
    pub(crate) fn closed() -> Self {
        Self { concurrent_jobs: Some(0), ..Self::default() }
    }
}

// === impl QualityLimit ===

impl QualityLimit {
    /// True if a request of this quality keeps the limit. `auto`, an absent quality and an unknown one count as `high`.
    pub(crate) fn allows(self, quality: Option<&str>) -> bool {
        match quality {
            Some("low") => true,
            Some("medium") => self >= Self::Medium,
            _ => self == Self::High,
        }
    }
}
