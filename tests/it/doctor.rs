//! `imagate doctor` on a healthy installation and on each kind of broken one: it says what is wrong, names no secret,
//! and changes nothing.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Account, Call, CommandOutput, FakeUpstream, Gateway, Program, eventually, request};

const OK: Option<i32> = Some(0);
const FAILED: Option<i32> = Some(1);
const SECRET: &str = "sk-canary-of-the-doctor";
const ADMIN_TOKEN: &str = "admin-canary-0123456789-0123456789-abcdef";

/// A stopped installation that has served once.
struct TestInstallation {
    home: TempDir,
}

// === impl TestInstallation ===

impl TestInstallation {
    /// An installation with these top-level settings and one account at an upstream.
    #[track_caller]
    fn new(settings: &str) -> Self {
        let upstream = FakeUpstream::start();
        let installation = Self { home: TempDir::new().expect("a directory") };
        installation.write_settings(settings, &upstream.base_url());
        let words = ["key", "create", "--name", "it", "--user", "ada", "--json"];
        let key = installation.program(&words).run().json();
        let mut server = installation.program(&["serve", "--listen", "127.0.0.1:0"]).serve();
        let secret = key["secret"].as_str().expect("a secret").to_owned();
        let call = || Call::generation().key(&secret).json(&request(json!({}))).send(server.address());
        assert_eq!(call().status, 200);
        server.terminate();
        server.wait(crate::kit::TEST_TIMEOUT);
        installation
    }

    fn write_settings(&self, settings: &str, base_url: &str) {
        let account = format!(
            "[[accounts]]\nname = \"real\"\nkind = \"api_key\"\nbase_url = \"{base_url}\"\n\
             api_key = {{ env = \"IT_SECRET\" }}\n"
        );
        let text = format!(
            "listen = \"127.0.0.1:{}\"\ndata_dir = \"data\"\nadmin_token = {{ env = \"IT_ADMIN\" }}\n{settings}\n{account}",
            free_port()
        );
        std::fs::write(self.home.path().join("imagate.toml"), text).expect("a file");
    }

    fn program(&self, words: &[&str]) -> Program {
        let program = Program::new(self.home.path()).args(words).args(["--config", "imagate.toml"]);
        program.env("IT_SECRET", SECRET).env("IT_ADMIN", ADMIN_TOKEN)
    }

    fn data(&self) -> std::path::PathBuf {
        self.home.path().join("data")
    }

    /// Runs the command, which must change nothing and show no secret.
    #[track_caller]
    fn examine(&self, arguments: &[&str]) -> CommandOutput {
        self.examine_with(self.program(&[&["doctor"], arguments].concat()))
    }

    #[track_caller]
    fn examine_with(&self, program: Program) -> CommandOutput {
        let before = contents(self.home.path());
        let output = program.run();
        let after = contents(self.home.path());
        let changed: Vec<_> = before.iter().filter(|(name, state)| after.get(*name) != Some(state)).collect();
        let names = |contents: &BTreeMap<String, FileState>| contents.keys().cloned().collect::<Vec<_>>();
        assert!(changed.is_empty() && names(&before) == names(&after), "{:?} {:?}", names(&before), names(&after));
        let printed = format!("{output:?}");
        assert!(
            !printed.contains(SECRET) && !printed.contains(ADMIN_TOKEN) && !printed.contains("sk-img-"),
            "{printed}"
        );
        output
    }

    /// Runs the command on a broken installation, and returns the line of the problem.
    #[track_caller]
    fn problem(&self, check: &str) -> String {
        let output = self.examine(&[]);
        assert_eq!(output.code, FAILED, "{output:#?}");
        let lines: Vec<&str> = output.stdout.lines().filter(|line| line.starts_with("problem ")).collect();
        let [line] = lines.as_slice() else { panic!("not exactly one problem: {output:#?}") };
        assert!(line.starts_with(&format!("problem  {check} ")), "{output:#?}");
        (*line).to_owned()
    }
}

/// The mode and the bytes of a file.
type FileState = (u32, Vec<u8>);

/// The state of each file and folder below a folder.
fn contents(folder: &Path) -> BTreeMap<String, FileState> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
            // The index of the write-ahead log is rebuilt by the first reader after a kill. It holds no data.
            let is_index = path.display().to_string().ends_with("-shm");
            let bytes = if is_index || path.is_dir() { Vec::new() } else { std::fs::read(&path).expect("a file") };
            all.insert(path.display().to_string(), (mode, bytes));
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    all
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

fn verdicts(output: &CommandOutput) -> Vec<(&str, &str)> {
    let lines = output.stdout.lines();
    lines.map(|line| (line[..7].trim_end(), line[9..22].trim_end())).collect()
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("a file");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn a_healthy_installation_has_no_problem_stopped_or_served() {
    let installation = TestInstallation::new("metrics_listen = \"127.0.0.1:0\"\n");
    let output = installation.examine(&[]);
    assert_eq!(output.code, OK, "{output:#?}");
    let checks =
        ["configuration", "disk", "store", "master key", "clock", "accounts", "prices", "gateway", "ports", "ports"];
    assert_eq!(verdicts(&output), checks.map(|check| ("ok", check)), "{output:#?}");
    let report = installation.examine(&["--json"]).json();
    assert_eq!((&report["ok"], &report["version"]), (&json!(true), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!(report["checks"].as_array().map(Vec::len), Some(checks.len()));
    for check in report["checks"].as_array().into_iter().flatten() {
        assert_eq!((&check["verdict"], &check["advice"]), (&json!("ok"), &Value::Null), "{check}");
    }
    let server = installation.program(&["serve"]).serve();
    let output = installation.program(&["doctor"]).run();
    assert_eq!(output.code, OK, "{output:#?}");
    assert!(output.stdout.contains("a gateway answers, and is ready"), "{output:#?}");
    assert!(output.stdout.contains("a gateway serves from this data folder (process "), "{output:#?}");
    drop(server);
    // After a kill, the write-ahead log still holds the newest changes; they are not merged by a look at them.
    assert!(installation.data().join("imagate.db-wal").exists());
    assert_eq!(installation.examine(&[]).code, OK);
}

#[test]
fn a_new_machine_gets_a_warning_and_no_folder() {
    let home = TempDir::new().expect("a directory");
    let output = Program::new(home.path()).args(["doctor", "--data-dir", "data"]).run();
    assert_eq!(output.code, OK, "{output:#?}");
    assert!(output.stdout.contains("data does not exist yet"), "{output:#?}");
    assert!(output.stdout.contains("no account is configured"), "{output:#?}");
    assert!(!home.path().join("data").exists());
}

#[test]
fn every_problem_of_the_settings_is_reported_and_the_rest_is_left() {
    let installation = TestInstallation::new("");
    let file = installation.home.path().join("imagate.toml");
    edit(&file, |bytes| bytes.extend(b"concurency = 3\ntier = \"gold\"\n"));
    let output = installation.examine(&[]);
    assert_eq!((output.code, output.stdout.lines().count()), (FAILED, 2), "{output:#?}");
    assert!(output.stdout.contains("concurrency") && output.stdout.contains("tier"), "{output:#?}");
}

#[test]
fn an_absent_secret_is_a_problem_of_the_settings_and_of_its_account() {
    let installation = TestInstallation::new("");
    let program = Program::new(installation.home.path()).args(["doctor", "--config", "imagate.toml"]);
    let output = installation.examine_with(program.env("IT_ADMIN", ADMIN_TOKEN));
    assert_eq!(output.code, FAILED, "{output:#?}");
    let problems: Vec<_> = verdicts(&output).into_iter().filter(|(verdict, _)| *verdict == "problem").collect();
    assert_eq!(problems, [("problem", "configuration"), ("problem", "accounts")], "{output:#?}");
    assert!(output.stdout.contains("real has no secret") && output.stdout.contains("`IT_SECRET`"), "{output:#?}");
}

#[test]
fn a_lost_truncated_or_damaged_database_is_a_problem_of_the_store() {
    let installation = TestInstallation::new("");
    let file = installation.data().join("imagate.db");
    let whole = std::fs::read(&file).expect("a file");
    edit(&file, |bytes| {
        // Pages in the middle: the header stays as it is.
        let middle = bytes.len() / 2 / 4096 * 4096;
        bytes[middle..middle + 8192].fill(0xa5);
    });
    assert!(installation.problem("store").contains("restore"));
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("a file");
    assert!(installation.problem("store").contains("restore"));
    std::fs::write(&file, "no database".repeat(1000)).expect("a file");
    assert!(installation.problem("store").contains("restore"));
    std::fs::write(&file, "").expect("a file");
    assert!(installation.problem("store").contains("is missing or empty"));
    std::fs::remove_file(&file).expect("a file");
    assert!(installation.problem("store").contains("is missing or empty"));
}

#[test]
fn a_missing_or_foreign_master_key_is_a_problem() {
    let installation = TestInstallation::new("");
    let file = installation.data().join("master.key");
    std::fs::write(&file, [7; 32]).expect("a file");
    assert!(installation.problem("master key").contains("master.key is not the key"));
    std::fs::write(&file, [7; 31]).expect("a file");
    assert!(installation.problem("master key").contains("does not have exactly 32 bytes"));
    std::fs::remove_file(&file).expect("a file");
    assert!(installation.problem("master key").contains("master.key is missing"));
}

#[test]
fn open_permissions_and_a_full_disk_are_problems() {
    let installation = TestInstallation::new("");
    let key = installation.data().join("master.key");
    let set_mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    set_mode(&key, 0o644).expect("permissions");
    assert!(installation.problem("disk").contains("chmod 600"));
    set_mode(&key, 0o600).expect("permissions");
    set_mode(&installation.data(), 0o755).expect("permissions");
    let output = installation.examine(&[]);
    assert!(output.code == OK && output.stdout.contains("warning  disk "), "{output:#?}");
    assert!(output.stdout.contains("chmod 700"), "{output:#?}");
    set_mode(&installation.data(), 0o700).expect("permissions");
    edit(&installation.home.path().join("imagate.toml"), |bytes| {
        bytes.extend(b"\n[uploads]\nmin_free_megabytes = 1000000000\n");
    });
    assert!(installation.problem("disk").contains("free space"));
}

#[test]
fn an_address_in_use_is_a_problem_and_another_gateway_a_warning() {
    let installation = TestInstallation::new("");
    let file = installation.home.path().join("imagate.toml");
    let settings = std::fs::read_to_string(&file).expect("a file");
    let listen = |address: &str| {
        let line = settings.lines().next().expect("a line");
        std::fs::write(&file, settings.replacen(line, &format!("listen = \"{address}\""), 1)).expect("a file");
    };
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    listen(&silent.local_addr().expect("an address").to_string());
    assert!(installation.problem("ports").contains("end the program that listens there"));
    // An address for documentation, which no machine has.
    listen("192.0.2.1:8080");
    assert!(installation.problem("ports").contains("set an address of this machine"));
    let other = Gateway::simulated();
    listen(&other.address().to_string());
    let output = installation.examine(&[]);
    assert!(output.code == OK && output.stdout.contains("does not serve from this data folder"), "{output:#?}");
}

#[test]
fn a_group_without_an_account_is_a_problem_and_a_disabled_account_a_warning() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let lines = |words: &[&str]| gateway.run_command(words);
    lines(&["group", "create", "team"]).ok_stdout();
    lines(&["key", "create", "--name", "b", "--group", "team"]).ok_stdout();
    let output = lines(&["doctor"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stdout.contains("no enabled account serves the group team (valid keys: 1)"), "{output:#?}");
    lines(&["account", "disable", "only"]).ok_stdout();
    let output = lines(&["doctor"]);
    assert!(output.stdout.contains("warning  accounts       only is disabled since"), "{output:#?}");
    assert!(output.stdout.contains("the group default (valid keys: 1)"), "{output:#?}");
}

#[test]
fn a_budget_without_a_price_is_a_problem_until_the_price_is_set() {
    let upstream = FakeUpstream::start();
    let model = "[[models]]\nid = \"sketch-1\"\n";
    let gateway = Gateway::with(model, &[Account::for_upstream("only", &upstream)]);
    gateway.generate(json!({"model": "sketch-1"})).ok_json();
    gateway.final_records(1);
    let output = gateway.run_command(&["doctor"]);
    assert!(output.code == OK && output.stdout.contains("warning  prices "), "{output:#?}");
    let user =
        gateway.run_command(&["key", "list", "--json"]).json()[0]["user_name"].as_str().expect("a name").to_owned();
    gateway.run_command(&["user", "limit", &user, "--limit", "budget_usd=5"]).ok_stdout();
    let output = gateway.run_command(&["doctor"]);
    assert!(output.code == FAILED && output.stdout.contains("the budgets of user usr_"), "{output:#?}");
    gateway.run_command(&["user", "limit", &user]).ok_stdout();
    assert_eq!(gateway.run_command(&["doctor"]).code, OK);
    gateway.run_command(&["key", "limit", gateway.key_id(), "--limit", "budget_usd=5"]).ok_stdout();
    let output = gateway.run_command(&["doctor"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stdout.contains("there is no price for sketch-1"), "{output:#?}");
    assert!(output.stdout.contains(gateway.key_id()), "{output:#?}");
    gateway.run_command(&["price", "set", "sketch-1", "--from", "2026-01-01", "--per-image", "0.04"]).ok_stdout();
    assert_eq!(gateway.run_command(&["doctor"]).code, OK);
}

#[test]
fn upstreams_are_asked_only_on_request() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    assert_eq!(gateway.run_command(&["doctor"]).code, OK);
    let output = gateway.run_command(&["doctor", "--online"]);
    assert_eq!(output.code, OK, "{output:#?}");
    assert!(output.stdout.contains("only: the upstream accepts its credentials"), "{output:#?}");
    let attempts = upstream.received_attempts();
    let paths: Vec<&str> = attempts.iter().map(|attempt| attempt.path.as_str()).collect();
    assert_eq!(paths, ["/v1/models"], "no image may be made");
    upstream.always_for_token("sk-upstream-only", "status=401 body=revoked");
    let output = gateway.run_command(&["doctor", "--online"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stdout.contains("only: the upstream answers with status 401"), "{output:#?}");
}

#[test]
fn a_gateway_on_a_full_disk_is_not_ready() {
    let upstream = FakeUpstream::start();
    let account = [Account::for_upstream("only", &upstream)];
    let gateway = Gateway::with("[uploads]\nmin_free_megabytes = 1000000000\n", &account);
    gateway.keep_address();
    eventually("the disk is full", || (Call::get("/readyz").send(gateway.address()).status == 503).then_some(()));
    let output = gateway.run_command(&["doctor"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stdout.contains("the gateway answers `not ready: disk_space`"), "{output:#?}");
}
