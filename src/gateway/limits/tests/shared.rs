//! Tests of limits that several nodes share, in a PostgreSQL database. They pass without a check if the run has no server.

use super::*;
use crate::gateway::store::testing::new_postgres_store;
use crate::gateway::store::testing::record;
use crate::gateway::store::{InstallationStore as _, SqlStore, Timestamp, UsageFilter, UsageStore as _};

/// The longest wait of a test.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// The same limits on PostgreSQL, for two nodes at once.
struct SharedFixture {
    nodes: [Arc<SqlStore>; 2],
    limiters: [Arc<RequestLimiter>; 2],
    _dir: TempDir,
}

impl SharedFixture {
    /// `None` if the run of the tests has no server.
    async fn new() -> Option<Self> {
        let (dir, url, first) = new_postgres_store().await?;
        let second = Arc::new(SqlStore::open_postgres(dir.path(), &url, None).await.unwrap());
        let limiters = [&first, &second].map(|store| Arc::new(RequestLimiter::new(Arc::clone(store) as _)));
        Some(Self { nodes: [first, second], limiters, _dir: dir })
    }

    /// Runs a job from its reservation to its record, and returns false if it was refused.
    async fn run(&self, number: usize, limits: &RequestLimits, cost: f64) -> bool {
        let (node, limiter) = (&self.nodes[number % 2], &self.limiters[number % 2]);
        let id = format!("req_{number}");
        let subjects = vec![key_limits(limits)];
        let Ok(reservation) = limiter.reserve(&id.as_str().into(), subjects, one_image(0.04)).await else {
            return false;
        };
        let today = Timestamp::now();
        let open = record! { max_cost_usd: Some(usd(0.04)), created_at: today, ..running_record(&id) };
        let close = record! { cost_usd: Some(usd(cost)), created_at: today, ..finished_record(&id) };
        node.write_rows(&NodeId::only(), &[RowWrite::Open(&open)]).await.unwrap();
        tokio::task::yield_now().await;
        node.write_rows(&NodeId::only(), &[RowWrite::Close(&close)]).await.unwrap();
        reservation.settle(Some(usd(cost)), 1);
        true
    }
}

#[tokio::test]
async fn two_nodes_together_stay_within_a_budget() {
    let Some(fixture) = SharedFixture::new().await else { return };
    let (fixture, limits) = (Arc::new(fixture), budget(1.0, BudgetPeriod::Day));
    let mut jobs = tokio::task::JoinSet::new();
    for number in 0..200 {
        let (fixture, limits) = (Arc::clone(&fixture), limits.clone());
        jobs.spawn(async move { fixture.run(number, &limits, 0.04).await });
    }
    let begun = jobs.join_all().await.into_iter().filter(|begun| *begun).count();
    assert_eq!(begun, 25);
    let spent = fixture.nodes[0].total_usage(&UsageFilter::default()).await.unwrap().cost_usd;
    assert_eq!(spent, usd(1.0));
}

#[tokio::test]
async fn a_job_that_does_not_begin_gives_its_money_back_to_all_nodes() {
    let Some(fixture) = SharedFixture::new().await else { return };
    let limits = budget(0.05, BudgetPeriod::Day);
    let reserve = async |node: usize, id: &str| {
        fixture.limiters[node].reserve(&id.into(), vec![key_limits(&limits)], one_image(0.04)).await
    };
    let first = reserve(0, "req_a").await.unwrap();
    assert!(reserve(1, "req_b").await.is_err());
    drop(first);
    // The release is a task of its own.
    let mut second = reserve(1, "req_c").await;
    while second.is_err() {
        tokio::task::yield_now().await;
        second = reserve(1, "req_c").await;
    }
    // The rest of the budget is what the running job has not reserved.
    assert_eq!(second.unwrap().status().budget_left, Some(usd(0.01)));
}

#[tokio::test]
async fn a_repeat_counts_as_a_request_on_all_nodes_and_takes_no_place() {
    let Some(fixture) = SharedFixture::new().await else { return };
    let limits = RequestLimits { requests_per_minute: Some(3), concurrent_jobs: Some(1), ..RequestLimits::default() };
    let repeat = async |number: usize| {
        let id = format!("req_repeat_{number}");
        fixture.limiters[number % 2].count_repeat(&id.as_str().into(), vec![key_limits(&limits)]).await
    };
    assert!(fixture.run(0, &limits, 0.0).await);
    repeat(1).await.unwrap();
    repeat(2).await.unwrap();
    let refused = repeat(3).await;
    assert!(matches!(refused, Err(LimitError::Reached(refusal)) if refusal.limit == "requests_per_minute"));
    let usage = fixture.limiters[0].usage(&[key_limits(&limits)]).await.unwrap();
    let used = |name: &str| usage[0].iter().find(|limit| limit.name == name).unwrap().amounts;
    assert_eq!(used("requests_per_minute"), LimitAmounts::Count { limit: 3, used: 3 });
    assert_eq!(used("concurrent_jobs"), LimitAmounts::Count { limit: 1, used: 0 });
}

#[tokio::test]
async fn the_requests_and_places_of_a_minute_count_on_all_nodes() {
    let Some(fixture) = SharedFixture::new().await else { return };
    let limits = RequestLimits { requests_per_minute: Some(3), concurrent_jobs: Some(2), ..RequestLimits::default() };
    for number in 0..3 {
        assert!(fixture.run(number, &limits, 0.0).await, "{number}");
    }
    let refused = fixture.limiters[1].reserve(&"req_9".into(), vec![key_limits(&limits)], one_image(0.0)).await;
    assert!(matches!(refused, Err(LimitError::Reached(refusal)) if refusal.limit == "requests_per_minute"));

    let places = RequestLimits { concurrent_jobs: Some(2), ..RequestLimits::default() };
    let of_group =
        || vec![SubjectLimits { subject: LimitSubject::Group("g".to_owned()), limits: Arc::new(places.clone()) }];
    let mut held = Vec::new();
    for (node, id) in [(0, "req_x"), (1, "req_y")] {
        held.push(fixture.limiters[node].reserve(&id.into(), of_group(), one_image(0.0)).await.unwrap());
    }
    let refused = fixture.limiters[0].reserve(&"req_z".into(), of_group(), one_image(0.0)).await;
    assert!(matches!(refused, Err(LimitError::Reached(refusal)) if refusal.limit == "concurrent_jobs"));
    // A node that starts again gives back what the process before it has reserved without a record.
    fixture.nodes[0].interrupt_running(fixture.nodes[0].node_id()).await.unwrap();
    assert!(fixture.limiters[1].reserve(&"req_z".into(), of_group(), one_image(0.0)).await.is_ok());
    held.into_iter().for_each(|reservation| reservation.settle(None, 0));
}

/// Limits with one place.
fn one_place() -> RequestLimits {
    RequestLimits { concurrent_jobs: Some(1), ..RequestLimits::default() }
}

impl SharedFixture {
    async fn take_place(&self, node: usize, id: &str) -> Result<LimitReservation, LimitError> {
        self.limiters[node].reserve(&id.into(), vec![key_limits(&one_place())], JobDemand::default()).await
    }

    /// Waits until the only place is free, as the second node sees it, and takes it.
    async fn wait_for_place(&self, id: &str) -> LimitReservation {
        let wait = async {
            loop {
                match self.take_place(1, id).await {
                    Ok(reservation) => return reservation,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        tokio::time::timeout(WAIT_LIMIT, wait).await.unwrap()
    }
}

#[tokio::test]
async fn a_reservation_that_is_dropped_on_a_thread_outside_of_the_runtime_is_released() {
    let Some(fixture) = SharedFixture::new().await else { return };
    let reservation = fixture.take_place(0, "req_a").await.unwrap();
    assert!(fixture.take_place(1, "req_b").await.is_err());
    std::thread::spawn(move || drop(reservation)).join().unwrap();
    drop(fixture.wait_for_place("req_c").await);
}

#[tokio::test]
async fn a_caller_that_leaves_during_the_commit_of_its_reservation_keeps_nothing() {
    let Some(fixture) = SharedFixture::new().await else { return };
    fixture.nodes[0]
        .execute(
            "CREATE FUNCTION sleep_a_while() RETURNS TRIGGER LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON limit_reservations \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.request_id = 'req_slow') \
             EXECUTE FUNCTION sleep_a_while();",
        )
        .await;
    let left = tokio::time::timeout(Duration::from_millis(250), fixture.take_place(0, "req_slow")).await;
    assert!(left.is_err(), "the server commits");
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(fixture.wait_for_place("req_b").await);
}

#[tokio::test]
async fn a_reservation_whose_release_has_failed_is_removed_later() {
    let Some(fixture) = SharedFixture::new().await else { return };
    // Both stores are of the same node. The database is away when the first one releases.
    let lost = fixture.take_place(0, "req_lost").await.unwrap();
    fixture.nodes[0].close().await;
    drop(lost);
    let limiter = &fixture.limiters[1];
    assert_eq!(limiter.remove_abandoned_reservations().await.unwrap(), 0, "it could be a new one");
    assert!(fixture.take_place(1, "req_b").await.is_err());
    let age = "UPDATE limit_reservations SET begun_at = begun_at - interval '61 seconds'";
    fixture.nodes[1].execute(age).await;
    assert_eq!(limiter.remove_abandoned_reservations().await.unwrap(), 1);

    // One that the process holds stays, and so does one whose job has a record.
    let held = fixture.take_place(1, "req_held").await.unwrap();
    fixture.nodes[1].execute(age).await;
    assert_eq!(limiter.remove_abandoned_reservations().await.unwrap(), 0);
    let open = running_record("req_held");
    fixture.nodes[1].write_rows(&NodeId::only(), &[RowWrite::Open(&open)]).await.unwrap();
    held.settle(None, 0);
    assert_eq!(limiter.remove_abandoned_reservations().await.unwrap(), 0);
    assert!(fixture.take_place(1, "req_c").await.is_err());
}

#[tokio::test]
async fn an_unknown_cost_counts_as_the_most_on_all_nodes() {
    let Some(fixture) = SharedFixture::new().await else { return };
    let limits = budget(1.0, BudgetPeriod::Day);
    let reserve = async |node: usize, id: &str, cost| {
        fixture.limiters[node].reserve(&id.into(), vec![key_limits(&limits)], one_image(cost)).await
    };
    let reservation = reserve(0, "req_a", 0.4).await.unwrap();
    let (max_cost_usd, max_job_cost_usd) = (Some(usd(0.1)), Some(usd(0.4)));
    let created_at = Timestamp::now();
    let open = record! { created_at, max_cost_usd, max_job_cost_usd, ..running_record("req_a") };
    let close = record! { created_at, cost_usd: None, ..finished_record("req_a") };
    for write in [RowWrite::Open(&open), RowWrite::Close(&close)] {
        fixture.nodes[0].write_rows(&NodeId::only(), &[write]).await.unwrap();
    }
    reservation.settle(None, 1);
    assert!(reserve(1, "req_b", 0.61).await.is_err(), "0.4 count");
    assert_eq!(reserve(1, "req_c", 0.6).await.unwrap().status().budget_left, Some(Usd::ZERO));
    let usage = fixture.limiters[1].usage(&[key_limits(&limits)]).await.unwrap();
    let amounts = usage[0][0].amounts;
    assert!(matches!(amounts, LimitAmounts::Money { used, .. } if used == usd(0.4)), "{amounts:?}");
}
