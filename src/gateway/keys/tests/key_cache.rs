//! Tests of the key cache: the queries that a check costs, and when a change takes effect.

use tokio::time::Instant;

use super::*;
use crate::gateway::config::RequestLimits;
use crate::gateway::keys::key_cache::{CHANGES_PER_LOCK, LastNotedUse};
use crate::gateway::store::{InstallationStore as _, KeyCheck, KeyHash, UserStore as _};

#[tokio::test]
async fn a_change_by_another_process_takes_effect_with_the_next_refresh() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
    let other_process = SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap();
    let audit = AuditContext::command();
    let disable = [KeyChange::Disable];
    other_process.change_key(&audit, created.row.id.as_str(), None, &disable).await.unwrap().done().unwrap();
    assert!(fixture.authenticate(&header(&created)).await.is_ok(), "a known key needs no query");
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.is_invalid(&header(&created)).await);

    other_process
        .change_key(&audit, created.row.id.as_str(), None, &[KeyChange::Enable])
        .await
        .unwrap()
        .done()
        .unwrap();
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
    other_process.change_user(&audit, "ada", &[UserChange::Disable]).await.unwrap();
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.is_invalid(&header(&created)).await, "the keys of a disabled user are refused");
    other_process.change_user(&audit, "ada", &[UserChange::Enable]).await.unwrap();
    assert!(fixture.keys.refresh_once(true).await);
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
}

#[tokio::test]
async fn the_limits_of_a_user_reach_all_keys_of_the_user_and_no_other() {
    let fixture = Fixture::new().await;
    let keys = [fixture.create().await, fixture.create().await];
    let other = fixture.keys.create_for_test("other", "bob", "default").await;
    let limit = async |limits: Option<&str>| {
        let change = [UserChange::Limit(limits.map(str::to_owned))];
        fixture.sqlite.change_user(&AuditContext::command(), "ada", &change).await.unwrap();
        assert!(fixture.keys.refresh_once(true).await);
    };
    let user_limits = async |key| fixture.authenticate(&header(key)).await.unwrap().user_limits().cloned();
    assert_eq!(user_limits(&keys[0]).await, None);
    limit(Some(r#"{"images_per_day":5}"#)).await;
    let limits = [user_limits(&keys[0]).await.unwrap(), user_limits(&keys[1]).await.unwrap()];
    assert_eq!(limits[0].images_per_day, Some(5));
    assert!(Arc::ptr_eq(&limits[0], &limits[1]), "the keys of a user share one object");
    assert_eq!(user_limits(&other).await, None);
    // Limits that cannot be read let no request pass.
    limit(Some(r#"{"images_per_hour":5}"#)).await;
    assert_eq!(*user_limits(&keys[1]).await.unwrap(), RequestLimits::closed());
    limit(None).await;
    assert_eq!(user_limits(&keys[1]).await, None);
}

#[tokio::test]
async fn the_refresh_task_runs_until_its_keys_are_dropped() {
    let Fixture { keys, store, .. } = Fixture::new().await;
    let keys = Arc::new(keys);
    keys.spawn_refresh_task();
    while store.refreshes.load(Ordering::Relaxed) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(keys);
    // Only the keys hold another reference to the store; they are freed when the task no longer uses them.
    while Arc::strong_count(&store) > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_key_that_another_process_has_just_created_is_accepted() {
    let fixture = Fixture::new().await;
    assert!(
        fixture
            .is_invalid(&format!("Bearer {}", BearerSecret::generate(BearerSecretKind::Key).unwrap().expose()))
            .await
    );
    let other_process = Arc::new(SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap());
    let pepper = Pepper::new(other_process.pepper_key());
    let created =
        ApiKeys::new(&(Arc::clone(&other_process) as _), pepper).create_for_test("new", "ada", "default").await;
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
}

#[tokio::test]
async fn a_key_that_another_process_has_just_rotated_is_accepted() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
    let other_process = Arc::new(SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap());
    let keys = ApiKeys::new(&(Arc::clone(&other_process) as _), Pepper::new(other_process.pepper_key()));
    let rotated = keys.rotate(&AuditContext::command(), created.row.id.as_str(), None, Duration::ZERO).await.unwrap();
    assert!(fixture.authenticate(&header(&rotated)).await.is_ok());
    assert!(fixture.is_invalid(&header(&created)).await);
}

#[tokio::test]
async fn a_known_key_costs_no_query() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let header = header(&created);
    fixture.authenticate(&header).await.unwrap();
    while fixture.store.touches.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let calls_before = fixture.calls();
    for _ in 0..10_000 {
        fixture.authenticate(&header).await.unwrap();
    }
    assert_eq!(fixture.calls(), calls_before);
}

async fn is_refused(fixture: Arc<Fixture>, header: String) -> bool {
    fixture.is_invalid(&header).await
}

/// Sends 10,000 requests with well-formed unknown keys, 1,000 at a time.
#[tokio::test]
async fn unknown_keys_cost_a_limited_number_of_queries() {
    let fixture = Arc::new(Fixture::new().await);
    let known = fixture.create().await;
    let refreshes_before = fixture.refreshes();
    let (calls_before, start) = (fixture.calls(), Instant::now());
    for _ in 0..10 {
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..1000 {
            let fixture = Arc::clone(&fixture);
            // Every other key has the public id of an existing key.
            let unknown = BearerSecret::generate(BearerSecretKind::Key).unwrap();
            let keys = [unknown.expose().to_owned(), with_public_id(&unknown, &known.secret)];
            let header = format!("Bearer {}", keys[number % 2]);
            requests.spawn(is_refused(fixture, header));
        }
        assert!(requests.join_all().await.into_iter().all(|refused| refused));
    }
    // At most twenty queries per second, and the first one.
    let max_queries = start.elapsed().as_millis() / 50 + 1;
    let queries = fixture.calls() - calls_before;
    println!("10000 unknown keys: {queries} queries in {:?}", start.elapsed());
    assert!(
        u128::try_from(queries).unwrap() <= max_queries && queries >= 10,
        "{queries} queries, at most {max_queries} are allowed"
    );
    // All of them are refreshes, which read only the changed keys.
    assert_eq!(queries, fixture.refreshes() - refreshes_before);
}

#[tokio::test]
async fn malformed_keys_cost_no_query() {
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

/// A request that has begun a refresh may be dropped while the refresh runs. Other requests must neither wait for it
/// for ever nor treat it as complete.
#[tokio::test]
async fn a_request_dropped_during_its_refresh_does_not_block_others() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let keys = ApiKeys::new(&(Arc::clone(&fixture.sqlite) as _), Pepper::new(fixture.sqlite.pepper_key()));
    let header = header(&created);
    let policies = GroupPolicies::for_test();
    let mut dropped = Box::pin(keys.authenticate(Some(header.as_bytes()), &policies));
    assert!(poll_once(dropped.as_mut()).await.is_none());
    drop(dropped);
    assert!(keys.authenticate(Some(header.as_bytes()), &policies).await.is_ok());
}

async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_database_error_is_not_reported_as_an_invalid_key() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let unknown = format!("Bearer {}", BearerSecret::generate(BearerSecretKind::Key).unwrap().expose());
    fixture.store.failure.set(Some(|| StoreError::Busy));
    let result = fixture.authenticate(&unknown).await;
    assert!(
        matches!(&result, Err(AuthenticationError::Unavailable(error)) if matches!(**error, StoreError::Busy)),
        "{result:?}"
    );
    assert!(!fixture.keys.refresh_once(true).await);
    assert!(fixture.authenticate(&header(&created)).await.is_ok(), "known keys stay valid");
    fixture.store.failure.set(None);
    assert!(fixture.is_invalid(&unknown).await);
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
}

#[tokio::test]
async fn a_deleted_key_is_removed_from_the_cache() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    assert!(fixture.authenticate(&header(&created)).await.is_ok());
    assert_eq!(fixture.keys.cache.len(), 1);
    fixture.keys.change(&AuditContext::command(), created.row.id.as_str(), None, KeyChange::Delete).await.unwrap();
    assert_eq!(fixture.keys.cache.len(), 0);
    assert!(fixture.is_invalid(&header(&created)).await);
}

#[tokio::test(start_paused = true)]
async fn each_use_of_a_key_is_noted_once_for_each_period() {
    let note = LastNotedUse::default();
    let replace = || note.replace_if_older(Instant::now(), LAST_USED_PRECISION);
    assert_eq!([replace(), replace()], [true, false]);
    tokio::time::advance(LAST_USED_PRECISION - Duration::from_millis(1)).await;
    assert!(!replace());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!([replace(), replace()], [true, false]);
}

#[tokio::test]
async fn one_of_the_simultaneous_uses_of_a_key_is_noted() {
    let (note, start) = (LastNotedUse::default(), std::sync::Barrier::new(8));
    let now = Instant::now();
    let noted = std::thread::scope(|scope| {
        let note_use = || {
            start.wait();
            note.replace_if_older(now, LAST_USED_PRECISION)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(note_use)).collect();
        threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum::<usize>()
    });
    assert_eq!(noted, 1);
}

#[tokio::test]
async fn many_changes_at_once_are_all_applied() {
    let fixture = Fixture::new().await;
    let check = |public_id: PublicId, is_deleted| KeyCheck {
        id: KeyId::random().unwrap(),
        public_id,
        user: UserId::random().unwrap(),
        group_name: "default".to_owned(),
        hash: KeyHash([0; 32]),
        previous: None,
        expires_at: None,
        is_refused: false,
        limits: None,
        user_limits: None,
        dialects: DialectSet::default(),
        is_deleted,
        revision: 1,
    };
    let keys: Vec<_> = (0..2 * CHANGES_PER_LOCK + 1)
        .map(|_| BearerSecret::generate(BearerSecretKind::Key).unwrap().public_id())
        .collect();
    let cache = &fixture.keys.cache;
    cache.apply_changes(keys.iter().map(|key| check(key.clone(), false)).collect());
    assert_eq!(cache.len(), keys.len());
    cache.apply_changes(keys.iter().skip(1).map(|key| check(key.clone(), true)).collect());
    assert_eq!(cache.len(), 1);
    assert!(cache.find(&keys[0], |_| true).await.unwrap().is_some());
}
