//! What no gateway of any test may let out: the credentials and addresses of its upstreams, and its caller's key.
//!
//! Watched are every byte that the kit's own client reads, everything that the processes and commands print, the counts of
//! each process, and every file that is left below the data directory when the test is over. What is found is told then: a
//! test that ends well fails nevertheless, and so does one in which nobody looked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::leak_search::{Canary, CapturedOutput, OutputChannel};
use super::{Account, CommandOutput};

/// The watch over one gateway, shared by everything that reads what comes out of it.
#[derive(Debug, Default)]
pub(crate) struct LeakWatch {
    canaries: Mutex<Vec<Canary>>,
    found: Mutex<Vec<String>>,
    /// Whether the counts of the process that runs were looked at.
    has_scanned_metrics: AtomicBool,
}

/// Secrets that an endpoint of the kit makes while a test runs: a watch over it has each before it is given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretIssuer(Arc<Mutex<IssuedSecrets>>);

#[derive(Debug, Default)]
struct IssuedSecrets {
    /// By name.
    secrets: Vec<(String, String)>,
    watches: Vec<Weak<LeakWatch>>,
}

/// The bytes of one answer on their way: what is found may lie across two pieces.
pub(crate) struct AnswerScanner {
    watch: Arc<LeakWatch>,
    place: OutputChannel,
    pending: Vec<u8>,
    overlap: usize,
}

/// Whose an address is; and what is read there, where that is always the same.
type WatchedGateway = (Arc<LeakWatch>, Option<OutputChannel>);

/// Which gateway listens where.
static GATEWAYS: LazyLock<Mutex<HashMap<SocketAddr, WatchedGateway>>> = LazyLock::new(Mutex::default);

/// Shorter values are words that may stand anywhere.
const MIN_SECRET_LENGTH: usize = 8;

// === impl Watch ===

impl LeakWatch {
    /// `environment` holds the secrets under names that begin with `IT_`, as the configuration of a test names them.
    pub(crate) fn for_accounts(accounts: &[Account], environment: &[(String, String)]) -> Arc<Self> {
        let watch = Self::default();
        for (name, value) in environment {
            if name.starts_with("IT_") && value.len() >= MIN_SECRET_LENGTH {
                watch.add(name, value, &[]);
            }
        }
        for account in accounts {
            // An account that is added later to an upstream of the same address is kept in the store.
            let home = &[OutputChannel::Admin, OutputChannel::Settings, OutputChannel::Output, OutputChannel::Store];
            watch.add("address of an upstream", account.host(), home);
        }
        let watch = Arc::new(watch);
        accounts.iter().filter_map(Account::issuer).for_each(|mint| mint.add_watch(&watch));
        watch
    }

    /// `home` is where it may stand.
    pub(crate) fn add(&self, name: &str, value: &str, home: &'static [OutputChannel]) {
        lock(&self.canaries).push(Canary::new(name, value, home));
    }

    /// From now on answers from this address are watched.
    pub(crate) fn watch_address(self: &Arc<Self>, address: SocketAddr) {
        lock(&GATEWAYS).insert(address, (Arc::clone(self), None));
    }

    /// From now on the address may be that of somebody else.
    pub(crate) fn unwatch_address(self: &Arc<Self>, address: SocketAddr) {
        let mut gateways = lock(&GATEWAYS);
        if gateways.get(&address).is_some_and(|(watch, _)| Arc::ptr_eq(watch, self)) {
            gateways.remove(&address);
        }
    }

    /// As [`Watch::listen`], where the counts of a new process are told.
    pub(crate) fn watch_metrics(self: &Arc<Self>, address: SocketAddr) {
        self.has_scanned_metrics.store(false, Ordering::SeqCst);
        lock(&GATEWAYS).insert(address, (Arc::clone(self), Some(OutputChannel::Metrics)));
    }

    /// The process is over. A watch that nobody kept finds nothing.
    pub(crate) fn require_metrics_scan(&self) {
        if !self.has_scanned_metrics.load(Ordering::SeqCst) {
            self.report("nobody looked at the counts of a process");
        }
    }

    pub(crate) fn report(&self, what: impl Into<String>) {
        lock(&self.found).push(what.into());
    }

    pub(crate) fn scan(&self, place: OutputChannel, bytes: &[u8]) {
        let found: Vec<_> = lock(&self.canaries).iter().filter_map(|canary| canary.find(place, bytes)).collect();
        lock(&self.found).extend(found);
    }

    /// Both outputs of a command. A command that makes a key shows it, and no other does.
    pub(crate) fn scan_command(&self, words: &[&str], done: &CommandOutput) {
        let place = match words {
            ["key", "create" | "rotate", ..] => OutputChannel::Key,
            ["config", ..] => OutputChannel::Settings,
            _ => OutputChannel::Output,
        };
        if place == OutputChannel::Key {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            let keys = done.stdout.split(|letter| !is_part(letter)).filter(|word| word.starts_with("sk-img-"));
            // A shorter one is the part by which a key is known.
            keys.filter(|key| key.len() > 24)
                .for_each(|key| self.add("the key of a caller", key, &[OutputChannel::Key]));
        }
        for output in [&done.stdout, &done.stderr] {
            self.scan(place, output.as_bytes());
        }
    }

    pub(crate) fn scan_folder(&self, folder: &std::path::Path) {
        let mut hay = CapturedOutput::default();
        hay.add_files(folder);
        let found = hay.search(&lock(&self.canaries));
        lock(&self.found).extend(found);
    }

    /// Everything that was found so far.
    pub(crate) fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.found))
    }
}

// === impl Tail ===

impl AnswerScanner {
    /// Of an answer from this address, where a gateway of the kit listens there.
    pub(super) fn for_address(address: SocketAddr, place: OutputChannel) -> Option<Self> {
        let (watch, always) = lock(&GATEWAYS).get(&address)?.clone();
        let place = always.unwrap_or(place);
        let overlap = lock(&watch.canaries).iter().map(Canary::longest).max().unwrap_or_default();
        Some(Self { watch, place, pending: Vec::new(), overlap })
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.watch.has_scanned_metrics.fetch_or(self.place == OutputChannel::Metrics, Ordering::SeqCst);
        self.pending.extend_from_slice(piece);
        self.watch.scan(self.place, &self.pending);
        let known = self.pending.len().saturating_sub(self.overlap);
        self.pending.drain(..known);
    }
}

// === impl Mint ===

impl SecretIssuer {
    pub(super) fn add_secret(&self, name: &str, value: &str) {
        assert!(value.len() >= MIN_SECRET_LENGTH, "{value} is too short to be watched");
        let mut mint = lock(&self.0);
        if mint.secrets.iter().all(|(_, known)| known != value) {
            mint.secrets.push((name.to_owned(), value.to_owned()));
            mint.watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.add(name, value, &[]));
        }
    }

    pub(crate) fn add_watch(&self, watch: &Arc<LeakWatch>) {
        let mut mint = lock(&self.0);
        mint.secrets.iter().for_each(|(name, value)| watch.add(name, value, &[]));
        mint.watches.push(Arc::downgrade(watch));
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_lies_across_two_pieces_is_found() {
    let watch = Arc::<LeakWatch>::default();
    watch.add("a token", "sk-upstream-across", &[]);
    let address: SocketAddr = ([127, 0, 0, 1], 0).into();
    watch.watch_address(address);
    let mut tail = AnswerScanner::for_address(address, OutputChannel::Answer).expect("a watch");
    for piece in ["nothing here, and then sk-up", "stream-acr", "oss and more"] {
        assert_eq!(watch.take_findings(), Vec::<String>::new(), "{piece}");
        tail.add(piece.as_bytes());
    }
    assert_eq!(watch.take_findings().len(), 1);
}

#[test]
fn what_is_made_while_a_test_runs_is_watched() {
    let (watch, mint) = (Arc::<LeakWatch>::default(), SecretIssuer::default());
    mint.add_secret("before", "refresh-of-before");
    mint.add_watch(&watch);
    mint.add_secret("later", "access-of-later");
    let key = "sk-img-0123456789abcdef-0123456789abcdef0123456789abcdef";
    let made = CommandOutput { code: Some(0), stdout: format!("{{\"secret\":\"{key}\"}}"), stderr: String::new() };
    watch.scan_command(&["key", "create"], &made);
    assert_eq!(watch.take_findings(), Vec::<String>::new());
    for secret in ["refresh-of-before", "access-of-later", key] {
        watch.scan(OutputChannel::Metrics, secret.as_bytes());
        assert_eq!(watch.take_findings().len(), 1, "{secret}");
    }
}

#[test]
fn counts_that_nobody_looked_at_are_told() {
    let watch = Arc::<LeakWatch>::default();
    let address: SocketAddr = ([127, 0, 0, 2], 0).into();
    watch.watch_metrics(address);
    watch.require_metrics_scan();
    assert_eq!(watch.take_findings().len(), 1);
    watch.add("a token", "sk-upstream-counted", &[OutputChannel::Answer]);
    AnswerScanner::for_address(address, OutputChannel::Answer).expect("a watch").add(b"sk-upstream-counted");
    watch.require_metrics_scan();
    assert_eq!(watch.take_findings().len(), 1, "what is counted is no answer");
}
