mod crowd;

use std::num::NonZeroU32;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::gateway::accounts::account::UpstreamAccount;
use crate::gateway::config;

const WAIT_LIMIT: Duration = Duration::from_secs(30);

fn account(name: &str, all: u32, large: u32) -> config::AccountConfig {
    config::AccountConfig {
        name: name.to_owned(),
        upstream: config::UpstreamConfig::Simulator,
        tier: config::AccountTier::Paid,
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
        let mut state = pool.lock();
        for account in accounts {
            state.add_member(Arc::new(UpstreamAccount::new(account)), None);
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

async fn acquire(pool: &Arc<AccountPool>, key: &str, wanted: AccountRequirements) -> Result<AccountSlot, LeaseRefusal> {
    pool.acquire_slot(&RequesterId::from_name(key), wanted, Instant::now() + WAIT_LIMIT).await
}

/// Lets all tasks run until they wait.
async fn run_until_idle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// The name of the account that granted a slot, or the refusal.
type AnswerResult = Result<String, LeaseRefusal>;

/// The key and the result of each answered request, in the order of the answers.
#[derive(Clone, Default)]
struct AnswerLog(Arc<Mutex<Vec<(String, AnswerResult)>>>);

impl AnswerLog {
    /// Starts a request for a slot, which returns the slot as soon as it gets one, and runs all tasks until they wait.
    async fn enqueue(
        &self,
        pool: &Arc<AccountPool>,
        key: &str,
        wanted: AccountRequirements,
    ) -> tokio::task::JoinHandle<()> {
        let (pool, log, key) = (Arc::clone(pool), self.clone(), key.to_owned());
        let joined = tokio::runtime::Handle::current().spawn(async move {
            let slot = acquire(&pool, &key, wanted).await;
            let result = slot.as_ref().map(|slot| slot.account().name().to_owned()).map_err(|refusal| *refusal);
            log.0.lock().unwrap().push((key, result));
        });
        run_until_idle().await;
        joined
    }

    fn keys(&self) -> String {
        self.0.lock().unwrap().iter().map(|(key, _)| key.as_str()).collect()
    }

    fn results(&self) -> Vec<AnswerResult> {
        self.0.lock().unwrap().iter().map(|(_, result)| result.clone()).collect()
    }
}

#[track_caller]
fn assert_idle(pool: &AccountPool) {
    let state = pool.lock();
    assert_eq!(state.queue.len(), 0);
    for member in &state.members {
        assert_eq!(
            (member.taken_slots, member.taken_large_slots, member.is_probing),
            (0, 0, false),
            "{}",
            member.account.name()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_freed_slot_goes_to_the_first_waiting_request() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1)]);
    let (first, second) =
        (acquire(&pool, "x", standard()).await.unwrap(), acquire(&pool, "x", standard()).await.unwrap());
    let log = AnswerLog::default();
    log.enqueue(&pool, "1", standard()).await;
    log.enqueue(&pool, "2", standard()).await;
    let (a, b) = if first.account().name() == "a" { (first, second) } else { (second, first) };
    drop(b);
    run_until_idle().await;
    assert_eq!(log.results(), [Ok("b".to_owned()), Ok("b".to_owned())]);
    drop(a);
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn keys_get_slots_in_turn() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    let log = AnswerLog::default();
    for key in ["1", "1", "1", "1", "2", "2", "3"] {
        log.enqueue(&pool, key, standard()).await;
    }
    drop(slot);
    run_until_idle().await;
    assert_eq!(log.keys(), "1231211");
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_large_request_does_not_block_standard_requests() {
    let pool = pool(&[account("a", 3, 1)]);
    let first = acquire(&pool, "x", large()).await.unwrap();
    let log = AnswerLog::default();
    log.enqueue(&pool, "L", large()).await;
    log.enqueue(&pool, "s", standard()).await;
    assert_eq!(log.keys(), "s");
    let full = [acquire(&pool, "x", standard()).await.unwrap(), acquire(&pool, "x", standard()).await.unwrap()];
    log.enqueue(&pool, "s", standard()).await;
    assert_eq!(log.keys(), "s");
    drop(first);
    run_until_idle().await;
    assert_eq!(log.keys(), "sLs");
    drop(full);
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_the_queue() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    let log = AnswerLog::default();
    let cancelled = log.enqueue(&pool, "1", standard()).await;
    log.enqueue(&pool, "2", standard()).await;
    cancelled.abort();
    run_until_idle().await;
    drop(slot);
    run_until_idle().await;
    assert_eq!(log.keys(), "2");
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_slot_granted_to_a_cancelled_request_goes_to_the_next() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    let log = AnswerLog::default();
    let cancelled = log.enqueue(&pool, "1", standard()).await;
    log.enqueue(&pool, "2", standard()).await;
    // The slot is on its way to the first request, which never receives it.
    drop(slot);
    cancelled.abort();
    run_until_idle().await;
    assert_eq!(log.keys(), "2");
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_the_deadline() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    let started_at = Instant::now();
    assert_eq!(acquire(&pool, "1", standard()).await.err(), Some(LeaseRefusal::Busy));
    assert_eq!(started_at.elapsed(), WAIT_LIMIT);
    drop(slot);
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_evicts_a_request_of_the_user_with_the_most() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    let mut requests: Vec<_> = (0..QUEUE_MAX)
        .map(|number| pool.request_slot(&RequesterId::from_name(&format!("{}", number / USER_QUEUE_MAX)), standard()))
        .collect();
    let refused =
        |outcome: &SlotRequestOutcome| matches!(outcome, SlotRequestOutcome::Answered(Err(LeaseRefusal::Busy)));
    assert!(!requests.iter().any(refused));
    assert!(refused(&pool.request_slot(&RequesterId::from_name("0"), standard())));
    let newcomer = pool.request_slot(&RequesterId::from_name("new"), standard());
    assert!(!refused(&newcomer));
    let evicted = requests.iter_mut().filter_map(|outcome| match outcome {
        SlotRequestOutcome::Waiting(_, answer) => answer.try_recv().ok(),
        SlotRequestOutcome::Answered(_) => None,
    });
    assert_eq!(evicted.filter_map(Result::err).collect::<Vec<_>>(), [LeaseRefusal::Busy]);
    assert_eq!(pool.lock().queue.len(), QUEUE_MAX);
    drop((newcomer, requests));
    drop(slot);
    assert_eq!(pool.lock().members[0].taken_slots, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_that_no_account_can_serve_are_refused_at_once() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1)]);
    let slots = [acquire(&pool, "x", standard()).await.unwrap(), acquire(&pool, "x", standard()).await.unwrap()];
    let log = AnswerLog::default();
    log.enqueue(&pool, "1", standard()).await;
    let wait = Some(Duration::from_secs(100));
    pool.apply_feedback(slots[0].grant(), AccountFeedback::Exhausted { wait });
    run_until_idle().await;
    assert_eq!(log.results(), []);
    pool.apply_feedback(slots[1].grant(), AccountFeedback::Exhausted { wait: Some(Duration::from_secs(50)) });
    run_until_idle().await;
    let shortest_wait = Some(Duration::from_secs(50));
    assert_eq!(log.results(), [Err(LeaseRefusal::InCooldown { exhausted: true, wait: shortest_wait })]);
    let after_trying = |name: &str| AccountRequirements { tried_accounts: vec![name.to_owned()], ..standard() };
    let name = slots[1].account().name().to_owned();
    assert_eq!(
        acquire(&pool, "1", after_trying(&name)).await.err(),
        Some(LeaseRefusal::InCooldown { exhausted: true, wait })
    );
    let both = AccountRequirements { tried_accounts: vec!["a".to_owned(), "b".to_owned()], ..standard() };
    assert_eq!(acquire(&pool, "1", both).await.err(), Some(LeaseRefusal::NoneLeft));
    let other = AccountRequirements { group: "other".to_owned(), ..standard() };
    assert_eq!(acquire(&pool, "1", other).await.err(), Some(LeaseRefusal::NoneLeft));
    drop(slots);
    tokio::time::advance(Duration::from_secs(50)).await;
    assert_eq!(acquire(&pool, "1", standard()).await.unwrap().account().name(), name);
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_states_the_wait_of_the_shortest_limit() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1), account("c", 1, 1)]);
    let mut feedback = [
        AccountFeedback::ModelUnavailable { status: 404 },
        AccountFeedback::Exhausted { wait: Some(Duration::from_secs(3600)) },
        AccountFeedback::Throttled { wait: Some(Duration::from_secs(10)) },
    ]
    .into_iter();
    let mut step = async || {
        let slot = acquire(&pool, "x", standard()).await.unwrap();
        pool.apply_feedback(slot.grant(), feedback.next().unwrap());
    };
    step().await;
    step().await;
    step().await;
    let wait = Some(Duration::from_secs(10));
    assert_eq!(acquire(&pool, "1", standard()).await.err(), Some(LeaseRefusal::InCooldown { exhausted: false, wait }));
}

#[tokio::test(start_paused = true)]
async fn an_account_without_the_model_is_no_reason_to_wait() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    pool.apply_feedback(slot.grant(), AccountFeedback::ModelUnavailable { status: 402 });
    drop(slot);
    assert_eq!(acquire(&pool, "1", standard()).await.err(), Some(LeaseRefusal::NoneLeft));
    let other = AccountRequirements { model: Some("other".into()), ..standard() };
    assert!(acquire(&pool, "1", other).await.is_ok(), "the account only lacks one model");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_cooldown_serves_waiting_requests() {
    let pool = pool(&[account("a", 1, 1), account("b", 1, 1)]);
    let slots = [acquire(&pool, "x", standard()).await.unwrap(), acquire(&pool, "x", standard()).await.unwrap()];
    pool.apply_feedback(slots[0].grant(), AccountFeedback::Throttled { wait: Some(Duration::from_secs(5)) });
    let [throttled, busy] = slots;
    let name = throttled.account().name().to_owned();
    drop(throttled);
    let log = AnswerLog::default();
    log.enqueue(&pool, "1", standard()).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    pool.serve_waiting();
    run_until_idle().await;
    assert_eq!(log.results(), [Ok(name)]);
    drop(busy);
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_pool_grants_free_slots_and_lets_nobody_wait() {
    let pool = pool(&[account("a", 1, 1)]);
    let slot = acquire(&pool, "x", standard()).await.unwrap();
    let log = AnswerLog::default();
    log.enqueue(&pool, "1", standard()).await;
    pool.stop();
    run_until_idle().await;
    assert_eq!(log.results(), [Err(LeaseRefusal::Stopping)]);
    assert_eq!(acquire(&pool, "1", standard()).await.err(), Some(LeaseRefusal::Stopping));
    drop(slot);
    drop(acquire(&pool, "1", standard()).await.unwrap());
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn an_ejected_account_is_left_out_then_tested_with_one_call() {
    let pool = pool(&[account("a", 4, 1), account("b", 4, 1)]);
    let without = |name: &str| AccountRequirements { tried_accounts: vec![name.to_owned()], ..standard() };
    for _ in 0..3 {
        pool.apply_feedback(acquire(&pool, "x", without("b")).await.unwrap().grant(), AccountFeedback::Failed);
    }
    let mut slots = Vec::new();
    for _ in 0..4 {
        slots.push(acquire(&pool, "x", standard()).await.unwrap());
    }
    assert!(slots.iter().all(|slot| slot.account().name() == "b"));
    // The ejected account is used if no other is left.
    assert_eq!(acquire(&pool, "x", without("b")).await.unwrap().account().name(), "a");
    tokio::time::advance(Duration::from_secs(11)).await;
    let probe = acquire(&pool, "x", standard()).await.unwrap();
    assert_eq!(probe.account().name(), "a");
    let log = AnswerLog::default();
    log.enqueue(&pool, "1", standard()).await;
    assert_eq!(log.results(), []);
    pool.apply_feedback(probe.grant(), AccountFeedback::Success);
    run_until_idle().await;
    assert_eq!(log.results(), [Ok("a".to_owned())]);
    drop((probe, slots));
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn a_single_failing_account_stays_in_use() {
    let pool = pool(&[account("a", 1, 1)]);
    for _ in 0..10 {
        let slot = acquire(&pool, "x", standard()).await.unwrap();
        pool.apply_feedback(slot.grant(), AccountFeedback::Failed);
    }
    assert_idle(&pool);
}

/// Pseudorandom numbers, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        pseudo_random(self.0, 0) % end
    }
}

/// Runs one request. If it gets a slot, it ends at random with a panic, a failure, a throttling or a success.
async fn random_request(pool: Arc<AccountPool>, mut random: SeededRandom) {
    let wanted = AccountRequirements { is_large: random.below(4) == 0, ..standard() };
    let key = RequesterId::from_name(&format!("{}", random.below(5)));
    let wait_max = Duration::from_millis(random.below(200));
    let Ok(slot) = pool.acquire_slot(&key, wanted, Instant::now() + wait_max).await else { return };
    within_limits(&pool);
    tokio::time::sleep(Duration::from_millis(random.below(20))).await;
    match random.below(10) {
        0 => std::panic::resume_unwind(Box::new("a request breaks")),
        1 => pool.apply_feedback(slot.grant(), AccountFeedback::Failed),
        2 => pool.apply_feedback(
            slot.grant(),
            AccountFeedback::Throttled { wait: Some(Duration::from_millis(random.below(30) + 1)) },
        ),
        _ => pool.apply_feedback(slot.grant(), AccountFeedback::Success),
    }
    within_limits(&pool);
}

fn within_limits(pool: &AccountPool) {
    for member in &pool.lock().members {
        let limits = member.account.slot_limits();
        assert!(
            member.taken_slots <= limits.all && member.taken_large_slots <= limits.large && member.taken_slots > 0
                || member.taken_slots == 0
        );
        assert!(member.taken_large_slots <= member.taken_slots);
    }
}

async fn run_random_requests(seed: u64, requests: u64) {
    let pool = pool(&[account("a", 3, 1), account("b", 2, 2), account("c", 1, 1)]);
    let mut random = SeededRandom(seed);
    let mut running = JoinSet::new();
    for number in 0..requests {
        let request = random_request(Arc::clone(&pool), SeededRandom(pseudo_random(seed, number)));
        let handle = running.spawn_on(request, &tokio::runtime::Handle::current());
        if random.below(3) == 0 {
            let after = Duration::from_millis(random.below(100));
            running.spawn_on(
                async move {
                    tokio::time::sleep(after).await;
                    handle.abort();
                },
                &tokio::runtime::Handle::current(),
            );
        }
        if random.below(5) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            pool.serve_waiting();
        }
    }
    while let Some(ended) = running.join_next().await {
        // A simulated panic is expected; any other panic is a failed assertion.
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
    assert_idle(&pool);
}

#[tokio::test(start_paused = true)]
async fn no_slot_is_lost_however_requests_end() {
    for seed in 0..20 {
        run_random_requests(seed, 400).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_slot_is_lost_on_many_threads() {
    run_random_requests(99, 2000).await;
}

#[test]
fn a_panic_under_the_lock_leaves_the_pool_usable() {
    let pool = pool(&[account("a", 1, 1)]);
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let _held = pool.lock();
        std::panic::resume_unwind(Box::new("while the lock is held"));
    }));
    assert!(broken.is_err());
    assert!(matches!(pool.request_slot(&RequesterId::from_name("x"), standard()), SlotRequestOutcome::Answered(Ok(_))));
    assert_idle(&pool);
}
