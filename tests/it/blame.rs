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
    /// True for a response, false for an image.
    response: bool,
    status: u16,
    code: &'static str,
    reason: &'static str,
}

const NONSENSE: [Nonsense; 5] = [
    Nonsense {
        name: "a mistyped model",
        script: "status=400 body=unknown-model",
        response: true,
        status: 400,
        code: "invalid_request_error",
        reason: "upstream_rejected",
    },
    Nonsense {
        name: "an unknown vector store",
        script: "status=404 body=unknown-store",
        response: true,
        status: 400,
        code: "invalid_request_error",
        reason: "upstream_rejected",
    },
    Nonsense {
        name: "a prompt that a firewall blocks",
        script: "status=403 body=html",
        response: false,
        status: 502,
        code: "upstream_error",
        reason: "upstream_rejected",
    },
    Nonsense {
        name: "a request above the tokens per minute",
        script: "status=429 body=too-large",
        response: true,
        status: 400,
        code: "invalid_request_error",
        reason: "upstream_rejected",
    },
    Nonsense {
        name: "a body that the upstream does not take",
        script: "status=413 body=html",
        response: false,
        status: 400,
        code: "invalid_request_error",
        reason: "upstream_rejected",
    },
];

// === impl Nonsense ===

impl Nonsense {
    fn send(&self, gateway: &Gateway) -> Answer {
        let text = format!("a cube [[{}]]", self.script);
        if !self.response {
            return gateway.generate(json!({ "prompt": text }));
        }
        let body = json!({"model": "gpt-5.5-typo", "input": text});
        Call::post("/v1/responses").key(gateway.secret()).json(&body).send(gateway.address())
    }

    #[track_caller]
    fn check(&self, answer: &Answer) {
        let error = answer.error(self.status);
        assert_eq!((&error["code"], &error["reason"]), (&json!(self.code), &json!(self.reason)), "{}", self.name);
        assert_eq!(answer.should_retry(), Some("false"), "{}", self.name);
        let text = answer.text();
        for secret in ["first", "second", "third", "org-1", "html"] {
            assert!(!text.contains(secret), "{}: {secret}: {text}", self.name);
        }
    }
}

fn before(upstream: &FakeUpstream) -> Gateway {
    Gateway::with("", &ACCOUNTS.map(|name| Account::at(name, upstream).speaking_responses()))
}

#[track_caller]
fn all_are_at_work(gateway: &Gateway) {
    for name in ACCOUNTS {
        let account = gateway.account(name);
        assert_eq!((&account["state"], &account["cooling_until"]), (&json!("enabled"), &Value::Null), "{account}");
    }
}

#[test]
fn nonsense_is_asked_of_two_accounts_and_told_as_the_callers() {
    for nonsense in &NONSENSE {
        let upstream = FakeUpstream::start();
        let gateway = before(&upstream);
        nonsense.check(&nonsense.send(&gateway));
        assert_eq!(upstream.attempts(), 2, "{}", nonsense.name);
        let record = &gateway.settled(1)[0];
        assert_eq!((&record["state"], &record["error_code"]), (&json!("failed"), &json!(nonsense.code)));
        all_are_at_work(&gateway);
    }
}

#[test]
fn a_lonely_account_does_not_rest_for_nonsense() {
    for nonsense in &NONSENSE {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with("", &[Account::at("first", &upstream).speaking_responses()]);
        nonsense.check(&nonsense.send(&gateway));
        gateway.generate(json!({})).good();
        assert_eq!(upstream.attempts(), 2, "{}", nonsense.name);
    }
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
                Call::generation().key(secret).json(&body).send(gateway.address()).good();
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        let many: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| one_of_many(&gateway, times / AT_ONCE))).collect();
        let failed = many.into_iter().filter_map(|caller| caller.join().err()).count();
        // Before the check: after a failure the other caller would go on for ever.
        over.store(true, Ordering::SeqCst);
        assert_eq!(failed, 0, "callers of nonsense got something else");
    });
    println!("{times} of each nonsense, {} images beside it", served.load(Ordering::SeqCst));
    all_are_at_work(&gateway);
    for name in ACCOUNTS {
        let before = upstream.ledger().iter().filter(|attempt| attempt.token.ends_with(name)).count();
        eventually("every account still serves", || {
            gateway.generate(json!({})).good();
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
