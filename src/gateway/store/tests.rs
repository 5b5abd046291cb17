//! Tests that every implementation of [`Store`] must pass. A new implementation is added in [`stores`].

mod account_bindings;
mod accounts;
mod alerts;
mod keys;
mod prices;
mod record_filters;
mod replays;
mod tokens;
mod usage;
mod usage_details;

use std::collections::BTreeMap;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::testing::{
    add_key, finished_record, new_postgres_store, new_store, record, record_filter, running_record, token_usage,
};
use super::*;
use crate::gateway::money::Usd;
use crate::wire::admin::types;

struct Fixture {
    store: Arc<dyn Store>,
    /// The same database, opened a second time as by another process.
    second_store: Arc<dyn Store>,
    _dir: TempDir,
}

async fn stores() -> Vec<Fixture> {
    let (dir, store) = new_store().await;
    let second_store = Arc::new(SqlStore::open_sqlite(dir.path(), None).await.unwrap());
    let mut fixtures = vec![Fixture { store, second_store, _dir: dir }];
    if let Some((dir, url, store)) = new_postgres_store().await {
        let second_store = Arc::new(SqlStore::open_postgres(dir.path(), &url, None).await.unwrap());
        fixtures.push(Fixture { store, second_store, _dir: dir });
    }
    fixtures
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

async fn write(store: &dyn Store, writes: &[RowWrite<'_>]) -> Vec<RowWriteOutcome> {
    store.write_rows(&NodeId::only(), writes).await.unwrap()
}

async fn all_records(store: &dyn Store) -> Vec<types::Record> {
    store.list_records(&RecordFilter::default()).await.unwrap()
}

fn ids(records: &[types::Record]) -> Vec<&str> {
    records.iter().map(|record| record.request_id.as_str()).collect()
}

#[tokio::test]
async fn ensuring_twice_gives_the_same_row() {
    for Fixture { store, .. } in stores().await {
        let user = store.ensure_user(&AuditContext::command(), "ada").await.unwrap();
        assert_eq!(store.ensure_user(&AuditContext::command(), "ada").await.unwrap(), user);
        assert_eq!(store.ensure_user(&AuditContext::command(), "Ada").await.unwrap(), user, "it is the same name");
        assert_eq!(
            (user.role, &user.groups[..], user.has_password),
            (UserRole::Member, &["default".to_owned()][..], false)
        );
        let group = store.ensure_group(&AuditContext::command(), "studio").await.unwrap();
        assert_eq!(store.ensure_group(&AuditContext::command(), "studio").await.unwrap(), group);
    }
}

#[tokio::test]
async fn concurrent_calls_for_one_name_return_one_row() {
    for Fixture { store, .. } in stores().await {
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            tasks.spawn(group_id(Arc::clone(&store)));
        }
        let mut ids = tasks.join_all().await;
        ids.dedup();
        assert_eq!(ids.len(), 1);
    }
}

#[tokio::test]
async fn group_settings_are_kept_until_the_group_is_deleted() {
    for Fixture { store, .. } in stores().await {
        let context = &AuditContext::command();
        let created = store.create_group(context, "studio", Some("{\"delivery\":\"fail\"}")).await.unwrap().unwrap();
        assert_eq!(created.policy.as_deref(), Some("{\"delivery\":\"fail\"}"));
        assert_eq!(store.create_group(context, "studio", None).await.unwrap(), None, "the name is taken");
        store.ensure_group(context, "plain").await.unwrap();
        let policies = async || store.group_policies().await.unwrap();
        let pair = |name: &str, policy: &str| (name.to_owned(), policy.to_owned());
        assert_eq!(
            policies().await,
            [pair("default", "{}"), pair("plain", "{}"), pair("studio", "{\"delivery\":\"fail\"}")]
        );
        for handle in [created.id.as_str(), "studio"] {
            let changed = store.change_group(context, handle, "{}").await.unwrap().unwrap();
            assert_eq!((changed.id.as_str(), changed.policy.as_deref()), (created.id.as_str(), Some("{}")));
        }
        assert_eq!(store.change_group(context, "unknown", "{}").await.unwrap(), None);
        let listed = store.list_groups().await.unwrap();
        let policies_of: Vec<_> = listed.iter().map(|group| (group.name.as_str(), group.policy.as_deref())).collect();
        assert!(policies_of.contains(&("studio", Some("{}"))) && policies_of.contains(&("plain", None)), "{listed:?}");
        store.delete_group(context, "studio").await.unwrap();
        assert_eq!(policies().await, [pair("default", "{}"), pair("plain", "{}")]);
        assert_eq!(store.change_group(context, "studio", "{}").await.unwrap(), None, "the group is deleted");
        assert_eq!(store.ensure_group(context, "studio").await.unwrap().policy, None, "a new group has no settings");
    }
}

async fn group_id(store: Arc<dyn Store>) -> GroupId {
    store.ensure_group(&AuditContext::command(), "studio").await.unwrap().id
}

#[tokio::test]
async fn a_record_is_read_with_every_field() {
    for Fixture { store, .. } in stores().await {
        let fallback = Some("1536x1024 medium".to_owned());
        let adapted = Some("size 512x512->1024x1024, style dropped".to_owned());
        let max_cost_usd = Some(Usd::from_nanos(22_500_001));
        let details = |image_tokens| types::RecordTokens { image_tokens, text_tokens: Some(5) };
        let finished = finished_record("r1");
        let usage = finished
            .usage
            .image
            .clone()
            .map(|usage| token_usage! { cached_tokens_details: Some(details(Some(4))), ..usage });
        let host_usage = finished
            .usage
            .host
            .clone()
            .map(|usage| token_usage! { cached_tokens_details: Some(details(None)), ..usage });
        let closed = record! {
            cost_usd: Some(Usd::from_nanos(12_500_001)),
            cost_basis: Some(CostBasis::Estimated),
            cost_reason: Some(CostReason::NoBreakdown),
            price_version: Some("gpt-image-2@2026-04-21#1f0c93ab".to_owned()),
            adapted: adapted.clone(),
            max_cost_usd,
            usage,
            host_usage,
            error_code: Some("x".to_owned()),
            fallback,
            maybe_paid_twice: Some(true),
            ..finished
        };
        let open = record! { max_cost_usd, adapted, ..running_record("r1") };
        let written = write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        assert_eq!(written, [RowWriteOutcome::Done, RowWriteOutcome::Done]);
        assert_eq!(all_records(&*store).await, [closed.document]);
    }
}

#[tokio::test]
async fn unknown_values_stay_unknown() {
    for Fixture { store, .. } in stores().await {
        let known = running_record("r1");
        let open =
            record! { model: None, size: None, quality: None, output_format: None, n: None, end_user: None, ..known };
        let usage = token_usage! { total_tokens: Some(u64::MAX), ..TokenUsage::default() };
        let closed = record! { state: JobState::Refused, usage: Some(usage), ..open.clone() };
        write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        assert_eq!(all_records(&*store).await, [closed.document]);
        // The sums end at the largest integer of the database.
        let counted = store.total_usage(&UsageFilter::default()).await.unwrap();
        assert_eq!(counted.total_tokens, i64::MAX.unsigned_abs());
    }
}

#[tokio::test]
async fn a_request_id_is_recorded_once_and_closed_once() {
    for Fixture { store, .. } in stores().await {
        let other = record! { model: Some("other".to_owned()), ..running_record("r1") };
        let failed = record! { state: JobState::Failed, ..finished_record("r1") };
        write(&*store, &[RowWrite::Close(&failed)]).await;
        assert_eq!(write(&*store, &[RowWrite::Open(&running_record("r1"))]).await, [RowWriteOutcome::Done]);
        assert_eq!(write(&*store, &[RowWrite::Open(&other)]).await, [RowWriteOutcome::NoEffect]);
        let later = [
            RowWrite::Open(&other),
            RowWrite::Close(&finished_record("r1")),
            RowWrite::Close(&failed),
            RowWrite::Open(&other),
        ];
        write(&*store, &later).await;
        assert_eq!(all_records(&*store).await, [finished_record("r1").document]);
    }
}

#[tokio::test]
async fn only_the_running_records_of_the_node_are_interrupted() {
    for Fixture { store, .. } in stores().await {
        let (mine, other) = (NodeId::from("mine"), NodeId::from("other"));
        let open = [running_record("r1"), running_record("r2")];
        let writes = [RowWrite::Open(&open[0]), RowWrite::Open(&open[1]), RowWrite::Close(&finished_record("r2"))];
        store.write_rows(&mine, &writes).await.unwrap();
        store.write_rows(&other, &[RowWrite::Open(&running_record("r3"))]).await.unwrap();
        assert_eq!(ids(&all_records(&*store).await), ["r2"]);

        assert_eq!(store.interrupt_running(&mine).await.unwrap(), 1);
        assert_eq!(store.interrupt_running(&mine).await.unwrap(), 0);
        let records = all_records(&*store).await;
        assert_eq!(ids(&records), ["r1", "r2"]);
        assert_eq!((records[0].state, records[1].state), (JobState::Interrupted, JobState::Succeeded));
    }
}

#[tokio::test]
async fn an_interrupted_record_names_the_accounts_that_may_have_been_called() {
    for Fixture { store, .. } in stores().await {
        let attempt = |account: &str, class| types::RecordAttempt {
            account: Some(account.to_owned()),
            class: Some(class),
            ..types::RecordAttempt::default()
        };
        let with_account = record! { account: Some("primary".to_owned()), ..running_record("r1") };
        let without_account = record! { account: None, ..running_record("r2") };
        let attempts = vec![attempt("primary", AttemptClass::NothingDone), attempt("second", AttemptClass::MaybePaid)];
        let with_attempts = record! { attempts, maybe_paid_twice: Some(true), ..running_record("r3") };
        let opens = [&with_account, &without_account, &with_attempts].map(RowWrite::Open);
        write(&*store, &opens).await;
        write(&*store, &[RowWrite::RecordAttempts(&with_attempts)]).await;
        store.interrupt_running(&NodeId::only()).await.unwrap();
        let records = all_records(&*store).await;
        assert_eq!(records.iter().map(|record| record.maybe_paid_twice).collect::<Vec<_>>(), [None, None, Some(true)]);
        let attempts: Vec<_> = records.into_iter().map(|record| record.attempts).collect();
        assert_eq!(
            attempts,
            [vec![attempt("primary", AttemptClass::MaybePaid)], vec![], with_attempts.document.attempts.clone()]
        );
    }
}

#[tokio::test]
async fn an_interrupted_record_has_the_most_that_it_can_cost() {
    for Fixture { store, .. } in stores().await {
        let max_cost_usd = Some(Usd::from_nanos(211_000_000));
        let known = record! { max_cost_usd, ..running_record("r1") };
        write(&*store, &[&known, &running_record("r2")].map(RowWrite::Open)).await;
        store.interrupt_running(&NodeId::only()).await.unwrap();
        let records = all_records(&*store).await;
        let costs: Vec<_> =
            records.iter().map(|record| (record.cost_usd, record.cost_basis, record.cost_reason)).collect();
        let reason = Some(CostReason::Interrupted);
        assert_eq!(
            costs,
            [
                (max_cost_usd.map(Usd::dollars), Some(CostBasis::Estimated), reason),
                (None, Some(CostBasis::Unknown), reason)
            ]
        );
        let totals = store.total_usage(&UsageFilter::default()).await.unwrap();
        assert_eq!((Some(totals.cost_usd), totals.cost_unknown), (max_cost_usd, 1));
    }
}

#[tokio::test]
async fn records_are_listed_newest_last_and_filtered() {
    for Fixture { store, .. } in stores().await {
        for (id, second, key) in [("b", 2, "key_1"), ("c", 3, "key_2"), ("a", 1, "key_1"), ("d", 3, "key_1")] {
            let created_at = at(&format!("2026-01-01T00:00:0{second}Z"));
            let open = record! { created_at, key: key, ..running_record(id) };
            let closed = record! { state: JobState::Succeeded, ..open.clone() };
            write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        }
        let since = Some(at("2026-01-01T00:00:02Z").into());
        let key = Some("key_1".to_owned());
        let list = async |filter: RecordFilter| {
            let records = store.list_records(&filter).await.unwrap();
            ids(&records).concat()
        };
        assert_eq!(list(RecordFilter::default()).await, "abcd");
        assert_eq!(list(record_filter! { since, ..RecordFilter::default() }).await, "bcd");
        assert_eq!(list(record_filter! { limit: Some(2), ..RecordFilter::default() }).await, "cd");
        assert_eq!(list(record_filter! { limit: Some(0), ..RecordFilter::default() }).await, "");
        assert_eq!(list(record_filter! { key: key.clone(), ..RecordFilter::default() }).await, "abd");
        assert_eq!(list(record_filter! { key, since, limit: Some(1), ..RecordFilter::default() }).await, "d");
    }
}

#[tokio::test]
async fn records_are_sorted_by_cost_tokens_and_latency() {
    for Fixture { store, .. } in stores().await {
        for (id, cost, tokens, latency_ms) in
            [("a", Some(3), 10, 200), ("b", None, 30, 100), ("c", Some(1), 20, 300), ("d", Some(3), 5, 50)]
        {
            let usage = token_usage! { total_tokens: Some(tokens), ..TokenUsage::default() };
            let open = running_record(id);
            let closed = record! {
                state: JobState::Succeeded,
                cost_usd: cost.map(Usd::from_nanos),
                usage: Some(usage),
                latency_ms: Some(latency_ms),
                ..open.clone()
            };
            write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        }
        let sorted = async |sort, limit| {
            let filter = record_filter! { sort: Some(sort), limit, ..RecordFilter::default() };
            let found = store.list_records(&filter).await.unwrap();
            ids(&found).into_iter().rev().collect::<String>()
        };
        // An unknown cost comes last; of equal costs the newest comes first.
        assert_eq!(sorted(RecordSort::Cost, None).await, "dacb");
        assert_eq!(sorted(RecordSort::Tokens, None).await, "bcad");
        assert_eq!(sorted(RecordSort::Latency, None).await, "cabd");
        assert_eq!(sorted(RecordSort::Latency, Some(2)).await, "ca");
    }
}

#[tokio::test]
async fn the_records_of_a_key_are_found_by_either_id() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let open = record! { key: row.id.clone(), ..running_record("mine") };
        let closed = record! { state: JobState::Failed, ..open.clone() };
        write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        write(&*store, &[RowWrite::Open(&running_record("other")), RowWrite::Close(&finished_record("other"))]).await;
        for handle in [row.id.as_str(), row.public_id.as_str()] {
            let filter = record_filter! { key: Some(handle.to_owned()), ..RecordFilter::default() };
            assert_eq!(ids(&store.list_records(&filter).await.unwrap()), ["mine"]);
        }
    }
}
