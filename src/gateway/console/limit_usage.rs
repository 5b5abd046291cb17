//! The use of limits in the answers of the admin API.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Console;
use super::error_conversion::from_store_error;
use crate::error::Error;
use crate::gateway::config::limits_from_json;
use crate::gateway::limits::{LimitAmounts, LimitSubject, LimitUsage, SubjectLimits};
use crate::gateway::money::Usd;
use crate::wire::admin::types;

/// A subject of an answer, and its limits as they are stored.
pub(super) type StoredSubject = (LimitSubject, Option<Map<String, Value>>);

// === impl Console ===

impl Console {
    /// Returns the use of the limits of each subject, in their order; an empty list for a subject without limits, and for
    /// limits that this version cannot read. All subjects together cost at most one query if their counters have begun.
    pub(super) async fn limit_usage(&self, subjects: Vec<StoredSubject>) -> Result<Vec<Vec<types::LimitUsage>>, Error> {
        let mut usages = vec![Vec::new(); subjects.len()];
        let (mut indexes, mut limited) = (Vec::new(), Vec::new());
        for (index, (subject, limits)) in subjects.into_iter().enumerate() {
            let Some(limits) = limits.and_then(|limits| limits_from_json(&limits).ok()) else { continue };
            indexes.push(index);
            limited.push(SubjectLimits { subject, limits: Arc::new(limits) });
        }
        let read = self.limiter.usage(&limited).await.map_err(from_store_error)?;
        for (index, limits) in indexes.into_iter().zip(read) {
            if let Some(usage) = usages.get_mut(index) {
                usage.extend(limits.into_iter().map(to_wire_limit_usage));
            }
        }
        Ok(usages)
    }
}

/// Parses limits as they are stored.
pub(super) fn stored_limits(limits: Option<&str>) -> Option<Map<String, Value>> {
    limits.and_then(|limits| serde_json::from_str(limits).ok())
}

fn to_wire_limit_usage(usage: LimitUsage) -> types::LimitUsage {
    let (limit, used, reserved, alert) = match usage.amounts {
        LimitAmounts::Count { limit, used } => (count(limit), count(used), None, None),
        LimitAmounts::Money { limit, used, reserved, alert } => {
            (limit.dollars(), used.dollars(), Some(reserved.dollars()), Some(Usd::dollars(alert)))
        }
    };
    types::LimitUsage {
        name: usage.name.to_owned(),
        limit,
        used,
        reserved,
        alert,
        state: usage.state,
        resets_at: usage.resets_at,
    }
}

/// Returns a count as a number of JSON. Counts of limits are small enough for it.
fn count(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
