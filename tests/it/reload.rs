//! SIGHUP and `imagate config reload`: the configuration is read again, and no request notices.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use crate::kit::{Account, Call, FakeUpstream, Gateway, TEST_TIMEOUT, eventually};

/// Replaces a part of the configuration file.
#[track_caller]
fn edit(gateway: &Gateway, from: &str, to: &str) {
    let text = std::fs::read_to_string(gateway.config()).expect("a configuration");
    assert!(text.contains(from), "{from} is not in the file:\n{text}");
    std::fs::write(gateway.config(), text.replacen(from, to, 1)).expect("a configuration");
}

fn append(gateway: &Gateway, text: &str) {
    let before = std::fs::read_to_string(gateway.config()).expect("a configuration");
    std::fs::write(gateway.config(), format!("{before}\n{text}")).expect("a configuration");
}

/// Reloads with the command, which prints the changes.
#[track_caller]
fn reload(gateway: &Gateway) -> String {
    gateway.run_command(&["config", "reload"]).ok_stdout().to_owned()
}

/// The table of an account that uses the simulator.
fn drawing(name: &str, groups: &str) -> String {
    format!("[[accounts]]\nname = \"{name}\"\nkind = \"simulator\"\ngroups = {groups}\n")
}

#[test]
fn a_job_in_flight_goes_on_under_a_new_configuration() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=end]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |ledger| ledger.len() == 1);
    edit(&gateway, "concurrency = 64", "concurrency = 1");
    gateway.server().signal("HUP");
    eventually("it says what has changed", || gateway.output().contains("accounts changed: only").then_some(()));
    upstream.open_gate("end");
    caller.join().expect("a caller").expect("an answer").ok_json();
    assert_eq!(gateway.final_records(1)[0]["state"], "succeeded");
    gateway.generate(json!({})).ok_json();
}

#[test]
fn an_account_that_leaves_the_file_finishes_its_calls_and_gets_no_more() {
    let (one, other) = (FakeUpstream::start(), FakeUpstream::start());
    let mut gateway = Gateway::with("", &[Account::for_upstream("one", &one)]);
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=end]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    one.wait_until("the job runs", |ledger| ledger.len() == 1);
    let text = std::fs::read_to_string(gateway.config()).expect("a configuration");
    let base = format!("http://{}/v1", other.address());
    let text = text.replace("name = \"one\"", "name = \"two\"").replace(&one.base_url(), &base);
    std::fs::write(gateway.config(), text).expect("a configuration");
    let said = reload(&gateway);
    assert!(said.contains("accounts added: two") && said.contains("accounts removed: one"), "{said}");
    gateway.generate(json!({})).ok_json();
    assert_eq!((one.attempts(), other.attempts()), (1, 1));
    one.open_gate("end");
    caller.join().expect("a caller").expect("an answer").ok_json();
    let records = gateway.final_records(2);
    assert!(records.iter().all(|record| record["state"] == "succeeded"), "{records:#?}");
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
}

#[test]
fn groups_models_and_limits_are_taken_over() {
    let gateway = Gateway::with("text_models = [\"gpt-old\"]", &[]);
    append(&gateway, &format!("{}\n[[groups]]\nname = \"team\"\n", drawing("drawn", "[\"default\", \"team\"]")));
    edit(&gateway, "gpt-old", "gpt-new");
    let said = reload(&gateway);
    for part in ["accounts added: drawn", "groups added: team", "settings changed: text_models"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let listed = Call::get("/v1/models").key(gateway.secret()).send(gateway.address()).text();
    assert!(listed.contains("gpt-new") && !listed.contains("gpt-old"), "{listed}");
    // A filter of the group applies to the next request.
    append(&gateway, "[groups.filter]\nwords = [\"forbidden\"]\n");
    assert!(reload(&gateway).contains("groups changed: team"));
    let made = gateway.run_command(&["key", "create", "--name", "t", "--group", "team", "--json"]).json();
    let secret = made["secret"].as_str().expect("a secret").to_owned();
    let ask = |prompt: &str| {
        let body = json!({"model": "gpt-image-2", "prompt": prompt});
        Call::generation().key(&secret).json(&body).send(gateway.address()).status
    };
    eventually("the key is known", || (ask("a cube") == 200).then_some(()));
    assert_eq!(ask("a forbidden cube"), 502, "the filter refuses it");
    assert!(reload(&gateway).contains("nothing has changed"));
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing_and_says_why() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let good = std::fs::read_to_string(gateway.config()).expect("a configuration");
    edit(&gateway, "concurrency = 64", "concurrency = 0");
    append(&gateway, "[[groups]]\nname = \"x y\"\n");
    gateway.server().signal("HUP");
    let line = |text: &str| {
        let at = good.lines().position(|line| line.starts_with(text)).expect("a line") + 1;
        format!("imagate.toml:{at}:")
    };
    eventually("every problem is in the log", || {
        let said = gateway.output();
        let all = [line("concurrency"), "`name`".to_owned(), "the former ones stay in effect".to_owned()];
        all.iter().all(|part| said.contains(part)).then_some(())
    });
    gateway.generate(json!({})).ok_json();
    let refused = gateway.run_command(&["config", "reload"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains(&line("concurrency")), "{refused:?}");
}

#[test]
fn settings_that_need_a_restart_are_named_and_stay() {
    let mut gateway = Gateway::simulated();
    let address = gateway.address();
    edit(&gateway, "metrics_listen = \"127.0.0.1:0\"", "metrics_listen = \"127.0.0.1:1\"\nskills_dir = \"skills\"");
    let said = reload(&gateway);
    assert!(said.contains("effective after a restart: metrics_listen, skills_dir"), "{said}");
    assert_eq!(Call::get("/healthz").send(address).status, 200);
    assert_eq!(Call::get("/metrics").send(gateway.metrics_address()).status, 200);
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    let nobody = gateway.run_command(&["config", "reload"]);
    assert!(nobody.code == Some(1) && nobody.stderr.contains("no gateway is running with"), "{nobody:?}");
}

#[test]
fn no_setting_that_has_changed_is_passed_over_in_silence() {
    let gateway = Gateway::with("max_keys_per_member = 3", &[]);
    edit(&gateway, "max_keys_per_member = 3", "max_keys_per_member = 4");
    append(&gateway, "[connections]\nmax = 500\n[uploads]\ndisk_megabytes = 9000\n[retention]\nrecords = \"40d\"\n");
    let said = reload(&gateway);
    assert!(said.contains("settings changed: max_keys_per_member"), "{said}");
    assert!(said.contains("effective after a restart: connections, retention, uploads"), "{said}");
}

#[test]
fn a_reload_that_hangs_does_not_keep_the_gateway_from_stopping() {
    let mut gateway = Gateway::simulated();
    let account = "[[accounts]]\nname = \"real\"\nkind = \"api_key\"\nbase_url = \"https://upstream.example/v1\"\n\
                   api_key = { file = \"pipe\" }\n";
    let made = std::process::Command::new("mkfifo").arg(gateway.home().join("pipe")).status();
    assert!(made.expect("mkfifo").success());
    append(&gateway, account);
    gateway.server().signal("HUP");
    // Can be opened as soon as the reload reads from it, which waits for what is never written.
    let writer = std::fs::File::options().write(true).open(gateway.home().join("pipe")).expect("a pipe");
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    drop(writer);
}

/// One caller that sends requests until `done` is set.
fn send_until(done: &AtomicBool, call: &Call, address: SocketAddr, count: &AtomicUsize) {
    while !done.load(Ordering::Relaxed) {
        let answer = call.clone().try_send(address).expect("an answer");
        assert!(answer.status == 200 && answer.complete, "{} {}", answer.status, answer.text());
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn no_request_notices_twenty_reloads() {
    const LANES: usize = 4;
    let upstream = FakeUpstream::start();
    let mut gateway =
        Gateway::with("", &[Account::for_upstream("one", &upstream), Account::for_upstream("two", &upstream)]);
    let address = gateway.address();
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let calls: Vec<_> = (0..LANES).map(|_| gateway.call(json!({"prompt": "a cube"}))).collect();
    std::thread::scope(|scope| {
        let lanes: Vec<_> = calls.iter().map(|call| scope.spawn(|| send_until(&done, call, address, &count))).collect();
        for round in 0..20 {
            let (from, to) = if round % 2 == 0 { ("= 64", "= 63") } else { ("= 63", "= 64") };
            edit(&gateway, &format!("large_concurrency {from}"), &format!("large_concurrency {to}"));
            let before = gateway.output().matches("the settings have been reloaded").count();
            gateway.server().signal("HUP");
            eventually("it was read again", || {
                (gateway.output().matches("the settings have been reloaded").count() > before).then_some(())
            });
        }
        done.store(true, Ordering::Relaxed);
        lanes.into_iter().for_each(|lane| lane.join().expect("a lane without errors"));
    });
    assert!(count.load(Ordering::Relaxed) >= 20, "requests ran beside the reloads");
}
