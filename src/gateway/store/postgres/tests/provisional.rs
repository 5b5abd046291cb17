//! The outcome of a job whose record another node has closed, because the node of the job seemed to be dead.

use super::*;
use crate::gateway::money::Usd;
use crate::gateway::store::testing::{fold_records, record};
use crate::gateway::store::{CostBasis, UsageDetails};

/// Two nodes with one database.
async fn two_nodes() -> Option<[(SqlStore, TempDir); 2]> {
    let url = new_postgres_database().await?;
    let open = async || {
        let dir = TempDir::new().unwrap();
        (SqlStore::open_postgres(dir.path(), &url, Some(shared_key())).await.unwrap(), dir)
    };
    Some([open().await, open().await])
}

fn nanos(nanos: u64) -> Usd {
    Usd::from_nanos(nanos)
}

fn running(id: &str) -> JobRecord {
    let end_user = Some("ada".to_owned());
    record! { max_cost_usd: Some(nanos(400)), max_job_cost_usd: Some(nanos(500)), end_user, ..running_record(id) }
}

fn finished(id: &str) -> JobRecord {
    let end_user = Some("ada".to_owned());
    record! {
        cost_usd: Some(nanos(3)),
        cost_basis: Some(CostBasis::Exact),
        end_user,
        latency_ms: Some(70),
        ..finished_record(id)
    }
}

async fn close(store: &SqlStore, record: &JobRecord) -> RowWriteOutcome {
    store.write_rows(&store.node, &[RowWrite::Close(record)]).await.unwrap().remove(0)
}

/// The requests, successes, images, cost in billionths, and requests of unknown cost, by day.
async fn counted(store: &SqlStore) -> [u64; 5] {
    let days = store.total_usage(&UsageFilter::default()).await.unwrap();
    let of_user = UsageFilter { end_user: Some("ada".to_owned()), ..UsageFilter::default() };
    let end_user = store.total_usage(&of_user).await.unwrap();
    let numbers = [&days, &end_user]
        .map(|counts| [counts.requests, counts.succeeded, counts.images, counts.cost_usd.nanos(), counts.cost_unknown]);
    assert_eq!(numbers[0], numbers[1], "the end user has made all requests");
    numbers[0]
}

/// Counts in detail until nothing is left, and returns the counts of each account.
async fn details(store: &SqlStore) -> Vec<(String, UsageDetails)> {
    while fold_records(store, i64::MAX, 50).await.unwrap() {}
    let read = store.usage_details(&UsageFilter::default(), &[UsageGrouping::Account]).await.unwrap();
    read.groups.into_iter().flatten().filter(|(_, counts)| counts.requests > 0).collect()
}

#[tokio::test]
async fn the_outcome_of_the_node_that_ran_the_job_replaces_a_provisional_one_once() {
    for is_counted_before in [false, true] {
        let Some([(first, _one), (second, _two)]) = two_nodes().await else { return };
        first.write_rows(&first.node, &[RowWrite::Open(&running("r1"))]).await.unwrap();
        assert_eq!(second.interrupt_running(first.node_id()).await.unwrap(), 1);
        assert_eq!(counted(&second).await, [1, 0, 0, 400, 0]);
        if is_counted_before {
            assert_eq!(details(&second).await[0].1.cost_nano_usd, 400);
        }
        // Only the node that opened the record knows the outcome.
        assert_eq!(close(&second, &finished("r1")).await, RowWriteOutcome::NoEffect);
        assert_eq!(close(&first, &finished("r1")).await, RowWriteOutcome::Done);
        let delivered = finished("r1").document.delivered.len() as u64;
        assert_eq!(counted(&second).await, [1, 1, delivered, 3, 0]);
        let stored = record(&second, "r1").await.unwrap();
        assert_eq!(
            (stored.state, stored.cost_usd, stored.latency_ms),
            (JobState::Succeeded, Some(nanos(3).dollars()), Some(70))
        );
        let expected = finished("r1").document;
        assert_eq!((stored.usage, stored.attempts), (expected.usage, expected.attempts));
        for store in [&first, &second] {
            let groups = details(store).await;
            assert_eq!(groups.len(), 1, "{groups:?}");
            let (account, counts) = &groups[0];
            assert_eq!(Some(account.as_str()), finished("r1").document.account.as_deref());
            assert_eq!((counts.requests, counts.succeeded, counts.images), (1, 1, delivered));
            assert_eq!((counts.cost_nano_usd, counts.cost_unknown), (3, 0));
            assert_eq!(counts.durations.0.iter().sum::<u64>(), 1);
        }
        // A write that is repeated, and another outcome, change nothing.
        let other = record! { state: JobState::Failed, cost_usd: None, ..finished("r1") };
        for again in [finished("r1"), other] {
            assert_eq!(close(&first, &again).await, RowWriteOutcome::NoEffect);
        }
        assert_eq!(counted(&first).await, [1, 1, delivered, 3, 0]);
    }
}

#[tokio::test]
async fn an_outcome_that_is_final_is_not_replaced() {
    let Some([(first, _one), (second, _two)]) = two_nodes().await else { return };
    first.write_rows(&first.node, &[RowWrite::Open(&running("r1"))]).await.unwrap();
    let broken = record! { state: JobState::Interrupted, cost_usd: Some(nanos(400)), ..finished("r1") };
    assert_eq!(close(&first, &broken).await, RowWriteOutcome::Done);
    assert_eq!(close(&first, &finished("r1")).await, RowWriteOutcome::NoEffect);
    assert_eq!(second.interrupt_running(first.node_id()).await.unwrap(), 0);
    assert_eq!(record(&second, "r1").await.unwrap().cost_usd, Some(nanos(400).dollars()));
}

/// An unknown cost counts as the most that the job has reserved, until the cost is known.
#[tokio::test]
async fn the_difference_of_costs_counts_whichever_of_them_is_known() {
    let Some([(first, _one), (second, _two)]) = two_nodes().await else { return };
    let unpriced = record! { max_cost_usd: None, ..running("r1") };
    let assumed = async || -> i64 {
        let query = sqlx::query_scalar("SELECT CAST(sum(assumed_nano_usd) AS BIGINT) FROM usage_days");
        query.fetch_one(first.readers.postgres()).await.unwrap()
    };
    first.write_rows(&first.node, &[RowWrite::Open(&unpriced), RowWrite::Open(&running("r2"))]).await.unwrap();
    second.interrupt_running(first.node_id()).await.unwrap();
    assert_eq!((counted(&first).await, assumed().await), ([2, 0, 0, 400, 1], 500));
    close(&first, &finished("r1")).await;
    assert_eq!((counted(&first).await[3..].to_vec(), assumed().await), (vec![403, 0], 0));
    close(&first, &record! { cost_usd: None, ..finished("r2") }).await;
    assert_eq!((counted(&first).await[3..].to_vec(), assumed().await), (vec![3, 1], 500));
}

async fn close_all(store: &SqlStore, ids: &[String]) {
    for id in ids {
        assert_eq!(close(store, &finished(id)).await, RowWriteOutcome::Done);
    }
}

async fn fold_four_times(store: &SqlStore) {
    for _ in 0..4 {
        fold_records(store, i64::MAX, 20).await.unwrap();
    }
}

/// A step of the detailed counts and an outcome that replaces a provisional one, at the same time and in any order.
#[tokio::test]
async fn a_replaced_outcome_counts_once_in_detail_whatever_the_order() {
    let Some([(first, _one), (second, _two)]) = two_nodes().await else { return };
    for round in 0..20 {
        let ids: Vec<String> = (0..4).map(|number| format!("r{round}_{number}")).collect();
        for id in &ids {
            first.write_rows(&first.node, &[RowWrite::Open(&running(id))]).await.unwrap();
        }
        second.interrupt_running(first.node_id()).await.unwrap();
        tokio::join!(close_all(&first, &ids), fold_four_times(&second));
        let all: Vec<_> = details(&second).await;
        let sum = |count: fn(&UsageDetails) -> u64| all.iter().map(|(_, counts)| count(counts)).sum::<u64>();
        let requests = 4 * (round + 1);
        assert_eq!(sum(|counts| counts.requests), requests);
        assert_eq!((sum(|counts| counts.succeeded), sum(|counts| counts.cost_nano_usd)), (requests, 3 * requests));
    }
}
