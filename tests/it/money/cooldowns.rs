//! Cooldowns of accounts: they last as long as the upstream says, under load and across kills, unless an operator ends
//! them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Account, FakeUpstream, Gateway, eventually, pause};

const FIRST: &str = "sk-upstream-first";
const SECOND: &str = "sk-upstream-second";

/// A gateway with two accounts, of which `first` is chosen first.
fn two(upstream: &FakeUpstream) -> Gateway {
    Gateway::with(
        "",
        &[Account::for_upstream("first", upstream), Account::for_upstream("second", upstream).with_free_tier()],
    )
}

/// When attempts with this token arrived.
fn arrivals(upstream: &FakeUpstream, token: &str) -> Vec<Instant> {
    upstream.received_attempts().iter().filter(|attempt| attempt.token == token).map(|attempt| attempt.came).collect()
}

fn count(upstream: &FakeUpstream, token: &str) -> usize {
    arrivals(upstream, token).len()
}

/// Sends requests until the account with this token is called, and returns that moment. Every answer must be good,
/// because another account can serve.
#[track_caller]
fn ask_until_called(gateway: &Gateway, upstream: &FakeUpstream, token: &str) -> Instant {
    let before = count(upstream, token);
    eventually("the account is called again", || {
        gateway.generate(json!({})).ok_json();
        let arrivals = arrivals(upstream, token);
        if arrivals.len() == before {
            pause(Duration::from_millis(40));
        }
        arrivals.get(before).copied()
    })
}

/// Starts a gateway with two accounts that both say that their usage window is used up, for `first` and for `second`
/// seconds.
fn exhausted(first: u64, second: u64) -> (FakeUpstream, Gateway) {
    let upstream = FakeUpstream::start();
    for (token, seconds) in [(FIRST, first), (SECOND, second)] {
        upstream.always_for_token(token, &format!("status=429 body=usage-limit resets-in={seconds}"));
    }
    let gateway = two(&upstream);
    (upstream, gateway)
}

/// Checks the answer of a pool whose usage windows are all used up; returns the seconds until the first one opens,
/// which must be `at_most` or fewer.
#[track_caller]
fn is_usage_limit(gateway: &Gateway, at_most: u64) -> u64 {
    let answer = gateway.generate(json!({}));
    let error = answer.error_object(429);
    let word = json!("usage_limit_reached");
    assert_eq!((&error["type"], &error["code"]), (&word, &word), "{error}");
    assert_eq!(answer.should_retry(), Some("false"));
    let seconds = error["resets_in_seconds"].as_u64().expect("seconds");
    let at = error["resets_at"].as_i64().expect("a moment");
    assert!(seconds <= at_most, "{error}");
    let left = at - chrono::Utc::now().timestamp();
    assert!(left.abs_diff(i64::try_from(seconds).expect("seconds")) <= 2, "{error}: {left} seconds left");
    let advice = answer.header("retry-after").map(|value| value.parse::<u64>().expect("seconds"));
    assert!(advice.is_none_or(|advice| advice <= 60 && seconds <= 60), "retry-after {advice:?} for {seconds}");
    seconds
}

#[test]
fn a_cooldown_lasts_as_long_as_the_upstream_says_in_every_form() {
    let now = || u64::try_from(chrono::Utc::now().timestamp()).expect("after 1970");
    let ways: [(&str, &(dyn Fn() -> String + Sync), u64); 5] = [
        ("seconds", &|| "status=429 retry-after=2".to_owned(), 2000),
        ("milliseconds", &|| "status=429 retry-ms=2300".to_owned(), 2300),
        // A date has whole seconds: three from now are more than two.
        ("a date", &|| "status=429 retry-date=3".to_owned(), 2000),
        ("a window", &|| "status=429 body=usage-limit resets-in=2".to_owned(), 2000),
        ("the end of a window", &|| format!("status=429 body=usage-limit resets-at={}", now() + 3), 2000),
    ];
    std::thread::scope(|scope| {
        for (what, script, least) in ways {
            scope.spawn(move || {
                let upstream = FakeUpstream::start();
                let gateway = two(&upstream);
                upstream.script_next(&script());
                let begun = Instant::now();
                gateway.generate(json!({})).ok_json();
                assert_eq!(count(&upstream, FIRST), 1, "{what}");
                let refused = arrivals(&upstream, FIRST)[0];
                let again = ask_until_called(&gateway, &upstream, FIRST);
                let cooldown = again.duration_since(refused);
                println!("{what}: cooldown of {cooldown:?}, at least {least} ms were asked for");
                assert!(cooldown >= Duration::from_millis(least), "{what}: called again after {cooldown:?}");
                // Within two seconds after that time; a date or a moment may be up to one second later still.
                let most = Duration::from_millis(least + 1000 + 2000) + begun.elapsed().saturating_sub(cooldown);
                assert!(cooldown <= most, "{what}: only called again after {cooldown:?}");
            });
        }
    });
}

#[test]
fn twenty_parallel_requests_do_not_touch_an_account_in_its_cooldown() {
    let upstream = FakeUpstream::start();
    let gateway = two(&upstream);
    upstream.script_next("status=429 retry-after=3");
    gateway.generate(json!({})).ok_json();
    let refused = arrivals(&upstream, FIRST)[0];
    let caller = || {
        while refused.elapsed() < Duration::from_secs(4) {
            gateway.generate(json!({})).ok_json();
        }
    };
    std::thread::scope(|scope| (0..20).for_each(|_| drop(scope.spawn(caller))));
    let early =
        arrivals(&upstream, FIRST).iter().filter(|at| at.duration_since(refused) < Duration::from_secs(3)).count();
    assert_eq!(early, 1, "only the call that was answered with 429");
    ask_until_called(&gateway, &upstream, FIRST);
}

#[test]
fn a_pool_that_is_used_up_says_when_the_first_window_opens_and_asks_nobody() {
    let (upstream, gateway) = exhausted(3600, 1800);
    assert!(is_usage_limit(&gateway, 1800) > 1700);
    assert_eq!(upstream.attempt_count(), 2);
    for _ in 0..10 {
        is_usage_limit(&gateway, 1800);
    }
    assert_eq!(upstream.attempt_count(), 2, "an account was asked in its cooldown");
    let records = gateway.final_records(11);
    assert_eq!((records.len(), super::recorded_attempts(&records)), (11, 2));
    assert!(records.iter().all(|record| record["error_code"] == "usage_limit_reached"), "{:#?}", records.last());
}

#[test]
fn cooldowns_survive_kills() {
    let (upstream, mut gateway) = exhausted(3600, 1800);
    is_usage_limit(&gateway, 1800);
    for _ in 0..3 {
        gateway.kill();
        gateway.start();
        assert!(is_usage_limit(&gateway, 1800) > 1700);
    }
    assert_eq!(upstream.attempt_count(), 2);
    for (name, seconds) in [("first", 3600), ("second", 1800)] {
        let account = gateway.account(name);
        let until = account["cooling_until"].as_str().unwrap_or_else(|| panic!("no end of the cooldown: {account}"));
        let until = chrono::DateTime::parse_from_rfc3339(until).expect("a moment");
        let left = until.signed_duration_since(chrono::Utc::now()).num_seconds();
        assert!((seconds - 100..=seconds).contains(&left), "{account}: {left} seconds left");
    }
}

#[test]
fn an_operator_ends_a_cooldown_at_once() {
    let (upstream, gateway) = exhausted(3600, 3600);
    is_usage_limit(&gateway, 3600);
    upstream.always_for_token(FIRST, "");
    is_usage_limit(&gateway, 3600);
    gateway.run_command(&["account", "enable", "first"]).ok_stdout();
    let enabled = Instant::now();
    eventually("the account serves again", || (gateway.generate(json!({})).status == 200).then_some(()));
    println!("an account serves {:?} after `account enable`", enabled.elapsed());
    assert!(enabled.elapsed() < Duration::from_secs(5), "{:?}", enabled.elapsed());
    assert_eq!(count(&upstream, SECOND), 1, "the other one is still in its cooldown");
    assert!(gateway.account("first")["cooling_until"].is_null(), "{}", gateway.account("first"));
}

#[test]
fn an_operator_disables_and_enables_an_account_of_a_running_gateway() {
    let upstream = FakeUpstream::start();
    let gateway = two(&upstream);
    gateway.run_command(&["account", "disable", "first"]).ok_stdout();
    let call_and_count = |token| {
        let before = count(&upstream, token);
        gateway.generate(json!({})).ok_json();
        count(&upstream, token) - before
    };
    eventually("the account is left alone", || (call_and_count(SECOND) == 1).then_some(()));
    assert_eq!(call_and_count(FIRST), 0);
    gateway.run_command(&["account", "enable", "first"]).ok_stdout();
    eventually("the account is called again", || (call_and_count(FIRST) == 1).then_some(()));
}

#[test]
fn an_account_that_is_answered_with_401_repeatedly_is_disabled_with_a_reason() {
    // A 403 has cooldowns of minutes in between: that it ends the same way is for the unit tests of the accounts.
    let status = 401;
    let upstream = FakeUpstream::start();
    upstream.always_for_token(FIRST, &format!("status={status}"));
    let mut gateway = two(&upstream);
    // No caller notices: the other account serves.
    let account = eventually("the account is disabled", || {
        gateway.generate(json!({})).ok_json();
        let account = gateway.account("first");
        (account["state"] == "disabled").then_some(account)
    });
    let reason = account["disabled_reason"].as_str().unwrap_or_default();
    assert!(reason.contains(&status.to_string()), "{account}");
    assert!(!account.to_string().contains("canary") && !account.to_string().contains(FIRST), "{account}");
    let asked = count(&upstream, FIRST);
    println!("{status}: disabled after {asked} attempts");
    gateway.generate(json!({})).ok_json();
    gateway.kill();
    gateway.start();
    gateway.generate(json!({})).ok_json();
    assert_eq!(count(&upstream, FIRST), asked, "a disabled account was asked");
    upstream.always_for_token(FIRST, "");
    gateway.run_command(&["account", "enable", "first"]).ok_stdout();
    ask_until_called(&gateway, &upstream, FIRST);
    let account = gateway.account("first");
    assert_eq!((&account["state"], &account["disabled_reason"]), (&json!("enabled"), &Value::Null), "{account}");
}

#[test]
fn a_429_without_any_time_brings_a_short_cooldown_that_grows() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token(FIRST, "status=429");
    let gateway = two(&upstream);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        gateway.generate(json!({})).ok_json();
        pause(Duration::from_millis(20));
    }
    let asked = arrivals(&upstream, FIRST);
    println!("bare 429: {} attempts in 8 seconds", asked.len());
    assert!((2..=6).contains(&asked.len()), "{} attempts in 8 seconds", asked.len());
    upstream.always_for_token(FIRST, "");
    ask_until_called(&gateway, &upstream, FIRST);
    // After one success the account serves every request again.
    let before = count(&upstream, FIRST);
    for _ in 0..10 {
        gateway.generate(json!({})).ok_json();
    }
    assert_eq!(count(&upstream, FIRST), before + 10);
}

#[test]
fn an_account_that_answers_402_or_404_is_not_asked_again_soon() {
    for status in [402, 404] {
        let upstream = FakeUpstream::start();
        upstream.always_for_token(FIRST, &format!("status={status}"));
        let gateway = two(&upstream);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            gateway.generate(json!({})).ok_json();
        }
        assert_eq!(count(&upstream, FIRST), 1, "{status}");
    }
}

#[test]
fn absurd_times_are_not_believed() {
    std::thread::scope(|scope| {
        for script in [
            "status=429 retry-after=-1",
            "status=429 retry-after=0",
            "status=429 retry-after=soon",
            "status=429 body=usage-limit",
            "status=429 body=usage-limit resets-in=0",
            "status=429 body=usage-limit resets-at=1",
            "status=429 retry-after=NaN",
            "status=429 retry-after=inf",
        ] {
            scope.spawn(move || {
                let upstream = FakeUpstream::start();
                let gateway = two(&upstream);
                upstream.script_next(script);
                gateway.generate(json!({})).ok_json();
                // The cooldown neither lasts for ever nor is it so short that the account is asked in a busy loop.
                let again = ask_until_called(&gateway, &upstream, FIRST);
                let cooldown = again.duration_since(arrivals(&upstream, FIRST)[0]);
                println!("{script}: cooldown of {cooldown:?}");
                assert!(cooldown >= Duration::from_millis(300), "{script}: {cooldown:?}");
            });
        }
    });
}
