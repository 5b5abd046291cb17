//! Responses, whose cost is not bounded: one that does not fit runs alone, and others wait for room.

use crate::gateway::store::testing::record;
use tokio::task::JoinHandle;

use super::*;

/// A response with this ceiling.
fn response(ceiling: Option<f64>) -> JobDemand {
    JobDemand { images: 0, cost: ceiling.map(usd), bound: BoundKind::Ceiling }
}

/// Reserves on a task of its own.
#[expect(clippy::disallowed_methods, reason = "a test waits for it")]
fn spawn_reservation(
    limiter: &Arc<RequestLimiter>,
    id: &'static str,
    subjects: Vec<SubjectLimits>,
    demand: JobDemand,
) -> JoinHandle<Result<LimitReservation, LimitError>> {
    let limiter = Arc::clone(limiter);
    tokio::spawn(async move { limiter.reserve(&id.into(), subjects, demand).await })
}

impl Fixture {
    /// Begins to reserve on a task of its own, and lets it run until it waits or is done.
    async fn begin(
        &self,
        limits: &RequestLimits,
        demand: JobDemand,
    ) -> JoinHandle<Result<LimitReservation, LimitError>> {
        let task = spawn_reservation(&self.limiter, "req_1", vec![key_limits(limits)], demand);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        task
    }

    /// A key whose counters have begun, so that no query delays a reservation.
    async fn with_budget(dollars: f64) -> (Self, RequestLimits) {
        let (fixture, limits) = (Self::new().await, budget(dollars, BudgetPeriod::Month));
        drop(fixture.reserve(&limits, one_image(0.0)).await.unwrap());
        (fixture, limits)
    }
}

#[tokio::test]
async fn responses_that_fit_run_together_and_one_that_does_not_runs_alone() {
    let (fixture, limits) = Fixture::with_budget(1.0).await;
    let first = fixture.reserve(&limits, response(Some(0.4))).await.unwrap();
    let second = fixture.reserve(&limits, response(Some(0.4))).await.unwrap();
    let alone = fixture.begin(&limits, response(Some(0.4))).await;
    assert!(!alone.is_finished(), "0.2 are left");
    first.settle(Some(usd(0.01)), 0);
    let third = alone.await.unwrap().unwrap();
    assert_eq!(third.status().budget_left, Some(usd(0.19)), "it fits now: 0.01 + 0.4 + 0.4");
    // A ceiling that is not known, and one that is larger than the budget, wait until nothing is reserved.
    let unknown = fixture.begin(&limits, response(None)).await;
    let larger = fixture.begin(&limits, response(Some(3.0))).await;
    second.settle(Some(usd(0.01)), 0);
    tokio::task::yield_now().await;
    assert!(!unknown.is_finished() && !larger.is_finished());
    third.settle(Some(usd(0.01)), 0);
    let unknown = unknown.await.unwrap().unwrap();
    assert!(!larger.is_finished(), "the first one holds everything that is left");
    let image = fixture.begin(&limits, one_image(0.01)).await;
    unknown.settle(Some(usd(0.5)), 0);
    let larger = larger.await.unwrap().unwrap();
    assert!(!image.is_finished());
    larger.settle(Some(usd(3.0)), 0);
    // The budget is passed by one request, and nothing runs any more.
    let refused = image.await.unwrap();
    assert!(matches!(&refused, Err(LimitError::Reached(hit)) if hit.is_quota), "{refused:?}");
    assert!(fixture.hit(&limits, response(None)).await.is_quota);
}

#[tokio::test]
async fn a_job_that_waits_in_vain_may_try_again_soon() {
    let (fixture, limits) = Fixture::with_budget(1.0).await;
    let running = fixture.reserve(&limits, response(None)).await.unwrap();
    tokio::time::pause();
    for demand in [response(Some(0.1)), one_image(0.1)] {
        let hit = fixture.hit(&limits, demand).await;
        assert_eq!((hit.limit, hit.scope, hit.is_quota, hit.resets_at), ("budget_usd", "key", false, None));
        assert!(hit.wait_seconds <= 10);
    }
    assert!(fixture.limiter.take_changed_budgets().iter().all(|budget| !budget.has_refused), "it is not spent");
    drop(running);
    drop(fixture.reserve(&limits, response(None)).await.unwrap());
}

#[tokio::test]
async fn waiting_jobs_are_served_in_their_order_and_leave_with_their_callers() {
    let (fixture, limits) = Fixture::with_budget(1.0).await;
    let running = fixture.reserve(&limits, one_image(0.5)).await.unwrap();
    let left = fixture.begin(&limits, response(None)).await;
    let first = fixture.begin(&limits, response(None)).await;
    let image = fixture.begin(&limits, one_image(0.1)).await;
    assert!(!image.is_finished(), "it would fit, but others came first");
    left.abort();
    assert!(left.await.is_err());
    running.settle(Some(usd(0.1)), 1);
    let first = first.await.unwrap().unwrap();
    assert!(!image.is_finished());
    drop(first);
    drop(image.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_full_budget_of_one_key_is_not_in_the_way_of_others_of_its_group() {
    let (fixture, limits) = Fixture::with_budget(1.0).await;
    let group = || {
        SubjectLimits::new(LimitSubject::Group("default".to_owned()), Some(&Arc::new(budget(9.0, BudgetPeriod::Day))))
    };
    let of = |key: &str| SubjectLimits::new(LimitSubject::Key(key.into()), Some(&Arc::new(limits.clone())));
    let reserve = |key: &str| spawn_reservation(&fixture.limiter, "req_1", vec![of(key), group()], response(Some(2.0)));
    let running = reserve("key_1").await.unwrap().unwrap();
    let waiting = reserve("key_1");
    let other = reserve("key_2").await.unwrap().unwrap();
    assert!(!waiting.is_finished());
    drop(running);
    drop(waiting.await.unwrap().unwrap());
    drop(other);
}

#[tokio::test]
async fn a_response_that_was_dearer_than_its_amount_raises_those_of_the_others() {
    let (fixture, limits) = Fixture::with_budget(10.0).await;
    fixture.reserve(&limits, response(Some(0.1))).await.unwrap().settle(Some(usd(2.0)), 0);
    let next = fixture.reserve(&limits, response(Some(0.1))).await.unwrap();
    assert_eq!(next.status().budget_left, Some(usd(6.0)));
    // Also after a restart, from the record.
    let record = record! { operation: "create_response".to_owned(), cost_usd: Some(usd(2.0)), ..finished_now("r1") };
    fixture.write(&record! { max_job_cost_usd: Some(usd(0.1)), ..record }).await;
    let again = Arc::new(RequestLimiter::new(Arc::clone(&fixture.store) as _));
    let next = again.reserve(&"req_1".into(), vec![key_limits(&limits)], response(Some(0.1))).await.unwrap();
    assert_eq!(next.status().budget_left, Some(usd(6.0)));
}

/// Returns the cost of a response, if it may begin.
async fn spend(fixture: Arc<Fixture>, limits: RequestLimits, cost: Usd) -> Usd {
    let reserved = fixture.reserve(&limits, response(Some(0.3))).await;
    tokio::task::yield_now().await;
    reserved.ok().map(|reservation| reservation.settle(Some(cost), 0)).map_or(Usd::ZERO, |()| cost)
}

#[tokio::test]
async fn a_burst_passes_a_budget_by_at_most_one_response() {
    for seed in 0..50_u64 {
        let (fixture, limits) = Fixture::with_budget(1.0).await;
        let fixture = Arc::new(fixture);
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..50_u64 {
            let (fixture, limits) = (Arc::clone(&fixture), limits.clone());
            let cost = Usd::from_nanos((seed * 31 + number * 17) % 30 * 10_000_000);
            tasks.spawn(spend(fixture, limits, cost));
        }
        let spent = tasks.join_all().await.into_iter().fold(Usd::ZERO, Usd::plus);
        assert!(spent < usd(1.3), "{seed}: {spent}");
    }
}

/// Reserves on a node of a shared database.
fn on_node(
    limiter: &Arc<RequestLimiter>,
    id: &'static str,
    demand: JobDemand,
) -> JoinHandle<Result<LimitReservation, LimitError>> {
    spawn_reservation(limiter, id, vec![key_limits(&budget(1.0, BudgetPeriod::Month))], demand)
}

#[tokio::test]
async fn a_response_runs_alone_on_all_nodes_and_the_nodes_serve_the_waiting_jobs_in_their_order() {
    let Some((dir, url, first)) = crate::gateway::store::testing::new_postgres_store().await else { return };
    let second = Arc::new(SqlStore::open_postgres(dir.path(), &url, None).await.unwrap());
    let nodes = [&first, &second].map(|store| Arc::new(RequestLimiter::new(Arc::clone(store) as _)));
    let image = on_node(&nodes[0], "req_1", one_image(0.5)).await.unwrap().unwrap();
    let alone = on_node(&nodes[1], "req_2", response(None));
    let waiting = || first.count("SELECT count(*) FROM limit_waiters");
    while waiting().await < 1 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let later = on_node(&nodes[0], "req_3", one_image(0.1));
    while waiting().await < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!alone.is_finished() && !later.is_finished());
    drop(image);
    let alone = alone.await.unwrap().unwrap();
    assert!(!later.is_finished(), "the response holds everything that is left");
    let usage = nodes[0].usage(&[key_limits(&budget(1.0, BudgetPeriod::Month))]).await.unwrap();
    assert!(matches!(usage[0][0].amounts, LimitAmounts::Money { reserved, .. } if reserved == usd(1.0)));
    drop(alone);
    drop(later.await.unwrap().unwrap());
    assert_eq!(waiting().await, 0);
}
