//! The page of the usage by day and by key.

use askama::Template;
use bytes::Bytes;
use chrono::{Datelike as _, Days, NaiveDate, TimeDelta, Utc};
use http::StatusCode;
use http::header::CONTENT_DISPOSITION;

use super::chart::{ChartBar, UsageChart};
use super::form::PageForm;
use super::format::CountValue as _;
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::record_filters::{self, UNSUCCESSFUL};
use super::usage_measure::{self, UsageMeasure};
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// The number of days before the last day that are shown by default (our choice).
const DEFAULT_DAYS: u64 = 29;

/// The parameters of the query that limit the usage.
const FILTER_FIELDS: [&str; 6] = ["key", "user", "end_user", "group", "since", "until"];

#[derive(Template)]
#[template(path = "usage.html", config = "src/gateway/pages/askama.toml")]
struct UsagePage {
    page: PageLayout,
    usage: types::Usage,
    form: PageForm,
    chart: UsageChart,
    /// The path of the same usage as a CSV file.
    download: String,
    /// The filters that the list of records has too, apart from the days.
    record_filters: Vec<(&'static str, String)>,
    is_empty: bool,
    is_filtered: bool,
    measure: UsageMeasure,
    /// The totals of the period of the same length before this one.
    before: types::UsageCounts,
    measures: Vec<ViewLink>,
    presets: Vec<ViewLink>,
}

/// A link to another view of the usage.
struct ViewLink {
    /// The key of the text.
    label: &'static str,
    path: String,
    is_current: bool,
}

/// Shows the usage.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, form) = read_query(context);
    let earlier = earlier_period(&query);
    let (actor, console) = (context.actor()?, context.console());
    let usage = console.retrieve_usage(actor, &query).await?;
    let before = console.usage_totals(actor, &earlier).await?;
    let measure = UsageMeasure::from_code(context.request.query_param("measure"));
    let template = UsagePage {
        page: context.layout("usage"),
        form: form.with_value("measure", measure.code()),
        chart: UsageChart::from_usage(&usage, measure),
        measure,
        before,
        measures: measure_links(context, measure),
        presets: preset_links(context, &usage),
        download: format!("/usage.csv?{}", context.request.query.to_query_with("done", None)),
        record_filters: record_filters::shared_filters(&context.request.query),
        is_filtered: FILTER_FIELDS.iter().any(|name| context.request.query_param(name).is_some()),
        is_empty: usage.totals.requests == 0 && usage.totals.refused == 0,
        usage,
    };
    Ok(render(StatusCode::OK, &template))
}

/// The same usage in the period of the same length before.
fn earlier_period(query: &RetrieveUsageQuery) -> RetrieveUsageQuery {
    let mut earlier = query.clone();
    if let (Some(since), Some(until)) = (query.since, query.until) {
        earlier.until = since.pred_opt();
        earlier.since = since.checked_sub_signed(until - since + TimeDelta::days(1));
    }
    earlier
}

/// The links to the measures, which keep the filters.
fn measure_links(context: &PageContext<'_>, current: UsageMeasure) -> Vec<ViewLink> {
    let link = |measure: UsageMeasure| ViewLink {
        label: measure.label(),
        path: format!("/usage?{}", context.request.query.to_query_with("measure", Some(measure.code()))),
        is_current: measure == current,
    };
    UsageMeasure::ALL.into_iter().map(link).collect()
}

/// The links to common periods, which keep the other filters.
fn preset_links(context: &PageContext<'_>, usage: &types::Usage) -> Vec<ViewLink> {
    let today = Utc::now().date_naive();
    let days_ago = |days| today.checked_sub_days(Days::new(days)).unwrap_or(today);
    let presets = [
        ("usage.week", days_ago(6)),
        ("usage.thirty_days", days_ago(DEFAULT_DAYS)),
        ("usage.ninety_days", days_ago(89)),
        ("usage.month", today.with_day(1).unwrap_or(today)),
    ];
    let link = |(label, since): (&'static str, NaiveDate)| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for name in ["key", "user", "end_user", "group", "measure"] {
            let value = context.request.query.get(name);
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.append_pair("since", &since.to_string()).append_pair("until", &today.to_string());
        let is_current = usage.since == since && usage.until == today;
        ViewLink { label, path: format!("/usage?{}", query.finish()), is_current }
    };
    presets.into_iter().map(link).collect()
}

/// Returns the usage by day as a CSV file.
pub(super) async fn download_csv(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, _) = read_query(context);
    let csv = context.console().usage_csv(context.actor()?, &query).await?;
    Ok(csv_download(&csv, "usage.csv"))
}

/// A CSV file as a download, with the byte order mark by which spreadsheets recognize UTF-8.
pub(super) fn csv_download(csv: &str, name: &str) -> PageResponse {
    let body = Bytes::from(format!("\u{feff}{csv}"));
    let response = PageResponse::new(StatusCode::OK, "text/csv; charset=utf-8; header=present", body);
    response.with_header(CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}\""))
}

/// The query of the console for the filter of the request, and the filter form with its values.
fn read_query(context: &PageContext<'_>) -> (RetrieveUsageQuery, PageForm) {
    let today = Utc::now().date_naive();
    let day = |name: &str| context.request.query_param(name).and_then(|text| text.parse::<NaiveDate>().ok());
    let until = day("until").unwrap_or(today);
    let since = day("since").or_else(|| until.checked_sub_days(Days::new(DEFAULT_DAYS))).unwrap_or(until).min(until);
    let query_param = |name: &str| context.request.query_param(name).map(str::to_owned);
    let query = RetrieveUsageQuery {
        end_user: context.request.raw_query_param("end_user"),
        group: query_param("group"),
        key: query_param("key"),
        since: Some(since),
        until: Some(until),
        user: query_param("user").filter(|_| context.is_admin()),
    };
    let form = PageForm::default()
        .with_value("since", since.to_string())
        .with_value("until", until.to_string())
        .with_value("key", query.key.clone().unwrap_or_default())
        .with_value("user", query.user.clone().unwrap_or_default())
        .with_value("end_user", query.end_user.clone().unwrap_or_default());
    (query, form)
}

// === impl UsagePage ===

impl UsagePage {
    /// The change of a total against the period before.
    fn change(&self, measure: UsageMeasure) -> Option<String> {
        usage_measure::change(measure.of_period(&self.before), measure.of_period(&self.usage.totals))
    }

    /// The share of the requests that succeeded.
    fn success_rate(&self) -> Option<String> {
        usage_measure::share(self.usage.totals.succeeded.count(), self.usage.totals.requests.count())
    }

    /// The address of the records that a bar stands for.
    fn records_of_bar(&self, bar: &ChartBar) -> String {
        let state = match (self.measure, bar.kind) {
            (UsageMeasure::Requests, "good") => "succeeded",
            (UsageMeasure::Requests, _) => UNSUCCESSFUL,
            _ => "",
        };
        self.records_of_day(&bar.day, state)
    }

    /// The address of the records of the whole period, in this state or in any.
    fn records(&self, state: &str) -> String {
        self.records_link("", &self.usage.since, &self.usage.until, state)
    }

    /// The address of the records of one day.
    fn records_of_day(&self, day: &NaiveDate, state: &str) -> String {
        self.records_link("", day, day, state)
    }

    /// The address of the records of one key in the period.
    fn records_of_key(&self, key: &str, state: &str) -> String {
        self.records_link(key, &self.usage.since, &self.usage.until, state)
    }

    fn records_link(&self, key: &str, since: &NaiveDate, until: &NaiveDate, state: &str) -> String {
        let others = self.record_filters.iter().map(|(name, value)| (*name, value.as_str()));
        let mut filters: Vec<_> = others.filter(|(name, _)| key.is_empty() || *name != "key").collect();
        let (since, until) = (since.to_string(), until.to_string());
        filters.extend([("key", key), ("since", &since), ("until", &until), ("state", state)]);
        record_filters::records_link(&filters)
    }
}
