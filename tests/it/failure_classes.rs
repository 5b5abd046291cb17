//! Failing requests of one caller affect no other caller: they put no account into cooldown.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, eventually};

const ACCOUNTS: [&str; 3] = ["first", "second", "third"];
/// The number of callers that repeat failing requests concurrently.
const CONCURRENT_CALLERS: usize = 10;

/// A request that fails on every account.
struct FailingRequest {
    name: &'static str,
    script: &'static str,
    kind: RequestKind,
    error: ExpectedError,
    /// True if it names what one account may store for it.
    names_stored_context: bool,
}

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Image,
    ImageStream,
    Response,
    ResponseStream,
}

/// The error that the caller gets.
#[derive(Clone, Copy)]
enum ExpectedError {
    /// This status, code and reason, and the advice not to retry.
    Refused(u16, &'static str, &'static str),
    /// A failure that the upstream reports, so that a retry pays for nothing twice.
    Failed,
    /// An answer that has begun, and ends with an error event.
    Broken,
}

const DECLINED: ExpectedError = ExpectedError::Refused(400, "invalid_request_error", "upstream_rejected");

const FAILING_REQUESTS: [FailingRequest; 8] = [
    FailingRequest {
        name: "a mistyped model",
        script: "status=400 body=unknown-model",
        kind: RequestKind::Response,
        error: DECLINED,
        names_stored_context: false,
    },
    FailingRequest {
        name: "an unknown vector store",
        script: "status=404 body=unknown-store",
        kind: RequestKind::Response,
        error: DECLINED,
        names_stored_context: true,
    },
    FailingRequest {
        name: "a prompt that a firewall blocks",
        script: "status=403 body=html",
        kind: RequestKind::Image,
        error: ExpectedError::Refused(502, "upstream_error", "upstream_rejected"),
        names_stored_context: false,
    },
    FailingRequest {
        name: "a request above the tokens per minute",
        script: "status=429 body=too-large",
        kind: RequestKind::Response,
        error: DECLINED,
        names_stored_context: false,
    },
    FailingRequest {
        name: "a body that the upstream does not take",
        script: "status=413 body=html",
        kind: RequestKind::Image,
        error: DECLINED,
        names_stored_context: false,
    },
    FailingRequest {
        name: "a conversation that grows too long while it is answered",
        script: "events=created,text,failed",
        kind: RequestKind::ResponseStream,
        error: ExpectedError::Broken,
        names_stored_context: false,
    },
    FailingRequest {
        name: "an image that is refused after a partial image",
        script: "events=p,e-policy",
        kind: RequestKind::ImageStream,
        error: ExpectedError::Broken,
        names_stored_context: false,
    },
    FailingRequest {
        name: "a request that the upstream fails at",
        script: "status=500",
        kind: RequestKind::Image,
        error: ExpectedError::Failed,
        names_stored_context: false,
    },
];

// === impl FailingRequest ===

impl FailingRequest {
    fn send(&self, gateway: &Gateway) -> Answer {
        let text = format!("a cube [[{}]]", self.script);
        match self.kind {
            RequestKind::Image => gateway.generate(json!({ "prompt": text })),
            RequestKind::ImageStream => gateway.generate(json!({"prompt": text, "stream": true, "partial_images": 1})),
            RequestKind::Response | RequestKind::ResponseStream => {
                let stream = self.kind == RequestKind::ResponseStream;
                let body = json!({"model": "gpt-5.5-typo", "input": text, "stream": stream});
                Call::post("/v1/responses").key(gateway.secret()).json(&body).send(gateway.address())
            }
        }
    }

    #[track_caller]
    fn check(&self, answer: &Answer) {
        let (status, code, reason, should_retry) = match self.error {
            ExpectedError::Refused(status, code, reason) => (status, code, reason, "false"),
            ExpectedError::Failed => (502, "upstream_error", "upstream_failed", "true"),
            ExpectedError::Broken => {
                let text = answer.text();
                assert_eq!((answer.status, text.contains("event: error")), (200, true), "{}", self.name);
                return;
            }
        };
        let error = answer.error_object(status);
        assert_eq!((&error["code"], &error["reason"]), (&json!(code), &json!(reason)), "{}", self.name);
        assert_eq!(answer.should_retry(), Some(should_retry), "{}", self.name);
        let text = answer.text();
        for secret in ["first", "second", "third", "org-1", "html"] {
            assert!(!text.contains(secret), "{}: {secret}: {text}", self.name);
        }
    }

    /// The number of attempts, and the state and error code of the record.
    const fn expected(&self) -> (usize, &'static str, &'static str) {
        match self.error {
            // Each account is asked once for what only one of them may store.
            ExpectedError::Refused(_, code, _) if self.names_stored_context => (ACCOUNTS.len(), "failed", code),
            ExpectedError::Refused(_, code, _) => (2, "failed", code),
            ExpectedError::Failed => (2, "failed", "upstream_error"),
            ExpectedError::Broken => (1, "interrupted", "upstream_error"),
        }
    }
}

/// A gateway with three equal accounts at one upstream.
fn gateway_at(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &ACCOUNTS.map(|name| Account::for_upstream(name, upstream).with_responses_protocol()))
}

#[track_caller]
fn check_no_cooldown(gateway: &Gateway) {
    for name in ACCOUNTS {
        let account = gateway.account(name);
        assert_eq!((&account["state"], &account["cooling_until"]), (&json!("enabled"), &Value::Null), "{account}");
    }
}

#[test]
fn a_failing_request_reaches_at_most_two_accounts_unless_one_may_store_its_context() {
    for request in &FAILING_REQUESTS {
        let upstream = FakeUpstream::start();
        let gateway = gateway_at(&upstream);
        request.check(&request.send(&gateway));
        let (attempts, state, code) = request.expected();
        assert_eq!(upstream.attempt_count(), attempts, "{}", request.name);
        let record = &gateway.final_records(1)[0];
        assert_eq!((&record["state"], &record["error_code"]), (&json!(state), &json!(code)), "{}", request.name);
        check_no_cooldown(&gateway);
    }
}

#[test]
fn a_failing_request_does_not_stop_a_single_account() {
    for request in &FAILING_REQUESTS {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with("", &[Account::for_upstream("first", &upstream).with_responses_protocol()]);
        request.check(&request.send(&gateway));
        gateway.generate(json!({})).ok_json();
        assert_eq!(upstream.attempt_count(), 2, "{}", request.name);
    }
}

/// Two accounts of which the first is always chosen first, unless it is in cooldown or ejected.
fn with_a_spare(upstream: &FakeUpstream) -> Gateway {
    let account = |name| Account::for_upstream(name, upstream).with_responses_protocol();
    Gateway::with("", &[account("first"), account("second").with_free_tier()])
}

/// The account that an ordinary request goes to.
#[track_caller]
fn chosen(gateway: &Gateway, upstream: &FakeUpstream) -> String {
    gateway.generate(json!({})).ok_json();
    let token = upstream.received_attempts().pop().expect("an attempt").token;
    token.trim_start_matches("sk-upstream-").to_owned()
}

#[test]
fn failing_requests_of_one_caller_eject_no_account() {
    for request in &FAILING_REQUESTS {
        let upstream = FakeUpstream::start();
        let gateway = with_a_spare(&upstream);
        (0..4).for_each(|_| request.check(&request.send(&gateway)));
        assert_eq!(chosen(&gateway, &upstream), "first", "{}", request.name);
    }
}

#[test]
fn accounts_that_fail_for_several_callers_are_ejected() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "",
        &[
            Account::for_upstream("first", &upstream),
            Account::for_upstream("second", &upstream),
            Account::for_upstream("third", &upstream).with_free_tier(),
        ],
    );
    for name in ["first", "second"] {
        upstream.always_for_token(&format!("sk-upstream-{name}"), "status=500");
    }
    let bob = gateway.run_command(&["key", "create", "--name", "bob", "--user", "bob", "--json"]).json();
    let bob = bob["secret"].as_str().expect("a secret");
    for secret in [gateway.secret(), bob, gateway.secret()] {
        let body = json!({"model": "gpt-image-2", "prompt": "a red cube"});
        Call::generation().key(secret).json(&body).send(gateway.address()).error_object(502);
    }
    assert_eq!(chosen(&gateway, &upstream), "third");
}

#[test]
fn suspended_accounts_do_not_hide_a_working_one() {
    let upstream = FakeUpstream::start();
    for name in ["first", "second"] {
        upstream.always_for_token(&format!("sk-upstream-{name}"), "status=403 say=Your_account_has_been_suspended.");
    }
    let accounts = ACCOUNTS.map(|name| Account::for_upstream(name, &upstream));
    let [first, second, third] = accounts;
    let gateway = Gateway::with("", &[first, second, third.with_free_tier()]);
    assert_eq!(chosen(&gateway, &upstream), "third");
    assert_eq!(upstream.attempt_count(), 3);
    assert_eq!(chosen(&gateway, &upstream), "third");
    assert_eq!(upstream.attempt_count(), 4, "the other two are in cooldown");
}

#[test]
fn accounts_that_answer_403_are_probed() {
    let upstream = FakeUpstream::start();
    for name in ["first", "second"] {
        upstream.always_for_token(&format!("sk-upstream-{name}"), "status=403");
    }
    let [first, second, third] = ACCOUNTS.map(|name| Account::for_upstream(name, &upstream));
    let gateway = Gateway::with("", &[first, second, third.with_free_tier()]);
    gateway.generate(json!({})).error_object(502);
    for name in ["first", "second"] {
        eventually("the account is in cooldown, because a probe is refused, too", || {
            gateway.account(name)["cooling_until"].is_string().then_some(())
        });
    }
    assert_eq!(chosen(&gateway, &upstream), "third");
}

#[test]
fn different_refusals_of_two_accounts_do_not_fail_the_request() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=403");
    upstream.always_for_token("sk-upstream-second", "status=413 body=html");
    let [first, second, third] = ACCOUNTS.map(|name| Account::for_upstream(name, &upstream));
    let gateway = Gateway::with("", &[first, second, third.with_free_tier()]);
    assert_eq!(chosen(&gateway, &upstream), "third");
    assert_eq!(upstream.attempt_count(), 3);
}

#[test]
fn failing_requests_of_one_caller_do_not_affect_others() {
    repeat_failing_requests(40);
}

/// Run with `cargo test --test it -- --ignored a_thousand_times`.
#[test]
#[ignore = "minutes"]
fn failing_requests_of_one_caller_do_not_affect_others_a_thousand_times() {
    repeat_failing_requests(1000);
}

/// Sends each failing request this many times, ten at once, while another caller generates images.
fn repeat_failing_requests(times: usize) {
    let upstream = FakeUpstream::start();
    let gateway = gateway_at(&upstream);
    let other = gateway.make_key("other");
    let secret = other["secret"].as_str().expect("a secret");
    let (finished, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::SeqCst) {
                let body = json!({"model": "gpt-image-2", "prompt": "a red cube"});
                Call::generation().key(secret).json(&body).send(gateway.address()).ok_json();
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        let callers: Vec<_> = (0..CONCURRENT_CALLERS)
            .map(|_| scope.spawn(|| send_repeatedly(&gateway, times / CONCURRENT_CALLERS)))
            .collect();
        let failed = callers.into_iter().filter_map(|caller| caller.join().err()).count();
        // Must come before the check: if the check fails, the other caller would never end.
        finished.store(true, Ordering::SeqCst);
        assert_eq!(failed, 0, "a failing request got an unexpected answer");
    });
    assert!(served.load(Ordering::SeqCst) > 0, "the other caller got no image");
    println!("{times} of each failing request, {} images of the other caller", served.load(Ordering::SeqCst));
    check_no_cooldown(&gateway);
    for name in ACCOUNTS {
        let before = upstream.received_attempts().iter().filter(|attempt| attempt.token.ends_with(name)).count();
        eventually("every account still serves", || {
            gateway.generate(json!({})).ok_json();
            let now = upstream.received_attempts().iter().filter(|attempt| attempt.token.ends_with(name)).count();
            (now > before).then_some(())
        });
    }
}

fn send_repeatedly(gateway: &Gateway, times: usize) {
    for request in &FAILING_REQUESTS {
        (0..times).for_each(|_| request.check(&request.send(gateway)));
    }
}
