//! The pages of the records: the list, and one record with its details.

use askama::Template;
use chrono::Utc;
use http::StatusCode;
use http::header::REFRESH;

use super::account_availability::AccountAvailability;
use super::attempt_timeline::{self, TimelineCall};
use super::failure_explanation::{FailureExplanation, ResponsibleParty};
use super::http_messages::PageResponse;
use super::keys::older_page_link;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::record_filters::{self, RecordFilters, UNSUCCESSFUL};
use super::sort_links::SortLinks;
use super::stored_images::{self, StoredImages};
use super::usage::csv_download;
use crate::gateway::console::Console;
use crate::gateway::usage::{RECORD_COLUMNS, RecordColumn};
use crate::wire::admin::types;

/// The maximum number of records on one page (our choice).
const PER_PAGE: i64 = 50;
/// The seconds after which the page of a request that is in progress is loaded again (our choice).
const LOOK_AGAIN_SECONDS: &str = "5";
/// The maximum number of calls that an explanation names (our choice); the timeline has all of them.
const NAMED_CALLS_MAX: usize = 8;

#[derive(Template)]
#[template(path = "records.html", config = "src/gateway/pages/askama.toml")]
struct RecordsPage {
    page: PageLayout,
    records: types::RecordList,
    columns: &'static [RecordColumn],
    filters: RecordFilters,
    sort: SortLinks,
    /// True if only the newest records are looked at, because no index has the order or a filter.
    is_bounded: bool,
    download: String,
    newest: Option<String>,
    older: Option<String>,
}

#[derive(Template)]
#[template(path = "record.html", config = "src/gateway/pages/askama.toml")]
struct RecordPage {
    page: PageLayout,
    record: types::Record,
    /// The explanation of a request that did not succeed.
    explanation: Option<FailureExplanation>,
    /// The time at which the accounts of the group can be asked again, if the failure depended on them.
    availability: Option<AccountAvailability>,
    /// The images, for the user whose request it was.
    stored_images: StoredImages,
    calls: Vec<TimelineCall>,
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
    let query = record_filters::console_query(context, PER_PAGE);
    let records = context.console().list_records(context.actor()?, &query).await?;
    let (request, page) = (context.request, context.layout("records"));
    let sort = query.sort.unwrap_or(types::RecordSort::Time);
    let template = RecordsPage {
        sort: SortLinks::new(request, "/records", sort),
        is_bounded: sort != types::RecordSort::Time || query.size.is_some() || query.quality.is_some(),
        older: records
            .data
            .last()
            .filter(|_| records.has_more)
            .map(|last| older_page_link(request, "/records", &last.request_id)),
        newest: request
            .query_param("before")
            .map(|_| format!("/records?{}", request.query.to_query_without(&["before"]))),
        download: format!("/records.csv?{}", request.query.to_query_without(&["before"])),
        filters: RecordFilters::from_request(context, &page),
        columns: RECORD_COLUMNS,
        records,
        page,
    };
    Ok(render(StatusCode::OK, &template))
}

/// Shows one record with all its details.
pub(super) async fn show_record(context: &PageContext<'_>, id: &str) -> Result<PageResponse, PageError> {
    let record = context.console().retrieve_record(context.actor()?, id).await?;
    let explanation = FailureExplanation::from_record(&record);
    let template = RecordPage {
        page: context.layout("records"),
        images: describe_images(&record),
        tokens: record.usage.as_ref().map(TokenBreakdown::from_usage),
        host_tokens: record.host_usage.as_ref().map(TokenBreakdown::from_usage),
        availability: availability(context, &record, explanation.as_ref()).await?,
        calls: attempt_timeline::calls(&record),
        stored_images: stored_images::of_record(context, &record).await?,
        explanation,
        record,
    };
    let response = render(StatusCode::OK, &template);
    Ok(if template.stored_images.is_running { response.with_header(REFRESH, LOOK_AGAIN_SECONDS) } else { response })
}

/// Returns the time at which the accounts of the group can be asked again, if the request failed because of them. Only
/// admins see the state of accounts.
async fn availability(
    context: &PageContext<'_>,
    record: &types::Record,
    explanation: Option<&FailureExplanation>,
) -> Result<Option<AccountAvailability>, PageError> {
    // An account that does not offer the model can be asked at any time, and will refuse again.
    let depends_on_accounts = record.error_reason != Some(types::RecordReason::Missing)
        && explanation.is_some_and(|explanation| {
            matches!(explanation.fault, ResponsibleParty::Upstream | ResponsibleParty::Configuration)
        });
    if !depends_on_accounts || !context.is_admin() {
        return Ok(None);
    }
    let accounts = context.console().list_accounts(context.actor()?).await?.data;
    Ok(AccountAvailability::of_group(&record.group, &accounts, Utc::now()))
}

/// Returns the newest records that match the filter as a CSV file, up to [`Console::CSV_RECORDS_MAX`].
pub(super) async fn download_csv(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let query = record_filters::console_query(context, PER_PAGE);
    let csv = context.console().records_csv(context.actor()?, &query).await?;
    Ok(csv_download(&csv, "records.csv"))
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

// === impl RecordPage ===

impl RecordPage {
    /// The calls that the explanation names.
    fn named_calls(&self) -> &[TimelineCall] {
        self.calls.get(..NAMED_CALLS_MAX).unwrap_or(&self.calls)
    }

    /// The sentence about the payment.
    fn payment_text(&self, explanation: &FailureExplanation) -> String {
        let cost = explanation.payment.cost().map(|cost| self.page.exact_cost(&cost)).unwrap_or_default();
        self.page.text_with(explanation.payment.text(), "cost", cost)
    }
}
