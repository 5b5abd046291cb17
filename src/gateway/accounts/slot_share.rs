//! The number of slots of an account that a node holds, if several nodes share the account. Pure.
//!
//! While no node needs more slots than it holds, each node holds its equal part, so a request finds a slot without a
//! query. A node that needs more takes what the others do not hold. They notice its need, keep what they use themselves up
//! to the equal part, and one slot if there are many, and give the rest back, at once or when the calls that use it end.
//! If there are fewer slots than nodes, a node gives each slot back after it was used, so that the slots go round.

use tokio::time::Instant;

use super::account::SlotLimits;
use crate::gateway::store::{OtherNodeHolding, SlotHolding};

/// The size of the equal part from which a node keeps one slot that it does not use (our choice), so that its next request
/// finds one at once. If the part is smaller, other nodes need that slot.
const SPARE_SLOT_MIN_PART: usize = 4;

/// The slots of one account that this node may use, and those that it holds in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberShare {
    pub(super) all: SlotShare,
    pub(super) large: SlotShare,
    /// The time from which other nodes may use the slots, unless this node confirms them before.
    pub(super) valid_until: Instant,
}

/// A number of slots of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotShare {
    /// The number of slots that requests may use.
    pub(super) usable: usize,
    /// The numbers in the store. The node may hold more than is usable, because running calls cannot be taken back.
    pub(super) holding: SlotHolding,
}

/// The need of this node for slots of one account.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotDemand {
    /// The slots of the account.
    pub(super) limit: usize,
    /// The slots that running calls use.
    pub(super) taken: usize,
    /// The number of requests that wait for a slot and could use one of this account.
    pub(super) waiting: usize,
}

// === impl MemberShare ===

impl MemberShare {
    /// The share of an account for which this node has not asked yet.
    pub(super) fn empty() -> Self {
        Self { all: SlotShare::default(), large: SlotShare::default(), valid_until: Instant::now() }
    }

    pub(super) fn usable_slots(&self, limits: SlotLimits, now: Instant) -> SlotLimits {
        if now >= self.valid_until {
            return SlotLimits { all: 0, large: 0 };
        }
        SlotLimits { all: self.all.usable.min(limits.all), large: self.large.usable.min(limits.large) }
    }

    /// True if requests of this node wait for slots that other nodes hold.
    pub(super) const fn needs_more(&self) -> bool {
        self.all.holding.wanted > self.all.holding.held || self.large.holding.wanted > self.large.holding.held
    }

    /// True if slots are to be given back when the calls that use them have ended.
    pub(super) const fn gives_back(&self) -> bool {
        self.all.holding.held > self.all.usable || self.large.holding.held > self.large.usable
    }
}

// === impl SlotShare ===

impl SlotShare {
    /// Returns the next share, if this many nodes use the account: the slots that requests may use from now on, and what
    /// the store shall have.
    pub(super) fn next(self, demand: SlotDemand, nodes: usize, others: OtherNodeHolding) -> Self {
        let available = demand.limit.saturating_sub(others.held);
        let part = demand.limit / nodes;
        let (wanted, usable) = if others.needs_more {
            // No growth in advance: a slot that is not used here is used elsewhere.
            (demand.needed().min(demand.limit), self.usable_beside_need(demand, part, nodes))
        } else {
            let wanted = self.wanted(demand);
            (wanted, wanted.max(part))
        };
        let usable = usable.min(available);
        Self { usable, holding: SlotHolding { held: usable.max(demand.taken), wanted } }
    }

    /// Returns the number of slots that the node could use now. If all usable slots are taken, the number grows in
    /// advance, so that a rise of the load does not pay one exchange for each slot.
    fn wanted(self, demand: SlotDemand) -> usize {
        let needed = demand.needed();
        let growth = if needed >= self.usable && needed > 0 { (needed / 2).max(1) } else { 0 };
        needed.saturating_add(growth).min(demand.limit)
    }

    fn usable_beside_need(self, demand: SlotDemand, part: usize, nodes: usize) -> usize {
        if part == 0 {
            // A node that holds a slot gives it back after use, and then another one takes it.
            return if self.holding.held == 0 { demand.needed().min(1) } else { 0 };
        }
        let spare = usize::from(part >= SPARE_SLOT_MIN_PART);
        demand.needed().saturating_add(spare).min(demand.limit.div_ceil(nodes))
    }
}

// === impl SlotDemand ===

impl SlotDemand {
    const fn needed(self) -> usize {
        self.taken.saturating_add(self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::accounts::selection::pseudo_random;

    /// One node of a simulation.
    #[derive(Clone, Copy, Debug, Default)]
    struct SimulatedNode {
        share: SlotShare,
        taken: usize,
        waiting: usize,
        served: usize,
    }

    /// Nodes that share an account. The holdings of their shares are what the store has.
    struct SlotSimulation {
        limit: usize,
        nodes: Vec<SimulatedNode>,
    }

    impl SlotSimulation {
        fn new(limit: usize, nodes: usize) -> Self {
            Self { limit, nodes: vec![SimulatedNode::default(); nodes] }
        }

        /// Lets a node exchange its slots, and checks that no slot is held twice.
        fn exchange(&mut self, index: usize) {
            let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != index);
            let others: Vec<SlotHolding> = others.map(|(_, node)| node.share.holding).collect();
            let others = OtherNodeHolding {
                held: others.iter().map(|holding| holding.held).sum(),
                needs_more: others.iter().any(|holding| holding.wanted > holding.held),
            };
            let nodes = self.nodes.len();
            let node = &mut self.nodes[index];
            let demand = SlotDemand { limit: self.limit, taken: node.taken, waiting: node.waiting };
            node.share = node.share.next(demand, nodes, others);
            node.serve();
            let held: usize = self.nodes.iter().map(|node| node.share.holding.held).sum();
            assert!(held <= self.limit, "{held} of {}: {:?}", self.limit, self.nodes);
            assert!(self.nodes.iter().all(|node| node.taken <= node.share.holding.held), "{:?}", self.nodes);
        }

        /// Lets all nodes exchange their slots three times, so that each can answer the needs of the others.
        fn settle(&mut self) {
            (0..3).for_each(|_| (0..self.nodes.len()).for_each(|index| self.exchange(index)));
        }

        fn usable(&self) -> Vec<usize> {
            self.nodes.iter().map(|node| node.share.usable).collect()
        }
    }

    impl SimulatedNode {
        fn serve(&mut self) {
            let served = self.share.usable.saturating_sub(self.taken).min(self.waiting);
            self.taken += served;
            self.waiting -= served;
            self.served += served;
        }

        fn end_calls(&mut self, count: usize) {
            self.taken -= count.min(self.taken);
            self.serve();
        }
    }

    #[test]
    fn a_node_alone_holds_all_slots() {
        let mut simulation = SlotSimulation::new(7, 1);
        simulation.settle();
        assert_eq!(simulation.usable(), [7]);
    }

    #[test]
    fn idle_nodes_hold_equal_parts() {
        let mut simulation = SlotSimulation::new(7, 3);
        simulation.settle();
        assert_eq!(simulation.usable(), [2, 2, 2]);
    }

    #[test]
    fn a_busy_node_gets_what_idle_nodes_do_not_need() {
        let mut simulation = SlotSimulation::new(8, 2);
        simulation.settle();
        simulation.nodes[0].waiting = 100;
        simulation.settle();
        assert_eq!(simulation.nodes[0].taken, 7, "the other node keeps one slot for its next request");
        simulation.nodes[1].waiting = 1;
        simulation.nodes[1].serve();
        assert_eq!(simulation.nodes[1].taken, 1, "that request needs no exchange");
    }

    #[test]
    fn a_busy_node_gets_all_slots_if_there_are_few() {
        let mut simulation = SlotSimulation::new(4, 2);
        simulation.settle();
        simulation.nodes[0].waiting = 100;
        simulation.settle();
        assert_eq!(simulation.nodes[0].taken, 4);
        simulation.nodes[1].waiting = 1;
        simulation.settle();
        simulation.nodes[0].end_calls(2);
        simulation.settle();
        assert_eq!((simulation.nodes[0].taken, simulation.nodes[1].taken), (3, 1), "a slot that is used is not missed");
    }

    #[test]
    fn busy_nodes_come_to_equal_parts() {
        let mut simulation = SlotSimulation::new(8, 2);
        simulation.nodes[0].waiting = 1000;
        simulation.settle();
        simulation.nodes[1].waiting = 1000;
        for _ in 0..4 {
            simulation.settle();
            simulation.nodes[0].end_calls(2);
        }
        simulation.settle();
        assert_eq!(simulation.usable(), [4, 4]);
    }

    #[test]
    fn fewer_slots_than_nodes_go_round() {
        for (limit, nodes) in [(1, 2), (1, 5), (2, 3)] {
            let mut simulation = SlotSimulation::new(limit, nodes);
            for node in &mut simulation.nodes {
                node.waiting = 1000;
            }
            for step in 0..200 * nodes {
                simulation.exchange(step % nodes);
                simulation.nodes[step % nodes].end_calls(1);
            }
            let served: Vec<usize> = simulation.nodes.iter().map(|node| node.served).collect();
            assert!(served.iter().all(|served| *served >= 20), "{limit} slots, {nodes} nodes: {served:?}");
        }
    }

    #[test]
    fn no_slot_is_held_twice_whatever_happens() {
        for seed in 0..200 {
            let mut number = 0;
            let mut below = |end: u64| {
                number += 1;
                usize::try_from(pseudo_random(seed, number) % end).unwrap()
            };
            let mut simulation = SlotSimulation::new(below(9) + 1, below(4) + 1);
            for _ in 0..300 {
                let index = below(simulation.nodes.len() as u64);
                match below(4) {
                    0 => simulation.nodes[index].waiting += below(6),
                    1 => simulation.nodes[index].end_calls(1 + index),
                    2 => simulation.nodes[index].serve(),
                    _ => simulation.exchange(index),
                }
            }
            for node in &mut simulation.nodes {
                (node.taken, node.waiting) = (0, 0);
            }
            simulation.settle();
            let idle = simulation.limit / simulation.nodes.len();
            assert!(simulation.usable().iter().all(|usable| *usable >= idle), "seed {seed}: {:?}", simulation.nodes);
        }
    }
}
