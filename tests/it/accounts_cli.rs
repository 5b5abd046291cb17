//! The commands for upstream accounts and the master key: what they store and show, and that they never show a secret.

mod beside;
mod master_key;

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Account, CommandOutput, FakeUpstream, Gateway, Program};

/// Exit codes of a failure and of wrong usage.
const FAILED: Option<i32> = Some(1);
const USAGE: Option<i32> = Some(2);

const SECRET: &str = "sk-canary-of-a-kept-account";
const ADDRESS: &str = "http://127.0.0.1:9/v1";

/// An installation without a server; its file has one account, `written`.
struct CliFixture(TempDir);

impl CliFixture {
    fn new() -> Self {
        Self::with_settings("")
    }

    fn with_settings(settings: &str) -> Self {
        let home = TempDir::new().expect("a directory");
        let account = "[[accounts]]\nname = \"written\"\nkind = \"simulator\"\n";
        std::fs::write(home.path().join("imagate.toml"), format!("data_dir = \"data\"\n{settings}\n{account}"))
            .expect("a file");
        Self(home)
    }

    fn program(&self, arguments: &[&str]) -> Program {
        Program::new(self.0.path()).args(arguments).args(["--config", "imagate.toml"]).env("IT_SECRET", SECRET)
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.program(arguments).run()
    }

    /// Adds an account with a key, with these further arguments.
    #[track_caller]
    fn add(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        let base = ["account", "add", "--name", name, "--base-url", ADDRESS, "--api-key-env", "IT_SECRET"];
        self.run(&[&base, arguments].concat())
    }

    #[track_caller]
    fn listed(&self) -> Vec<Value> {
        let Value::Array(listed) = self.run(&["account", "list", "--json"]).json() else { panic!("a list") };
        listed
    }

    #[track_caller]
    fn find(&self, name: &str) -> Value {
        self.listed().into_iter().find(|account| account["name"] == name).expect("the account is listed")
    }
}

/// Every byte below a folder.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { bytes_below(&path) } else { std::fs::read(path).expect("a file") })
        .collect()
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn an_added_account_is_listed_and_its_key_is_never_shown() {
    let home = CliFixture::new();
    let arguments = [
        "--tier",
        "free",
        "--group",
        "default",
        "--group",
        "team",
        "--priority",
        "-3",
        "--large-concurrency",
        "1",
        "--refusal-phrase",
        "not that one",
        "--limit-phrase",
        "come back tomorrow",
    ];
    let added = home.add("kept", &arguments);
    assert_eq!(added.ok_stdout(), "kept added\n");
    assert!(added.stderr.contains("the group team is not in the settings"), "{added:#?}");
    let kept = home.find("kept");
    assert!(kept["id"].as_str().is_some_and(|id| id.starts_with("acc_")), "{kept}");
    let expected = [
        ("source", "store".into()),
        ("kind", "api_key".into()),
        ("protocol", "images".into()),
        ("base_url", ADDRESS.into()),
        ("tier", "free".into()),
        ("groups", json!(["default", "team"])),
        ("priority", (-3).into()),
        ("concurrency", 8.into()),
        ("large_concurrency", 1.into()),
        ("state", "enabled".into()),
        ("problem", Value::Null),
    ];
    for (field, value) in expected {
        assert_eq!(kept[field], value, "{field}: {kept}");
    }
    assert_eq!(home.find("written")["source"], "file");
    let table = home.run(&["account", "list"]);
    assert!(table.ok_stdout().contains("kept") && table.stdout.contains("store"), "{table:#?}");
    assert!(!format!("{added:?}{kept}{table:?}").contains(SECRET));
    assert!(!holds(&bytes_below(home.0.path()), SECRET), "the key is stored in plain text");
}

#[test]
fn an_oauth_account_takes_its_secrets_from_a_file_and_standard_input() {
    let home = CliFixture::new();
    std::fs::write(home.0.path().join("client.txt"), "client-secret-canary\n").expect("a file");
    std::fs::write(home.0.path().join("piped"), "refresh-token-canary\n").expect("a file");
    let arguments = [
        "account",
        "add",
        "--json",
        "--name",
        "tokens",
        "--kind",
        "oauth",
        "--base-url",
        ADDRESS,
        "--token-url",
        "http://127.0.0.1:9/token",
        "--grant",
        "refresh_token",
        "--client-id",
        "app",
        "--client-secret-file",
        "client.txt",
        "--refresh-token-file",
        "-",
        "--client-auth",
        "body",
        "--scope",
        "a b",
    ];
    let added = home.program(&arguments).stdin(&home.0.path().join("piped")).run();
    assert_eq!((&added.json()["kind"], &added.json()["state"]), (&"oauth".into(), &"enabled".into()), "{added:#?}");
    let stored = bytes_below(&home.0.path().join("data"));
    assert!(!holds(&stored, "refresh-token-canary") && !holds(&stored, "client-secret-canary"));
}

#[test]
fn all_errors_of_a_new_account_are_reported_at_once() {
    let home = CliFixture::new();
    let output = home.run(&[
        "account",
        "add",
        "--name",
        "bad name",
        "--base-url",
        "http://api.example.com/v1",
        "--scope",
        "a",
        "--concurrency",
        "0",
    ]);
    assert_eq!(output.code, USAGE, "{output:#?}");
    for word in ["`name`", "`base_url` must begin with `https://`", "`api_key` is missing", "`scope`", "`concurrency`"]
    {
        assert!(output.stderr.contains(word), "{word}: {output:#?}");
    }
    assert_eq!(home.listed().len(), 1);
}

#[test]
fn a_key_that_is_not_alone_and_a_base_url_with_an_operation_are_told_with_what_to_write() {
    let home = CliFixture::new();
    let base = ["account", "add", "--name", "a", "--api-key-file", "key.txt", "--base-url"];
    for (key, url, words) in [
        (format!("Bearer {SECRET}\n"), ADDRESS.to_owned(), "`api_key` begins with `Bearer`"),
        (format!("\"{SECRET}\"\n"), ADDRESS.to_owned(), "`api_key` stands in quotes: write it without them"),
        (
            SECRET.to_owned(),
            format!("{ADDRESS}/images/generations"),
            "`base_url` must end before `/images/generations`",
        ),
    ] {
        std::fs::write(home.0.path().join("key.txt"), &key).expect("a file");
        let output = home.run(&[&base[..], &[&*url]].concat());
        assert_eq!(output.code, USAGE, "{output:#?}");
        assert!(output.stderr.contains(words) && !output.stderr.contains(SECRET), "{output:#?}");
        let setting = if words.contains("base_url") {
            format!("base_url = \"{url}\"")
        } else {
            format!("base_url = \"{ADDRESS}\"")
        };
        let file = format!(
            "data_dir = \"other\"\n[[accounts]]\nname = \"a\"\nkind = \"api_key\"\napi_key = {{ file = \"key.txt\" }}\n{setting}\n"
        );
        std::fs::write(home.0.path().join("other.toml"), file).expect("a file");
        let checked = Program::new(home.0.path()).args(["config", "check", "--config", "other.toml"]).run();
        assert_eq!(checked.code, Some(64), "{checked:#?}");
        assert!(checked.stderr.contains(words) && !checked.stderr.contains(SECRET), "{checked:#?}");
    }
    assert_eq!(home.listed().len(), 1);
    std::fs::write(home.0.path().join("key.txt"), format!("\u{feff}{SECRET}\r\n")).expect("a file");
    home.run(&[&base[..], &[ADDRESS]].concat()).ok_stdout();
    assert_eq!(home.find("a")["problem"], Value::Null);
}

#[test]
fn a_secret_is_no_argument_and_has_exactly_one_source() {
    let home = CliFixture::new();
    let base = ["account", "add", "--name", "a", "--base-url", ADDRESS];
    for arguments in [
        &["--api-key", SECRET][..],
        &["--api-key-env", "IT_SECRET", "--api-key-file", "key.txt"],
        &["--api-key-env", "IT_NOT_SET"],
        &["--api-key-env", SECRET],
        &["--api-key-file", "absent.txt"],
        &["--api-key-file", "-", "--client-secret-file", "-"],
        // Empty standard input.
        &["--api-key-file", "-"],
    ] {
        let output = home.run(&[&base, arguments].concat());
        assert_eq!(output.code, USAGE, "{arguments:?}: {output:#?}");
        assert!(!output.stderr.contains(SECRET), "{arguments:?}: {output:#?}");
    }
    assert_eq!(home.listed().len(), 1);
}

#[test]
fn an_account_name_is_unique_in_file_and_store() {
    let home = CliFixture::new();
    home.add("kept", &[]).ok_stdout();
    for name in ["kept", "written"] {
        let output = home.add(name, &[]);
        assert_eq!(output.code, FAILED, "{output:#?}");
        assert!(output.stderr.contains(&format!("the account {name} already exists")), "{output:#?}");
    }
    assert_eq!(home.listed().len(), 2);
}

#[test]
fn an_account_is_disabled_with_a_reason_and_enabled_by_name_or_id() {
    let home = CliFixture::new();
    home.add("kept", &[]).ok_stdout();
    let id = home.find("kept")["id"].as_str().expect("an id").to_owned();
    for (name, handle) in [("kept", id.as_str()), ("kept", "kept"), ("written", "written")] {
        home.run(&["account", "disable", handle, "--reason", "the bill is due"]).ok_stdout();
        let found = home.find(name);
        assert_eq!((&found["state"], &found["disabled_reason"]), (&"disabled".into(), &"the bill is due".into()));
        assert!(found["disabled_at"].is_string(), "{found}");
        assert!(home.run(&["account", "list"]).ok_stdout().contains("disabled: the bill is due"));
        let enabled = home.run(&["account", "enable", handle, "--json"]).json();
        assert_eq!((&enabled["state"], &enabled["disabled_reason"]), (&"enabled".into(), &Value::Null));
    }
}

#[test]
fn only_an_account_of_the_store_can_be_deleted() {
    let home = CliFixture::new();
    home.add("kept", &[]).ok_stdout();
    let output = home.run(&["account", "delete", "written"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains("is defined in the settings file"), "{output:#?}");
    assert_eq!(home.run(&["account", "delete", "kept"]).ok_stdout(), "kept deleted\n");
    assert_eq!(home.listed().len(), 1);
    home.add("kept", &[]).ok_stdout();
}

#[test]
fn an_unknown_account_is_a_failure_that_names_it() {
    let home = CliFixture::new();
    for action in ["disable", "enable", "delete"] {
        let output = home.run(&["account", action, "acc_nobody"]);
        assert_eq!(output.code, FAILED, "{action}: {output:#?}");
        assert!(output.stderr.contains("the account acc_nobody does not exist"), "{output:#?}");
    }
}

#[test]
fn the_default_simulator_goes_when_an_account_is_added() {
    let home = TempDir::new().expect("a directory");
    let program = |arguments: &[&str]| Program::new(home.path()).args(arguments).env("IT_SECRET", SECRET).run();
    assert_eq!(program(&["account", "list", "--json"]).json()[0]["name"], "simulator");
    let arguments = ["account", "add", "--name", "kept", "--base-url", ADDRESS, "--api-key-env", "IT_SECRET"];
    program(&arguments).ok_stdout();
    let listed = program(&["account", "list", "--json"]).json();
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["name"]), (Some(1), &"kept".into()), "{listed}");
}

#[test]
fn a_listing_does_not_show_the_secrets_of_the_settings_file() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("first", &upstream)]);
    let printed = gateway.run_command(&["account", "list", "--json"]);
    assert_eq!(printed.json()[0]["state"], "enabled");
    assert!(!printed.stdout.contains("sk-upstream"), "{printed:#?}");
}

#[test]
fn testing_an_unreachable_account_fails_without_showing_secrets() {
    let home = CliFixture::new();
    home.add("kept", &[]).ok_stdout();
    let output = home.run(&["account", "test", "kept"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains("could not be reached") && !output.stderr.contains(SECRET), "{output:#?}");
    assert!(home.run(&["account", "test", "written"]).ok_stdout().contains("simulator"));
    assert_eq!(home.run(&["account", "test", "nobody"]).code, FAILED);
}

/// Two accounts of the file and a moderation service, whose secrets are not available.
const UPSTREAMS: &str = "[[accounts]]\nname = \"first\"\nkind = \"api_key\"\nbase_url = \"http://127.0.0.1:9/v1\"\n\
    api_key = { env = \"IT_FIRST\" }\n[[accounts]]\nname = \"second\"\nkind = \"api_key\"\n\
    base_url = \"http://127.0.0.1:9/v1\"\napi_key = { env = \"IT_SECOND\" }\n[[groups]]\nname = \"default\"\n\
    [groups.filter.moderation]\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key = { file = \"gone\" }\n\
    on_error = \"closed\"\n";

#[test]
fn a_command_without_upstream_calls_needs_no_upstream_secret() {
    let home = CliFixture::with_settings(UPSTREAMS);
    let key = home.run(&["key", "create", "--name", "laptop", "--json"]).json();
    let id = key["id"].as_str().expect("an id");
    home.run(&["user", "invite", "ben"]).ok_stdout();
    for arguments in [
        &["key", "list"][..],
        &["key", "disable", id],
        &["user", "list"],
        &["token", "list"],
        &["usage"],
        &["usage", "--by", "day"],
        &["audit"],
        &["account", "list"],
        &["account", "disable", "first"],
        &["account", "enable", "first"],
        &["account", "explain"],
        &["account", "test", "written"],
        &["master-key", "rotate"],
    ] {
        home.run(arguments).ok_stdout();
    }
    home.add("kept", &[]).ok_stdout();
    home.run(&["account", "rotate", "kept", "--api-key-env", "IT_SECRET"]).ok_stdout();
    home.run(&["account", "delete", "kept"]).ok_stdout();
}

#[test]
fn a_command_with_upstream_calls_needs_the_secrets_it_sends() {
    let home = CliFixture::with_settings(UPSTREAMS);
    for arguments in [&["serve"][..], &["config", "check"]] {
        let output = home.run(arguments);
        assert_eq!(output.code, Some(64), "{output:#?}");
        for name in ["IT_FIRST", "IT_SECOND", "a file that cannot be read"] {
            assert!(output.stderr.contains(name), "{name}: {output:#?}");
        }
    }
    let without = home.run(&["account", "test", "first"]);
    assert_eq!(without.code, Some(64), "{without:#?}");
    assert!(without.stderr.contains("IT_FIRST") && !without.stderr.contains("IT_SECOND"), "{without:#?}");
    // With its own secret, the account is tested, although other secrets are absent.
    let upstream = home.program(&["account", "test", "first"]).env("IT_FIRST", SECRET).run();
    assert_eq!(upstream.code, FAILED, "{upstream:#?}");
    assert!(upstream.stderr.contains("could not be reached"), "{upstream:#?}");
}

#[test]
fn explain_lists_accounts_in_the_order_of_selection() {
    let home = CliFixture::new();
    home.add("free", &["--tier", "free", "--priority", "9"]).ok_stdout();
    home.add("paid", &["--priority", "1", "--large-concurrency", "3"]).ok_stdout();
    home.add("elsewhere", &["--group", "team"]).ok_stdout();
    home.run(&["account", "disable", "written", "--reason", "no drawings"]).ok_stdout();
    let explained = home.run(&["account", "explain", "--size", "3840x2160", "--json"]).json();
    let found: Vec<_> = explained
        .as_array()
        .expect("a list")
        .iter()
        .map(|account| (account["name"].as_str(), account["chosen"].as_bool(), account["state"].as_str()))
        .collect();
    assert_eq!(found[0], (Some("paid"), Some(true), Some("free")), "{explained}");
    assert_eq!(found[1], (Some("free"), Some(false), Some("free")), "{explained}");
    assert!(found.contains(&(Some("elsewhere"), Some(false), Some("other_group"))), "{explained}");
    assert!(found.contains(&(Some("written"), Some(false), Some("disabled"))), "{explained}");
    let team = home.run(&["account", "explain", "--group", "team"]);
    assert!(team.ok_stdout().lines().nth(1).is_some_and(|line| line.starts_with("elsewhere")), "{team:#?}");
    assert!(team.stderr.contains("elsewhere would be used"), "{team:#?}");
    let nobody = home.run(&["account", "explain", "--group", "nobody"]);
    assert!(nobody.stderr.contains("no account can make an image for the group nobody"), "{nobody:#?}");
}

#[test]
fn the_secrets_of_a_file_account_cannot_be_rotated_by_command() {
    let home = CliFixture::new();
    let output = home.run(&["account", "rotate", "written", "--api-key-env", "IT_SECRET"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains("is defined in the settings file and can only be changed there"), "{output:#?}");
}
