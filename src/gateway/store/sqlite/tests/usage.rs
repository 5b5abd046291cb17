//! Tests of usage counts and records in SQLite: that they match the records, those of interrupted jobs, and the
//! index that each query uses.

use super::*;
use crate::gateway::store::sql::keys::page;
use crate::gateway::store::sql::people::sessions::REFUSAL_LIMIT_REACHED;
use crate::gateway::store::sql::statement::StatementBuilder;
use crate::gateway::store::sql::{records, replays, retention, usage, usage_details, usage_fold};
use crate::gateway::store::testing::record_filter;
use crate::gateway::store::{JobState, KeyFilter, UsageCounters, UsageFilter, UsageGrouping};
use crate::wire::admin::types;

/// A process dies between intent and outcome; the next process has only the database file.
#[tokio::test]
async fn an_interrupted_job_is_counted_once() {
    let (dir, store) = new_store().await;
    let (node, open) = (NodeId::only(), running_record("r1"));
    store.write_rows(&node, &[RowWrite::Open(&open)]).await.unwrap();
    for _ in 0..2 {
        let next = SqlStore::open_sqlite(dir.path(), None).await.unwrap();
        next.interrupt_running(&node).await.unwrap();
        let counts = next.total_usage(&UsageFilter::default()).await.unwrap();
        assert_eq!(counts, UsageCounters { requests: 1, failed: 1, cost_unknown: 1, ..UsageCounters::default() });
    }
    // A late outcome of the former process changes neither the record nor the counts.
    store.write_rows(&node, &[RowWrite::Close(&finished_record("r1"))]).await.unwrap();
    assert_eq!(store.total_usage(&UsageFilter::default()).await.unwrap().succeeded, 0);
}

async fn plan(store: &SqlStore, query: StatementBuilder) -> String {
    plan_of(store, query.build().sqlite_text()).await
}

async fn plan_of(store: &SqlStore, statement: &str) -> String {
    let sql = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(sql).fetch_all(store.readers.sqlite()).await.unwrap();
    steps.into_iter().map(|(.., step)| step + "\n").collect()
}

/// The time that a start or a batch of removals takes must not grow with the number of records.
#[tokio::test]
async fn queries_of_the_start_and_of_removals_use_an_index() {
    let (_dir, store) = new_store().await;
    for (sql, index) in [
        (records::RUNNING_OF_NODE, "SEARCH records USING INDEX records_running (node=?)"),
        (records::STATES_BY_FINGERPRINT, "USING INDEX records_by_fingerprint (fingerprint=? AND created_at>?)"),
        (retention::DELETE_RECORDS.sqlite, "SEARCH records USING INDEX records_by_time (created_at<?)"),
        (retention::DELETE_USAGE_DAYS.sqlite, "SEARCH usage_days USING COVERING INDEX usage_days_by_day (day<?)"),
        (
            retention::DELETE_END_USER_DAYS.sqlite,
            "SEARCH end_user_days USING COVERING INDEX end_user_days_by_day (day<?)",
        ),
        (
            retention::DELETE_USAGE_DETAILS.sqlite,
            "SEARCH usage_details USING COVERING INDEX usage_details_by_day (day<?)",
        ),
        (REFUSAL_LIMIT_REACHED.sqlite, "SEARCH audit USING INDEX audit_refusals (target_id=?)"),
    ] {
        let steps = plan_of(&store, sql).await;
        assert!(steps.contains(index) && !steps.contains("TEMP B-TREE FOR ORDER BY"), "{sql}\n{steps}");
        assert!(
            ["records", "usage_days", "end_user_days"].iter().all(|table| !steps.contains(&format!("SCAN {table}"))),
            "{sql}\n{steps}"
        );
    }
    // These sort a few rows.
    for (sql, index) in [
        (replays::FIND_OF_REQUEST, "SEARCH replays USING INDEX replays_by_request (request_id=?)"),
        (replays::IMAGE_REQUESTS, "SEARCH replays EXISTS USING COVERING INDEX replays_by_request (request_id=?)"),
        (replays::IMAGE_REQUESTS, "SEARCH records USING INDEX records_by_user (user_id=? AND created_at>?)"),
    ] {
        let steps = plan_of(&store, sql).await;
        assert!(steps.contains(index) && !steps.contains("SCAN re"), "{sql}\n{steps}");
    }
    // The query reads only the oldest rows of the trail, as many as one batch may remove.
    let steps = plan_of(&store, retention::DELETE_AUDIT).await;
    assert!(steps.contains("SEARCH audit USING INTEGER PRIMARY KEY") && !steps.contains("ORDER BY"), "{steps}");
}

/// Filters, each with the index that leaves the fewest records to read.
fn filters_and_indexes() -> Vec<(RecordFilter, &'static str)> {
    let any = RecordFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let state = |state| record_filter! { state: Some(state), ..any() };
    vec![
        (any(), "records_by_time"),
        (state(JobState::Succeeded), "records_by_time"),
        (state(JobState::Failed), "records_unsuccessful"),
        (state(JobState::Interrupted), "records_unsuccessful"),
        (record_filter! { key: text("key_1"), ..any() }, "records_by_key"),
        (record_filter! { user: text("ada"), ..any() }, "records_by_user"),
        (record_filter! { owner: Some("usr_1".into()), ..any() }, "records_by_user"),
        (record_filter! { group: text("default"), ..any() }, "records_by_group"),
        (record_filter! { end_user: text("u-1"), ..any() }, "records_by_end_user"),
        (record_filter! { end_user: text("u-1"), key: text("key_1"), ..any() }, "records_by_end_user"),
        (record_filter! { owner: Some("usr_1".into()), group: text("default"), ..any() }, "records_by_user"),
        (record_filter! { owner: Some("usr_1".into()), key: text("key_1"), ..any() }, "records_by_key"),
        (
            record_filter! { key: text("key_1"), end_user: text("u-1"), ..state(JobState::Failed) },
            "records_unsuccessful",
        ),
        (record_filter! { model: text("gpt-image-2"), ..any() }, "records_by_model"),
        (record_filter! { model: text("gpt-image-2"), key: text("key_1"), ..any() }, "records_by_key"),
        (record_filter! { model: text("gpt-image-2"), ..state(JobState::Failed) }, "records_unsuccessful"),
        (record_filter! { outcome: Some(types::RecordOutcome::Unsuccessful), ..any() }, "records_unsuccessful_by_time"),
        (
            record_filter! { outcome: Some(types::RecordOutcome::Unsuccessful), key: text("key_1"), ..any() },
            "records_unsuccessful_by_time",
        ),
        (record_filter! { account: text("primary"), ..any() }, "records_by_account"),
        (record_filter! { account: text("primary"), key: text("key_1"), ..any() }, "records_by_account"),
        (record_filter! { account: text("primary"), end_user: text("u-1"), ..any() }, "records_by_account"),
        (record_filter! { error_reason: Some(types::RecordReason::Quota), ..any() }, "records_by_error_reason"),
        (
            record_filter! { error_reason: Some(types::RecordReason::Quota), account: text("primary"), ..state(JobState::Failed) },
            "records_by_error_reason",
        ),
        (
            record_filter! { error_code: text("upstream_error"), group: text("default"), ..any() },
            "records_by_error_code",
        ),
        (
            record_filter! { owner: Some("usr_1".into()), group: text("default"), ..state(JobState::Cancelled) },
            "records_unsuccessful",
        ),
    ]
}

#[tokio::test]
async fn a_page_of_records_is_found_by_an_index_and_not_sorted() {
    let (_dir, store) = new_store().await;
    let time = |text: &str| Some(text.parse().unwrap());
    for (filter, index) in filters_and_indexes() {
        let period =
            record_filter! { since: time("2026-01-01T00:00:00Z"), until: time("2027-01-01T00:00:00Z"), ..filter };
        for before in [None, Some(("2026-11-21T03:00:00.123Z".to_owned(), 7))] {
            let plan = plan(&store, records::record_queries::select_query(&period, before)).await;
            let search = format!("SEARCH records USING INDEX {index} (");
            assert!(plan.contains(&search) && plan.contains("created_at<?)"), "{period:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{period:?}: {plan}");
        }
    }
    // `SCAN` is correct here: the query follows the index from the newest record on, and stops at a limit.
    assert_eq!(
        plan(&store, records::record_queries::select_query(&RecordFilter::default(), None)).await,
        "SCAN records USING INDEX records_by_time\n"
    );
    // This index has only the records of running jobs, which are few.
    let running = record_filter! { state: Some(JobState::Running), ..RecordFilter::default() };
    assert!(
        plan(&store, records::record_queries::select_query(&running, None))
            .await
            .contains("USING INDEX records_running")
    );
}

/// A record that does not pass is skipped in the index only if the index has the column.
#[tokio::test]
async fn the_indexes_of_records_hold_the_columns_of_further_filters() {
    let (_dir, store) = new_store().await;
    for (index, columns) in [
        ("records_by_key", "key_id created_at seq user_id group_name model"),
        ("records_by_user", "user_id created_at seq group_name model"),
        ("records_by_model", "model created_at seq group_name"),
        ("records_by_account", "account created_at seq key_id user_id group_name model end_user"),
        (
            "records_by_error_reason",
            "error_reason created_at seq state error_code key_id user_id group_name end_user model account",
        ),
        ("records_by_error_code", "error_code created_at seq state key_id user_id group_name end_user model account"),
        ("records_by_end_user", "end_user created_at seq key_id user_id group_name model"),
        ("records_unsuccessful", "state created_at seq key_id user_id group_name end_user model account"),
        ("records_unsuccessful_by_time", "created_at seq key_id user_id group_name end_user model account"),
    ] {
        let query =
            sqlx::query_scalar("SELECT coalesce(name, '()') FROM pragma_index_info($1) ORDER BY seqno").bind(index);
        let found: Vec<String> = query.fetch_all(store.readers.sqlite()).await.unwrap();
        assert_eq!(found.join(" "), columns, "{index}");
    }
}

#[tokio::test]
async fn usage_queries_use_an_index() {
    let (_dir, store) = new_store().await;
    let (any, text) = (UsageFilter::default, |text: &str| Some(text.to_owned()));
    let (since, until) = (Some("2026-11-01".parse().unwrap()), Some("2026-11-30".parse().unwrap()));
    for (filter, search) in [
        (any(), "SEARCH usage_days USING INDEX usage_days_by_day (day>? AND day<?)"),
        (
            UsageFilter { key: text("key_1"), ..any() },
            "SEARCH usage_days USING PRIMARY KEY (key_id=? AND day>? AND day<?)",
        ),
        (
            UsageFilter { owner: Some("usr_1".into()), ..any() },
            "SEARCH usage_days USING INDEX usage_days_by_user (user_id=? AND day>? AND day<?)",
        ),
        (
            UsageFilter { user: text("ada"), ..any() },
            "SEARCH usage_days USING INDEX usage_days_by_user (user_id=? AND day>? AND day<?)",
        ),
    ] {
        let filter = UsageFilter { since, until, ..filter };
        for query in [usage::by_day_query(&filter), usage::by_key_query(&filter, Some(50)), usage::total_query(&filter)]
        {
            let plan = plan(&store, query).await;
            assert!(plan.contains(search) && !plan.contains("records"), "{filter:?}: {plan}");
        }
    }
    for filter in
        [any(), UsageFilter { key: text("key_1"), owner: Some("usr_1".into()), group: text("default"), ..any() }]
    {
        let filter = UsageFilter { end_user: text("u-1"), since, until, ..filter };
        for query in [usage::by_day_query(&filter), usage::by_key_query(&filter, Some(50)), usage::total_query(&filter)]
        {
            let plan = plan(&store, query).await;
            let search = "SEARCH end_user_days USING PRIMARY KEY (end_user=? AND day>? AND day<?)";
            assert!(plan.contains(search) && !plan.contains("SCAN"), "{filter:?}: {plan}");
        }
    }
    for (filter, scopes) in [
        (any(), "SEARCH usage_scopes USING COVERING INDEX sqlite_autoindex_usage_scopes_1 (group_name=? AND user_id=?"),
        (UsageFilter { owner: Some("usr_1".into()), ..any() }, "INDEX usage_scopes_by_user"),
        (UsageFilter { key: text("key_1"), ..any() }, "INDEX usage_scopes_by_key"),
        (UsageFilter { group: text("default"), ..any() }, "SEARCH usage_scopes USING COVERING INDEX"),
    ] {
        let filter = UsageFilter { since, until, ..filter };
        let details = plan(&store, usage_details::counts_query(&filter, UsageGrouping::Model, &(0..3))).await;
        let search = "SEARCH usage_details USING PRIMARY KEY (scope=? AND dimension=? AND day>? AND day<?)";
        assert!(details.contains(search) && details.contains(scopes), "{filter:?}: {details}");
        let tail = plan(&store, usage_details::records_query(&filter, 100)).await;
        assert!(tail.contains("SEARCH records USING INTEGER PRIMARY KEY (rowid>?)"), "{filter:?}: {tail}");
    }
    // Few records are running.
    let running = plan_of(&store, usage_fold::FIRST_RUNNING).await;
    assert!(running.contains("SCAN records USING COVERING INDEX records_running"), "{running}");
    let plan_of_keys = plan(&store, usage::total_by_key_query("[]".to_owned())).await;
    assert!(plan_of_keys.contains("SEARCH usage_days USING PRIMARY KEY (key_id=?)"), "{plan_of_keys}");
}

#[tokio::test]
async fn a_page_of_keys_is_found_by_an_index_and_never_sorted() {
    let (_dir, store) = new_store().await;
    let now = Timestamp::now();
    let before = Some("key_1".into());
    let all = KeyFilter { before: before.clone(), limit: 50, ..KeyFilter::default() };
    let owned = KeyFilter { owner: Some("usr_1".into()), before, limit: 50, ..KeyFilter::default() };
    let grouped = KeyFilter { group: Some("default".to_owned()), limit: 50, ..KeyFilter::default() };
    for (filter, index) in [(all, "INTEGER PRIMARY KEY (rowid<?)"), (owned, "keys_of_user"), (grouped, "keys_of_group")]
    {
        let rows = plan(&store, page::rows_query(&filter, now)).await;
        assert!(rows.contains(index) && !rows.contains("TEMP B-TREE"), "{rows}");
        let count = plan(&store, page::count_query(&filter, now)).await;
        assert!(count.contains("COVERING INDEX"), "{count}");
    }
}
