//! What no gateway of any test may let out: the credentials and addresses of its upstreams, and its caller's key.
//!
//! Watched are every byte that the kit's own client reads, everything that the processes and commands print, the counts of
//! each process, and every file that is left below the data directory when the test is over. What is found is told then: a
//! test that ends well fails nevertheless, and so does one in which nobody looked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::hay::{Canary, Hay, Place};
use super::{Account, Done};

/// The watch over one gateway, shared by everything that reads what comes out of it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    canaries: Mutex<Vec<Canary>>,
    found: Mutex<Vec<String>>,
    /// Whether the counts of the process that runs were looked at.
    counted: AtomicBool,
}

/// Secrets that an endpoint of the kit makes while a test runs: a watch over it has each before it is given out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mint(Arc<Mutex<Made>>);

#[derive(Debug, Default)]
struct Made {
    /// By name.
    secrets: Vec<(String, String)>,
    watches: Vec<Weak<Watch>>,
}

/// The bytes of one answer on their way: what is found may lie across two pieces.
pub(crate) struct Tail {
    watch: Arc<Watch>,
    place: Place,
    kept: Vec<u8>,
    overlap: usize,
}

/// Whose an address is; and what is read there, where that is always the same.
type Listener = (Arc<Watch>, Option<Place>);

/// Which gateway listens where.
static GATEWAYS: LazyLock<Mutex<HashMap<SocketAddr, Listener>>> = LazyLock::new(Mutex::default);

/// Shorter values are words that may stand anywhere.
const SHORTEST: usize = 8;

// === impl Watch ===

impl Watch {
    /// `environment` holds the secrets under names that begin with `IT_`, as the configuration of a test names them.
    pub(crate) fn over(accounts: &[Account], environment: &[(String, String)]) -> Arc<Self> {
        let watch = Self::default();
        for (name, value) in environment {
            if name.starts_with("IT_") && value.len() >= SHORTEST {
                watch.add(name, value, &[]);
            }
        }
        for account in accounts {
            // An account that is added later to an upstream of the same address is kept in the store.
            let home = &[Place::Desk, Place::Settings, Place::Output, Place::Store];
            watch.add("address of an upstream", account.host(), home);
        }
        let watch = Arc::new(watch);
        accounts.iter().filter_map(Account::mint).for_each(|mint| mint.watched_by(&watch));
        watch
    }

    /// `home` is where it may stand.
    pub(crate) fn add(&self, name: &str, value: &str, home: &'static [Place]) {
        lock(&self.canaries).push(Canary::new(name, value, home));
    }

    /// From now on answers from this address are watched.
    pub(crate) fn listen(self: &Arc<Self>, address: SocketAddr) {
        lock(&GATEWAYS).insert(address, (Arc::clone(self), None));
    }

    /// From now on the address may be that of somebody else.
    pub(crate) fn leave(self: &Arc<Self>, address: SocketAddr) {
        let mut gateways = lock(&GATEWAYS);
        if gateways.get(&address).is_some_and(|(watch, _)| Arc::ptr_eq(watch, self)) {
            gateways.remove(&address);
        }
    }

    /// As [`Watch::listen`], where the counts of a new process are told.
    pub(crate) fn count(self: &Arc<Self>, address: SocketAddr) {
        self.counted.store(false, Ordering::SeqCst);
        lock(&GATEWAYS).insert(address, (Arc::clone(self), Some(Place::Metrics)));
    }

    /// The process is over. A watch that nobody kept finds nothing.
    pub(crate) fn must_have_counted(&self) {
        if !self.counted.load(Ordering::SeqCst) {
            self.tell("nobody looked at the counts of a process");
        }
    }

    pub(crate) fn tell(&self, what: impl Into<String>) {
        lock(&self.found).push(what.into());
    }

    pub(crate) fn look(&self, place: Place, bytes: &[u8]) {
        let found: Vec<_> = lock(&self.canaries).iter().filter_map(|canary| canary.find(place, bytes)).collect();
        lock(&self.found).extend(found);
    }

    /// Both outputs of a command. A command that makes a key shows it, and no other does.
    pub(crate) fn look_at(&self, words: &[&str], done: &Done) {
        let place = match words {
            ["key", "create" | "rotate", ..] => Place::Key,
            ["config", ..] => Place::Settings,
            _ => Place::Output,
        };
        if place == Place::Key {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            let keys = done.stdout.split(|letter| !is_part(letter)).filter(|word| word.starts_with("sk-img-"));
            // A shorter one is the part by which a key is known.
            keys.filter(|key| key.len() > 24).for_each(|key| self.add("the key of a caller", key, &[Place::Key]));
        }
        for output in [&done.stdout, &done.stderr] {
            self.look(place, output.as_bytes());
        }
    }

    pub(crate) fn look_below(&self, folder: &std::path::Path) {
        let mut hay = Hay::default();
        hay.add_files(folder);
        let found = hay.search(&lock(&self.canaries));
        lock(&self.found).extend(found);
    }

    /// Everything that was found so far.
    pub(crate) fn found(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.found))
    }
}

// === impl Tail ===

impl Tail {
    /// Of an answer from this address, where a gateway of the kit listens there.
    pub(super) fn of(address: SocketAddr, place: Place) -> Option<Self> {
        let (watch, always) = lock(&GATEWAYS).get(&address)?.clone();
        let place = always.unwrap_or(place);
        let overlap = lock(&watch.canaries).iter().map(Canary::longest).max().unwrap_or_default();
        Some(Self { watch, place, kept: Vec::new(), overlap })
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.watch.counted.fetch_or(self.place == Place::Metrics, Ordering::SeqCst);
        self.kept.extend_from_slice(piece);
        self.watch.look(self.place, &self.kept);
        let known = self.kept.len().saturating_sub(self.overlap);
        self.kept.drain(..known);
    }
}

// === impl Mint ===

impl Mint {
    pub(super) fn made(&self, name: &str, value: &str) {
        assert!(value.len() >= SHORTEST, "{value} is too short to be watched");
        let mut mint = lock(&self.0);
        if mint.secrets.iter().all(|(_, known)| known != value) {
            mint.secrets.push((name.to_owned(), value.to_owned()));
            mint.watches.iter().filter_map(Weak::upgrade).for_each(|watch| watch.add(name, value, &[]));
        }
    }

    pub(crate) fn watched_by(&self, watch: &Arc<Watch>) {
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
    let watch = Arc::<Watch>::default();
    watch.add("a token", "sk-upstream-across", &[]);
    let address: SocketAddr = ([127, 0, 0, 1], 0).into();
    watch.listen(address);
    let mut tail = Tail::of(address, Place::Answer).expect("a watch");
    for piece in ["nothing here, and then sk-up", "stream-acr", "oss and more"] {
        assert_eq!(watch.found(), Vec::<String>::new(), "{piece}");
        tail.add(piece.as_bytes());
    }
    assert_eq!(watch.found().len(), 1);
}

#[test]
fn what_is_made_while_a_test_runs_is_watched() {
    let (watch, mint) = (Arc::<Watch>::default(), Mint::default());
    mint.made("before", "refresh-of-before");
    mint.watched_by(&watch);
    mint.made("later", "access-of-later");
    let key = "sk-img-0123456789abcdef-0123456789abcdef0123456789abcdef";
    let made = Done { code: Some(0), stdout: format!("{{\"secret\":\"{key}\"}}"), stderr: String::new() };
    watch.look_at(&["key", "create"], &made);
    assert_eq!(watch.found(), Vec::<String>::new());
    for secret in ["refresh-of-before", "access-of-later", key] {
        watch.look(Place::Metrics, secret.as_bytes());
        assert_eq!(watch.found().len(), 1, "{secret}");
    }
}

#[test]
fn counts_that_nobody_looked_at_are_told() {
    let watch = Arc::<Watch>::default();
    let address: SocketAddr = ([127, 0, 0, 2], 0).into();
    watch.count(address);
    watch.must_have_counted();
    assert_eq!(watch.found().len(), 1);
    watch.add("a token", "sk-upstream-counted", &[Place::Answer]);
    Tail::of(address, Place::Answer).expect("a watch").add(b"sk-upstream-counted");
    watch.must_have_counted();
    assert_eq!(watch.found().len(), 1, "what is counted is no answer");
}
