//! Resolves the limits of a group, a user or a key.

use super::ConfigResolver;
use crate::gateway::config::raw::{BudgetPeriod, RawLimits};
use crate::gateway::config::{Budget, RequestLimits};
use crate::gateway::money::Usd;
use crate::image::Size;

/// The default of `budget_alert` (our choice).
const DEFAULT_ALERT: f64 = 0.8;

impl ConfigResolver<'_> {
    pub(super) fn limits(&mut self, path: &str, raw: &RawLimits) -> RequestLimits {
        let max_size = raw.max_size.as_deref().and_then(|text| {
            let size = text.parse::<Size>();
            size.map_err(|error| self.report(&format!("{path}.max_size"), &format!("is not a possible size: {error}")))
                .ok()
        });
        // An amount that cannot be used is absent here, and was reported.
        let has_budget = raw.budget_usd.is_some() || self.layers.file.is_flagged(&format!("{path}.budget_usd"));
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
        let models = raw.models.as_deref().map(|models| self.check_model_ids(&format!("{path}.models"), models));
        RequestLimits {
            requests_per_minute: raw.requests_per_minute,
            images_per_minute: raw.images_per_minute,
            concurrent_jobs: raw.concurrent_jobs,
            work_per_minute: raw.work_per_minute,
            images_per_day: raw.images_per_day,
            max_size,
            max_quality: raw.max_quality,
            models,
            budget: budget(raw),
        }
    }
}

/// Converts the budget. The schema check has already reported an amount that is out of range.
fn budget(raw: &RawLimits) -> Option<Budget> {
    let dollars = raw.budget_usd?;
    let alert = Usd::from_dollars(dollars * raw.budget_alert.unwrap_or(DEFAULT_ALERT))?;
    Some(Budget { usd: Usd::from_dollars(dollars)?, period: raw.budget_period.unwrap_or(BudgetPeriod::Month), alert })
}
