//! The admin API for accounts: the running gateway applies changes at once, only the admin token gives access, and
//! no answer contains a credential.

mod token;

use std::path::Path;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeTokens, FakeUpstream, Gateway, eventually};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const ACCOUNTS: &str = "/admin/v1/accounts";

/// A gateway with the admin token of this module, at the most verbose level of the log.
fn open(accounts: &[Account]) -> Gateway {
    let secrets = [("IT_ADMIN", TOKEN), ("IMAGATE_LOG", "trace")];
    Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", accounts, &secrets)
}

/// The path of one account.
fn account_path(name: &str) -> String {
    format!("{ACCOUNTS}/{name}")
}

/// Sends a call with the admin token, and checks what must hold for every answer.
#[track_caller]
fn ask(gateway: &Gateway, call: Call) -> Answer {
    let answer = call.key(TOKEN).send(gateway.address());
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    assert!(answer.header("x-request-id").is_some(), "{answer:?}");
    for canary in ["canary", TOKEN] {
        assert!(!answer.text().contains(canary), "{}", answer.text());
    }
    answer
}

/// The body of an answer with status 200, checked against a component of the document.
#[track_caller]
fn good(gateway: &Gateway, call: Call, component: &str) -> Value {
    let answer = ask(gateway, call).ok_json();
    check(component, &answer);
    answer
}

/// The code and the `param` of an error, which must have the form that the document describes.
#[track_caller]
fn refused(answer: &Answer, status: u16) -> (String, Option<String>) {
    let error = answer.error_object(status);
    check("ErrorResponse", &answer.json());
    assert_eq!(answer.should_retry(), Some("false"));
    let text = |name: &str| error[name].as_str().map(str::to_owned);
    (text("code").unwrap_or_default(), text("param"))
}

/// Checks a value against a component of the document.
#[track_caller]
fn check(component: &str, value: &Value) {
    let validator = validator(component);
    let faults: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{component}: {faults:?} in {value}");
}

fn validator(component: &str) -> Validator {
    let document: Value = serde_json::from_str(include_str!("../../openapi/admin.json")).expect("the document is JSON");
    let mut components = document["components"].clone();
    replace_nullable(&mut components);
    let schema = json!({ "$ref": format!("#/components/schemas/{component}"), "components": components });
    jsonschema::draft7::new(&schema).expect("a schema")
}

/// Replaces the keyword `nullable` of OpenAPI 3.0 by a JSON Schema that also accepts null.
fn replace_nullable(schema: &mut Value) {
    if let Some(members) = schema.as_object_mut() {
        members.values_mut().for_each(replace_nullable);
        if members.remove("nullable") == Some(Value::Bool(true)) {
            *schema = json!({ "anyOf": [{ "type": "null" }, schema.take()] });
        }
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(replace_nullable);
    }
}

/// The JSON of a new account at this upstream, whose key is a canary.
fn new_account(name: &str, upstream: &FakeUpstream) -> Value {
    json!({"name": name, "kind": "api_key", "base_url": upstream.base_url(), "api_key": format!("sk-canary-{name}")})
}

fn names(gateway: &Gateway) -> Vec<String> {
    let list = good(gateway, Call::get(ACCOUNTS), "AccountList");
    let accounts = list["data"].as_array().expect("a list").iter();
    accounts.map(|account| account["name"].as_str().expect("a name").to_owned()).collect()
}

/// The token with which the gateway calls the upstream for a generation.
fn token_used(upstream: &FakeUpstream, gateway: &Gateway) -> Option<String> {
    let before = upstream.attempt_count();
    gateway.generate(json!({}));
    upstream.received_attempts().into_iter().nth(before).map(|attempt| attempt.token)
}

/// Waits until the gateway calls the upstream with this token.
#[track_caller]
fn wait_for_token(description: &str, upstream: &FakeUpstream, gateway: &Gateway, expected: Option<&str>) {
    eventually(description, || (token_used(upstream, gateway).as_deref() == expected).then_some(()));
}

/// Every byte below a folder.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let read = |path: std::path::PathBuf| {
        if path.is_dir() { bytes_below(&path) } else { std::fs::read(path).unwrap_or_default() }
    };
    entries.flat_map(read).collect()
}

#[track_caller]
fn check_no_leak(gateway: &Gateway) {
    eventually("the gateway logs an answer", || gateway.output().contains("answered").then_some(()));
    for canary in ["sk-canary", "secret-canary", "refresh-canary", "header-canary", TOKEN] {
        assert!(!gateway.output().contains(canary), "{canary} is logged");
        let disk = bytes_below(gateway.home());
        assert!(
            !disk.windows(canary.len()).any(|window| window == canary.as_bytes()),
            "{canary} is stored in plain text"
        );
    }
}

#[test]
fn settings_and_secrets_of_an_account_are_changed_and_tested() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream).with_free_tier()]);
    good(&gateway, Call::post(ACCOUNTS).json(&new_account("second", &upstream)), "Account");
    wait_for_token("a paid account goes first", &upstream, &gateway, Some("sk-canary-second"));
    let tested = good(&gateway, Call::post(&format!("{}/test", account_path("second"))), "AccountTest");
    assert_eq!((&tested["result"], &tested["status"]), (&json!("accepted"), &json!(200)));
    let change = json!({"settings": {"base_url": upstream.base_url(), "priority": 5}, "api_key": "sk-canary-third"});
    let changed = good(&gateway, Call::patch(&account_path("second")).json(&change), "Account");
    assert_eq!((&changed["priority"], &changed["settings"]), (&json!(5), &change["settings"]));
    assert!(changed["activity"]["succeeded"].as_u64() > Some(0), "{changed}");
    wait_for_token("the new secret is used", &upstream, &gateway, Some("sk-canary-third"));
    let elsewhere = json!({"settings": {"base_url": "https://elsewhere.example/v1"}});
    let refused = Call::patch(&account_path("second")).json(&elsewhere).key(TOKEN).send(gateway.address());
    assert_eq!(refused.error_object(400)["param"], "api_key", "stored secrets are not sent elsewhere");
    let readonly = Call::patch(&account_path("only")).json(&json!({"settings": {}})).key(TOKEN);
    assert_eq!(readonly.send(gateway.address()).error_object(409)["code"], "account_read_only");
    check_no_leak(&gateway);
}

#[test]
fn the_gateway_applies_every_change_of_an_account() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream).with_free_tier()]);
    let created = good(&gateway, Call::post(ACCOUNTS).json(&new_account("second", &upstream)), "Account");
    let fields = json!({"name": "second", "source": "store", "kind": "api_key", "protocol": "images", "tier": "paid",
        "base_url": upstream.base_url(), "groups": ["default"], "priority": 0, "concurrency": 8,
        "large_concurrency": 2, "state": "enabled"});
    for (name, value) in fields.as_object().expect("fields") {
        assert_eq!(&created[name], value, "{name}: {created}");
    }
    wait_for_token("a paid account goes first", &upstream, &gateway, Some("sk-canary-second"));
    assert_eq!(names(&gateway), ["only", "second"]);

    let change = json!({"enabled": false, "reason": "the invoice is in dispute"});
    let disabled = good(&gateway, Call::patch(&account_path("second")).json(&change), "Account");
    assert_eq!((&disabled["state"], &disabled["disabled_reason"]), (&json!("disabled"), &change["reason"]));
    assert!(disabled["disabled_at"].is_string(), "{disabled}");
    wait_for_token("a disabled account is left alone", &upstream, &gateway, Some("sk-upstream-only"));
    assert_eq!(good(&gateway, Call::get(&account_path("second")), "Account"), disabled);

    let id = created["id"].as_str().expect("an id");
    let mut enabled = good(&gateway, Call::patch(&account_path(id)).json(&json!({"enabled": true})), "Account");
    assert_eq!(enabled["activity"]["failed"], 0, "{enabled}");
    enabled["activity"] = created["activity"].clone();
    assert_eq!(enabled, created, "the account is as it was at first");
    wait_for_token("an enabled account is back", &upstream, &gateway, Some("sk-canary-second"));

    let deleted = good(&gateway, Call::delete(&account_path("second")), "DeletedAccount");
    assert_eq!(deleted, json!({"id": id, "name": "second", "deleted": true}));
    wait_for_token("a deleted account is gone", &upstream, &gateway, Some("sk-upstream-only"));
    let again = ask(&gateway, Call::delete(&account_path("second")));
    assert_eq!(refused(&again, 404), ("account_not_found".to_owned(), None));
    assert_eq!(names(&gateway), ["only"]);
    check_no_leak(&gateway);
}

#[test]
fn accounts_of_the_api_survive_a_kill_and_commands_see_them() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&[Account::for_upstream("only", &upstream).with_free_tier()]);
    good(&gateway, Call::post(ACCOUNTS).json(&new_account("kept", &upstream)), "Account");
    let change = json!({"enabled": false});
    good(&gateway, Call::patch(&account_path("only")).json(&change), "Account");
    gateway.kill();
    gateway.start();
    wait_for_token("the kept account serves", &upstream, &gateway, Some("sk-canary-kept"));
    let only = good(&gateway, Call::get(&account_path("only")), "Account");
    assert_eq!((&only["source"], &only["state"]), (&json!("file"), &json!("disabled")));
    let by_command = gateway.account("kept");
    assert_eq!((&by_command["source"], &by_command["state"]), (&json!("store"), &json!("enabled")));
    check_no_leak(&gateway);
}

#[test]
fn an_oauth_account_works_with_all_its_secrets() {
    let (upstream, tokens) = (FakeUpstream::start(), FakeTokens::start());
    let gateway = open(&[Account::for_upstream("only", &upstream).with_free_tier()]);
    gateway.watch_tokens(&tokens);
    // The names and secrets that the fake token endpoint of the kit expects.
    let account = json!({"name": "a", "kind": "oauth", "base_url": upstream.base_url(), "token_url": tokens.url(),
        "grant": "refresh_token", "client_id": "client-a", "client_secret": "secret-a", "refresh_token": "refresh-a-0",
        "concurrency": 2.0, "headers": {"x-project": "p"}, "secret_headers": {"x-api-key": "header-canary"}});
    let created = good(&gateway, Call::post(ACCOUNTS).json(&account), "Account");
    assert_eq!((&created["kind"], &created["concurrency"]), (&json!("oauth"), &json!(2)));
    assert!(!created.to_string().contains("secret-a") && !created.to_string().contains("refresh-a"), "{created}");
    wait_for_token("its token is fetched and used", &upstream, &gateway, Some("access-a-1"));
    let attempt = upstream.received_attempts().pop().expect("an attempt");
    assert_eq!((attempt.header("x-project"), attempt.header("x-api-key")), (Some("p"), Some("header-canary")));
    for secret in ["secret-a", "refresh-a-", "access-a-"] {
        assert!(!gateway.output().contains(secret), "{secret} is logged");
    }
    check_no_leak(&gateway);
}

#[test]
fn an_account_of_the_file_cannot_be_deleted() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream)]);
    let answer = ask(&gateway, Call::delete(&account_path("only")));
    assert_eq!(refused(&answer, 409), ("account_read_only".to_owned(), None));
    assert!(answer.text().contains("settings file"), "{}", answer.text());
    let refusal = ask(&gateway, Call::post(ACCOUNTS).json(&new_account("only", &upstream)));
    assert_eq!(refused(&refusal, 409), ("account_exists".to_owned(), Some("name".to_owned())));
    good(&gateway, Call::post(ACCOUNTS).json(&new_account("other", &upstream)), "Account");
    let refusal = ask(&gateway, Call::post(ACCOUNTS).json(&new_account("other", &upstream)));
    assert_eq!(refused(&refusal, 409), ("account_exists".to_owned(), Some("name".to_owned())));
    assert_eq!(names(&gateway), ["only", "other"]);
}

#[test]
#[cfg(feature = "admin")]
fn the_generated_client_manages_accounts() {
    use imagate::admin::{connect, types};
    let gateway = open(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let admin = connect(&format!("http://{}/", gateway.address()), TOKEN).expect("a client");
        let new = types::NewAccount::builder().name("drawn").kind(types::AccountKind::Simulator);
        let created = admin.create_account().body(new).send().await.expect("an account");
        assert_eq!(created.state, types::AccountState::Enabled);
        let change = types::AccountChange::builder().enabled(false);
        let disabled = admin.update_account().name("drawn").body(change).send().await.expect("an account");
        assert_eq!(disabled.disabled_reason.as_deref(), Some("disabled by an operator"));
        let listed = admin.list_accounts().send().await.expect("a list");
        assert!(listed.data.iter().any(|account| account.id == created.id));
        assert!(admin.delete_account().name("drawn").send().await.expect("an answer").deleted);
        let gone = admin.retrieve_account().name("drawn").send().await.expect_err("it is gone");
        assert_eq!(gone.status(), Some(404));
        let stranger = connect(&format!("http://{}", gateway.address()), "no token").expect("a client");
        assert_eq!(stranger.list_accounts().send().await.expect_err("a 401").status(), Some(401));
    });
}

#[test]
fn an_account_in_cooldown_shows_its_end_and_cause() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream)]);
    upstream.always_for_token("sk-upstream-only", "status=429 retry-after=300");
    gateway.generate(json!({}));
    let account = eventually("the cooldown is stored", || {
        let account = good(&gateway, Call::get(&account_path("only")), "Account");
        (account["state"] == "cooling_down").then_some(account)
    });
    assert!(account["cooling_until"].is_string() && account["cooling_cause"].is_string(), "{account}");
    let enabled = good(&gateway, Call::patch(&account_path("only")).json(&json!({"enabled": true})), "Account");
    assert_eq!((&enabled["state"], &enabled["cooling_until"]), (&json!("enabled"), &Value::Null));
}

#[test]
fn a_field_at_fault_is_named_and_nothing_is_stored() {
    let upstream = FakeUpstream::start();
    let gateway = open(&[Account::for_upstream("only", &upstream)]);
    let base = new_account("second", &upstream);
    let cases = [
        ("bas", json!(1), "bas"),
        ("name", json!("a b"), "name"),
        ("kind", json!("codex"), "kind"),
        ("base_url", Value::Null, "base_url"),
        ("base_url", json!("http://far.example/v1"), "base_url"),
        ("api_key", json!("line\nbreak"), "api_key"),
        ("base_url", json!("https://far.example/v1/responses"), "base_url"),
        ("api_key", json!("Bearer key-canary"), "api_key"),
        ("api_key", json!("\"key-canary\""), "api_key"),
        ("api_key", json!({"file": "/etc/hostname"}), "api_key"),
        ("token_url", json!("https://a.example"), "token_url"),
        ("concurrency", json!(0), "concurrency"),
        ("groups", json!([]), "groups"),
        ("headers", json!({"authorization": "x"}), "headers.authorization"),
        ("headers", json!({"x": {"env": "HOME"}}), "headers.x"),
        ("secret_headers", json!({"x-key": "line\nbreak"}), "secret_headers.x-key"),
        ("secret_headers", json!({"host": "header-canary"}), "secret_headers.host"),
    ];
    for (field, value, param) in cases {
        let mut account = base.clone();
        account[field] = value;
        let answer = ask(&gateway, Call::post(ACCOUNTS).json(&account));
        assert_eq!(refused(&answer, 400), ("invalid_request_error".to_owned(), Some(param.to_owned())), "{account}");
    }
    for body in ["", "[]", "{", "\"x\""] {
        let call = Call::post(ACCOUNTS).header("content-type", "application/json").bytes(body);
        assert_eq!(refused(&ask(&gateway, call), 400), ("invalid_request_error".to_owned(), None), "{body}");
    }
    let change = json!({"enabled": true, "reason": "x"});
    let answer = ask(&gateway, Call::patch(&account_path("only")).json(&change));
    assert_eq!(refused(&answer, 400).1.as_deref(), Some("reason"));
    assert_eq!(names(&gateway), ["only"]);
    check_no_leak(&gateway);
}

/// Addresses at which a cloud offers the credentials of a machine, in the forms in which a URL can have them.
const LINK_LOCAL_HOSTS: [&str; 9] = [
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "0.0.0.0",
    "0xa9fea9fe",
    "169.254.43518",
];

#[test]
fn no_account_is_at_a_link_local_address_unless_the_file_allows_it() {
    let gateway = open(&[]);
    for host in LINK_LOCAL_HOSTS {
        let url = format!("http://{host}/v1");
        let key =
            json!({"name": "a", "kind": "api_key", "allow_http": true, "base_url": url, "api_key": "sk-canary-a"});
        assert_eq!(
            refused(&ask(&gateway, Call::post(ACCOUNTS).json(&key)), 400).1.as_deref(),
            Some("base_url"),
            "{host}"
        );
        let oauth = json!({"name": "a", "kind": "oauth", "allow_http": true, "base_url": "https://a.example/v1",
            "token_url": url, "grant": "refresh_token", "refresh_token": "canary-refresh"});
        let answer = ask(&gateway, Call::post(ACCOUNTS).json(&oauth));
        assert_eq!(refused(&answer, 400).1.as_deref(), Some("token_url"), "{host}");
        let service = json!({"base_url": url, "allow_http": true, "on_error": "closed"});
        let group = json!({"name": "g", "policy": {"filter": {"moderation": service}}});
        let answer = ask(&gateway, Call::post("/admin/v1/groups").json(&group));
        assert_eq!(refused(&answer, 400).1.as_deref(), Some("policy.filter.moderation.base_url"), "{host}");
    }
    assert!(!names(&gateway).contains(&"a".to_owned()));
    let gateway = Gateway::with_secrets(
        "admin_token = { env = \"IT_ADMIN\" }\nallow_link_local = true",
        &[],
        &[("IT_ADMIN", TOKEN)],
    );
    let account = json!({"name": "a", "kind": "api_key", "allow_http": true, "base_url": "http://169.254.169.254/v1",
        "api_key": "sk-canary-a"});
    ask(&gateway, Call::post(ACCOUNTS).json(&account)).ok_json();
}

#[test]
fn addresses_and_methods_that_are_not_there_are_refused_in_our_shape() {
    let gateway = open(&[]);
    let answer = ask(&gateway, Call::delete(ACCOUNTS));
    assert_eq!(refused(&answer, 405).0, "method_not_allowed");
    assert_eq!(answer.header("allow"), Some("GET, HEAD, POST"));
    let answer = ask(&gateway, Call::post(&account_path("x")).json(&json!({})));
    assert_eq!(refused(&answer, 405).0, "method_not_allowed");
    let allowed = answer.header("allow").unwrap_or_default();
    assert!(["GET", "PATCH", "DELETE"].iter().all(|method| allowed.contains(method)), "{allowed}");
    let answer = ask(&gateway, Call::get(&account_path("nobody")));
    assert_eq!(refused(&answer, 404).0, "account_not_found");
    let nowhere = Call::get("/admin/v1").send(gateway.address());
    assert_eq!(nowhere.error_object(404)["code"], "unknown_url");
    for call in [Call::get("/admin/v1/nothing"), Call::post("/admin/v1/keys/a/b/c").json(&json!({}))] {
        assert_eq!(refused(&ask(&gateway, call), 404).0, "unknown_url");
    }
}
