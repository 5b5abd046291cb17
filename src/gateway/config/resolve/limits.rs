//! Resolves the limits of a group, a user or a key.

use super::ConfigResolver;
use crate::gateway::config::raw::{BudgetPeriod, RawLimits};
use crate::gateway::config::{Budget, RequestLimits};
use crate::gateway::money::Usd;
use crate::image::Size;

/// The default of `budget_alert` (our choice).
const DEFAULT_ALERT: f64 = 0.8;

impl ConfigResolver<'_> {
    /// Resolves the limits of one group of the file alone.
    pub(crate) fn limits_of_group(&mut self, index: usize) -> RequestLimits {
        let group = self.raw.groups.as_deref().and_then(|groups| groups.get(index));
        let limits = group.and_then(|group| group.limits.clone()).unwrap_or_default();
        self.limits(&format!("groups[{index}].limits"), &limits)
    }

    pub(super) fn limits(&mut self, path: &str, raw: &RawLimits) -> RequestLimits {
        let max_size = raw.max_size.as_deref().and_then(|text| {
            let size = text.parse::<Size>().map_err(|error| format!("is not a possible size: {error}"));
            self.accept(&format!("{path}.max_size"), size)
        });
        // An amount that cannot be used is absent here, and was reported.
        let has_budget =
            raw.budget_usd.is_some() || self.written.file.has_reported_problem(&format!("{path}.budget_usd"));
        for (name, is_set) in
            [("budget_period", raw.budget_period.is_some()), ("budget_alert", raw.budget_alert.is_some())]
        {
            if is_set && !has_budget {
                self.report(&format!("{path}.{name}"), "has no effect without `budget_usd`");
            }
        }
        if raw.models.as_ref().is_some_and(Vec::is_empty) {
            self.report(&format!("{path}.models"), "is empty; leave it out to allow all models");
        }
        RequestLimits {
            requests_per_minute: self.value(path, "requests_per_minute", raw.requests_per_minute),
            images_per_minute: self.value(path, "images_per_minute", raw.images_per_minute),
            concurrent_jobs: self.value(path, "concurrent_jobs", raw.concurrent_jobs),
            work_per_minute: self.value(path, "work_per_minute", raw.work_per_minute),
            images_per_day: self.value(path, "images_per_day", raw.images_per_day),
            max_size: max_size.map(|size| self.text(path, "max_size", size)),
            max_quality: self.value(path, "max_quality", raw.max_quality),
            models: self.model_ids(path, "models", raw.models.as_deref()),
            budget: self.budget(path, raw),
        }
    }

    /// Resolves the budget. The schema check has already reported an amount that is out of range.
    fn budget(&mut self, path: &str, raw: &RawLimits) -> Option<Budget> {
        let usd = self.number(path, "budget_usd", Usd::from_dollars(raw.budget_usd?))?;
        let period = self.value_or(path, "budget_period", raw.budget_period, BudgetPeriod::Month);
        let share = self.number(path, "budget_alert", raw.budget_alert.or(Some(DEFAULT_ALERT)))?;
        Some(Budget { usd, period, alert: Usd::from_dollars(raw.budget_usd? * share)? })
    }
}
