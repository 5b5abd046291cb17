//! Tests of the counts of requests that are refused before there is a job.

use super::*;
use crate::gateway::store::{RefusalCount, UsageFilter, UsageStore as _};

/// Writes the counts, and returns the stored counts of refused requests by key.
async fn stored_counts(fixture: &Fixture) -> Vec<(String, u64)> {
    fixture.keys.write_refusals().await;
    let by_key = fixture.sqlite.usage_by_key(&UsageFilter::default(), None).await.unwrap();
    let mut by_key: Vec<_> = by_key.into_iter().map(|usage| (usage.key.to_string(), usage.counts.refused)).collect();
    by_key.sort();
    by_key
}

#[tokio::test]
async fn refused_requests_with_a_known_key_are_counted_for_the_key() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let caller = fixture.authenticate(&header(&created)).await.unwrap();
    for _ in 0..3 {
        fixture.keys.note_refusal(&caller);
    }
    fixture.change(&created.row.id, KeyChange::Disable).await.unwrap();
    for _ in 0..2 {
        assert!(fixture.is_invalid(&header(&created)).await);
    }
    assert_eq!(stored_counts(&fixture).await, [(created.row.id.to_string(), 5)]);
    // Later refusals are added to the written counts.
    assert!(fixture.is_invalid(&header(&created)).await);
    assert_eq!(stored_counts(&fixture).await, [(created.row.id.to_string(), 6)]);
    let totals = fixture.sqlite.total_usage(&UsageFilter::default()).await.unwrap();
    assert_eq!((totals.refused, totals.requests), (6, 0));
}

#[tokio::test]
async fn requests_with_unknown_keys_share_one_count() {
    let fixture = Fixture::new().await;
    for number in 0..200 {
        assert!(fixture.is_invalid(&format!("Bearer sk-img-{number}")).await);
    }
    assert!(matches!(
        fixture.keys.authenticate(None, &GroupPolicies::for_test()).await,
        Err(AuthenticationError::Invalid)
    ));
    assert!(
        fixture
            .is_invalid(&format!("Bearer {}", BearerSecret::generate(BearerSecretKind::Key).unwrap().expose()))
            .await
    );
    assert_eq!(fixture.keys.refusals.len(), 1);
    assert_eq!(stored_counts(&fixture).await, [(RefusalCount::NO_KEY.to_owned(), 202)]);
}

#[tokio::test]
async fn counts_that_could_not_be_stored_are_written_later() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let caller = fixture.authenticate(&header(&created)).await.unwrap();
    fixture.keys.note_refusal(&caller);
    fixture.store.failure.set(Some(|| StoreError::Refused("the disk is full".into())));
    fixture.keys.write_refusals().await;
    fixture.keys.note_refusal(&caller);
    fixture.store.failure.set(None);
    assert_eq!(stored_counts(&fixture).await, [(created.row.id.to_string(), 2)]);
}

#[tokio::test]
async fn a_stop_during_a_write_loses_no_count() {
    let Fixture { keys, store, sqlite, dir: _dir } = Fixture::new().await;
    let keys = Arc::new(keys);
    assert!(matches!(keys.authenticate(None, &GroupPolicies::for_test()).await, Err(AuthenticationError::Invalid)));
    store.write_permits.forget_permits(usize::MAX >> 4);
    keys.spawn_refresh_task();
    while keys.refusals.len() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let release_writes = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        store.write_permits.add_permits(10);
    };
    tokio::join!(keys.stop(), release_writes);
    let totals = sqlite.total_usage(&UsageFilter::default()).await.unwrap();
    assert_eq!(totals.refused, 1);
}
