//! Answers that were paid for, on all nodes: each node sends the answer that another one has made.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{MASTER_KEY, NodePair, TOKEN};
use crate::kit::{
    Account, Answer, Call, FakeUpstream, Form, Gateway, PostgresDatabase, eventually, image_specimen, pause, request,
};

/// The header that the official clients send with their first automatic retry.
const RETRY: (&str, &str) = ("x-stainless-retry-count", "1");
/// The settings of a node that answers a plain request after a second.
const SHORT_DEADLINE: &str = "answer_deadline = \"1s\"\n";
/// The base64 characters of an image of 28 MB.
const IMAGE_CHARS: usize = 38_000_000;
/// The most memory that such an image may take on a node: much less than the image.
const GROWTH_MAX: u64 = 16 << 20;

impl NodePair {
    /// A generation with an idempotency key, which either node can get.
    fn call(&self, prompt: &str, idempotency_key: &str) -> Call {
        Call::generation()
            .json(&request(json!({"prompt": prompt})))
            .key(self.first.secret())
            .header("idempotency-key", idempotency_key)
    }

    /// Waits until the database has all bytes of this many answers.
    #[track_caller]
    fn wait_until_shared(&self, count: i64) {
        eventually("the bytes are in the database", || {
            let complete = self.database.count("SELECT count(*) FROM shared_answers WHERE is_complete");
            (complete == count).then_some(())
        });
    }
}

#[track_caller]
fn check_same(answer: &Answer, expected: &Answer) {
    assert_eq!((answer.status, answer.body == expected.body), (200, true), "{}", answer.text());
    for header in ["content-type", "x-imagate-size", "x-request-id"] {
        assert_eq!(answer.header(header).is_some(), expected.header(header).is_some(), "{header}");
    }
}

#[test]
fn an_idempotency_key_is_paid_for_once_on_both_nodes() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let call = nodes.call("a cube [[gate=open]]", "order-4711");
    let (first, second) = thread::scope(|scope| {
        let send = |address| {
            let call = call.clone();
            scope.spawn(move || call.send(address))
        };
        let first = send(nodes.first.address());
        upstream.wait_until("the job has begun", |attempts| attempts.len() == 1);
        let second = send(nodes.second.address());
        upstream.open_gate("open");
        (first.join().expect("an answer"), second.join().expect("an answer"))
    });
    check_same(&first, &first);
    check_same(&second, &first);
    for node in [&nodes.first, &nodes.second] {
        check_same(&call.clone().send(node.address()), &first);
    }
    assert_eq!(nodes.call("a cone", "order-4711").send(nodes.second.address()).status, 400, "the key was used");
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn another_node_sends_the_answer_of_a_killed_one() {
    let upstream = FakeUpstream::start();
    let Some(mut nodes) = NodePair::open(&upstream, "") else { return };
    let call = nodes.call("a cube", "order-4712");
    let first = call.clone().send(nodes.first.address());
    nodes.wait_until_shared(1);
    nodes.first.kill();
    check_same(&call.clone().send(nodes.second.address()), &first);
    // The first node comes back without its stored answers.
    std::fs::remove_dir_all(nodes.first.home().join("data/replays")).expect("the folder of the answers");
    nodes.first.start();
    check_same(&call.send(nodes.first.address()), &first);
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn an_answer_of_28_megabytes_needs_little_memory_on_both_nodes() {
    let upstream = FakeUpstream::start();
    let Some(mut nodes) = NodePair::open(&upstream, "") else { return };
    let peak = |nodes: &mut NodePair| [nodes.first.server().peak_bytes(), nodes.second.server().peak_bytes()];
    nodes.call("a cube", "order-1").send(nodes.first.address()).ok_json();
    nodes.wait_until_shared(1);
    nodes.call("a cube", "order-1").send(nodes.second.address()).ok_json();
    nodes.first.server().reset_peak();
    nodes.second.server().reset_peak();
    let before = peak(&mut nodes);
    let call = nodes.call(&format!("a cube [[b64={IMAGE_CHARS}]]"), "order-2");
    let first = call.clone().send(nodes.first.address());
    nodes.wait_until_shared(2);
    let second = call.send(nodes.second.address());
    assert!(first.body.len() > IMAGE_CHARS && first.body == second.body, "the second node sends the same bytes");
    for (before, after) in before.into_iter().zip(peak(&mut nodes)) {
        println!(
            "resident memory: {:.1} MB before, at most {:.1} MB with the image",
            before as f64 / 1e6,
            after as f64 / 1e6
        );
        assert!(after - before < GROWTH_MAX, "{before} bytes before, {after} bytes after");
    }
    assert_eq!(upstream.attempt_count(), 2);
}

#[test]
fn an_answer_whose_bytes_cannot_be_shared_is_known_to_its_own_node() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    nodes.database.run("ALTER TABLE answer_pieces RENAME TO moved_away");
    let call = nodes.call("a cube", "order-4713");
    let first = call.clone().send(nodes.first.address());
    check_same(&first, &first);
    eventually("the first node gives up", || nodes.first.output().contains("other nodes cannot send").then_some(()));
    let second = call.clone().send(nodes.second.address());
    assert_eq!(second.error_object(502)["reason"], "outcome_unknown");
    assert_eq!(second.header("x-should-retry"), Some("false"));
    check_same(&call.send(nodes.first.address()), &first);
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_retry_on_another_node_gets_the_image_that_its_caller_left() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let gated = json!({"prompt": "a cube [[gate=open]]"});
    let call = |marks: &str| {
        let call = Call::generation().json(&request(gated.clone())).key(nodes.first.secret());
        call.header(RETRY.0, marks)
    };
    let stream = call("0").dispatch(nodes.first.address()).expect("a connection");
    upstream.wait_until("the job has begun", |attempts| attempts.len() == 1);
    drop(stream);
    upstream.open_gate("open");
    nodes.wait_until_shared(1);
    let answer = call("1").send(nodes.second.address());
    assert_eq!(answer.ok_json()["data"][0]["b64_json"], json!(upstream.received_attempts()[0].images[0]));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_retry_on_another_node_does_not_pay_while_the_answer_is_being_stored() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    // Each claim takes two seconds, in which no other node sees it.
    nodes.database.run(
        "CREATE FUNCTION hold() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$; \
         CREATE TRIGGER held BEFORE INSERT ON replays FOR EACH ROW EXECUTE FUNCTION hold()",
    );
    let call = |marks: &str| {
        let call = Call::generation().json(&request(json!({"prompt": "a cube [[gate=open]]"})));
        call.key(nodes.first.secret()).header(RETRY.0, marks)
    };
    let stream = call("0").dispatch(nodes.first.address()).expect("a connection");
    upstream.wait_until("the job has begun", |attempts| attempts.len() == 1);
    drop(stream);
    nodes.first.wait_until_busy(0);
    upstream.open_gate("open");
    eventually("the claim is being written", || {
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND wait_event = 'PgSleep'";
        (nodes.database.count(sleeping) > 0).then_some(())
    });
    assert_eq!(call("1").send(nodes.second.address()).error_object(502)["reason"], "outcome_unknown");
    nodes.wait_until_shared(1);
    let answer = call("2").send(nodes.second.address());
    assert_eq!(answer.ok_json()["data"][0]["b64_json"], json!(upstream.received_attempts()[0].images[0]));
    assert_eq!(upstream.attempt_count(), 1);
}

#[track_caller]
fn assert_in_progress(answer: &Answer) {
    assert_eq!(answer.error_object(409)["code"], "image_in_progress");
    assert_eq!(answer.should_retry(), Some("true"));
}

#[test]
fn a_repeat_after_in_progress_gets_the_image_on_the_other_node() {
    type RepeatedCall = fn(u32) -> Call;
    let calls: [(&str, RepeatedCall); 3] = [
        ("unmarked", |_| Call::generation().json(&request(json!({"prompt": "a cube [[gate=open]]"})))),
        ("marked", |count| {
            let call = Call::generation().json(&request(json!({"prompt": "a cube [[gate=open]]"})));
            call.header(RETRY.0, &count.to_string())
        }),
        ("unmarked edit", |_| {
            let form = Form::new().text("model", "gpt-image-2").text("prompt", "a hat [[gate=open]]");
            form.file("image", &image_specimen("png 96x64")).call()
        }),
    ];
    for (name, call) in calls {
        let upstream = FakeUpstream::start();
        let Some(nodes) = NodePair::open(&upstream, SHORT_DEADLINE) else { return };
        let send = |node: &Gateway, count: u32| call(count).key(nodes.first.secret()).send(node.address());
        assert_in_progress(&send(&nodes.first, 0));
        for (count, node) in [(1, &nodes.second), (2, &nodes.first), (3, &nodes.second)] {
            assert_in_progress(&send(node, count));
        }
        assert_eq!(upstream.attempt_count(), 1, "{name}");
        upstream.open_gate("open");
        let answer = eventually("the image", || Some(send(&nodes.second, 4)).filter(|answer| answer.status != 409));
        assert_eq!(answer.ok_json()["data"][0]["b64_json"], json!(upstream.received_attempts()[0].images[0]), "{name}");
        assert_eq!(answer.header("x-imagate-replayed"), Some("true"), "{name}");
        assert_eq!(upstream.attempt_count(), 1, "{name}");
        if name != "marked" {
            assert_eq!(
                send(&nodes.second, 0).header("x-imagate-replayed"),
                None,
                "{name}: the next one is a new request"
            );
            assert_eq!(upstream.attempt_count(), 2, "{name}");
        }
    }
}

#[test]
fn the_key_of_a_job_whose_node_was_killed_has_an_unknown_outcome() {
    let upstream = FakeUpstream::start();
    let Some(mut nodes) = NodePair::open(&upstream, SHORT_DEADLINE) else { return };
    let call = nodes.call("a cube [[gate=open]]", "order-4714");
    assert_in_progress(&call.clone().send(nodes.first.address()));
    assert_in_progress(&call.clone().send(nodes.second.address()));
    nodes.first.kill();
    assert_in_progress(&call.clone().send(nodes.second.address()));
    // The second node does this itself after a minute without a heartbeat of the first.
    nodes.database.run(
        "UPDATE records SET state = 'interrupted', \
         document = CAST(CAST(document AS JSONB) || '{\"state\":\"interrupted\",\"cost_basis\":\"unknown\"}' AS TEXT) \
         WHERE state = 'running'",
    );
    let answer = call.send(nodes.second.address());
    assert_eq!(answer.error_object(502)["reason"], "outcome_unknown");
    assert_eq!(answer.should_retry(), Some("false"));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_job_keeps_its_key_for_longer_than_the_window() {
    let upstream = FakeUpstream::start();
    let settings = format!("{SHORT_DEADLINE}[replay]\nidempotency_window = \"1s\"\n");
    let Some(nodes) = NodePair::open(&upstream, &settings) else { return };
    let call = nodes.call("a cube [[gate=open]]", "order-4715");
    assert_in_progress(&call.clone().send(nodes.first.address()));
    pause(Duration::from_secs(2));
    assert_in_progress(&call.send(nodes.second.address()));
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn stored_answers_of_a_moved_installation_stay_in_its_data_folder() {
    let Some(database) = PostgresDatabase::create() else { return };
    let upstream = FakeUpstream::start();
    let settings = "admin_token = { env = \"IT_ADMIN\" }\n";
    let account = [Account::for_upstream("only", &upstream)];
    let on_sqlite = [("IT_ADMIN", TOKEN), ("IMAGATE_MASTER_KEY", MASTER_KEY), ("IMAGATE_DATABASE_URL", "sqlite:")];
    let mut moved = Gateway::with_secrets(settings, &account, &on_sqlite);
    let call =
        Call::generation().json(&request(json!({}))).key(moved.secret()).header("idempotency-key", "before the move");
    let answer = call.clone().send(moved.address());
    moved.kill();
    moved.set_variable("IMAGATE_DATABASE_URL", database.url());
    let rows: Value = moved.run_command(&["migrate", "sqlite-to-postgres", "--json"]).json();
    assert_eq!(rows["rows"]["replays"], 1, "{rows}");
    moved.start();
    let on_postgres =
        [("IT_ADMIN", TOKEN), ("IMAGATE_MASTER_KEY", MASTER_KEY), ("IMAGATE_DATABASE_URL", database.url())];
    let other = Gateway::with_secrets(settings, &account, &on_postgres);
    check_same(&call.clone().send(moved.address()), &answer);
    assert_eq!(call.send(other.address()).error_object(502)["reason"], "outcome_unknown");
    assert_eq!(upstream.attempt_count(), 1);
}
