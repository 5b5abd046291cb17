//! The commands for users, keys and admin tokens, with and without a running gateway, and their audit rows.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Call, CommandOutput, Gateway, Program, pause};

/// Exit codes: the command failed, or its usage was wrong.
const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);

/// A configuration and a data folder, without a running server.
struct Installation(TempDir);

impl Installation {
    fn new() -> Self {
        Self::with_settings("public_url = \"https://images.example.com/\"\n")
    }

    fn with_settings(settings: &str) -> Self {
        let home = TempDir::new().expect("a directory");
        std::fs::write(home.path().join("imagate.toml"), format!("data_dir = \"data\"\n{settings}")).expect("a file");
        Self(home)
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> CommandOutput {
        Program::new(self.0.path()).args(args).args(["--config", "imagate.toml"]).run()
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        self.run(&[args, &["--json"]].concat()).json()
    }

    #[track_caller]
    fn audit_rows(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[&["audit", "--json"], args].concat());
        output.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
    }
}

#[test]
fn a_user_is_invited_by_a_link_with_the_public_address() {
    let home = Installation::new();
    let output = home.run(&["user", "invite", "bob", "--admin"]);
    let link = output.ok_stdout().trim().to_owned();
    let token = link.strip_prefix("https://images.example.com/invitation/").expect("a link");
    assert!(token.len() == 43 && token.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{link}");

    let listed = home.json(&["user", "list"]);
    let user = &listed[0];
    assert_eq!((&user["name"], &user["role"], &user["groups"]), (&json!("bob"), &json!("admin"), &json!(["default"])));
    assert_eq!((&user["has_password"], &user["disabled_at"]), (&json!(false), &Value::Null));
    let reset = home.json(&["user", "reset", "bob"]);
    assert!(reset["link"].as_str().is_some_and(|new_link| new_link != link), "{reset}");

    home.run(&["user", "role", "bob", "member"]).ok_stdout();
    home.run(&["user", "disable", "bob"]).ok_stdout();
    let table = home.run(&["user", "list"]);
    assert!(
        table
            .ok_stdout()
            .lines()
            .any(|line| line.contains("bob") && line.contains("member") && line.contains("disabled"))
    );
    for (args, message) in [
        (&["user", "invite", "bob"][..], "the user bob already exists"),
        (&["user", "enable", "eve"], "the user eve does not exist"),
        (&["user", "invite", "eve", "--group", "nowhere"], "the group nowhere does not exist"),
        (&["user", "reset", "bob"], "the user is disabled"),
    ] {
        let output = home.run(args);
        assert!(output.code == FAILED && output.stderr.contains(message), "{args:?}: {output:?}");
    }
    assert_eq!(home.run(&["user", "role", "bob", "owner"]).code, USAGE);
    let actions: Vec<_> = home.audit_rows(&["--target", "bob"]).iter().map(|row| row["action"].clone()).collect();
    assert_eq!(actions, ["user.invite", "user.reset", "user.role", "user.disable"]);
    // The database has no link. The test kit does not watch links made by commands, so the test searches the file.
    let database = std::fs::read(home.0.path().join("data/imagate.db")).expect("the database");
    assert!(!database.windows(token.len()).any(|window| window == token.as_bytes()));
}

#[test]
fn a_key_expires_at_the_given_time() {
    let home = Installation::new();
    let created = home.json(&["key", "create", "--name", "short", "--expires", "30d"]);
    let listed = home.json(&["key", "list"]);
    assert_eq!((&listed[0]["expires_at"], &listed[0]["state"]), (&created["expires_at"], &json!("active")));
    let output = home.run(&["key", "create", "--name", "over", "--expires", "2020-01-01"]);
    assert!(output.code == FAILED && output.stderr.contains("must be in the future"), "{output:?}");
    assert_eq!(home.run(&["key", "create", "--name", "never", "--expires", "soon"]).code, USAGE);
    let without = home.json(&["key", "create", "--name", "without"]);
    assert!(without.get("expires_at").is_none(), "{without}");
}

#[test]
fn a_rotated_key_and_the_previous_one_work_during_the_grace_period() {
    let gateway = Gateway::simulated();
    let created = gateway.run_command(&["key", "create", "--name", "program", "--json"]).json();
    let [id, first] = ["id", "secret"].map(|field| created[field].as_str().expect("a text").to_owned());
    let status_with = |key: &str| Call::get("/v1/models").key(key).send(gateway.address()).status;
    assert_eq!(status_with(&first), 200);
    let rotated = gateway.run_command(&["key", "rotate", &id, "--json"]).json();
    let second = rotated["secret"].as_str().expect("a secret").to_owned();
    assert_eq!((&rotated["id"], rotated["previous_until"].is_string()), (&json!(id), true));
    assert_eq!((status_with(&first), status_with(&second)), (200, 200));

    let third = gateway.run_command(&["key", "rotate", &id, "--grace", "0", "--json"]).json();
    let third = third["secret"].as_str().expect("a secret").to_owned();
    assert_eq!(status_with(&third), 200);
    // To accept the third secret, the gateway read its keys again, so it also knows the end of the other two.
    assert_eq!((status_with(&first), status_with(&second)), (401, 401));
    let output = gateway.run_command(&["key", "rotate", &id, "--grace", "31d"]);
    assert!(output.code == FAILED && output.stderr.contains("30 days"), "{output:?}");
    assert_eq!(status_with(&third), 200);
}

/// The running server finds the change of the command in the store; no other request makes it read its keys.
#[test]
fn a_key_disabled_by_command_is_refused_within_a_second() {
    /// The most calls until a refusal, with `PAUSE` between: a second and the time of the calls.
    const MAX_CALLS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(50);

    let gateway = Gateway::simulated();
    for (id, command) in [("key", ["key", "disable"]), ("user", ["user", "disable"])] {
        let created = gateway.run_command(&["key", "create", "--name", id, "--user", "bob", "--json"]).json();
        let [key, secret] = ["id", "secret"].map(|field| created[field].as_str().expect("a text").to_owned());
        let call = || Call::get("/v1/models").key(&secret).send(gateway.address());
        call().ok_json();
        gateway.run_command(&[command[0], command[1], if id == "key" { &key } else { "bob" }]).ok_stdout();
        let refusal = (0..MAX_CALLS).find_map(|_| {
            let answer = call();
            pause(PAUSE);
            (answer.status == 401).then_some(answer)
        });
        let refusal = refusal.unwrap_or_else(|| panic!("the {id} is still accepted a second after it was disabled"));
        assert_eq!(refusal.error_object(401)["code"], "INVALID_API_KEY");
    }
}

#[test]
fn an_admin_token_is_shown_only_when_it_is_created() {
    let home = Installation::new();
    home.run(&["user", "invite", "bob", "--admin"]).ok_stdout();
    let output = home.run(&["token", "create", "--name", "ci", "--user", "bob"]);
    let secret = output.ok_stdout().trim().to_owned();
    assert!(secret.starts_with("sk-adm-"), "{secret}");
    let listed = home.json(&["token", "list"]);
    assert_eq!((&listed[0]["name"], &listed[0]["user_name"]), (&json!("ci"), &json!("bob")));
    assert!(!listed.to_string().contains(&secret) && secret.contains(listed[0]["public_id"].as_str().expect("a text")));
    home.run(&["token", "delete", listed[0]["id"].as_str().expect("an id")]).ok_stdout();
    assert_eq!(home.json(&["token", "list"]), json!([]));
    let output = home.run(&["token", "delete", "tok_1"]);
    assert!(output.code == FAILED && output.stderr.contains("the token tok_1 does not exist"), "{output:?}");
    let output = home.run(&["token", "create", "--name", "ci", "--user", "eve"]);
    assert!(output.code == FAILED && output.stderr.contains("the user eve does not exist"), "{output:?}");
}

#[test]
fn the_audit_trail_has_the_changes_of_commands() {
    let home = Installation::new();
    let key = home.json(&["key", "create", "--name", "program", "--user", "ada", "--group", "studio"]);
    let id = key["id"].as_str().expect("an id");
    home.run(&["key", "disable", id]).ok_stdout();
    home.run(&["key", "delete", id]).ok_stdout();
    home.run(&["account", "add", "--name", "second", "--kind", "simulator"]).ok_stdout();
    home.run(&["account", "disable", "second", "--reason", "too slow"]).ok_stdout();
    let rows = home.audit_rows(&[]);
    let actions: Vec<_> = rows.iter().map(|row| row["action"].as_str().expect("a text")).collect();
    let expected =
        ["user.create", "group.create", "key.create", "key.disable", "key.delete", "account.add", "account.disable"];
    assert_eq!(actions, expected);
    assert!(rows.iter().all(|row| row["actor_kind"] == "command" && row["at"].is_string()), "{rows:#?}");
    assert_eq!((&rows[2]["target_id"], &rows[2]["details"]["user"]), (&key["id"], &json!("ada")));
    assert_eq!(rows[6]["details"], json!({"reason": "too slow"}));
    assert_eq!(home.audit_rows(&["--action", "key"]).len(), 3);
    let table = home.run(&["audit", "--action", "account"]);
    assert!(table.ok_stdout().contains("account second") && table.ok_stdout().contains("too slow"), "{table:?}");
}

#[test]
fn names_with_invisible_or_bidirectional_characters_are_refused() {
    let home = Installation::new();
    for name in ["\u{202e}nimda", "ad\u{200b}a", "\u{2066}ada", "\u{200b}", "\u{e0041}da", "a\u{fe0f}"] {
        for args in [
            &["user", "invite", name][..],
            &["key", "create", "--name", name],
            &["key", "create", "--name", "k", "--user", name],
            &["key", "create", "--name", "k", "--group", name],
        ] {
            let output = home.run(args);
            assert!(output.code == FAILED && output.stderr.contains("visible character"), "{args:?}: {output:?}");
            assert!(!output.stderr.contains(name), "{output:?}");
        }
    }
    // A Cyrillic letter in a Latin word.
    let output = home.run(&["user", "invite", "\u{430}da"]);
    assert!(output.code == FAILED && output.stderr.contains("letters of different scripts"), "{output:?}");
    home.run(&["user", "invite", "\u{430}\u{434}\u{430}"]).ok_stdout();
    // The decomposed and the composed form are the same name.
    home.run(&["user", "invite", "Jose\u{301}"]).ok_stdout();
    let output = home.run(&["user", "invite", "Jos\u{e9}"]);
    assert!(output.code == FAILED && output.stderr.contains("already"), "{output:?}");
    assert_eq!(home.json(&["user", "list"]).as_array().map(Vec::len), Some(2));
}
