//! Measures how hostile callers affect other callers, as a table: each kind of attack alone, then all of them together.
//!
//! `cargo xtask abuse` runs the whole measurement; every test run has a small part of it. The processes that it starts
//! are ended by id, and its traffic stays on loopback.

mod attacks;
mod bodies;
mod budgets;
mod hostile;
mod memory_attacks;

use std::fmt::Write as _;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStderr, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::kit::{
    Call, FakeUpstream, Form, PEAK_BYTES, Program, Server, SmallDisk, alpha_png, heavy_test_lock, pause, request,
};
use attacks::{ALL, Attack, ENDLESS_UPLOADS, FEW_DESCRIPTORS, MANY_DESCRIPTORS};
use hostile::HostileConnection;
use memory_attacks::{FEWER_CLIENTS, MEMORY_ATTACKS, compressed_trees};

/// The bounds that each row must keep: the slowest answer of `/healthz`, the slowest image, and the slowest upload.
const SLOWEST_HEALTH: Duration = Duration::from_millis(300);
const SLOWEST_IMAGE: Duration = Duration::from_secs(20);
/// The bound of `/healthz` among the other tests, which load the machine too.
const SLOWEST_HEALTH_AMONG_TESTS: Duration = Duration::from_secs(1);

/// The size of the gateway's disk in megabytes.
const DISK: usize = 120;

/// The minimum duration of a row, so that there is something to measure.
const SHORTEST_ROW: Duration = Duration::from_secs(4);

/// A gateway on a machine with few resources, and its callers.
pub(crate) struct AbuseFixture {
    server: Server,
    /// The standard error of the gateway, which is held but never read if the attack is an unread log.
    _log: Option<BufReader<ChildStderr>>,
    /// The key of a caller with ordinary requests.
    bob: String,
    /// The keys of the hostile user.
    eve: Vec<String>,
    _upstream: FakeUpstream,
    _disk: Option<SmallDisk>,
    _home: TempDir,
}

/// One line of the table.
struct Row {
    name: &'static str,
    health: Probe,
    image: Probe,
    /// `None` if the attack fills the disk.
    upload: Option<Probe>,
    memory: u64,
    /// The number of hostile connections, and the time at which the last one was gone.
    connections: usize,
    gone: Option<Duration>,
    deadline: Duration,
}

#[derive(Default)]
struct Probe {
    slowest: Duration,
    answered: usize,
    failed: Vec<String>,
}

// === impl AbuseFixture ===

impl AbuseFixture {
    fn start(reads_log: bool, descriptors: usize) -> Self {
        let home = TempDir::new().expect("a directory");
        let disk = SmallDisk::mount(&home.path().join("data"), DISK);
        let upstream = FakeUpstream::start();
        std::fs::write(home.path().join("imagate.toml"), config(&upstream)).expect("a configuration");
        let env = |program: Program| program.env("IMAGATE_CONFIG", "imagate.toml").env("IT_TOKEN", "sk-upstream-only");
        let key = |user: &str, name: &str| {
            let words = ["key", "create", "--name", name, "--user", user, "--json"];
            let made = env(Program::new(home.path())).args(words).run().json();
            made["secret"].as_str().expect("a secret").to_owned()
        };
        let (bob, eve) = (key("bob", "bob"), ["one", "two", "three"].map(|name| key("eve", name)).to_vec());
        let limited = format!("ulimit -n {descriptors}; exec \"$0\" serve");
        let program = env(Program::for_program(Path::new("/bin/sh"), home.path()))
            .args(["-c", limited.as_str(), env!("CARGO_BIN_EXE_imagate")])
            .env("IMAGATE_LOG", if reads_log { "info" } else { "debug" });
        let (server, log) = if reads_log {
            (program.serve(), None)
        } else {
            let (server, log) = program.serve_with_log();
            (server, Some(log))
        };
        Self { server, _log: log, bob, eve, _upstream: upstream, _disk: disk, _home: home }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn hostile_key(&self) -> &str {
        self.hostile_keys(0)
    }

    /// One of the keys of the hostile user.
    pub(crate) fn hostile_keys(&self, number: usize) -> &str {
        &self.eve[number % self.eve.len()]
    }

    fn run(&self, name: &'static str, attacks: &[Attack], scale: usize) -> Row {
        let started = Instant::now();
        let finished = AtomicBool::new(false);
        let deadline = attacks.iter().map(|attack| attack.deadline).max().unwrap_or_default();
        let (health, image, upload, (connections, gone)) = std::thread::scope(|scope| {
            let health = scope.spawn(|| probe(&finished, Duration::from_millis(50), || self.health()));
            let image = scope.spawn(|| probe(&finished, Duration::from_millis(500), || self.image()));
            let upload = scope.spawn(|| probe(&finished, Duration::from_millis(500), || self.upload()));
            let hostile =
                attacks.iter().flat_map(|attack| (attack.begin)(self, attack.count.div_ceil(scale))).collect();
            let held = hold(hostile, started, deadline);
            while started.elapsed() < SHORTEST_ROW {
                pause(Duration::from_millis(20));
            }
            finished.store(true, Ordering::Relaxed);
            let [health, image, upload] = [health, image, upload].map(|probe| probe.join().expect("a probe"));
            (health, image, upload, held)
        });
        let upload = attacks.iter().all(|attack| attack.name != ENDLESS_UPLOADS).then_some(upload);
        Row { name, health, image, upload, memory: self.server.peak_bytes(), connections, gone, deadline }
    }

    fn health(&self) -> Result<(), String> {
        let answer = Call::get("/healthz").try_send(self.address()).map_err(|error| error.to_string())?;
        if answer.status == 200 { Ok(()) } else { Err(format!("status {}", answer.status)) }
    }

    fn image(&self) -> Result<(), String> {
        self.ask(Call::generation().json(&request(json!({"size": "1024x1024"}))))
    }

    fn upload(&self) -> Result<(), String> {
        self.ask(Form::with_required_fields().file("image", &alpha_png(64, 64)).call())
    }

    fn ask(&self, call: Call) -> Result<(), String> {
        let call = call.key(&self.bob);
        let answer = call.try_send(self.address()).map_err(|error| error.to_string())?;
        if answer.status == 200 { Ok(()) } else { Err(format!("status {}: {:.200}", answer.status, answer.text())) }
    }
}

fn config(upstream: &FakeUpstream) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\n[[accounts]]\nname = \"only\"\nkind = \"api_key\"\n\
         base_url = \"{}\"\napi_key = {{ env = \"IT_TOKEN\" }}\nconcurrency = 64\n",
        upstream.base_url()
    )
}

/// Calls `ask` repeatedly, with this interval, until the row is finished.
fn probe(finished: &AtomicBool, interval: Duration, ask: impl Fn() -> Result<(), String>) -> Probe {
    let mut probe = Probe::default();
    while !finished.load(Ordering::Relaxed) {
        let started = Instant::now();
        match ask() {
            Ok(()) => probe.answered += 1,
            Err(error) => probe.failed.push(error),
        }
        probe.slowest = probe.slowest.max(started.elapsed());
        pause(interval);
    }
    probe
}

/// Keeps hostile connections going until all are gone, or until the deadline. Returns their number, and the time after
/// which the last one was gone.
fn hold(mut hostile: Vec<HostileConnection>, started: Instant, deadline: Duration) -> (usize, Option<Duration>) {
    let count = hostile.len();
    let mut last = Duration::ZERO;
    while started.elapsed() < deadline {
        for connection in &mut hostile {
            connection.advance();
        }
        let before = hostile.len();
        hostile.retain(|connection| !connection.is_gone());
        if hostile.len() < before {
            last = started.elapsed();
        }
        if hostile.is_empty() {
            return (count, Some(last));
        }
        pause(Duration::from_millis(20));
    }
    (count, None)
}

// === impl Row ===

impl Row {
    const HEAD: &'static str = "| hostile | connections | healthz, slowest | images, slowest | uploads, slowest | memory | gone after |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n";

    fn line(&self) -> String {
        let seconds = |duration: Duration| format!("{:.2} s", duration.as_secs_f64());
        let probe = |probe: &Probe| {
            let failed =
                if probe.failed.is_empty() { String::new() } else { format!(", {} FAILED", probe.failed.len()) };
            format!("{} ({} answers{failed})", seconds(probe.slowest), probe.answered)
        };
        let gone = self.gone.map_or_else(|| format!("NOT within {}", seconds(self.deadline)), seconds);
        format!(
            "| {} | {} | {} | {} | {} | {} MB | {gone} of {} |\n",
            self.name,
            self.connections,
            probe(&self.health),
            probe(&self.image),
            self.upload.as_ref().map_or_else(|| "not asked".to_owned(), probe),
            self.memory / 1_000_000,
            seconds(self.deadline)
        )
    }

    /// The bounds that are exceeded.
    fn faults(&self, slowest_health: Duration) -> Vec<String> {
        let mut faults = Vec::new();
        let asked = [("healthz", &self.health, slowest_health), ("an image", &self.image, SLOWEST_IMAGE)];
        let uploads = self.upload.iter().map(|upload| ("an upload", upload, SLOWEST_IMAGE));
        for (target, probe, limit) in asked.into_iter().chain(uploads) {
            if probe.slowest > limit || !probe.failed.is_empty() || probe.answered == 0 {
                let first = probe.failed.first().map_or("", String::as_str);
                faults.push(format!(
                    "{}: {target}: {:?}, {} failed {first}",
                    self.name,
                    probe.slowest,
                    probe.failed.len()
                ));
            }
        }
        if self.memory > PEAK_BYTES {
            faults.push(format!("{}: {} bytes of memory", self.name, self.memory));
        }
        if self.gone.is_none() {
            faults.push(format!("{}: hostile connections stay longer than {:?}", self.name, self.deadline));
        }
        faults
    }
}

/// Raises the descriptor limit of the test process, which holds one end of each connection.
fn raise_own_limit() {
    let pid = std::process::id().to_string();
    drop(Command::new("prlimit").args(["--pid", &pid, "--nofile=8192:"]).status());
}

#[test]
#[ignore = "takes minutes: `cargo xtask abuse`"]
fn every_attack_alone_and_all_together_keep_the_bounds() {
    let _lock = heavy_test_lock();
    raise_own_limit();
    let mut table = Row::HEAD.to_owned();
    let mut faults = Vec::new();
    let mut add = |scene: &AbuseFixture, name, attacks: &[Attack]| {
        let row = scene.run(name, attacks, 1);
        eprint!("{}", row.line());
        table.push_str(&row.line());
        faults.extend(row.faults(SLOWEST_HEALTH));
    };
    let fewer = FEWER_CLIENTS.map(|(name, count)| Attack { count, ..Attack::new(name, compressed_trees) });
    for attack in ALL.into_iter().chain(fewer).chain(MEMORY_ATTACKS) {
        let scene = AbuseFixture::start(attack.name != attacks::UNREAD_LOG, attack.descriptors);
        add(&scene, attack.name, &[attack]);
    }
    add(&AbuseFixture::start(false, FEW_DESCRIPTORS), "all of connections and logs", &ALL);
    add(&AbuseFixture::start(true, MANY_DESCRIPTORS), "all of memory", &MEMORY_ATTACKS);
    let all: Vec<Attack> = ALL.into_iter().chain(MEMORY_ATTACKS).collect();
    add(&AbuseFixture::start(false, FEW_DESCRIPTORS), "all together", &all);
    println!("\n{table}");
    let _ = write!(table, "\n{}", faults.join("\n"));
    assert!(faults.is_empty(), "{table}");
}

/// A small run of all attacks, so that a gross failure shows in every test run.
#[test]
fn a_few_hostile_callers_do_not_block_other_callers() {
    let _lock = heavy_test_lock();
    let scene = AbuseFixture::start(false, FEW_DESCRIPTORS);
    let all = ALL.into_iter().chain(MEMORY_ATTACKS);
    let attacks: Vec<Attack> = all.map(|attack| Attack { deadline: SHORTEST_ROW, ..attack }).collect();
    let mut row = scene.run("a few of each", &attacks, 10);
    // Most deadlines are longer than this test, so they are not checked.
    row.gone = Some(Duration::ZERO);
    let faults = row.faults(SLOWEST_HEALTH_AMONG_TESTS);
    assert!(faults.is_empty(), "{}{}\n{}", Row::HEAD, row.line(), faults.join("\n"));
}
