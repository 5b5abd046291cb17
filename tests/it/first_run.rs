//! The first run: `imagate serve` without a configuration, the printed curl command, an image, one record, and the end
//! of the key that the first run prints.
//!
//! These tests call no upstream: they need only the simulator and what `serve` prints.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Answer, Call, Gateway, Program, Server, eventually, format_and_size, request};

/// The curl command as printed, with its continued lines.
fn curl_line(printed: &str) -> String {
    let mut lines = printed.lines().skip_while(|line| !line.trim_start().starts_with("curl "));
    let mut command = Vec::new();
    for line in lines.by_ref() {
        command.push(line);
        if !line.ends_with('\\') {
            break;
        }
    }
    assert!(!command.is_empty(), "no curl line in: {printed}");
    command.join("\n")
}

fn image(answer: &Value, at: usize) -> Vec<u8> {
    STANDARD.decode(answer["data"][at]["b64_json"].as_str().expect("base64")).expect("base64")
}

fn simulated(gateway: &Gateway, with: Value) -> (Answer, Value) {
    let answer = gateway.generate(with);
    let json = answer.ok_json();
    (answer, json)
}

#[test]
fn the_printed_curl_line_gives_a_png_and_one_record() {
    let home = TempDir::new().expect("a directory");
    let data = home.path().join("data");
    let server =
        Program::new(home.path()).args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).args([&data]).serve();
    let printed = server.stdout();
    let ready = printed.lines().filter(|line| line.starts_with("listening on http://"));
    assert_eq!(ready.count(), 1, "{printed}");
    assert!(printed.contains("sk-img-"), "a key is printed: {printed}");

    let curl = curl_line(&printed);
    let done = std::process::Command::new("sh").args(["-c", &curl]).output().expect("curl runs");
    let answer: Value =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {curl}\n{done:?}"));
    let (format, size) = format_and_size(&image(&answer, 0));
    assert_eq!((format.as_str(), answer["size"].as_str()), ("png", Some(size.as_str())), "{answer:.300}");
    assert!(!curl.contains("\"size\"") || curl.contains(&size), "{curl} gave {size}");

    let usage = Program::new(home.path()).env("IMAGATE_DATA_DIR", &data).args(["usage", "--json"]).run();
    let records: Vec<Value> =
        usage.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    let [record] = records.as_slice() else { panic!("not exactly one record: {records:#?}") };
    assert_eq!(record["state"], "succeeded");
    assert_eq!(record["usage"], answer["usage"]);
    assert!(record["latency_ms"].is_u64(), "{record}");
    for identifier in ["account", "group", "user", "key", "request_id"] {
        assert!(record[identifier].as_str().is_some_and(|id| !id.is_empty()), "{identifier}: {record}");
    }
}

#[test]
fn the_first_key_is_printed_once_and_still_works_after_a_restart() {
    let home = TempDir::new().expect("a directory");
    let serve = || Program::new(home.path()).args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).serve();
    let mut first = serve();
    let printed = first.stdout();
    let secret = printed
        .split(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))
        .find(|word| word.starts_with("sk-img-"));
    let secret = secret.expect("a key").to_owned();
    first.kill();
    let second = serve();
    assert!(!second.stdout().contains(&secret) && !second.stderr().contains(&secret), "a secret is shown once");
    Call::get("/v1/models").key(&secret).send(second.address()).ok_json();
}

/// The printed links by which the first admin is created.
fn setup_links(printed: &str) -> Vec<String> {
    const SAYS: &str = "Open this one-time link to create the first admin: ";
    printed.lines().filter_map(|line| line.strip_prefix(SAYS)).map(str::to_owned).collect()
}

#[test]
fn a_link_for_the_first_admin_is_printed_above_the_address_at_each_start() {
    let home = TempDir::new().expect("a directory");
    let settings = "public_url = \"https://images.example.com\"\n[[accounts]]\nname = \"a\"\nkind = \"simulator\"\n";
    std::fs::write(home.path().join("imagate.toml"), settings).expect("a file");
    let serve = |words: &[&str]| {
        let base = ["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"];
        let server = Program::new(home.path()).args(base).args(words).serve();
        (server.address(), server.stdout(), server.stderr())
    };
    let (address, printed, said) = serve(&[]);
    let [first] = setup_links(&printed).try_into().expect("one link");
    let token = first.strip_prefix(&format!("http://{address}/setup/")).expect("a link to the gateway").to_owned();
    assert!(token.len() == 43 && token.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{first}");
    assert!(
        printed.trim_end().lines().last().is_some_and(|line| line.starts_with("listening on http://")),
        "{printed}"
    );
    assert!(!said.contains(&token), "it is not in the log");

    // With configured accounts a link is printed too, here with the public address.
    let (_, printed, _) = serve(&["--config", "imagate.toml"]);
    let [second] = setup_links(&printed).try_into().expect("one link");
    assert!(second.starts_with("https://images.example.com/setup/") && !second.contains(&token), "{second}");
    assert!(!printed.contains("sk-img-"), "{printed}");
}

#[test]
fn every_common_size_is_drawn_exactly_and_labelled_as_simulated() {
    let gateway = Gateway::simulated();
    for size in [
        "1024x1024",
        "1536x1024",
        "1024x1536",
        "2048x2048",
        "2048x1152",
        "3840x2160",
        "2160x3840",
        "1024x640",
        "3840x1280",
    ] {
        let (answer, json) = simulated(&gateway, json!({"size": size}));
        assert_eq!(answer.header("x-imagate-simulated"), Some("true"), "{:?}", answer.headers);
        assert_eq!(format_and_size(&image(&json, 0)), ("png".to_owned(), size.to_owned()));
        assert_eq!((&json["size"], &json["output_format"]), (&json!(size), &json!("png")));
    }
}

#[test]
fn jpeg_and_webp_obey_their_compression() {
    let gateway = Gateway::simulated();
    for format in ["jpeg", "webp"] {
        let lengths = [5, 95].map(|compression| {
            let with = json!({"output_format": format, "output_compression": compression, "size": "1024x1024"});
            let (_, json) = simulated(&gateway, with);
            let file = image(&json, 0);
            assert_eq!(format_and_size(&file), (format.to_owned(), "1024x1024".to_owned()));
            file.len()
        });
        assert!(lengths[0] < lengths[1], "{format}: {lengths:?}");
    }
}

#[test]
fn the_simulator_is_deterministic_and_draws_as_many_as_asked() {
    let gateway = Gateway::simulated();
    let with = json!({"prompt": "three boats", "n": 3, "size": "1024x1024", "quality": "medium"});
    let (_, first) = simulated(&gateway, with.clone());
    let (_, again) = simulated(&gateway, with);
    assert_eq!(first["data"].as_array().map(Vec::len), Some(3));
    assert_eq!(first["data"], again["data"]);
    assert_eq!(first["quality"], "medium");
    let (_, other) = simulated(&gateway, json!({"prompt": "four boats", "n": 1, "size": "1024x1024"}));
    assert_ne!(first["data"][0]["b64_json"], other["data"][0]["b64_json"]);
}

#[test]
fn automatic_values_are_resolved_in_the_answer() {
    let gateway = Gateway::simulated();
    let (_, json) =
        simulated(&gateway, json!({"size": "auto", "quality": "auto", "background": "auto", "moderation": "auto"}));
    let (_, size) = format_and_size(&image(&json, 0));
    assert_eq!(json["size"], size);
    assert!(["low", "medium", "high"].contains(&json["quality"].as_str().expect("a quality")));
    assert_eq!(json["background"], "opaque");
    assert_eq!(json["model"], request(json!({}))["model"]);
    assert_total(&json["usage"]);
}

#[track_caller]
fn assert_total(usage: &Value) {
    let number = |field: &str| usage[field].as_u64().unwrap_or_else(|| panic!("{field} in {usage}"));
    assert_eq!(number("total_tokens"), number("input_tokens") + number("output_tokens"));
    for side in ["input_tokens_details", "output_tokens_details"] {
        assert!(usage[side]["image_tokens"].is_u64() && usage[side]["text_tokens"].is_u64(), "{usage}");
    }
}

#[test]
fn no_user_exists_whom_nobody_has_created() {
    let home = TempDir::new().expect("a directory");
    let run =
        |words: &[&str]| Program::new(home.path()).args(words).args(["--data-dir", "data", "--json"]).run().json();
    {
        let _server =
            Program::new(home.path()).args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).serve();
    }
    let made = run(&["key", "create", "--name", "from the command line"]);
    assert_eq!(made["user"], "usr_nobody");
    assert_eq!(run(&["user", "list"]), json!([]));
    let keys = run(&["key", "list"]);
    let owners: Vec<_> = keys.as_array().expect("a list").iter().map(|key| (&key["name"], &key["user_name"])).collect();
    let nobody = &Value::Null;
    assert_eq!(owners, [(&json!("first key"), nobody), (&json!("from the command line"), nobody)]);
    let table = Program::new(home.path()).args(["key", "list", "--data-dir", "data"]).run();
    assert!(!table.ok_stdout().contains("admin"), "{table:?}");
}

#[test]
fn the_first_key_ends_when_an_account_is_added_that_can_cost_money() {
    let home = TempDir::new().expect("a directory");
    let program = || Program::new(home.path()).env("IT_SECRET", "sk-upstream");
    let server = program().args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).serve();
    let printed = server.stdout();
    let secret = printed.lines().map(str::trim).find(|line| line.starts_with("sk-img-")).expect("a key").to_owned();
    let list = || program().args(["key", "list", "--json", "--data-dir", "data"]).run().json()[0].clone();
    assert!(list()["expires_at"].is_string(), "it ends by itself: {}", list());
    let status = || Call::get("/v1/models").key(&secret).send(server.address()).status;
    assert_eq!(status(), 200);
    let add = |words: &[&str]| program().args(["account", "add", "--data-dir", "data"]).args(words).run();
    // More simulators cost nothing, so the first key stays enabled.
    let drawn = add(&["--name", "drawn", "--kind", "simulator"]);
    assert!(!drawn.stderr.contains("disabled") && drawn.code == Some(0), "{drawn:?}");
    assert_eq!(list()["state"], "active");
    let real = ["--name", "real", "--base-url", "https://upstream.example/v1", "--api-key-env", "IT_SECRET"];
    let added = add(&real);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(added.stderr.contains("the key that the first start printed is disabled"), "{added:?}");
    assert!(added.stderr.contains("imagate key create --name NAME --data-dir data"), "{added:?}");
    assert_eq!(list()["state"], "disabled");
    eventually("the key is refused", || (status() == 401).then_some(()));
    let audit = program().args(["audit", "--json", "--data-dir", "data"]).run();
    assert!(audit.ok_stdout().lines().any(|line| line.contains("key.disable")), "{audit:?}");
}

#[test]
fn the_first_key_ends_at_a_start_with_accounts_of_the_file() {
    let home = TempDir::new().expect("a directory");
    let program = || Program::new(home.path());
    let serve =
        |words: &[&str]| program().args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).args(words).serve();
    drop(serve(&[]));
    let account = "[[accounts]]\nname = \"real\"\nkind = \"api_key\"\nbase_url = \"https://upstream.example/v1\"\n\
                   api_key = { file = \"secret\" }\n";
    std::fs::write(home.path().join("imagate.toml"), account).expect("a file");
    std::fs::write(home.path().join("secret"), "sk-upstream").expect("a file");
    let server = serve(&["--config", "imagate.toml"]);
    let said = eventually("the log says so", || Some(server.stderr()).filter(|said| said.contains("is disabled")));
    assert!(said.contains("the key that the first start printed is disabled"), "{said}");
    let keys = program().args(["key", "list", "--json", "--data-dir", "data"]).run().json();
    assert_eq!(keys[0]["state"], "disabled", "{keys}");
}

/// Starts a gateway without any account, which prints a key, and checks that `add_account` disables that key.
#[track_caller]
fn check_first_key_ends(env: &[(&str, &str)], config: &str, add_account: impl FnOnce(&Server, &Path)) {
    let home = TempDir::new().expect("a directory");
    std::fs::write(home.path().join("imagate.toml"), config).expect("a file");
    std::fs::write(home.path().join("secret"), "sk-upstream").expect("a file");
    let program = || env.iter().fold(Program::new(home.path()), |program, (name, value)| program.env(name, value));
    let words = ["serve", "--listen", "127.0.0.1:0", "--config", "imagate.toml", "--data-dir", "data"];
    let server = program().args(words).serve();
    let printed = server.stdout();
    let secret = printed.lines().map(str::trim).find(|line| line.starts_with("sk-img-")).expect("a key").to_owned();
    let status = || Call::get("/v1/models").key(&secret).send(server.address()).status;
    assert_eq!(status(), 200);
    add_account(&server, home.path());
    eventually("the key is refused", || (status() == 401).then_some(()));
    let line = "the key that the first start printed is disabled";
    eventually("the log says that the key is disabled", || server.stderr().contains(line).then_some(()));
    let list = program().args(["key", "list", "--json", "--data-dir", "data"]).run().json();
    assert_eq!((&list[0]["state"], &list[0]["locked"]), (&json!("disabled"), &json!("admin")), "{list}");
}

#[test]
fn the_first_key_ends_when_a_reload_brings_an_account() {
    check_first_key_ends(&[], "drain_timeout = \"1s\"\n", |server, home| {
        let account = "[[accounts]]\nname = \"real\"\nkind = \"api_key\"\nbase_url = \"https://upstream.example/v1\"\n\
                       api_key = { file = \"secret\" }\n";
        std::fs::write(home.join("imagate.toml"), account).expect("a file");
        server.signal("HUP");
    });
}

#[test]
fn the_first_key_ends_when_the_admin_api_adds_an_account() {
    const TOKEN: &str = "admin-token-canary-0123456789abcdef";
    check_first_key_ends(&[("IT_ADMIN", TOKEN)], "admin_token = { env = \"IT_ADMIN\" }\n", |server, _| {
        let account = json!({"name": "real", "kind": "api_key", "base_url": "https://upstream.example/v1",
            "api_key": "sk-upstream"});
        Call::post("/admin/v1/accounts").key(TOKEN).json(&account).send(server.address()).ok_json();
    });
}

#[test]
fn the_printed_command_works_also_with_a_configuration_elsewhere() {
    let home = TempDir::new().expect("a directory");
    let folder = home.path().join("it's here");
    std::fs::create_dir(&folder).expect("a folder");
    let config = folder.join("imagate.toml");
    let settings = "data_dir = \"data\"\n[[accounts]]\nname = \"a\"\nkind = \"simulator\"\n";
    std::fs::write(&config, settings).expect("a file");
    let server =
        Program::new(home.path()).args(["serve", "--listen", "127.0.0.1:0", "--config"]).args([&config]).serve();
    let printed = server.stdout();
    let hint =
        printed.lines().find_map(|line| line.strip_prefix("Create a key with: imagate ")).expect("a hint").to_owned();
    let shell = Path::new("/bin/sh");
    let line = format!("{} {hint}", env!("CARGO_BIN_EXE_imagate"));
    let made = Program::for_program(shell, home.path()).args(["-c", &line]).run();
    let secret =
        made.ok_stdout().split_whitespace().find(|word| word.starts_with("sk-img-")).expect("a key").to_owned();
    eventually("the gateway knows the key", || {
        (Call::get("/v1/models").key(&secret).send(server.address()).status == 200).then_some(())
    });
}
