//! The management commands on a gateway that is managed through its admin API: output as on its store, profiles,
//! and failures that say what to do and show no token. `login` tests its prompt at a terminal.

mod asked_gateway;
#[cfg(unix)]
mod login;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Account, Call, CommandOutput, FakeUpstream, Gateway, Program, RefusingPort, StubServer, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
/// Exit codes: the command failed, or its usage was wrong.
const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);

/// A machine without an installation, from which gateways are managed.
struct AdminMachine(TempDir);

impl AdminMachine {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn program(&self, args: &[&str]) -> Program {
        Program::new(self.0.path()).args(args)
    }

    /// Runs a command on the gateway at this address. No command may print the token, or make a data folder here.
    #[track_caller]
    fn run(&self, url: &str, token: &str, args: &[&str]) -> CommandOutput {
        let output = self.program(args).args(["--url", url]).env("IMAGATE_ADMIN_TOKEN", token).run();
        assert!(!output.stdout.contains(token) && !output.stderr.contains(token), "{output:?}");
        assert!(!self.0.path().join("data").exists(), "a command on another gateway makes no installation");
        output
    }

    fn profile_file(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(".config/imagate/profiles").join(format!("{name}.toml"))
    }
}

fn open() -> (FakeUpstream, Gateway) {
    let upstream = FakeUpstream::start();
    let accounts = [Account::for_upstream("only", &upstream)];
    let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &accounts, &[("IT_ADMIN", TOKEN)]);
    (upstream, gateway)
}

fn url(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address())
}

/// The lines of the output as JSON: one value, or one in each line.
#[track_caller]
fn values(output: &CommandOutput) -> Vec<Value> {
    output.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs a command on the store and through the admin API, and compares its output.
#[track_caller]
fn assert_same(gateway: &Gateway, desk: &AdminMachine, args: &[&str]) {
    let with_json = [args, &["--json"]].concat();
    let (before, remote) = (gateway.run_command(&with_json), desk.run(&url(gateway), TOKEN, &with_json));
    // The gateway may note the last use of a key between two commands.
    let local = if values(&before) == values(&remote) { before } else { gateway.run_command(&with_json) };
    assert_eq!(values(&local), values(&remote), "{args:?}");
    assert!(remote.stderr.contains(&format!("gateway: {}", url(gateway))), "{remote:?}");
    let (before, remote) = (gateway.run_command(args), desk.run(&url(gateway), TOKEN, args));
    let local = if before.stdout == remote.stdout { before } else { gateway.run_command(args) };
    assert_eq!(local.ok_stdout(), remote.ok_stdout(), "{args:?}");
}

/// A command is written once, so only what the two ways have of their own is compared: one request, one with a filter,
/// one that combines two answers, and one that prints as it reads.
#[test]
fn a_list_is_the_same_as_on_the_store() {
    let (_upstream, gateway) = open();
    let desk = AdminMachine::new();
    gateway.generate(json!({}));
    gateway.generate(json!({"size": "1536x1024", "quality": "low"}));
    gateway.final_records(2);
    for args in [
        &["key", "list"][..],
        &["audit", "--action", "key", "--actor", "command line"],
        &["usage", "--quality", "low", "--since", "1d"],
        &["usage", "--by", "key", "--cost"],
        &["account", "explain", "--size", "3840x2160"],
    ] {
        assert_same(&gateway, &desk, args);
    }
    let csv = &["usage", "--csv"];
    assert_eq!(gateway.run_command(csv).ok_stdout(), desk.run(&url(&gateway), TOKEN, csv).ok_stdout());
}

/// The time of the last use is stored a moment after the use.
fn without_use(mut key: Value) -> Value {
    key["last_used_at"].take();
    key
}

#[test]
fn a_key_lives_its_whole_life_on_another_gateway() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    let run = |args: &[&str]| desk.run(&url, TOKEN, &[args, &["--json"]].concat());
    let local = |id: &str| {
        let keys = gateway.run_command(&["key", "list", "--json"]).json();
        keys.as_array().expect("keys").iter().find(|key| key["id"] == id).cloned()
    };
    let made = run(&["key", "create", "--name", "laptop", "--user", "admin"]).json();
    let id = made["id"].as_str().expect("an id");
    let secret = made["secret"].as_str().expect("a secret");
    Call::generation().json(&request(json!({}))).key(secret).send(gateway.address()).ok_json();
    let rotated = run(&["key", "rotate", id, "--grace", "1h"]).json();
    assert!(rotated["secret"] != made["secret"] && rotated["previous_until"].is_string(), "{rotated}");
    let limits = json!({"images_per_day": 5, "budget_usd": 2.0});
    for (args, member, expected) in [
        (&["key", "limit", id, "--limit", "images_per_day=5", "--limit", "budget_usd=2"][..], "limits", limits),
        (&["key", "limit", id], "limits", Value::Null),
        (&["key", "dialects", id, "--dialect", "sizes", "--dialect", "url"], "dialects", json!(["sizes", "url"])),
        (&["key", "dialects", id], "dialects", Value::Null),
        (&["key", "disable", id], "state", json!("disabled")),
        (&["key", "enable", id], "state", json!("active")),
    ] {
        let changed = run(args).json();
        assert_eq!(changed[member], expected, "{args:?}");
        assert_eq!(Some(without_use(changed)), local(id).map(without_use), "{args:?}");
    }
    run(&["key", "delete", id]).ok_stdout();
    assert_eq!(local(id), None);
    let unknown = desk.run(&url, TOKEN, &["key", "disable", "key_nobody"]);
    assert!(unknown.code == FAILED && unknown.stderr.contains("key_not_found"), "{unknown:?}");
}

#[test]
fn users_tokens_groups_accounts_and_prices_are_changed_on_another_gateway() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    let run = |args: &[&str]| desk.run(&url, TOKEN, &[args, &["--json"]].concat()).json();
    let link = run(&["user", "invite", "kim"]);
    assert!(link["link"].as_str().is_some_and(|link| link.starts_with(&format!("{url}/invitation/"))), "{link}");
    assert_eq!(run(&["user", "limit", "kim", "--limit", "budget_usd=5"])["limits"], json!({"budget_usd": 5.0}));
    assert_eq!(run(&["user", "role", "kim", "admin"])["role"], "admin");
    assert_eq!(run(&["user", "groups", "kim"])["groups"], json!([]));
    assert!(run(&["user", "disable", "kim"])["disabled_at"].is_string());
    assert_eq!(run(&["user", "enable", "kim"])["disabled_at"], Value::Null);
    assert!(run(&["user", "reset", "kim"])["link"].is_string());
    let token = run(&["token", "create", "--name", "deploy", "--user", "kim"]);
    assert!(token["secret"].as_str().is_some_and(|secret| secret.starts_with("sk-adm-")), "{token}");
    assert_eq!(run(&["token", "delete", token["id"].as_str().expect("an id")])["id"], token["id"]);
    let policy = desk.0.path().join("policy.toml");
    std::fs::write(&policy, "image_deadline = \"90s\"\n[limits]\nbudget_usd = 5\n").expect("a file");
    let policy = policy.to_str().expect("a path");
    let made = run(&["group", "create", "team", "--policy", policy]);
    assert_eq!(
        (&made["policy"]["image_deadline"], &made["policy"]["limits"]["budget_usd"]),
        (&json!("90s"), &json!(5.0))
    );
    assert_eq!(made, gateway.run_command(&["group", "show", "team", "--json"]).json());
    assert_eq!(run(&["group", "delete", "team"])["deleted"], true);
    assert_eq!(run(&["account", "add", "--name", "drawn", "--kind", "simulator"])["state"], "enabled");
    let disabled = run(&["account", "disable", "drawn", "--reason", "a test"]);
    assert_eq!((&disabled["state"], &disabled["disabled_reason"]), (&json!("disabled"), &json!("a test")));
    assert_eq!(run(&["account", "enable", "drawn"])["state"], "enabled");
    assert_eq!(run(&["account", "test", "drawn"])["result"], "simulator");
    assert_eq!(run(&["account", "delete", "drawn"])["name"], "drawn");
    let price = run(&["price", "set", "drawn-1", "--from", "2026-01-01", "--per-image", "2"]);
    assert_eq!((&price["per_image"], &price["origin"]), (&json!(2.0), &json!("store")));
    assert_eq!(run(&["price", "delete", "drawn-1", "--from", "2026-01-01"])["deleted"], true);
}

#[test]
fn a_member_manages_only_their_own_objects() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    gateway.run_command(&["user", "invite", "kim"]).ok_stdout();
    let token = gateway.run_command(&["token", "create", "--name", "t", "--user", "kim"]).ok_stdout().trim().to_owned();
    let made = desk.run(&url, &token, &["key", "create", "--name", "own", "--json"]).json();
    let keys = desk.run(&url, &token, &["key", "list", "--json"]).json();
    assert_eq!((keys.as_array().map(Vec::len), &keys[0]["id"]), (Some(1), &made["id"]));
    let foreign = desk.run(&url, &token, &["key", "disable", gateway.key_id()]);
    assert!(foreign.code == FAILED && foreign.stderr.contains("key_not_found"), "{foreign:?}");
    let refused = desk.run(&url, &token, &["account", "list"]);
    assert!(refused.code == FAILED && refused.stderr.contains("needs the token of an admin"), "{refused:?}");
}

#[test]
fn a_profile_is_saved_for_its_owner_alone_and_used_only_by_name() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    let file = desk.0.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("a file");
    let login = desk.program(&["login", &url, "--profile", "studio"]).stdin(&file).run();
    assert_eq!(login.ok_stdout(), "studio\n");
    assert!(login.stderr.contains("--profile studio") && !login.stderr.contains(TOKEN), "{login:?}");
    let saved = desk.profile_file("studio");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
        assert_eq!((mode(&saved), mode(saved.parent().expect("a folder"))), (0o600, 0o700));
    }
    let named = desk.program(&["key", "list", "--json", "--profile", "studio"]).run();
    assert!(named.stderr.contains(&format!("gateway: {url} (profile studio)")), "{named:?}");
    assert_eq!(named.json(), gateway.run_command(&["key", "list", "--json"]).json());
    let by_variable = desk.program(&["key", "list", "--json"]).env("IMAGATE_PROFILE", "studio").run();
    assert_eq!(by_variable.json(), named.json());
    let local = desk.program(&["key", "list", "--json"]).run();
    assert_eq!(
        (local.json(), local.stderr.contains(&url)),
        (json!([]), false),
        "a saved profile alone changes nothing"
    );
    let explicit =
        desk.program(&["key", "list", "--json", "--data-dir", "data"]).env("IMAGATE_PROFILE", "studio").run();
    assert_eq!(explicit.json(), json!([]), "an argument goes before a variable");

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&saved, std::fs::Permissions::from_mode(0o644)).expect("a mode");
        let open = desk.program(&["key", "list", "--profile", "studio"]).run();
        assert!(open.code == FAILED && open.stderr.contains("chmod 600") && !open.stderr.contains(TOKEN), "{open:?}");
    }
    assert_eq!(desk.program(&["logout", "--profile", "studio"]).run().ok_stdout(), "studio removed\n");
    let gone = desk.program(&["key", "list", "--profile", "studio"]).run();
    assert!(gone.code == FAILED && gone.stderr.contains("imagate login URL --profile studio"), "{gone:?}");
}

#[test]
fn a_gateway_that_cannot_be_used_is_explained_without_the_token() {
    let (_upstream, gateway) = open();
    let desk = AdminMachine::new();
    let wrong = desk.run(&url(&gateway), "sk-adm-wrong-0123456789", &["key", "list"]);
    assert!(wrong.code == FAILED && wrong.stderr.contains("imagate token create"), "{wrong:?}");
    let login = desk.program(&["login", &url(&gateway)]).run();
    assert!(login.code == USAGE && login.stderr.contains("the admin token is empty"), "{login:?}");
    let closed = RefusingPort::new();
    let address = closed.base_url().trim_end_matches("/v1").to_owned();
    let nobody = desk.run(&address, TOKEN, &["key", "list"]);
    let question = format!("is `imagate serve` running at {address}?");
    assert!(nobody.code == FAILED && nobody.stderr.contains(&question), "{nobody:?}");
    let unknown = desk.run("https://gateway.invalid", TOKEN, &["key", "list"]);
    assert!(unknown.code == FAILED && unknown.stderr.contains("gateway.invalid"), "{unknown:?}");
    let other = StubServer::start(|_| Some((404, "<html>no gateway</html>".to_owned())));
    let other = desk.run(&format!("http://{}", other.address()), TOKEN, &["key", "list"]);
    assert!(other.code == FAILED && other.stderr.contains("status 404"), "{other:?}");
}

#[test]
fn arguments_that_contradict_each_other_are_refused_before_anything_is_done() {
    let desk = AdminMachine::new();
    for (args, message) in [
        (&["key", "list", "--url", "http://gateway.example"][..], "--allow-http"),
        (&["key", "list", "--url", "https://a.example", "--profile", "studio"], "name two gateways"),
        (&["key", "list", "--url", "https://a.example", "--data-dir", "data"], "installation on this machine"),
        (&["key", "list", "--token-file", "token"], "need `--url`"),
        (&["user", "setup-link", "--url", "https://a.example"], "works only on the gateway's own machine, because"),
    ] {
        let output = desk.program(args).env("IMAGATE_ADMIN_TOKEN", TOKEN).run();
        assert!(output.code == USAGE && output.stderr.contains(message), "{args:?}: {output:?}");
        assert!(!output.stderr.contains(TOKEN) && !desk.0.path().join("data").exists(), "{output:?}");
    }
    let without = desk.program(&["key", "list", "--url", "https://a.example"]).run();
    assert!(without.code == USAGE && without.stderr.contains("no admin token"), "{without:?}");
}

#[test]
fn the_words_of_a_newer_gateway_are_printed_as_they_are() {
    let server = StubServer::start(|request| {
        assert!(request.path.starts_with("/admin/v1/keys?"), "{}", request.path);
        let key = json!({
            "id": "key_1", "public_id": "sk-img-a", "name": "laptop", "user": "usr_1", "user_name": "kim",
            "group": "default", "state": "paused", "locked": "audit", "created_at": "2026-11-21T03:00:00.000Z",
            "requests": 1, "images": 2, "mood": {"good": true},
        });
        Some((200, json!({"object": "page", "data": [key], "has_more": false, "total": 1, "new": 1}).to_string()))
    });
    let (desk, url) = (AdminMachine::new(), format!("http://{}", server.address()));
    let key = desk.run(&url, TOKEN, &["key", "list", "--json"]).json()[0].clone();
    assert_eq!((&key["state"], &key["locked"]), (&json!("paused"), &json!("audit")));
    assert!(desk.run(&url, TOKEN, &["key", "list"]).ok_stdout().contains("paused (audit)"));
}
