mod crowd;

use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::gateway::accounts::account::UpstreamAccount;
use crate::gateway::config;

const LONG: Duration = Duration::from_secs(30);

fn account(name: &str, all: u32, large: u32) -> config::AccountConfig {
    config::AccountConfig {
        name: name.to_owned(),
        upstream: config::UpstreamConfig::Simulator,
        tier: config::BillingTier::Paid,
        groups: vec!["default".to_owned()],
        priority: 0,
        concurrency: NonZeroU32::new(all).unwrap(),
        large_concurrency: NonZeroU32::new(large).unwrap(),
        implicit: false,
    }
}

fn pool(accounts: &[config::AccountConfig]) -> Arc<AccountPool> {
    let pool = AccountPool::with_seed(7);
    {
        let mut inner = pool.lock();
        for account in accounts {
            let id = inner.next_id();
            inner.members.push(PoolMember::new(id, Arc::new(UpstreamAccount::new(account)), None));
        }
    }
    pool
}

fn standard() -> AccountRequirements {
    AccountRequirements { group: "default".to_owned(), model: Some("m".into()), ..AccountRequirements::default() }
}

fn large() -> AccountRequirements {
    AccountRequirements { is_large: true, ..standard() }
}

async fn take(pool: &Arc<AccountPool>, key: &str, wanted: AccountRequirements) -> Result<AccountSlot, LeaseRefusal> {
    pool.acquire_slot(&RequesterId::from_name(key), wanted, Instant::now() + LONG).await
}

/// Lets all tasks run until they wait.
async fn settled() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// The name of the account, or the refusal.
type AnswerResult = Result<String, LeaseRefusal>;

/// The waiting requests and the result of each, in order.
#[derive(Clone, Default)]
struct AnswerLog(Arc<Mutex<Vec<(String, AnswerResult)>>>);

impl AnswerLog {
    /// Adds a request to the queue; its slot is given back at once.
    async fn join(
        &self,
        pool: &Arc<AccountPool>,
        key: &str,
        wanted: AccountRequirements,
    ) -> tokio::task::JoinHandle<()> {
        let (pool, line, key) = (Arc::clone(pool), self.clone(), key.to_owned());
        let joined = tokio::runtime::Handle::current().spawn(async move {
            let place = take(&pool, &key, wanted).await;
            let got = place.as_ref().map(|place| place.account().name().to_owned()).map_err(|no| *no);
            line.0.lock().unwrap().push((key, got));
        });
        settled().await;
        joined
    }

    fn keys(&self) -> String {
        self.0.lock().unwrap().iter().map(|(key, _)| key.as_str()).collect()
    }

    fn got(&self) -> Vec<AnswerResult> {
        self.0.lock().unwrap().iter().map(|(_, got)| got.clone()).collect()
    }
}

#[track_caller]
fn is_clean(pool: &AccountPool) {
    let inner = pool.lock();
    assert_eq!(inner.queue.len(), 0);
    for member in &inner.members {
        assert_eq!(
            (member.taken_slots, member.taken_large_slots, member.is_probing),
            (0, 0, false),
            "{}",
            member.account.name()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_frees_on_any_account_goes_to_the_first_who_waits() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1)]);
    let (one, two) = (take(&pool, "x", standard()).await.unwrap(), take(&pool, "x", standard()).await.unwrap());
    let line = AnswerLog::default();
    line.join(&pool, "1", standard()).await;
    line.join(&pool, "2", standard()).await;
    let (a, b) = if one.account().name() == "a" { (one, two) } else { (two, one) };
    drop(b);
    settled().await;
    assert_eq!(line.got(), [Ok("b".to_owned()), Ok("b".to_owned())]);
    drop(a);
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn keys_take_turns() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    let line = AnswerLog::default();
    for key in ["1", "1", "1", "1", "2", "2", "3"] {
        line.join(&pool, key, standard()).await;
    }
    drop(place);
    settled().await;
    assert_eq!(line.keys(), "1231211");
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_large_job_holds_up_no_standard_one_and_is_not_forgotten() {
    let pool = pool(&[account("a", 3, 1)]);
    let first = take(&pool, "x", large()).await.unwrap();
    let line = AnswerLog::default();
    line.join(&pool, "L", large()).await;
    line.join(&pool, "s", standard()).await;
    assert_eq!(line.keys(), "s");
    let full = [take(&pool, "x", standard()).await.unwrap(), take(&pool, "x", standard()).await.unwrap()];
    line.join(&pool, "s", standard()).await;
    assert_eq!(line.keys(), "s");
    drop(first);
    settled().await;
    assert_eq!(line.keys(), "sLs");
    drop(full);
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_line_leaves_no_gap() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    let line = AnswerLog::default();
    let gone = line.join(&pool, "1", standard()).await;
    line.join(&pool, "2", standard()).await;
    gone.abort();
    settled().await;
    drop(place);
    settled().await;
    assert_eq!(line.keys(), "2");
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_place_for_one_who_leaves_in_that_moment_goes_to_the_next() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    let line = AnswerLog::default();
    let gone = line.join(&pool, "1", standard()).await;
    line.join(&pool, "2", standard()).await;
    // The slot is on its way to the first request, which never receives it.
    drop(place);
    gone.abort();
    settled().await;
    assert_eq!(line.keys(), "2");
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    let begun = Instant::now();
    assert_eq!(take(&pool, "1", standard()).await.err(), Some(LeaseRefusal::Busy));
    assert_eq!(begun.elapsed(), LONG);
    drop(place);
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_user_has_a_line_of_bounded_length_and_a_full_house_takes_from_the_longest() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    let mut lines: Vec<_> = (0..QUEUE_MAX)
        .map(|number| pool.request_slot(&RequesterId::from_name(&format!("{}", number / USER_QUEUE_MAX)), standard()))
        .collect();
    let refused = |asked: &SlotRequestOutcome| matches!(asked, SlotRequestOutcome::Answered(Err(LeaseRefusal::Busy)));
    assert!(!lines.iter().any(refused));
    assert!(refused(&pool.request_slot(&RequesterId::from_name("0"), standard())));
    let newcomer = pool.request_slot(&RequesterId::from_name("new"), standard());
    assert!(!refused(&newcomer));
    let evicted = lines.iter_mut().filter_map(|asked| match asked {
        SlotRequestOutcome::Waiting(_, answer) => answer.try_recv().ok(),
        SlotRequestOutcome::Answered(_) => None,
    });
    assert_eq!(evicted.filter_map(Result::err).collect::<Vec<_>>(), [LeaseRefusal::Busy]);
    assert_eq!(pool.lock().queue.len(), QUEUE_MAX);
    drop((newcomer, lines));
    drop(place);
    assert_eq!(pool.lock().members[0].taken_slots, 0);
}

#[tokio::test(start_paused = true)]
async fn those_without_hope_are_told_at_once() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1)]);
    let places = [take(&pool, "x", standard()).await.unwrap(), take(&pool, "x", standard()).await.unwrap()];
    let line = AnswerLog::default();
    line.join(&pool, "1", standard()).await;
    let wait = Some(Duration::from_secs(100));
    pool.apply_feedback(places[0].grant(), AccountFeedback::Exhausted { wait });
    settled().await;
    assert_eq!(line.got(), []);
    pool.apply_feedback(places[1].grant(), AccountFeedback::Exhausted { wait: Some(Duration::from_secs(50)) });
    settled().await;
    let least = Some(Duration::from_secs(50));
    assert_eq!(line.got(), [Err(LeaseRefusal::InCooldown { exhausted: true, wait: least })]);
    let tried = |name: &str| AccountRequirements { tried_accounts: vec![name.to_owned()], ..standard() };
    let name = places[1].account().name().to_owned();
    assert_eq!(take(&pool, "1", tried(&name)).await.err(), Some(LeaseRefusal::InCooldown { exhausted: true, wait }));
    let both = AccountRequirements { tried_accounts: vec!["a".to_owned(), "b".to_owned()], ..standard() };
    assert_eq!(take(&pool, "1", both).await.err(), Some(LeaseRefusal::NoneLeft));
    let other = AccountRequirements { group: "other".to_owned(), ..standard() };
    assert_eq!(take(&pool, "1", other).await.err(), Some(LeaseRefusal::NoneLeft));
    drop(places);
    tokio::time::advance(Duration::from_secs(50)).await;
    assert_eq!(take(&pool, "1", standard()).await.unwrap().account().name(), name);
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn only_limits_are_worth_waiting_for() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1), account("c", 1, 1)]);
    let mut lessons = [
        AccountFeedback::ModelUnavailable { status: 404 },
        AccountFeedback::Exhausted { wait: Some(Duration::from_secs(3600)) },
        AccountFeedback::Throttled { wait: Some(Duration::from_secs(10)) },
    ]
    .into_iter();
    let mut step = async || {
        let place = take(&pool, "x", standard()).await.unwrap();
        pool.apply_feedback(place.grant(), lessons.next().unwrap());
    };
    step().await;
    step().await;
    step().await;
    let wait = Some(Duration::from_secs(10));
    assert_eq!(take(&pool, "1", standard()).await.err(), Some(LeaseRefusal::InCooldown { exhausted: false, wait }));
}

#[tokio::test(start_paused = true)]
async fn an_account_that_may_not_is_no_reason_to_wait() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    pool.apply_feedback(place.grant(), AccountFeedback::ModelUnavailable { status: 402 });
    drop(place);
    assert_eq!(take(&pool, "1", standard()).await.err(), Some(LeaseRefusal::NoneLeft));
    let other = AccountRequirements { model: Some("other".into()), ..standard() };
    assert!(take(&pool, "1", other).await.is_ok(), "what it has not got is one model");
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_ends_wakes_those_who_wait_for_another() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1)]);
    let places = [take(&pool, "x", standard()).await.unwrap(), take(&pool, "x", standard()).await.unwrap()];
    pool.apply_feedback(places[0].grant(), AccountFeedback::Throttled { wait: Some(Duration::from_secs(5)) });
    let [resting, busy] = places;
    let name = resting.account().name().to_owned();
    drop(resting);
    let line = AnswerLog::default();
    line.join(&pool, "1", standard()).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    pool.serve_waiting();
    settled().await;
    assert_eq!(line.got(), [Ok(name)]);
    drop(busy);
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn after_the_stop_there_is_nothing_for_anybody() {
    let pool = pool(&[account("a", 1, 1)]);
    let place = take(&pool, "x", standard()).await.unwrap();
    let line = AnswerLog::default();
    line.join(&pool, "1", standard()).await;
    pool.stop();
    settled().await;
    assert_eq!(line.got(), [Err(LeaseRefusal::Stopping)]);
    drop(place);
    assert_eq!(take(&pool, "1", standard()).await.err(), Some(LeaseRefusal::Stopping));
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_failing_account_is_left_out_then_probed_by_one_call() {
    let pool = pool(&[account("a", 4, 1), account("b", 4, 1)]);
    let not = |name: &str| AccountRequirements { tried_accounts: vec![name.to_owned()], ..standard() };
    for _ in 0..3 {
        pool.apply_feedback(take(&pool, "x", not("b")).await.unwrap().grant(), AccountFeedback::Failed);
    }
    let mut places = Vec::new();
    for _ in 0..4 {
        places.push(take(&pool, "x", standard()).await.unwrap());
    }
    assert!(places.iter().all(|place| place.account().name() == "b"));
    // The account is used if no other is left.
    assert_eq!(take(&pool, "x", not("b")).await.unwrap().account().name(), "a");
    tokio::time::advance(Duration::from_secs(11)).await;
    let probe = take(&pool, "x", standard()).await.unwrap();
    assert_eq!(probe.account().name(), "a");
    let line = AnswerLog::default();
    line.join(&pool, "1", standard()).await;
    assert_eq!(line.got(), []);
    pool.apply_feedback(probe.grant(), AccountFeedback::Success);
    settled().await;
    assert_eq!(line.got(), [Ok("a".to_owned())]);
    drop((probe, places));
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_fails_alone_goes_on_serving() {
    let pool = pool(&[account("a", 1, 1)]);
    for _ in 0..10 {
        let place = take(&pool, "x", standard()).await.unwrap();
        pool.apply_feedback(place.grant(), AccountFeedback::Failed);
    }
    is_clean(&pool);
}

/// Pseudorandom numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        pseudo_random(self.0, 0) % end
    }
}

/// One request of many: it waits, works, and ends in one of the ways in which requests end.
async fn random_request(pool: Arc<AccountPool>, mut chance: Chance) {
    let wanted = AccountRequirements { is_large: chance.below(4) == 0, ..standard() };
    let key = RequesterId::from_name(&format!("{}", chance.below(5)));
    let patience = Duration::from_millis(chance.below(200));
    let Ok(place) = pool.acquire_slot(&key, wanted, Instant::now() + patience).await else { return };
    within_limits(&pool);
    tokio::time::sleep(Duration::from_millis(chance.below(20))).await;
    match chance.below(10) {
        0 => std::panic::resume_unwind(Box::new("a request breaks")),
        1 => pool.apply_feedback(place.grant(), AccountFeedback::Failed),
        2 => pool.apply_feedback(
            place.grant(),
            AccountFeedback::Throttled { wait: Some(Duration::from_millis(chance.below(30) + 1)) },
        ),
        _ => pool.apply_feedback(place.grant(), AccountFeedback::Success),
    }
    within_limits(&pool);
}

fn within_limits(pool: &AccountPool) {
    for member in &pool.lock().members {
        let places = member.account.slot_limits();
        assert!(
            member.taken_slots <= places.all && member.taken_large_slots <= places.large && member.taken_slots > 0
                || member.taken_slots == 0
        );
        assert!(member.taken_large_slots <= member.taken_slots);
    }
}

async fn storm(seed: u64, requests: u64) {
    let pool = pool(&[account("a", 3, 1), account("b", 2, 2), account("c", 1, 1)]);
    let mut chance = Chance(seed);
    let mut running = JoinSet::new();
    for number in 0..requests {
        let request = random_request(Arc::clone(&pool), Chance(pseudo_random(seed, number)));
        let handle = running.spawn_on(request, &tokio::runtime::Handle::current());
        if chance.below(3) == 0 {
            let after = Duration::from_millis(chance.below(100));
            running.spawn_on(
                async move {
                    tokio::time::sleep(after).await;
                    handle.abort();
                },
                &tokio::runtime::Handle::current(),
            );
        }
        if chance.below(5) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pool.serve_waiting();
        }
    }
    while let Some(ended) = running.join_next().await {
        // A failed assertion is distinguished from the simulated failures.
        if let Err(error) = ended
            && error.is_panic()
        {
            let payload = error.into_panic();
            assert!(
                payload.downcast_ref::<&str>().is_some_and(|text| *text == "a request breaks"),
                "a limit was broken"
            );
        }
    }
    is_clean(&pool);
}

#[tokio::test(start_paused = true)]
async fn no_place_is_lost_whatever_becomes_of_the_requests() {
    for seed in 0..20 {
        storm(seed, 400).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_place_is_lost_on_many_threads() {
    storm(99, 2000).await;
}

#[test]
fn a_panic_in_the_middle_leaves_the_pool_usable() {
    let pool = pool(&[account("a", 1, 1)]);
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _held = pool.lock();
        std::panic::resume_unwind(Box::new("while the lock is held"));
    }));
    assert!(broken.is_err());
    assert!(matches!(pool.request_slot(&RequesterId::from_name("x"), standard()), SlotRequestOutcome::Answered(Ok(_))));
    is_clean(&pool);
}
