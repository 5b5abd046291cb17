//! The records: the outcome of each request.

use askama::Template;
use chrono::{DateTime, NaiveTime, Utc};
use http::StatusCode;

use super::desk::{PageContext, end_of};
use super::failure::{PageError, rendered};
use super::form::PageForm;
use super::frame::PageLayout;
use super::keys::after;
use super::usage::file;
use super::visit::PageResponse;
use crate::gateway::console::Console;
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

/// The number of rows on one page (ours).
const PER_PAGE: i64 = 50;

/// The fields of the form.
const FILTERS: [&str; 6] = ["key", "user", "end_user", "state", "since", "until"];

const STATES: [types::RecordState; 6] = [
    types::RecordState::Succeeded,
    types::RecordState::Running,
    types::RecordState::Failed,
    types::RecordState::Refused,
    types::RecordState::Cancelled,
    types::RecordState::Interrupted,
];

#[derive(Template)]
#[template(path = "records.html", config = "src/gateway/pages/askama.toml")]
struct RecordsPage {
    page: PageLayout,
    records: types::RecordList,
    states: &'static [types::RecordState],
    form: PageForm,
    download: String,
    is_filtered: bool,
    newer: Option<String>,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "record.html", config = "src/gateway/pages/askama.toml")]
struct RecordPage {
    page: PageLayout,
    record: types::Record,
    images: String,
    cost: Option<String>,
    /// The input and output tokens, each split into images and text.
    tokens: Option<TokenBreakdown>,
    /// The same of the text model, which does not split them.
    host_tokens: Option<TokenBreakdown>,
}

/// Tokens as the page shows them.
struct TokenBreakdown {
    input: Option<u64>,
    input_image: Option<u64>,
    input_text: Option<u64>,
    output: Option<u64>,
    output_image: Option<u64>,
    output_text: Option<u64>,
    total: Option<u64>,
}

/// Shows the list.
pub(super) async fn show(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, form) = query(desk, PER_PAGE);
    let records = desk.console().list_records(desk.actor()?, &query).await?;
    let visit = desk.visit;
    let template = RecordsPage {
        page: desk.page("records"),
        older: records.data.last().filter(|_| records.has_more).map(|last| after(visit, "/records", &last.request_id)),
        newer: visit.asked("before").map(|_| format!("/records?{}", visit.query.with("before", None))),
        download: format!("/records.csv?{}", visit.query.with("before", None)),
        is_filtered: FILTERS.iter().any(|name| visit.asked(name).is_some()),
        states: &STATES,
        records,
        form,
    };
    Ok(rendered(StatusCode::OK, &template))
}

/// Shows one record with all its details.
pub(super) async fn one(desk: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let record = desk.console().retrieve_record(desk.actor()?, id).await?;
    let template = RecordPage {
        page: desk.page("records"),
        images: images(&record),
        cost: record.cost_usd.map(|cost| format!("{cost:.4} USD")),
        tokens: record.usage.as_ref().map(TokenBreakdown::of),
        host_tokens: record.host_usage.as_ref().map(TokenBreakdown::of),
        record,
    };
    Ok(rendered(StatusCode::OK, &template))
}

/// Returns the list as a file.
pub(super) async fn table(desk: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, _) = query(desk, PER_PAGE);
    let csv = desk.console().sheet_of_records(desk.actor()?, &query).await?;
    Ok(file(&csv, "records.csv"))
}

fn query(desk: &PageContext<'_>, limit: i64) -> (ListRecordsQuery, PageForm) {
    let visit = desk.visit;
    let asked = |name: &str| visit.asked(name).map(str::to_owned);
    let query = ListRecordsQuery {
        before: asked("before"),
        end_user: visit.exactly("end_user"),
        group: asked("group"),
        key: asked("key"),
        limit: types::PageLimit::new(limit).ok(),
        since: visit.asked("since").and_then(beginning_of),
        state: visit.asked("state").and_then(|word| word.parse().ok()),
        until: visit.asked("until").and_then(end_of),
        user: asked("user").filter(|_| desk.is_admin()),
    };
    let mut form = PageForm::default();
    for name in FILTERS {
        form = form.with(name, visit.query.get(name));
    }
    (query, form)
}

fn beginning_of(day: &str) -> Option<DateTime<Utc>> {
    Some(day.parse::<chrono::NaiveDate>().ok()?.and_time(NaiveTime::MIN).and_utc())
}

/// The actual properties of the images, in their order.
fn images(record: &types::Record) -> String {
    let image = |image: &types::RecordImage| {
        let parts = [image.size.as_deref(), image.output_format.as_deref(), image.quality.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    record.delivered.iter().map(image).collect::<Vec<_>>().join("; ")
}

// === impl TokenBreakdown ===

impl TokenBreakdown {
    fn of(usage: &types::RecordUsage) -> Self {
        let (input, output) = (usage.input_tokens_details.as_ref(), usage.output_tokens_details.as_ref());
        Self {
            input: usage.input_tokens,
            input_image: input.and_then(|part| part.image_tokens),
            input_text: input.and_then(|part| part.text_tokens),
            output: usage.output_tokens,
            output_image: output.and_then(|part| part.image_tokens),
            output_text: output.and_then(|part| part.text_tokens),
            total: usage.total_tokens,
        }
    }
}
