//! Tests of password attempts: the counts of all nodes together.

use std::time::Duration;

use super::*;
use crate::gateway::store::{AttemptBucket, SecretHash, SharedAttempts as _};

/// Much longer than a test.
const INTERVAL: Duration = Duration::from_secs(600);

fn bucket(name: u8, burst: u32) -> AttemptBucket {
    AttemptBucket { hash: SecretHash([name; 32]), interval: INTERVAL, burst, is_emptied: false }
}

/// Opens an empty database on two nodes.
async fn two_nodes() -> Option<(TempDir, [Arc<SqlStore>; 2])> {
    let (dir, url, first) = new_postgres_store().await?;
    let second = SqlStore::open_postgres(dir.path(), &url, None).await.unwrap();
    Some((dir, [first, Arc::new(second)]))
}

async fn is_allowed(store: &SqlStore, buckets: &[AttemptBucket]) -> bool {
    store.as_shared().unwrap().add_attempt(buckets).await.unwrap().is_none()
}

async fn row_count(store: &SqlStore) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM attempt_buckets").fetch_one(store.readers.postgres()).await.unwrap()
}

#[tokio::test]
async fn attempts_at_once_on_two_nodes_stay_within_the_limit() {
    let Some((_dir, nodes)) = two_nodes().await else { return };
    let mut attempts = JoinSet::new();
    for number in 0..40 {
        let store = Arc::clone(&nodes[number % 2]);
        // The order of the buckets differs, as for different names at one address.
        let mut buckets = vec![bucket(1, 5), bucket(2, 100)];
        if number % 3 == 0 {
            buckets.reverse();
        }
        attempts.spawn(async move { is_allowed(&store, &buckets).await });
    }
    let allowed = attempts.join_all().await.into_iter().filter(|is_allowed| *is_allowed).count();
    assert_eq!(allowed, 5);
    let wait = nodes[0].as_shared().unwrap().add_attempt(&[bucket(1, 5)]).await.unwrap().unwrap();
    assert!(wait > INTERVAL / 2 && wait <= INTERVAL, "{wait:?}");
}

#[tokio::test]
async fn a_refused_attempt_fills_no_bucket() {
    let Some((_dir, [first, second])) = two_nodes().await else { return };
    assert!(is_allowed(&first, &[bucket(1, 1), bucket(2, 2)]).await);
    for _ in 0..3 {
        assert!(!is_allowed(&second, &[bucket(1, 1), bucket(2, 2)]).await, "the first bucket is full");
    }
    assert!(is_allowed(&second, &[bucket(2, 2)]).await, "the second one has room for one more");
    assert!(!is_allowed(&first, &[bucket(2, 2)]).await);
}

#[tokio::test]
async fn a_removed_attempt_makes_room_on_all_nodes() {
    let Some((_dir, [first, second])) = two_nodes().await else { return };
    let pair = AttemptBucket { is_emptied: true, ..bucket(1, 2) };
    for _ in 0..2 {
        assert!(is_allowed(&first, &[pair.clone(), bucket(2, 2)]).await);
    }
    second.as_shared().unwrap().remove_attempt(&[pair.clone(), bucket(2, 2)]).await.unwrap();
    assert!(is_allowed(&first, &[bucket(2, 2)]).await && !is_allowed(&first, &[bucket(2, 2)]).await);
    for node in [&first, &second] {
        assert!(is_allowed(node, std::slice::from_ref(&pair)).await, "the pair is empty");
    }
    assert!(!is_allowed(&first, &[pair]).await);
}

#[tokio::test]
async fn a_bucket_loses_attempts_with_time_and_is_removed() {
    let Some((_dir, [first, second])) = two_nodes().await else { return };
    for name in 1..4 {
        assert!(is_allowed(&first, &[bucket(name, 1)]).await);
    }
    assert!(!is_allowed(&second, &[bucket(1, 1)]).await);
    let later = "UPDATE attempt_buckets SET empty_at = empty_at - interval '601 seconds'";
    sqlx::query(later).execute(first.writer.postgres()).await.unwrap();
    assert!(is_allowed(&second, &[bucket(1, 1)]).await);
    assert_eq!(row_count(&first).await, 1, "the empty ones are gone");
}
