//! SIGHUP and `imagate config reload`: the gateway reads its configuration again, and no request is disturbed.

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

/// The configuration table of an account that uses the simulator.
fn simulator_account(name: &str, groups: &str) -> String {
    format!("[[accounts]]\nname = \"{name}\"\nkind = \"simulator\"\ngroups = {groups}\n")
}

#[test]
fn a_job_in_flight_goes_on_under_a_new_configuration() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=end]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    edit(&gateway, "concurrency = 64", "concurrency = 1");
    gateway.server().signal("HUP");
    eventually("the log names the change", || gateway.output().contains("accounts changed: only").then_some(()));
    upstream.open_gate("end");
    caller.join().expect("a caller").expect("an answer").ok_json();
    assert_eq!(gateway.final_records(1)[0]["state"], "succeeded");
    gateway.generate(json!({})).ok_json();
}

#[test]
fn a_removed_account_finishes_its_calls_and_gets_no_more() {
    let (first, second) = (FakeUpstream::start(), FakeUpstream::start());
    let mut gateway = Gateway::with("", &[Account::for_upstream("one", &first)]);
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=end]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    first.wait_until("the job runs", |attempts| attempts.len() == 1);
    let text = std::fs::read_to_string(gateway.config()).expect("a configuration");
    let base = format!("http://{}/v1", second.address());
    let text = text.replace("name = \"one\"", "name = \"two\"").replace(&first.base_url(), &base);
    std::fs::write(gateway.config(), text).expect("a configuration");
    let output = reload(&gateway);
    assert!(output.contains("accounts added: two") && output.contains("accounts removed: one"), "{output}");
    gateway.generate(json!({})).ok_json();
    assert_eq!((first.attempt_count(), second.attempt_count()), (1, 1));
    first.open_gate("end");
    caller.join().expect("a caller").expect("an answer").ok_json();
    let records = gateway.final_records(2);
    assert!(records.iter().all(|record| record["state"] == "succeeded"), "{records:#?}");
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
}

#[test]
fn a_reload_applies_groups_models_and_filters() {
    let gateway = Gateway::with("text_models = [\"gpt-old\"]", &[]);
    append(
        &gateway,
        &format!("{}\n[[groups]]\nname = \"team\"\n", simulator_account("drawn", "[\"default\", \"team\"]")),
    );
    edit(&gateway, "gpt-old", "gpt-new");
    let output = reload(&gateway);
    for line in ["accounts added: drawn", "groups added: team", "settings changed: text_models"] {
        assert!(output.contains(line), "{line}: {output}");
    }
    let listed = Call::get("/v1/models").key(gateway.secret()).send(gateway.address()).text();
    assert!(listed.contains("gpt-new") && !listed.contains("gpt-old"), "{listed}");
    // A filter of the group applies to the next request.
    append(&gateway, "[groups.filter]\nwords = [\"forbidden\"]\n");
    assert!(reload(&gateway).contains("groups changed: team"));
    let key = gateway.run_command(&["key", "create", "--name", "t", "--group", "team", "--json"]).json();
    let secret = key["secret"].as_str().expect("a secret").to_owned();
    let generate_status = |prompt: &str| {
        let body = json!({"model": "gpt-image-2", "prompt": prompt});
        Call::generation().key(&secret).json(&body).send(gateway.address()).status
    };
    eventually("the key is known", || (generate_status("a cube") == 200).then_some(()));
    assert_eq!(generate_status("a forbidden cube"), 502, "the filter must refuse the prompt");
    assert!(reload(&gateway).contains("nothing has changed"));
}

#[test]
fn an_invalid_file_changes_nothing_and_its_problems_are_logged() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let valid = std::fs::read_to_string(gateway.config()).expect("a configuration");
    edit(&gateway, "concurrency = 64", "concurrency = 0");
    append(&gateway, "[[groups]]\nname = \"x y\"\n");
    gateway.server().signal("HUP");
    let location_of = |text: &str| {
        let at = valid.lines().position(|line| line.starts_with(text)).expect("a line") + 1;
        format!("imagate.toml:{at}:")
    };
    eventually("every problem is in the log", || {
        let output = gateway.output();
        let parts = [location_of("concurrency"), "`name`".to_owned(), "the former ones stay in effect".to_owned()];
        parts.iter().all(|part| output.contains(part)).then_some(())
    });
    gateway.generate(json!({})).ok_json();
    let refused = gateway.run_command(&["config", "reload"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.stderr.contains(&location_of("concurrency")), "{refused:?}");
}

#[test]
fn settings_that_need_a_restart_are_named_and_not_applied() {
    let mut gateway = Gateway::simulated();
    let address = gateway.address();
    edit(&gateway, "metrics_listen = \"127.0.0.1:0\"", "metrics_listen = \"127.0.0.1:1\"\nskills_dir = \"skills\"");
    let output = reload(&gateway);
    assert!(output.contains("effective after a restart: metrics_listen, skills_dir"), "{output}");
    assert_eq!(Call::get("/healthz").send(address).status, 200);
    assert_eq!(Call::get("/metrics").send(gateway.metrics_address()).status, 200);
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    let failed = gateway.run_command(&["config", "reload"]);
    assert!(failed.code == Some(1) && failed.stderr.contains("no gateway is running with"), "{failed:?}");
}

#[test]
fn every_changed_setting_is_reported() {
    let gateway = Gateway::with("max_keys_per_member = 3", &[]);
    edit(&gateway, "max_keys_per_member = 3", "max_keys_per_member = 4");
    append(&gateway, "[connections]\nmax = 500\n[uploads]\ndisk_megabytes = 9000\n[retention]\nrecords = \"40d\"\n");
    let output = reload(&gateway);
    assert!(output.contains("settings changed: max_keys_per_member"), "{output}");
    assert!(output.contains("effective after a restart: connections, retention, uploads"), "{output}");
}

#[test]
fn new_trusted_proxies_are_exempt_from_the_limit_of_connections() {
    let upstream = FakeUpstream::start();
    let settings = "[connections]\nmax_per_address = 1\n";
    let gateway = Gateway::with(settings, &[Account::for_upstream("only", &upstream)]);
    let address = gateway.address();
    let call = gateway.call(json!({"prompt": "a cube [[gate=end]]"}));
    let caller = std::thread::spawn(move || call.try_send(address));
    upstream.wait_until("the job runs", |attempts| attempts.len() == 1);
    let second = || Call::get("/healthz").try_send(address).expect("an answer").status;
    assert_eq!(second(), 503, "the only connection of the address serves a request");
    edit(&gateway, "metrics_listen =", "trusted_proxies = [\"127.0.0.1\"]\nmetrics_listen =");
    assert!(reload(&gateway).contains("settings changed: trusted_proxies"));
    assert_eq!(second(), 200);
    upstream.open_gate("end");
    caller.join().expect("a caller").expect("an answer").ok_json();
}

#[test]
fn a_reload_that_the_store_refuses_changes_no_price() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    // The statements below are those of SQLite.
    if gateway.run_database().is_some() {
        return;
    }
    let prices = || Call::get("/v1/images/models").key(gateway.secret()).send(gateway.address()).ok_json();
    let before = prices();
    gateway.execute_sql(
        "CREATE TRIGGER refuse BEFORE INSERT ON accounts BEGIN SELECT RAISE(ABORT, 'refused by the test'); END",
    );
    append(&gateway, &simulator_account("new", "[\"default\"]"));
    append(&gateway, "[[prices]]\nmodel = \"gpt-image-2\"\nfrom = \"2026-01-01\"\nper_image = 0.04\n");
    let refused = gateway.run_command(&["config", "reload"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("keeps the former ones"), "{refused:?}");
    assert_eq!(prices(), before);
    gateway.execute_sql("DROP TRIGGER refuse");
    reload(&gateway);
    assert_ne!(prices(), before);
}

/// Stands for a gateway in a container whose data folder is also that of another container.
#[cfg(target_os = "linux")]
#[test]
fn a_gateway_of_another_process_namespace_is_not_signalled() {
    let gateway = Gateway::simulated();
    let lock = gateway.home().join("data/serve.lock");
    std::fs::write(&lock, "1 pid:[1]\n0\ndone\n\n").expect("the lock file");
    let refused = gateway.run_command(&["config", "reload"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("in the container of the gateway"), "{refused:?}");
    std::fs::write(&lock, "").expect("the lock file");
    let refused = gateway.run_command(&["config", "reload"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("still starting, or stopping"), "{refused:?}");
}

#[test]
fn a_reload_that_hangs_does_not_block_the_stop() {
    let mut gateway = Gateway::simulated();
    let account = "[[accounts]]\nname = \"real\"\nkind = \"api_key\"\nbase_url = \"https://upstream.example/v1\"\n\
                   api_key = { file = \"pipe\" }\n";
    let status = std::process::Command::new("mkfifo").arg(gateway.home().join("pipe")).status();
    assert!(status.expect("mkfifo").success());
    append(&gateway, account);
    gateway.server().signal("HUP");
    // The pipe can be opened when the reload has opened it to read; the reload then waits for data that never comes.
    let writer = std::fs::File::options().write(true).open(gateway.home().join("pipe")).expect("a pipe");
    gateway.terminate();
    assert!(gateway.server().wait(TEST_TIMEOUT).success());
    drop(writer);
}

/// Sends requests one after another until `done` is set.
fn send_until(done: &AtomicBool, call: &Call, address: SocketAddr, count: &AtomicUsize) {
    while !done.load(Ordering::Relaxed) {
        let answer = call.clone().try_send(address).expect("an answer");
        assert!(answer.status == 200 && answer.complete, "{} {}", answer.status, answer.text());
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn twenty_reloads_disturb_no_request() {
    const THREADS: usize = 4;
    let upstream = FakeUpstream::start();
    let mut gateway =
        Gateway::with("", &[Account::for_upstream("one", &upstream), Account::for_upstream("two", &upstream)]);
    let address = gateway.address();
    let (done, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let calls: Vec<_> = (0..THREADS).map(|_| gateway.call(json!({"prompt": "a cube"}))).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            calls.iter().map(|call| scope.spawn(|| send_until(&done, call, address, &count))).collect();
        for round in 0..20 {
            let (from, to) = if round % 2 == 0 { ("= 64", "= 63") } else { ("= 63", "= 64") };
            edit(&gateway, &format!("large_concurrency {from}"), &format!("large_concurrency {to}"));
            let before = gateway.output().matches("the settings have been reloaded").count();
            gateway.server().signal("HUP");
            eventually("the configuration is read again", || {
                (gateway.output().matches("the settings have been reloaded").count() > before).then_some(())
            });
        }
        done.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread without errors"));
    });
    assert!(count.load(Ordering::Relaxed) >= 20, "too few requests ran during the reloads");
}
