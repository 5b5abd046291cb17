//! The checks of cases that need more than one stimulus.

use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::json;

use super::first_endpoint::EndpointKind;
use super::operation::CallerResult;
use super::row::AccountsAfter;
use super::scene::CaseRun;
use crate::kit::{eventually, pause};

/// U01 to U03: the first account cannot be reached, and nothing was sent to it.
pub(super) fn unreachable(scene: &mut CaseRun<'_>) {
    let start = Instant::now();
    scene.check_stimulus("");
    assert!(start.elapsed() < Duration::from_secs(20), "the limits are 1 s to connect and 5 s for TLS");
    for secret in ["c4n4ry", "Bearer", "authorization"] {
        assert!(!scene.fixture.first_endpoint.received_text(secret), "{secret} was sent unencrypted");
    }
    let never_recovers = [EndpointKind::PlainHttp, EndpointKind::SilentTls].contains(&scene.row().endpoint);
    if !(never_recovers && scene.row().accounts == 1) {
        scene.check_recovery();
    }
}

/// U07: no later answer contains the surplus bytes of an earlier one.
pub(super) fn surplus_bytes(scene: &mut CaseRun<'_>) {
    for script in scene.scripts() {
        scene.check_stimulus(script);
        scene.fixture.script("", "");
        for _ in 0..12 {
            let asked = scene.send_request(json!({}));
            assert!(matches!(asked.verdict, CallerResult::Complete { .. }), "LIVE: {}", asked.answer.status);
        }
    }
}

/// U13: the minimum rate ends the answer within about a minute, long before the deadline of the request.
pub(super) fn slow_body(scene: &mut CaseRun<'_>) {
    scene.fixture.script(scene.scripts()[0], "");
    let (user, call) = scene.prepare();
    let start = Instant::now();
    let mut reply = call.open(scene.fixture.address).expect("an answer");
    let mut buffer = [0; 1 << 14];
    let ended = loop {
        match reply.read(&mut buffer) {
            Ok(0) => break "an end",
            Err(_) => break "a break",
            Ok(_) if start.elapsed() > Duration::from_secs(65) => break "",
            Ok(_) => {}
        }
    };
    drop(reply);
    assert!(!ended.is_empty(), "the answer still goes on after 65 s: there is no minimum rate");
    let record = scene.record(&user);
    assert_eq!(record["state"], "interrupted", "{ended}: {record}");
    scene.check_recovery();
}

/// U14: the account is asked again soon after its retry time, and not before.
pub(super) fn throttled_with_retry_time(scene: &mut CaseRun<'_>) {
    let start = Instant::now();
    scene.check_stimulus(scene.scripts()[0]);
    scene.fixture.script("", "");
    let before = scene.first_account_attempts();
    let asked_again_after = loop {
        let asked = scene.send_request(json!({}));
        assert!(
            matches!(asked.verdict, CallerResult::Complete { .. }),
            "another account is free: {}",
            asked.answer.status
        );
        if scene.first_account_attempts() > before {
            break start.elapsed();
        }
        assert!(start.elapsed() < Duration::from_secs(15), "the first account is never asked again");
        pause(Duration::from_millis(50));
    };
    // The gateway measures from a later moment than this test, and a date has whole seconds.
    assert!(asked_again_after > Duration::from_millis(2900), "asked again after {asked_again_after:?}, not 3 s");
    assert!(asked_again_after < Duration::from_secs(8), "asked again only after {asked_again_after:?}");
    scene.check_recovery();
}

/// U15: without a retry time, the account is in cooldown for short, growing times, and recovers by itself.
pub(super) fn throttled_without_retry_time(scene: &mut CaseRun<'_>) {
    let start = Instant::now();
    scene.check_stimulus("status=429");
    scene.fixture.upstream.script_sequence(&scene.fixture.tokens[0], &["status=429", "status=429", ""]);
    scene.time_until_served(Duration::from_secs(60));
    let attempts = scene.fixture.upstream.received_attempts();
    let gaps: Vec<Duration> = attempts.windows(2).map(|pair| pair[1].came - pair[0].came).collect();
    assert!(attempts.len() >= 4, "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(450)), "a hot loop: {gaps:?} in {:?}", start.elapsed());
    scene.check_recovery();
}

/// U16: the caller gets the reset time, and the account is not asked before it.
pub(super) fn exhausted(scene: &mut CaseRun<'_>) {
    scene.check_stimulus(scene.scripts()[0]);
    scene.fixture.script("", "");
    let before = scene.first_account_attempts();
    for _ in 0..3 {
        let asked = scene.send_request(json!({}));
        let error = asked.answer.error_object(429);
        assert_eq!((&error["type"], &error["code"]), (&json!("usage_limit_reached"), &json!("usage_limit_reached")));
        let left = error["resets_in_seconds"].as_u64().expect("seconds");
        assert!((354_089 - 60..=354_091).contains(&left), "resets in {left}");
        let at = i64::try_from(error["resets_at"].as_u64().expect("a time")).expect("a time");
        assert!((at - chrono::Utc::now().timestamp() - 354_089).abs() <= 60, "resets at {at}");
        assert_eq!((asked.answer.header("retry-after"), asked.answer.should_retry()), (None, Some("false")));
    }
    assert_eq!(scene.first_account_attempts(), before, "an exhausted account was asked");
}

/// U16: a usage window that resets after a short time.
pub(super) fn short_window(scene: &mut CaseRun<'_>) {
    let start = Instant::now();
    scene.check_stimulus(scene.scripts()[0]);
    scene.fixture.script("", "");
    let before = scene.first_account_attempts();
    let asked = scene.send_request(json!({}));
    if start.elapsed() < Duration::from_millis(2500) {
        asked.answer.error_object(429);
        assert_eq!(scene.first_account_attempts(), before, "an exhausted account was asked");
    }
    scene.check_recovery();
    assert!(start.elapsed() > Duration::from_millis(2900), "back after {:?}", start.elapsed());
}

/// U16: an invalid reset time causes a short cooldown and no hot loop.
pub(super) fn odd_window(scene: &mut CaseRun<'_>) {
    scene.check_stimulus(scene.scripts()[0]);
    let before = scene.first_account_attempts();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        scene.send_request(json!({})).answer.error_object(429);
        pause(Duration::from_millis(100));
    }
    let asked = scene.first_account_attempts() - before;
    assert!(asked <= 6, "a hot loop: {asked} attempts in 3 s");
    scene.check_recovery();
}

/// U17: a dead account does not cost each request an attempt.
pub(super) fn rejected_credentials(scene: &mut CaseRun<'_>) {
    let before = scene.first_account_attempts();
    for script in scene.scripts() {
        scene.fixture.script(script, "");
        for _ in 0..6 {
            let asked = scene.send_request(json!({}));
            assert!(matches!(asked.verdict, CallerResult::Complete { .. }), "{}", asked.answer.status);
        }
    }
    let called = scene.first_account_attempts() - before;
    assert!((1..=3).contains(&called), "a dead account was asked {called} times in 12 requests");
    // A cooldown may end at any moment, so the check follows the beginning of the next one, which takes four seconds. A
    // third failure disables the account.
    if called < 3 {
        eventually("the account is asked again", || {
            let asked = scene.send_request(json!({}));
            assert!(matches!(asked.verdict, CallerResult::Complete { .. }), "{}", asked.answer.status);
            (scene.first_account_attempts() - before > called).then_some(())
        });
    }
    scene.check_recovery();
}

/// U19: traffic moves to the account that works.
pub(super) fn moves_away(scene: &mut CaseRun<'_>) {
    scene.fixture.script(scene.scripts()[0], "");
    for _ in 0..40 {
        let asked = scene.send_request(json!({}));
        assert!(matches!(asked.verdict, CallerResult::Complete { .. }), "{}", asked.answer.status);
        assert!(scene.attempts(&asked.user).len() <= 2);
    }
    let called = scene.first_account_attempts();
    assert!(called <= 20, "a failing account was asked first by {called} of 40 requests");
    scene.check_recovery();
}

/// U25: the gateway aborts an endless answer near the size limit, which allows for every image that may come.
pub(super) fn endless_answer(scene: &mut CaseRun<'_>) {
    const IMAGE: u64 = 96 << 20;
    let images = if scene.operation().streams() { 3 } else { 1 };
    let limit = (images + 1) * IMAGE;
    for script in scene.scripts() {
        scene.check_stimulus(script);
        let most_written = scene.fixture.upstream.received_attempts().iter().map(|attempt| attempt.written).max();
        assert!(most_written.is_some_and(|written| written < limit), "{script}: {most_written:?} bytes were read");
        scene.check_recovery();
    }
}

/// U28: the images that came are delivered and recorded, and n is sent unchanged.
pub(super) fn other_image_count(scene: &mut CaseRun<'_>) {
    for (script, image_count) in scene.scripts().iter().zip([1, 4, 6]) {
        scene.fixture.script(script, "");
        let asked = scene.send_request(json!({"n": 4}));
        let delivered = image_count.min(4);
        let CallerResult::Complete { images, usage } = &asked.verdict else {
            panic!("{script}: {:.300}", asked.answer.text())
        };
        assert_eq!(images.len(), delivered, "{script}");
        let attempts = scene.attempts(&asked.user);
        let [attempt] = attempts.as_slice() else { panic!("{} attempts", attempts.len()) };
        assert_eq!(attempt.fields()["n"], 4, "n was changed");
        assert_eq!(Some(usage), attempt.usage.as_ref());
        let record = scene.record(&asked.user);
        assert_eq!(
            (&record["n"], record["delivered"].as_array().map(Vec::len)),
            (&json!(4), Some(delivered)),
            "{record}"
        );
        assert_eq!((&record["usage"], &record["state"]), (usage, &json!("succeeded")), "{record}");
        scene.check_recovery();
    }
}

/// U30: requests that are sent while the upstream closes their connection.
pub(super) fn connection_races(scene: &mut CaseRun<'_>) {
    const ROUNDS: u64 = 30;
    scene.fixture.script("idle=300", "idle=300");
    let mut failed = 0;
    let places = scene.row().slots_per_account;
    for round in 0..ROUNDS {
        for asked in scene.send_requests(places) {
            failed +=
                usize::from(asked.verdict != CallerResult::Broken && matches!(asked.verdict, CallerResult::Error(_)));
            assert!(asked.verdict != CallerResult::Broken, "an answer broke off");
        }
        pause(Duration::from_millis(270 + round * 2));
    }
    let all = usize::try_from(ROUNDS).expect("rounds") * places;
    assert!(failed * 50 <= all, "{failed} of {all} requests failed");
    scene.check_recovery();
}

/// U30: if a reused connection ends after the gateway has written to it, the attempt is ambiguous.
pub(super) fn reset_on_reuse(scene: &mut CaseRun<'_>) {
    scene.fixture.script("sour", "");
    let first = scene.send_request(json!({}));
    assert!(matches!(first.verdict, CallerResult::Complete { .. }), "{}", first.answer.status);
    let second = scene.send_request(json!({}));
    let attempts: Vec<_> = [&first, &second].into_iter().flat_map(|asked| scene.attempts(&asked.user)).collect();
    let [first_attempt, second_attempt] = attempts.as_slice() else {
        panic!("{} attempts for two requests", attempts.len())
    };
    if first_attempt.connection == second_attempt.connection {
        second.answer.error_object(502);
        assert_eq!(second.answer.should_retry(), Some("false"));
        assert_eq!(scene.record(&second.user)["state"], "interrupted");
    } else {
        // The gateway does not wait for the end of a stream, so it does not reuse the connection.
        assert!(scene.operation().streams(), "the connection was not reused, so the case was not tested");
        assert!(matches!(second.verdict, CallerResult::Complete { .. }), "{}", second.answer.status);
    }
    scene.check_recovery();
}

/// U32: an account that never answers gets fewer and fewer requests.
pub(super) fn unresponsive_account(scene: &mut CaseRun<'_>) {
    const RATE: usize = 10;
    const ROUNDS: usize = 20;
    scene.fixture.script(scene.scripts()[0], "");
    let mut failed = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let asked = scene.send_requests(RATE);
        failed.push(asked.iter().filter(|asked| !matches!(asked.verdict, CallerResult::Complete { .. })).count());
        assert!(asked.iter().all(|asked| asked.elapsed < Duration::from_secs(20)), "an unbounded queue: {failed:?}");
        pause(Duration::from_millis(500).saturating_sub(start.elapsed()));
    }
    let late_failures: usize = failed[8..].iter().sum();
    let all = (ROUNDS - 8) * RATE;
    assert!(late_failures * 50 <= all, "{late_failures} of {all} requests failed after the first rounds: {failed:?}");
    assert!(matches!(scene.row().after, AccountsAfter::UsableWithin(_)));
    scene.check_recovery();
}
