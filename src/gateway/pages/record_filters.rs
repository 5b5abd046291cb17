//! The filters of the list of records: their form, the query for the console, and the links that set or remove them.

use chrono::{DateTime, NaiveTime, Utc};
use url::form_urlencoded;

use super::form::PageForm;
use super::http_messages::UrlEncodedFields;
use super::page_context::{PageContext, end_of_day};
use super::page_layout::PageLayout;
use super::sort_links::SORT_FIELD;
use crate::wire::admin::server::ListRecordsQuery;
use crate::wire::admin::types;

/// The value of the field `state` for all finished requests that did not succeed.
pub(super) const UNSUCCESSFUL: &str = "unsuccessful";

/// The fields of the filter form, the keys of the texts for them where they are in use, and of the labels of those that are
/// text fields in the fold.
const FIELDS: [(&str, &str, &str); 13] = [
    ("state", "keys.state", ""),
    ("error_reason", "records.error", ""),
    ("since", "filter.since", ""),
    ("until", "filter.until", ""),
    ("model", "records.model", "records.model"),
    ("key", "filter.key", "filter.which_key"),
    ("user", "keys.user", "filter.which_user"),
    ("end_user", "record.end_user", "filter.which_end_user"),
    ("group", "keys.group", "keys.group"),
    ("account", "record.account", "filter.which_account"),
    ("size", "records.size", "records.size"),
    ("quality", "records.quality", "records.quality"),
    ("error_code", "record.error", "filter.which_error_code"),
];
/// The number of fields that the form always shows, from the first on.
const VISIBLE_FIELDS: usize = 4;
/// The fields that only admins can use.
const ADMIN_FIELDS: [&str; 2] = ["user", "account"];

/// The filters of a request, as the page shows them.
pub(super) struct RecordFilters {
    pub(super) form: PageForm,
    pub(super) states: &'static [types::RecordState],
    pub(super) reasons: &'static [types::RecordReason],
    /// The names and the keys of the labels of the fields in the fold.
    pub(super) folded_fields: Vec<(&'static str, &'static str)>,
    /// The filters in use, each with the link that removes it.
    pub(super) chips: Vec<FilterChip>,
    /// True if a filter is in use whose field is in the fold.
    pub(super) has_folded_filter: bool,
}

/// A filter in use.
pub(super) struct FilterChip {
    /// The key of the text for the filter.
    pub(super) label: &'static str,
    pub(super) value: String,
    /// The address of the list without this filter.
    pub(super) link: String,
    /// True if the filter has no effect, because its value has no meaning.
    pub(super) is_ignored: bool,
}

// === impl RecordFilters ===

impl RecordFilters {
    /// Reads the filters of the request. Filters that the viewer may not use are left out.
    pub(super) fn from_request(context: &PageContext<'_>, page: &PageLayout) -> Self {
        let fields = &context.request.query;
        let mut form = PageForm::default();
        for (name, ..) in FIELDS {
            form = form.with_value(name, fields.get(name));
        }
        let offered =
            FIELDS.iter().enumerate().filter(|(_, (name, ..))| context.is_admin() || !ADMIN_FIELDS.contains(name));
        let folded_fields = offered.clone().skip(VISIBLE_FIELDS).map(|(_, (name, _, label))| (*name, *label)).collect();
        let used = offered.filter(|(_, (name, ..))| context.request.query_param(name).is_some());
        let (mut chips, mut has_folded_filter) = (Vec::new(), false);
        for (index, (name, label, _)) in used {
            has_folded_filter |= index >= VISIBLE_FIELDS;
            let link = format!("/records?{}", fields.to_query_without(&[name, "before"]));
            let value = fields.get(name);
            chips.push(FilterChip {
                label,
                value: shown_value(page, name, value),
                link,
                is_ignored: !has_meaning(name, value.trim()),
            });
        }
        Self {
            form,
            states: &types::RecordState::ALL,
            reasons: &types::RecordReason::ALL,
            folded_fields,
            chips,
            has_folded_filter,
        }
    }

    /// True if any filter is in use.
    pub(super) fn is_filtered(&self) -> bool {
        !self.chips.is_empty()
    }
}

/// True if a filter can have this value.
fn has_meaning(name: &str, value: &str) -> bool {
    match name {
        "state" => value == UNSUCCESSFUL || value.parse::<types::RecordState>().is_ok(),
        "error_reason" => value.parse::<types::RecordReason>().is_ok(),
        "since" | "until" => beginning_of_day(value).is_some(),
        _ => true,
    }
}

/// The value of a filter in words.
fn shown_value(page: &PageLayout, name: &str, value: &str) -> String {
    let text = match name {
        "state" if value == UNSUCCESSFUL => Some("count.failed"),
        "state" => value.parse().ok().map(|state| page.record_state(&state)),
        "error_reason" => value.parse().ok().map(|reason| page.record_reason(&reason)),
        _ => None,
    };
    text.map_or_else(|| value.to_owned(), |key| page.text(key).to_owned())
}

/// The query of the console for the filters of the request.
pub(super) fn console_query(context: &PageContext<'_>, limit: i64) -> ListRecordsQuery {
    let request = context.request;
    let query_param = |name: &str| request.query_param(name).map(str::to_owned);
    let admin_param = |name: &str| query_param(name).filter(|_| context.is_admin());
    let state = request.query_param("state");
    ListRecordsQuery {
        account: admin_param("account"),
        before: query_param("before"),
        end_user: request.raw_query_param("end_user"),
        error_code: query_param("error_code"),
        error_reason: request.query_param("error_reason").and_then(|word| word.parse().ok()),
        group: query_param("group"),
        key: query_param("key"),
        limit: types::PageLimit::new(limit).ok(),
        model: query_param("model"),
        quality: query_param("quality"),
        outcome: state.filter(|word| *word == UNSUCCESSFUL).map(|_| types::RecordOutcome::Unsuccessful),
        size: query_param("size"),
        since: request.query_param("since").and_then(beginning_of_day),
        sort: request.query_param(SORT_FIELD).and_then(|word| word.parse().ok()),
        state: state.and_then(|word| word.parse().ok()),
        until: request.query_param("until").and_then(end_of_day),
        user: admin_param("user"),
    }
}

fn beginning_of_day(day: &str) -> Option<DateTime<Utc>> {
    Some(day.parse::<chrono::NaiveDate>().ok()?.and_time(NaiveTime::MIN).and_utc())
}

/// The address of the list of records with these filters; those without a value are left out.
pub(super) fn records_link(filters: &[(&str, &str)]) -> String {
    let filters = filters.iter().filter(|(_, value)| !value.is_empty());
    format!("/records?{}", form_urlencoded::Serializer::new(String::new()).extend_pairs(filters).finish())
}

/// The filters of another page that the list of records has too, apart from the days.
pub(super) fn shared_filters(fields: &UrlEncodedFields) -> Vec<(&'static str, String)> {
    ["key", "user", "end_user", "group"].into_iter().map(|name| (name, fields.get(name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::pages::language::Language;
    use crate::gateway::pages::page_layout::Theme;

    #[test]
    fn values_are_shown_in_words() {
        let page = PageLayout::bare(Language::En, Theme::Auto);
        for (name, value, shown) in [
            ("state", "failed", "Failed"),
            ("state", UNSUCCESSFUL, "Unsuccessful"),
            ("state", "banana", "banana"),
            ("error_reason", "quota", "Quota or billing"),
            ("model", "failed", "failed"),
        ] {
            assert_eq!(shown_value(&page, name, value), shown, "{name} {value}");
        }
    }

    #[test]
    fn a_value_without_meaning_is_known() {
        for (name, value, meaning) in [
            ("state", "failed", true),
            ("state", UNSUCCESSFUL, true),
            ("state", "banana", false),
            ("error_reason", "because", false),
            ("since", "2026-02-30", false),
            ("until", "2026-02-28", true),
            ("model", "banana", true),
        ] {
            assert_eq!(has_meaning(name, value), meaning, "{name} {value}");
        }
    }

    #[test]
    fn links_keep_only_filters_with_a_value() {
        let fields = UrlEncodedFields::parse(b"key=key_1&end_user=a+%26+b&before=r1&since=2026-11-01");
        let shared = shared_filters(&fields);
        let mut filters: Vec<_> = shared.iter().map(|(name, value)| (*name, value.as_str())).collect();
        filters.push(("state", UNSUCCESSFUL));
        assert_eq!(records_link(&filters), "/records?key=key_1&end_user=a+%26+b&state=unsuccessful");
        assert_eq!(fields.to_query_without(&["key", "before"]), "end_user=a+%26+b&since=2026-11-01");
    }
}
