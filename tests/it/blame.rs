//! A caller's mistakes affect that caller alone: no account rests because of them, and no other caller notices.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, eventually};

const ACCOUNTS: [&str; 3] = ["first", "second", "third"];
/// The number of callers that repeat nonsense concurrently.
const AT_ONCE: usize = 10;

/// A request that no account can help with.
struct Nonsense {
    name: &'static str,
    script: &'static str,
    asks: RequestKind,
    told: ExpectedError,
}

/// The operation that is asked for.
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
    /// This status, code and reason, and the advice not to send it again.
    Refused(u16, &'static str, &'static str),
    /// The failure that the upstream admits; another try costs nothing twice.
    Failed,
    /// An answer that has begun, and ends with an error event.
    Broken,
}

const DECLINED: ExpectedError = ExpectedError::Refused(400, "invalid_request_error", "upstream_rejected");

const NONSENSE: [Nonsense; 8] = [
    Nonsense {
        name: "a mistyped model",
        script: "status=400 body=unknown-model",
        asks: RequestKind::Response,
        told: DECLINED,
    },
    Nonsense {
        name: "an unknown vector store",
        script: "status=404 body=unknown-store",
        asks: RequestKind::Response,
        told: DECLINED,
    },
    Nonsense {
        name: "a prompt that a firewall blocks",
        script: "status=403 body=html",
        asks: RequestKind::Image,
        told: ExpectedError::Refused(502, "upstream_error", "upstream_rejected"),
    },
    Nonsense {
        name: "a request above the tokens per minute",
        script: "status=429 body=too-large",
        asks: RequestKind::Response,
        told: DECLINED,
    },
    Nonsense {
        name: "a body that the upstream does not take",
        script: "status=413 body=html",
        asks: RequestKind::Image,
        told: DECLINED,
    },
    Nonsense {
        name: "a conversation that grows too long while it is answered",
        script: "events=created,text,failed",
        asks: RequestKind::ResponseStream,
        told: ExpectedError::Broken,
    },
    Nonsense {
        name: "an image that is refused after a partial image",
        script: "events=p,e-policy",
        asks: RequestKind::ImageStream,
        told: ExpectedError::Broken,
    },
    Nonsense {
        name: "a request that the upstream fails at",
        script: "status=500",
        asks: RequestKind::Image,
        told: ExpectedError::Failed,
    },
];

// === impl Nonsense ===

impl Nonsense {
    fn send(&self, gateway: &Gateway) -> Answer {
        let text = format!("a cube [[{}]]", self.script);
        match self.asks {
            RequestKind::Image => gateway.generate(json!({ "prompt": text })),
            RequestKind::ImageStream => gateway.generate(json!({"prompt": text, "stream": true, "partial_images": 1})),
            RequestKind::Response | RequestKind::ResponseStream => {
                let stream = self.asks == RequestKind::ResponseStream;
                let body = json!({"model": "gpt-5.5-typo", "input": text, "stream": stream});
                Call::post("/v1/responses").key(gateway.secret()).json(&body).send(gateway.address())
            }
        }
    }

    #[track_caller]
    fn check(&self, answer: &Answer) {
        let (status, code, reason, again) = match self.told {
            ExpectedError::Refused(status, code, reason) => (status, code, reason, "false"),
            ExpectedError::Failed => (502, "upstream_error", "network", "true"),
            ExpectedError::Broken => {
                let text = answer.text();
                assert_eq!((answer.status, text.contains("event: error")), (200, true), "{}", self.name);
                return;
            }
        };
        let error = answer.error_object(status);
        assert_eq!((&error["code"], &error["reason"]), (&json!(code), &json!(reason)), "{}", self.name);
        assert_eq!(answer.should_retry(), Some(again), "{}", self.name);
        let text = answer.text();
        for secret in ["first", "second", "third", "org-1", "html"] {
            assert!(!text.contains(secret), "{}: {secret}: {text}", self.name);
        }
    }

    /// The number of accounts that are asked, and what the record says.
    const fn expected(&self) -> (usize, &'static str, &'static str) {
        match self.told {
            ExpectedError::Refused(_, code, _) => (2, "failed", code),
            ExpectedError::Failed => (2, "failed", "upstream_error"),
            ExpectedError::Broken => (1, "interrupted", "upstream_error"),
        }
    }
}

fn before(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &ACCOUNTS.map(|name| Account::for_upstream(name, upstream).with_responses_protocol()))
}

#[track_caller]
fn all_are_at_work(gateway: &Gateway) {
    for name in ACCOUNTS {
        let account = gateway.account(name);
        assert_eq!((&account["state"], &account["cooling_until"]), (&json!("enabled"), &Value::Null), "{account}");
    }
}

#[test]
fn nonsense_is_asked_of_two_accounts_at_most_and_told_as_the_callers() {
    for nonsense in &NONSENSE {
        let upstream = FakeUpstream::start();
        let gateway = before(&upstream);
        nonsense.check(&nonsense.send(&gateway));
        let (attempts, state, code) = nonsense.expected();
        assert_eq!(upstream.attempts(), attempts, "{}", nonsense.name);
        let record = &gateway.final_records(1)[0];
        assert_eq!((&record["state"], &record["error_code"]), (&json!(state), &json!(code)), "{}", nonsense.name);
        all_are_at_work(&gateway);
    }
}

#[test]
fn a_lonely_account_does_not_rest_for_nonsense() {
    for nonsense in &NONSENSE {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with("", &[Account::for_upstream("first", &upstream).with_responses_protocol()]);
        nonsense.check(&nonsense.send(&gateway));
        gateway.generate(json!({})).ok_json();
        assert_eq!(upstream.attempts(), 2, "{}", nonsense.name);
    }
}

/// Two accounts of which the first is always chosen first, unless it is set aside.
fn with_a_spare(upstream: &FakeUpstream) -> Gateway {
    let account = |name| Account::for_upstream(name, upstream).with_responses_protocol();
    Gateway::with("", &[account("first"), account("second").with_free_tier()])
}

/// The account that an ordinary request goes to.
#[track_caller]
fn chosen(gateway: &Gateway, upstream: &FakeUpstream) -> String {
    gateway.generate(json!({})).ok_json();
    let token = upstream.ledger().pop().expect("an attempt").token;
    token.trim_start_matches("sk-upstream-").to_owned()
}

#[test]
fn no_account_is_set_aside_for_what_one_caller_repeats() {
    for nonsense in &NONSENSE {
        let upstream = FakeUpstream::start();
        let gateway = with_a_spare(&upstream);
        (0..4).for_each(|_| nonsense.check(&nonsense.send(&gateway)));
        assert_eq!(chosen(&gateway, &upstream), "first", "{}", nonsense.name);
    }
}

#[test]
fn accounts_that_fail_for_several_callers_make_way_for_another() {
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
fn accounts_that_are_suspended_do_not_hide_one_that_serves() {
    let upstream = FakeUpstream::start();
    for name in ["first", "second"] {
        upstream.always_for_token(&format!("sk-upstream-{name}"), "status=403 say=Your_account_has_been_suspended.");
    }
    let accounts = ACCOUNTS.map(|name| Account::for_upstream(name, &upstream));
    let [first, second, third] = accounts;
    let gateway = Gateway::with("", &[first, second, third.with_free_tier()]);
    assert_eq!(chosen(&gateway, &upstream), "third");
    assert_eq!(upstream.attempts(), 3);
    assert_eq!(chosen(&gateway, &upstream), "third");
    assert_eq!(upstream.attempts(), 4, "the two rest");
}

#[test]
fn accounts_that_forbid_a_request_are_checked_by_themselves() {
    let upstream = FakeUpstream::start();
    for name in ["first", "second"] {
        upstream.always_for_token(&format!("sk-upstream-{name}"), "status=403");
    }
    let [first, second, third] = ACCOUNTS.map(|name| Account::for_upstream(name, &upstream));
    let gateway = Gateway::with("", &[first, second, third.with_free_tier()]);
    gateway.generate(json!({})).error_object(502);
    for name in ["first", "second"] {
        eventually("it rests, because its credentials are refused for anything", || {
            gateway.account(name)["cooling_until"].is_string().then_some(())
        });
    }
    assert_eq!(chosen(&gateway, &upstream), "third");
}

#[test]
fn two_accounts_that_refuse_for_different_reasons_do_not_blame_the_request() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-first", "status=403");
    upstream.always_for_token("sk-upstream-second", "status=413 body=html");
    let [first, second, third] = ACCOUNTS.map(|name| Account::for_upstream(name, &upstream));
    let gateway = Gateway::with("", &[first, second, third.with_free_tier()]);
    assert_eq!(chosen(&gateway, &upstream), "third");
    assert_eq!(upstream.attempts(), 3);
}

#[test]
fn nobody_notices_a_caller_who_repeats_nonsense() {
    repeat_nonsense(40);
}

/// Run with `cargo test --test it -- --ignored a_thousand_times`.
#[test]
#[ignore = "minutes"]
fn nobody_notices_a_caller_who_repeats_nonsense_a_thousand_times() {
    repeat_nonsense(1000);
}

/// Sends each kind of nonsense this many times, ten at once, beside another caller's images.
fn repeat_nonsense(times: usize) {
    let upstream = FakeUpstream::start();
    let gateway = before(&upstream);
    let other = gateway.make_key("other");
    let secret = other["secret"].as_str().expect("a secret");
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let body = json!({"model": "gpt-image-2", "prompt": "a red cube"});
                Call::generation().key(secret).json(&body).send(gateway.address()).ok_json();
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        let many: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| one_of_many(&gateway, times / AT_ONCE))).collect();
        let failed = many.into_iter().filter_map(|caller| caller.join().err()).count();
        // Before the check: after a failure the other caller would go on for ever.
        over.store(true, Ordering::SeqCst);
        assert_eq!(failed, 0, "callers of nonsense got something else");
    });
    assert!(served.load(Ordering::SeqCst) > 0, "the other caller got no image");
    println!("{times} of each nonsense, {} images beside it", served.load(Ordering::SeqCst));
    all_are_at_work(&gateway);
    for name in ACCOUNTS {
        let before = upstream.ledger().iter().filter(|attempt| attempt.token.ends_with(name)).count();
        eventually("every account still serves", || {
            gateway.generate(json!({})).ok_json();
            let now = upstream.ledger().iter().filter(|attempt| attempt.token.ends_with(name)).count();
            (now > before).then_some(())
        });
    }
}

fn one_of_many(gateway: &Gateway, times: usize) {
    for nonsense in &NONSENSE {
        (0..times).for_each(|_| nonsense.check(&nonsense.send(gateway)));
    }
}
