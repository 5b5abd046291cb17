//! The queries that a check of a key costs, and the time after which a change takes effect.

use super::*;

#[tokio::test]
async fn what_another_process_changes_takes_effect_with_the_next_refresh() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    assert!(fixture.admit(&header(&created)).await.is_ok());
    let command = SqliteStore::open(fixture.dir.path(), None).await.unwrap();
    let act = AuditContext::command();
    let disable = [KeyChange::Disable];
    command.change_key(&act, created.id.as_str(), None, &disable).await.unwrap().done().unwrap();
    assert!(fixture.admit(&header(&created)).await.is_ok(), "nothing is asked of the store for a known key");
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.is_invalid(&header(&created)).await);

    command.change_key(&act, created.id.as_str(), None, &[KeyChange::Enable]).await.unwrap().done().unwrap();
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.admit(&header(&created)).await.is_ok());
    command.change_user(&act, "ada", &[UserChange::Disable]).await.unwrap();
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.is_invalid(&header(&created)).await, "the keys of a disabled user are refused");
    command.change_user(&act, "ada", &[UserChange::Enable]).await.unwrap();
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.admit(&header(&created)).await.is_ok());
}

#[tokio::test]
async fn the_watch_asks_by_itself_and_ends_with_its_keys() {
    let Fixture { keys, store, .. } = Fixture::new().await;
    let keys = Arc::new(keys);
    keys.spawn_refresh_task();
    while store.refreshes.load(Ordering::Relaxed) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(keys);
    // The watch is the last holder of the store.
    while Arc::strong_count(&store) > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_key_that_another_process_has_just_made_is_admitted() {
    let fixture = Fixture::new().await;
    assert!(
        fixture
            .is_invalid(&format!("Bearer {}", BearerSecret::generate(BearerSecretKind::Key).unwrap().expose()))
            .await
    );
    let command = Arc::new(SqliteStore::open(fixture.dir.path(), None).await.unwrap());
    let pepper = Pepper::new(command.pepper_key());
    let created = ApiKeys::new(command, pepper).create_for_test("new", "ada", "default").await;
    assert!(fixture.admit(&header(&created)).await.is_ok());
}

#[tokio::test]
async fn a_key_that_another_process_has_just_rotated_is_admitted() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    assert!(fixture.admit(&header(&created)).await.is_ok());
    let command = Arc::new(SqliteStore::open(fixture.dir.path(), None).await.unwrap());
    let pepper = Pepper::new(command.pepper_key());
    let keys = ApiKeys::new(command, pepper);
    let rotated = keys.rotate(&AuditContext::command(), created.id.as_str(), None, Duration::ZERO).await.unwrap();
    assert!(fixture.admit(&header(&rotated)).await.is_ok());
    assert!(fixture.is_invalid(&header(&created)).await);
}

#[tokio::test]
async fn a_known_key_costs_no_query_however_often_it_is_used() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let header = header(&created);
    fixture.admit(&header).await.unwrap();
    while fixture.store.touches.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let asked = fixture.calls();
    for _ in 0..10_000 {
        fixture.admit(&header).await.unwrap();
    }
    assert_eq!(fixture.calls(), asked);
}

async fn is_refused(fixture: Arc<Fixture>, header: String) -> bool {
    fixture.is_invalid(&header).await
}

/// 10,000 strangers, in groups of 1,000, with keys that look valid.
#[tokio::test]
async fn unknown_keys_cost_the_same_few_queries_however_many_come() {
    let fixture = Arc::new(Fixture::new().await);
    let known = fixture.create().await;
    let refreshed = fixture.refreshes();
    let (asked, begun) = (fixture.calls(), Instant::now());
    for _ in 0..10 {
        let mut crowd = tokio::task::JoinSet::new();
        for number in 0..1000 {
            let fixture = Arc::clone(&fixture);
            // Every other key has the public id of an existing key.
            let stranger = BearerSecret::generate(BearerSecretKind::Key).unwrap();
            let texts = [stranger.expose().to_owned(), with_public_id(&stranger, &known.secret)];
            let header = format!("Bearer {}", texts[number % 2]);
            crowd.spawn(is_refused(fixture, header));
        }
        assert!(crowd.join_all().await.into_iter().all(|refused| refused));
    }
    // Twenty a second and the first one, however busy the machine is.
    let fair = begun.elapsed().as_millis() / 50 + 1;
    let queries = fixture.calls() - asked;
    println!("10000 unknown keys: {queries} queries in {:?}", begun.elapsed());
    assert!(u128::try_from(queries).unwrap() <= fair && queries >= 10, "{queries} queries, {fair} would be fair");
    // Only the small query for changes.
    assert_eq!(queries, fixture.refreshes() - refreshed);
}

#[tokio::test]
async fn malformed_keys_cost_no_query_however_many_come() {
    let fixture = Fixture::new().await;
    let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
    let text = secret.expose();
    let last = if text.ends_with('x') { 'y' } else { 'x' };
    let header = format!("Bearer {}{last}", &text[..text.len() - 1]);
    for _ in 0..10_000 {
        assert!(fixture.is_invalid(&header).await);
    }
    let token = BearerSecret::generate(BearerSecretKind::AdminToken).unwrap();
    assert!(fixture.is_invalid(&format!("Bearer {}", token.expose())).await);
    assert_eq!(fixture.calls(), 0);
}

/// A request that begins a refresh may be dropped while it runs; the others must not wait for ever, nor take it for
/// done.
#[tokio::test]
async fn a_stranger_who_leaves_in_the_middle_takes_nobody_along() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let elsewhere =
        ApiKeys::new(Arc::clone(&fixture.store) as Arc<dyn Store>, Pepper::new(fixture.sqlite.pepper_key()));
    let header = header(&created);
    let mut left = Box::pin(elsewhere.admit(Some(header.as_bytes())));
    assert!(futures_poll_once(left.as_mut()).await.is_none());
    drop(left);
    assert!(elsewhere.admit(Some(header.as_bytes())).await.is_ok());
}

async fn futures_poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn trouble_with_the_database_is_not_an_invalid_key() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let stranger = format!("Bearer {}", BearerSecret::generate(BearerSecretKind::Key).unwrap().expose());
    fixture.store.set_failure(Some(|| StoreError::Busy));
    let refused = fixture.admit(&stranger).await;
    assert!(
        matches!(&refused, Err(AdmissionError::Unavailable(error)) if matches!(**error, StoreError::Busy)),
        "{refused:?}"
    );
    assert!(!fixture.keys.refresh_once(true).await);
    assert!(fixture.admit(&header(&created)).await.is_ok(), "those that are known stay good");
    fixture.store.set_failure(None);
    assert!(fixture.is_invalid(&stranger).await);
    assert!(fixture.admit(&header(&created)).await.is_ok());
}

#[tokio::test]
async fn a_deleted_key_is_no_longer_remembered() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    assert!(fixture.admit(&header(&created)).await.is_ok());
    assert_eq!(fixture.keys.cache.len(), 1);
    fixture.keys.change(&AuditContext::command(), created.id.as_str(), None, KeyChange::Delete).await.unwrap();
    assert_eq!(fixture.keys.cache.len(), 0);
    assert!(fixture.is_invalid(&header(&created)).await);
}
