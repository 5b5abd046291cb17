//! The admin token: it opens the admin API and nothing else, and nothing of a call without it is read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{ACCOUNTS, TOKEN, account_path, ask, check, names, open, refused};
use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, request};

/// The greatest size of a body, in bytes.
const MAX_BODY: usize = 64 << 10;

#[test]
fn the_admin_token_opens_the_admin_api_only() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream)]);
    let wrong = [
        None,
        Some(String::new()),
        Some(TOKEN.to_owned()),
        Some(format!("Basic {TOKEN}")),
        Some(format!("Bearer {TOKEN}x")),
        Some(format!("Bearer {}", &TOKEN[1..])),
        Some(format!("Bearer {}", TOKEN.to_uppercase())),
        Some(format!("Bearer {}", gateway.secret())),
    ];
    for header in &wrong {
        for call in all_calls() {
            let call = header.iter().fold(call, |call, value| call.header("authorization", value));
            check_401(&call.send(gateway.address()));
        }
    }
    for call in [Call::generation().json(&request(json!({}))), Call::get("/v1/models")] {
        check_401(&call.key(TOKEN).send(gateway.address()));
    }
    assert_eq!(upstream.attempt_count(), 0);
    assert_eq!(names(&gateway), ["only"], "no call has changed anything");
}

/// A valid call for each operation on accounts.
fn all_calls() -> [Call; 5] {
    let account = json!({"name": "intruder", "kind": "simulator"});
    let change = json!({"enabled": false});
    [
        Call::get(ACCOUNTS),
        Call::post(ACCOUNTS).json(&account),
        Call::get(&account_path("only")),
        Call::patch(&account_path("only")).json(&change),
        Call::delete(&account_path("only")),
    ]
}

#[track_caller]
fn check_401(answer: &Answer) {
    let error = answer.error_object(401);
    let expected =
        json!({"message": "Invalid API key", "type": "authentication_error", "param": null, "code": "INVALID_API_KEY"});
    assert_eq!(error, expected);
    assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")), "{answer:?}");
    check("ErrorResponse", &answer.json());
}

#[test]
fn without_an_admin_token_every_call_is_refused() {
    let gateway = Gateway::simulated();
    for call in all_calls() {
        let answer = call.key(TOKEN).send(gateway.address());
        check_401(&answer);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    for call in all_calls() {
        check_401(&call.key("").send(gateway.address()));
    }
}

#[test]
fn a_key_of_a_caller_cannot_be_made_the_admin_token() {
    let mut gateway = Gateway::simulated();
    gateway.kill();
    let output = gateway.program().env("IMAGATE_ADMIN_TOKEN", gateway.secret()).args(["serve", "--config"]);
    let output = output.args([gateway.config()]).run();
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("`admin_token` has the form of a caller's key"), "{output:?}");
    assert!(!output.stderr.contains(gateway.secret()), "{output:?}");
}

#[test]
fn a_body_is_read_after_the_token_and_up_to_its_limit() {
    let gateway = open(&[]);
    let unsent = || Call::post(ACCOUNTS).header("content-type", "application/json").announcing_only(1 << 30);
    check_401(&unsent().send(gateway.address()));
    let (code, _) = refused(&ask(&gateway, unsent()), 413);
    assert_eq!(code, "request_too_large");
    let long = json!({"name": "a", "kind": "simulator", "scope": "x".repeat(MAX_BODY)}).to_string();
    let chunked = Call::post(ACCOUNTS).header("content-type", "application/json").bytes(long).in_chunks_of(1000);
    assert_eq!(refused(&ask(&gateway, chunked), 413).0, "request_too_large");
    let untyped = Call::post(ACCOUNTS).bytes("{}");
    assert_eq!(refused(&ask(&gateway, untyped), 415).0, "unsupported_media_type");
}

#[test]
fn no_token_opens_the_accounts_page() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream)]);
    let basic = |password: &str| {
        let pair = STANDARD.encode(format!("operator:{password}"));
        Call::get("/accounts").header("authorization", &format!("Basic {pair}")).send(gateway.address())
    };
    let bearer = Call::get("/accounts").key(TOKEN).send(gateway.address());
    let bare = Call::get("/accounts").send(gateway.address());
    for answer in [basic(TOKEN), basic(gateway.secret()), bearer, bare] {
        assert_eq!((answer.status, answer.header("location")), (303, Some("/sign-in?next=%2Faccounts")), "{answer:?}");
        assert!(answer.text().is_empty() && answer.header("www-authenticate").is_none(), "{answer:?}");
    }
    assert_eq!(Call::get("/console/accounts").key(TOKEN).send(gateway.address()).status, 404);
}
