//! The Chromium of the test program, which all tests share: `tests/browser/driver.mjs` starts and controls it.
//!
//! Orders of several tests are in progress at the same time; each has a number, by which its answer is found. The driver
//! ends when the pipe to it is closed, which happens at the end of the test program.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use crate::clients::install::modules;
use crate::kit::env_setting;

const PACKAGES: [&str; 2] = ["playwright-core@1.65.1", "axe-core@4.14.1"];
const SCRIPTS: [&str; 2] = ["driver.mjs", "faults.mjs"];
/// The names of the program on Debian, Fedora and other systems.
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];

/// The running driver.
pub(super) struct BrowserDriver {
    stdin: Mutex<ChildStdin>,
    orders: Mutex<PendingOrders>,
}

/// The orders that have no answer yet, by their numbers.
#[derive(Default)]
struct PendingOrders {
    next: u64,
    answers: HashMap<u64, Sender<Value>>,
    /// Whether the driver has ended, so that no answer will come.
    has_ended: bool,
}

// === impl BrowserDriver ===

impl BrowserDriver {
    /// The driver of this test program, which starts if it does not run.
    #[track_caller]
    pub(super) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Option<Arc<BrowserDriver>>> = Mutex::new(None);
        let mut shared = lock(&SHARED);
        match &*shared {
            Some(driver) if !lock(&driver.orders).has_ended => Arc::clone(driver),
            _ => Arc::clone(shared.insert(Self::start())),
        }
    }

    #[track_caller]
    fn start() -> Arc<Self> {
        let program = chromium();
        let folder = modules("IMAGATE_NODE_BROWSER", "browser", &PACKAGES);
        // Node resolves packages relative to the script, so the scripts are copied beside `node_modules`.
        for name in SCRIPTS {
            std::fs::copy(scripts().join(name), folder.join(name)).expect("a copy of the script");
        }
        // The driver removes the folder, because it lives longer than this process.
        let home = TempDir::new().expect("a directory").keep();
        let mut command = Command::new("node");
        command.arg(SCRIPTS[0]).current_dir(folder).env("CHROMIUM", program);
        command.env("HOME", &home).env("TMPDIR", &home);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node starts");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let driver = Arc::new(Self { stdin: Mutex::new(stdin), orders: Mutex::default() });
        let reader = Arc::clone(&driver);
        std::thread::spawn(move || {
            reader.read_answers(stdout);
            // Nothing waits for it if this process ends first.
            drop(child.wait());
        });
        driver
    }

    fn read_answers(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let sender = answer["id"].as_u64().and_then(|id| lock(&self.orders).answers.remove(&id));
            // A test that has failed does not wait for its answer.
            sender.map(|sender| sender.send(answer).ok());
        }
        let mut orders = lock(&self.orders);
        orders.has_ended = true;
        orders.answers.clear();
    }

    /// Sends an order and waits for its answer; `None` if the driver has ended.
    pub(super) fn execute(&self, mut order: Value) -> Option<Value> {
        let (id, answer) = self.register()?;
        order["id"] = id.into();
        // If the driver has ended, the receiver reports it.
        drop(writeln!(lock(&self.stdin), "{order}"));
        answer.recv().ok()
    }

    fn register(&self) -> Option<(u64, Receiver<Value>)> {
        let mut orders = lock(&self.orders);
        if orders.has_ended {
            return None;
        }
        let (sender, receiver) = channel();
        orders.next += 1;
        let id = orders.next;
        orders.answers.insert(id, sender);
        Some((id, receiver))
    }
}

/// Held by a test that reads the clipboard, because all windows of the browser have the same one.
pub(super) fn clipboard_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    lock(&LOCK)
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of Chromium; panics if Chromium is not installed.
#[track_caller]
fn chromium() -> PathBuf {
    let path = env_setting("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut programs = PROGRAMS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = programs.find(|program| program.is_file());
    found.expect("Chromium is not installed; `cargo xtask test --only tools` installs it or tells how to")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}
