//! The page of the usage by day and by key.

use askama::Template;
use bytes::Bytes;
use chrono::{Days, NaiveDate, Utc};
use http::StatusCode;
use http::header::CONTENT_DISPOSITION;

use super::chart::UsageChart;
use super::form::PageForm;
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::record_filters::{self, UNSUCCESSFUL};
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
}

/// Shows the usage.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, form) = read_query(context);
    let usage = context.console().retrieve_usage(context.actor()?, &query).await?;
    let template = UsagePage {
        page: context.layout("usage"),
        form,
        chart: UsageChart::from_usage(&usage),
        download: format!("/usage.csv?{}", context.request.query.to_query_with("done", None)),
        record_filters: record_filters::shared_filters(&context.request.query),
        is_filtered: FILTER_FIELDS.iter().any(|name| context.request.query_param(name).is_some()),
        is_empty: usage.totals.requests == 0 && usage.totals.refused == 0,
        usage,
    };
    Ok(render(StatusCode::OK, &template))
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
