//! `previous_response_id`: a request that continues a response goes to the account that made it, and to no other.

use serde_json::{Value, json};

use super::{call, response_body};
use crate::kit::{Account, FakeUpstream, Gateway};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A gateway with three accounts, each with its own upstream.
fn start_three_accounts() -> (Vec<FakeUpstream>, Gateway) {
    let upstreams: Vec<_> = NAMES.iter().map(|_| FakeUpstream::start()).collect();
    let accounts: Vec<_> = NAMES
        .iter()
        .zip(&upstreams)
        .map(|(name, upstream)| Account::for_upstream(name, upstream).with_responses_protocol())
        .collect();
    let gateway = Gateway::with("", &accounts);
    (upstreams, gateway)
}

/// The number of attempts at each upstream.
fn attempts(upstreams: &[FakeUpstream]) -> Vec<usize> {
    upstreams.iter().map(FakeUpstream::attempt_count).collect()
}

/// Sends a response request; returns the id of the response and the index of the account that made it.
#[track_caller]
fn respond(gateway: &Gateway, upstreams: &[FakeUpstream], fields: &Value) -> (String, usize) {
    let before = attempts(upstreams);
    let answer = call(gateway).json(&response_body(fields)).send(gateway.address());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let after = attempts(upstreams);
    let maker = (0..after.len()).find(|at| after[*at] > before[*at]).expect("an attempt");
    let text = answer.text();
    let id = text.split("\"id\":\"resp_").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
    (format!("resp_{id}"), maker)
}

#[test]
fn a_response_is_continued_at_the_account_that_made_it() {
    let (upstreams, mut gateway) = start_three_accounts();
    for stream in [false, true] {
        for _ in 0..4 {
            let (id, maker) = respond(&gateway, &upstreams, &json!({"stream": stream}));
            for round in 0..4 {
                let fields = json!({"previous_response_id": id, "stream": round % 2 == 1});
                assert_eq!(respond(&gateway, &upstreams, &fields).1, maker, "{id}");
            }
        }
    }
    // A response is also continued after a kill of the gateway.
    let (id, maker) = respond(&gateway, &upstreams, &json!({}));
    gateway.kill();
    gateway.start();
    for _ in 0..4 {
        assert_eq!(respond(&gateway, &upstreams, &json!({"previous_response_id": id})).1, maker, "{id}");
    }
}

#[test]
fn no_other_account_is_asked_to_continue_a_response() {
    let (upstreams, gateway) = start_three_accounts();
    let (id, maker) = respond(&gateway, &upstreams, &json!({}));
    let before: usize = attempts(&upstreams).iter().sum();
    let continue_response =
        || call(&gateway).json(&response_body(&json!({"previous_response_id": id}))).send(gateway.address());
    upstreams[maker].script_sequence(&format!("sk-upstream-{}", NAMES[maker]), &["status=500"]);
    continue_response().error_object(502);
    assert_eq!(
        attempts(&upstreams).iter().sum::<usize>(),
        before + 1,
        "only the account that made the response may be asked, and only once"
    );
    // Another user cannot continue the response.
    let bobs_key = gateway.run_command(&["key", "create", "--name", "bob", "--user", "bob", "--json"]).json();
    let bobs_call = crate::kit::Call::post("/v1/responses").key(bobs_key["secret"].as_str().expect("a secret"));
    let error =
        bobs_call.json(&response_body(&json!({"previous_response_id": id}))).send(gateway.address()).error_object(400);
    assert_eq!(error["param"], "previous_response_id");
    // If the account is out of service the request is refused, and no other account is asked.
    gateway.run_command(&["account", "disable", NAMES[maker]]).ok_stdout();
    let error = crate::kit::eventually("the account is disabled", || {
        let answer = continue_response();
        (answer.status == 400).then(|| answer.error_object(400))
    });
    assert_eq!(error["param"], "previous_response_id");
    let attempts = attempts(&upstreams);
    let other_attempts: usize = (0..3).filter(|at| *at != maker).map(|at| attempts[at]).sum();
    assert_eq!(other_attempts, 0, "{attempts:?}");
}

#[test]
fn keys_without_a_user_do_not_share_their_responses() {
    let (_upstreams, gateway) = start_three_accounts();
    let key = |name: &str| {
        let made = gateway.run_command(&["key", "create", "--name", name, "--json"]).json();
        made["secret"].as_str().expect("a secret").to_owned()
    };
    let send = |secret: &str, fields: &Value| {
        crate::kit::Call::post("/v1/responses").key(secret).json(&response_body(fields)).send(gateway.address())
    };
    let (first, second) = (key("first"), key("second"));
    let text = send(&first, &json!({})).text();
    let id = text.split("\"id\":\"resp_").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
    let continue_response = json!({"previous_response_id": format!("resp_{id}")});
    assert_eq!(send(&second, &continue_response).error_object(400)["param"], "previous_response_id");
    assert_eq!(send(&first, &continue_response).status, 200);
}
