//! The requests of the measurement of reads: every page and every operation that lists or counts, with each filter, and
//! the commands that do the same.

use super::console_client::ClientRole;

/// A request of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    pub(crate) role: ClientRole,
    pub(crate) path: String,
    /// True if the listener of the metrics answers it.
    pub(crate) is_metrics: bool,
}

/// The facts about the generated records that filters name.
#[derive(Clone, Debug)]
pub(crate) struct FilterValues {
    /// The id of a record in the middle.
    pub(crate) middle: String,
    /// The id of one of the oldest records.
    pub(crate) oldest: String,
    /// The id of a record of the busiest user, in the middle.
    pub(crate) middle_of_user: String,
    /// The first day, and one in the middle, as dates.
    pub(crate) first_day: String,
    pub(crate) middle_day: String,
}

/// The filters of records that are measured alone, in pairs, and with a state. Of each kind there is one with many
/// records, one with few, and one without any.
const KEY_FILTERS: [&str; 3] = ["key=key_generated_0", "key=key_generated_199", "key=key_generated_200"];
const USER_FILTERS: [&str; 3] = ["user=user-0", "user=user-39", "user=user-40"];
const GROUP_FILTERS: [&str; 3] = ["group=default", "group=group-4", "group=none"];
const END_USER_FILTERS: [&str; 3] = ["end_user=backend", "end_user=person-42", "end_user=nobody"];
/// The filters of records by what became of them, with many records, few, and none.
const FURTHER_FILTERS: [&str; 9] = [
    "model=gpt-image-2",
    "model=unpriced-image",
    "model=none",
    "account=bench-0",
    "account=none",
    "error_reason=timeout",
    "error_reason=quota",
    "error_code=moderation_blocked",
    "error_code=none",
];
/// The groupings of usage.
const GROUPINGS: [&str; 10] = ["day", "hour", "key", "user", "group", "account", "model", "size", "quality", "reason"];
const STATES: [&str; 6] = ["succeeded", "running", "failed", "refused", "cancelled", "interrupted"];
/// The pages and operations without a filter of records.
const PAGES: [&str; 15] = [
    "/",
    "/start",
    "/keys",
    "/keys?search=service",
    "/keys?user=user-0&state=active",
    "/keys/key_generated_0",
    "/people",
    "/people/user-0",
    "/groups",
    "/groups/default",
    "/accounts",
    "/prices",
    "/audit",
    "/audit?actor=user-0&action=key",
    "/profile",
];
const OPERATIONS: [&str; 15] = [
    "/admin/v1/keys?limit=500",
    "/admin/v1/keys?group=default&state=active",
    "/admin/v1/keys/key_generated_0",
    "/admin/v1/users?limit=500",
    "/admin/v1/users/user-0",
    "/admin/v1/me",
    "/admin/v1/tokens",
    "/admin/v1/groups",
    "/admin/v1/groups/default",
    "/admin/v1/audit?limit=500",
    "/admin/v1/audit?actor=user-0&action=key",
    "/admin/v1/audit?target=key_generated_0",
    "/admin/v1/prices",
    "/admin/v1/accounts",
    "/admin/v1/accounts/bench-0",
];
/// The commands, as the arguments of `imagate`.
pub(crate) const COMMANDS: [&str; 14] = [
    "usage",
    "usage --cost --user user-0",
    "usage --key key_generated_0 --since 7d",
    "usage --group group-4",
    "usage --end-user person-42",
    "usage --by day --cost",
    "usage --by key --cost",
    "usage --by key --user user-0 --since 30d",
    "usage --by day --end-user backend",
    "usage --by model --cost",
    "usage --by user --since 30d",
    "key list",
    "user list",
    "group list",
];

/// The requests whose answers must be there within a second.
pub(crate) fn requests(values: &FilterValues) -> Vec<ReadRequest> {
    let (records, usages) = (record_filters(values), usage_filters(values));
    let mut paths: Vec<(ClientRole, String)> = Vec::new();
    for (role, lists, records_path, usage_path) in [
        (ClientRole::SignedInAdmin, PAGES.as_slice(), "/records", "/usage"),
        (ClientRole::AdminToken, OPERATIONS.as_slice(), "/admin/v1/records", "/admin/v1/usage"),
    ] {
        paths.extend(lists.iter().map(|path| (role, (*path).to_owned())));
        paths.extend(usages.iter().map(|filter| (role, format!("{usage_path}?{filter}"))));
        paths.extend(records.iter().map(|filter| (role, format!("{records_path}?{filter}"))));
        paths.push((role, format!("{records_path}/{}", values.middle)));
    }
    paths.push((ClientRole::SignedInAdmin, "/records?state=unsuccessful".to_owned()));
    for filter in ["", "&key=key_generated_199", "&user=user-40", "&model=none", "&account=none"] {
        paths.push((ClientRole::AdminToken, format!("/admin/v1/records?outcome=unsuccessful{filter}")));
    }
    // A member sees what a filter of that user shows.
    for filter in
        ["", "state=interrupted", "group=group-4", "end_user=backend", "key=key_generated_0&state=interrupted"]
    {
        paths.push((ClientRole::MemberToken, format!("/admin/v1/records?{filter}")));
    }
    for grouping in ["", "&group_by=model", "&group_by=key"] {
        paths.push((ClientRole::MemberToken, format!("/admin/v1/usage?since={}{grouping}", values.first_day)));
    }
    let request = |(role, path)| ReadRequest { role, path, is_metrics: false };
    let mut requests: Vec<ReadRequest> = paths.into_iter().map(request).collect();
    requests.push(ReadRequest { role: ClientRole::Anonymous, path: "/metrics".to_owned(), is_metrics: true });
    requests.push(ReadRequest { role: ClientRole::Anonymous, path: "/readyz".to_owned(), is_metrics: false });
    requests
}

/// The downloads, which have up to 10,000 records and may take longer.
pub(crate) fn downloads(values: &FilterValues) -> Vec<ReadRequest> {
    let paths = [
        "/records.csv".to_owned(),
        "/records.csv?user=user-0".to_owned(),
        "/records.csv?state=failed".to_owned(),
        format!("/usage.csv?since={}", values.first_day),
        format!("/usage.csv?group_by=key&since={}", values.first_day),
    ];
    paths.map(|path| ReadRequest { role: ClientRole::SignedInAdmin, path, is_metrics: false }).to_vec()
}

fn record_filters(values: &FilterValues) -> Vec<String> {
    let state = |state: &str| format!("state={state}");
    let mut filters = vec![String::new(), "limit=500".to_owned()];
    filters.push(format!("before={}", values.middle));
    filters.push(format!("before={}", values.oldest));
    filters.extend(STATES.map(state));
    let single: Vec<&str> =
        [KEY_FILTERS, USER_FILTERS, GROUP_FILTERS, END_USER_FILTERS].iter().flatten().copied().collect();
    for filter in &single {
        filters.push((*filter).to_owned());
        filters.extend(STATES.map(|state| format!("{filter}&state={state}")));
        // A list of one user can continue only after a record of that user.
        if !USER_FILTERS.contains(filter) {
            filters.push(format!("{filter}&before={}", values.middle));
        }
        filters.push(format!("{filter}&until={}T00:00:00Z", values.middle_day));
    }
    filters.push(format!("{}&before={}", USER_FILTERS[0], values.middle_of_user));
    // The pairs whose records are few, although both of their parts may have many.
    for (first, seconds) in [
        (KEY_FILTERS[0], &[USER_FILTERS[1], GROUP_FILTERS[1], END_USER_FILTERS[0], END_USER_FILTERS[1]][..]),
        (USER_FILTERS[0], &[GROUP_FILTERS[0], GROUP_FILTERS[1], GROUP_FILTERS[2], END_USER_FILTERS[0]][..]),
        (GROUP_FILTERS[0], &[END_USER_FILTERS[0], END_USER_FILTERS[2], KEY_FILTERS[1], USER_FILTERS[2]][..]),
    ] {
        for second in seconds {
            filters.push(format!("{first}&{second}"));
            filters.push(format!("{first}&{second}&state=interrupted"));
        }
    }
    for filter in FURTHER_FILTERS {
        filters.push(filter.to_owned());
        filters.push(format!("{filter}&state=failed"));
        for other in [KEY_FILTERS[0], USER_FILTERS[0], GROUP_FILTERS[0], GROUP_FILTERS[2], END_USER_FILTERS[0]] {
            filters.push(format!("{filter}&{other}"));
        }
    }
    filters.push("model=none&account=bench-0".to_owned());
    filters.push(format!("since={}T00:00:00Z&until={}T00:00:00Z", values.first_day, values.middle_day));
    filters
}

fn usage_filters(values: &FilterValues) -> Vec<String> {
    let mut filters = vec![String::new()];
    for period in [String::new(), format!("&since={}", values.first_day)] {
        filters.push(format!("until=2999-01-01{period}"));
        for kind in [KEY_FILTERS, USER_FILTERS, GROUP_FILTERS, END_USER_FILTERS] {
            filters.extend(kind.map(|filter| format!("{filter}{period}")));
        }
        filters.push(format!("{}&{}{period}", USER_FILTERS[0], GROUP_FILTERS[1]));
        filters.push(format!("{}&{}{period}", END_USER_FILTERS[0], KEY_FILTERS[1]));
        for grouping in GROUPINGS {
            for filter in ["", KEY_FILTERS[0], USER_FILTERS[0], GROUP_FILTERS[0], GROUP_FILTERS[2]] {
                filters.push(format!("group_by={grouping}&{filter}{period}"));
            }
            filters.push(format!("group_by={grouping}&measure=p95{period}"));
        }
    }
    // The hours of a month at most.
    filters.retain(|filter| !(filter.contains("group_by=hour") && filter.contains("since=")));
    filters
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::generator::{KEYS, USERS};
    use super::*;

    #[test]
    fn each_request_is_made_once_and_filters_name_what_is_generated() {
        let text = |text: &str| text.to_owned();
        let values = FilterValues {
            middle: text("req_5"),
            oldest: text("req_1"),
            middle_of_user: text("req_6"),
            first_day: text("2026-01-01"),
            middle_day: text("2026-06-01"),
        };
        let requests = requests(&values);
        let paths: BTreeSet<_> = requests.iter().map(|request| (request.role as u8, &request.path)).collect();
        assert_eq!(paths.len(), requests.len());
        assert!(requests.iter().any(|request| request.path == "/records?user=user-0&state=interrupted"));
        assert!(KEY_FILTERS[1].ends_with(&format!("_{}", KEYS - 1)) && KEY_FILTERS[2].ends_with(&format!("_{KEYS}")));
        assert!(
            USER_FILTERS[1].ends_with(&format!("-{}", USERS - 1)) && USER_FILTERS[2].ends_with(&format!("-{USERS}"))
        );
    }
}
