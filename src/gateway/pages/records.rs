//! The pages of the records: the list, and one record with its details.

use askama::Template;
use chrono::{DateTime, NaiveTime, Utc};
use http::StatusCode;

use super::form::PageForm;
use super::http_messages::PageResponse;
use super::keys::older_page_link;
use super::page_context::{PageContext, end_of_day};
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::usage::csv_download;
use crate::gateway::console::Console;
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

/// The maximum number of records on one page (our choice).
const PER_PAGE: i64 = 50;

/// The fields of the filter form.
const FILTER_FIELDS: [&str; 6] = ["key", "user", "end_user", "state", "since", "until"];

/// The states that the list can be filtered by.
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
    newest: Option<String>,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "record.html", config = "src/gateway/pages/askama.toml")]
struct RecordPage {
    page: PageLayout,
    record: types::Record,
    images: String,
    /// The tokens of the image model, with input and output each split into images and text.
    tokens: Option<TokenBreakdown>,
    /// The tokens of the text model, which the page shows without such a split.
    host_tokens: Option<TokenBreakdown>,
}

/// Token counts as the page shows them.
struct TokenBreakdown {
    input: Option<u64>,
    input_image: Option<u64>,
    input_text: Option<u64>,
    /// The part of the input that the upstream had in its cache.
    cached: Option<types::RecordTokens>,
    output: Option<u64>,
    output_image: Option<u64>,
    output_text: Option<u64>,
    total: Option<u64>,
}

/// Shows the list of records.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, form) = read_query(context, PER_PAGE);
    let records = context.console().list_records(context.actor()?, &query).await?;
    let request = context.request;
    let template = RecordsPage {
        page: context.layout("records"),
        older: records
            .data
            .last()
            .filter(|_| records.has_more)
            .map(|last| older_page_link(request, "/records", &last.request_id)),
        newest: request
            .query_param("before")
            .map(|_| format!("/records?{}", request.query.to_query_with("before", None))),
        download: format!("/records.csv?{}", request.query.to_query_with("before", None)),
        is_filtered: FILTER_FIELDS.iter().any(|name| request.query_param(name).is_some()),
        states: &STATES,
        records,
        form,
    };
    Ok(render(StatusCode::OK, &template))
}

/// Shows one record with all its details.
pub(super) async fn show_record(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let record = context.console().retrieve_record(context.actor()?, id).await?;
    let template = RecordPage {
        page: context.layout("records"),
        images: describe_images(&record),
        tokens: record.usage.as_ref().map(TokenBreakdown::from_usage),
        host_tokens: record.host_usage.as_ref().map(TokenBreakdown::from_usage),
        record,
    };
    Ok(render(StatusCode::OK, &template))
}

/// Returns the newest records that match the filter as a CSV file, up to [`Console::CSV_RECORDS_MAX`].
pub(super) async fn download_csv(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let (query, _) = read_query(context, PER_PAGE);
    let csv = context.console().records_csv(context.actor()?, &query).await?;
    Ok(csv_download(&csv, "records.csv"))
}

/// The query of the console for the filter of the request, and the filter form with its values.
fn read_query(context: &PageContext<'_>, limit: i64) -> (ListRecordsQuery, PageForm) {
    let request = context.request;
    let query_param = |name: &str| request.query_param(name).map(str::to_owned);
    let query = ListRecordsQuery {
        before: query_param("before"),
        end_user: request.raw_query_param("end_user"),
        group: query_param("group"),
        key: query_param("key"),
        limit: types::PageLimit::new(limit).ok(),
        since: request.query_param("since").and_then(beginning_of_day),
        state: request.query_param("state").and_then(|word| word.parse().ok()),
        until: request.query_param("until").and_then(end_of_day),
        user: query_param("user").filter(|_| context.is_admin()),
        ..ListRecordsQuery::default()
    };
    let mut form = PageForm::default();
    for name in FILTER_FIELDS {
        form = form.with_value(name, request.query.get(name));
    }
    (query, form)
}

fn beginning_of_day(day: &str) -> Option<DateTime<Utc>> {
    Some(day.parse::<chrono::NaiveDate>().ok()?.and_time(NaiveTime::MIN).and_utc())
}

/// Lists size, format and quality of each delivered image.
fn describe_images(record: &types::Record) -> String {
    let image = |image: &types::RecordImage| {
        let parts = [image.size.as_deref(), image.output_format.as_deref(), image.quality.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    record.delivered.iter().map(image).collect::<Vec<_>>().join("; ")
}

// === impl TokenBreakdown ===

impl TokenBreakdown {
    fn from_usage(usage: &types::RecordUsage) -> Self {
        let (input, output) = (usage.input_tokens_details.as_ref(), usage.output_tokens_details.as_ref());
        Self {
            input: usage.input_tokens,
            input_image: input.and_then(|details| details.image_tokens),
            input_text: input.and_then(|details| details.text_tokens),
            cached: usage.cached_tokens_details.clone(),
            output: usage.output_tokens,
            output_image: output.and_then(|details| details.image_tokens),
            output_text: output.and_then(|details| details.text_tokens),
            total: usage.total_tokens,
        }
    }
}
