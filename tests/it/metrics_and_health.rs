//! Monitoring of the gateway: the checks of health and readiness, and the metrics.

use serde_json::json;
use tempfile::TempDir;

use crate::kit::{Account, Call, FakeUpstream, Gateway, Program, SmallDisk, eventually, request};

fn has_line(counts: &str, line: &str) -> bool {
    counts.lines().any(|said| said == line)
}

#[test]
fn metrics_agree_with_records() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_slots(3)]);
    gateway.generate(json!({"n": 2, "size": "1024x1024", "quality": "low"})).ok_json();
    gateway.scripted("status=400 body=policy").error_object(502);
    gateway.generate(json!({"size": "1x1"})).error_object(400);
    Call::generation().key("sk-img-nobody").json(&json!({})).send(gateway.address()).error_object(401);
    Call::get("/nowhere").send(gateway.address());
    gateway.final_records(2);
    let counts = eventually("both jobs are counted", || {
        let counts = gateway.metrics_text();
        has_line(&counts, "imagate_jobs_total{operation=\"create_image\",state=\"refused\"} 1").then_some(counts)
    });
    for line in [
        "imagate_jobs_total{operation=\"create_image\",state=\"succeeded\"} 1",
        "imagate_images_total{operation=\"create_image\",size=\"standard\",quality=\"low\",output_format=\"png\"} 2",
        "imagate_attempts_total{account=\"only\",class=\"none\"} 1",
        "imagate_attempts_total{account=\"only\",class=\"R\"} 1",
        "imagate_job_duration_seconds_count{operation=\"create_image\",size=\"standard\"} 1",
        "imagate_answers_total{operation=\"create_image\",status=\"200\"} 1",
        "imagate_answers_total{operation=\"create_image\",status=\"400\"} 1",
        "imagate_answers_total{operation=\"create_image\",status=\"401\"} 1",
        "imagate_answers_total{operation=\"create_image\",status=\"502\"} 1",
        "imagate_answers_total{operation=\"none\",status=\"404\"} 1",
        "imagate_account_slots{account=\"only\"} 3",
        "imagate_account_calls{account=\"only\"} 0",
        "imagate_account_disabled{account=\"only\"} 0",
        "imagate_waiting_requests 0",
        "imagate_unsettled_records 0",
    ] {
        assert!(has_line(&counts, line), "no line {line} in\n{counts}");
    }
    assert!(counts.ends_with("# EOF\n"), "{counts}");
}

#[test]
fn metrics_show_which_account_is_disabled() {
    let upstream = FakeUpstream::start();
    let gateway =
        Gateway::with("", &[Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream)]);
    gateway.run_command(&["account", "disable", "first"]).ok_stdout();
    eventually("the account is disabled", || {
        has_line(&gateway.metrics_text(), "imagate_account_disabled{account=\"first\"} 1").then_some(())
    });
    assert!(has_line(&gateway.metrics_text(), "imagate_account_disabled{account=\"second\"} 0"));
}

#[test]
fn health_is_served_on_every_listener_and_metrics_only_on_their_own() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = Call::get(path).send(gateway.address());
        assert_eq!((answer.status, answer.text().as_str()), (200, text));
    }
    assert_eq!(Call::get("/metrics").send(gateway.address()).status, 404);
    assert!(has_line(&gateway.metrics_text(), "imagate_unsettled_records 0"));
    // While the gateway waits for its last request, it is alive but not ready for others.
    let metrics = gateway.metrics_address();
    let call = gateway.call(json!({"prompt": "a cube [[stall=middle b64=400000]]"}));
    let running = call.dispatch(gateway.address());
    eventually("the upstream works", || (upstream.attempt_count() > 0).then_some(()));
    gateway.terminate();
    eventually("it is not ready", || (Call::get("/readyz").send(metrics).status == 503).then_some(()));
    assert_eq!(Call::get("/healthz").send(metrics).status, 200);
    drop(running);
}

#[test]
fn readiness_says_that_the_disk_has_no_room_for_records() {
    let home = TempDir::new().expect("a directory");
    let Some(disk) = SmallDisk::mount(&home.path().join("data"), 16) else { return };
    let file = "listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\n[uploads]\nmin_free_megabytes = 4\n";
    std::fs::write(home.path().join("imagate.toml"), file).expect("a configuration");
    let program = || Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml");
    let made = program().args(["key", "create", "--name", "it", "--json"]).run().json();
    let key = made["secret"].as_str().expect("a secret");
    let server = program().args(["serve"]).serve();
    let ready = || {
        let answer = Call::get("/readyz").send(server.address());
        (answer.status, answer.text())
    };
    assert_eq!(ready(), (200, "ready\n".to_owned()));

    let generation = || Call::generation().key(key).json(&request(json!({"size": "1024x1024"}))).send(server.address());
    disk.fill_except(1);
    let short = (503, "not ready: disk_space\n".to_owned());
    eventually("there is hardly room for records", || (ready() == short).then_some(()));
    generation().ok_json();
    assert_eq!(ready(), short);
    disk.clear();
    eventually("there is room again", || (ready().0 == 200).then_some(()));

    disk.fill();
    let refused = eventually("a record cannot be written", || Some(generation()).filter(|answer| answer.status != 200));
    refused.error_object(503);
    let full = (503, "not ready: store_writes, disk_space\n".to_owned());
    eventually("it is not ready for both reasons", || (ready() == full).then_some(()));
    eventually("twenty requests have failed", || {
        generation();
        let log = server.stderr();
        (log.matches(" 503 ").count().max(log.matches("status=503").count()) >= 20).then_some(())
    });
    assert_eq!(server.stderr().matches("records could not be written").count(), 1, "{}", server.stderr());

    disk.clear();
    eventually("it is ready by itself", || (ready().0 == 200).then_some(()));
    generation().ok_json();
    let again = || server.stderr().matches("writing records works again").count();
    eventually("the log says that records are written again", || (again() > 0).then_some(()));
    assert_eq!(again(), 1, "{}", server.stderr());
}
