//! The limit on work: it counts every request of a user, also those that never become a job, and refuses before a body is
//! read.

use serde_json::{Value, json};

use super::{ask, open, refused};
use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, request, stretched_png};
use crate::pages::users::sign_in_ada;

const USERS: &str = "/admin/v1/users";

/// Invites a user with this limit on work, and returns the secret of a key. The limit is in force with the key.
fn user_with_work(gateway: &Gateway, name: &str, units: u32) -> String {
    let limit = format!("work_per_minute={units}");
    gateway.run_command(&["user", "invite", name, "--limit", &limit]).ok_stdout();
    another_key(gateway, name)
}

fn another_key(gateway: &Gateway, user: &str) -> String {
    let made = gateway.run_command(&["key", "create", "--name", "one of several", "--user", user, "--json"]).json();
    made["secret"].as_str().expect("a secret").to_owned()
}

fn models(gateway: &Gateway, secret: &str) -> Answer {
    Call::get("/v1/models").key(secret).send(gateway.address())
}

/// Asserts that a limit on work refused the request.
#[track_caller]
fn out_of_work(answer: &Answer, scope: &str) -> Value {
    let error = refused(answer, "rate_limit_exceeded", "work_per_minute", scope);
    let wait: u64 = answer.header("retry-after").and_then(|seconds| seconds.parse().ok()).expect("a wait");
    assert!((1..=60).contains(&wait), "{wait}");
    error
}

/// Sends a request that the rules refuse and that costs some 500 units, so that a limit of 300 is not free again for
/// forty seconds.
fn use_up_work(gateway: &Gateway, secret: &str) {
    let long = request(json!({"prompt": "x".repeat(400_000)}));
    assert_eq!(Call::generation().json(&long).key(secret).send(gateway.address()).status, 400);
}

/// The number of refusals in the metrics because of this limit.
fn refused_work(gateway: &Gateway, limit: &str) -> u64 {
    let name = format!("imagate_refused_work_total{{limit=\"{limit}\"}} ");
    let text = gateway.metrics_text();
    text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().expect("a number"))
}

#[test]
fn all_keys_and_sessions_of_a_user_share_their_work_and_another_user_has_its_own() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let mut ada = sign_in_ada(&gateway);
    let (limit, path) = (json!({"limits": {"work_per_minute": 300}}), format!("{USERS}/ada%40desk"));
    ask(&gateway, Call::patch(&path).json(&limit)).ok_json();
    let (first, second) = (another_key(&gateway, "ada@desk"), another_key(&gateway, "ada@desk"));
    assert_eq!(ada.get("/keys").status, 200);
    use_up_work(&gateway, &first);
    [&first, &second].iter().for_each(|secret| drop(out_of_work(&models(&gateway, secret), "user")));
    let page = ada.get("/keys");
    assert_eq!((page.status, page.header("retry-after").is_some()), (429, true), "{}", page.text());

    let other = user_with_work(&gateway, "lee", 1_000);
    assert_eq!(models(&gateway, &other).status, 200);
    assert_eq!(refused_work(&gateway, "work_per_minute"), 3);
    let user = ask(&gateway, Call::get(&path)).ok_json();
    assert_eq!(user["refused_work"], 3, "{user}");
    assert_eq!(ask(&gateway, Call::get(&format!("{USERS}/lee"))).ok_json()["refused_work"], 0);
    let keys = ask(&gateway, Call::get("/admin/v1/keys?user=ada%40desk")).ok_json();
    let counts = keys["data"].as_array().expect("keys").iter().filter_map(|key| key["refused_work"].as_u64());
    assert_eq!(counts.sum::<u64>(), 2, "{keys}");
}

#[test]
fn a_limit_of_a_key_and_of_a_group_counts_beside_that_of_the_user() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "work_per_minute = 600");
    let secret = user_with_work(&gateway, "kim", 300);
    use_up_work(&gateway, &secret);
    out_of_work(&models(&gateway, &secret), "user");
    assert_eq!(models(&gateway, gateway.secret()).status, 200, "a key without a user counts by itself");
    let made = gateway.run_command(&["key", "create", "--name", "tight", "--limit", "work_per_minute=300", "--json"]);
    let tight = made.json()["secret"].as_str().expect("a secret").to_owned();
    use_up_work(&gateway, &tight);
    out_of_work(&models(&gateway, &tight), "key");
    out_of_work(&models(&gateway, gateway.secret()), "group");
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_large_upload_is_refused_before_its_body_and_its_client_can_read_the_answer() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let secret = user_with_work(&gateway, "kim", 300);
    use_up_work(&gateway, &secret);
    let announced = Call::edit().header("content-type", "multipart/form-data; boundary=b").key(&secret);
    out_of_work(&announced.announcing_only(50 << 20).send(gateway.address()), "user");
    let sent = Form::with_required_fields().big_file("image", stretched_png(1024, 1024, 45 << 20)).call();
    out_of_work(&sent.key(&secret).send(gateway.address()), "user");
    let usage = ask(&gateway, Call::get(&format!("{USERS}/kim"))).ok_json();
    let used = usage["limit_usage"][0]["used"].as_f64().expect("a number");
    assert!(used <= 530.0, "a refused upload costs nothing: {usage}");
}

#[test]
fn requests_that_the_rules_refuse_run_into_the_limit() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let secret = user_with_work(&gateway, "kim", 200);
    // A small body that decodes to four megabytes, whose tool call the rules refuse.
    let values = format!("[0{}]", ",0".repeat(2_000_000));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"generate_image","arguments":{{"prompt":"x","size":{values}}}}}}}"#
    );
    let body = zstd::encode_all(body.as_bytes(), 19).expect("compressed bytes");
    assert!(body.len() < 2_000);
    let call = || {
        let call = Call::post("/mcp").header("accept", "application/json, text/event-stream");
        call.header("content-type", "application/json").header("content-encoding", "zstd").bytes(body.clone())
    };
    let until_refused = |call: &dyn Fn() -> Call, secret: &str| -> Vec<u16> {
        let mut statuses = Vec::new();
        while statuses.len() < 20 && statuses.last() != Some(&429) {
            statuses.push(call().key(secret).send(gateway.address()).status);
        }
        statuses
    };
    let statuses = until_refused(&call, &secret);
    assert!(statuses.first() != Some(&429) && statuses.last() == Some(&429), "{statuses:?}");

    let secret = user_with_work(&gateway, "lee", 200);
    let statuses = until_refused(&|| Call::generation().json(&json!({"prompt": 7})), &secret);
    assert!(statuses.starts_with(&[400; 5]) && statuses.last() == Some(&429), "{statuses:?}");
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_busy_agent_is_not_refused_by_default() {
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream).with_responses_protocol();
    let gateway = Gateway::with("", &[account]);
    let secret = another_key(&gateway, "kim");
    let body = json!({"model": "gpt-5.5", "input": "a turn of a long conversation ".repeat(33_000)}).to_string();
    for _ in 0..20 {
        let turn = Call::post("/v1/responses").header("content-type", "application/json").bytes(body.clone());
        assert_ne!(turn.key(&secret).send(gateway.address()).status, 429);
    }
    assert_eq!(refused_work(&gateway, "work_per_minute"), 0);
}

#[test]
fn a_repeat_counts_as_a_request_and_gets_its_answer_when_the_budget_is_spent() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "requests_per_minute = 4\nbudget_usd = 0.006");
    let send = |key: &str| {
        let body = json!({"model": "gpt-image-2", "prompt": "a cube", "quality": "low", "size": "1024x1024"});
        Call::generation().json(&body).key(gateway.secret()).header("idempotency-key", key).send(gateway.address())
    };
    assert_eq!(send("first").status, 200);
    refused(&send("second"), "insufficient_quota", "budget_usd", "group");
    for _ in 0..3 {
        let repeat = send("first");
        assert_eq!((repeat.status, repeat.header("x-imagate-replayed")), (200, Some("true")));
    }
    refused(&send("first"), "rate_limit_exceeded", "requests_per_minute", "group");
    assert_eq!((upstream.attempt_count(), refused_work(&gateway, "requests_per_minute")), (1, 1));
}

#[test]
fn an_upload_without_budget_is_refused_before_it_is_read_and_a_repeat_is_not() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "budget_usd = 1.0");
    let made = gateway.run_command(&["key", "create", "--name", "spent", "--limit", "budget_usd=0", "--json"]).json();
    let secret = made["secret"].as_str().expect("a secret");
    let upload = || Call::edit().header("content-type", "multipart/form-data; boundary=b").key(secret);
    // The body never comes, so an answer shows that nothing waits for it.
    let answer = upload().announcing_only(50 << 20).send(gateway.address());
    refused(&answer, "insufficient_quota", "budget_usd", "key");
    let unknown = upload().header("idempotency-key", "unknown").announcing_only(50 << 20).send(gateway.address());
    refused(&unknown, "insufficient_quota", "budget_usd", "key");
    let response = Call::post("/v1/responses").header("content-type", "application/json").key(secret);
    refused(&response.announcing_only(50 << 20).send(gateway.address()), "insufficient_quota", "budget_usd", "key");
    assert_eq!(refused_work(&gateway, "budget_usd"), 3);

    let edit = |key: &str| {
        let form = Form::with_required_fields().text("quality", "low").text("size", "1024x1024");
        let form = form.big_file("image", stretched_png(64, 64, 1 << 16));
        form.call().key(gateway.secret()).header("idempotency-key", key).send(gateway.address())
    };
    assert_eq!(edit("paid").status, 200);
    let id = gateway.key_id().to_owned();
    ask(&gateway, Call::patch(&format!("/admin/v1/keys/{id}")).json(&json!({"limits": {"budget_usd": 0}}))).ok_json();
    refused(&edit("other"), "insufficient_quota", "budget_usd", "key");
    assert_eq!(edit("paid").header("x-imagate-replayed"), Some("true"));
    assert_eq!(upstream.attempt_count(), 1);
}
