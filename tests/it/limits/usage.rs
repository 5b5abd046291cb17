//! The use of limits, as the admin API shows it.

use serde_json::{Value, json};

use super::{KEYS, ask, draw, open};
use crate::kit::{Call, FakeUpstream, eventually, request};

/// The use of a limit of an object of the admin API.
#[track_caller]
fn usage(object: &Value, name: &str) -> Value {
    let limits = object["limit_usage"].as_array().unwrap_or_else(|| panic!("no limits: {object}"));
    limits.iter().find(|limit| limit["name"] == name).unwrap_or_else(|| panic!("no {name}: {object}")).clone()
}

#[test]
fn the_use_of_each_limit_is_shown_for_groups_and_keys_and_survives_a_restart() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(
        &upstream,
        "requests_per_minute = 9\nconcurrent_jobs = 4\nimages_per_day = 3\nmax_quality = \"high\"\n\
         budget_usd = 0.03\nbudget_period = \"day\"\nbudget_alert = 0.2",
    );
    let words = ["key", "create", "--name", "limited", "--json", "--limit", "images_per_day=1"];
    let made = gateway.run_command(&words).json();
    let (id, secret) = (made["id"].as_str().expect("an id"), made["secret"].as_str().expect("a secret"));
    let key = format!("{KEYS}/{id}");
    let group = |gateway: &_| ask(gateway, Call::get("/admin/v1/groups/default")).ok_json();

    let fresh = group(&gateway);
    assert_eq!(fresh["limit_usage"].as_array().map(Vec::len), Some(4), "a quality does not count: {fresh}");
    let requests = usage(&fresh, "requests_per_minute");
    assert_eq!(requests, json!({"name": "requests_per_minute", "limit": 9.0, "used": 0.0, "state": "free"}));
    assert_eq!(usage(&ask(&gateway, Call::get(&key)).ok_json(), "images_per_day")["used"], 0.0);

    assert_eq!(draw(&gateway, json!({"prompt": "a cube", "quality": "low", "size": "1024x1024", "n": 2})).status, 200);
    let spent = eventually("the request is settled", || {
        let group = group(&gateway);
        let budget = usage(&group, "budget_usd");
        (usage(&group, "concurrent_jobs")["used"] == 0.0 && budget["reserved"] == 0.0).then_some(group)
    });
    let budget = usage(&spent, "budget_usd");
    assert!(budget["used"].as_f64().is_some_and(|used| used > 0.006 && used < 0.03), "{budget}");
    assert_eq!((&budget["alert"], &budget["state"]), (&json!(0.006), &json!("near")), "{budget}");
    assert!(budget["resets_at"].as_str().is_some_and(|at| at.contains("T00:00:00")), "{budget}");
    assert_eq!(usage(&spent, "images_per_day")["used"], 2.0);
    assert_eq!(usage(&spent, "images_per_day")["state"], "free");
    let requests = usage(&spent, "requests_per_minute");
    assert!(requests["used"] == 1.0 && requests["resets_at"].is_string(), "{requests}");

    let small = request(json!({"prompt": "a cube", "quality": "low", "size": "1024x1024"}));
    let answer = Call::generation().json(&small).key(secret).send(gateway.address());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let full = eventually("the image is counted", || {
        let key = ask(&gateway, Call::get(&key)).ok_json();
        (usage(&key, "images_per_day")["used"] == 1.0).then_some(key)
    });
    assert_eq!(usage(&full, "images_per_day")["state"], "reached");
    let listed = ask(&gateway, Call::get(KEYS)).ok_json();
    let rows = listed["data"].as_array().expect("keys");
    let row = rows.iter().find(|row| row["id"] == id).expect("the key");
    assert_eq!(usage(row, "images_per_day")["state"], "reached");
    assert!(rows.iter().any(|row| row.get("limit_usage").is_none()), "a key without limits: {listed}");

    gateway.kill();
    gateway.start();
    let after = group(&gateway);
    assert_eq!(usage(&after, "images_per_day")["used"], 3.0);
    assert_eq!(usage(&after, "images_per_day")["state"], "reached");
}
