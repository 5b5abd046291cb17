//! Reservations of jobs that do not begin: the writer drops their intents on its own thread. The tests pass without a check
//! if the run has no PostgreSQL server.

use super::late_commits::begin_open;
use super::*;
use crate::gateway::config::RequestLimits;
use crate::gateway::limits::{JobDemand, LimitError, LimitSubject, RequestLimiter, SubjectLimits};
use crate::gateway::store::SqlStore;
use crate::gateway::store::testing::new_postgres_store;

/// A key with one place, which is in the shared database, and a ledger whose writes can fail.
struct LimitedFixture {
    fixture: Fixture,
    limiter: Arc<RequestLimiter>,
    _dir: TempDir,
}

impl LimitedFixture {
    async fn new() -> Option<Self> {
        let (dir, _, shared): (_, _, Arc<SqlStore>) = new_postgres_store().await?;
        let limiter = Arc::new(RequestLimiter::new(shared));
        Some(Self { fixture: Fixture::new().await, limiter, _dir: dir })
    }

    async fn reserve(&self, id: &str) -> Result<LimitReservation, LimitError> {
        let limits = RequestLimits { concurrent_jobs: Some(1), ..RequestLimits::default() };
        let key = SubjectLimits { subject: LimitSubject::Key("key_1".into()), limits: Arc::new(limits) };
        self.limiter.reserve(&id.into(), vec![key], JobDemand::default()).await
    }

    /// Waits until the place is free again, which takes a moment.
    async fn wait_for_place(&self) {
        let wait = async {
            while self.reserve("probe").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), wait).await.unwrap();
    }
}

#[tokio::test]
async fn an_intent_that_the_database_refuses_gives_its_place_back() {
    let Some(limited) = LimitedFixture::new().await else { return };
    let Fixture { ledger, store, .. } = &limited.fixture;
    let reservation = limited.reserve("r1").await.unwrap();
    store.failure.set(Some(|| StoreError::Busy));
    assert!(matches!(ledger.open(draft("r1"), reservation).await, Err(LedgerError::Store(_))));
    store.failure.set(None);
    limited.wait_for_place().await;
}

#[tokio::test]
async fn an_intent_whose_request_id_is_used_gives_its_place_back() {
    let Some(limited) = LimitedFixture::new().await else { return };
    let first = limited.fixture.open("r1").await;
    let reservation = limited.reserve("r1").await.unwrap();
    let second = limited.fixture.ledger.open(draft("r1"), reservation).await;
    assert!(matches!(second, Err(LedgerError::Duplicate)));
    limited.wait_for_place().await;
    drop(first);
}

#[tokio::test]
async fn an_intent_whose_caller_leaves_before_its_commit_gives_its_place_back() {
    let Some(limited) = LimitedFixture::new().await else { return };
    let reservation = limited.reserve("r2").await.unwrap();
    limited.fixture.store.hold_writes();
    // The writer waits for the commit of another intent.
    let other = begin_open(&limited.fixture, "r1", 1).await;
    let mut opening = Box::pin(limited.fixture.ledger.open(draft("r2"), reservation));
    tokio::select! {
        _ = &mut opening => panic!("the store holds all writes"),
        () = limited.fixture.wait_until(|fixture| fixture.ledger.unsettled_records() == 2) => drop(opening),
    }
    limited.fixture.store.write_permits.add_permits(100);
    drop(other.await);
    limited.wait_for_place().await;
}
