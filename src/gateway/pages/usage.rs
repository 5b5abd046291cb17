//! The usage, by day and by key.

use askama::Template;
use bytes::Bytes;
use chrono::{Days, NaiveDate, Utc};
use http::StatusCode;
use http::header::CONTENT_DISPOSITION;

use super::chart::UsageChart;
use super::desk::PageContext;
use super::failure::{PageError, rendered};
use super::form::PageForm;
use super::frame::PageLayout;
use super::visit::PageResponse;
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// The number of days that are shown by default (ours).
const DAYS: u64 = 29;

const FILTERS: [&str; 6] = ["key", "user", "end_user", "group", "since", "until"];

#[derive(Template)]
#[template(path = "usage.html", config = "src/gateway/pages/askama.toml")]
struct UsagePage {
    page: PageLayout,
    usage: types::Usage,
    form: PageForm,
    chart: UsageChart,
    /// The address of the same usage as a file.
    download: String,
    is_empty: bool,
    is_filtered: bool,
}

/// Shows the page.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, form) = query(desk);
    let usage = desk.console().retrieve_usage(desk.actor()?, &query).await?;
    let template = UsagePage {
        page: desk.page("usage"),
        form,
        chart: UsageChart::of(&usage),
        download: format!("/usage.csv?{}", desk.visit.query.with("done", None)),
        is_filtered: FILTERS.iter().any(|name| desk.visit.asked(name).is_some()),
        is_empty: usage.totals.requests == 0 && usage.totals.refused == 0,
        usage,
    };
    Ok(rendered(StatusCode::OK, &template))
}

/// Returns the days as a file.
pub(super) async fn table(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, _) = query(desk);
    let csv = desk.console().sheet_of_usage(desk.actor()?, &query).await?;
    Ok(file(&csv, "usage.csv"))
}

/// A table as a download, behind the mark by which spreadsheets recognize UTF-8.
pub(super) fn file(csv: &str, name: &str) -> PageResponse {
    let body = Bytes::from(format!("\u{feff}{csv}"));
    let shown = PageResponse::of(StatusCode::OK, "text/csv; charset=utf-8; header=present", body);
    shown.with(CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}\""))
}

/// The requested query, and the form that shows it.
fn query(desk: &PageContext<'_>) -> (RetrieveUsageQuery, PageForm) {
    let today = Utc::now().date_naive();
    let day = |name: &str| desk.visit.asked(name).and_then(|text| text.parse::<NaiveDate>().ok());
    let until = day("until").unwrap_or(today);
    let since = day("since").or_else(|| until.checked_sub_days(Days::new(DAYS))).unwrap_or(until).min(until);
    let asked = |name: &str| desk.visit.asked(name).map(str::to_owned);
    let query = RetrieveUsageQuery {
        end_user: desk.visit.exactly("end_user"),
        group: asked("group"),
        key: asked("key"),
        since: Some(since),
        until: Some(until),
        user: asked("user").filter(|_| desk.is_admin()),
    };
    let form = PageForm::default()
        .with("since", since.to_string())
        .with("until", until.to_string())
        .with("key", query.key.clone().unwrap_or_default())
        .with("user", query.user.clone().unwrap_or_default())
        .with("end_user", query.end_user.clone().unwrap_or_default());
    (query, form)
}
