//! `previous_response_id`: a request that continues a response goes to the account that made it, and to no other.

use serde_json::{Value, json};

use super::{call, task};
use crate::kit::{Account, FakeUpstream, Gateway};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Three accounts, each with an upstream of its own.
fn three() -> (Vec<FakeUpstream>, Gateway) {
    let upstreams: Vec<_> = NAMES.iter().map(|_| FakeUpstream::start()).collect();
    let accounts: Vec<_> = NAMES
        .iter()
        .zip(&upstreams)
        .map(|(name, at)| Account::for_upstream(name, at).with_responses_protocol())
        .collect();
    let gateway = Gateway::with("", &accounts);
    (upstreams, gateway)
}

/// The number of attempts at each upstream.
fn attempts(upstreams: &[FakeUpstream]) -> Vec<usize> {
    upstreams.iter().map(FakeUpstream::attempts).collect()
}

/// The id of the response and the number of the account that made it.
#[track_caller]
fn respond(gateway: &Gateway, upstreams: &[FakeUpstream], with: &Value) -> (String, usize) {
    let before = attempts(upstreams);
    let answer = call(gateway).json(&task(with)).send(gateway.address());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let after = attempts(upstreams);
    let maker = (0..after.len()).find(|at| after[*at] > before[*at]).expect("an attempt");
    let text = answer.text();
    let id = text.split("\"id\":\"resp_").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
    (format!("resp_{id}"), maker)
}

#[test]
fn a_response_is_continued_at_the_account_that_made_it() {
    let (upstreams, mut gateway) = three();
    for stream in [false, true] {
        for _ in 0..4 {
            let (id, maker) = respond(&gateway, &upstreams, &json!({"stream": stream}));
            for round in 0..4 {
                let with = json!({"previous_response_id": id, "stream": round % 2 == 1});
                assert_eq!(respond(&gateway, &upstreams, &with).1, maker, "{id}");
            }
        }
    }
    // This holds after a kill, too.
    let (id, maker) = respond(&gateway, &upstreams, &json!({}));
    gateway.kill();
    gateway.start();
    for _ in 0..4 {
        assert_eq!(respond(&gateway, &upstreams, &json!({"previous_response_id": id})).1, maker, "{id}");
    }
}

#[test]
fn no_other_account_is_asked_to_go_on() {
    let (upstreams, gateway) = three();
    let (id, maker) = respond(&gateway, &upstreams, &json!({}));
    let before: usize = attempts(&upstreams).iter().sum();
    let go_on = || call(&gateway).json(&task(&json!({"previous_response_id": id}))).send(gateway.address());
    upstreams[maker].in_turn(&format!("sk-upstream-{}", NAMES[maker]), &["status=500"]);
    go_on().error_object(502);
    assert_eq!(attempts(&upstreams).iter().sum::<usize>(), before + 1, "asked once, and nobody else");
    // Another user has no such response.
    let bob = gateway.run_command(&["key", "create", "--name", "bob", "--user", "bob", "--json"]).json();
    let foreign = crate::kit::Call::post("/v1/responses").key(bob["secret"].as_str().expect("a secret"));
    let error = foreign.json(&task(&json!({"previous_response_id": id}))).send(gateway.address()).error_object(400);
    assert_eq!(error["param"], "previous_response_id");
    // If the account is out of service the request is refused, and no other account is asked.
    gateway.run_command(&["account", "disable", NAMES[maker]]).ok_stdout();
    let error = crate::kit::eventually("the account is disabled", || {
        let answer = go_on();
        (answer.status == 400).then(|| answer.error_object(400))
    });
    assert_eq!(error["param"], "previous_response_id");
    let attempts = attempts(&upstreams);
    let others: usize = (0..3).filter(|at| *at != maker).map(|at| attempts[at]).sum();
    assert_eq!(others, 0, "{attempts:?}");
}

#[test]
fn keys_of_nobody_do_not_share_their_responses() {
    let (_upstreams, gateway) = three();
    let key = |name: &str| {
        let made = gateway.run_command(&["key", "create", "--name", name, "--json"]).json();
        made["secret"].as_str().expect("a secret").to_owned()
    };
    let send = |secret: &str, with: &Value| {
        crate::kit::Call::post("/v1/responses").key(secret).json(&task(with)).send(gateway.address())
    };
    let (one, other) = (key("one"), key("other"));
    let text = send(&one, &json!({})).text();
    let id = text.split("\"id\":\"resp_").nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
    let go_on = json!({"previous_response_id": format!("resp_{id}")});
    assert_eq!(send(&other, &go_on).error_object(400)["param"], "previous_response_id");
    assert_eq!(send(&one, &go_on).status, 200);
}
