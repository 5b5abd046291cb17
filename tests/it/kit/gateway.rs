//! The gateway under test: the real program in a directory of its own, with a key, killed when the test is over.
//!
//! It is a process for every test. A task on a runtime of the test program was tried, and saves 40 milliseconds of CPU time
//! for each gateway, a fiftieth of the run: not enough for a second way to start, kill and read a gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use super::data_template::{CREATE_KEY, DataTemplate};
use super::leak_watch::LeakWatch;
use super::process::Server;
use super::{
    Account, Answer, Call, Events, FakeProvider, FakeTokens, FakeUpstream, Form, OutputChannel, PostgresDatabase,
    Program, SmallDisk, config, eventually,
};

/// A gateway with its directory; it can be killed and started again on the same data.
pub(crate) struct Gateway {
    home: TempDir,
    environment: Vec<(String, String)>,
    /// The database that the run chose for it; `None` with the embedded one, or if the test chose the database.
    run_database: Option<PostgresDatabase>,
    server: Option<Server>,
    key: Value,
    leak_watch: Arc<LeakWatch>,
    /// Whether `SIGTERM` was sent to the process.
    is_terminating: bool,
}

// === impl Gateway ===

impl Gateway {
    /// One account, named `only`, at this upstream.
    #[track_caller]
    pub(crate) fn with_upstream(upstream: &FakeUpstream) -> Self {
        Self::with("", &[Account::for_upstream("only", upstream)])
    }

    /// These accounts, and these top-level lines of the configuration.
    #[track_caller]
    pub(crate) fn with(top: &str, accounts: &[Account]) -> Self {
        Self::with_secrets(top, accounts, &[])
    }

    #[track_caller]
    fn create(top: &str, accounts: &[Account], mut environment: Vec<(String, String)>) -> Self {
        let home = TempDir::new().expect("a directory");
        let has_database = environment.iter().any(|(name, _)| name == "IMAGATE_DATABASE_URL");
        let run_database = if has_database { None } else { PostgresDatabase::create_for_run() };
        if let Some(database) = &run_database {
            environment.push(("IMAGATE_DATABASE_URL".to_owned(), database.url().to_owned()));
        }
        let data = home.path().join("data");
        let file = config::file(&data.display().to_string(), top, accounts);
        std::fs::write(home.path().join("imagate.toml"), file).expect("a configuration");
        let watch = LeakWatch::for_accounts(accounts, &environment);
        let mut gateway = Self {
            home,
            environment,
            run_database,
            server: None,
            key: Value::Null,
            leak_watch: watch,
            is_terminating: false,
        };
        gateway.key = gateway.make_first_key(has_database, top);
        gateway.start();
        gateway
    }

    /// The key that the tests use. The data folder is a copy, unless its database is elsewhere or its master key is not in
    /// it.
    #[track_caller]
    fn make_first_key(&self, has_database: bool, top: &str) -> Value {
        if has_database || self.run_database.is_some() || top.contains("master_key") {
            return self.run_command(&CREATE_KEY).json();
        }
        let template = DataTemplate::get();
        template.write_to(&self.home().join("data"));
        self.leak_watch.scan_command(&CREATE_KEY, &template.key);
        template.key.json()
    }

    /// As [`Gateway::with`], and with these further secrets in the environment.
    #[track_caller]
    pub(crate) fn with_secrets(top: &str, accounts: &[Account], secrets: &[(&str, &str)]) -> Self {
        let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self::create(top, accounts, secrets.chain(config::environment(accounts)).collect())
    }

    /// The database that the run chose for it; `None` with the embedded one, or if the test chose the database.
    pub(crate) fn run_database(&self) -> Option<&PostgresDatabase> {
        self.run_database.as_ref()
    }

    /// Runs statements in the database, which must exist.
    #[track_caller]
    pub(crate) fn execute_sql(&self, statements: &'static str) {
        if let Some(database) = self.run_database() {
            return database.run(statements);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let options = SqliteConnectOptions::new().filename(self.home().join("data/imagate.db"));
            let mut store = options.connect().await.expect("the database of the gateway");
            sqlx::raw_sql(statements).execute(&mut store).await.expect("the statements succeed");
            store.close().await.expect("the database closes");
        });
    }

    /// No account at all: the simulator serves.
    #[track_caller]
    pub(crate) fn simulated() -> Self {
        Self::with("", &[])
    }

    /// Ends the gateway, and starts it again with at most `count` descriptors.
    #[track_caller]
    pub(crate) fn restart_with_descriptors(&mut self, count: usize) {
        self.kill();
        let program = self.program().args(["serve", "--config"]).args([self.config()]);
        self.run(program.with_descriptors(count));
    }

    /// Restarts it with a log of little more than warnings, for tests with very many requests.
    #[track_caller]
    pub(crate) fn with_quiet_log(mut self) -> Self {
        self.environment.push(("IMAGATE_LOG".to_owned(), "warn,imagate::gateway::serve=info".to_owned()));
        self.kill();
        self.start();
        self
    }

    /// Moves the data of a gateway that does not run to a small disk. `None` if the machine does not allow a test to mount
    /// one; the data then stay where they are.
    #[track_caller]
    pub(crate) fn move_data_to_disk(&self, megabytes: usize) -> Option<SmallDisk> {
        assert!(self.server.is_none(), "it still runs");
        let (data, moved) = (self.home().join("data"), self.home().join("moved"));
        std::fs::rename(&data, &moved).expect("the folder is moved");
        let Some(disk) = SmallDisk::mount(&data, megabytes) else {
            std::fs::remove_dir(&data).and_then(|()| std::fs::rename(&moved, &data)).expect("the folder is moved back");
            return None;
        };
        let copied = std::process::Command::new("cp").arg("-a").arg(moved.join(".")).arg(&data).status();
        assert!(copied.is_ok_and(|status| status.success()), "the data are copied");
        Some(disk)
    }

    /// Sets the variable in the environment of later starts and commands.
    pub(crate) fn set_variable(&mut self, variable: &str, value: &str) {
        self.unset_variable(variable);
        self.environment.push((variable.to_owned(), value.to_owned()));
    }

    /// Removes the variable from the environment of later starts.
    pub(crate) fn unset_variable(&mut self, variable: &str) {
        self.environment.retain(|(name, _)| name != variable);
    }

    /// The variables that the program gets.
    pub(crate) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Treats a server at this address as the gateway: its answers are checked against the document, and are searched for
    /// secrets.
    pub(crate) fn watch_address(&self, address: SocketAddr) {
        self.leak_watch.watch_address(address);
    }

    pub(crate) fn unwatch_address(&self, address: SocketAddr) {
        self.leak_watch.unwatch_address(address);
    }

    /// Starts the program again on the same data.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        assert!(self.server.is_none(), "it still runs");
        self.run(self.program().args(["serve", "--config"]).args([self.config()]));
    }

    #[track_caller]
    fn run(&mut self, program: Program) {
        let server = program.serve();
        self.leak_watch.watch_address(server.address());
        self.leak_watch.watch_metrics(metrics_address(&server));
        self.is_terminating = false;
        self.server = Some(server);
    }

    /// Scans the output of the process that has ended, and starts the program again on the same data.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        self.collect_and_scan();
        self.start();
    }

    /// Makes later starts listen on the current address, for clients that shall survive a restart.
    #[track_caller]
    pub(crate) fn keep_address(&self) {
        let file = std::fs::read_to_string(self.config()).expect("a configuration");
        let listen = format!("listen = \"{}\"", self.address());
        std::fs::write(self.config(), file.replacen("listen = \"127.0.0.1:0\"", &listen, 1)).expect("a configuration");
    }

    /// `SIGKILL` in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        self.scan_metrics();
        self.server().kill();
        self.collect_and_scan();
    }

    /// Sends `SIGTERM`, and does not wait for the end.
    #[track_caller]
    pub(crate) fn terminate(&mut self) {
        self.scan_metrics();
        self.is_terminating = true;
        self.server().terminate();
    }

    /// Watches for the tokens of this endpoint too, for an account that the configuration file does not have.
    pub(crate) fn watch_tokens(&self, tokens: &FakeTokens) {
        tokens.issuer().add_watch(&self.leak_watch);
    }

    /// Watches for the codes and tokens of this provider, and for the verifiers that it receives.
    pub(crate) fn watch_provider(&self, provider: &FakeProvider) {
        provider.secrets().add_watch(&self.leak_watch);
    }

    /// Reads the metrics, which are scanned for secrets as they are read. A process that was asked to end is skipped:
    /// it may not answer any more.
    fn scan_metrics(&mut self) {
        let Some(server) = self.server.as_mut() else { return };
        if std::thread::panicking() || self.is_terminating || !server.is_running() {
            return;
        }
        if let Err(error) = Call::get("/metrics").try_send(metrics_address(server)) {
            self.leak_watch.report(format!("the metrics cannot be read: {error}"));
        }
    }

    /// Kills the process if it still runs, and scans everything that it printed and logged for secrets.
    fn collect_and_scan(&mut self) {
        self.scan_metrics();
        if let Some(server) = self.server.take() {
            self.leak_watch.require_metrics_scan();
            self.leak_watch.unwatch_address(server.address());
            self.leak_watch.unwatch_address(metrics_address(&server));
            let (printed, logged) = server.stop_and_collect_output();
            self.leak_watch.scan(OutputChannel::StartupOutput, printed.as_bytes());
            self.leak_watch.scan(OutputChannel::Log, logged.as_bytes());
        }
    }

    #[track_caller]
    pub(crate) fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("a running gateway")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("a running gateway").address()
    }

    /// Everything that it has printed and logged since its last start.
    pub(crate) fn output(&self) -> String {
        let server = self.server.as_ref().expect("a running gateway");
        format!("{}{}", server.stdout(), server.stderr())
    }

    /// What `/metrics` says.
    pub(crate) fn metrics_text(&self) -> String {
        Call::get("/metrics").send(self.metrics_address()).text()
    }

    pub(crate) fn metrics_address(&self) -> SocketAddr {
        metrics_address(self.server.as_ref().expect("a running gateway"))
    }

    /// Waits until the gateway serves requests of exactly this many connections.
    #[track_caller]
    pub(crate) fn wait_until_busy(&self, count: usize) {
        let metric = format!("imagate_connections{{state=\"busy\"}} {count}");
        eventually(&format!("{count} connections are served"), || {
            let text = Call::get("/metrics").send(self.metrics_address()).text();
            text.lines().any(|line| line == metric).then_some(())
        });
    }

    /// From now on this secret may occur only in the allowed channels.
    pub(crate) fn watch_secret(&self, name: &str, secret: &str, allowed: &'static [OutputChannel]) {
        self.leak_watch.add(name, secret, allowed);
    }

    /// Scans bytes for secrets that the kit's own client and commands have not read.
    pub(crate) fn scan(&self, channel: OutputChannel, bytes: &[u8]) {
        self.leak_watch.scan(channel, bytes);
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.home.path().join("imagate.toml")
    }

    /// The program with the secrets that the configuration names.
    pub(crate) fn program(&self) -> Program {
        // The most verbose level, so that its lines are scanned for secrets as well.
        let program = Program::new(self.home.path()).env("IMAGATE_LOG", "trace");
        self.environment.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    /// A management command, on the same configuration.
    #[track_caller]
    pub(crate) fn run_command(&self, words: &[&str]) -> super::CommandOutput {
        let done = self.program().args(words).args(["--config"]).args([self.config()]).run();
        self.leak_watch.scan_command(words, &done);
        done
    }

    /// A new key as `key create --json` prints it.
    #[track_caller]
    pub(crate) fn make_key(&self, name: &str) -> Value {
        self.run_command(&["key", "create", "--name", name, "--user", "admin", "--json"]).json()
    }

    /// The secret of the key that the tests use.
    pub(crate) fn secret(&self) -> &str {
        self.key["secret"].as_str().expect("a secret")
    }

    pub(crate) fn key_id(&self) -> &str {
        self.key["id"].as_str().expect("an id")
    }

    /// The base URL for an SDK.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address())
    }

    /// A generation with these fields added to, or in place of, the default `model` and `prompt`; not yet sent.
    pub(crate) fn call(&self, fields: Value) -> Call {
        Call::generation().key(self.secret()).json(&request(fields))
    }

    /// Sends a generation.
    #[track_caller]
    pub(crate) fn generate(&self, with: Value) -> Answer {
        self.call(with).send(self.address())
    }

    /// Sends a generation that must become a stream.
    #[track_caller]
    pub(crate) fn stream(&self, with: Value) -> Events {
        let mut with = with;
        with["stream"] = json!(true);
        Events::from_reply(self.call(with).open(self.address()).expect("an answer"))
    }

    /// Sends an edit.
    #[track_caller]
    pub(crate) fn edit(&self, form: Form) -> Answer {
        form.call().key(self.secret()).send(self.address())
    }

    /// Sends an edit as JSON, with these fields added to, or in place of, the default `model` and `prompt`.
    #[track_caller]
    pub(crate) fn edit_json(&self, with: Value) -> Answer {
        Call::edit().key(self.secret()).json(&request(with)).send(self.address())
    }

    /// Sends a generation whose prompt carries a script for the upstream.
    #[track_caller]
    pub(crate) fn scripted(&self, script: &str) -> Answer {
        self.generate(json!({"prompt": format!("a cube [[{script}]]")}))
    }

    /// What `account list --json` says of this account.
    #[track_caller]
    pub(crate) fn account(&self, name: &str) -> Value {
        let all = self.run_command(&["account", "list", "--json"]).json();
        let found = all.as_array().expect("a list").iter().find(|account| account["name"] == name);
        found.unwrap_or_else(|| panic!("no account {name}: {all}")).clone()
    }

    /// All records, oldest first.
    #[track_caller]
    pub(crate) fn records(&self) -> Vec<Value> {
        let done = self.run_command(&["usage", "--json"]);
        done.ok_stdout().lines().map(|line| serde_json::from_str(line).expect("a record per line")).collect()
    }

    /// Waits until there are at least `count` records and each has its outcome; returns all of them.
    #[track_caller]
    pub(crate) fn final_records(&self, count: usize) -> Vec<Value> {
        eventually("every record has its outcome", || {
            let records = self.records();
            let open = records.iter().any(|record| !is_final(record));
            (records.len() >= count && !open).then_some(records)
        })
    }
}

/// Where the metrics are served.
fn metrics_address(server: &Server) -> SocketAddr {
    // The log comes through another pipe than the line that says where the gateway listens, so it may come later.
    eventually("the log says where the metrics are served", || {
        let log = server.stderr();
        let address = log.lines().find_map(|line| line.split_once("metrics are served address="))?.1;
        Some(address.parse().expect("an address"))
    })
}

impl Drop for Gateway {
    /// Fails the test if a secret has leaked, unless it has failed already.
    fn drop(&mut self) {
        self.collect_and_scan();
        if std::thread::panicking() {
            return;
        }
        self.leak_watch.scan_folder(&self.home.path().join("data"));
        let found = self.leak_watch.take_findings();
        assert!(found.is_empty(), "{} leaks:\n{}", found.len(), found.join("\n"));
    }
}

/// The body of a request: a legal minimum with these fields added or replaced. `null` is sent as `null`.
pub(crate) fn request(with: Value) -> Value {
    let mut body = json!({"model": "gpt-image-2", "prompt": "a red cube"});
    for (name, value) in with.as_object().expect("fields") {
        body[name] = value.clone();
    }
    body
}

fn is_final(record: &Value) -> bool {
    let state = record["state"].as_str().unwrap_or_default();
    ["succeeded", "failed", "refused", "cancelled", "interrupted"].contains(&state)
}
