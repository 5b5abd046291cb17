//! Commands beside a running server: the server applies their changes, and they test its accounts.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::kit::{FakeTokens, eventually};

/// Adds the account `kept` at this upstream, beside a running server.
#[track_caller]
fn add_beside(gateway: &Gateway, upstream: &FakeUpstream) {
    let base_url = upstream.base_url();
    let arguments = ["account", "add", "--name", "kept", "--base-url", &base_url, "--api-key-env", "IT_SECRET"];
    let program =
        gateway.program().env("IT_SECRET", SECRET).args(arguments).args(["--config"]).args([gateway.config()]);
    program.run().ok_stdout();
}

#[track_caller]
fn until_status(gateway: &Gateway, status: u16) {
    eventually("the server applies the change", || (gateway.generate(json!({})).status == status).then_some(()));
}

#[test]
fn a_running_server_applies_every_change_of_its_accounts() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::simulated();
    add_beside(&gateway, &upstream);
    eventually("the new account is asked", || {
        gateway.generate(json!({})).ok_json();
        (upstream.attempt_count() > 0).then_some(())
    });
    // From now on the simulator draws no images.
    let before = upstream.attempt_count();
    (0..5).for_each(|_| drop(gateway.generate(json!({})).ok_json()));
    assert_eq!(upstream.attempt_count(), before + 5);
    assert!(upstream.received_attempts().iter().all(|attempt| attempt.token == SECRET));
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
fn no_first_key_is_printed_if_the_store_has_an_account() {
    let home = TempDir::new().expect("a directory");
    let program = || Program::new(home.path()).env("IT_SECRET", SECRET);
    let arguments = ["account", "add", "--name", "kept", "--base-url", ADDRESS, "--api-key-env", "IT_SECRET"];
    program().args(arguments).run().ok_stdout();
    let server = program().args(["serve", "--listen", "127.0.0.1:0"]).serve();
    assert!(!server.stdout().contains("sk-img-") && !server.stdout().contains("SIMULATOR"), "{}", server.stdout());
}

#[test]
fn an_account_is_tested_without_making_an_image() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("first", &upstream)]);
    let output = gateway.run_command(&["account", "test", "first", "--json"]).json();
    assert_eq!(
        (&output["name"], &output["result"], &output["status"]),
        (&json!("first"), &json!("accepted"), &json!(200))
    );
    assert!(output["latency_ms"].is_u64(), "{output}");
    let [attempt] = &upstream.received_attempts()[..] else { panic!("exactly one call is expected") };
    assert_eq!((attempt.method.as_str(), attempt.path.as_str()), ("GET", "/v1/models"));
    assert_eq!(attempt.token, "sk-upstream-first");
    assert!(
        gateway
            .run_command(&["account", "test", "first"])
            .ok_stdout()
            .starts_with("first: the upstream accepts the credentials (status 200 after ")
    );
    upstream.always_for_token("sk-upstream-first", "status=401");
    let refused = gateway.run_command(&["account", "test", "first"]);
    assert_eq!(refused.code, FAILED, "{refused:#?}");
    assert!(
        refused.stderr.contains("does not accept the credentials") && refused.stderr.contains("(status 401"),
        "{refused:#?}"
    );
    let refused = gateway.run_command(&["account", "test", "first", "--json"]);
    assert_eq!(refused.code, FAILED, "{refused:#?}");
    assert!(
        refused.stdout.contains("\"result\":\"refused\"") && refused.stdout.contains("\"status\":401"),
        "{refused:#?}"
    );
    gateway.run_command(&["account", "disable", "first", "--reason", "on holiday"]).ok_stdout();
    let calls = upstream.attempt_count();
    let refused = gateway.run_command(&["account", "test", "first"]);
    assert_eq!(refused.code, FAILED, "{refused:#?}");
    assert_eq!(upstream.attempt_count(), calls + 1, "a disabled account is tested, too");
    let listed = gateway.run_command(&["account", "list", "--json"]).json();
    assert_eq!(listed[0]["disabled_reason"], "on holiday", "a test does not enable an account");
    assert!(gateway.records().is_empty(), "a test makes no record");
}

#[test]
fn a_test_beside_a_running_server_uses_no_refresh_token_twice() {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    // Each token expires at once, and an exchange takes so long that the server and the command need it concurrently.
    tokens.set_lifetime(Duration::from_secs(1));
    tokens.set_delay(Duration::from_millis(200));
    let gateway = Gateway::with("", &[Account::oauth("a", &upstream, &tokens)]);
    let needs_more = || tokens.exchanges_of("a").len() < 5;
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| {
            while needs_more() {
                gateway.generate(json!({})).ok_json();
            }
        });
        while needs_more() {
            gateway.run_command(&["account", "test", "a"]).ok_stdout();
        }
        caller.join().expect("images");
    });
    let exchanges = tokens.exchanges_of("a");
    assert!(exchanges.iter().all(|exchange| exchange.status == 200), "{exchanges:#?}");
    let used: BTreeSet<&str> = exchanges.iter().map(|exchange| exchange.form["refresh_token"].as_str()).collect();
    assert_eq!(used.len(), exchanges.len());
}

#[test]
fn testing_an_account_with_a_revoked_refresh_token_disables_it() {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    tokens.revoke("a");
    let gateway = Gateway::with("", &[Account::oauth("a", &upstream, &tokens)]);
    let output = gateway.run_command(&["account", "test", "a"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains("a: the token endpoint gave no token"), "{output:#?}");
    assert!(!output.stderr.contains("refresh-a-"), "{output:#?}");
    let listed = gateway.run_command(&["account", "list", "--json"]).json();
    assert_eq!(listed[0]["state"], "disabled", "{listed}");
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_rotated_key_is_the_only_one_that_is_sent() {
    const NEXT: &str = "sk-canary-of-the-next-key";
    let upstream = FakeUpstream::start();
    let gateway = Gateway::simulated();
    add_beside(&gateway, &upstream);
    gateway.run_command(&["account", "disable", "kept", "--reason", "the key leaked"]).ok_stdout();
    let rotate = |id: &str, arguments: &[&str]| {
        let program = gateway.program().env("NEXT", NEXT).args(["account", "rotate", id]).args(arguments);
        program.args(["--config"]).args([gateway.config()]).run()
    };
    for (arguments, expected) in [
        (&[][..], "give the source of at least one secret"),
        (&["--refresh-token-env", "NEXT"], "`refresh_token` has no meaning"),
    ] {
        let output = rotate("kept", arguments);
        assert_eq!(output.code, USAGE, "{output:#?}");
        assert!(output.stderr.contains(expected) && !output.stderr.contains(NEXT), "{output:#?}");
    }
    let output = rotate("kept", &["--api-key-env", "NEXT", "--json"]).json();
    assert_eq!((&output["state"], &output["disabled_reason"]), (&json!("disabled"), &json!("the key leaked")));
    gateway.run_command(&["account", "enable", "kept"]).ok_stdout();
    until_status(&gateway, 200);
    gateway.run_command(&["account", "test", "kept"]).ok_stdout();
    let tokens: Vec<String> = upstream.received_attempts().into_iter().map(|attempt| attempt.token).collect();
    assert!(!tokens.is_empty() && tokens.iter().all(|token| token == NEXT), "{tokens:?}");
    assert!(!holds(&bytes_below(&gateway.home().join("data")), NEXT));
}
