//! Tests of limits, with a real store for what was used before.

mod paced;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use chrono::{NaiveDate, Utc};
use tempfile::TempDir;
use tokio::time::advance;

use super::counters::{period_begin, period_end};
use super::*;
use crate::error::LimitRefusal;
use crate::gateway::config::{Budget, BudgetPeriod, RequestLimits};
use crate::gateway::money::Usd;
use crate::gateway::store::testing::{finished_record, new_store, record, running_record};
use crate::gateway::store::{JobRecord, NodeId, RecordStore as _, RowWrite, SqlStore};

struct Fixture {
    limiter: Arc<RequestLimiter>,
    store: Arc<SqlStore>,
    _dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (dir, store) = new_store().await;
        Self { limiter: Arc::new(RequestLimiter::new(Arc::clone(&store) as _)), store, _dir: dir }
    }

    async fn reserve(&self, limits: &RequestLimits, demand: JobDemand) -> Result<LimitReservation, LimitError> {
        self.limiter.reserve(&"req_1".into(), vec![key_limits(limits)], demand).await
    }

    async fn hit(&self, limits: &RequestLimits, demand: JobDemand) -> LimitRefusal {
        match self.reserve(limits, demand).await {
            Err(LimitError::Reached(hit)) => hit,
            other => panic!("{other:?}"),
        }
    }

    async fn write(&self, record: &JobRecord) {
        let document = &record.document;
        let open = record! {
            max_cost_usd: record.max_cost,
            max_job_cost_usd: record.max_job_cost,
            created_at: document.created_at,
            n: document.n,
            operation: document.operation.clone(),
            ..running_record(&document.request_id)
        };
        let close = RowWrite::Close(record);
        let writes = [RowWrite::Open(&open), close];
        let count = if document.latency_ms.is_some() { 2 } else { 1 };
        self.store.write_rows(&NodeId::only(), &writes[..count]).await.unwrap();
    }
}

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

fn key_limits(limits: &RequestLimits) -> SubjectLimits {
    SubjectLimits { subject: LimitSubject::Key("key_1".into()), limits: Arc::new(limits.clone()) }
}

fn budget(dollars: f64, period: BudgetPeriod) -> RequestLimits {
    let budget = Budget { usd: usd(dollars), period, alert: usd(dollars * 0.8) };
    RequestLimits { budget: Some(budget), ..RequestLimits::default() }
}

fn one_image(dollars: f64) -> JobDemand {
    JobDemand { images: 1, cost: Some(usd(dollars)), bound: BoundKind::Images }
}

fn finished_now(id: &str) -> JobRecord {
    record! { created_at: Utc::now(), cost_usd: Some(usd(0.25)), ..finished_record(id) }
}

#[tokio::test]
async fn a_budget_is_never_passed_by_simultaneous_jobs() {
    let fixture = Fixture::new().await;
    let limits = budget(1.0, BudgetPeriod::Month);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (limiter, limits) = (Arc::clone(&fixture.limiter), key_limits(&limits));
        tasks.spawn(async move { limiter.reserve(&"req_1".into(), vec![limits], one_image(0.04)).await });
    }
    let results = tasks.join_all().await;
    let reserved: Vec<_> = results.into_iter().filter_map(Result::ok).collect();
    assert_eq!(reserved.len(), 25, "25 times 0.04 is 1.00");
    // Jobs that failed give their share back; those that cost less give back the rest.
    for (number, reservation) in reserved.into_iter().enumerate() {
        match number % 5 {
            0 => drop(reservation),
            1 => reservation.settle(Some(usd(0.02)), 1),
            2 => reservation.settle(None, 1),
            _ => reservation.settle(Some(usd(0.04)), 1),
        }
    }
    // Spent: 5 x 0.02 + 5 x 0.04 + 10 x 0.04 = 0.70. Left: 7 x 0.04 = 0.28.
    for _ in 0..7 {
        fixture.reserve(&limits, one_image(0.04)).await.unwrap().settle(Some(usd(0.04)), 1);
    }
    let hit = fixture.hit(&limits, one_image(0.04)).await;
    assert_eq!((hit.limit, hit.value.as_str(), hit.scope, hit.is_quota), ("budget_usd", "1.00", "key", true));
    assert!(hit.resets_at.unwrap() > Utc::now().timestamp());
    fixture.reserve(&limits, one_image(0.02)).await.unwrap().settle(Some(usd(0.02)), 1);
}

#[tokio::test]
async fn what_was_used_before_a_restart_counts() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { images_per_day: Some(3), ..budget(1.0, BudgetPeriod::Day) };
    fixture.write(&finished_now("r1")).await;
    // A job that still runs counts as the most that it can use.
    let running = record! { latency_ms: None, max_cost_usd: Some(usd(0.5)), n: Some(1), ..finished_now("r2") };
    fixture.write(&running).await;
    // As a command beside a server sees it.
    fixture.limiter.count_running_jobs().await.unwrap();
    let hit = fixture.hit(&limits, one_image(0.26)).await;
    assert_eq!(hit.limit, "budget_usd");
    let hit = fixture.hit(&limits, JobDemand { images: 2, ..one_image(0.0) }).await;
    assert_eq!((hit.limit, hit.value.as_str()), ("images_per_day", "3"), "one was delivered, and one was asked for");
    // Records of another key or of another month do not count.
    let other = SubjectLimits { subject: LimitSubject::Key("key_2".into()), limits: Arc::new(limits.clone()) };
    assert!(fixture.limiter.reserve(&"req_1".into(), vec![other], one_image(1.0)).await.is_ok());
}

#[tokio::test]
async fn an_unknown_cost_counts_as_the_most_after_a_restart() {
    let fixture = Fixture::new().await;
    let limits = budget(1.0, BudgetPeriod::Day);
    // A job whose one call can cost 0.1, and 0.4 with its fallbacks.
    let (max_cost_usd, max_job_cost_usd) = (Some(usd(0.1)), Some(usd(0.4)));
    let unknown = record! { cost_usd: None, max_cost_usd, max_job_cost_usd, ..finished_now("r1") };
    fixture.write(&unknown).await;
    fixture.write(&record! { max_job_cost_usd: None, ..finished_now("r2") }).await;
    fixture.write(&record! { latency_ms: None, request_id: "r3".into(), ..unknown }).await;
    // As a command beside a server sees it: the job of the running record has reserved 0.4.
    fixture.limiter.count_running_jobs().await.unwrap();
    // Left: 1.0 - 0.4 - 0.25 - 0.4.
    assert_eq!(fixture.hit(&limits, one_image(0.0)).await.limit, "budget_usd");
    let more = budget(1.06, BudgetPeriod::Day);
    assert_eq!(fixture.hit(&more, one_image(0.02)).await.limit, "budget_usd");
    fixture.reserve(&more, one_image(0.01)).await.unwrap().settle(Some(usd(0.01)), 1);
}

#[tokio::test]
async fn a_budget_needs_a_price() {
    let fixture = Fixture::new().await;
    let unknown = JobDemand { images: 1, ..JobDemand::default() };
    let refused = fixture.reserve(&budget(1.0, BudgetPeriod::Week), unknown).await;
    assert!(matches!(refused, Err(LimitError::PriceUnknown)), "{refused:?}");
    let other = RequestLimits { concurrent_jobs: Some(1), ..RequestLimits::default() };
    assert!(fixture.reserve(&other, unknown).await.is_ok());
}

#[tokio::test]
async fn a_minute_is_counted_from_every_moment() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { requests_per_minute: Some(2), images_per_minute: Some(5), ..RequestLimits::default() };
    let images = |images| JobDemand { images, ..JobDemand::default() };
    tokio::time::pause();
    drop(fixture.reserve(&limits, images(4)).await.unwrap());
    advance(Duration::from_secs(40)).await;
    let hit = fixture.hit(&limits, images(2)).await;
    assert_eq!((hit.limit, hit.wait_seconds, hit.is_quota), ("images_per_minute", 20, false));
    drop(fixture.reserve(&limits, images(1)).await.unwrap());
    let hit = fixture.hit(&limits, images(0)).await;
    assert_eq!((hit.limit, hit.wait_seconds), ("requests_per_minute", 20));
    advance(Duration::from_secs(20)).await;
    drop(fixture.reserve(&limits, images(4)).await.unwrap());
    assert_eq!(fixture.hit(&limits, images(1)).await.wait_seconds, 40);
    let above = fixture.reserve(&limits, images(6)).await;
    assert!(matches!(above, Err(LimitError::ImagesAboveLimit { name: "images_per_minute", limit: 5 })), "{above:?}");
}

#[tokio::test]
async fn the_stated_reset_is_that_of_the_newest_request() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { requests_per_minute: Some(9), images_per_minute: Some(9), ..RequestLimits::default() };
    let resets = async |images| {
        let reservation = fixture.reserve(&limits, JobDemand { images, ..JobDemand::default() }).await.unwrap();
        let status = reservation.status();
        [status.requests, status.images].map(|window| window.unwrap().reset.as_secs())
    };
    tokio::time::pause();
    assert_eq!(resets(0).await, [60, 0], "no image was asked for");
    assert_eq!(resets(1).await, [60, 60]);
    advance(Duration::from_secs(40)).await;
    assert_eq!(resets(0).await, [60, 20]);
    advance(Duration::from_secs(30)).await;
    assert_eq!(resets(0).await, [60, 0]);
}

#[tokio::test]
async fn a_place_is_free_when_its_job_ends() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { concurrent_jobs: Some(2), ..RequestLimits::default() };
    let first = fixture.reserve(&limits, JobDemand::default()).await.unwrap();
    let second = fixture.reserve(&limits, JobDemand::default()).await.unwrap();
    let hit = fixture.hit(&limits, JobDemand::default()).await;
    assert_eq!((hit.limit, hit.resets_at), ("concurrent_jobs", None));
    first.settle(None, 0);
    let third = fixture.reserve(&limits, JobDemand::default()).await.unwrap();
    drop(second);
    assert!(fixture.reserve(&limits, JobDemand::default()).await.is_ok());
    drop(third);
}

#[tokio::test]
async fn a_job_is_counted_by_all_of_its_subjects_or_by_none() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { images_per_day: Some(10), ..RequestLimits::default() };
    let group = |limit| SubjectLimits {
        subject: LimitSubject::Group("default".to_owned()),
        limits: Arc::new(RequestLimits { images_per_day: Some(limit), ..RequestLimits::default() }),
    };
    let images = |images| JobDemand { images, ..JobDemand::default() };
    for _ in 0..20 {
        let refused = fixture.limiter.reserve(&"req_1".into(), vec![key_limits(&limits), group(4)], images(5)).await;
        assert!(matches!(refused, Err(LimitError::ImagesAboveLimit { .. })), "{refused:?}");
    }
    let both = fixture.limiter.reserve(&"req_1".into(), vec![key_limits(&limits), group(4)], images(3)).await.unwrap();
    let refused = fixture.limiter.reserve(&"req_1".into(), vec![key_limits(&limits), group(4)], images(2)).await;
    assert!(matches!(&refused, Err(LimitError::Reached(hit)) if hit.scope == "group"), "{refused:?}");
    // Of three images two were delivered.
    both.settle(None, 2);
    assert!(fixture.limiter.reserve(&"req_1".into(), vec![key_limits(&limits), group(4)], images(2)).await.is_ok());
    fixture.reserve(&limits, images(8)).await.unwrap().settle(None, 8);
    assert_eq!(fixture.hit(&limits, images(1)).await.scope, "key");
}

#[tokio::test]
async fn the_keys_of_a_user_share_the_limits_of_the_user() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { images_per_day: Some(3), ..budget(1.0, BudgetPeriod::Day) };
    let record = finished_now("r1");
    fixture.write(&record).await;
    let user = SubjectLimits {
        subject: LimitSubject::User(record.document.user.as_str().into()),
        limits: Arc::new(limits.clone()),
    };
    let of_key = |key: &str| SubjectLimits { subject: LimitSubject::Key(key.into()), limits: Arc::new(limits.clone()) };
    let reserve = async |key: &str| {
        fixture.limiter.reserve(&"req_1".into(), vec![of_key(key), user.clone()], one_image(0.25)).await
    };
    // One image was delivered before, with another key.
    reserve("key_8").await.unwrap().settle(Some(usd(0.25)), 1);
    reserve("key_9").await.unwrap().settle(Some(usd(0.25)), 1);
    let refused = reserve("key_9").await;
    let hit = |hit: &LimitRefusal| (hit.scope, hit.limit) == ("user", "images_per_day");
    assert!(matches!(&refused, Err(LimitError::Reached(refusal)) if hit(refusal)), "{refused:?}");
}

#[tokio::test]
async fn a_check_says_what_would_be_refused_and_reserves_nothing() {
    let fixture = Fixture::new().await;
    let limits = RequestLimits { concurrent_jobs: Some(1), requests_per_minute: Some(1), ..RequestLimits::default() };
    let subjects = [key_limits(&limits)];
    for _ in 0..3 {
        fixture.limiter.check(&subjects, &one_image(0.1)).await.unwrap();
    }
    let running = fixture.reserve(&limits, one_image(0.1)).await.unwrap();
    let refused = fixture.limiter.check(&subjects, &one_image(0.1)).await;
    assert!(matches!(&refused, Err(LimitError::Reached(hit)) if hit.limit == "requests_per_minute"), "{refused:?}");
    drop(running);
}

#[tokio::test]
async fn the_counters_of_idle_subjects_are_removed() {
    let fixture = Fixture::new().await;
    let of_key = |key: &str, limits: &RequestLimits| SubjectLimits {
        subject: LimitSubject::Key(key.into()),
        limits: Arc::new(limits.clone()),
    };
    let minute = RequestLimits { requests_per_minute: Some(9), ..RequestLimits::default() };
    let day = RequestLimits { images_per_day: Some(9), ..RequestLimits::default() };
    let reserve = async |key: &str, limits: &RequestLimits| {
        fixture.limiter.reserve(&"req_1".into(), vec![of_key(key, limits)], one_image(0.1)).await.unwrap()
    };
    let running = reserve("running", &minute).await;
    reserve("of the day", &day).await.settle(None, 1);
    tokio::time::pause();
    for key in 0..100 {
        reserve(&format!("key_{key}"), &minute).await.settle(None, 1);
    }
    assert_eq!(fixture.limiter.subject_count(), 102);
    advance(Duration::from_secs(60)).await;
    drop(reserve("another", &minute).await);
    assert_eq!(fixture.limiter.subject_count(), 3, "a job runs, a day has a count, and one has just begun");
    drop(running);
}

#[tokio::test]
async fn a_limit_that_is_set_counts_the_jobs_that_run() {
    let fixture = Fixture::new().await;
    let images = |images| JobDemand { images, ..one_image(0.2) };
    let before = fixture.reserve(&RequestLimits::default(), images(5)).await.unwrap();
    let limits = RequestLimits { images_per_day: Some(6), ..budget(0.5, BudgetPeriod::Day) };
    assert_eq!(fixture.hit(&limits, images(2)).await.limit, "images_per_day");
    fixture.reserve(&limits, images(1)).await.unwrap().settle(Some(usd(0.1)), 1);
    // The job has not delivered anything.
    before.settle(Some(usd(0.25)), 0);
    assert_eq!(fixture.hit(&limits, images(3)).await.limit, "budget_usd", "0.35 are spent");
    fixture.reserve(&limits, JobDemand { images: 5, ..one_image(0.15) }).await.unwrap().settle(None, 0);
}

#[tokio::test]
async fn closed_limits_let_nothing_pass() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.hit(&RequestLimits::closed(), JobDemand::default()).await.limit, "concurrent_jobs");
}

#[tokio::test]
async fn an_answer_states_the_tightest_limits() {
    let fixture = Fixture::new().await;
    let limits = |requests| RequestLimits { requests_per_minute: Some(requests), ..budget(1.0, BudgetPeriod::Day) };
    let group = SubjectLimits { subject: LimitSubject::Group("default".to_owned()), limits: Arc::new(limits(10)) };
    let reservation =
        fixture.limiter.reserve(&"req_1".into(), vec![key_limits(&limits(3)), group], one_image(0.3)).await.unwrap();
    let headers: Vec<_> = reservation.status().headers().collect();
    let expected = [
        ("x-ratelimit-limit-requests", "3"),
        ("x-ratelimit-remaining-requests", "2"),
        ("x-ratelimit-reset-requests", "60s"),
        ("x-imagate-budget-remaining-usd", "0.70"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name, value.to_owned())));
    assert!(headers.iter().all(|(name, _)| LimitStatus::is_header(name)));
    assert_eq!(LimitReservation::uncounted().status().headers().count(), 0);
}

#[test]
fn periods_begin_and_end_with_the_calendar() {
    let day = |text: &str| text.parse::<NaiveDate>().unwrap();
    let check = |period, of: &str, begin: &str, end: &str| {
        assert_eq!((period_begin(period, day(of)), period_end(period, day(of))), (day(begin), day(end)), "{of}");
    };
    check(BudgetPeriod::Day, "2026-12-31", "2026-12-31", "2027-01-01");
    check(BudgetPeriod::Week, "2026-11-26", "2026-11-23", "2026-11-30");
    check(BudgetPeriod::Week, "2026-11-23", "2026-11-23", "2026-11-30");
    check(BudgetPeriod::Month, "2026-12-31", "2026-12-01", "2027-01-01");
    check(BudgetPeriod::Month, "2028-02-29", "2028-02-01", "2028-03-01");
}
