//! Two nodes behind a proxy are restarted in turn under load, and no request fails.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::comparison::assert_views_agree;
use super::load::{CallerOutcome, MixedLoad};
use super::{IN_FLIGHT, SoakRun, open_node};
use crate::kit::{Account, Answer, Call, FakeUpstream, PostgresDatabase, TEST_TIMEOUT, eventually, pause};

/// A node accepts requests until a second signal: the test sends it when the proxy has seen that the node is not ready,
/// however slow the machine is.
const SETTINGS: &str = "shutdown_delay = \"10m\"";
/// The time between these two: requests that the proxy sent before it knew are accepted meanwhile.
const ACCEPT_TIME: Duration = Duration::from_millis(300);
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A load balancer, as its client sees it: it sends requests to the nodes that are ready, in turn, and to the
/// other one if a node does not accept the connection. It never repeats a request that was sent.
struct TestLoadBalancer {
    nodes: [BalancedNode; 2],
    turn: AtomicUsize,
    is_closed: AtomicBool,
}

struct BalancedNode {
    address: SocketAddr,
    is_ready: AtomicBool,
}

// === impl TestLoadBalancer ===

impl TestLoadBalancer {
    fn new(addresses: [SocketAddr; 2]) -> Self {
        let nodes = addresses.map(|address| BalancedNode { address, is_ready: AtomicBool::new(true) });
        Self { nodes, turn: AtomicUsize::new(0), is_closed: AtomicBool::new(false) }
    }

    fn send(&self, call: &Call) -> std::io::Result<Answer> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut order = [&self.nodes[turn % 2], &self.nodes[(turn + 1) % 2]];
        order.sort_by_key(|node| !node.is_ready.load(Ordering::SeqCst));
        for node in order {
            match call.clone().try_send(node.address) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                answered => return answered,
            }
        }
        Err(ErrorKind::ConnectionRefused.into())
    }

    /// Asks all nodes whether they are ready, until the balancer is closed.
    fn check_nodes(&self) {
        while !self.is_closed.load(Ordering::SeqCst) {
            for node in &self.nodes {
                let is_ready = Call::get("/readyz").try_send(node.address).is_ok_and(|answer| answer.status == 200);
                node.is_ready.store(is_ready, Ordering::SeqCst);
            }
            pause(CHECK_INTERVAL);
        }
    }

    fn wait_until(&self, is_ready: bool, index: usize) {
        let found = || self.nodes[index].is_ready.load(Ordering::SeqCst);
        eventually("the proxy sees the state of the node", || (found() == is_ready).then_some(()));
    }
}

/// Closes the balancer when it is dropped, also by a panic.
struct ClosingGuard<'a>(&'a TestLoadBalancer);

impl Drop for ClosingGuard<'_> {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
    }
}

#[test]
fn restarts_of_two_nodes_in_turn_fail_no_request() {
    let mut run = SoakRun::new("restarts of two nodes in turn", 1, 100);
    let upstream = FakeUpstream::start();
    let Some(database) = PostgresDatabase::create() else { return };
    let account = [Account::for_upstream("only", &upstream).with_slots(2 * IN_FLIGHT)];
    let mut nodes = [(); 2].map(|()| open_node(&database, SETTINGS, &account));
    nodes.iter().for_each(crate::kit::Gateway::keep_address);
    let balancer = TestLoadBalancer::new([nodes[0].address(), nodes[1].address()]);
    let load = MixedLoad::new(nodes[0].secret(), run.seed);
    let restart_all = || {
        for _ in 0..run.rounds {
            for (index, node) in nodes.iter_mut().enumerate() {
                node.terminate();
                balancer.wait_until(false, index);
                pause(ACCEPT_TIME);
                node.server().terminate();
                assert!(node.server().wait(TEST_TIMEOUT).success());
                node.start_again();
                balancer.wait_until(true, index);
            }
        }
    };
    let ((), results) = std::thread::scope(|scope| {
        scope.spawn(|| balancer.check_nodes());
        let _closing = ClosingGuard(&balancer);
        load.run(IN_FLIGHT, |call| balancer.send(&call), restart_all)
    });
    run.note("restarts of a node", 2 * run.rounds);
    assert_views_agree(&mut run, &results, &upstream, &nodes[0]);
    assert!(results.iter().all(|result| result.outcome == CallerOutcome::Image), "a request failed");
    assert_eq!(upstream.attempt_count(), results.len(), "each request is paid for once");
}
