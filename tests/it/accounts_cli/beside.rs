//! Beside a running server: it follows what commands change, and they ask upstreams with its accounts.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::kit::{FakeTokens, eventually};

/// Adds the account `kept` at this upstream, beside a running server.
#[track_caller]
fn add_beside(gateway: &Gateway, upstream: &FakeUpstream) {
    let base_url = upstream.base_url();
    let words = ["account", "add", "--name", "kept", "--base-url", &base_url, "--api-key-env", "IT_SECRET"];
    let program = gateway.program().env("IT_SECRET", SECRET).args(words).args(["--config"]).args([gateway.config()]);
    program.run().ok_stdout();
}

#[track_caller]
fn until_status(gateway: &Gateway, status: u16) {
    eventually("the server follows", || (gateway.generate(json!({})).status == status).then_some(()));
}

#[test]
fn a_running_server_follows_every_change_of_its_accounts() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::simulated();
    add_beside(&gateway, &upstream);
    eventually("the new account is asked", || {
        gateway.generate(json!({})).ok_json();
        (upstream.attempts() > 0).then_some(())
    });
    // From then on nobody gets a drawing of the simulator.
    let before = upstream.attempts();
    (0..5).for_each(|_| drop(gateway.generate(json!({})).ok_json()));
    assert_eq!(upstream.attempts(), before + 5);
    assert!(upstream.ledger().iter().all(|attempt| attempt.token == SECRET));
    gateway.run_command(&["account", "disable", "kept"]).ok_stdout();
    until_status(&gateway, 503);
    gateway.run_command(&["account", "enable", "kept"]).ok_stdout();
    until_status(&gateway, 200);
    gateway.kill();
    gateway.start();
    assert!(!gateway.output().contains("SIMULATOR"), "{}", gateway.output());
    gateway.generate(json!({})).ok_json();
    gateway.run_command(&["account", "delete", "kept"]).ok_stdout();
    until_status(&gateway, 503);
    assert!(!gateway.output().contains(SECRET));
}

#[test]
fn a_first_key_is_never_printed_where_an_account_of_the_store_is_paid_for() {
    let home = TempDir::new().expect("a directory");
    let program = || Program::new(home.path()).env("IT_SECRET", SECRET);
    let words = ["account", "add", "--name", "kept", "--base-url", ADDRESS, "--api-key-env", "IT_SECRET"];
    program().args(words).run().ok_stdout();
    let server = program().args(["serve", "--listen", "127.0.0.1:0"]).serve();
    assert!(!server.stdout().contains("sk-img-") && !server.stdout().contains("SIMULATOR"), "{}", server.stdout());
}

#[test]
fn an_account_is_tested_without_making_anything() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("first", &upstream)]);
    let done = gateway.run_command(&["account", "test", "first", "--json"]).json();
    assert_eq!((&done["account"], &done["ok"], &done["status"]), (&json!("first"), &json!(true), &json!(200)));
    assert!(done["latency_ms"].is_u64(), "{done}");
    let [attempt] = &upstream.ledger()[..] else { panic!("one call") };
    assert_eq!((attempt.method.as_str(), attempt.path.as_str()), ("GET", "/v1/models"));
    assert_eq!(attempt.token, "sk-upstream-first");
    assert!(
        gateway
            .run_command(&["account", "test", "first"])
            .ok_stdout()
            .starts_with("first: the upstream accepts its credentials (status 200 after ")
    );
    upstream.always_for_token("sk-upstream-first", "status=401");
    let refused = gateway.run_command(&["account", "test", "first"]);
    assert_eq!(refused.code, FAILED, "{refused:#?}");
    assert!(refused.stderr.contains("does not accept its credentials (status 401"), "{refused:#?}");
    let refused = gateway.run_command(&["account", "test", "first", "--json"]);
    assert_eq!(refused.code, FAILED, "{refused:#?}");
    assert!(refused.stdout.contains("\"ok\":false") && refused.stdout.contains("\"status\":401"), "{refused:#?}");
    gateway.run_command(&["account", "disable", "first", "--reason", "on holiday"]).ok_stdout();
    let calls = upstream.attempts();
    let out = gateway.run_command(&["account", "test", "first"]);
    assert_eq!(out.code, FAILED, "{out:#?}");
    assert!(out.stderr.contains("disabled: on holiday") && out.stderr.contains("account enable first"), "{out:#?}");
    assert_eq!(upstream.attempts(), calls);
    assert!(gateway.records().is_empty(), "a test is no job");
}

#[test]
fn testing_beside_a_running_server_uses_no_refresh_token_twice() {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    // Each token is over at once, and fetching the next takes long enough for the other to want it too.
    tokens.set_lifetime(Duration::from_secs(1));
    tokens.set_delay(Duration::from_millis(200));
    let gateway = Gateway::with("", &[Account::oauth("a", &upstream, &tokens)]);
    let go_on = || tokens.exchanges_of("a").len() < 5;
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            while go_on() {
                gateway.generate(json!({})).ok_json();
            }
        });
        while go_on() {
            gateway.run_command(&["account", "test", "a"]).ok_stdout();
        }
        asked.join().expect("pictures");
    });
    let exchanges = tokens.exchanges_of("a");
    assert!(exchanges.iter().all(|exchange| exchange.status == 200), "{exchanges:#?}");
    let used: BTreeSet<&str> = exchanges.iter().map(|exchange| exchange.form["refresh_token"].as_str()).collect();
    assert_eq!(used.len(), exchanges.len());
}

#[test]
fn testing_an_account_whose_refresh_token_was_revoked_says_so_and_takes_it_out() {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    tokens.revoke("a");
    let gateway = Gateway::with("", &[Account::oauth("a", &upstream, &tokens)]);
    let done = gateway.run_command(&["account", "test", "a"]);
    assert_eq!(done.code, FAILED, "{done:#?}");
    assert!(done.stderr.contains("the account a is disabled"), "{done:#?}");
    assert!(!done.stderr.contains("refresh-a-"), "{done:#?}");
    let listed = gateway.run_command(&["account", "list", "--json"]).json();
    assert_eq!(listed[0]["state"], "disabled", "{listed}");
    assert_eq!(upstream.attempts(), 0);
}

#[test]
fn a_rotated_key_is_the_only_one_that_is_sent() {
    const NEXT: &str = "sk-canary-of-the-next-key";
    let upstream = FakeUpstream::start();
    let gateway = Gateway::simulated();
    add_beside(&gateway, &upstream);
    gateway.run_command(&["account", "disable", "kept", "--reason", "the key leaked"]).ok_stdout();
    let rotate = |id: &str, words: &[&str]| {
        let program = gateway.program().env("NEXT", NEXT).args(["account", "rotate", id]).args(words);
        program.args(["--config"]).args([gateway.config()]).run()
    };
    for (words, expected) in [
        (&[][..], "give the source of at least one secret"),
        (&["--refresh-token-env", "NEXT"], "`refresh_token` has no meaning"),
    ] {
        let done = rotate("kept", words);
        assert_eq!(done.code, USAGE, "{done:#?}");
        assert!(done.stderr.contains(expected) && !done.stderr.contains(NEXT), "{done:#?}");
    }
    let done = rotate("kept", &["--api-key-env", "NEXT", "--json"]).json();
    assert_eq!((&done["state"], &done["disabled_reason"]), (&json!("disabled"), &json!("the key leaked")));
    gateway.run_command(&["account", "enable", "kept"]).ok_stdout();
    until_status(&gateway, 200);
    gateway.run_command(&["account", "test", "kept"]).ok_stdout();
    let tokens: Vec<String> = upstream.ledger().into_iter().map(|attempt| attempt.token).collect();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == NEXT), "{tokens:?}");
    assert!(!holds(&bytes_below(&gateway.home().join("data")), NEXT));
}
