//! Limits of users: they count all keys of a user together, so that no new key escapes them, and only admins set them.

use std::thread;

use serde_json::{Value, json};

use super::{KEYS, ask, draw, draw_with, open, refused};
use crate::kit::{Answer, Call, FakeUpstream, Gateway, eventually, request};

const USERS: &str = "/admin/v1/users";

/// Creates a key of this user with a command, and returns its secret.
fn key_of(gateway: &Gateway, user: &str) -> String {
    let made = gateway.run_command(&["key", "create", "--name", "one of several", "--user", user, "--json"]).json();
    made["secret"].as_str().expect("a secret").to_owned()
}

/// Sets the limits of a user with the admin API. They are in force a moment later.
#[track_caller]
fn limit(gateway: &Gateway, user: &str, limits: &Value) -> Answer {
    ask(gateway, Call::patch(&format!("{USERS}/{user}")).json(&json!({ "limits": limits })))
}

/// Waits until limits that do not allow a request with these fields are in force. An estimate counts in none of them.
fn wait_until_refused(gateway: &Gateway, secret: &str, fields: &Value) {
    eventually("the limits are in force", || {
        let estimate = Call::post("/v1/images/estimate").json(&request(fields.clone())).key(secret);
        (estimate.send(gateway.address()).status == 400).then_some(())
    });
}

#[test]
fn two_keys_at_once_share_the_limit_of_their_user_and_a_new_key_does_not_escape() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&upstream, "images_per_day = 100");
    let keys = [key_of(&gateway, "kim"), key_of(&gateway, "kim")];
    let stated = limit(&gateway, "kim", &json!({"images_per_day": 6, "requests_per_minute": 50})).ok_json();
    assert_eq!(stated["limits"], json!({"images_per_day": 6, "requests_per_minute": 50}));
    keys.iter().for_each(|secret| wait_until_refused(&gateway, secret, &json!({"n": 7})));
    let answers: Vec<Answer> = thread::scope(|scope| {
        let threads: Vec<_> =
            keys.iter().cycle().take(40).map(|secret| scope.spawn(|| draw_with(&gateway, secret))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let (served, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(served.len(), 6, "six images on a day");
    others.iter().for_each(|answer| drop(refused(answer, "insufficient_quota", "images_per_day", "user")));
    assert_eq!(upstream.attempt_count(), 6);
    let new_key = key_of(&gateway, "kim");
    refused(&draw_with(&gateway, &new_key), "insufficient_quota", "images_per_day", "user");
    assert_eq!(draw_with(&gateway, &key_of(&gateway, "lee")).status, 200, "another user");
    assert_eq!(draw(&gateway, json!({})).status, 200, "a key without a user");

    gateway.final_records(8);
    gateway.kill();
    gateway.start();
    refused(&draw_with(&gateway, &new_key), "insufficient_quota", "images_per_day", "user");
    assert_eq!(upstream.attempt_count(), 8);
}

#[test]
fn the_refusal_names_the_limit_of_the_key_the_user_or_the_group() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "concurrent_jobs = 4\nmax_size = \"2048x2048\"");
    let (first, second) = (key_of(&gateway, "kim"), key_of(&gateway, "kim"));
    limit(&gateway, "kim", &json!({"concurrent_jobs": 2, "max_quality": "low", "requests_per_minute": 90})).ok_json();
    [&first, &second].iter().for_each(|secret| wait_until_refused(&gateway, secret, &asked("high", "")));
    let sized = json!({"size": "3840x2160", "quality": "low"});
    let of_group = Call::generation().json(&request(sized)).key(&first).send(gateway.address());
    assert_eq!(of_group.error_object(400)["param"], "size");
    thread::scope(|scope| {
        let running: Vec<_> = [&first, &second]
            .map(|secret| {
                scope
                    .spawn(|| Call::generation().json(&asked("low", "[[gate=go]]")).key(secret).send(gateway.address()))
            })
            .into_iter()
            .collect();
        upstream.wait_until("two jobs run", |attempts| attempts.len() == 2);
        let third = Call::generation().json(&asked("low", "")).key(&second).send(gateway.address());
        let error = refused(&third, "rate_limit_exceeded", "concurrent_jobs", "user");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("of this user")), "{error}");
        upstream.open_gate("go");
        running.into_iter().for_each(|thread| assert_eq!(thread.join().expect("an answer").status, 200));
    });
}

/// A request that keeps `max_size`, with this quality and this script for the upstream.
fn asked(quality: &str, script: &str) -> Value {
    json!({"model": "gpt-image-2", "prompt": format!("a cube {script}"), "size": "1024x1024", "quality": quality})
}

#[test]
fn limits_of_a_user_are_set_by_command_and_by_the_admin_api() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    let secret = key_of(&gateway, "kim");
    let user = || ask(&gateway, Call::get(&format!("{USERS}/kim"))).ok_json();
    assert_eq!(user().get("limits"), None);
    let words = ["user", "limit", "kim", "--limit", "images_per_day=3", "--limit", "models=gpt-image-2,sketch-1"];
    let changed = gateway.run_command(&[&words[..], &["--json"]].concat()).json();
    let expected = json!({"images_per_day": 3, "models": ["gpt-image-2", "sketch-1"]});
    assert_eq!((&changed["limits"], &user()["limits"]), (&expected, &expected));
    let listed = gateway.run_command(&["user", "list", "--json"]).json();
    let kim = listed.as_array().expect("a list").iter().find(|user| user["name"] == "kim");
    assert_eq!(kim.expect("kim")["limits"], expected);

    // A change replaces all limits; without any, nothing is limited.
    assert_eq!(limit(&gateway, "kim", &json!({"budget_usd": 5})).ok_json()["limits"], json!({"budget_usd": 5.0}));
    assert_eq!(gateway.run_command(&["user", "limit", "kim"]).ok_stdout(), "kim limited\n");
    assert_eq!(user().get("limits"), None);
    assert_eq!(draw_with(&gateway, &secret).status, 200);

    // A user can be invited with limits, by both.
    let made =
        ask(&gateway, Call::post(USERS).json(&json!({"name": "lee", "limits": {"max_quality": "low"}}))).ok_json();
    assert_eq!(made["user"]["limits"], json!({"max_quality": "low"}));
    gateway.run_command(&["user", "invite", "max", "--limit", "concurrent_jobs=1"]).ok_stdout();
    assert_eq!(ask(&gateway, Call::get(&format!("{USERS}/max"))).ok_json()["limits"], json!({"concurrent_jobs": 1}));

    // The audit trail has the limits before and after.
    let trail = ask(&gateway, Call::get("/admin/v1/audit?action=user.limit")).ok_json();
    let rows = trail["data"].as_array().expect("rows");
    let changes: Vec<_> = rows.iter().map(|row| (&row["details"]["from"], &row["details"]["to"])).collect();
    let (with_budget, none) = (json!({"budget_usd": 5}), Value::Null);
    assert_eq!(changes, [(&with_budget, &none), (&expected, &with_budget), (&none, &expected)]);

    for (words, reason) in [
        (&["user", "limit", "nobody", "--limit", "images_per_day=3"][..], "nobody"),
        (&["user", "limit", "kim", "--limit", "image_per_day=3"], "images_per_day"),
        (&["user", "limit", "kim", "--limit", "budget_usd=-1"], "budget_usd"),
        (&["user", "limit", "kim", "--limit", "images_per_day=1", "--limit", "images_per_day=2"], "twice"),
        (&["user", "limit", "kim", "--limit", "images_per_day"], "NAME=VALUE"),
    ] {
        let failed = gateway.run_command(words);
        assert!(failed.code != Some(0) && failed.stderr.contains(reason), "{words:?}: {}", failed.stderr);
    }
}

#[test]
fn a_mistake_in_any_limit_is_named_and_changes_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    key_of(&gateway, "kim");
    let key = gateway.key_id().to_owned();
    let targets = [format!("{USERS}/kim"), format!("{KEYS}/{key}")];
    for (name, values) in [
        ("requests_per_minute", [json!("60"), json!(0), json!(-1), json!(1.5)]),
        ("images_per_minute", [json!(true), json!(0), json!(100_001), json!([])]),
        ("concurrent_jobs", [json!("many"), json!(0), json!(-7), json!({})]),
        ("images_per_day", [json!("1"), json!(0), json!(1e12), json!(false)]),
        ("max_size", [json!(1024), json!("1024"), json!("1025x1024"), json!("auto")]),
        ("max_quality", [json!(7), json!("best"), json!("auto"), json!("")]),
        ("models", [json!("gpt-image-2"), json!([]), json!([7]), json!([""])]),
        ("budget_usd", [json!("5"), json!(1e12), json!(-0.5), json!(true)]),
    ] {
        for value in values {
            for target in &targets {
                let body = json!({"limits": {name: value}});
                let error = ask(&gateway, Call::patch(target).json(&body)).error_object(400);
                let param = error["param"].as_str().unwrap_or_default();
                assert!(param == format!("limits.{name}") || param == format!("limits.{name}[0]"), "{body}: {error}");
                assert!(error["message"].as_str().is_some_and(|text| text.contains(name)), "{body}: {error}");
            }
        }
    }
    for (limits, param) in [
        (json!({"budget_usd": 5, "budget_period": "year"}), "limits.budget_period"),
        (json!({"budget_usd": "five", "budget_period": "day", "budget_alert": 0.5}), "limits.budget_usd"),
        (json!({"budget_period": "day"}), "limits.budget_period"),
        (json!({"budget_usd": 5, "budget_alert": 1.5}), "limits.budget_alert"),
        (json!({"budget_alert": 0.5}), "limits.budget_alert"),
        (json!({"image_per_day": 5}), "limits.image_per_day"),
        (json!([]), "limits"),
    ] {
        for target in &targets {
            let error = ask(&gateway, Call::patch(target).json(&json!({ "limits": limits }))).error_object(400);
            assert_eq!(error["param"], param, "{limits}: {error}");
        }
    }
    for target in &targets {
        assert_eq!(ask(&gateway, Call::get(target)).ok_json().get("limits"), None);
    }
}

#[test]
fn a_member_sees_its_limits_and_cannot_change_them() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "images_per_day = 100");
    key_of(&gateway, "kim");
    let limits = json!({"images_per_day": 1});
    limit(&gateway, "kim", &limits).ok_json();
    let made = ask(&gateway, Call::post("/admin/v1/tokens").json(&json!({"name": "own", "user": "kim"}))).ok_json();
    let own = made["secret"].as_str().expect("a secret");
    let ask_as_member = |call: Call| call.key(own).send(gateway.address());
    assert_eq!(ask_as_member(Call::get("/admin/v1/me")).ok_json()["user"]["limits"], limits);
    for call in [
        Call::patch(&format!("{USERS}/kim")).json(&json!({"limits": {}})),
        Call::post(KEYS).json(&json!({"name": "free", "limits": {"images_per_day": 9}})),
    ] {
        assert_eq!(ask_as_member(call).error_object(403)["code"], "permission_denied");
    }
    let key = ask_as_member(Call::post(KEYS).json(&json!({"name": "free"}))).ok_json();
    let change = Call::patch(&format!("{KEYS}/{}", key["key"]["id"].as_str().expect("an id")));
    assert_eq!(ask_as_member(change.json(&json!({"limits": {}}))).error_object(403)["code"], "permission_denied");
    let secret = key["secret"].as_str().expect("a secret");
    assert_eq!(draw_with(&gateway, secret).status, 200);
    refused(&draw_with(&gateway, secret), "insufficient_quota", "images_per_day", "user");
    assert_eq!(ask(&gateway, Call::get(&format!("{USERS}/kim"))).ok_json()["limits"], limits);
}
