//! What no gateway of any test may let out: the credentials and addresses of its upstreams, and its caller's key.
//!
//! Watched are every byte that the kit's own client reads, everything that the processes and commands print, and every
//! file that is left below the data directory when the test is over. What is found is told then: a test that ends well
//! fails nevertheless.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::hay::{Canary, Hay, Place};
use super::{Account, Done};

/// The watch over one gateway, shared by everything that reads what comes out of it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    canaries: Mutex<Vec<Canary>>,
    found: Mutex<Vec<String>>,
}

/// The bytes of one answer on their way: what is found may lie across two pieces.
pub(crate) struct Tail {
    watch: Arc<Watch>,
    place: Place,
    kept: Vec<u8>,
    overlap: usize,
}

/// Which gateway listens where.
static GATEWAYS: LazyLock<Mutex<HashMap<SocketAddr, Arc<Watch>>>> = LazyLock::new(Mutex::default);

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
        Arc::new(watch)
    }

    /// `home` is where it may stand.
    pub(crate) fn add(&self, name: &str, value: &str, home: &'static [Place]) {
        lock(&self.canaries).push(Canary::new(name, value, home));
    }

    /// From now on answers from this address are watched.
    pub(crate) fn listen(self: &Arc<Self>, address: SocketAddr) {
        lock(&GATEWAYS).insert(address, Arc::clone(self));
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
        let watch = Arc::clone(lock(&GATEWAYS).get(&address)?);
        let overlap = lock(&watch.canaries).iter().map(Canary::longest).max().unwrap_or_default();
        Some(Self { watch, place, kept: Vec::new(), overlap })
    }

    pub(super) fn add(&mut self, piece: &[u8]) {
        self.kept.extend_from_slice(piece);
        self.watch.look(self.place, &self.kept);
        let known = self.kept.len().saturating_sub(self.overlap);
        self.kept.drain(..known);
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
