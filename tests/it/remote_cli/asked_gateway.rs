//! Commands whose answer only the running gateway has: its calls, the limits that it counts in memory, and its channels
//! of alerts.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
#[cfg(unix)]
use crate::kit::{TEST_TIMEOUT, ends_within, eventually, signal};

const HOOK_SECRET: &str = "whsec_Y2FuYXJ5LW9mLXRoZS13ZWJob29rLTEy";

#[test]
fn a_gateway_is_asked_for_its_limits_and_its_accounts() {
    let upstream = FakeUpstream::start();
    let settings = "admin_token = { env = \"IT_ADMIN\" }\n[[groups]]\nname = \"default\"\n[groups.limits]\n\
        images_per_day = 9\nconcurrent_jobs = 2\n";
    let accounts = [Account::for_upstream("only", &upstream).with_slots(3)];
    let gateway = Gateway::with_secrets(settings, &accounts, &[("IT_ADMIN", TOKEN)]);
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    let run = |args: &[&str]| desk.run(&url, TOKEN, &[args, &["--json"]].concat());
    let used = |listed: &Value| -> Vec<(String, f64)> {
        let limits = listed[0]["limits"].as_array().expect("limits").iter();
        let named = |limit: &Value| Some((limit["name"].as_str()?.to_owned(), limit["used"].as_f64()?));
        limits.filter_map(named).collect()
    };
    let (jobs, images) = (("concurrent_jobs".to_owned(), 1.0), ("images_per_day".to_owned(), 1.0));
    std::thread::scope(|scope| {
        upstream.script_next("gate=go");
        let caller = scope.spawn(|| gateway.generate(json!({})));
        upstream.wait_until("a call is held", |attempts| attempts.len() == 1);
        let explained = run(&["account", "explain"]).json();
        let account = &explained[0];
        assert_eq!(
            (&account["chosen"], &account["slots_in_use"], &account["slots"]),
            (&json!(true), &json!(1), &json!(3))
        );
        let limits = run(&["limits", "default"]).json();
        assert_eq!(limits[0]["subject"], json!({"kind": "group", "id": "default", "name": "default"}));
        assert_eq!(used(&limits), [jobs, images.clone()], "{limits}");
        // A command on the store knows what is stored.
        let stored = gateway.run_command(&["limits", "default", "--json"]).json();
        assert_eq!(used(&stored), [images], "{stored}");
        upstream.open_gate("go");
        caller.join().expect("an image").ok_json();
    });
    assert_eq!(run(&["limits", "nobody"]).json(), json!([]));
    let table = desk.run(&url, TOKEN, &["limits", "default"]);
    assert!(table.ok_stdout().contains("images_per_day   1     9"), "{table:?}");
    let tested = run(&["account", "test", "only"]).json();
    assert_eq!((&tested["result"], &tested["status"]), (&json!("accepted"), &json!(200)), "{tested}");
}

#[test]
fn a_gateway_tests_its_channels_of_alerts() {
    let count = AtomicUsize::new(0);
    let receiver = StubServer::start(move |request| {
        assert!(String::from_utf8_lossy(&request.body).contains("alert.test"));
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        Some((if is_first { 200 } else { 500 }, String::new()))
    });
    let settings = format!(
        "admin_token = {{ env = \"IT_ADMIN\" }}\n[alerts.webhook]\nurl = \"http://{}\"\nsecret = {{ env = \"IT_HOOK\" }}\n",
        receiver.address()
    );
    let upstream = FakeUpstream::start();
    let accounts = [Account::for_upstream("only", &upstream)];
    let gateway = Gateway::with_secrets(&settings, &accounts, &[("IT_ADMIN", TOKEN), ("IT_HOOK", HOOK_SECRET)]);
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    assert_eq!(desk.run(&url, TOKEN, &["alerts", "test"]).ok_stdout(), "webhook: delivered\n");
    let failed = desk.run(&url, TOKEN, &["alerts", "test", "--json"]);
    let results: Value = serde_json::from_str(&failed.stdout).expect("JSON");
    assert_eq!((failed.code, &results[0]["delivered"]), (FAILED, &json!(false)), "{failed:?}");
    assert!(results[0]["error"].as_str().is_some_and(|error| error.contains("500")), "{results}");
    let (_upstream, without) = open();
    let none = desk.run(&super::url(&without), TOKEN, &["alerts", "test"]);
    assert!(none.code == USAGE && none.stderr.contains("[alerts.webhook]"), "{none:?}");
}

#[cfg(unix)]
#[test]
fn new_records_of_a_gateway_are_followed() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    let file = desk.0.path().join("followed.jsonl");
    let output = std::fs::File::create(&file).expect("a file");
    let words = ["usage", "--follow", "--json", "--url", &url];
    let mut child = desk.program(&words).env("IMAGATE_ADMIN_TOKEN", TOKEN).spawn_printing_to(output);
    let lines = || std::fs::read_to_string(&file).expect("the output").lines().count();
    for count in 1..=2 {
        gateway.generate(json!({})).ok_json();
        eventually("the record is printed", || (lines() == count).then_some(()));
    }
    signal(&child, "INT");
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    assert_eq!(lines(), 2, "no record is printed twice");
}
