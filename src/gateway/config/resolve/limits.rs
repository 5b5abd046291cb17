//! Resolves the limits of a group, a user or a key.

use super::ConfigResolver;
use crate::gateway::config::raw::{BudgetPeriod, WrittenLimits};
use crate::gateway::config::{Budget, RequestLimits};
use crate::gateway::money::Usd;
use crate::image::Size;
use crate::wire::Bounded;

/// The default of `budget_alert` (our choice).
const DEFAULT_ALERT: f64 = 0.8;

impl ConfigResolver<'_> {
    /// Resolves the limits of one group of the file alone.
    pub(crate) fn limits_of_group(&mut self, index: usize) -> RequestLimits {
        let group = self.raw.groups.as_deref().and_then(|groups| groups.get(index));
        let limits = group.and_then(|group| group.limits.clone()).unwrap_or_default();
        self.limits(&format!("groups[{index}].limits"), limits)
    }

    pub(super) fn limits(&mut self, path: &str, mut written: WrittenLimits) -> RequestLimits {
        let max_size = written.max_size.as_deref().and_then(|text| {
            let size = text.parse::<Size>().map_err(|error| format!("is not a possible size: {error}"));
            self.accept(&format!("{path}.max_size"), size)
        });
        self.check_budget_settings(path, &written);
        if written.models.as_ref().is_some_and(Vec::is_empty) {
            self.report(&format!("{path}.models"), "is empty; leave it out to allow all models");
        }
        self.check_model_ids(path, "models", written.models.as_deref().unwrap_or_default());
        if written.budget_usd.is_some() {
            written.budget_period.get_or_insert(BudgetPeriod::Month);
            written.budget_alert.get_or_insert(DEFAULT_ALERT);
        }
        self.table(path, &written);
        RequestLimits {
            requests_per_minute: count(written.requests_per_minute),
            images_per_minute: count(written.images_per_minute),
            concurrent_jobs: count(written.concurrent_jobs),
            work_per_minute: count(written.work_per_minute),
            images_per_day: count(written.images_per_day),
            max_size,
            budget: budget(&written),
            written,
        }
    }

    /// Reports settings of a budget that has no amount.
    fn check_budget_settings(&mut self, path: &str, written: &WrittenLimits) {
        // An amount that cannot be used is absent here, and was reported.
        let has_budget =
            written.budget_usd.is_some() || self.written.file.has_reported_problem(&format!("{path}.budget_usd"));
        for (name, is_set) in
            [("budget_period", written.budget_period.is_some()), ("budget_alert", written.budget_alert.is_some())]
        {
            if is_set && !has_budget {
                self.report(&format!("{path}.{name}"), "has no effect without `budget_usd`");
            }
        }
    }
}

fn count<const MIN: i64, const MAX: i64>(limit: Option<Bounded<MIN, MAX>>) -> Option<u32> {
    limit.and_then(|limit| u32::try_from(limit.get()).ok())
}

/// Returns the budget of limits with all of its settings. The schema check has already reported an amount that is out of
/// range.
fn budget(written: &WrittenLimits) -> Option<Budget> {
    let (dollars, period, share) = (written.budget_usd?, written.budget_period?, written.budget_alert?);
    Some(Budget { usd: Usd::from_dollars(dollars)?, period, alert: Usd::from_dollars(dollars * share)? })
}
