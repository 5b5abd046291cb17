//! Decisions that a member cannot undo: those of admins about keys, the stop of keys when their user leaves a group,
//! and the limit of keys.

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, eventually};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const KEYS: &str = "/admin/v1/keys";
const USERS: &str = "/admin/v1/users";

/// A gateway with one member, eve.
struct Setup {
    gateway: Gateway,
    member: String,
    _upstream: FakeUpstream,
}

impl Setup {
    fn open(settings: &str) -> Self {
        let upstream = FakeUpstream::start();
        let settings = format!("admin_token = {{ env = \"IT_ADMIN\" }}\n{settings}");
        let gateway =
            Gateway::with_secrets(&settings, &[Account::for_upstream("only", &upstream)], &[("IT_ADMIN", TOKEN)]);
        let mut setup = Self { gateway, member: String::new(), _upstream: upstream };
        setup.admin(Call::post(USERS).json(&json!({"name": "eve"}))).ok_json();
        let token = setup.admin(Call::post("/admin/v1/tokens").json(&json!({"name": "test", "user": "eve"}))).ok_json();
        setup.member = text(&token, "/secret");
        setup
    }

    fn admin(&self, call: Call) -> Answer {
        call.key(TOKEN).send(self.gateway.address())
    }

    fn eve(&self, call: Call) -> Answer {
        call.key(&self.member).send(self.gateway.address())
    }

    /// Creates a key of eve's; returns its path and its secret.
    fn key(&self, name: &str) -> (String, String) {
        let made = self.eve(Call::post(KEYS).json(&json!({"name": name}))).ok_json();
        (format!("{KEYS}/{}", text(&made, "/key/id")), text(&made, "/secret"))
    }

    /// Waits until a request with this key gets this status: a change takes effect within a second.
    #[track_caller]
    fn wait_for(&self, secret: &str, status: u16) {
        eventually(&format!("a request with the key gets {status}"), || {
            (Call::get("/v1/models").key(secret).send(self.gateway.address()).status == status).then_some(())
        });
    }
}

#[track_caller]
fn text(value: &Value, at: &str) -> String {
    value.pointer(at).and_then(Value::as_str).unwrap_or_else(|| panic!("{at} in {value}")).to_owned()
}

#[track_caller]
fn denied(answer: &Answer, says: &str) {
    let error = answer.error_object(403);
    assert_eq!(error["code"], "permission_denied");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(says)), "{error}");
}

#[test]
fn a_member_does_not_enable_what_an_admin_has_disabled() {
    let setup = Setup::open("");
    let (path, secret) = setup.key("leaked");
    let seen = setup.admin(Call::patch(&path).json(&json!({"enabled": false}))).ok_json();
    assert_eq!((&seen["state"], &seen["locked"]), (&json!("disabled"), &json!("admin")));
    for change in [json!({"enabled": true}), json!({"enabled": true, "never_expires": true, "name": "mine"})] {
        denied(&setup.eve(Call::patch(&path).json(&change)), "An admin has disabled this key");
    }
    denied(&setup.eve(Call::post(&format!("{path}/rotate")).json(&json!({}))), "only an admin can enable or rotate");
    setup.wait_for(&secret, 401);
    // The owner may rename and delete the key, which gains nothing.
    assert_eq!(setup.eve(Call::patch(&path).json(&json!({"name": "old"}))).ok_json()["locked"], "admin");
    let enabled = setup.admin(Call::patch(&path).json(&json!({"enabled": true}))).ok_json();
    assert_eq!((&enabled["state"], &enabled["locked"]), (&json!("active"), &Value::Null));
    setup.wait_for(&secret, 200);
    // Eve can enable a key that she has disabled herself.
    setup.eve(Call::patch(&path).json(&json!({"enabled": false}))).ok_json();
    setup.eve(Call::patch(&path).json(&json!({"enabled": true}))).ok_json();
    setup.admin(Call::patch(&path).json(&json!({"enabled": false}))).ok_json();
    setup.eve(Call::delete(&path)).ok_json();
}

#[test]
fn a_command_locks_a_key_as_an_admin_does() {
    let setup = Setup::open("");
    let (path, secret) = setup.key("leaked");
    let id = path.rsplit('/').next().expect("an id").to_owned();
    setup.gateway.run_command(&["key", "disable", &id]).ok_stdout();
    denied(&setup.eve(Call::patch(&path).json(&json!({"enabled": true}))), "An admin has disabled this key");
    let listed = setup.gateway.run_command(&["key", "list"]);
    assert!(listed.ok_stdout().lines().any(|line| line.contains("leaked") && line.contains("disabled (admin)")));
    setup.gateway.run_command(&["key", "enable", &id]).ok_stdout();
    let seen = setup.eve(Call::get(&path)).ok_json();
    assert_eq!((&seen["state"], &seen["locked"]), (&json!("active"), &Value::Null));
    setup.wait_for(&secret, 200);
}

#[test]
fn a_member_does_not_move_an_expiry_that_an_admin_has_set() {
    let setup = Setup::open("");
    let (path, _) = setup.key("short");
    let end = "2099-01-01T00:00:00Z";
    let seen = setup.admin(Call::patch(&path).json(&json!({"expires_at": end}))).ok_json();
    assert_eq!((&seen["expires_at"], &seen["latest_end"]), (&json!(end), &json!(end)));
    for change in [json!({"never_expires": true}), json!({"expires_at": "2099-01-02T00:00:00Z"})] {
        let answer = setup.eve(Call::patch(&path).json(&change));
        denied(&answer, "An admin has set the expiry of this key: it cannot be later than 2099-01-01T00:00:00.000Z");
        assert_eq!(answer.error_object(403)["param"], "expires_at");
    }
    setup.eve(Call::patch(&path).json(&json!({"expires_at": "2098-01-01T00:00:00Z"}))).ok_json();
    setup.eve(Call::patch(&path).json(&json!({"expires_at": end}))).ok_json();
    setup.admin(Call::patch(&path).json(&json!({"never_expires": true}))).ok_json();
    setup.eve(Call::patch(&path).json(&json!({"expires_at": "2099-01-02T00:00:00Z"}))).ok_json();
    // The same holds for an expiry that was set when the key was made.
    let body = json!({"name": "given", "user": "eve", "expires_at": end});
    let given = setup.admin(Call::post(KEYS).json(&body)).ok_json();
    let given = format!("{KEYS}/{}", text(&given, "/key/id"));
    denied(&setup.eve(Call::patch(&given).json(&json!({"never_expires": true}))), "An admin has set the expiry");
}

#[test]
fn a_member_has_only_so_many_keys() {
    let setup = Setup::open("max_keys_per_member = 3");
    let keys: Vec<_> = ["a", "b", "c"].iter().map(|name| setup.key(name)).collect();
    let new = json!({"name": "d"});
    let error = setup.eve(Call::post(KEYS).json(&new)).error_object(409);
    assert_eq!(error["code"], "key_limit_reached");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("3 keys")), "{error}");
    // An admin and a command can still make a key for her.
    setup.admin(Call::post(KEYS).json(&json!({"name": "d", "user": "eve"}))).ok_json();
    setup.gateway.run_command(&["key", "create", "--name", "e", "--user", "eve"]).ok_stdout();
    assert_eq!(setup.eve(Call::post(KEYS).json(&new)).status, 409);
    for (path, _) in &keys {
        setup.eve(Call::delete(path)).ok_json();
    }
    setup.eve(Call::post(KEYS).json(&new)).ok_json();
    assert_eq!(setup.eve(Call::post(KEYS).json(&new)).status, 409);
}

#[test]
fn leaving_a_group_stops_its_keys_and_coming_back_does_not_enable_them() {
    let setup = Setup::open("[[groups]]\nname = \"studio\"");
    setup.admin(Call::patch(&format!("{USERS}/eve")).json(&json!({"groups": ["default", "studio"]}))).ok_json();
    let (path, secret) = setup.key("stays");
    let in_studio = setup.eve(Call::post(KEYS).json(&json!({"name": "goes", "group": "studio"}))).ok_json();
    setup.wait_for(&text(&in_studio, "/secret"), 200);
    setup.wait_for(&secret, 200);

    let left = setup.admin(Call::patch(&format!("{USERS}/eve")).json(&json!({"groups": ["default"]}))).ok_json();
    let stopped = left["stopped_keys"].as_array().expect("keys");
    assert_eq!(stopped.len(), 1, "{left}");
    assert_eq!((&stopped[0]["name"], &stopped[0]["locked"]), (&json!("goes"), &json!("left_group")));
    setup.wait_for(&text(&in_studio, "/secret"), 401);
    setup.wait_for(&secret, 200);

    let gone = format!("{KEYS}/{}", text(&in_studio, "/key/id"));
    let back =
        setup.admin(Call::patch(&format!("{USERS}/eve")).json(&json!({"groups": ["default", "studio"]}))).ok_json();
    assert_eq!(back["stopped_keys"], Value::Null);
    denied(&setup.eve(Call::patch(&gone).json(&json!({"enabled": true}))), "when its user left its group");
    setup.wait_for(&text(&in_studio, "/secret"), 401);
    setup.admin(Call::patch(&gone).json(&json!({"enabled": true}))).ok_json();
    setup.wait_for(&text(&in_studio, "/secret"), 200);

    // The command names the keys that it disabled.
    let done = setup.gateway.run_command(&["user", "groups", "eve", "--group", "studio"]);
    assert!(
        done.ok_stdout().contains("eve is in studio") && done.stderr.contains("(stays) in group default"),
        "{done:?}"
    );
    assert_eq!(setup.eve(Call::get(&path)).ok_json()["locked"], "left_group");
}

/// How many requests wait for a slot.
fn waiting(gateway: &Gateway) -> usize {
    let counts = gateway.metrics_text();
    let line = counts.lines().find_map(|line| line.strip_prefix("imagate_waiting_requests "));
    line.expect("a count").parse().expect("a number")
}

#[test]
fn a_user_with_many_keys_delays_no_other_user() {
    const KEYS: usize = 12;
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream).with_slots(1)]);
    let key = |user: &str, number: usize| {
        let made = gateway.run_command(&["key", "create", "--name", &number.to_string(), "--user", user, "--json"]);
        text(&made.json(), "/secret")
    };
    let (of_eve, of_bob): (Vec<String>, String) = ((0..KEYS).map(|number| key("eve", number)).collect(), key("bob", 0));
    let ask = |secret: &str, prompt: &str| {
        let body = json!({"model": "gpt-image-2", "prompt": prompt});
        Call::generation().key(secret).json(&body).send(gateway.address()).ok_json();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| ask(&of_eve[0], "the first [[gate=first]]"));
        upstream.wait_until("the only slot is taken", |attempts| attempts.len() == 1);
        for (number, secret) in of_eve.iter().enumerate() {
            scope.spawn(move || ask(secret, "of eve"));
            eventually("it waits", || (waiting(&gateway) == number + 1).then_some(()));
        }
        scope.spawn(|| ask(&of_bob, "of bob"));
        eventually("all wait", || (waiting(&gateway) == KEYS + 1).then_some(()));
        upstream.open_gate("first");
    });
    let order: Vec<String> = upstream.received_attempts().iter().map(|attempt| attempt.prompt()).collect();
    assert_eq!((order.len(), order.iter().position(|prompt| prompt == "of bob")), (KEYS + 2, Some(2)), "{order:?}");
}
