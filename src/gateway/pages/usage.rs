//! The page of the usage: the counts of a period, by day, key or another property.

use std::borrow::Borrow;

use askama::Template;
use bytes::Bytes;
use chrono::NaiveDate;
use http::StatusCode;
use http::header::CONTENT_DISPOSITION;

use super::chart::{ChartBar, ChartSlot, UsageChart};
use super::form::PageForm;
use super::format::CountValue as _;
use super::http_messages::PageResponse;
use super::page_context::PageContext;
use super::page_error::{PageError, render};
use super::page_layout::PageLayout;
use super::record_filters::{self, UNSUCCESSFUL};
use super::usage_groups::{self, GroupRow, UsageCard, group_rows};
use super::usage_measure::{self, label};
use super::usage_view::{self, UsageView, ViewLink, grouping_label};
use crate::gateway::store::UsageGrouping;
use crate::gateway::usage::{GroupedUsage, UsageGroup, UsageMeasure, UsageOverview};
use crate::wire::admin::server::RetrieveUsageQuery;
use crate::wire::admin::types;

/// The longest period, in days, whose days without requests are shown too (our choice).
const DAYS_MAX: usize = 400;

#[derive(Template)]
#[template(path = "usage.html", config = "src/gateway/pages/askama.toml")]
struct UsagePage {
    page: PageLayout,
    usage: types::Usage,
    form: PageForm,
    /// `None` if the groups are not times.
    chart: Option<UsageChart>,
    rows: Vec<GroupRow>,
    overall: UsageGroup,
    pending_records: u64,
    undetailed_requests: u64,
    /// The most expensive users and keys, and the most frequent reasons of failures.
    cards: Vec<UsageCard>,
    /// The path of the same usage as a CSV file.
    download: String,
    /// The filters that the list of records has too, apart from the days.
    record_filters: Vec<(&'static str, String)>,
    is_empty: bool,
    is_filtered: bool,
    grouping: UsageGrouping,
    measure: UsageMeasure,
    /// The counts of the period of the same length before this one.
    before: UsageGroup,
    measures: Vec<ViewLink>,
    groupings: Vec<ViewLink>,
    presets: Vec<ViewLink>,
}

/// The page that states the problem with an address, and shows no counts.
#[derive(Template)]
#[template(path = "usage_problem.html", config = "src/gateway/pages/askama.toml")]
struct UsageProblemPage {
    page: PageLayout,
    form: PageForm,
    is_filtered: bool,
    presets: Vec<ViewLink>,
}

/// Shows the usage.
pub(super) async fn show(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let view = UsageView::from_request(context);
    if view.form.has_error() {
        return Ok(show_problem(context, view));
    }
    let (actor, console) = (context.actor()?, context.console());
    let usage = match console.retrieve_usage(actor, &query_of_tables(&view)).await {
        Ok(usage) => usage,
        Err(error) => {
            let form = UsageView::from_request(context).form.with_console_error(context.texts, error)?;
            return Ok(show_problem(context, view.with_form(form)));
        }
    };
    let cards = usage_groups::card_queries(context, &view);
    let card_queries: Vec<_> = cards.iter().map(|card| card.query.clone()).collect();
    let overview = console.usage_overview(actor, &view.query, &view.query_before(), &card_queries).await?;
    let UsageOverview { groups: grouped, before, tops } = overview;
    let cards = usage_groups::cards(context, &view, &cards, &tops);
    let record_filters = record_filters::shared_filters(&context.request.query);
    let rows = group_rows(context, &view, &grouped, &before, &record_filters);
    let template = UsagePage {
        page: context.layout("usage"),
        chart: view.grouping.is_time().then(|| chart(context, &view, &grouped)),
        measures: view.measure_links(context),
        groupings: view.grouping_links(context),
        presets: view.preset_links(context),
        form: view.form,
        measure: view.measure,
        grouping: view.grouping,
        rows,
        before: before.overall,
        pending_records: grouped.pending_records,
        undetailed_requests: grouped.undetailed_requests,
        overall: grouped.overall,
        cards,
        download: format!("/usage.csv?{}", context.request.query.to_query_without(&["done"])),
        record_filters,
        is_filtered: view.is_filtered,
        is_empty: usage.totals.requests == 0 && usage.totals.refused == 0,
        usage,
    };
    Ok(render(StatusCode::OK, &template))
}

/// The query for the tables by day and by key, which need no groups.
fn query_of_tables(view: &UsageView) -> RetrieveUsageQuery {
    RetrieveUsageQuery { group_by: None, ..view.query.clone() }
}

fn show_problem(context: &PageContext<'_>, view: UsageView) -> PageResponse {
    let presets = view.preset_links(context);
    let template =
        UsageProblemPage { page: context.layout("usage"), form: view.form, is_filtered: view.is_filtered, presets };
    render(StatusCode::BAD_REQUEST, &template)
}

/// The chart of the days or hours, also of those without requests unless the period is long.
fn chart(context: &PageContext<'_>, view: &UsageView, grouped: &GroupedUsage) -> UsageChart {
    let days: Vec<NaiveDate> = view.since.iter_days().take_while(|day| *day <= view.until).take(DAYS_MAX + 1).collect();
    let empty = |time: String| ChartSlot { read_out: String::new(), time, good: 0, bad: 0 };
    let mut slots: Vec<ChartSlot> = match view.grouping {
        UsageGrouping::Hour => {
            days.iter().flat_map(|day| (0..24).map(move |hour| format!("{day}T{hour:02}"))).map(empty).collect()
        }
        _ if days.len() > DAYS_MAX => Vec::new(),
        _ => days.iter().map(|day| empty(day.to_string())).collect(),
    };
    for group in &grouped.groups {
        let slot = slot(context, view.measure, group);
        match slots.binary_search_by(|other| other.time.cmp(&slot.time)) {
            Ok(index) => slots[index] = slot,
            Err(index) => slots.insert(index, slot),
        }
    }
    UsageChart::from_slots(&slots, view.measure)
}

fn slot(context: &PageContext<'_>, measure: UsageMeasure, group: &UsageGroup) -> ChartSlot {
    let time = group.value.clone();
    let shown = time.replace('T', " ") + if time.contains('T') { ":00" } else { "" };
    if measure == UsageMeasure::Requests {
        let (good, bad) = (group.counts.succeeded.count(), group.counts.failed.count());
        let count =
            |label: &str, count| format!("{}: {}", context.texts.get(label), usage_measure::format(measure, count));
        let read_out = format!("{shown} · {} · {}", count("count.succeeded", good), count("count.failed", bad));
        return ChartSlot { time, good, bad, read_out };
    }
    let good = usage_measure::amount(measure, group);
    let read_out = format!("{shown} · {}: {}", context.texts.get(label(measure)), usage_measure::format(measure, good));
    ChartSlot { time, good, bad: 0, read_out }
}

/// Returns the usage by day, or by another property, as a CSV file.
pub(super) async fn download_csv(context: &PageContext<'_>) -> Result<PageResponse, PageError> {
    let view = UsageView::from_request(context);
    if view.form.has_error() {
        return Ok(show_problem(context, view));
    }
    // Without a property in the address, the file has the rows of the tables.
    let has_grouping = context.request.query_param("group_by").is_some();
    let query = if has_grouping { view.query } else { query_of_tables(&view) };
    let csv = context.console().usage_csv(context.actor()?, &query).await?;
    Ok(csv_download(&csv, "usage.csv"))
}

/// A CSV file as a download, with the byte order mark by which spreadsheets recognize UTF-8.
pub(super) fn csv_download(csv: &str, name: &str) -> PageResponse {
    let body = Bytes::from(format!("\u{feff}{csv}"));
    let response = PageResponse::new(StatusCode::OK, "text/csv; charset=utf-8; header=present", body);
    response.with_header(CONTENT_DISPOSITION, &format!("attachment; filename=\"{name}\""))
}

// === impl UsagePage ===

impl UsagePage {
    /// The change of a total against the period before.
    fn change(&self, measure: UsageMeasure) -> Option<String> {
        let [before, now] = [&self.before, &self.overall].map(|group| usage_measure::amount(measure, group));
        usage_measure::change(before, now)
    }

    /// The amount of the whole period as text; `None` if it is not known.
    fn total(&self, measure: UsageMeasure) -> Option<String> {
        measure.of_group(&self.overall).map(|amount| usage_measure::format(measure, amount.count()))
    }

    #[expect(clippy::unused_self, reason = "a template can call functions only on its fields and itself")]
    fn measure_label(&self, measure: impl Borrow<UsageMeasure>) -> &'static str {
        label(*measure.borrow())
    }

    fn grouping_label(&self) -> &'static str {
        grouping_label(self.grouping)
    }

    /// The known cost that replays saved.
    fn saved(&self) -> String {
        usage_measure::format(UsageMeasure::Saved, usage_measure::amount(UsageMeasure::Saved, &self.overall))
    }

    /// The measures of the table by group besides the one that was chosen.
    fn other_measures(&self) -> Vec<UsageMeasure> {
        let has_details = self.overall.details.is_some();
        let is_shown =
            |measure: &UsageMeasure| *measure != self.measure && (has_details || !usage_view::is_detail(*measure));
        UsageMeasure::ALL.into_iter().filter(is_shown).collect()
    }

    /// The share of the requests that succeeded.
    fn success_rate(&self) -> Option<String> {
        usage_measure::share(self.usage.totals.succeeded.count(), self.usage.totals.requests.count())
    }

    /// The kinds of tokens: the key of the text, and the number.
    fn token_kinds(&self) -> Vec<(&'static str, u64)> {
        let Some(details) = &self.overall.details else { return Vec::new() };
        let kinds = [
            ("tokens.input_text", details.input_text_tokens),
            ("tokens.input_image", details.input_image_tokens),
            ("tokens.input_cached", details.input_cached_tokens),
            ("tokens.output_text", details.output_text_tokens),
            ("tokens.output_image", details.output_image_tokens),
            ("tokens.host_input", details.host_input_tokens),
            ("tokens.host_output", details.host_output_tokens),
        ];
        kinds.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The address of the records that a bar stands for.
    fn records_of_bar(&self, bar: &ChartBar) -> String {
        let day = bar.time.get(..10).and_then(|day| day.parse().ok()).unwrap_or(self.usage.since);
        self.records_of_day(&day, "")
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
