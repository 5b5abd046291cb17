//! Two nodes on one database share the slots of an account: its upstream never gets more requests at once than the
//! account allows, and the slots of a killed node are free again after a while.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{SoakRun, open_node};
use crate::kit::{Account, Call, FakeUpstream, Gateway, PostgresDatabase, Random, request};

const SLOTS: usize = 4;
/// The time after which the slots of a dead node must be in use: they expire after 15 seconds.
const SLOT_EXPIRY: Duration = Duration::from_secs(16);
/// Callers at once, over both nodes.
const CALLERS: usize = 64;
const REQUESTS_PER_ROUND: usize = 100;

fn open_nodes(upstream: &FakeUpstream) -> Option<[Gateway; 2]> {
    let database = PostgresDatabase::create()?;
    let account = [Account::for_upstream("only", upstream).with_slots(SLOTS)];
    Some([(); 2].map(|()| open_node(&database, "", &account)))
}

fn generation(node: &Gateway, script: &str) -> Call {
    let prompt = format!("a cube [[{script}]]");
    Call::generation().json(&request(json!({ "prompt": prompt }))).key(node.secret())
}

#[test]
fn two_nodes_never_use_more_slots_than_the_account_has() {
    let mut run = SoakRun::new("slots of an account, two nodes, 100 requests each round", 2, 50);
    let upstream = FakeUpstream::start();
    let Some(nodes) = open_nodes(&upstream) else { return };
    let (total, next, served) = (run.rounds * REQUESTS_PER_ROUND, AtomicUsize::new(0), AtomicUsize::new(0));
    let (seed, nodes) = (run.seed, &nodes);
    let send_all = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::SeqCst));
        for number in numbers.take_while(|number| *number < total) {
            let millis = Random::seeded(seed.wrapping_add(number as u64)).between(10, 40);
            let node = &nodes[number % 2];
            let answer = generation(node, &format!("delay={millis}")).send(node.address());
            served.fetch_add(usize::from(answer.status == 200), Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| (0..CALLERS).for_each(|_| drop(scope.spawn(send_all))));
    run.note("requests", total);
    run.note("images", served.load(Ordering::SeqCst));
    run.note("calls of the upstream", upstream.attempt_count());
    run.note("calls at once, at most", upstream.most_at_once());
    run.print();
    assert_eq!((served.load(Ordering::SeqCst), upstream.attempt_count()), (total, total));
    assert_eq!(upstream.most_at_once(), SLOTS);
}

/// Sends the call as often as the account has slots, waits until the upstream has all of them, and then does `work`.
/// Returns the number of images.
fn use_all_slots(call: &Call, address: SocketAddr, upstream: &FakeUpstream, work: impl FnOnce()) -> usize {
    let before = upstream.attempt_count();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..SLOTS).map(|_| scope.spawn(|| call.clone().try_send(address))).collect();
        upstream.wait_until("every slot is used", |attempts| attempts.len() == before + SLOTS);
        work();
        let answers = callers.into_iter().map(|caller| caller.join().expect("a caller"));
        answers.filter(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200)).count()
    })
}

#[test]
fn the_slots_of_a_killed_node_are_free_again() {
    let mut run = SoakRun::new("slots of a killed node", 1, 5);
    let upstream = FakeUpstream::start();
    let Some(mut nodes) = open_nodes(&upstream) else { return };
    let mut times = Vec::new();
    for round in 0..run.rounds {
        let (call, address) = (generation(&nodes[0], "gate=never"), nodes[0].address());
        assert_eq!(use_all_slots(&call, address, &upstream, || nodes[0].kill()), 0, "the node was killed");
        let killed = Instant::now();
        let gate = format!("open-{round}");
        let (call, address) = (generation(&nodes[1], &format!("gate={gate}")), nodes[1].address());
        let open = || {
            times.push(killed.elapsed());
            upstream.open_gate(&gate);
        };
        assert_eq!(use_all_slots(&call, address, &upstream, open), SLOTS);
        nodes[0].start();
    }
    let late = times.iter().filter(|time| **time > SLOT_EXPIRY).count();
    run.note("kills of a node with all slots", run.rounds);
    run.note_times("time until the other node had all slots", times);
    run.print();
    assert!(!run.is_long || late == 0, "{late} times, the slots were free too late");
}
