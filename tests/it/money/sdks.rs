//! Fifty user actions through each official client with its default retries: what each kind of failure costs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::{Value, json};

use super::{paid, pool, recorded_attempts};
use crate::clients::install::{node, python, script};
use crate::kit::{FakeUpstream, Gateway};

/// Twice as many as a client has in flight at once where nothing else is said: some begin while others end.
const ACTIONS: usize = 50;

/// The official clients, as [`crate::clients`] installs them.
#[derive(Clone, Copy, Debug)]
enum Client {
    PythonNewest,
    Python2,
    NodeNewest,
}

/// The result of one call.
#[derive(Debug)]
struct CallResult(Value);

/// The results of all calls of one run.
struct ClientRun {
    calls: Vec<CallResult>,
    /// Requests that the client sent.
    sent: u64,
}

// === impl Client ===

impl Client {
    fn command(self) -> Command {
        static NODE: OnceLock<PathBuf> = OnceLock::new();
        let of_python = |interpreter: PathBuf| {
            let mut command = Command::new(interpreter);
            command.arg(script("money_tour.py"));
            command
        };
        match self {
            Self::PythonNewest => of_python(python("IMAGATE_PY_NEWEST", "openai-newest", "openai")),
            Self::Python2 => of_python(python("IMAGATE_PY_2", "openai-2", "openai<3")),
            Self::NodeNewest => {
                // Copied once: another test may be reading the script.
                let folder =
                    NODE.get_or_init(|| node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["money_tour.mjs"]));
                let mut command = Command::new("node");
                command.arg("money_tour.mjs").current_dir(folder);
                command
            }
        }
    }

    /// Runs a plan on a gateway; `with` overrides the defaults.
    #[track_caller]
    fn run(self, gateway: &Gateway, with: Value) -> ClientRun {
        self.carry_out(&plan(gateway, with))
    }

    #[track_caller]
    fn carry_out(self, plan: &Value) -> ClientRun {
        // A client sends up to fifty requests at once, and gives up each after two seconds.
        static ONE_CLIENT: Mutex<()> = Mutex::new(());
        let _turn = ONE_CLIENT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut command = self.command();
        for name in ["OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_BASE_URL"] {
            command.env_remove(name);
        }
        let output = command.env("PLAN", plan.to_string()).output().expect("the client starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{self:?}: {stderr}");
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let sent = lines.pop().expect("a last line")["sent"].as_u64().expect("a number");
        ClientRun { calls: lines.into_iter().map(CallResult).collect(), sent }
    }
}

/// The behaviour of a client; `with` overrides the defaults.
fn plan(gateway: &Gateway, with: Value) -> Value {
    let mut plan = json!({"base_url": gateway.base_url(), "api_key": gateway.secret(), "actions": ACTIONS,
        "parallel": 25, "times": 1, "prompt": "a cube", "timeout": null, "key": false, "twins": false});
    for (name, value) in with.as_object().expect("fields") {
        plan[name] = value.clone();
    }
    plan
}

/// How many attempts each action cost, by the `user` of the action.
fn by_user(upstream: &FakeUpstream) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    upstream.received_attempts().iter().for_each(|attempt| *counts.entry(attempt.user()).or_default() += 1);
    counts
}

// === impl ClientRun ===

impl ClientRun {
    #[track_caller]
    fn all_have_an_image(&self, what: &str) {
        let without: Vec<_> = self.calls.iter().filter(|result| result.0["image"].is_null()).collect();
        assert!(without.is_empty(), "{what}: {} without an image, such as {:?}", without.len(), without.first());
    }

    /// Checks that every call ended with the error `upstream_error` and one of these reasons.
    #[track_caller]
    fn check_all_failed(&self, what: &str, reasons: &[&str]) {
        for CallResult(result) in &self.calls {
            assert_eq!(
                (&result["status"], &result["code"]),
                (&json!(502), &json!("upstream_error")),
                "{what}: {result}"
            );
            assert_eq!(result["should_retry"], "false", "{what}: {result}");
            assert!(reasons.contains(&result["reason"].as_str().unwrap_or_default()), "{what}: {result}");
        }
    }
}

/// Checks for each script, with a gateway of its own, that `ACTIONS` actions cost exactly as many attempts.
#[track_caller]
fn one_attempt_each(client: Client, scripts: &[&str], judge: impl Fn(&str, &ClientRun)) {
    for script in scripts {
        let upstream = FakeUpstream::start();
        let gateway = pool(&upstream);
        let run = client.run(&gateway, json!({"prompt": format!("a cube [[{script}]]")}));
        println!("{client:?} {script:?}: {} requests, {} attempts", run.sent, upstream.attempt_count());
        assert_eq!(run.calls.len(), ACTIONS);
        judge(script, &run);
        assert_eq!(upstream.attempt_count(), ACTIONS, "{client:?} {script}: attempts for {ACTIONS} actions");
        let by_user = by_user(&upstream);
        assert!(by_user.values().all(|count| *count == 1), "{client:?} {script}: {by_user:?}");
        assert_eq!(recorded_attempts(&gateway.final_records(ACTIONS)), ACTIONS, "{client:?} {script}");
    }
}

#[track_caller]
fn a_refusal_costs_one_attempt(client: Client) {
    one_attempt_each(client, &["status=400 body=policy"], |script, run| {
        run.check_all_failed(script, &["content_refused"]);
    });
}

#[track_caller]
fn an_ambiguous_failure_costs_one_attempt(client: Client) {
    let scripts = ["hang-up how=reset", "status=524 body=html", "cut=30 how=reset"];
    one_attempt_each(client, &scripts, |script, run| {
        run.check_all_failed(script, &["network", "timeout", "no_image_data"]);
    });
    // The image has begun, so the answer itself breaks off. How the client reports that is not checked.
    one_attempt_each(client, &["cut=80%"], |script, run| {
        let whole = run.calls.iter().filter(|result| !result.0["image"].is_null()).count();
        assert_eq!(whole, 0, "{script}: an image from a part of a body");
    });
}

#[track_caller]
fn a_timeout_and_the_clients_own_retry_are_paid_once(client: Client) {
    for twins in [false, true] {
        let upstream = FakeUpstream::start();
        let gateway = pool(&upstream);
        let plan = json!({"prompt": "a cube [[delay=3000]]", "timeout": 2, "parallel": 50, "twins": twins});
        let run = client.run(&gateway, plan);
        println!("{client:?} timeout, twins {twins}: {} requests, {} attempts", run.sent, upstream.attempt_count());
        run.all_have_an_image(&format!("{client:?}, twins {twins}"));
        assert!(run.sent >= 2 * ACTIONS as u64, "the client never gave up: {} requests", run.sent);
        assert_eq!((upstream.attempt_count(), paid(&upstream)), (ACTIONS, ACTIONS), "{client:?}, twins {twins}");
        assert_eq!(recorded_attempts(&gateway.final_records(ACTIONS)), ACTIONS, "{client:?}, twins {twins}");
    }
}

#[track_caller]
fn a_repeated_key_is_paid_once(client: Client) {
    for (prompt, timeout) in [("a cube", Value::Null), ("a cube [[delay=3000]]", json!(2))] {
        let upstream = FakeUpstream::start();
        let gateway = pool(&upstream);
        let plan = json!({"prompt": prompt, "timeout": timeout, "key": true, "times": 2, "parallel": 50});
        let run = client.run(&gateway, plan);
        println!("{client:?} keys, {prompt:?}: {} requests, {} attempts", run.sent, upstream.attempt_count());
        assert_eq!(run.calls.len(), 2 * ACTIONS);
        run.all_have_an_image(&format!("{client:?} {prompt}"));
        assert_eq!((upstream.attempt_count(), paid(&upstream)), (ACTIONS, ACTIONS), "{client:?} {prompt}");
    }
}

/// The process is killed while a part of the actions is done and another part is running, and is started again at once.
/// The clients retry by themselves, and their users send each action twice.
#[track_caller]
fn a_kill_in_between_never_pays_twice(client: Client) {
    let upstream = FakeUpstream::start();
    let mut gateway = pool(&upstream);
    gateway.keep_address();
    let plan = plan(&gateway, json!({"prompt": "a cube [[delay=700]]", "key": true, "times": 2, "parallel": 10}));
    let run = std::thread::scope(|scope| {
        let run = scope.spawn(|| client.carry_out(&plan));
        upstream.wait_until("half of it has begun", |attempts| attempts.len() >= ACTIONS / 2);
        gateway.kill();
        gateway.start();
        run.join().expect("a run")
    });
    let by_user = by_user(&upstream);
    let images = run.calls.iter().filter(|result| result.0["image"].is_string()).count();
    println!("{client:?} kill: {} requests, {} attempts, {images} images", run.sent, upstream.attempt_count());
    assert!(by_user.values().all(|count| *count == 1), "{client:?}: {by_user:?}");
    // The actions that were running may be lost, and then get an error; all others have an image for both calls.
    assert!(images >= 2 * (ACTIONS - 2 * 10), "{client:?}: {images} images");
    for CallResult(result) in run.calls.iter().filter(|result| result.0["image"].is_null()) {
        let unreached = result["status"].is_null();
        assert!(unreached || result["should_retry"] == "false", "{client:?}: {result}");
    }
}

/// One test for each client, because only one client runs at a time: a test that waits for its turn takes a thread of the
/// test program.
#[track_caller]
fn each_failure_is_paid_once(client: Client) {
    a_refusal_costs_one_attempt(client);
    an_ambiguous_failure_costs_one_attempt(client);
    a_timeout_and_the_clients_own_retry_are_paid_once(client);
    a_repeated_key_is_paid_once(client);
}

#[test]
fn each_failure_is_paid_once_with_the_newest_python_release() {
    each_failure_is_paid_once(Client::PythonNewest);
    a_kill_in_between_never_pays_twice(Client::PythonNewest);
}

#[test]
fn each_failure_is_paid_once_with_the_newest_2x_python_release() {
    each_failure_is_paid_once(Client::Python2);
}

#[test]
fn each_failure_is_paid_once_with_the_newest_node_release() {
    each_failure_is_paid_once(Client::NodeNewest);
    a_kill_in_between_never_pays_twice(Client::NodeNewest);
}
