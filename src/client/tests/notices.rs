//! Notices of retries: one for each, before its wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{KEY, answer, image, run, serve};
use crate::client::{Client, RetryNotice, RetryReason};
use crate::testing::{Answer, StubServer};

/// Makes calls one after the other, and returns the notices with the number of requests that were sent before each.
fn noticed(server: &Arc<StubServer>, calls: usize) -> Vec<(usize, RetryNotice)> {
    let notices = Arc::<Mutex<Vec<_>>>::default();
    let (kept, served) = (Arc::clone(&notices), Arc::clone(server));
    let builder = Client::builder().base_url(server.base_url()).api_key(KEY);
    let observe = move |notice: &RetryNotice| kept.lock().unwrap().push((served.requests().len(), notice.clone()));
    let client = builder.on_retry(observe).build().unwrap();
    run(async {
        for _ in 0..calls {
            drop(client.images().generate("a fox").await);
        }
    });
    notices.lock().unwrap().clone()
}

#[test]
fn each_retry_is_noticed_before_its_wait() {
    let busy = answer(503, &image()).header("x-should-retry", "true");
    let server = Arc::new(serve([busy, Answer::rate_limited(Duration::from_secs(1)), answer(200, &image())]));
    let notices = noticed(&server, 1);
    let facts: Vec<_> = notices.iter().map(|(sent, notice)| (*sent, notice.attempt, notice.reason)).collect();
    assert_eq!(facts, [(1, 2, RetryReason::Answer(503)), (2, 3, RetryReason::Answer(429))]);
    assert!(notices[0].1.pause <= Duration::from_millis(500) && notices[1].1.pause >= Duration::from_secs(1));
    assert_eq!(notices[0].1.reason.to_string(), "the service answered with status 503");
}

#[test]
fn a_lost_answer_and_an_unreachable_service_have_their_own_reasons() {
    let kept = || answer(200, &image()).header("x-imagate-replayed", "false");
    let server = Arc::new(serve([kept(), kept().break_off(4), kept(), answer(500, &image()), kept()]));
    let reasons = |notices: Vec<(usize, RetryNotice)>| -> Vec<_> {
        notices.into_iter().map(|(_, notice)| (notice.attempt, notice.reason)).collect()
    };
    assert_eq!(reasons(noticed(&server, 3)), [(2, RetryReason::BrokenAnswer), (2, RetryReason::Answer(500))]);
    let base_url = serve([]).base_url();
    let notices = Arc::<Mutex<Vec<_>>>::default();
    let kept = Arc::clone(&notices);
    let builder = Client::builder().base_url(base_url).api_key(KEY).max_retries(1);
    let client = builder.on_retry(move |notice| kept.lock().unwrap().push((0, notice.clone()))).build().unwrap();
    drop(run(client.images().generate("a fox")));
    assert_eq!(reasons(notices.lock().unwrap().clone()), [(2, RetryReason::NotSent)]);
}

#[test]
fn a_call_that_is_not_sent_again_has_no_notice() {
    let too_long = Answer::rate_limited(Duration::from_secs(61));
    let server = Arc::new(serve([answer(400, &image()), answer(503, &image()), too_long, answer(200, &image())]));
    assert_eq!(noticed(&server, 4), []);
}
