//! Nobody loses an image that was paid for: callers of every kind ask for one, leave at any moment, and ask again, while
//! the gateway is killed, departs, or has a nearly full disk. Each caller gets the image that the upstream made for it,
//! or, if the gateway was killed while the image was made, the error that says so; nothing is paid for twice.

mod callers;

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::Duration;

use self::callers::{CallerKind, ImageCaller, ImageOutcome};
use super::{SoakRun, open_node};
use crate::kit::{Account, FakeUpstream, Gateway, PostgresDatabase, SmallDisk, TEST_TIMEOUT, pause};
use crate::pages::users::sign_in_ada;

/// The callers at each moment.
const CALLERS: usize = 16;
/// The settings of all nodes: an agent may ask for links.
const SETTINGS: &str = "\n[[groups]]\nname = \"default\"\ndialects = [\"url\"]\n\n[uploads]\nmin_free_megabytes = 8\n";
/// The disk in megabytes. What is left of it when it is nearly full holds the records, and hardly an image.
const DISK: usize = 256;
const NEARLY_FULL: u64 = 10;

/// The gateways, and what the callers know of them.
struct CallerStage {
    nodes: Vec<RwLock<Gateway>>,
    upstream: FakeUpstream,
    cookies: BTreeMap<String, String>,
    secret: String,
}

/// An event that the gateway suffers while the callers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GatewayFault {
    Nothing,
    Kill,
    Departure,
    FullDisk,
}

/// The counts of the table, by kind of caller.
#[derive(Default)]
struct CallerCounts {
    images: usize,
    told_unknown: usize,
    lost: Vec<String>,
    paid_twice: Vec<String>,
    /// Repeats without a key of callers to whose connections the answer had been written when they left: the gateway cannot
    /// know that they do not have it.
    written_in_vain: Vec<String>,
}

// === impl CallerStage ===

impl CallerStage {
    fn new(upstream: FakeUpstream, nodes: Vec<Gateway>) -> Self {
        nodes.iter().for_each(Gateway::keep_address);
        // The link of the node that began last is valid.
        let cookies = sign_in_ada(nodes.last().expect("a node")).cookies;
        let secret = nodes[0].secret().to_owned();
        Self { nodes: nodes.into_iter().map(RwLock::new).collect(), upstream, cookies, secret }
    }

    /// The node of this number, counted over all nodes.
    fn node(&self, number: usize) -> RwLockReadGuard<'_, Gateway> {
        self.nodes[number % self.nodes.len()].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The secret of the key with which the callers ask.
    fn secret(&self) -> &str {
        &self.secret
    }

    fn node_mut(&self, number: usize) -> RwLockWriteGuard<'_, Gateway> {
        self.nodes[number % self.nodes.len()].write().unwrap_or_else(PoisonError::into_inner)
    }

    fn disturb(&self, disturbance: GatewayFault, number: usize, disk: Option<&SmallDisk>) {
        match disturbance {
            GatewayFault::Nothing => {}
            GatewayFault::Kill => {
                let mut node = self.node_mut(number);
                node.kill();
                node.start();
            }
            GatewayFault::Departure => {
                let mut node = self.node_mut(number);
                node.terminate();
                assert!(node.server().wait(TEST_TIMEOUT).success(), "the node ends");
                node.start_again();
            }
            GatewayFault::FullDisk => disk.into_iter().for_each(|disk| disk.fill_except(NEARLY_FULL)),
        }
    }
}

/// Lets callers ask and leave, disturbs the gateway meanwhile, and lets them ask again until each knows its outcome.
fn run_wave(
    stage: &CallerStage,
    run: &SoakRun,
    wave: usize,
    disk: Option<&SmallDisk>,
) -> (GatewayFault, Vec<ImageCaller>) {
    let mut random = run.random(wave);
    let disturbance = match (random.between(0, 6), disk.is_some()) {
        (0 | 1, _) => GatewayFault::Nothing,
        (2, _) => GatewayFault::Departure,
        (3 | 4, true) => GatewayFault::FullDisk,
        _ => GatewayFault::Kill,
    };
    let (moment, node) = (Duration::from_millis(random.between(0, 300)), wave);
    let first = wave * CALLERS;
    let callers = thread::scope(|scope| {
        let threads: Vec<_> = (first..first + CALLERS)
            .map(|number| {
                let mut random = run.random(1_000_000 + number);
                scope.spawn(move || ImageCaller::leave(stage, number, &mut random))
            })
            .collect();
        pause(moment);
        stage.disturb(disturbance, node, disk);
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect::<Vec<_>>()
    });
    if disturbance == GatewayFault::FullDisk {
        disk.into_iter().for_each(SmallDisk::clear);
    }
    let callers = thread::scope(|scope| {
        let ask = |mut caller: ImageCaller| {
            caller.ask_until_answered(stage);
            caller
        };
        let threads: Vec<_> = callers.into_iter().map(|caller| scope.spawn(move || ask(caller))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a caller")).collect::<Vec<_>>()
    });
    (disturbance, callers)
}

/// Compares what each caller got with the ledger of the upstream.
fn count(stage: &CallerStage, waves: &[(GatewayFault, Vec<ImageCaller>)]) -> BTreeMap<CallerKind, CallerCounts> {
    let mut made: BTreeMap<usize, Vec<(String, bool)>> = BTreeMap::new();
    for attempt in stage.upstream.received_attempts() {
        let number = callers::number_in(&attempt.prompt()).expect("the prompt has the number of its caller");
        let image = attempt.images.first().cloned().unwrap_or_default();
        made.entry(number).or_default().push((image, attempt.completed));
    }
    let mut counts: BTreeMap<CallerKind, CallerCounts> = BTreeMap::new();
    for (disturbance, caller) in waves.iter().flat_map(|(what, callers)| callers.iter().map(move |one| (what, one))) {
        let (entry, attempts) =
            (counts.entry(caller.kind).or_default(), made.remove(&caller.number).unwrap_or_default());
        let what = format!("caller {} {:?}, {disturbance:?}: {}", caller.number, caller.kind, caller.outcome);
        if attempts.len() == 2 && caller.has_no_key() {
            entry.written_in_vain.push(what.clone());
        } else if attempts.len() > 1 {
            entry.paid_twice.push(format!("{what}, {} attempts", attempts.len()));
        }
        match &caller.outcome {
            ImageOutcome::Image(image) if attempts.iter().any(|(made, _)| made == image) => entry.images += 1,
            ImageOutcome::Unknown if *disturbance == GatewayFault::Kill => entry.told_unknown += 1,
            _ => entry.lost.push(what),
        }
    }
    counts
}

fn run_paid_answers(mut run: SoakRun, upstream: FakeUpstream, nodes: Vec<Gateway>, disk: Option<&SmallDisk>) {
    let stage = CallerStage::new(upstream, nodes);
    let waves: Vec<_> = (0..run.rounds.div_ceil(CALLERS)).map(|wave| run_wave(&stage, &run, wave, disk)).collect();
    for disturbance in [GatewayFault::Nothing, GatewayFault::Kill, GatewayFault::Departure, GatewayFault::FullDisk] {
        let callers = waves.iter().filter(|(what, _)| *what == disturbance).count() * CALLERS;
        run.note(&format!("callers, disturbance {disturbance:?}"), callers);
    }
    let counts = count(&stage, &waves);
    for (kind, counts) in &counts {
        run.note(&format!("{kind:?}: images that their callers have"), counts.images);
        run.note(&format!("{kind:?}: told that the outcome is unknown, after a kill"), counts.told_unknown);
    }
    run.note("paid calls", stage.upstream.attempt_count());
    let lost: Vec<_> = counts.values().flat_map(|counts| &counts.lost).collect();
    let paid_twice: Vec<_> = counts.values().flat_map(|counts| &counts.paid_twice).collect();
    let written_in_vain: Vec<_> = counts.values().flat_map(|counts| &counts.written_in_vain).collect();
    run.note(
        "paid for again, without a key, after the answer was written to a connection that ended",
        written_in_vain.len(),
    );
    run.note("lost", lost.len());
    run.note("paid for twice", paid_twice.len());
    run.print();
    assert!(lost.is_empty() && paid_twice.is_empty(), "lost: {lost:#?}\npaid for twice: {paid_twice:#?}");
    assert!(written_in_vain.is_empty(), "paid for again, without a key: {written_in_vain:#?}");
}

fn account(upstream: &FakeUpstream) -> Account {
    Account::for_upstream("only", upstream).with_slots(2 * CALLERS)
}

#[test]
fn no_paid_image_is_lost_on_sqlite() {
    let run = SoakRun::new("paid answers, SQLite, a disk that is nearly full", 2 * CALLERS, 1000);
    let upstream = FakeUpstream::start();
    let database = ("IMAGATE_DATABASE_URL", "sqlite:");
    let mut gateway = Gateway::with_secrets(SETTINGS, &[account(&upstream)], &[database, super::QUIET_LOG]);
    gateway.kill();
    let disk = gateway.move_data_to_disk(DISK);
    gateway.start();
    run_paid_answers(run, upstream, vec![gateway], disk.as_ref());
}

#[test]
fn no_paid_image_is_lost_on_two_nodes() {
    let run = SoakRun::new("paid answers, two nodes", 2 * CALLERS, 1000);
    let Some(database) = PostgresDatabase::create() else { return };
    let upstream = FakeUpstream::start();
    let nodes = [(); 2].map(|()| open_node(&database, SETTINGS, &[account(&upstream)]));
    run_paid_answers(run, upstream, nodes.into(), None);
}
