//! The view of the usage that an address asks for: its period, filters, grouping and measure, or the problem with them.

use chrono::{Datelike as _, Days, NaiveDate, TimeDelta, Utc};

use super::form::PageForm;
use super::page_context::PageContext;
use super::usage_measure;
use crate::gateway::store::UsageGrouping;
use crate::gateway::usage::{HOUR_DAYS_MAX, UsageMeasure};
use crate::wire::admin::server::RetrieveUsageQuery;

/// The number of days before the last day that are shown by default (our choice).
const DEFAULT_DAYS: u64 = 29;

/// The parameters of the query that limit the usage.
const FILTER_FIELDS: [&str; 6] = ["key", "user", "end_user", "group", "since", "until"];

/// The view that an address asks for.
pub(super) struct UsageView {
    pub(super) query: RetrieveUsageQuery,
    /// The filter form with its values, and with the problems of the address.
    pub(super) form: PageForm,
    pub(super) since: NaiveDate,
    pub(super) until: NaiveDate,
    pub(super) grouping: UsageGrouping,
    pub(super) measure: UsageMeasure,
    pub(super) is_filtered: bool,
}

/// A link to another view of the usage.
pub(super) struct ViewLink {
    /// The key of the text.
    pub(super) label: &'static str,
    pub(super) path: String,
    pub(super) is_current: bool,
}

// === impl UsageView ===

impl UsageView {
    /// Reads the address. Nothing in it is changed silently: the form has a text for each problem.
    pub(super) fn from_request(context: &PageContext<'_>) -> Self {
        let (request, texts) = (context.request, context.texts);
        let mut form = PageForm::default();
        for name in ["key", "user", "end_user"] {
            form = form.with_value(name, request.query.get(name));
        }
        let today = Utc::now().date_naive();
        let day = |name: &str| request.query_param(name).map(str::parse::<NaiveDate>);
        let until = day("until").unwrap_or(Ok(today));
        let since = day("since");
        for (name, is_invalid) in [("since", since.as_ref().is_some_and(Result::is_err)), ("until", until.is_err())] {
            if is_invalid {
                form = form.with_error(name, texts.get("usage.not_a_day"));
            }
        }
        let until = until.unwrap_or(today);
        let default_since = until.checked_sub_days(Days::new(DEFAULT_DAYS)).unwrap_or(until);
        let since = since.and_then(Result::ok).unwrap_or(default_since);
        if since > until && !form.has_error() {
            form = form.with_error("since", texts.get("usage.reversed"));
        }
        form = if form.has_error() {
            form.with_value("since", request.query.get("since")).with_value("until", request.query.get("until"))
        } else {
            form.with_value("since", since.to_string()).with_value("until", until.to_string())
        };
        let grouping = request.query_param("group_by").map(str::parse::<UsageGrouping>);
        if grouping.as_ref().is_some_and(Result::is_err) {
            form = form.with_error("group_by", texts.get("usage.unknown_grouping"));
        }
        let measure = request.query_param("measure").map(|word| word.parse::<UsageMeasure>().ok());
        if measure == Some(None) {
            form = form.with_error("measure", texts.get("usage.unknown_measure"));
        }
        let query_param = |name: &str| request.query_param(name).map(str::to_owned);
        let grouping = grouping.and_then(Result::ok).unwrap_or(UsageGrouping::Day);
        let measure = measure.flatten().unwrap_or(UsageMeasure::Requests);
        let query = RetrieveUsageQuery {
            end_user: request.raw_query_param("end_user"),
            group: query_param("group"),
            key: query_param("key"),
            since: Some(since),
            until: Some(until),
            user: query_param("user").filter(|_| context.is_admin()),
            group_by: Some(grouping),
            measure: Some(measure),
        };
        form = form.with_value("group_by", grouping.as_str()).with_value("measure", measure.as_str());
        let is_filtered = FILTER_FIELDS.iter().any(|name| request.query_param(name).is_some());
        Self { query, form, since, until, grouping, measure, is_filtered }.with_grouping_problem(context)
    }

    fn with_grouping_problem(mut self, context: &PageContext<'_>) -> Self {
        let days = (self.until - self.since).num_days() + 1;
        let problem = if self.grouping == UsageGrouping::Account && !context.is_admin() {
            Some("usage.unknown_grouping")
        } else if self.query.end_user.is_some() && !self.grouping.is_in_daily_counts() {
            Some("usage.not_of_end_user")
        } else if self.query.end_user.is_some() && is_detail(self.measure) {
            Some("usage.measure_not_of_end_user")
        } else if self.grouping == UsageGrouping::Hour && days > i64::from(HOUR_DAYS_MAX) {
            Some("usage.too_many_hours")
        } else {
            None
        };
        if let Some(problem) = problem {
            self.form = self.form.with_error("group_by", context.texts.get(problem));
        }
        self
    }

    /// The same view with another form.
    pub(super) fn with_form(self, form: PageForm) -> Self {
        Self { form, ..self }
    }

    /// The same period and filters with the grouping and the measure of a query.
    pub(super) fn with_grouping(&self, query: &RetrieveUsageQuery) -> Self {
        Self {
            query: query.clone(),
            form: PageForm::default(),
            grouping: query.group_by.unwrap_or(self.grouping),
            measure: query.measure.unwrap_or(self.measure),
            ..*self
        }
    }

    /// The same usage in the period of the same length before.
    pub(super) fn query_before(&self) -> RetrieveUsageQuery {
        let length = self.until - self.since + TimeDelta::days(1);
        RetrieveUsageQuery {
            since: self.since.checked_sub_signed(length),
            until: self.since.pred_opt(),
            ..self.query.clone()
        }
    }

    /// The links to the measures, which keep everything else.
    pub(super) fn measure_links(&self, context: &PageContext<'_>) -> Vec<ViewLink> {
        let offered =
            UsageMeasure::ALL.into_iter().filter(|measure| self.query.end_user.is_none() || !is_detail(*measure));
        let link = |measure: UsageMeasure| ViewLink {
            label: usage_measure::label(measure),
            path: path_with(context, "measure", measure.as_str()),
            is_current: measure == self.measure,
        };
        offered.map(link).collect()
    }

    /// The links to the groupings, which keep everything else.
    pub(super) fn grouping_links(&self, context: &PageContext<'_>) -> Vec<ViewLink> {
        let offered = UsageGrouping::ALL.into_iter().filter(|grouping| {
            let is_allowed = context.is_admin() || !matches!(grouping, UsageGrouping::Account | UsageGrouping::User);
            is_allowed && (self.query.end_user.is_none() || grouping.is_in_daily_counts())
        });
        let link = |grouping: UsageGrouping| ViewLink {
            label: grouping_label(grouping),
            path: path_with(context, "group_by", grouping.as_str()),
            is_current: grouping == self.grouping,
        };
        offered.map(link).collect()
    }

    /// The links to common periods, which keep everything else.
    pub(super) fn preset_links(&self, context: &PageContext<'_>) -> Vec<ViewLink> {
        let today = Utc::now().date_naive();
        let days_ago = |days| today.checked_sub_days(Days::new(days)).unwrap_or(today);
        let presets = [
            ("usage.today", today),
            ("usage.week", days_ago(6)),
            ("usage.thirty_days", days_ago(DEFAULT_DAYS)),
            ("usage.ninety_days", days_ago(89)),
            ("usage.month", today.with_day(1).unwrap_or(today)),
        ];
        let link = |(label, since): (&'static str, NaiveDate)| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            let kept = ["key", "user", "end_user", "group", "measure", "group_by"];
            let kept = kept.map(|name| (name, context.request.query.get(name)));
            query.extend_pairs(kept.iter().filter(|(_, value)| !value.is_empty()));
            query.append_pair("since", &since.to_string()).append_pair("until", &today.to_string());
            let is_current = !self.form.has_error() && self.since == since && self.until == today;
            ViewLink { label, path: format!("/usage?{}", query.finish()), is_current }
        };
        presets.into_iter().map(link).collect()
    }
}

fn path_with(context: &PageContext<'_>, name: &str, value: &str) -> String {
    format!("/usage?{}", context.request.query.to_query_with(name, value))
}

/// True if only the detailed counts have this measure.
pub(super) const fn is_detail(measure: UsageMeasure) -> bool {
    matches!(measure, UsageMeasure::Saved | UsageMeasure::P50 | UsageMeasure::P95)
}

/// The key of the text for a grouping.
pub(super) const fn grouping_label(grouping: UsageGrouping) -> &'static str {
    match grouping {
        UsageGrouping::Day => "usage.of_day",
        UsageGrouping::Hour => "usage.of_hour",
        UsageGrouping::Key => "filter.key",
        UsageGrouping::User => "keys.user",
        UsageGrouping::Group => "keys.group",
        UsageGrouping::Account => "record.account",
        UsageGrouping::Model => "records.model",
        UsageGrouping::Size => "usage.of_size",
        UsageGrouping::Quality => "usage.of_quality",
        UsageGrouping::Reason => "records.error",
    }
}
