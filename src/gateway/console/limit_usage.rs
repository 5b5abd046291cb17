//! The use of limits in the answers of the admin API, and the operation that lists it.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error_conversion::from_store_error;
use super::{Console, list_object, require_admin};
use crate::error::Error;
use crate::gateway::config::limits_from_json;
use crate::gateway::limits::{LimitAmounts, LimitSubject, LimitUsage, SubjectLimits};
use crate::gateway::money::Usd;
use crate::gateway::people::Actor;
use crate::gateway::store::{ReservationSubjectKind, StoreError};
use crate::gateway::work::WORK_PER_MINUTE;
use crate::wire::admin::server::ListLimitsQuery;
use crate::wire::admin::types;

/// The limits whose use a store without shared counters knows.
const STORED_LIMITS: [&str; 2] = ["images_per_day", "budget_usd"];

/// A subject of an answer, and its limits as they are stored.
pub(super) type StoredSubject = (LimitSubject, Option<Map<String, Value>>);

// === impl Console ===

impl Console {
    /// Returns the limits of groups, users and keys, and what is used of them. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_limits(
        &self,
        actor: &Actor,
        query: &ListLimitsQuery,
    ) -> Result<types::SubjectLimitsList, Error> {
        require_admin(actor)?;
        if self.server.is_none() {
            // The jobs that a server runs are only in the store.
            self.limiter.count_running_jobs().await.map_err(from_store_error)?;
        }
        let mut subjects = self.limited_subjects().await.map_err(from_store_error)?;
        subjects.retain(|of| query.subject.as_deref().is_none_or(|wanted| of.subject.kind_and_id().1 == wanted));
        let mut data = Vec::new();
        for (of, limits) in subjects.iter().zip(self.usage_of(&subjects).await?) {
            let (kind, id) = of.subject.kind_and_id();
            let name = self.store.subject_name(kind, id).await.map_err(from_store_error)?;
            let subject = types::LimitSubject { kind: kind.as_str().to_owned(), id: id.to_owned(), name };
            if !limits.is_empty() {
                data.push(types::SubjectLimits { subject, limits });
            }
        }
        Ok(types::SubjectLimitsList { object: list_object(), data })
    }

    /// Returns the groups, the users and the keys that have limits.
    async fn limited_subjects(&self) -> Result<Vec<SubjectLimits>, StoreError> {
        let of_file = self.config.groups.iter().map(|group| (group.name.clone(), Arc::clone(&group.limits)));
        let file_groups = self.config.file_groups();
        let mut of_store = self.store.group_policies().await?;
        of_store.retain(|(name, _)| !file_groups.contains(name));
        let of_store = of_store.into_iter().filter_map(|(name, policy)| {
            let policy: Map<String, Value> = serde_json::from_str(&policy).ok()?;
            Some((name, Arc::new(limits_from_json(policy.get("limits")?.as_object()?).ok()?)))
        });
        let groups = of_file.chain(of_store).map(|(name, limits)| (LimitSubject::Group(name), limits));
        let stored = self.store.limited_subjects().await?.into_iter().filter_map(|row| {
            let limits = Arc::new(limits_from_json(&stored_limits(Some(&row.limits))?).ok()?);
            Some(match row.kind {
                ReservationSubjectKind::User => (LimitSubject::User(row.id.into()), limits),
                _ => (LimitSubject::Key(row.id.into()), limits),
            })
        });
        Ok(groups.chain(stored).map(|(subject, limits)| SubjectLimits { subject, limits }).collect())
    }

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
        for (index, limits) in indexes.into_iter().zip(self.usage_of(&limited).await?) {
            if let Some(usage) = usages.get_mut(index) {
                *usage = limits;
            }
        }
        Ok(usages)
    }

    /// Reads what is used of the limits of each subject. A command knows only what the database has.
    async fn usage_of(&self, subjects: &[SubjectLimits]) -> Result<Vec<Vec<types::LimitUsage>>, Error> {
        let knows_work = self.server.is_some();
        let knows_minutes = knows_work || self.store.shared_reservations().is_some();
        let is_known = |usage: &LimitUsage| match usage.name {
            WORK_PER_MINUTE => knows_work,
            name => knows_minutes || STORED_LIMITS.contains(&name),
        };
        let read = self.limiter.usage(subjects).await.map_err(from_store_error)?;
        let to_wire = |usages: Vec<LimitUsage>| usages.into_iter().filter(is_known).map(to_wire_limit_usage).collect();
        Ok(read.into_iter().map(to_wire).collect())
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
