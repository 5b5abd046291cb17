//! The groups of the usage as rows of a table, and the cards with the most expensive and the most frequent of them.

use std::borrow::Borrow;

use super::format::CountValue as _;
use super::page_context::PageContext;
use super::record_filters::{self, UNSUCCESSFUL};
use super::usage_measure;
use super::usage_view::UsageView;
use crate::gateway::names;
use crate::gateway::store::UsageGrouping;
use crate::gateway::usage::{GroupedUsage, UsageGroup, UsageMeasure};
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// The number of groups on a page (our choice). The CSV file has a thousand.
const ROWS_MAX: usize = 100;
/// The number of rows of a card (our choice).
const CARD_ROWS: usize = 5;

/// A group as a row of a table.
pub(super) struct GroupRow {
    pub(super) group: UsageGroup,
    /// The value in words.
    pub(super) label: String,
    /// The name of the key's owner.
    pub(super) owner: Option<String>,
    /// The address of the records of the group; `None` if the list of records cannot be filtered by it.
    pub(super) records: Option<String>,
    /// The length of the bar, from 0 to 100.
    pub(super) share: i64,
    /// The amount of the measure, and its change against the period before.
    pub(super) amount: String,
    pub(super) change: Option<String>,
}

/// The query for a card.
pub(super) struct CardQuery {
    id: &'static str,
    title: &'static str,
    pub(super) query: RetrieveUsageQuery,
}

/// A short list of groups.
pub(super) struct UsageCard {
    /// The id of the title, and the key of its text.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) rows: Vec<GroupRow>,
}

// === impl GroupRow ===

impl GroupRow {
    /// The amount of another measure as text; a dash if it is not known.
    pub(super) fn cell(&self, measure: impl Borrow<UsageMeasure>) -> String {
        let measure = *measure.borrow();
        let amount = measure.of_group(&self.group);
        amount.map_or_else(|| "—".to_owned(), |amount| usage_measure::format(measure, amount.count()))
    }
}

/// The rows of the groups, in their order; times begin with the newest.
pub(super) fn group_rows(
    context: &PageContext<'_>,
    view: &UsageView,
    grouped: &GroupedUsage,
    before: &GroupedUsage,
    filters: &[(&'static str, String)],
) -> Vec<GroupRow> {
    let amount = |group: &UsageGroup| usage_measure::amount(view.measure, group);
    let largest = grouped.groups.iter().map(amount).max().unwrap_or(0).max(1);
    let row = |group: &UsageGroup| {
        // The days and hours of the period before are others.
        let earlier = before.groups.iter().find(|earlier| !view.grouping.is_time() && earlier.value == group.value);
        GroupRow {
            label: shown_value(context, view.grouping, group),
            owner: group.user_name.as_deref().map(|name| names::escape_hidden(name).into_owned()),
            records: records_of_group(view, &group.value, filters),
            share: amount(group).saturating_mul(100) / largest,
            amount: usage_measure::format(view.measure, amount(group)),
            change: earlier.and_then(|earlier| usage_measure::change(amount(earlier), amount(group))),
            group: group.clone(),
        }
    };
    if view.grouping.is_time() {
        grouped.groups.iter().rev().map(row).collect()
    } else {
        grouped.groups.iter().take(ROWS_MAX).map(row).collect()
    }
}

/// The cards of the view: its most expensive users and keys, and its most frequent reasons of failures.
pub(super) fn card_queries(context: &PageContext<'_>, view: &UsageView) -> Vec<CardQuery> {
    let wanted = [
        ("top-users", "usage.top_users", UsageGrouping::User, UsageMeasure::Cost),
        ("top-keys", "usage.top_keys", UsageGrouping::Key, UsageMeasure::Cost),
        ("top-reasons", "usage.top_reasons", UsageGrouping::Reason, UsageMeasure::Requests),
    ];
    let mut cards = Vec::new();
    for (id, title, grouping, measure) in wanted {
        let is_of_others = grouping == UsageGrouping::User && !context.is_admin();
        if is_of_others || (grouping == UsageGrouping::Reason && view.query.end_user.is_some()) {
            continue;
        }
        let query = RetrieveUsageQuery { group_by: Some(grouping), measure: Some(measure), ..view.query.clone() };
        cards.push(CardQuery { id, title, query });
    }
    cards
}

/// The cards that have rows. `tops` has the groups for each of the queries.
pub(super) fn cards(
    context: &PageContext<'_>,
    view: &UsageView,
    queries: &[CardQuery],
    tops: &[GroupedUsage],
) -> Vec<UsageCard> {
    let filters = record_filters::shared_filters(&context.request.query);
    let mut cards = Vec::new();
    for (CardQuery { id, title, query }, top) in queries.iter().zip(tops) {
        let view = view.with_grouping(query);
        let mut rows = group_rows(context, &view, top, &GroupedUsage::default(), &filters);
        rows.retain(|row| usage_measure::amount(view.measure, &row.group) > 0);
        rows.truncate(CARD_ROWS);
        if !rows.is_empty() {
            cards.push(UsageCard { id, title, rows });
        }
    }
    cards
}

/// The value of a group in words.
fn shown_value(context: &PageContext<'_>, grouping: UsageGrouping, group: &UsageGroup) -> String {
    let texts = context.texts;
    let named = || group.name.clone().unwrap_or_else(|| group.value.clone());
    let text = match grouping {
        UsageGrouping::Hour => group.value.replace('T', " ") + ":00",
        UsageGrouping::Key if group.value.is_empty() => return texts.get("usage.no_key").to_owned(),
        UsageGrouping::User if group.name.is_none() => return texts.get("keys.nobody").to_owned(),
        UsageGrouping::Key | UsageGrouping::User => named(),
        UsageGrouping::Reason if group.value.is_empty() => return texts.get("usage.no_reason").to_owned(),
        UsageGrouping::Reason => {
            let reason = group.value.parse::<types::RecordReason>().ok();
            let page = context.layout("usage");
            return reason.map_or_else(named, |reason| texts.get(page.record_reason(&reason)).to_owned());
        }
        _ if group.value.is_empty() => return texts.get("usage.no_value").to_owned(),
        _ => group.value.clone(),
    };
    names::escape_hidden(&text).into_owned()
}

/// The address of the records of a group, with the other filters.
fn records_of_group(view: &UsageView, value: &str, filters: &[(&'static str, String)]) -> Option<String> {
    let (since, until) = (view.since.to_string(), view.until.to_string());
    let day = value.get(..10).unwrap_or_default();
    let (name, period) = match view.grouping {
        UsageGrouping::Day | UsageGrouping::Hour => ("", [day, day]),
        UsageGrouping::Key => ("key", [&*since, &*until]),
        UsageGrouping::User => ("user", [&*since, &*until]),
        UsageGrouping::Group => ("group", [&*since, &*until]),
        UsageGrouping::Account => ("account", [&*since, &*until]),
        UsageGrouping::Model => ("model", [&*since, &*until]),
        UsageGrouping::Reason => ("error_reason", [&*since, &*until]),
        UsageGrouping::Size => ("size", [&*since, &*until]),
        UsageGrouping::Quality => ("quality", [&*since, &*until]),
    };
    if value.is_empty() {
        return None;
    }
    let others = filters.iter().map(|(name, value)| (*name, value.as_str()));
    let mut all: Vec<_> = others.filter(|(other, _)| *other != name).collect();
    let [since, until] = period;
    if !name.is_empty() {
        all.push((name, value));
    }
    let state = if view.grouping == UsageGrouping::Reason { UNSUCCESSFUL } else { "" };
    all.extend([("since", since), ("until", until), ("state", state)]);
    Some(record_filters::records_link(&all))
}
