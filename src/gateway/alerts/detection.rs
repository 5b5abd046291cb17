//! The events of a budget. Pure but for the clock and random ids.

use chrono::{DateTime, Utc};

use crate::gateway::limits::{LimitAmounts, LimitSubject, LimitUsage};
use crate::gateway::money::Usd;
use crate::gateway::store::{NewAlert, StoreError, Timestamp, random_base62};
use crate::wire::admin::types;

/// The soft mark of a budget is reached.
pub(super) const SOFT_LIMIT: &str = "budget.soft_limit_reached";
/// A budget is spent, or has refused a request after most of it was spent.
pub(super) const EXHAUSTED: &str = "budget.exhausted";
/// The share of a budget, in percent, from which a refused request means that it is exhausted (our choice). Before that,
/// the request was only too large.
const MOST_PERCENT: u64 = 80;

/// An event of a budget.
#[derive(Debug)]
pub(super) struct BudgetEvent {
    pub(super) event: &'static str,
    /// The text that is the same for the same event of the same period. A budget that was raised has other events.
    pub(super) identity: String,
    limit: Usd,
    used: Usd,
    alert: Usd,
    period_ends: DateTime<Utc>,
}

/// Returns the events that apply to the budget of a subject now.
pub(super) fn budget_events(subject: &LimitSubject, usage: &[LimitUsage], has_refused: bool) -> Vec<BudgetEvent> {
    let budget = usage.iter().find_map(|usage| match usage.amounts {
        LimitAmounts::Money { limit, used, alert, .. } => Some((limit, used, alert, usage.resets_at?)),
        LimitAmounts::Count { .. } => None,
    });
    let Some((limit, used, alert, period_ends)) = budget else { return Vec::new() };
    let most = Usd::from_nanos(limit.nanos() / 100 * MOST_PERCENT);
    let is_exhausted = used >= limit || (has_refused && used >= alert.min(most));
    let (kind, id) = subject.kind_and_id();
    let event = |event: &'static str, mark: Usd| BudgetEvent {
        event,
        // The id comes last, because a name of a group can contain every character.
        identity: format!("{event}:{}:{}:{}:{id}", kind.as_str(), mark.nanos(), period_ends.date_naive()),
        limit,
        used,
        alert,
        period_ends,
    };
    let soft = (used >= alert).then(|| event(SOFT_LIMIT, alert));
    soft.into_iter().chain(is_exhausted.then(|| event(EXHAUSTED, limit))).collect()
}

// === impl BudgetEvent ===

impl BudgetEvent {
    /// Returns the alert. A name is kept as it is; whoever shows it escapes it.
    pub(super) fn into_alert(self, subject: &LimitSubject, name: Option<&str>) -> Result<NewAlert, StoreError> {
        let (kind, id) = subject.kind_and_id();
        let name = name.map(str::to_owned);
        let subject = types::LimitSubject { kind: kind.as_str().to_owned(), id: id.to_owned(), name };
        let data = types::AlertData {
            subject: Some(subject),
            limit: Some("budget_usd".to_owned()),
            budget_usd: Some(self.limit.dollars()),
            alert_usd: Some(self.alert.dollars()),
            spent_usd: Some(self.used.dollars()),
            period_ends: Some(self.period_ends),
        };
        let details = serde_json::to_string(&data).unwrap_or_default();
        new_alert(self.event, self.identity, details)
    }
}

/// Returns an alert with a new id.
pub(super) fn new_alert(event: &str, identity: String, details: String) -> Result<NewAlert, StoreError> {
    let id = random_base62::<20>()?;
    Ok(NewAlert {
        id: format!("alr_{}", String::from_utf8_lossy(&id)),
        identity,
        event: event.to_owned(),
        details,
        created_at: Timestamp::now(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usd(dollars: f64) -> Usd {
        Usd::from_dollars(dollars).unwrap()
    }

    fn events(limit: f64, alert: f64, used: f64, has_refused: bool) -> Vec<(&'static str, String)> {
        let amounts =
            LimitAmounts::Money { limit: usd(limit), used: usd(used), reserved: Usd::ZERO, alert: usd(alert) };
        let resets_at = Some("2026-12-01T00:00:00Z".parse().unwrap());
        let usage = [LimitUsage { name: "budget_usd", amounts, state: types::LimitUsageState::Free, resets_at }];
        let events = budget_events(&LimitSubject::Key("key_1".into()), &usage, has_refused);
        events.into_iter().map(|event| (event.event, event.identity)).collect()
    }

    fn names(limit: f64, alert: f64, used: f64, has_refused: bool) -> Vec<&'static str> {
        events(limit, alert, used, has_refused).into_iter().map(|(event, _)| event).collect()
    }

    #[test]
    fn a_budget_has_an_event_at_its_soft_mark_and_one_at_its_end() {
        assert_eq!(names(10.0, 8.0, 7.99, false), [""; 0]);
        assert_eq!(names(10.0, 8.0, 8.0, false), [SOFT_LIMIT]);
        assert_eq!(names(10.0, 8.0, 10.0, false), [SOFT_LIMIT, EXHAUSTED], "one large request");
        assert_eq!(names(10.0, 10.0, 10.0, false), [SOFT_LIMIT, EXHAUSTED]);
    }

    #[test]
    fn a_refused_request_means_the_end_only_if_most_was_spent() {
        assert_eq!(names(10.0, 8.0, 2.0, true), [""; 0], "the request was only too large");
        assert_eq!(names(10.0, 8.0, 9.5, true), [SOFT_LIMIT, EXHAUSTED]);
        assert_eq!(names(10.0, 10.0, 9.5, true), [EXHAUSTED], "the soft mark is at the end");
        assert_eq!(names(10.0, 5.0, 6.0, true), [SOFT_LIMIT, EXHAUSTED]);
    }

    #[test]
    fn the_identity_changes_with_the_budget_and_not_with_what_is_spent() {
        let first = events(10.0, 8.0, 10.0, false);
        assert_eq!(first, events(10.0, 8.0, 11.0, true));
        assert!(events(20.0, 16.0, 20.0, false).iter().all(|event| !first.contains(event)));
        assert_eq!(first[1].1, "budget.exhausted:key:10000000000:2026-12-01:key_1");
    }

    #[test]
    fn an_alert_names_the_subject_and_the_amounts() {
        let amounts = LimitAmounts::Money { limit: usd(1.0), used: usd(1.5), reserved: Usd::ZERO, alert: usd(0.8) };
        let resets_at = Some("2026-12-01T00:00:00Z".parse().unwrap());
        let usage = [LimitUsage { name: "budget_usd", amounts, state: types::LimitUsageState::Reached, resets_at }];
        let subject = LimitSubject::Group("a:b\r\nc".to_owned());
        let event = budget_events(&subject, &usage, false).pop().unwrap();
        let alert = event.into_alert(&subject, Some("a:b\r\nc")).unwrap();
        let details: serde_json::Value = serde_json::from_str(&alert.details).unwrap();
        assert_eq!(details["subject"], json!({"kind": "group", "id": "a:b\r\nc", "name": "a:b\r\nc"}));
        assert_eq!((&details["budget_usd"], &details["spent_usd"]), (&json!(1.0), &json!(1.5)));
        assert_eq!(details["period_ends"], "2026-12-01T00:00:00Z");
        assert!(alert.id.starts_with("alr_") && alert.id.len() == 24, "{}", alert.id);
    }
}
