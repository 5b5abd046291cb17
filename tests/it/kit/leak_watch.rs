//! The search for leaks in every test: no gateway may reveal the credentials and addresses of its upstreams, nor the
//! keys of its callers.
//!
//! Scanned are every byte that the kit's own client reads, everything that the processes and commands print, the
//! metrics of each process, and every file that is left below the data directory when the test is over. A leak makes
//! the test fail at its end, and so does a process whose metrics nobody has read.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::leak_search::{Canary, CapturedOutput, OutputChannel};
use super::{Account, CommandOutput};

/// The watch over one gateway, shared by everything that reads its output.
#[derive(Debug, Default)]
pub(crate) struct LeakWatch {
    canaries: Mutex<Vec<Canary>>,
    found: Mutex<Vec<String>>,
    /// True if the metrics of the present process have been read.
    has_scanned_metrics: AtomicBool,
}

/// Secrets that an endpoint of the kit makes while a test runs. Each is known to the watches before it is given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretIssuer(Arc<Mutex<IssuedSecrets>>);

#[derive(Debug, Default)]
struct IssuedSecrets {
    /// Their names and values.
    secrets: Vec<(String, String)>,
    watches: Vec<Weak<LeakWatch>>,
}

/// Scans one answer while it is read, and finds a secret also across two pieces of it.
pub(crate) struct AnswerScanner {
    watch: Arc<LeakWatch>,
    channel: OutputChannel,
    pending: Vec<u8>,
    overlap: usize,
}

/// The watch over the gateway at an address, and the channel if the address serves only one.
type WatchedGateway = (Arc<LeakWatch>, Option<OutputChannel>);

/// The gateways by the addresses on which they listen.
static GATEWAYS: LazyLock<Mutex<HashMap<SocketAddr, WatchedGateway>>> = LazyLock::new(Mutex::default);

/// Shorter values may occur anywhere by chance.
const MIN_SECRET_LENGTH: usize = 8;

// === impl LeakWatch ===

impl LeakWatch {
    /// `environment` holds the secrets under names that begin with `IT_`, as the configuration of a test names them.
    pub(crate) fn for_accounts(accounts: &[Account], environment: &[(String, String)]) -> Arc<Self> {
        let watch = Self::default();
        for (name, value) in environment {
            if name.starts_with("IT_") && value.len() >= MIN_SECRET_LENGTH {
                watch.add(name, value, &[]);
            }
        }
        for host in accounts.iter().map(Account::host).collect::<BTreeSet<_>>() {
            // A test may add an account with the same address later, which is written to the store.
            let allowed = &[OutputChannel::Admin, OutputChannel::Settings, OutputChannel::Output, OutputChannel::Store];
            watch.add("address of an upstream", host, allowed);
        }
        let watch = Arc::new(watch);
        accounts.iter().filter_map(Account::issuer).for_each(|issuer| issuer.add_watch(&watch));
        watch
    }

    /// Adds a secret that may occur only in the allowed channels.
    pub(crate) fn add(&self, name: &str, value: &str, allowed: &'static [OutputChannel]) {
        lock(&self.canaries).push(Canary::new(name, value, allowed));
    }

    /// From now on answers from this address are watched.
    pub(crate) fn watch_address(self: &Arc<Self>, address: SocketAddr) {
        lock(&GATEWAYS).insert(address, (Arc::clone(self), None));
    }

    /// Ends the watch over the address, which another server may use next.
    pub(crate) fn unwatch_address(self: &Arc<Self>, address: SocketAddr) {
        let mut gateways = lock(&GATEWAYS);
        if gateways.get(&address).is_some_and(|(watch, _)| Arc::ptr_eq(watch, self)) {
            gateways.remove(&address);
        }
    }

    /// As [`LeakWatch::watch_address`], for the address at which a new process serves its metrics.
    pub(crate) fn watch_metrics(self: &Arc<Self>, address: SocketAddr) {
        self.has_scanned_metrics.store(false, Ordering::SeqCst);
        lock(&GATEWAYS).insert(address, (Arc::clone(self), Some(OutputChannel::Metrics)));
    }

    /// Reports a process that has ended although nobody has read its metrics: a leak in them would not be found.
    pub(crate) fn require_metrics_scan(&self) {
        if !self.has_scanned_metrics.load(Ordering::SeqCst) {
            self.report("nobody has read the metrics of a process");
        }
    }

    pub(crate) fn report(&self, what: impl Into<String>) {
        lock(&self.found).push(what.into());
    }

    pub(crate) fn scan(&self, channel: OutputChannel, bytes: &[u8]) {
        let found: Vec<_> = lock(&self.canaries).iter().filter_map(|canary| canary.find(channel, bytes)).collect();
        lock(&self.found).extend(found);
    }

    /// Scans both outputs of a command. Only a command that creates or rotates a key may show it.
    pub(crate) fn scan_command(&self, words: &[&str], done: &CommandOutput) {
        let channel = match words {
            ["key", "create" | "rotate", ..] => OutputChannel::Key,
            ["config", ..] => OutputChannel::Settings,
            _ => OutputChannel::Output,
        };
        if channel == OutputChannel::Key {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            let keys = done.stdout.split(|letter| !is_part(letter)).filter(|word| word.starts_with("sk-img-"));
            // A shorter word is the visible part of a key, by which users recognize it.
            keys.filter(|key| key.len() > 24)
                .for_each(|key| self.add("the key of a caller", key, &[OutputChannel::Key]));
        }
        for output in [&done.stdout, &done.stderr] {
            self.scan(channel, output.as_bytes());
        }
    }

    pub(crate) fn scan_folder(&self, folder: &std::path::Path) {
        let mut captured = CapturedOutput::default();
        captured.add_files(folder);
        let found = captured.search(&lock(&self.canaries));
        lock(&self.found).extend(found);
    }

    /// Takes everything that was found so far.
    pub(crate) fn take_findings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.found))
    }
}

// === impl AnswerScanner ===

impl AnswerScanner {
    /// A scanner for an answer from this address; `None` if no gateway of the kit listens there.
    pub(super) fn for_address(address: SocketAddr, channel: OutputChannel) -> Option<Self> {
        let (watch, always) = lock(&GATEWAYS).get(&address)?.clone();
        let channel = always.unwrap_or(channel);
        let overlap = lock(&watch.canaries).iter().map(Canary::longest).max().unwrap_or_default();
        Some(Self { watch, channel, pending: Vec::new(), overlap })
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.watch.has_scanned_metrics.fetch_or(self.channel == OutputChannel::Metrics, Ordering::SeqCst);
        self.pending.extend_from_slice(piece);
        self.watch.scan(self.channel, &self.pending);
        let scanned = self.pending.len().saturating_sub(self.overlap);
        self.pending.drain(..scanned);
    }
}

// === impl SecretIssuer ===

impl SecretIssuer {
    pub(super) fn add_secret(&self, name: &str, value: &str) {
        assert!(value.len() >= MIN_SECRET_LENGTH, "{value} is too short to be watched");
        let mut issued = lock(&self.0);
        if issued.secrets.iter().all(|(_, known)| known != value) {
            issued.secrets.push((name.to_owned(), value.to_owned()));
            issued.watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.add(name, value, &[]));
        }
    }

    pub(crate) fn add_watch(&self, watch: &Arc<LeakWatch>) {
        let mut issued = lock(&self.0);
        issued.secrets.iter().for_each(|(name, value)| watch.add(name, value, &[]));
        issued.watches.push(Arc::downgrade(watch));
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_secret_across_two_pieces_is_found() {
    let watch = Arc::<LeakWatch>::default();
    watch.add("a token", "sk-upstream-across", &[]);
    let address: SocketAddr = ([127, 0, 0, 1], 0).into();
    watch.watch_address(address);
    let mut scanner = AnswerScanner::for_address(address, OutputChannel::Answer).expect("a watch");
    for piece in ["nothing here, and then sk-up", "stream-acr", "oss and more"] {
        assert_eq!(watch.take_findings(), Vec::<String>::new(), "{piece}");
        scanner.add(piece.as_bytes());
    }
    assert_eq!(watch.take_findings().len(), 1);
}

#[test]
fn secrets_that_are_issued_during_a_test_are_watched() {
    let (watch, issuer) = (Arc::<LeakWatch>::default(), SecretIssuer::default());
    issuer.add_secret("before", "refresh-of-before");
    issuer.add_watch(&watch);
    issuer.add_secret("later", "access-of-later");
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
fn metrics_that_nobody_has_read_are_reported() {
    let watch = Arc::<LeakWatch>::default();
    let address: SocketAddr = ([127, 0, 0, 2], 0).into();
    watch.watch_metrics(address);
    watch.require_metrics_scan();
    assert_eq!(watch.take_findings().len(), 1);
    watch.add("a token", "sk-upstream-counted", &[OutputChannel::Answer]);
    AnswerScanner::for_address(address, OutputChannel::Answer).expect("a watch").add(b"sk-upstream-counted");
    watch.require_metrics_scan();
    assert_eq!(watch.take_findings().len(), 1, "the metrics are a channel of their own");
}
