//! Who waits, pure: first come first served within a key, and the keys take turns. A key with a thousand requests
//! waits for itself, not the others for it.
//!
//! It carries C10 of the failure catalogue.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

/// Those who wait, by key.
#[derive(Debug)]
pub(super) struct Queue<K, W> {
    /// The keys that have somebody waiting; the first is next.
    turns: VecDeque<K>,
    /// In order of arrival.
    waiting: HashMap<K, BTreeMap<u64, W>>,
    total: usize,
    next: u64,
}

/// Names one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

// === impl Queue ===

impl<K, W> Default for Queue<K, W> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), waiting: HashMap::new(), total: 0, next: 0 }
    }
}

impl<K: Clone + Eq + Hash, W> Queue<K, W> {
    pub(super) const fn len(&self) -> usize {
        self.total
    }

    /// How many of this key wait.
    pub(super) fn of_key(&self, key: &K) -> usize {
        self.waiting.get(key).map_or(0, BTreeMap::len)
    }

    /// Puts one at the end of its key's line.
    pub(super) fn push(&mut self, key: K, waiter: W) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.total += 1;
        let line = self.waiting.entry(key.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(key);
        }
        line.insert(ticket, waiter);
        Ticket(ticket)
    }

    /// Takes one out who no longer waits.
    pub(super) fn remove(&mut self, key: &K, ticket: Ticket) -> Option<W> {
        let line = self.waiting.get_mut(key)?;
        let waiter = line.remove(&ticket.0)?;
        self.total -= 1;
        if line.is_empty() {
            self.waiting.remove(key);
            self.turns.retain(|other| other != key);
        }
        Some(waiter)
    }

    /// Takes out the one whose turn it is among those who can be `served`; then it is the other keys' turn.
    pub(super) fn take(&mut self, mut served: impl FnMut(&W) -> bool) -> Option<W> {
        let (turn, key, ticket) = self.turns.iter().enumerate().find_map(|(turn, key)| {
            let line = self.waiting.get(key)?;
            let (ticket, _) = line.iter().find(|(_, waiter)| served(waiter))?;
            Some((turn, key.clone(), Ticket(*ticket)))
        })?;
        self.turns.remove(turn);
        self.turns.push_back(key.clone());
        self.remove(&key, ticket)
    }

    /// Takes out all who are `done`, in the order in which their turn would have come within their key.
    pub(super) fn take_all(&mut self, mut done: impl FnMut(&W) -> bool) -> Vec<W> {
        let all = self.turns.iter().filter_map(|key| Some((key, self.waiting.get(key)?)));
        let all = all.flat_map(|(key, line)| line.iter().map(move |(ticket, waiter)| (key, *ticket, waiter)));
        let found: Vec<(K, Ticket)> =
            all.filter(|(.., waiter)| done(waiter)).map(|(key, ticket, _)| (key.clone(), Ticket(ticket))).collect();
        found.into_iter().filter_map(|(key, ticket)| self.remove(&key, ticket)).collect()
    }

    /// Takes out the newest of the longest line, where that is longer than this key's own.
    pub(super) fn make_room(&mut self, key: &K) -> Option<W> {
        let (longest, line) = self.waiting.iter().max_by_key(|(_, line)| line.len())?;
        let (longest, ticket) = (longest.clone(), Ticket(*line.last_key_value()?.0));
        (line.len() > self.of_key(key) + 1).then(|| self.remove(&longest, ticket)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(waiting: &[(char, u32)]) -> Queue<char, (char, u32)> {
        let mut queue = Queue::default();
        for waiter in waiting {
            queue.push(waiter.0, *waiter);
        }
        queue
    }

    fn order(queue: &mut Queue<char, (char, u32)>) -> Vec<(char, u32)> {
        std::iter::from_fn(|| queue.take(|_| true)).collect()
    }

    #[test]
    fn keys_take_turns_and_each_is_served_in_order() {
        let mut queue = queue(&[('a', 1), ('a', 2), ('a', 3), ('b', 1), ('b', 2), ('c', 1)]);
        assert_eq!(order(&mut queue), [('a', 1), ('b', 1), ('c', 1), ('a', 2), ('b', 2), ('a', 3)]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_thousand_of_one_key_hold_up_another_by_one_place() {
        let mut queue = Queue::default();
        for number in 0..1000 {
            queue.push('a', ('a', number));
        }
        queue.take(|_| true);
        queue.push('b', ('b', 0));
        assert_eq!(queue.take(|_| true), Some(('a', 1)));
        assert_eq!(queue.take(|_| true), Some(('b', 0)));
    }

    #[test]
    fn who_cannot_be_served_does_not_hold_up_those_behind() {
        let mut queue = queue(&[('a', 1), ('a', 2), ('b', 1)]);
        assert_eq!(queue.take(|(_, number)| *number == 2), Some(('a', 2)));
        assert_eq!(queue.take(|(_, number)| *number == 3), None);
        assert_eq!(order(&mut queue), [('b', 1), ('a', 1)]);
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let mut queue = Queue::default();
        let first = queue.push('a', 1);
        let second = queue.push('a', 2);
        assert_eq!(queue.remove(&'a', first), Some(1));
        assert_eq!(queue.remove(&'a', first), None);
        assert_eq!((queue.len(), queue.of_key(&'a')), (1, 1));
        assert_eq!(queue.remove(&'a', second), Some(2));
        assert_eq!((queue.turns.len(), queue.waiting.len(), queue.len()), (0, 0, 0));
    }

    #[test]
    fn the_hopeless_are_taken_out_together() {
        let mut queue = queue(&[('a', 1), ('b', 2), ('a', 3), ('b', 4)]);
        assert_eq!(queue.take_all(|(_, number)| number % 2 == 1), [('a', 1), ('a', 3)]);
        assert_eq!((queue.len(), queue.turns.len()), (2, 1));
    }

    #[test]
    fn room_is_made_at_the_cost_of_the_longest_line() {
        let mut queue = queue(&[('a', 1), ('a', 2), ('a', 3), ('b', 1)]);
        assert_eq!(queue.make_room(&'a'), None);
        assert_eq!(queue.make_room(&'c'), Some(('a', 3)));
        assert_eq!(queue.make_room(&'b'), None);
        assert_eq!(queue.len(), 3);
    }
}
