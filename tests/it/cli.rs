//! The command line, with and without a running server: keys, usage, `generate`, exit codes, configuration errors.

mod help;
mod upscale;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Account, Call, FakeUpstream, Gateway, Program, format_and_size};

/// Exit codes of a failure, of wrong usage, and of a wrong configuration.
const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);
const CONFIG: Option<i32> = Some(64);

/// The key with this id in `key list`.
fn listed(gateway: &Gateway, id: &str) -> Option<Value> {
    let printed = gateway.run_command(&["key", "list", "--json"]).ok_stdout().to_owned();
    let keys: Vec<Value> = match serde_json::from_str(&printed) {
        Ok(Value::Array(keys)) => keys,
        // A list may also be printed as one object per line.
        _ => printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(),
    };
    keys.into_iter().find(|key| key["id"] == id)
}

#[test]
fn a_new_key_is_printed_with_its_secret_and_never_again() {
    let gateway = Gateway::simulated();
    let key = gateway.make_key("build server");
    for field in ["id", "name", "user", "group", "secret", "created_at"] {
        assert!(key[field].as_str().is_some_and(|value| !value.is_empty()), "{field}: {key}");
    }
    assert_eq!((&key["name"], &key["group"]), (&json!("build server"), &json!("default")));
    let secret = key["secret"].as_str().expect("a secret");
    assert!(secret.starts_with("sk-img-"));
    let id = key["id"].as_str().expect("an id");
    let shown = listed(&gateway, id).expect("the key is listed");
    assert_eq!(shown["name"], "build server");
    assert!(!shown.to_string().contains(secret), "{shown}");
    assert!(!gateway.run_command(&["key", "list"]).ok_stdout().contains(secret));
}

#[test]
fn two_keys_may_have_the_same_name() {
    let gateway = Gateway::simulated();
    let (first, second) = (gateway.make_key("same"), gateway.make_key("same"));
    assert!(first["id"] != second["id"] && first["secret"] != second["secret"]);
}

#[test]
fn disabling_enabling_and_deleting_an_unknown_key_fails() {
    let gateway = Gateway::simulated();
    for action in ["disable", "enable", "delete"] {
        let output = gateway.run_command(&["key", action, "key_nobody"]);
        assert_eq!(output.code, FAILED, "{action}: {output:#?}");
        assert!(output.stderr.contains("key_nobody"), "{output:#?}");
    }
}

#[test]
fn keys_made_beside_a_running_server_work_at_once() {
    let gateway = Gateway::simulated();
    let key = gateway.make_key("late");
    Call::get("/v1/models").key(key["secret"].as_str().expect("a secret")).send(gateway.address()).ok_json();
}

#[test]
fn commands_and_a_running_server_share_the_database() {
    let mut gateway = Gateway::simulated();
    // Each command opens and closes the database that the server has open.
    for name in ["one", "two", "three"] {
        gateway.make_key(name);
        gateway.generate(json!({"user": name})).ok_json();
        gateway.run_command(&["usage", "--json"]).ok_stdout();
    }
    assert_eq!(gateway.server().deleted_files(), Vec::<String>::new(), "the server has deleted files open");
    assert_eq!(gateway.final_records(3).len(), 3);
    gateway.kill();
    gateway.start();
    assert_eq!(gateway.records().len(), 3, "records were lost in a kill");
    gateway.generate(json!({})).ok_json();
}

#[test]
fn usage_is_printed_as_json_lines_and_as_csv_and_for_one_key() {
    let gateway = Gateway::simulated();
    let other = gateway.make_key("other");
    gateway.generate(json!({"user": "a,\"quoted\"\nuser"})).ok_json();
    Call::generation()
        .key(other["secret"].as_str().expect("a secret"))
        .json(&crate::kit::request(json!({})))
        .send(gateway.address())
        .ok_json();
    assert_eq!(gateway.final_records(2).len(), 2);
    let id = other["id"].as_str().expect("an id");
    let output = gateway.run_command(&["usage", "--json", "--key", id]);
    let records: Vec<Value> =
        output.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["key"], id);
    let csv = gateway.run_command(&["usage", "--csv"]).ok_stdout().to_owned();
    let head = csv.lines().next().expect("a header line");
    for column in [
        "request_id",
        "created_at",
        "model",
        "state",
        "size",
        "quality",
        "latency_ms",
        "account",
        "group",
        "user",
        "key",
    ] {
        assert!(head.split(',').any(|name| name == column), "{column}: {head}");
    }
    assert!(
        csv.contains("\"a,\"\"quoted\"\"\nuser\""),
        "a field with commas, quotes and line breaks must be quoted: {csv}"
    );
}

#[test]
fn empty_usage_is_no_error() {
    let gateway = Gateway::simulated();
    assert_eq!(gateway.run_command(&["usage", "--json"]).ok_stdout(), "");
}

/// `imagate generate`, with the address and the key in the environment under these names.
fn generate(gateway: &Gateway, names: [&str; 2], words: &[&str]) -> crate::kit::CommandOutput {
    let program = Program::new(gateway.home()).env(names[0], gateway.base_url()).env(names[1], gateway.secret());
    program.args(["generate", "three boats"]).args(words).run()
}

fn files(gateway: &Gateway) -> Vec<String> {
    let names =
        std::fs::read_dir(gateway.home()).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

#[test]
fn generate_writes_a_file_of_the_requested_size_and_format() {
    let gateway = Gateway::simulated();
    let names = [["IMAGATE_BASE_URL", "IMAGATE_API_KEY"], ["OPENAI_BASE_URL", "OPENAI_API_KEY"]];
    for (names, (file, format)) in
        names.into_iter().cycle().zip([("a.png", "png"), ("b.jpg", "jpeg"), ("c.webp", "webp")])
    {
        let output =
            generate(&gateway, names, &["--size", "1024x640", "--quality", "low", "--format", format, "-o", file]);
        output.ok_stdout();
        let bytes = std::fs::read(gateway.home().join(file)).expect("the file");
        assert_eq!(format_and_size(&bytes), (format.to_owned(), "1024x640".to_owned()));
    }
    let base_url = gateway.base_url();
    let by_flag = Program::new(gateway.home())
        .args(["generate", "a boat", "--base-url", &base_url, "--api-key", gateway.secret(), "-o", "d.png"])
        .run();
    by_flag.ok_stdout();
    assert!(files(&gateway).contains(&"d.png".to_owned()));
}

#[test]
fn imagate_variables_win_over_openai_variables() {
    let gateway = Gateway::simulated();
    let program = Program::new(gateway.home())
        .env("IMAGATE_BASE_URL", gateway.base_url())
        .env("IMAGATE_API_KEY", gateway.secret());
    let program = program.env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1").env("OPENAI_API_KEY", "sk-other");
    program.args(["generate", "a boat", "-o", "e.png"]).run().ok_stdout();
}

#[test]
fn a_failed_generate_leaves_no_file_and_says_why() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let before = files(&gateway);
    for script in ["status=400 body=policy", "cut=60% b64=400000", "lack=3 b64=400000", "data=empty"] {
        upstream.always_for_token("sk-upstream-only", script);
        let attempts = upstream.attempt_count();
        let output = generate(&gateway, ["IMAGATE_BASE_URL", "IMAGATE_API_KEY"], &["-o", "out.png"]);
        assert_eq!(output.code, FAILED, "{script}: {output:#?}");
        assert!(!output.stderr.is_empty(), "{script}");
        assert_eq!(upstream.attempt_count(), attempts + 1, "{script}: the client must not pay twice");
        let mut after = files(&gateway);
        // The folder of the keys of commands whose outcome is unknown.
        after.retain(|name| !before.contains(name) && name != ".local");
        assert!(after.is_empty(), "{script}: {after:?} is left");
    }
}

#[test]
fn a_wrong_key_or_a_dead_address_is_a_failure_without_secrets() {
    let gateway = Gateway::simulated();
    let base_url = gateway.base_url();
    for (base, key) in [(base_url.as_str(), "sk-img-secret-canary"), ("http://127.0.0.1:9/v1", "sk-img-secret-canary")]
    {
        let output = Program::new(gateway.home())
            .args(["generate", "a boat", "--base-url", base, "-o", "x.png"])
            .env("IMAGATE_API_KEY", key)
            .run();
        assert_eq!(output.code, FAILED, "{output:#?}");
        assert!(!format!("{output:?}").contains("secret-canary"), "{output:#?}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let home = TempDir::new().expect("a directory");
    for words in
        [&["no-such-command"][..], &["serve", "--no-such-flag"], &["key", "create"], &["generate"], &["key", "disable"]]
    {
        let output = Program::new(home.path()).args(words).run();
        assert_eq!(output.code, USAGE, "{words:?}: {output:#?}");
    }
    let size = Program::new(home.path())
        .args(["generate", "a boat", "--size", "1000x1000", "--base-url", "http://127.0.0.1:9/v1", "--api-key", "k"])
        .run();
    assert_eq!(size.code, USAGE, "an invalid size is refused before a request is sent: {size:#?}");
}

#[test]
fn every_problem_of_the_configuration_is_reported_at_once_with_its_line() {
    let home = TempDir::new().expect("a directory");
    let file = home.path().join("imagate.toml");
    let text = "listen = \"nowhere\"\ndrain_timeot = \"5s\"\n\n[[accounts]]\nname = \"a\"\nkind = \"api_kee\"\n\n\
                [[accounts]]\nname = \"b\"\nkind = \"api_key\"\nbase_url = \"http://example.com/v1\"\napi_key = { env = \"IT_NOT_SET\" }\n";
    std::fs::write(&file, text).expect("a file");
    for command in [&["serve"][..], &["config", "check"], &["key", "list"]] {
        let output = Program::new(home.path()).args(command).args(["--config"]).args([&file]).run();
        assert_eq!(output.code, CONFIG, "{command:?}: {output:#?}");
        for (line, word) in [(1, "listen"), (2, "drain_timeout"), (6, "api_key"), (11, "http"), (12, "IT_NOT_SET")] {
            let found = output
                .stderr
                .lines()
                .any(|text| text.contains(&format!("imagate.toml:{line}:")) && text.contains(word));
            assert!(found, "{command:?}: line {line}, {word}: {}", output.stderr);
        }
        assert!(output.stdout.is_empty(), "no address may be bound: {}", output.stdout);
    }
}

#[test]
fn a_missing_or_malformed_configuration_exits_with_64() {
    let home = TempDir::new().expect("a directory");
    std::fs::write(home.path().join("bad.toml"), "listen = \n[[[").expect("a file");
    for name in ["absent.toml", "bad.toml"] {
        let output = Program::new(home.path()).args(["serve", "--config", name]).run();
        assert_eq!(output.code, CONFIG, "{output:#?}");
        assert!(output.stderr.contains(name), "{output:#?}");
    }
}

#[test]
fn an_address_that_is_taken_is_a_failure() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let home = TempDir::new().expect("a directory");
    let output = Program::new(home.path()).args(["serve", "--listen", &address, "--data-dir", "data"]).run();
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains(&address), "{output:#?}");
    assert!(!output.stdout.contains("listening on"), "{output:#?}");
}

#[test]
fn accounts_are_listed_without_their_secrets() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with(
        "",
        &[Account::for_upstream("first", &upstream), Account::for_upstream("second", &upstream).with_free_tier()],
    );
    let output = gateway.run_command(&["account", "list", "--json"]);
    let printed = output.ok_stdout();
    assert!(printed.contains("first") && printed.contains("second"), "{printed}");
    assert!(!printed.contains("sk-upstream"), "{printed}");
}
