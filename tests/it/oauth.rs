//! Accounts of kind `oauth`: however many requests need a token, it is fetched or refreshed once. Tokens survive a
//! restart. An account whose token cannot be refreshed is disabled while the other accounts serve.
//!
//! The fake token endpoint and the fake upstream each keep a ledger; both together show when each token was used.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, Exchange, FakeTokens, FakeUpstream, Gateway, eventually, pause};

const ADMIN_TOKEN: &str = "admin-token-canary-0123456789abcdef";

/// The delay of the token endpoint. Other requests arrive while a token is being refreshed.
const REFRESH_DELAY: Duration = Duration::from_millis(300);

/// An upstream, a token endpoint, and a gateway with accounts made from both.
fn start_gateway(accounts: impl Fn(&FakeUpstream, &FakeTokens) -> Vec<Account>) -> (FakeUpstream, FakeTokens, Gateway) {
    start_gateway_after(|_| {}, accounts)
}

/// Like [`start_gateway`], but prepares the token endpoint before the gateway starts.
fn start_gateway_after(
    prepare: impl Fn(&FakeTokens),
    accounts: impl Fn(&FakeUpstream, &FakeTokens) -> Vec<Account>,
) -> (FakeUpstream, FakeTokens, Gateway) {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    tokens.set_delay(REFRESH_DELAY);
    prepare(&tokens);
    let gateway = Gateway::with("", &accounts(&upstream, &tokens));
    (upstream, tokens, gateway)
}

fn single_account(upstream: &FakeUpstream, tokens: &FakeTokens) -> Vec<Account> {
    vec![Account::oauth("a", upstream, tokens)]
}

/// An OAuth account `a`, and an account with an API key that serves if `a` cannot.
fn account_and_spare(upstream: &FakeUpstream, tokens: &FakeTokens) -> Vec<Account> {
    vec![Account::oauth("a", upstream, tokens), Account::for_upstream("spare", upstream).with_free_tier()]
}

/// Sends `count` requests in parallel, and returns their answers.
fn at_once(gateway: &Gateway, count: usize, prompt: &str) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(|| gateway.generate(json!({"prompt": prompt})))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

#[track_caller]
fn assert_all_ok(answers: &[Answer]) {
    answers.iter().for_each(|answer| drop(answer.ok_json()));
}

fn used_tokens(upstream: &FakeUpstream) -> Vec<String> {
    upstream.received_attempts().into_iter().map(|attempt| attempt.token).collect()
}

fn refresh_tokens(exchanges: &[Exchange]) -> Vec<&str> {
    exchanges.iter().map(|exchange| exchange.form["refresh_token"].as_str()).collect()
}

/// Sends one token request with these form fields.
fn exchange(tokens: &FakeTokens, fields: &str) -> Answer {
    let address = tokens.url().trim_start_matches("http://").split('/').next().expect("an address").parse();
    let call = Call::post("/oauth/token").header("content-type", "application/x-www-form-urlencoded");
    call.bytes(fields).send(address.expect("an address"))
}

#[test]
fn the_fake_token_endpoint_accepts_each_refresh_token_once() {
    let tokens = FakeTokens::start();
    let fields = "client_id=client-a&client_secret=secret%2da&grant_type=refresh_token&refresh_token=refresh-a-0";
    let first = exchange(&tokens, fields).ok_json();
    assert_eq!((&first["access_token"], &first["refresh_token"]), (&json!("access-a-1"), &json!("refresh-a-1")));
    assert_eq!(exchange(&tokens, fields).json()["error"], "invalid_grant");
    let again = exchange(&tokens, &fields.replace("refresh-a-0", "refresh-a-1")).ok_json();
    assert_eq!((&again["access_token"], &again["expires_in"]), (&json!("access-a-2"), &json!(3600)));
    assert_eq!(exchange(&tokens, &fields.replace("secret%2da", "guess")).status, 401);
    tokens.revoke("a");
    assert_eq!(exchange(&tokens, &fields.replace("refresh-a-0", "refresh-a-2")).json()["error"], "invalid_grant");
    let statuses: Vec<_> = tokens.ledger().iter().map(|exchange| exchange.status).collect();
    assert_eq!(statuses, [200, 400, 200, 401, 400]);
    assert_eq!(tokens.exchanges_of("a").len(), 5);
}

#[test]
fn the_first_token_is_fetched_once_for_fifty_parallel_requests() {
    let (upstream, tokens, gateway) = start_gateway(single_account);
    assert_all_ok(&at_once(&gateway, 50, "a cube"));
    let exchanges = tokens.exchanges_of("a");
    assert_eq!(exchanges.len(), 1, "{exchanges:#?}");
    assert_eq!((exchanges[0].form["grant_type"].as_str(), exchanges[0].basic), ("refresh_token", true));
    assert!(used_tokens(&upstream).iter().all(|token| token == "access-a-1"));
    assert_eq!(upstream.attempt_count(), 50);
}

#[test]
fn client_credentials_are_in_the_form_if_so_configured() {
    let (_upstream, tokens, gateway) = start_gateway(|upstream, tokens| {
        let account = Account::oauth("a", upstream, tokens);
        vec![
            account
                .with_line("client_auth = \"body\"")
                .with_line("scope = \"images more\"")
                .with_line("audience = \"urn:an api\""),
        ]
    });
    gateway.generate(json!({})).ok_json();
    let exchange = &tokens.exchanges_of("a")[0];
    assert!(!exchange.basic);
    assert_eq!((exchange.form["scope"].as_str(), exchange.form["audience"].as_str()), ("images more", "urn:an api"));
}

#[test]
fn twenty_parallel_requests_fetch_one_token_for_each_account() {
    let (upstream, tokens, gateway) = start_gateway(|upstream, tokens| {
        ["a", "b"].map(|name| Account::oauth(name, upstream, tokens).with_slots(10)).to_vec()
    });
    std::thread::scope(|scope| {
        let threads = scope.spawn(|| at_once(&gateway, 20, "a cube [[gate=open]]"));
        upstream.wait_until("both accounts are full", |attempts| attempts.len() == 20);
        upstream.open_gate("open");
        assert_all_ok(&threads.join().expect("answers"));
    });
    for name in ["a", "b"] {
        assert_eq!(tokens.exchanges_of(name).len(), 1, "{name}");
        assert_eq!(used_tokens(&upstream).iter().filter(|token| **token == format!("access-{name}-1")).count(), 10);
    }
}

#[test]
fn an_expired_token_is_refreshed_once_for_fifty_parallel_requests() {
    let (upstream, tokens, mut gateway) =
        start_gateway_after(|tokens| tokens.set_lifetime(Duration::from_secs(2)), single_account);
    gateway.generate(json!({})).ok_json();
    gateway.kill();
    let before = tokens.exchanges_of("a");
    let last = before.last().expect("an exchange");
    while last.ends.expect("an end") > Instant::now() {
        pause(Duration::from_millis(50));
    }
    tokens.set_lifetime(Duration::from_secs(3600));
    gateway.start();
    let attempts_before = upstream.attempt_count();
    assert_all_ok(&at_once(&gateway, 50, "a cube"));
    assert_eq!(tokens.exchanges_of("a").len(), before.len() + 1, "{:#?}", tokens.exchanges_of("a"));
    let expired = last.token.clone().expect("a token");
    assert!(
        used_tokens(&upstream)[attempts_before..].iter().all(|token| *token != expired),
        "an expired token was used"
    );
}

#[test]
fn a_rejected_token_is_refreshed_and_the_account_asked_once_more() {
    let (upstream, tokens, gateway) = start_gateway(account_and_spare);
    gateway.generate(json!({})).ok_json();
    upstream.always_for_token("access-a-1", "status=401");
    gateway.generate(json!({})).ok_json();
    assert_eq!(
        used_tokens(&upstream),
        ["access-a-1", "access-a-1", "access-a-2"],
        "only the same account is asked again, and only once"
    );
    assert_eq!(tokens.exchanges_of("a").len(), 2);
    let record = gateway.final_records(2).pop().expect("a record");
    let attempts: Vec<_> =
        record["attempts"].as_array().expect("attempts").iter().map(|attempt| &attempt["account"]).collect();
    assert_eq!(attempts, ["a", "a"], "{record}");
}

#[test]
fn fifty_parallel_requests_with_a_rejected_token_cause_one_refresh() {
    let (upstream, tokens, gateway) = start_gateway(single_account);
    gateway.generate(json!({})).ok_json();
    upstream.always_for_token("access-a-1", "status=401");
    assert_all_ok(&at_once(&gateway, 50, "a cube"));
    assert_eq!(tokens.exchanges_of("a").len(), 2, "{:#?}", tokens.exchanges_of("a"));
    assert_eq!(used_tokens(&upstream).iter().filter(|token| *token == "access-a-2").count(), 50);
}

#[test]
fn tokens_that_stay_rejected_are_refreshed_few_times() {
    let (upstream, tokens, gateway) = start_gateway(account_and_spare);
    gateway.generate(json!({})).ok_json();
    for number in 1..20 {
        upstream.always_for_token(&format!("access-a-{number}"), "status=401");
    }
    for _ in 0..5 {
        gateway.generate(json!({})).ok_json();
    }
    assert!(tokens.exchanges_of("a").len() <= 3, "{} refreshes", tokens.exchanges_of("a").len());
    let uses = used_tokens(&upstream).iter().filter(|token| token.starts_with("access-a-")).count();
    assert!(uses <= 5, "{:?}", used_tokens(&upstream));
}

#[test]
fn a_rotated_refresh_token_is_used_next_and_survives_kills() {
    let (upstream, tokens, mut gateway) = start_gateway(single_account);
    gateway.generate(json!({})).ok_json();
    for round in 1..4_usize {
        gateway.kill();
        gateway.start();
        // A valid token is used after a restart, without a refresh.
        gateway.generate(json!({})).ok_json();
        assert_eq!(tokens.exchanges_of("a").len(), round, "{:#?}", tokens.exchanges_of("a"));
        upstream.always_for_token(&format!("access-a-{round}"), "status=401");
        gateway.generate(json!({})).ok_json();
    }
    assert_eq!(refresh_tokens(&tokens.exchanges_of("a")), ["refresh-a-0", "refresh-a-1", "refresh-a-2", "refresh-a-3"]);
    assert!(tokens.exchanges_of("a").iter().all(|exchange| exchange.status == 200));
}

#[test]
fn a_kill_right_after_a_refresh_does_not_lose_the_rotated_token() {
    let (upstream, tokens, mut gateway) = start_gateway(single_account);
    for round in 0..5 {
        std::thread::scope(|scope| {
            let address = gateway.address();
            let call = gateway.call(json!({}));
            scope.spawn(move || drop(call.try_send(address)));
            // The upstream has received the new token, so it must already be on disk.
            upstream.wait_until("the token is used", |attempts| {
                attempts.iter().any(|attempt| attempt.token == format!("access-a-{}", round + 1))
            });
            gateway.kill();
        });
        upstream.always_for_token(&format!("access-a-{}", round + 1), "status=401");
        gateway.start();
    }
    gateway.generate(json!({})).ok_json();
    assert!(tokens.exchanges_of("a").iter().all(|exchange| exchange.status == 200), "{:#?}", tokens.exchanges_of("a"));
}

#[test]
fn a_revoked_refresh_token_disables_only_its_account() {
    let (upstream, tokens, mut gateway) = start_gateway(account_and_spare);
    gateway.generate(json!({})).ok_json();
    tokens.revoke("a");
    upstream.always_for_token("access-a-1", "status=401");
    assert_all_ok(&at_once(&gateway, 10, "a cube"));
    let account = eventually("the account is disabled", || {
        let account = gateway.account("a");
        (account["state"] == "disabled").then_some(account)
    });
    let reason = account["disabled_reason"].as_str().unwrap_or_default();
    assert!(reason.contains("invalid_grant") || reason.contains("revoked"), "{account}");
    for secret in ["refresh-a-", "access-a-", "secret-a", "token-canary"] {
        assert!(!account.to_string().contains(secret) && !gateway.output().contains(secret), "{secret}: {account}");
    }
    let (attempts_before, exchanges) = (upstream.attempt_count(), tokens.exchanges_of("a").len());
    assert_eq!(exchanges, 2, "more than one refresh was sent for ten requests");
    assert_all_ok(&at_once(&gateway, 10, "a cube"));
    gateway.kill();
    gateway.start();
    assert_all_ok(&at_once(&gateway, 10, "a cube"));
    assert_eq!(tokens.exchanges_of("a").len(), exchanges, "the revoked refresh token was sent again");
    assert!(used_tokens(&upstream)[attempts_before..].iter().all(|token| token == "sk-upstream-spare"));
}

#[test]
fn a_disabled_only_account_causes_no_401_for_callers() {
    let (upstream, _tokens, gateway) = start_gateway_after(|tokens| tokens.revoke("a"), single_account);
    for _ in 0..3 {
        let answer = gateway.generate(json!({}));
        answer.error_object(answer.status);
        assert!([502, 503].contains(&answer.status), "{}", answer.status);
        assert!(!answer.text().contains("canary"), "{}", answer.text());
    }
    assert_eq!((upstream.attempt_count(), gateway.final_records(3).len()), (0, 3));
}

#[test]
fn client_credentials_are_exchanged_without_a_refresh_token() {
    let (upstream, tokens, mut gateway) = start_gateway(|upstream, tokens| {
        vec![Account::client_credentials("a", upstream, tokens).with_line("scope = \"images\"")]
    });
    assert_all_ok(&at_once(&gateway, 20, "a cube"));
    let exchange = &tokens.exchanges_of("a")[0];
    assert_eq!(
        (exchange.form["grant_type"].as_str(), exchange.form["scope"].as_str()),
        ("client_credentials", "images")
    );
    assert!(!exchange.form.contains_key("refresh_token"));
    upstream.always_for_token("access-a-1", "status=401");
    gateway.kill();
    gateway.start();
    assert_all_ok(&at_once(&gateway, 20, "a cube"));
    assert_eq!(tokens.exchanges_of("a").len(), 2);
}

#[test]
fn another_account_serves_while_a_token_endpoint_is_down() {
    let (upstream, tokens, gateway) = start_gateway_after(|tokens| tokens.set_down(true), account_and_spare);
    assert_all_ok(&at_once(&gateway, 10, "a cube"));
    assert!(used_tokens(&upstream).iter().all(|token| token == "sk-upstream-spare"), "{:?}", used_tokens(&upstream));
    let account = gateway.account("a");
    // The account may be in a short cooldown, but it is not disabled: nothing shows that its credentials are invalid.
    assert!(account["state"] == "cooling_down" || account["state"] == "enabled", "{account}");
    assert_eq!(account["disabled_reason"], Value::Null, "{account}");
    tokens.set_down(false);
    // When the token endpoint is up again, the account serves without an operator's action.
    eventually("the account serves", || {
        gateway.generate(json!({})).ok_json();
        used_tokens(&upstream).iter().any(|token| token == "access-a-1").then_some(())
    });
}

#[test]
fn tokens_are_refreshed_before_they_expire() {
    let lifetime = Duration::from_secs(4);
    let (upstream, tokens, gateway) = start_gateway_after(|tokens| tokens.set_lifetime(lifetime), single_account);
    let start = Instant::now();
    while start.elapsed() < lifetime * 3 {
        gateway.generate(json!({})).ok_json();
        pause(Duration::from_millis(25));
    }
    let exchanges = tokens.exchanges_of("a");
    println!("{} exchanges and {} attempts in {:?}", exchanges.len(), upstream.attempt_count(), start.elapsed());
    assert!((3..=30).contains(&exchanges.len()), "{} exchanges", exchanges.len());
    for attempt in upstream.received_attempts() {
        let token = exchanges.iter().find(|exchange| exchange.token.as_ref() == Some(&attempt.token));
        let ends = token.and_then(|exchange| exchange.ends).expect("a token of this endpoint");
        assert!(attempt.came < ends, "{} had been expired for {:?}", attempt.token, attempt.came - ends);
    }
}

#[test]
fn tokens_are_refreshed_without_requests() {
    let (upstream, tokens, gateway) =
        start_gateway_after(|tokens| tokens.set_lifetime(Duration::from_secs(4)), single_account);
    gateway.generate(json!({})).ok_json();
    eventually("tokens are refreshed without a request", || (tokens.exchanges_of("a").len() >= 3).then_some(()));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn tokens_are_in_no_file_and_no_log() {
    let (upstream, tokens, gateway) = start_gateway(single_account);
    assert_all_ok(&at_once(&gateway, 3, "a cube"));
    upstream.always_for_token("access-a-1", "status=401");
    gateway.generate(json!({})).ok_json();
    assert_eq!(tokens.exchanges_of("a").len(), 2);
    let mut folders = vec![gateway.home().join("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path()).expect("a file");
            for secret in ["refresh-a-0", "refresh-a-1", "refresh-a-2", "access-a-1", "access-a-2", "secret-a"] {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "{secret} is in {}", entry.path().display());
            }
        }
    }
    for secret in ["refresh-a-", "access-a-", "secret-a"] {
        assert!(!gateway.output().contains(secret), "{secret} is in the log");
    }
}

/// A gateway with the OAuth account `a` in its store.
fn start_with_stored_account(upstream: &FakeUpstream, tokens: &FakeTokens) -> Gateway {
    let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &[], &[("IT_ADMIN", ADMIN_TOKEN)]);
    gateway.watch_tokens(tokens);
    let account = json!({"name": "a", "kind": "oauth", "base_url": upstream.base_url(), "token_url": tokens.url(),
        "grant": "refresh_token", "client_id": "client-a", "client_secret": "secret-a", "refresh_token": "refresh-a-0"});
    Call::post("/admin/v1/accounts").key(ADMIN_TOKEN).json(&account).send(gateway.address()).ok_json();
    gateway
}

fn change_account(gateway: &Gateway, change: &Value) -> Value {
    Call::patch("/admin/v1/accounts/a").key(ADMIN_TOKEN).json(change).send(gateway.address()).ok_json()
}

#[test]
fn a_rotated_refresh_token_survives_a_change_of_the_other_secrets() {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    let gateway = start_with_stored_account(&upstream, &tokens);
    gateway.generate(json!({})).ok_json();
    change_account(&gateway, &json!({"client_secret": "secret-a"}));
    gateway.generate(json!({})).ok_json();
    change_account(&gateway, &json!({"secret_headers": {"x-api-key": "header-canary"}}));
    gateway.generate(json!({})).ok_json();
    let rotated = gateway.program().env("IT_SECRET_A", "secret-a").args(["account", "rotate", "a"]);
    rotated.args(["--client-secret-env", "IT_SECRET_A", "--config"]).args([gateway.config()]).run().ok_stdout();
    eventually("the server applies the command", || {
        gateway.generate(json!({})).ok_json();
        used_tokens(&upstream).ends_with(&["access-a-4".to_owned()]).then_some(())
    });
    let exchanges = tokens.exchanges_of("a");
    assert_eq!(refresh_tokens(&exchanges), ["refresh-a-0", "refresh-a-1", "refresh-a-2", "refresh-a-3"]);
    assert!(exchanges.iter().all(|exchange| exchange.status == 200), "{exchanges:#?}");

    // A wrong client secret is noticed at once, and costs no refresh token.
    change_account(&gateway, &json!({"client_secret": "guess"}));
    assert!(gateway.generate(json!({})).status >= 500);
    assert_eq!(gateway.account("a")["state"], "disabled");
    change_account(&gateway, &json!({"client_secret": "secret-a"}));
    change_account(&gateway, &json!({"enabled": true}));
    gateway.generate(json!({})).ok_json();
    assert_eq!(refresh_tokens(&tokens.exchanges_of("a")).last(), Some(&"refresh-a-4"));
}

#[test]
fn a_new_refresh_token_and_a_new_address_end_the_use_of_the_stored_token() {
    let (upstream, other, tokens) = (FakeUpstream::start(), FakeUpstream::start(), FakeTokens::start());
    let gateway = start_with_stored_account(&upstream, &tokens);
    gateway.generate(json!({})).ok_json();
    change_account(&gateway, &json!({"refresh_token": "refresh-a-1"}));
    gateway.generate(json!({})).ok_json();
    let settings = json!({"base_url": other.base_url(), "token_url": tokens.url(), "grant": "refresh_token",
        "client_id": "client-a"});
    let secrets = json!({"settings": settings, "client_secret": "secret-a", "refresh_token": "refresh-a-1"});
    change_account(&gateway, &secrets);
    assert!(gateway.generate(json!({})).status >= 500, "the refresh token was used before");
    assert_eq!(refresh_tokens(&tokens.exchanges_of("a")), ["refresh-a-0", "refresh-a-1", "refresh-a-1"]);
    assert_eq!(other.accepted(), 0, "a token was sent to an address for which it was not issued");
}
