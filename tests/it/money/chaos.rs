//! Random faults over five accounts: what is paid, what is recorded, which accounts are asked, and whether all slots
//! are free at the end.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{
    Account, Attempt, Call, FakeUpstream, Form, Gateway, Random, alpha_png, env_setting, eventually, heavy_test_lock,
    pause, request,
};

const ACCOUNTS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Slots of each account.
const SLOTS: usize = 4;
/// Callers at once: more than there are slots.
const CALLERS: usize = 24;
const SEED: u64 = 4;
/// The highest mean of attempts for each request that is allowed while at most a tenth of the attempts fails.
const MEAN_MOST: f64 = 1.10;
/// A healthy pool needs a small part of this; one that loses slots would need hours.
const LONGEST: Duration = Duration::from_secs(180);
/// How long an account that answers `retry-after=1` is not asked.
const COOLDOWN: Duration = Duration::from_secs(1);
/// An attempt that arrives this soon after such an answer was sent before the gateway had read it.
const ON_THE_WAY: Duration = Duration::from_millis(250);

/// The faults, with their shares in thousandths of all attempts; all other answers are good.
const FAULTS: [(&str, u64); 14] = [
    ("status=500", 20),
    ("status=503", 10),
    ("status=400", 5),
    ("status=429 retry-after=1", 2),
    ("status=400 body=policy", 10),
    ("status=400 body=parameter", 3),
    ("status=524 body=html", 8),
    ("status=502 body=text", 4),
    ("hang-up how=reset", 8),
    ("hang-up", 4),
    ("cut=30", 8),
    ("cut=70%", 6),
    ("lack=40%", 4),
    ("data=empty tokens=1700", 4),
];

/// How many requests; another number with `IMAGATE_TEST_CHAOS`.
fn requests() -> usize {
    env_setting("IMAGATE_TEST_CHAOS")
        .map_or(5_000, |text| text.to_str().and_then(|text| text.parse().ok()).expect("a number of requests"))
}

/// The result of one request.
struct RequestResult {
    user: String,
    /// True if the caller left soon; then the gateway may never have seen the request.
    left: bool,
    /// 0 where there was no answer, or it broke off.
    status: u16,
}

/// The script of the next attempt.
fn script(random: &mut Random) -> &'static str {
    let mut draw = random.between(0, 1000);
    for (script, share) in FAULTS {
        if draw < share {
            return script;
        }
        draw -= share;
    }
    if draw.is_multiple_of(10) { "delay=20" } else { "" }
}

/// Sends one request. One in ten is an edit; one caller in fifty leaves early, in most cases before the answer.
fn send_one(gateway: &Gateway, number: usize) -> RequestResult {
    let user = format!("u-{number}");
    let call = if number.is_multiple_of(10) {
        Form::with_required_fields().text("user", &user).file("image", &alpha_png(96, 64)).call().key(gateway.secret())
    } else {
        Call::generation().key(gateway.secret()).json(&request(json!({"user": user})))
    };
    if number % 50 == 7 {
        let stream = call.dispatch(gateway.address()).expect("a connection");
        pause(Duration::from_millis(number as u64 % 30));
        drop(stream);
        return RequestResult { user, left: true, status: 0 };
    }
    let answer = call.send(gateway.address());
    let whole = answer.complete && (answer.status != 200 || serde_json::from_slice::<Value>(&answer.body).is_ok());
    RequestResult { user, left: false, status: if whole { answer.status } else { 0 } }
}

fn gateway(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &ACCOUNTS.map(|name| Account::for_upstream(name, upstream).with_slots(SLOTS)))
}

/// Checks that no account was asked between its answer 429 and the end of the cooldown. A call that was already on its
/// way when the answer came does not count. Returns how many cooldowns there were.
#[track_caller]
fn check_cooldowns(attempts: &[Attempt]) -> usize {
    let mut cooldowns = 0;
    for token in ACCOUNTS.map(|name| format!("sk-upstream-{name}")) {
        let mine: Vec<_> = attempts.iter().filter(|attempt| attempt.token == token).collect();
        for refused in mine.iter().filter(|attempt| attempt.script.contains("status=429")) {
            cooldowns += 1;
            let since = |other: &Attempt| other.came.saturating_duration_since(refused.came);
            let early: Vec<_> =
                mine.iter().map(|other| since(other)).filter(|since| (ON_THE_WAY..COOLDOWN).contains(since)).collect();
            assert!(early.is_empty(), "{token} was asked {early:?} after a 429 with a cooldown of {COOLDOWN:?}");
        }
    }
    cooldowns
}

/// Checks that every slot of every account is free: as many calls wait at the gate of the upstream at once.
#[track_caller]
fn check_all_slots_free(gateway: &Gateway, upstream: &FakeUpstream) {
    let at_once = |prompt: &str| {
        let with = json!({"prompt": prompt});
        std::thread::scope(|scope| {
            (0..CALLERS).for_each(|_| drop(scope.spawn(|| gateway.generate(with.clone()))));
        });
    };
    // Cooldowns and ejections end by themselves.
    eventually("every account serves again", || {
        let before = upstream.attempt_count();
        at_once("a cube [[delay=50]]");
        (by_account(&upstream.received_attempts()[before..]).len() == ACCOUNTS.len()).then_some(())
    });
    let before = upstream.attempt_count();
    let all = ACCOUNTS.len() * SLOTS;
    std::thread::scope(|scope| {
        for _ in 0..all {
            scope.spawn(|| gateway.scripted("gate=slots").ok_json());
        }
        upstream.wait_until("every slot is taken at once", |attempts| attempts.len() == before + all);
        upstream.open_gate("slots");
    });
    let taken = by_account(&upstream.received_attempts()[before..]);
    assert!(taken.len() == ACCOUNTS.len() && taken.values().all(|count| *count == SLOTS), "{taken:?}");
}

/// How many of these attempts each account made.
fn by_account(attempts: &[Attempt]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    attempts.iter().for_each(|attempt| *counts.entry(attempt.token.clone()).or_default() += 1);
    counts
}

#[test]
fn under_random_faults_nothing_is_paid_twice_and_nothing_leaks() {
    let _turn = heavy_test_lock();
    let count = requests();
    let upstream = FakeUpstream::start();
    let mut random = Random::seeded(SEED);
    // Attempts take their faults in this order.
    let scripts: Vec<_> = (0..count + count / 20).map(|_| script(&mut random)).collect();
    scripts.iter().for_each(|script| upstream.script_next(script));
    let gateway = gateway(&upstream);
    let begun = Instant::now();
    let next = AtomicUsize::new(0);
    let results: Vec<RequestResult> = std::thread::scope(|scope| {
        let caller = || {
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            let goes_on = |number: &usize| *number < count && begun.elapsed() < LONGEST;
            numbers.take_while(goes_on).map(|number| send_one(&gateway, number)).collect::<Vec<_>>()
        };
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().flat_map(|caller| caller.join().expect("its results")).collect()
    });
    let took = begun.elapsed();
    assert_eq!(results.len(), count, "requests done in {took:?}: slots were lost, or all accounts are cooling down");
    upstream.clear_queue();
    let records = gateway.final_records(results.iter().filter(|result| !result.left).count());
    let attempts = upstream.received_attempts();
    judge(&results, &records, &attempts, took);
    println!("{} cooldowns, and no account was asked within one", check_cooldowns(&attempts));
    check_all_slots_free(&gateway, &upstream);
}

#[track_caller]
fn judge(results: &[RequestResult], records: &[Value], attempts: &[Attempt], took: Duration) {
    let count = results.len();
    let mut attempts_by_user = HashMap::<String, Vec<&Attempt>>::new();
    attempts.iter().for_each(|attempt| attempts_by_user.entry(attempt.user()).or_default().push(attempt));
    let mut by_user = HashMap::<&str, &Value>::new();
    for record in records {
        let user = record["end_user"].as_str().expect("a user");
        assert!(by_user.insert(user, record).is_none(), "two records of {user}");
    }
    let none = Vec::new();
    let mut twice = 0;
    let mut statuses = BTreeMap::<u16, usize>::new();
    for RequestResult { user, left, status } in results {
        *statuses.entry(*status).or_default() += 1;
        let mine = attempts_by_user.get(user).unwrap_or(&none);
        let made = mine.iter().filter(|attempt| attempt.completed && !attempt.images.is_empty()).count();
        twice += usize::from(made > 1);
        let Some(record) = by_user.remove(user.as_str()) else {
            assert!(*left && mine.is_empty(), "no record of {user}");
            continue;
        };
        assert_eq!(record["attempts"].as_array().map(Vec::len), Some(mine.len()), "{record}");
        if *status == 200 {
            assert!(made == 1 && record["state"] == "succeeded", "{user}: {made} made, {record}");
        }
    }
    assert!(by_user.is_empty(), "records without a request: {by_user:?}");
    let mean = attempts.len() as f64 / count as f64;
    let faults =
        attempts.iter().filter(|attempt| !attempt.script.is_empty() && !attempt.script.starts_with("delay")).count();
    let share = faults as f64 / attempts.len() as f64;
    println!(
        "{count} requests in {took:?}, {} attempts ({mean:.4} each), {:.2} % of them faulty, \
         answers by status {statuses:?}, {twice} paid twice",
        attempts.len(),
        share * 100.0,
    );
    assert_eq!(twice, 0);
    assert!(share <= 0.10, "more than a tenth of the attempts had a fault");
    assert!(mean <= MEAN_MOST, "{mean} attempts for each request");
    let good = statuses.get(&200).copied().unwrap_or(0);
    assert!(
        good * 100 >= count * 85,
        "only {good} of {count} got an image: too few failures were retried at other accounts"
    );
}
