//! Bars that show the use of limits. Each bar has the same facts as text beside it, so it needs neither colours nor
//! a script.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::format;
use super::language::{PageTexts, word_key};
use crate::wire::admin::types;

/// The length of a bar, in units of its picture.
const LENGTH: f64 = 1000.0;

/// The use of one limit.
pub(super) struct LimitBar {
    /// The key of the name of the limit.
    pub(super) label: &'static str,
    /// The used part, such as `$3.20 of $10.00`.
    pub(super) used: String,
    /// Other facts: the reserved amount, and the soft mark, which the API names `alert`.
    pub(super) facts: Vec<String>,
    /// The CSS class of the state.
    pub(super) tone: &'static str,
    /// The key of the text of the state.
    pub(super) state: &'static str,
    /// The time at which the limit is free again, and the text that says so.
    pub(super) reset: Option<(DateTime<Utc>, String)>,
    /// The lengths of the used and of the reserved amount.
    pub(super) used_length: u32,
    pub(super) reserved_length: u32,
    /// The distance of the soft mark from the start of the bar.
    pub(super) mark: Option<u32>,
    /// True if the whole limit is free again at once at the end of a day.
    pub(super) resets_at_day_end: bool,
    share: f64,
}

/// Returns the bars of limits, in their order.
pub(super) fn limit_bars(texts: PageTexts, limits: &[types::LimitUsage], now: DateTime<Utc>) -> Vec<LimitBar> {
    limits.iter().map(|limit| limit_bar(texts, limit, now)).collect()
}

/// Returns the bar of the limit of which the largest share is used.
pub(super) fn tightest_bar(texts: PageTexts, limits: &[types::LimitUsage], now: DateTime<Utc>) -> Option<LimitBar> {
    limit_bars(texts, limits, now).into_iter().max_by(|first, second| first.share.total_cmp(&second.share))
}

fn limit_bar(texts: PageTexts, limit: &types::LimitUsage, now: DateTime<Utc>) -> LimitBar {
    // Only a budget has a soft mark.
    let is_money = limit.alert.is_some();
    let amount = |amount: f64| {
        if is_money { format::dollars(amount, 2..=4) } else { format::with_thousands_separators(rounded(amount)) }
    };
    let reserved = limit.reserved.unwrap_or_default();
    let used_length = length(limit.used, limit.limit);
    let fact = |key: &'static str, value: f64| texts.get_with(key, "amount", amount(value));
    let facts = [
        limit.reserved.filter(|reserved| *reserved > 0.0).map(|reserved| fact("quota.reserved", reserved)),
        limit.alert.map(|alert| fact("quota.alert", alert)),
    ];
    let (tone, state) = match limit.state {
        types::LimitUsageState::Free => ("good", "quota.free"),
        types::LimitUsageState::Near => ("warn", "quota.near"),
        types::LimitUsageState::Reached => ("bad", "quota.reached"),
    };
    LimitBar {
        label: label(&limit.name),
        used: texts.get_with("quota.used", "used", amount(limit.used)).replace("{limit}", &amount(limit.limit)),
        facts: facts.into_iter().flatten().collect(),
        tone,
        state,
        reset: limit.resets_at.map(|at| (at, reset_text(texts, at - now))),
        used_length,
        reserved_length: length(limit.used + reserved, limit.limit).saturating_sub(used_length),
        mark: limit.alert.map(|alert| length(alert, limit.limit)),
        resets_at_day_end: matches!(limit.name.as_str(), "images_per_day" | "budget_usd"),
        share: if limit.limit > 0.0 { (limit.used + reserved) / limit.limit } else { 1.0 },
    }
}

/// Explains why a limit has refused a request, and when it is free again. `error` is the error object of the API; `None`
/// if it is another error.
pub(super) fn refusal_text(texts: PageTexts, error: &Value, now: DateTime<Utc>) -> Option<String> {
    let limit = error["limit"].as_str()?;
    let owner = match error["limit_scope"].as_str() {
        Some("key") => "refusal.of_key",
        Some("user") => "refusal.of_user",
        _ => "refusal.of_group",
    };
    let value = error["limit_value"].as_str().unwrap_or_default();
    let (explanation, amount) = if limit == "budget_usd" {
        ("refusal.budget", value.parse().map_or_else(|_| value.to_owned(), |usd| format::dollars(usd, 2..=4)))
    } else {
        ("refusal.limit", value.to_owned())
    };
    let text = texts.get_with(explanation, "limit", amount);
    let text = text.replace("{name}", texts.get(label(limit))).replace("{owner}", texts.get(owner));
    let resets_at = error["resets_at"].as_i64().and_then(|at| DateTime::from_timestamp(at, 0));
    let Some(at) = resets_at else { return Some(text) };
    Some(format!("{text} ({}, {})", reset_text(texts, at - now), format::time_to_minute(at)))
}

/// The key of the name of a limit.
fn label(name: &str) -> &'static str {
    if name == "budget_usd" { "quota.budget" } else { word_key("limit", name) }
}

/// Says in how many days, hours or minutes a limit is free again, rounded up.
fn reset_text(texts: PageTexts, wait: TimeDelta) -> String {
    let rounded_up = |unit: i64| (wait.num_seconds() + unit - 1).div_euclid(unit).max(1);
    match wait.num_seconds() {
        ..3_600 => texts.count("quota.resets_minutes", rounded_up(60)),
        3_600..172_800 => texts.count("quota.resets_hours", rounded_up(3_600)),
        _ => texts.count("quota.resets_days", rounded_up(86_400)),
    }
}

/// The length of an amount on a bar.
fn length(amount: f64, limit: f64) -> u32 {
    let share = if limit > 0.0 { amount / limit } else { 1.0 };
    u32::try_from(rounded(share.clamp(0.0, 1.0) * LENGTH)).unwrap_or(0)
}

/// A number of the API without its fraction.
#[expect(clippy::cast_possible_truncation, reason = "amounts of limits are small, and the cast saturates")]
const fn rounded(amount: f64) -> i64 {
    amount.round() as i64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::{Error, LimitRefusal};
    use crate::gateway::pages::language::Language;

    fn bar(usage: Value) -> LimitBar {
        let now = "2026-11-26T18:00:00Z".parse().unwrap();
        limit_bar(PageTexts(Language::En), &serde_json::from_value(usage).unwrap(), now)
    }

    #[test]
    fn a_bar_says_in_words_what_it_shows() {
        let budget = bar(json!({
            "name": "budget_usd", "limit": 10.0, "used": 3.2, "reserved": 0.25, "alert": 8.0, "state": "free",
            "resets_at": "2026-11-30T00:00:00Z",
        }));
        assert_eq!(budget.used, "$3.20 of $10.00");
        assert_eq!(budget.facts, ["$0.25 reserved by running requests", "alert at $8.00"]);
        assert_eq!(budget.reset.unwrap().1, "resets in 4 days");
        assert_eq!((budget.used_length, budget.reserved_length, budget.mark), (320, 25, Some(800)));
        assert_eq!((budget.tone, budget.state), ("good", "quota.free"));
    }

    #[test]
    fn a_limit_that_is_passed_fills_its_bar_and_no_more() {
        let day = bar(json!({"name": "images_per_day", "limit": 2, "used": 3, "state": "reached",
            "resets_at": "2026-11-27T00:00:00Z"}));
        assert_eq!((day.used.as_str(), day.used_length, day.tone), ("3 of 2", 1000, "bad"));
        assert_eq!(day.reset.unwrap().1, "resets in 6 hours");
        let jobs = bar(json!({"name": "concurrent_jobs", "limit": 0, "used": 0, "state": "reached"}));
        assert_eq!((jobs.used_length, jobs.reset.is_none(), jobs.facts.len()), (1000, true, 0));
    }

    #[test]
    fn a_refusal_says_which_budget_is_spent_and_when_it_resets() {
        let now: DateTime<Utc> = "2026-11-26T18:00:00Z".parse().unwrap();
        let resets_at = Some("2026-11-27T00:00:00Z".parse::<DateTime<Utc>>().unwrap().timestamp());
        let mut refusal = LimitRefusal {
            scope: "key",
            limit: "budget_usd",
            value: "0.012".to_owned(),
            resets_at,
            wait_seconds: 9,
            is_quota: true,
        };
        let explained = |refusal: &LimitRefusal| {
            let body = Error::LimitReached(Box::new(refusal.clone())).body();
            refusal_text(PageTexts(Language::En), &body["error"], now)
        };
        assert_eq!(
            explained(&refusal).unwrap(),
            "The budget of $0.012 of this key is spent, or less is left of it than this request can cost (resets in 6 hours, 2026-11-27 00:00 UTC)"
        );
        refusal = LimitRefusal {
            scope: "group",
            limit: "concurrent_jobs",
            value: "4".to_owned(),
            resets_at: None,
            ..refusal
        };
        let text = explained(&refusal).unwrap();
        assert!(text.starts_with("The limit “") && text.ends_with("of the group is reached: 4"), "{text}");
        assert_eq!(refusal_text(PageTexts(Language::En), &Error::Unavailable.body()["error"], now), None);
    }

    #[test]
    fn a_list_shows_the_limit_of_which_most_is_used() {
        let limits: Vec<types::LimitUsage> = serde_json::from_value(json!([
            {"name": "concurrent_jobs", "limit": 10, "used": 1, "state": "free"},
            {"name": "images_per_day", "limit": 10, "used": 9, "state": "near"},
            {"name": "requests_per_minute", "limit": 10, "used": 3, "state": "free"},
        ]))
        .unwrap();
        let tightest = tightest_bar(PageTexts(Language::En), &limits, Utc::now()).unwrap();
        assert_eq!((tightest.label, tightest.used.as_str()), ("limit.images_per_day", "9 of 10"));
        assert!(tightest_bar(PageTexts(Language::En), &[], Utc::now()).is_none());
    }
}
